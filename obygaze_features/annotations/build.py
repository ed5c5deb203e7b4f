"""Build timelines from the rows of any source, with remarks on rows that have a problem."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from obygaze_features.annotations.remarks import (
    CUT,
    KEPT,
    LEFT_OUT,
    LONG_STRETCH,
    Remark,
    sort_remarks,
)
from obygaze_features.annotations.timelines import Film, Films, Segment, Timelines
from obygaze_features.common.tables import read_mapped_table
from obygaze_features.common.text import (
    MAX_TIME_S,
    counted,
    did_you_mean,
    format_time,
    join_some,
    shorten,
    unknown_name,
)
from obygaze_features.errors import AnnotationError
from obygaze_features.items.items import id_problem, safe_id
from obygaze_features.manifests.importers.reading import at_row, film_of_file, parse_time
from obygaze_features.manifests.labels import (
    Concept,
    LabelScheme,
    name_key,
    obygaze_scheme,
    suggest_levels,
)

FILM_COLUMNS = ("film", "title", "end")
#: The duration of a frame at 23.976 frames per second, rounded up to the millisecond.
FRAME_S = 0.042
#: The largest gap, in seconds, between segments that count as consecutive.
MAX_BREAK_S = 1.0
#: A stretch of one level is unusual if it is at least this long and this many times as long as the
#: next longest, among at least `MIN_STRETCHES` stretches.
LONG_STRETCH_S, LONG_STRETCH_RATIO, MIN_STRETCHES = 600.0, 3.0, 8
#: Titles and ends of films, by film name in the source; or the path of a table that lists them.


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A segment and its location in the source, with names as written and times in seconds."""

    where: str
    segment: Segment

    def remark(self, problem: str, done: str = LEFT_OUT, code: str = "") -> Remark:
        """Return a remark about this row."""
        return Remark(self.where, self.segment.film, self.segment.annotator, problem, done, code)


def build_timelines(
    name: str,
    rows: Iterable[SourceRow | Remark],
    films: Films = None,
    scheme: LabelScheme | None = None,
    **about: Any,
) -> Timelines:
    """Make timelines from the rows that an importer read, with remarks on anything unusual.

    Rows are left out if they have no film, no annotator or no known level, if their times are
    impossible (the end is not after the start, or the start is not before the film's end), or if
    they are duplicates. Segments are cut at the end of their film. Overlapping segments of an
    annotator are kept. Concepts that the scheme does not list are kept as non-visual concepts, or
    as visual concepts if the scheme lists no concepts.

    Parameters
    ----------
    name
        The name of the timelines.
    rows
        The rows, in any order, with a remark in place of each unreadable row.
    films
        Titles and ends of films, by their name in the source. A film without rows is dropped,
        with a remark in case its name is misspelt.
    scheme
        The levels and concepts (default: ObyGaze's).
    about
        Further attributes of `Timelines`: source, licence, citation.
    """
    films = read_films(films)
    by_film, remarks = _gather(rows)
    film_ids, name_remarks = _ids("film", Counter(s.film for s in _segments(by_film)))
    remarks += name_remarks
    annotators_read = Counter(s.annotator for s in _segments(by_film))
    annotator_ids, name_remarks = _ids("annotator", annotators_read)
    remarks += name_remarks
    known_films = {safe_id(film): details for film, details in films.items()}
    read = set(film_ids.values())
    if unread := [film for film in films if safe_id(film) not in read]:
        problem = f"no rows for {counted(len(unread), 'film')}: {join_some(unread)}"
        problem += did_you_mean([safe_id(film) for film in unread], read)
        remarks.append(Remark("films", "", "", problem, "not used"))
    scheme = scheme or obygaze_scheme()
    levels = {segment.level for segment in _segments(by_film)}
    own = "" if any(map(scheme.has_level, levels)) else f"; {suggest_levels(levels)}"
    for key, of_film in by_film.items():
        with_ids = _with_ids(of_film, film_ids, annotator_ids)
        by_film[key] = _Rows(_sound_rows(with_ids, scheme, known_films, own, remarks))
    unlisted, listed = _unlisted_concepts(by_film, scheme), scheme.concept_names
    for concept, row in unlisted.items() if listed else ():
        remarks.append(row.remark(unknown_name("concept", concept, listed), KEPT))
    scheme = scheme.with_concepts(Concept(concept, visual=not listed) for concept in unlisted)
    segments: list[Segment] = []
    for key in list(by_film):
        row_of, concept_remarks = _with_concepts(by_film.pop(key), scheme)
        remarks += [*concept_remarks, *_overlaps(row_of)]
        remarks += _long_stretches(row_of.values(), scheme)
        segments += row_of
    films_read = {f: known_films.get(f, Film()) for f in sorted({s.film for s in segments})}
    for written, film in film_ids.items():
        if film in films_read and safe_id(written) == film != written:
            title = films_read[film].title or written
            films_read[film] = replace(films_read[film], title=title, name=written)
    annotators = {segment.annotator for segment in segments}
    about["names"] = {
        annotator: written
        for written, annotator in sorted(annotator_ids.items())
        if annotator in annotators and safe_id(written) == annotator != written
    }
    about["remarks"] = tuple(sort_remarks(remarks))
    return Timelines.of(name, segments, scheme=scheme, films=films_read, **about)


class _Rows:
    """Source rows that take little more memory than their segments; locations share one buffer."""

    def __init__(self, rows: Iterable[SourceRow] = ()) -> None:
        self.segments: list[Segment] = []
        self._locations = bytearray()
        for row in rows:
            self.append(row)

    def append(self, row: SourceRow) -> None:
        self.segments.append(row.segment)
        self._locations += b"%s\0" % row.where.encode()

    def __iter__(self) -> Iterator[SourceRow]:
        locations = self._locations.decode().split("\0")[:-1]
        return map(SourceRow, locations, self.segments)


def _gather(rows: Iterable[SourceRow | Remark]) -> tuple[dict[str, _Rows], list[Remark]]:
    """Group rows by film name, ignoring case and spacing; return the groups and the remarks."""
    by_film: dict[str, _Rows] = defaultdict(_Rows)
    remarks: list[Remark] = []
    key_of = cache(_name_key)
    for row in rows:
        if isinstance(row, Remark):
            remarks.append(row)
        else:
            by_film[key_of(row.segment.film)].append(row)
    return by_film, remarks


def _segments(by_film: Mapping[str, _Rows]) -> Iterator[Segment]:
    return chain.from_iterable(rows.segments for rows in by_film.values())


def _with_ids(
    rows: Iterable[SourceRow], film_ids: Mapping[str, str], annotator_ids: Mapping[str, str]
) -> Iterator[SourceRow]:
    """Yield rows with ids in place of names."""
    for row in rows:
        segment = row.segment
        names = film_ids.get(segment.film, ""), annotator_ids.get(segment.annotator, "")
        if names != (segment.film, segment.annotator):
            segment = replace(segment, film=names[0], annotator=names[1])
        yield SourceRow(row.where, segment)


def _sound_rows(
    rows: Iterable[SourceRow],
    scheme: LabelScheme,
    films: Mapping[str, Film],
    own: str,
    remarks: list[Remark],
) -> Iterator[SourceRow]:
    """Yield the usable rows with level codes; add remarks on omitted and cut rows to `remarks`."""
    for row in rows:
        segment = row.segment
        end = films[segment.film].end if segment.film in films else None
        if wrong := _problem(segment, scheme, end, own):
            code, text = wrong
            remarks.append(row.remark(text, LEFT_OUT, code))
            continue
        if (level := scheme.level(segment.level)) != segment.level:
            segment = replace(segment, level=level)
        if end is not None and segment.end > end:
            past = f"ends at {format_time(segment.end)}, past the film's end {format_time(end)}"
            remarks.append(row.remark(past, CUT, "past-end"))
            segment = replace(segment, end=end)
        yield SourceRow(row.where, segment)


def read_films(source: Films) -> dict[str, Film]:
    """Read films from a table with a ``film`` column and optional ``title`` and ``end`` columns."""
    if not isinstance(source, str | Path):
        return dict(source or {})
    path = Path(source)
    table = read_mapped_table(path, dict.fromkeys(FILM_COLUMNS, ()), required=["film"])
    films: dict[str, Film] = {}
    seen: set[str] = set()
    for row, cells in enumerate(table.rows()):
        name, end_text = film_of_file(cells["film"].strip()), cells.get("end", "").strip()
        with at_row(table, row):
            if safe_id(name) in seen:
                raise AnnotationError(f"duplicate film {shorten(name)}")
            end = parse_time(end_text, "end", table.delimiter) if end_text else None
            if end == 0:
                raise AnnotationError(f"the end of film {shorten(name)} must be above 0")
        seen.add(safe_id(name))
        films[name] = Film(cells.get("title", "").strip(), end)
    return films


def _problem(
    segment: Segment, scheme: LabelScheme, film_end: float | None, own: str
) -> tuple[str, str] | None:
    """Return a code and a message if a segment must be left out, otherwise None."""
    if not scheme.has_level(segment.level):
        names = [level.name for level in scheme.levels]
        if segment.level:
            return "", unknown_name("level", segment.level, names) + own
        return "no-level", f"has no level; choose from {join_some(names, 5)}"
    for noun, name in (("film", segment.film), ("annotator", segment.annotator)):
        if not name:
            return f"no-{noun}", f"has no {noun}"
        if problem := id_problem(name):
            return "", f"{noun}: {problem}"
    return _time_problem(segment, film_end)


def _time_problem(segment: Segment, film_end: float | None) -> tuple[str, str] | None:
    last = MAX_TIME_S if film_end is None else min(MAX_TIME_S, film_end)
    if segment.start < segment.end <= last:
        return None
    start, end = format_time(segment.start), format_time(segment.end)
    if segment.start == segment.end:
        return "no-length", f"ends where it starts ({start})"
    if segment.end < segment.start:
        return "backwards", f"ends ({end}) before it starts ({start})"
    if segment.end > MAX_TIME_S:
        return "no-time", f"ends at {segment.end:g} s, which is too late for a film"
    if film_end is not None and segment.start >= film_end:
        return "starts-past-end", f"starts at {start}, but the film ends at {format_time(film_end)}"
    return None


def _with_concepts(
    rows: Iterable[SourceRow], scheme: LabelScheme
) -> tuple[dict[Segment, SourceRow], list[Remark]]:
    """Map distinct segments to their rows, and return remarks on repeats.

    The segments have the scheme's names of concepts.
    """
    segments: dict[Segment, SourceRow] = {}
    in_order: dict[tuple[str, ...], tuple[str, ...]] = {}
    remarks = []
    for row in rows:
        segment = row.segment
        if segment.concepts not in in_order:
            names = map(scheme.concept, segment.concepts)
            in_order[segment.concepts] = scheme.in_order(names)
        if (concepts := in_order[segment.concepts]) != segment.concepts:
            segment = replace(segment, concepts=concepts)
        if segment in segments:
            repeats = f"repeats {segments[segment].where}"
            remarks.append(row.remark(repeats, LEFT_OUT, "repeat"))
        else:
            segments[segment] = row
    return segments, remarks


def _ids(noun: str, names: Mapping[str, int]) -> tuple[dict[str, str], list[Remark]]:
    """Map non-blank names to ids; names that differ only in case or spacing share an id.

    `names` has the number of rows with each name. The most frequent spelling is used, so the order
    of rows does not matter.
    """
    counts = {name: count for name, count in names.items() if name.strip()}
    spelling: dict[str, str] = {}
    owner: dict[str, str] = {}
    remarks = []
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        first = spelling.setdefault(_name_key(name), name)
        if first != name:
            problem = f"{shorten(name)} and {shorten(first)} differ only in case or spacing"
            remarks.append(Remark(f"{noun}s", "", "", problem, f"both read as {safe_id(first)}"))
            continue
        clash = owner.setdefault(safe_id(name).lower(), name)
        if clash != name:
            raise AnnotationError(
                f"the {noun}s {shorten(clash)} and {shorten(name)} would both get the id "
                f"{safe_id(name)!r}; rename one of them"
            )
    return {name: safe_id(spelling[_name_key(name)]) for name in counts}, remarks


def _name_key(name: str) -> str:
    return " ".join(name.split()).casefold()


def _unlisted_concepts(by_film: Mapping[str, _Rows], scheme: LabelScheme) -> dict[str, SourceRow]:
    """Return the concepts that the scheme does not list, each with the first row that has it.

    They are sorted by name, so that the order of rows does not matter.
    """
    row_of: dict[str, SourceRow] = {}
    for row in chain.from_iterable(by_film.values()):
        for name in row.segment.concepts:
            row_of.setdefault(name, row)
    unlisted = sorted((n for n in row_of if not scheme.has_concept(n)), reverse=True)
    spelling = {name_key(name): name for name in unlisted}
    return {spelling[key]: row_of[spelling[key]] for key in sorted(spelling)}


def _overlaps(segments: Mapping[Segment, SourceRow]) -> Iterator[Remark]:
    """Yield a remark for each segment that overlaps an earlier segment of the same annotator."""
    last: dict[tuple[str, str], Segment] = {}
    for segment in sorted(segments, key=lambda s: (s.start, s.end)):
        key = segment.film, segment.annotator
        earlier = last.get(key)
        if earlier is not None and segment.start < earlier.end:
            shared = min(segment.end, earlier.end) - segment.start
            is_frame = shared <= FRAME_S
            problem = f"overlaps {segments[earlier].where} by {format_time(shared)}"
            yield segments[segment].remark(
                f"{problem}, at most one frame" if is_frame else problem,
                KEPT,
                "overlap-of-a-frame" if is_frame else "overlap",
            )
        if earlier is None or segment.end > earlier.end:
            last[key] = segment


def _long_stretches(rows: Iterable[SourceRow], scheme: LabelScheme) -> Iterator[Remark]:
    """Yield a remark if an annotator's longest stretch of one level in a film is unusually long.

    The stretch must last at least ten minutes, and at least three times as long as the next
    longest. Of MObyGaze's 40 pairs of a film and an annotator, one gets a remark, for a stretch 3.9
    times as long as the next longest. The next highest ratio is 2.2.
    """
    stretches: dict[tuple[str, str], list[SourceRow]] = {}
    for row in sorted(rows, key=lambda row: (row.segment.start, row.segment.end)):
        segment = row.segment
        of_film = stretches.setdefault((segment.film, segment.annotator), [])
        last = of_film[-1].segment if of_film else None
        if last and last.level == segment.level and segment.start <= last.end + MAX_BREAK_S:
            longer = replace(last, end=max(last.end, segment.end))
            of_film[-1] = replace(of_film[-1], segment=longer)
        else:
            of_film.append(row)
    for of_film in stretches.values():
        if len(of_film) < MIN_STRETCHES:
            continue
        first, second, *_ = sorted(of_film, key=lambda row: -row.segment.seconds)
        longest, next_s = first.segment, second.segment.seconds
        if longest.seconds >= max(LONG_STRETCH_S, LONG_STRETCH_RATIO * next_s):
            problem = (
                f"{scheme.name_of[longest.level]} for {longest.seconds / 60:.1f} minutes without "
                f"a break ({format_time(longest.start)} to {format_time(longest.end)}); the next "
                f"longest stretch lasts {next_s / 60:.1f} minutes. Please check that this stretch "
                "was annotated"
            )
            yield first.remark(problem, KEPT, LONG_STRETCH)
