"""Build timelines from the rows of any source, with remarks on rows that have a problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from obygaze_features.annotations.remarks import (
    CUT,
    KEPT,
    LEFT_OUT,
    Remark,
    sort_remarks,
)
from obygaze_features.annotations.timelines import Film, Segment, Timelines
from obygaze_features.common.tables import read_mapped_table
from obygaze_features.common.text import (
    MAX_TIME_S,
    counted,
    did_you_mean,
    format_time,
    group_by,
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
#: Titles and ends of films by their name in the source, or the path of a table with them.
Films = Mapping[str, Film] | Path | str | None


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

    Rows are left out if they have no film, no annotator or no known level, if they end before they
    start or start past the end of their film, or if they are duplicates. Segments are cut at the
    end of their film. Overlapping segments of an annotator are kept. Concepts that the scheme does
    not list are kept as non-visual concepts, or as visual concepts if the scheme lists no concepts.

    Parameters
    ----------
    name
        The name of the timelines.
    rows
        The rows, in any order, with a remark in place of each unreadable row.
    films
        Titles and ends of films, by their name in the source. A film without rows is dropped with
        a remark, because its name may be misspelt.
    scheme
        The levels and concepts (default: ObyGaze's).
    about
        Further attributes of `Timelines`: source, licence, citation.
    """
    films = read_films(films)
    remarks: list[Remark] = []
    source_rows: list[SourceRow] = []
    for row in rows:
        if isinstance(row, Remark):
            remarks.append(row)
        else:
            source_rows.append(row)
    film_ids, name_remarks = _ids("film", [row.segment.film for row in source_rows])
    remarks += name_remarks
    annotator_ids, name_remarks = _ids("annotator", [row.segment.annotator for row in source_rows])
    remarks += name_remarks
    known_films = {safe_id(film): details for film, details in films.items()}
    read = set(film_ids.values())
    if unread := [film for film in films if safe_id(film) not in read]:
        problem = f"no rows for {counted(len(unread), 'film')}: {join_some(unread)}"
        problem += did_you_mean([safe_id(film) for film in unread], read)
        remarks.append(Remark("films", "", "", problem, "not used"))
    scheme = scheme or obygaze_scheme()
    sound = _with_ids(source_rows, film_ids, annotator_ids)
    sound = _sound_rows(sound, scheme, {film: f.end for film, f in known_films.items()}, remarks)
    unlisted, listed = _unlisted_concepts(sound, scheme), scheme.concept_names
    for concept, row in unlisted.items() if listed else ():
        remarks.append(row.remark(unknown_name("concept", concept, listed), KEPT))
    scheme = scheme.with_concepts(Concept(concept, visual=not listed) for concept in unlisted)
    segments: list[Segment] = []
    for of_film in _by_film(sound):
        row_of, concept_remarks = _with_concepts(of_film, scheme)
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


def _with_ids(
    rows: list[SourceRow], film_ids: Mapping[str, str], annotator_ids: Mapping[str, str]
) -> list[SourceRow]:
    """Replace the names in rows with ids, emptying `rows` to save memory."""
    changed = []
    for row in _consume(rows):
        segment = row.segment
        names = film_ids.get(segment.film, ""), annotator_ids.get(segment.annotator, "")
        if names != (segment.film, segment.annotator):
            row = replace(row, segment=replace(segment, film=names[0], annotator=names[1]))
        changed.append(row)
    return changed


def _sound_rows(
    rows: list[SourceRow],
    scheme: LabelScheme,
    ends: Mapping[str, float | None],
    remarks: list[Remark],
) -> list[SourceRow]:
    """Return the usable rows with level codes, emptying `rows` and adding to `remarks`."""
    levels = {row.segment.level for row in rows}
    own = "" if any(map(scheme.has_level, levels)) else f"; {suggest_levels(levels)}"
    sound = []
    for row in _consume(rows):
        segment, end = row.segment, ends.get(row.segment.film)
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
        sound.append(row if segment is row.segment else replace(row, segment=segment))
    return sound


def _consume(rows: list[SourceRow]) -> Iterator[SourceRow]:
    """Yield the rows of a list in order, removing them from the list."""
    rows.reverse()
    while rows:
        yield rows.pop()


def _by_film(rows: list[SourceRow]) -> Iterator[list[SourceRow]]:
    """Yield the rows of each film, emptying `rows`."""
    by_film = group_by(_consume(rows), lambda row: row.segment.film)
    for film in list(by_film):
        yield by_film.pop(film)


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
    """Return a code and a message if a segment must be left out, or None if not."""
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
        return "starts-past-end", f"starts at {start}, past the film's end {format_time(film_end)}"
    return None


def _with_concepts(
    rows: Sequence[SourceRow], scheme: LabelScheme
) -> tuple[dict[Segment, SourceRow], list[Remark]]:
    """Map distinct segments, with the scheme's concept names, to rows; remark on repeats."""
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


def _ids(noun: str, names: Sequence[str]) -> tuple[dict[str, str], list[Remark]]:
    """Map non-blank names to ids; names that differ only in case share an id.

    The most frequent spelling is used, so the order of rows does not matter.
    """
    counts = Counter(filter(str.strip, names))
    spelling: dict[str, str] = {}
    owner: dict[str, str] = {}
    remarks = []
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        first = spelling.setdefault(_name_key(name), name)
        if first != name:
            problem = f"{shorten(name)} and {shorten(first)} differ only in case"
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


def _unlisted_concepts(rows: Sequence[SourceRow], scheme: LabelScheme) -> dict[str, SourceRow]:
    """Return the concepts that the scheme does not list, each with the first row that has it.

    They are sorted by name, so that the order of rows does not matter.
    """
    row_of = {name: row for row in reversed(rows) for name in row.segment.concepts}
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
                f"{problem}, one frame" if is_frame else problem,
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
            yield first.remark(problem, KEPT)
