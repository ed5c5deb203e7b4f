"""Rows of any source become timelines; a row with a problem is named, and the others are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from obygaze_features.annotations.issues import (
    CUT,
    KEPT,
    LEFT_OUT,
    Issue,
    Stretch,
    sort_issues,
    unusual_stretches,
)
from obygaze_features.annotations.timelines import Film, Segment, Timelines
from obygaze_features.common.tables import read_mapped_table
from obygaze_features.common.text import counted, did_you_mean, format_time, join_some, shorten
from obygaze_features.errors import AnnotationError, ManifestError
from obygaze_features.manifests.importers.reading import parse_time
from obygaze_features.manifests.items import MAX_TIME_S, id_problem, safe_id
from obygaze_features.manifests.labels import (
    SEPARATOR,
    Concept,
    LabelScheme,
    name_key,
    obygaze_scheme,
)

#: Segments that are no further apart follow each other.
MAX_BREAK_S = 1.0
FILM_COLUMNS = ("film", "title", "end")
#: Titles and ends of films by their names in the source, or a table with them.
Films = Mapping[str, Film] | Path | str | None


@dataclass(frozen=True)
class SourceRow:
    """A segment as a source has it, and where: names as written there, times in seconds."""

    location: str
    segment: Segment

    def issue(self, problem: object, action: str = LEFT_OUT) -> Issue:
        """An issue about this row."""
        segment = self.segment
        return Issue(self.location, segment.film, segment.annotator, str(problem), action)


def build_timelines(
    name: str,
    rows: Iterable[SourceRow | Issue],
    films: Films = None,
    **about: Any,
) -> Timelines:
    """Timelines of the rows that an importer read, with an issue for all that is odd.

    Left out: rows without a film, an annotator or a known level, rows that end before they start
    or start past their film's end, and duplicates. Cut: what is past the film's end. Kept:
    overlaps within one annotator, and concepts that the scheme does not list, as ones that cannot
    be seen.

    Parameters
    ----------
    name
        The timelines'.
    rows
        In any order; an issue stands for a row that could not be read.
    films
        Titles and ends of films, by their names in the source. A film without any row is dropped,
        with an issue, as its name may be misspelt.
    about
        Passed on to `Timelines`: source, licence, citation.
    """
    rows, films = list(rows), read_films(films)
    issues = [row for row in rows if isinstance(row, Issue)]
    source_rows = [row for row in rows if isinstance(row, SourceRow)]
    film_ids, name_issues = _ids("film", [row.segment.film for row in source_rows])
    issues += name_issues
    annotator_ids, name_issues = _ids("annotator", [row.segment.annotator for row in source_rows])
    issues += name_issues
    known_films = {safe_id(film): details for film, details in films.items()}
    read = set(film_ids.values())
    if unread := [film for film in films if safe_id(film) not in read]:
        problem = f"no rows of {counted(len(unread), 'film')}: {join_some(unread)}"
        problem += did_you_mean([safe_id(film) for film in unread], read)
        issues.append(Issue("films", "", "", problem, "not used"))
    scheme = obygaze_scheme()
    sound: list[SourceRow] = []
    for row in source_rows:
        film = film_ids.get(row.segment.film, "")
        annotator = annotator_ids.get(row.segment.annotator, "")
        row = replace(row, segment=replace(row.segment, film=film, annotator=annotator))
        try:
            segment = _checked(row.segment, scheme)
            end = known_films[film].end if film in known_films else None
            if end is not None and segment.end > end:
                if segment.start >= end:
                    start = format_time(segment.start)
                    raise AnnotationError(
                        f"starts at {start}, past the film's end {format_time(end)}"
                    )
                past = f"ends at {format_time(segment.end)}, past the film's end {format_time(end)}"
                issues.append(row.issue(past, CUT))
                segment = replace(segment, end=end)
        except (AnnotationError, ManifestError) as error:
            issues.append(row.issue(error))
        else:
            sound.append(replace(row, segment=segment))
    unlisted = _unlisted_concepts(sound, scheme)
    added = tuple(Concept(concept, visual=False) for concept in unlisted)
    scheme = replace(scheme, concepts=scheme.concepts + added)
    segments, concept_issues = _with_concepts(sound, scheme)
    issues += [*unlisted.values(), *concept_issues, *_overlaps(segments)]
    issues += unusual_stretches(_stretches(segments), scheme)
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
    about["issues"] = tuple(sort_issues(issues))
    return Timelines.of(name, segments, scheme=scheme, films=films_read, **about)


def read_films(source: Films) -> dict[str, Film]:
    """The films of a table ``film,title,end``, where it is one; titles and ends may be missing."""
    if not isinstance(source, str | Path):
        return dict(source or {})
    path = Path(source)
    meanings = dict.fromkeys((*FILM_COLUMNS, "start"), ())
    table = read_mapped_table(path, meanings, required=["film"])
    if table.columns.keys().isdisjoint(FILM_COLUMNS[1:]) or "start" in table.columns:
        raise AnnotationError(
            f"{path} is not a table of films, which has the columns film, title, end; "
            f"there are {', '.join(table.columns)}"
        )
    films: dict[str, Film] = {}
    seen: set[str] = set()
    for row, cells in enumerate(table.rows()):
        name, end_text = cells["film"].strip(), cells.get("end", "").strip()
        try:
            if safe_id(name) in seen:
                raise AnnotationError(f"film {shorten(name)} is there already")
            end = parse_time(end_text, "end", table.delimiter) if end_text else None
            if end == 0:
                raise AnnotationError(f"film {shorten(name)} ends where it starts")
        except (AnnotationError, ManifestError) as error:
            raise table.problem(row, str(error)) from None
        seen.add(safe_id(name))
        films[name] = Film(cells.get("title", "").strip(), end)
    return films


def _checked(segment: Segment, scheme: LabelScheme) -> Segment:
    """The segment with its level's code and concepts as written; raises if it is not one."""
    start, end = format_time(segment.start), format_time(segment.end)
    if not segment.level:
        names = join_some([level.name for level in scheme.levels], 5)
        raise AnnotationError(f"has no level, at {start}; choose one of {names}")
    level = scheme.level(segment.level)
    for noun, name in (("film", segment.film), ("annotator", segment.annotator)):
        if not name:
            raise AnnotationError(f"names no {noun}")
        if problem := id_problem(name):
            raise AnnotationError(f"{noun}: {problem}")
    if segment.start == segment.end:
        raise AnnotationError(f"ends where it starts ({start})")
    if segment.end < segment.start:
        raise AnnotationError(f"ends ({end}) before it starts ({start})")
    if segment.end > MAX_TIME_S:
        raise AnnotationError(f"ends at {segment.end:g} s, which is not a time in a film")
    return replace(segment, level=level)


def _with_concepts(
    rows: Sequence[SourceRow], scheme: LabelScheme
) -> tuple[dict[Segment, SourceRow], list[Issue]]:
    """Segments, each once, with their concepts as the scheme names them; and where they are."""
    segments: dict[Segment, SourceRow] = {}
    issues = []
    for row in rows:
        try:
            concepts = scheme.in_order(map(scheme.concept, row.segment.concepts))
            segment = replace(row.segment, concepts=concepts)
            if segment in segments:
                raise AnnotationError(f"repeats {segments[segment].location}")
        except (AnnotationError, ManifestError) as error:
            issues.append(row.issue(error))
        else:
            segments[segment] = row
    return segments, issues


def _ids(noun: str, names: Sequence[str]) -> tuple[dict[str, str], list[Issue]]:
    """Name -> id, of names that are not blank; those that differ by case are the same one.

    Its spelling is the most frequent one, not the first, so that the order of rows does not matter.
    """
    counts = Counter(filter(str.strip, names))
    spelling: dict[str, str] = {}
    owner: dict[str, str] = {}
    issues = []
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        first = spelling.setdefault(_name_key(name), name)
        if first != name:
            problem = f"{shorten(name)} and {shorten(first)} differ by case only"
            issues.append(Issue(f"{noun}s", "", "", problem, f"read as one, {safe_id(first)}"))
            continue
        clash = owner.setdefault(safe_id(name).lower(), name)
        if clash != name:
            raise AnnotationError(
                f"the {noun}s {shorten(clash)} and {shorten(name)} would both be called "
                f"{safe_id(name)!r}; rename one of them"
            )
    return {name: safe_id(spelling[_name_key(name)]) for name in counts}, issues


def _name_key(name: str) -> str:
    return " ".join(name.split()).casefold()


def _unlisted_concepts(rows: Sequence[SourceRow], scheme: LabelScheme) -> dict[str, Issue]:
    """The concepts that the scheme does not list, with an issue each, in alphabetical order.

    Not in the rows' order, which must not matter.
    """
    spelling: dict[str, str] = {}
    issues: dict[str, Issue] = {}
    for row in rows:
        for name in row.segment.concepts:
            key = name_key(name)
            try:
                scheme.concept(name)
            except ManifestError as error:
                if SEPARATOR not in name:
                    spelling[key] = min(spelling.get(key, name), name)
                    issues.setdefault(key, row.issue(error, KEPT))
    return {spelling[key]: issues[key] for key in sorted(issues)}


def _overlaps(segments: Mapping[Segment, SourceRow]) -> Iterator[Issue]:
    """An issue for each segment that starts before an earlier one of its annotator has ended."""
    last: dict[tuple[str, str], Segment] = {}
    for segment in sorted(segments, key=lambda s: (s.start, s.end)):
        key = segment.film, segment.annotator
        earlier = last.get(key)
        if earlier is not None and segment.start < earlier.end:
            shared = format_time(min(segment.end, earlier.end) - segment.start)
            yield segments[segment].issue(
                f"overlaps {segments[earlier].location} by {shared}", KEPT
            )
        if earlier is None or segment.end > earlier.end:
            last[key] = segment


def _stretches(segments: Mapping[Segment, SourceRow]) -> list[Stretch]:
    """Segments of an annotator that follow each other at one level, each run as one stretch."""
    stretches: list[Stretch] = []
    for segment in sorted(segments, key=lambda s: (s.film, s.annotator, s.start, s.end)):
        who = segment.film, segment.annotator, segment.level
        last = stretches[-1] if stretches else None
        if (
            last is not None
            and (last.film, last.annotator, last.level) == who
            and segment.start <= last.end + MAX_BREAK_S
        ):
            stretches[-1] = replace(last, end=max(last.end, segment.end))
        else:
            location = segments[segment].location
            stretches.append(Stretch(location, *who, segment.start, segment.end))
    return stretches
