"""ELAN: its own files, and its exports as tab-delimited text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from obygaze_features.annotations.elan import film_of, name_of, rows_of
from obygaze_features.annotations.gathering import Row, gather
from obygaze_features.annotations.importers.elan_tabs import read_tabs
from obygaze_features.annotations.importers.shared import finish, output_options, read_films
from obygaze_features.annotations.remarks import KEPT, LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Film, Timelines
from obygaze_features.common.elan_reader import Reading, read_eaf
from obygaze_features.common.text import counted
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests.items import safe_id
from obygaze_features.manifests.labels import obygaze_scheme

__all__ = ["import_elan"]


def import_elan(
    sources: Sequence[Path], films: Mapping[str, Film] | None = None, *, film: str | None = None
) -> Timelines:
    """Read ELAN's files, each of which is a film.

    Parameters
    ----------
    sources
        ``.eaf`` files, folders of them, and tab-delimited exports.
    films
        What is known of the films; it goes before what the files say.
    film
        The film that all files are of; by default each is of the film that it is named after.
    """
    files = dict(_files(sources))
    if not files:
        raise AnnotationError(f"no .eaf files in {', '.join(map(str, sources))}")
    rows: list[Row | Remark] = []
    known: dict[str, Film] = {}
    scheme = obygaze_scheme()
    unread: list[AnnotationError] = []
    for path, annotator in files.items():
        try:
            readings = list(_read(path, film))
        except AnnotationError as error:
            unread.append(error)
            rows.append(Remark(path.name, "", "", str(error), LEFT_OUT))
            continue
        for name, reading in readings:
            document = reading.document
            known[safe_id(name)] = _known(known.get(safe_id(name), Film()), film_of(document))
            for where, what in reading.left_out:
                rows.append(Remark(f"{path.name}, {where}", name, "", what, LEFT_OUT))
            rows += [Remark(path.name, name, "", what, KEPT) for what in reading.kept]
            rows += rows_of(document, name, path.name, scheme, annotator)
    if len(unread) == len(files):
        raise unread[0]
    for name, one in (films or {}).items():
        known[safe_id(name)] = _known(known.get(safe_id(name), Film()), one)
    first, *others = (path.name for path in files)
    source = f"{first} and {counted(len(others), 'more file')} of ELAN's" if others else first
    name = "elan" if others else safe_id(Path(first).stem)
    return gather(name, rows, known, source=source)


def _known(before: Film, now: Film) -> Film:
    return Film(now.title or before.title, now.end or before.end)


def _files(sources: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Files, and the annotator where they lie in folders of that name."""
    for source in sources:
        if source.is_dir():
            for path in sorted(source.rglob("*.eaf")):
                yield path, path.parent.name if path.parent != source else ""
        else:
            yield source, ""


def _read(path: Path, film: str | None) -> Iterator[tuple[str, Reading]]:
    """A file's documents, each with its film's name."""
    if path.suffix.lower() == ".eaf":
        reading = read_eaf(path, AnnotationError)
        yield film or name_of(reading.document, path.stem), reading
        return
    for name, reading in read_tabs(path).items():
        yield film or name or path.stem, reading


@click.command("elan")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--film", help="The film that SOURCES are of; by default a file is named after it.")
@output_options
def command(
    sources: tuple[Path, ...],
    film: str | None,
    films: Path | None,
    output: Path,
    overwrite: bool,
    as_json: bool,
) -> None:
    """ELAN's files, or its tab-delimited exports.

    SOURCES are .eaf files or folders of them, or what ELAN exports as tab-delimited text. Each
    file is of one film. Each tier is of one annotator: whom the tier names as its annotator, or
    else its participant, or else the folder that the file lies in within a SOURCE, or else the
    tier's own name.

    An annotation says its level, and behind a colon its concepts: "Sure: Body, Look". Tiers below
    it whose names have the word level, concepts or comment say these instead. A tier in which no
    annotation names a level is left out. Nothing that a file refers to is fetched. Ends with exit
    code 3 if something had to be left out.

    \b
    Examples:
      obygaze annotations import elan films -o timelines/mine
      obygaze annotations import elan juno.eaf juno-second.txt --film juno -o timelines/juno
    """
    found = import_elan(sources, read_films(films), film=film)
    finish(found, output, overwrite=overwrite, as_json=as_json)
