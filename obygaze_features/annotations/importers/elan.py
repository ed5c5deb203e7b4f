"""Import ELAN files as timelines.

Each tier belongs to one annotator: the tier's annotator, or else its participant, or else the
tier's own name. If that name is a default, or if files in several folders use it, the folder's name
is used instead. An annotation has a level and, after a colon, concepts: ``Sure: Body, Look``.
Alternatively, levels, concepts and comments are in dependent tiers whose names contain these words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from obygaze_features.annotations.build import SourceRow, build_timelines, read_films
from obygaze_features.annotations.remarks import KEPT, LEFT_OUT, TIER, Remark
from obygaze_features.annotations.timelines import ORIGIN, Film, Films, Segment, Timelines
from obygaze_features.common.elan import Annotation, Document, Tier, read_eaf
from obygaze_features.common.files import parse_json
from obygaze_features.common.text import counted, join_some, shorten
from obygaze_features.errors import AnnotationError, ManifestError
from obygaze_features.items.items import safe_id
from obygaze_features.manifests.labels import (
    LabelScheme,
    OwnLevels,
    choose_scheme,
    obygaze_scheme,
    parse_concepts,
    suggest_levels,
)

#: The kinds of tier that `annotations export` writes; only the first kind contains annotations.
SEGMENT_KIND, CLIP_KIND, DISCUSS_KIND = "segment", "label of a clip", "to discuss"
#: The kinds of tier that contain a model's predictions, not annotations.
MODEL_KINDS = ("prediction", "held-out prediction", "moment")
TITLE, END, TIMES, NAME = "obygaze title", "obygaze end", "obygaze times", "obygaze name"
FILE, SCHEME = "obygaze file", "obygaze scheme"
#: The properties of an ELAN file that describe its data set, by their names in `Timelines`.
ABOUT = {"name": "obygaze data set"} | {name: f"obygaze {name}" for name in ORIGIN}
ReadTier = tuple[Tier, list[Segment]]
RENAME = "put the word concepts into its name"
NAME_REMEDY = f"if it holds concepts, {RENAME}"
CONCEPTS_REMEDY = (
    "if it holds concepts, make it depend on the tier with levels (in ELAN: Tier > Reparent Tier), "
    f"and {RENAME}"
)
#: The default names of tiers in ELAN and in our template.
UNNAMED_TIERS = ("annotator1", "default")
#: The field that a dependent tier holds, by a word in the tier's name (in the singular).
_FIELDS = {"level": "level", "concept": "concepts", "comment": "comment", "note": "comment"}


def import_timelines(
    *sources: Path | str, films: Films = None, film: str | None = None, levels: OwnLevels = None
) -> Timelines:
    """Read ELAN files."""
    files = dict(_files([Path(source) for source in sources]))
    if not files:
        raise AnnotationError(f"no .eaf files in {', '.join(map(str, sources))}")
    rows: list[SourceRow | Remark] = []
    documents, schemes = _read_files(files, rows, film, carried=levels is None)
    scheme = choose_scheme("elan", levels) or _shared_scheme(schemes) or obygaze_scheme()
    details: dict[str, Film] = {}
    shared = _shared_tier_names(documents, files)
    names = {path: film or film_name(document, path.stem) for path, document in documents.items()}
    read = {path: _read_tiers(d, names[path], scheme) for path, d in documents.items()}
    for path, document in documents.items():
        name = names[path]
        details[safe_id(name)] = _update(details.get(safe_id(name), Film()), _film_of(document))
        rows += _rows(read[path], name, path.name, scheme, files[path], shared)
    for name, listed in read_films(films).items():
        details[safe_id(name)] = _update(details.get(safe_id(name), Film()), listed)
    rows += _check_film_names([row.segment for row in rows if isinstance(row, SourceRow)])
    return build_timelines(rows=rows, films=details, scheme=scheme, **_about([*files], documents))


def _read_files(
    paths: Iterable[Path], rows: list[SourceRow | Remark], film: str | None, *, carried: bool
) -> tuple[dict[Path, Document], dict[Path, LabelScheme]]:
    """Read files and the label schemes in them; add remarks on what was ignored to `rows`."""
    documents: dict[Path, Document] = {}
    schemes: dict[Path, LabelScheme] = {}
    errors: list[AnnotationError] = []
    for path in paths:
        try:
            document, left_out = read_eaf(path, AnnotationError)
            if carried and SCHEME in document.properties:
                schemes[path] = _parse_scheme(document.properties[SCHEME], path)
        except AnnotationError as error:
            errors.append(error)
            rows.append(Remark(path.name, "", "", str(error), LEFT_OUT))
            continue
        documents[path] = document
        name = film or film_name(document, path.stem)
        for location, problem in left_out:
            rows.append(Remark(f"{path.name}, {location}", name, "", problem, LEFT_OUT))
        if document.tiers and all(tier.kind in MODEL_KINDS for tier in document.tiers):
            problem = "contains a model's predictions, but no annotations"
            rows.append(Remark(path.name, name, "", problem, LEFT_OUT))
    if not documents:
        raise errors[0]
    return documents, schemes


def _parse_scheme(text: str, path: Path) -> LabelScheme:
    """Parse the label scheme in a file."""
    try:
        return LabelScheme.from_json(parse_json(text.encode(), "it", ManifestError))
    except ManifestError as error:
        raise AnnotationError(
            f"{path}: its label scheme cannot be read ({error}); pass its levels: --levels FILE"
        ) from None


def _shared_scheme(schemes: Mapping[Path, LabelScheme]) -> LabelScheme | None:
    """Return the files' common scheme, with the concepts of all files; raise if levels differ."""
    scheme = None
    for path, own in schemes.items():
        scheme = scheme or own
        if own.levels != scheme.levels:
            raise AnnotationError(
                f"{path} has different levels ({', '.join(own.codes)}) from {next(iter(schemes))} "
                f"({', '.join(scheme.codes)}); import each file separately, or pass a common "
                "scheme: --levels FILE"
            )
        scheme = scheme.with_concepts(own.concepts)
    return scheme


def _about(paths: Sequence[Path], documents: Mapping[Path, Document]) -> dict[str, str]:
    """Return the data set's properties as stated in the files, joining values that differ."""
    stated = {
        name: [*dict.fromkeys(d.properties[key] for d in documents.values() if key in d.properties)]
        for name, key in ABOUT.items()
    }
    about = {name: "; ".join(texts) for name, texts in stated.items()}
    first, *others = (path.name for path in paths)
    source = f"{first} and {counted(len(others), 'more ELAN file')}" if others else first
    if len(stated["name"]) != 1:
        about["name"] = "elan" if others else safe_id(Path(first).stem)
    return about | {"source": about["source"] or source}


def _update(before: Film, new: Film) -> Film:
    return Film(new.title or before.title, new.end or before.end)


def _files(sources: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each file with its folder's name, or "" for a file directly in the only source."""
    several = len(sources) > 1
    for source in sources:
        if source.is_dir():
            for path in sorted(source.rglob("*.eaf")):
                yield path, path.parent.name if several or path.parent != source else ""
        elif source.suffix.lower() == ".eaf" or not source.exists():
            yield source, source.absolute().parent.name if several else ""
        else:
            raise AnnotationError(
                f"{source} is not an .eaf file; save it with ELAN, or import a table with: "
                "obygaze annotations import csv"
            )


def _shared_tier_names(documents: Mapping[Path, Document], folders: Mapping[Path, str]) -> set[str]:
    """Return tier names that do not identify an annotator: default names and shared names."""
    folders_of: dict[str, set[str]] = {}
    for path, document in documents.items():
        for tier in document.tiers:
            folders_of.setdefault(tier.name, set()).add(folders[path])
    return {*UNNAMED_TIERS, *(name for name, used in folders_of.items() if len(used) > 1)}


def _check_film_names(segments: Sequence[Segment]) -> Iterator[Remark]:
    """Yield a remark if there are several annotators, but no film has more than one.

    The files may then be named after people instead of films.
    """
    annotators: dict[str, set[str]] = {}
    for segment in segments:
        annotators.setdefault(safe_id(segment.film), set()).add(safe_id(segment.annotator))
    alone = all(len(names) == 1 for names in annotators.values())
    if alone and len(set().union(*annotators.values())) > 1:
        problem = (
            f"no film has two annotators (films: {join_some(sorted(annotators), 4)}); name each "
            "file after its film, in a folder per annotator: anna/Juno.eaf, ben/Juno.eaf"
        )
        yield Remark("films", "", "", problem, KEPT)


def field_of(tier: str) -> str | None:
    """Return the field of a segment that a dependent tier holds, according to the tier's name.

    Examples
    --------
    >>> field_of("annotator1, concepts"), field_of("Comments@Anna"), field_of("dialogue")
    ('concepts', 'comment', None)
    """
    words = (word.removesuffix("s") for word in re.findall("[a-z]+", tier.casefold()))
    return next((_FIELDS[word] for word in words if word in _FIELDS), None)


def _read_tiers(document: Document, film: str, scheme: LabelScheme) -> list[ReadTier]:
    """Return the tiers that people annotated, with segments whose annotator is not yet set."""
    exact = _parse_exact_times(document.properties.get(TIMES, ""))
    offered = {concept.name for concept in scheme.concepts}
    return [
        (tier, [_segment(n, film, exact, scheme, offered) for n in tier.annotations])
        for tier in document.tiers
        if tier.kind not in (CLIP_KIND, DISCUSS_KIND, *MODEL_KINDS) and tier.annotations
    ]


def _rows(
    read: Sequence[ReadTier],
    film: str,
    file: str,
    scheme: LabelScheme,
    folder: str,
    shared: set[str],
) -> Iterator[SourceRow | Remark]:
    """Yield the rows of a document, or a remark for a tier without levels.

    If only one tier has a `shared` name, that tier belongs to the annotator called `folder`.
    """
    have_levels = [any(scheme.has_level(s.level) for s in segments) for _, segments in read]
    unnamed = [
        tier.name
        for (tier, _), has_levels in zip(read, have_levels, strict=True)
        if has_levels and tier.name in shared and not tier.annotator
    ]
    for (tier, segments), has_levels in zip(read, have_levels, strict=True):
        named_after = folder if folder and unnamed == [tier.name] else tier.name
        who = tier.annotator or named_after
        segments = [replace(segment, annotator=who) for segment in segments]
        if has_levels:
            for note, segment in zip(tier.annotations, segments, strict=True):
                yield SourceRow(f"{file}, {note.location}", segment)
            details = dict.fromkeys(name for note in tier.annotations for name in note.details)
            for name in details:
                if field_of(name) is None:
                    problem = f"depends on {shorten(tier.name)}; {NAME_REMEDY}"
                    where = f"{file}, tier {shorten(name)}"
                    yield Remark(where, film, who, problem, LEFT_OUT, f"{TIER}:{name}")
        else:
            problem = (
                f"has no known level in {counted(len(segments), 'annotation')} "
                f"(the first: {shorten(tier.annotations[0].value)})"
            )
            texts = {segment.level for segment in segments}
            problem += f"; {CONCEPTS_REMEDY if any(have_levels) else suggest_levels(texts)}"
            yield Remark(f"{file}, tier {shorten(tier.name)}", film, who, problem, LEFT_OUT, TIER)


def _film_of(document: Document) -> Film:
    """Return the title and end of the film, as written by `annotations export`."""
    text = document.properties.get(END, "")
    end = float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?", text) else None
    return Film(document.properties.get(TITLE, ""), end or None)


def film_name(document: Document, stem: str) -> str:
    """Return the film's name as written by `annotations export`, or else the file's name.

    If the file was renamed after the export, return its current name.
    """
    name, written = (document.properties.get(key, "") for key in (NAME, FILE))
    return name if name and safe_id(stem) in (safe_id(name), safe_id(written)) else stem


def _segment(
    note: Annotation,
    film: str,
    exact: Mapping[int, float],
    scheme: LabelScheme,
    offered: Collection[str],
) -> Segment:
    """Convert an ELAN annotation to a segment without an annotator.

    Texts in `offered`, the scheme's concepts, are not split into several concepts.
    """
    texts: dict[str, list[str]] = {"concepts": []}
    for tier, detail in note.details.items():
        if name := field_of(tier):
            texts.setdefault(name, []).extend(part for part in detail if part.strip())
    fields = {name: ", ".join(parts) for name, parts in texts.items() if parts}
    level, concepts = note.value, ""
    if not scheme.has_level(level):  # a level may contain a colon
        level, _, concepts = level.partition(":")
    comment = fields.get("comment", "")
    if "level" in fields and not scheme.has_level(level):
        # The level is in a dependent tier, so the annotation's own text is a comment.
        concepts, comment = "", comment or note.value
    named = ((text,) if text in offered else parse_concepts(text) for text in texts["concepts"])
    names = (*chain(*named), *parse_concepts(concepts))
    start, end = (exact.get(time, time / 1000) for time in (note.start, note.end))
    level = fields.get("level", level).strip()
    return Segment(film, "", start, end, level, names, comment)


def _parse_exact_times(text: str) -> dict[int, float]:
    """Map milliseconds to exact times in seconds. Times changed in ELAN have no entry."""
    exact = {}
    for word in text.split():
        if re.fullmatch(r"[0-9]{1,10}\.[0-9]{1,6}", word):
            exact[round(float(word) * 1000)] = float(word)
    return exact
