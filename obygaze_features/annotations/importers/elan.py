"""ELAN's own files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from obygaze_features.annotations.build import SourceRow, build_timelines
from obygaze_features.annotations.elan import film_name, film_of, read_rows
from obygaze_features.annotations.issues import KEPT, LEFT_OUT, Issue
from obygaze_features.annotations.timelines import Film, Timelines
from obygaze_features.common.elan import read_eaf
from obygaze_features.common.text import counted
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests.items import safe_id
from obygaze_features.manifests.labels import obygaze_scheme


def import_timelines(
    sources: Sequence[Path], films: Mapping[str, Film] | None = None, *, film: str | None = None
) -> Timelines:
    """Read ELAN's files, each of which is of one film.

    Parameters
    ----------
    sources
        ``.eaf`` files, and folders of them.
    films
        Titles and ends of the films; they replace those in the files.
    film
        The film that all files are of; by default each is of the film that it is named after.
    """
    files = dict(_files(sources))
    if not files:
        raise AnnotationError(f"no .eaf files in {', '.join(map(str, sources))}")
    rows: list[SourceRow | Issue] = []
    details: dict[str, Film] = {}
    scheme = obygaze_scheme()
    errors: list[AnnotationError] = []
    for path, annotator in files.items():
        try:
            content = read_eaf(path, AnnotationError)
        except AnnotationError as error:
            errors.append(error)
            rows.append(Issue(path.name, "", "", str(error), LEFT_OUT))
            continue
        document = content.document
        name = film or film_name(document, path.stem)
        details[safe_id(name)] = _update(details.get(safe_id(name), Film()), film_of(document))
        for location, problem in content.left_out:
            rows.append(Issue(f"{path.name}, {location}", name, "", problem, LEFT_OUT))
        rows += [Issue(path.name, name, "", problem, KEPT) for problem in content.ignored]
        rows += read_rows(document, name, path.name, scheme, annotator)
    if len(errors) == len(files):
        raise errors[0]
    for name, given in (films or {}).items():
        details[safe_id(name)] = _update(details.get(safe_id(name), Film()), given)
    first, *others = (path.name for path in files)
    source = f"{first} and {counted(len(others), 'more file')} of ELAN's" if others else first
    name = "elan" if others else safe_id(Path(first).stem)
    return build_timelines(name, rows, details, source=source)


def _update(before: Film, new: Film) -> Film:
    return Film(new.title or before.title, new.end or before.end)


def _files(sources: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Files, and the annotator if they are in a folder of that name."""
    for source in sources:
        if source.is_dir():
            for path in sorted(source.rglob("*.eaf")):
                yield path, path.parent.name if path.parent != source else ""
        elif source.suffix.lower() == ".eaf" or not source.exists():
            yield source, ""
        else:
            raise AnnotationError(
                f"{source} is not an .eaf file; save it with ELAN, or import a table with: "
                "obygaze annotations import csv"
            )
