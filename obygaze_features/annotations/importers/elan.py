"""Import ELAN files as timelines.

Each tier belongs to one annotator, named in the tier's Annotator field, or else by the tier's name.
(Participants are often the people on screen.) If a file has only one tier that has no annotator and
whose name is a default or is used in several folders, the folder's name is used instead (see
`File`). An annotation has a level and, after a colon, concepts: ``Sure: Body, Look``.
Alternatively, levels, concepts and comments are in dependent tiers whose names contain these words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from obygaze_features.annotations.build import SourceRow, build_timelines, read_films
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import ORIGIN, Film, Films, Segment, Timelines
from obygaze_features.common.elan import Annotation, Document, read_eaf
from obygaze_features.common.files import parse_json
from obygaze_features.common.formatting import join_some, shorten
from obygaze_features.errors import AnnotationError, ManifestError, errors_as
from obygaze_features.items.items import safe_id
from obygaze_features.manifests.labels import (
    OWN_LEVELS,
    LabelScheme,
    OwnLevels,
    choose_scheme,
    name_key,
    obygaze_scheme,
    parse_concepts,
)

#: The kind of tier that `annotations export` writes.
SEGMENT_KIND = "segment"
#: The kinds of tier that are not imported: what versions before 0.5 wrote, and results of models.
NOT_SEGMENTS = ("label of a clip", "to discuss", "prediction", "held-out prediction", "moment")
TITLE = "obygaze title"
END = "obygaze end"
TIMES = "obygaze times"
NAME = "obygaze name"
FILE = "obygaze file"
SCHEME = "obygaze scheme"
#: The properties of an ELAN file that describe its data set, by their names in `Timelines`.
ABOUT = {"name": "obygaze data set"} | {name: "obygaze " + name for name in ORIGIN}
NO_LEVEL = (
    "has no known level (see --levels); a tier of concepts must depend on a tier with levels, and "
    "be of the type Symbolic Subdivision or Symbolic Association"
)
NOTHING_MARKED = (
    "has no annotations with times and a known level; if the film has nothing to mark, "
    "mark it once with the lowest level"
)
OTHER_TIER = "depends on a tier with levels, but is not named after levels, concepts or comments"
#: The maximum number of pick-lists that an error proposes as levels.
MAX_PROPOSALS = 3
#: The default names of tiers in ELAN and in our template.
UNNAMED_TIERS = {"annotator1", "default"}
#: The field that a dependent tier holds, by a word in the tier's name (in the singular).
_FIELDS = {"level": "level", "concept": "concepts", "comment": "comment", "note": "comment"}


@dataclass(frozen=True)
class File:
    """An ELAN file that was read.

    `folder` is the name of its folder, or "" if there is one source and the file is not in a
    subfolder of it. `where` consists of `folder` and the file's name, for remarks.
    """

    path: Path
    folder: str
    where: str
    document: Document
    film: str


def import_timelines(
    *sources: Path | str,
    films: Films,
    film: str | None,
    levels: OwnLevels,
) -> Timelines:
    """Read ELAN files."""
    files = []
    spelling: dict[str, str] = {}
    rows: list[SourceRow | Remark] = []
    errors = [AnnotationError(f"no .eaf files in {', '.join(map(str, sources))}; check the path")]
    for path, folder in _find_files(list(map(Path, sources))):
        where = Path(folder, path.name).as_posix()
        try:
            document, left_out = read_eaf(path, AnnotationError)
        except AnnotationError as error:
            errors.append(error)
            rows.append(Remark(where, "", "", str(error), LEFT_OUT))
            continue
        name = film or film_name(document, path.stem)
        name = spelling.setdefault(name.casefold(), name)
        files.append(File(path, folder, where, document, name))
        for location, problem in left_out:
            rows.append(Remark(f"{where}, {location}", name, "", problem, LEFT_OUT))
    if not files:
        raise errors[-1]

    scheme = choose_scheme(levels) or _shared_scheme(files) or obygaze_scheme()
    shared = _shared_tier_names(files)
    details: dict[str, Film] = {}
    for file in files:
        of_file = list(_rows(file, scheme, shared))
        kinds = {tier.tier_type for tier in file.document.tiers}
        if not of_file and kinds.isdisjoint(NOT_SEGMENTS):
            of_file.append(Remark(file.where, file.film, "", NOTHING_MARKED, LEFT_OUT))
        rows += of_file
        _add_film(details, file.film, _film_of(file.document))
    if len(errors) == 1 and not any(isinstance(row, SourceRow) for row in rows):
        raise AnnotationError(
            f"no annotation has times and a known level ({scheme.order}); {OWN_LEVELS}"
            f". Pick-lists in the files: {_propose_levels(files)}"
        )
    for name, listed in read_films(films).items():
        _add_film(details, name, listed)
    return build_timelines(rows=rows, films=details, scheme=scheme, **_about(files))


def _find_files(sources: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each file with the `folder` of its `File`."""
    several = len(sources) > 1
    for source in sources:
        if source.is_dir():
            for path in sorted(source.rglob("*.[eE][aA][fF]")):
                yield path, path.parent.name if several or path.parent != source else ""
        else:
            yield source, source.absolute().parent.name if several else ""


def film_name(document: Document, stem: str) -> str:
    """Return the film's name as written by `annotations export`, or else the file's name.

    If the file was renamed after the export, return its current name.
    """
    name = document.properties.get(NAME, "")
    written = document.properties.get(FILE, "")
    if name and safe_id(stem) in (safe_id(name), safe_id(written)):
        return name
    return stem


def _film_of(document: Document) -> Film:
    """Return the title and end of the film, as written by `annotations export`, and its video."""
    text = document.properties.get(END, "")
    end = None
    if re.fullmatch(r"[0-9]{1,8}(\.[0-9]*)?", text):
        end = round(float(text) + document.origin / 1000, 6)
    return Film(document.properties.get(TITLE, ""), end or None, media=document.media)


def _add_film(films: dict[str, Film], name: str, new: Film) -> None:
    before = films.get(safe_id(name), Film())
    title = new.title or before.title
    films[safe_id(name)] = Film(title, new.end or before.end, media=before.media or new.media)


def _shared_scheme(files: Iterable[File]) -> LabelScheme | None:
    """Return the files' common scheme, with the concepts of all files; raise if levels differ."""
    scheme = None
    for file in files:
        text = file.document.properties.get(SCHEME)
        if text is None:
            continue
        problem = "its label scheme cannot be read; pass its levels (--levels FILE)"
        with errors_as(AnnotationError, f"{file.path}: {problem}"):
            stated = LabelScheme.from_json(parse_json(text.encode(), "it", ManifestError))
        scheme = scheme or stated
        if stated.levels != scheme.levels:
            raise AnnotationError(
                f"{file.path} has different levels, names or aliases ({', '.join(stated.codes)}) "
                f"from another file ({', '.join(scheme.codes)}); pass a common scheme: "
                "--levels FILE"
            )
        scheme = scheme.with_concepts(stated.concepts)
    return scheme


def _about(files: Sequence[File]) -> dict[str, str]:
    """Return the data set's properties as stated in the files, joining values that differ.

    The name is ``elan`` if the files have no name, or several.
    """
    about = {}
    for name, key in ABOUT.items():
        stated = dict.fromkeys(file.document.properties.get(key, "") for file in files)
        about[name] = "; ".join(filter(None, stated))

    if ";" in about["name"] or not about["name"]:
        about["name"] = "elan"
    about["source"] = about["source"] or join_some(sorted({file.path.name for file in files}))
    return about


def _shared_tier_names(files: Iterable[File]) -> set[str]:
    """Return the default names of tiers, and the names that are used in several folders."""
    folders_of: dict[str, set[str]] = {}
    for file in files:
        for tier in file.document.tiers:
            folders_of.setdefault(name_key(tier.name), set()).add(file.folder)
    return {name for name, folders in folders_of.items() if len(folders) > 1} | UNNAMED_TIERS


def field_of(tier: str) -> str | None:
    """Return the field of a segment that a dependent tier holds, according to the tier's name.

    Examples
    --------
    >>> field_of("annotator1, concepts"), field_of("Comments@Anna"), field_of("dialogue")
    ('concepts', 'comment', None)
    """
    for word in re.findall("[a-z]+", tier.casefold()):
        field = _FIELDS.get(word.removesuffix("s"))
        if field:
            return field
    return None


def _rows(file: File, scheme: LabelScheme, shared: set[str]) -> Iterator[SourceRow | Remark]:
    """Yield the rows of a document, and remarks on tiers that seem to be marked but are left out.

    Other tiers without any known level may hold anything, such as the dialogue.
    If only one tier has a `shared` name and no annotator, its annotator is named after the folder,
    unless `file.folder` is empty.
    """
    exact = _parse_exact_times(file.document)
    unnamed = []
    found = []
    for tier in file.document.tiers:
        who = tier.annotator or tier.name
        rows = [_row(file, note, who, exact, scheme) for note in tier.annotations]
        has_level = any(scheme.has_level(row.segment.level) for row in rows)
        seems_marked = rows and field_of(tier.name) and tier.tier_type not in NOT_SEGMENTS
        if not has_level and (seems_marked or tier.tier_type == SEGMENT_KIND):
            where = f"{file.where}, tier {shorten(tier.name)}"
            yield Remark(where, file.film, "", NO_LEVEL, LEFT_OUT)
        if tier.tier_type in NOT_SEGMENTS or not has_level:
            continue
        found.append(rows)
        if name_key(tier.name) in shared and not tier.annotator:
            unnamed.append(rows)
        for name in dict.fromkeys(name for note in tier.annotations for name in note.details):
            if field_of(name) is None:
                where = f"{file.where}, tier {shorten(name)}"
                yield Remark(where, file.film, who, OTHER_TIER, LEFT_OUT)

    for rows in found:
        for row in rows:
            if file.folder and len(unnamed) == 1 and rows is unnamed[0]:
                row = SourceRow(row.where, replace(row.segment, annotator=file.folder))
            yield row


def _row(
    file: File,
    note: Annotation,
    who: str,
    exact: Mapping[int, float],
    scheme: LabelScheme,
) -> SourceRow:
    """Convert an ELAN annotation to a row.

    Texts that are concepts of the scheme are not split into several concepts.
    """
    texts: dict[str, list[str]] = {"level": [], "concepts": [], "comment": []}
    for tier, details in note.details.items():
        field = field_of(tier)
        if field:
            texts[field] += filter(str.strip, details)

    level = note.value
    after = ""
    if not scheme.has_level(level):  # a level may contain a colon
        level, _, after = level.partition(":")
    comment = ", ".join(texts["comment"])
    if texts["level"]:
        if not scheme.has_level(level):
            # The annotation's own text is a comment.
            comment = comment or note.value
            after = ""
        level = ", ".join(texts["level"])

    concepts = []
    for text in texts["concepts"]:
        if text in scheme.concept_names:
            concepts.append(text)
        else:
            concepts += parse_concepts(text)
    concepts += parse_concepts(after)
    start = exact.get(note.start, note.start / 1000)
    end = exact.get(note.end, note.end / 1000)
    segment = Segment(file.film, who, start, end, level.strip(), tuple(concepts), comment)
    return SourceRow(f"{file.where}, {note.location}", segment)


def _parse_exact_times(document: Document) -> dict[int, float]:
    """Map milliseconds to exact times in seconds. Times changed in ELAN have no entry."""
    exact = {}
    for word in document.properties.get(TIMES, "").split():
        if re.fullmatch(r"[0-9]{1,10}\.[0-9]{1,6}", word):
            milliseconds = round(float(word) * 1000) + document.origin
            exact[milliseconds] = round(float(word) + document.origin / 1000, 6)
    return exact


def _propose_levels(files: Iterable[File]) -> str:
    """Return the pick-lists in files, which may be levels."""
    pick_lists: dict[str, Sequence[str]] = {}
    for file in files:
        pick_lists |= file.document.pick_lists
    options = []
    for name, texts in pick_lists.items():
        options.append(f"{shorten(name)} (--levels {shorten(','.join(texts))})")
    return join_some(options, MAX_PROPOSALS) or "none"
