"""Build timelines from the rows of any source, with remarks on rows that have a problem."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from obygaze_features.annotations.remarks import CUT, KEPT, LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Film, Films, Segment, Timelines
from obygaze_features.common.formatting import MAX_TIME_S, format_time, join_some, shorten
from obygaze_features.common.names import composed, unknown_name
from obygaze_features.common.tables import read_mapped_table
from obygaze_features.errors import AnnotationError, errors_as
from obygaze_features.items.items import id_problem, safe_id, safe_ids
from obygaze_features.manifests.importers.reading import film_of_file, parse_time
from obygaze_features.manifests.labels import (
    OWN_LEVELS,
    Concept,
    LabelScheme,
    map_column,
    name_key,
    obygaze_scheme,
)


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A segment and its location in the source, with names as written and times in seconds."""

    where: str
    segment: Segment

    def remark(self, problem: str, done: str = LEFT_OUT) -> Remark:
        """Return a remark about this row."""
        segment = self.segment
        span = f"{format_time(segment.start)} to {format_time(segment.end)}"
        return Remark(f"{self.where} ({span})", segment.film, segment.annotator, problem, done)


def build_timelines(
    name: str,
    rows: Iterable[SourceRow | Remark],
    films: Films = None,
    scheme: LabelScheme | None = None,
    **about: Any,
) -> Timelines:
    """Make timelines from the rows that an importer read, with remarks on anything unusual.

    Rows are left out if they have no film, no annotator or no known level, if their times are
    impossible (for example, the end is not after the start), or if they are duplicates. If all
    levels are unknown, `AnnotationError` is raised. Segments are cut at the end of their film.
    Concepts that the scheme does not list are kept as non-visual concepts, or as visual concepts if
    the scheme lists no concepts.

    Parameters
    ----------
    name
        The name of the timelines.
    rows
        The rows, in any order, with a remark in place of each unreadable row.
    films
        The path of a table, or titles and ends of films by their names in the source. A film
        without rows is dropped, with a remark, because its name may be misspelt.
    scheme
        The levels and concepts (default: ObyGaze's).
    about
        Further attributes of `Timelines`: source, licence, citation.
    """
    scheme = scheme or obygaze_scheme()
    known = read_films(films)
    rows = list(rows)
    remarks = [row for row in rows if isinstance(row, Remark)]
    found = [row for row in rows if isinstance(row, SourceRow)]
    levels = {row.segment.level for row in found}
    if levels and not any(map(scheme.has_level, levels)):
        raise AnnotationError(
            f"{name}: no row has a known level (got {join_some(sorted(levels), 3)}); {OWN_LEVELS}"
        )

    film_ids = _ids("film", found)
    annotator_ids = _ids("annotator", found)
    unread = sorted(known.keys() - film_ids.values())
    if unread:
        problem = f"no rows for {join_some(unread)}"
        remarks.append(Remark("films", "", "", problem, "not used"))

    sound = []
    for row in found:
        film = film_ids.get(row.segment.film, "")
        annotator = annotator_ids.get(row.segment.annotator, "")
        row = SourceRow(row.where, replace(row.segment, film=film, annotator=annotator))
        film_end = known.get(film, Film()).end or math.inf
        problem = _problem(row.segment, scheme, film_end)
        if problem:
            remarks.append(row.remark(problem))
            continue
        if row.segment.end > film_end:
            remarks.append(row.remark("ends after the end of its film", CUT))
        level = scheme.level(row.segment.level)
        end = min(row.segment.end, film_end)
        sound.append(SourceRow(row.where, replace(row.segment, level=level, end=end)))

    scheme, of_concepts = _with_concepts(scheme, sound)
    remarks += of_concepts
    segments = set[Segment]()
    for row in sound:
        concepts = scheme.in_order(row.segment.concepts)
        segment = row.segment
        if concepts != segment.concepts:
            segment = replace(segment, concepts=concepts)
        if segment in segments:
            remarks.append(row.remark("repeats another row"))
        segments.add(segment)

    annotators = {segment.annotator for segment in segments}
    written = _names_as_written(annotator_ids)
    about["names"] = {name: written[name] for name in sorted(annotators & written.keys())}
    about["films"] = _details({segment.film for segment in segments}, known, film_ids)
    about["remarks"] = tuple(remarks)
    return Timelines(name, list(segments), scheme=scheme, **about)


def _details(
    films: Iterable[str],
    known: Mapping[str, Film],
    ids: Mapping[str, str],
) -> dict[str, Film]:
    """Return what is known of each film, with its name in the source if that is not its id."""
    written = _names_as_written(ids)
    details = {}
    for film in sorted(films):
        details[film] = known.get(film, Film())
        if film in written:
            title = details[film].title or written[film]
            details[film] = replace(details[film], title=title, name=written[film])
    return details


def _names_as_written(ids: Mapping[str, str]) -> dict[str, str]:
    """Return the names in the source that are not valid ids, by the id made from each."""
    return {id_: name for name, id_ in sorted(ids.items()) if safe_id(name) == id_ != name}


def _with_concepts(
    scheme: LabelScheme,
    rows: Iterable[SourceRow],
) -> tuple[LabelScheme, list[Remark]]:
    """Return the scheme with the rows' concepts, and a remark on each that it did not list.

    A scheme without concepts needs no remarks. Of several spellings, the first in alphabetical
    order is used.
    """
    unlisted: dict[str, SourceRow] = {}
    for row in rows:
        for name in row.segment.concepts:
            if not scheme.has_concept(name):
                unlisted.setdefault(name, row)

    listed = scheme.concept_names
    spelling = {name_key(name): name for name in sorted(unlisted, reverse=True)}
    remarks = []
    concepts = []
    for key in sorted(spelling):
        name = spelling[key]
        concepts.append(Concept(name, visual=not listed))
        if listed:
            remarks.append(unlisted[name].remark(unknown_name("concept", name, listed), KEPT))
    return scheme.with_concepts(concepts), remarks


def read_films(source: Films) -> dict[str, Film]:
    """Return films by id; a table has a ``film`` column, and optionally ``title`` and ``end``."""
    if not isinstance(source, str | Path):
        known = source or {}
        id_of = safe_ids("film", known)
        return {id_of[film]: details for film, details in known.items()}

    table = read_mapped_table(
        Path(source), dict.fromkeys(("film", "title", "end"), ()), required=["film"]
    )

    def read_end(cell: str) -> float | None:
        return parse_time(cell, "end", table.delimiter) if cell.strip() else None

    ends = map_column(table, "end", read_end)
    films = {}
    rows = zip(table["film"], table.get("title"), ends, strict=True)
    for row, (name, title, end) in enumerate(rows):
        film = safe_id(film_of_file(name.strip()))
        if film in films or end == 0:
            raise table.problem(
                row, f"film {shorten(film)} must be listed once, with an end above 0 or without one"
            )
        films[film] = Film(title.strip(), end)
    return films


def _problem(segment: Segment, scheme: LabelScheme, film_end: float) -> str:
    """Return why a segment must be left out, or ""."""
    if not scheme.has_level(segment.level):
        return unknown_name("level", segment.level, scheme.name_of.values())
    for noun, name in (("film", segment.film), ("annotator", segment.annotator)):
        problem = id_problem(name)
        if problem:
            return f"{noun}: {problem}"
    if segment.start >= segment.end:
        return "does not end after it starts"
    if segment.end > MAX_TIME_S:
        return "ends too late for a film (are times in seconds?)"
    if segment.start >= film_end:
        return "starts after the end of its film"
    return ""


def _ids(noun: str, rows: Iterable[SourceRow]) -> dict[str, str]:
    """Map the rows' non-blank names of a kind (``film``, ``annotator``) to ids.

    Names that differ only in case or spacing share an id. The most frequent spelling is used, so
    the order of rows does not matter.
    """
    names = Counter(getattr(row.segment, noun) for row in rows)
    spelling: dict[str, str] = {}
    first_of = {}
    for name in sorted(filter(str.strip, names), key=lambda name: (-names[name], name)):
        key = composed(" ".join(name.split()).casefold())
        first_of[name] = spelling.setdefault(key, name)
    with errors_as(AnnotationError):
        id_of = safe_ids(noun, spelling.values())
    return {name: id_of[first] for name, first in first_of.items()}
