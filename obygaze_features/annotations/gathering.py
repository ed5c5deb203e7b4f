"""Rows of any source become timelines; what is wrong with one is remarked, and the rest goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from obygaze_features.annotations.cells import clock
from obygaze_features.annotations.remarks import CUT, KEPT, LEFT_OUT, Remark, in_order
from obygaze_features.annotations.timelines import LONGEST, Film, Segment, Timelines
from obygaze_features.common.text import counted, did_you_mean, join_some, shorten
from obygaze_features.errors import AnnotationError, ManifestError
from obygaze_features.manifests.items import id_problem, safe_id
from obygaze_features.manifests.labels import (
    SEPARATOR,
    Concept,
    LabelScheme,
    name_key,
    obygaze_scheme,
)

__all__ = ["Row", "gather"]


@dataclass(frozen=True)
class Row:
    """What a source says of one segment; names as they are written there, times in seconds, to the
    microsecond.
    """

    where: str
    film: str
    annotator: str
    start: float
    end: float
    level: str
    concepts: tuple[str, ...] = ()
    comment: str = ""


def gather(
    name: str, rows: Iterable[Row | Remark], films: Mapping[str, Film] | None = None, **about: Any
) -> Timelines:
    """Timelines of what an importer found, with a remark on all that is odd.

    Left out: rows without a film, an annotator or a known level, rows that end before they start
    or start past their film's end, and rows that are there already. Cut: what goes past the
    film's end. Kept: overlaps within one annotator, and concepts that the scheme does not list,
    as ones that cannot be seen.

    Parameters
    ----------
    name
        The timelines'.
    rows
        In any order; a remark stands for a row that could not be read.
    films
        What is known of films, by their names in the source; those of which there is no row are
        dropped, with a remark, as one of them may be misspelt.
    about
        Passed on to `Timelines`: source, licence, citation.
    """
    rows = list(rows)
    remarks = [row for row in rows if isinstance(row, Remark)]
    wanted = [row for row in rows if isinstance(row, Row)]
    film_ids, remarked = _ids("film", [row.film for row in wanted])
    remarks += remarked
    annotator_ids, remarked = _ids("annotator", [row.annotator for row in wanted])
    remarks += remarked
    known = {safe_id(film): one for film, one in (films or {}).items()}
    read = set(film_ids.values())
    if strange := [film for film in films or {} if safe_id(film) not in read]:
        what = f"nothing was read of {counted(len(strange), 'film')}: {join_some(strange)}"
        what += did_you_mean([safe_id(film) for film in strange], read)
        remarks.append(Remark("films", "", "", what, "not used"))
    listed = obygaze_scheme()
    sound: list[tuple[str, Segment]] = []
    for row in wanted:
        film, annotator = film_ids.get(row.film, ""), annotator_ids.get(row.annotator, "")
        try:
            segment = _segment(row, film, annotator, listed.level(row.level))
            end = known[film].end if film in known else None
            if end is not None and segment.end > end:
                segment = _cut(segment, end)
                past = f"goes on to {clock(row.end)}, past the film's end {clock(end)}"
                remarks.append(Remark(row.where, film, annotator, past, CUT))
        except (AnnotationError, ManifestError) as error:
            remarks.append(Remark(row.where, film, annotator, str(error), LEFT_OUT))
        else:
            sound.append((row.where, segment))
    unlisted = _unlisted(sound, listed)
    added = tuple(Concept(name, visual=False) for name in unlisted)
    scheme = replace(listed, concepts=listed.concepts + added)
    found, unfit = _with_concepts(sound, scheme)
    remarks += [*unlisted.values(), *unfit, *_overlaps(found)]
    about_films = {film: known.get(film, Film()) for film in sorted({one.film for one in found})}
    for written, film in film_ids.items():
        if film in about_films and safe_id(written) == film != written:
            one = about_films[film]
            about_films[film] = replace(one, title=one.title or written, name=written)
    there = {one.annotator for one in found}
    about["names"] = {
        annotator: written
        for written, annotator in sorted(annotator_ids.items())
        if annotator in there and safe_id(written) == annotator != written
    }
    return Timelines.of(
        name, found, scheme=scheme, films=about_films, remarks=tuple(in_order(remarks)), **about
    )


def _with_concepts(
    sound: Sequence[tuple[str, Segment]], scheme: LabelScheme
) -> tuple[dict[Segment, str], list[Remark]]:
    """Segments, each once, with their concepts as the scheme has them; and where they are."""
    found: dict[Segment, str] = {}
    unfit = []
    for where, segment in sound:
        try:
            concepts = scheme.in_order(map(scheme.concept, segment.concepts))
            segment = replace(segment, concepts=concepts)
            if segment in found:
                raise AnnotationError(f"says the same as {found[segment]}")
        except (AnnotationError, ManifestError) as error:
            unfit.append(Remark(where, segment.film, segment.annotator, str(error), LEFT_OUT))
        else:
            found[segment] = where
    return found, unfit


def _segment(row: Row, film: str, annotator: str, level: str) -> Segment:
    """With the concepts as they are written; raises if the row is no segment."""
    for what, name in (("film", film), ("annotator", annotator)):
        if not name:
            raise AnnotationError(f"names no {what}")
        if problem := id_problem(name):
            raise AnnotationError(f"{what}: {problem}")
    if row.start == row.end:
        raise AnnotationError(f"ends where it starts ({clock(row.start)})")
    if row.end < row.start:
        raise AnnotationError(f"ends ({clock(row.end)}) before it starts ({clock(row.start)})")
    if row.end > LONGEST:
        raise AnnotationError(f"ends at {row.end:g} s, which is not a time in a film")
    return Segment(film, annotator, row.start, row.end, level, row.concepts, row.comment)


def _cut(segment: Segment, end: float) -> Segment:
    if segment.start >= end:
        raise AnnotationError(f"starts at {clock(segment.start)}, past the film's end {clock(end)}")
    return replace(segment, end=end)


def _ids(what: str, names: Sequence[str]) -> tuple[dict[str, str], list[Remark]]:
    """Name -> id, of names that are not blank; those that differ by case are taken for one.

    It is called as most rows have it, and not as the first has it, on which nothing may depend.
    """
    often = Counter(filter(str.strip, names))
    one_of: dict[str, str] = {}
    owner: dict[str, str] = {}
    remarks = []
    for name in sorted(often, key=lambda name: (-often[name], name)):
        meant = one_of.setdefault(" ".join(name.split()).casefold(), name)
        if meant != name:
            said = f"{shorten(name)} and {shorten(meant)} differ by case only"
            remarks.append(Remark(f"{what}s", "", "", said, f"taken as one, {safe_id(meant)}"))
            continue
        other = owner.setdefault(safe_id(name).lower(), name)
        if other != name:
            raise AnnotationError(
                f"the {what}s {shorten(other)} and {shorten(name)} would both be called "
                f"{safe_id(name)!r}; give one of them another name"
            )
    return {name: safe_id(one_of[" ".join(name.split()).casefold()]) for name in often}, remarks


def _unlisted(sound: Sequence[tuple[str, Segment]], scheme: LabelScheme) -> dict[str, Remark]:
    """The concepts that the scheme does not list, with a remark on each, in alphabetical order.

    Not in the rows' order, on which nothing may depend.
    """
    spelt: dict[str, str] = {}
    remarks: dict[str, Remark] = {}
    for where, segment in sound:
        for name in segment.concepts:
            key = name_key(name)
            try:
                scheme.concept(name)
            except ManifestError as error:
                if SEPARATOR not in name:
                    spelt[key] = min(spelt.get(key, name), name)
                    remark = Remark(where, segment.film, segment.annotator, str(error), KEPT)
                    remarks.setdefault(key, remark)
    return {spelt[key]: remarks[key] for key in sorted(remarks)}


def _overlaps(found: Mapping[Segment, str]) -> Iterator[Remark]:
    """A remark on each segment that starts before an earlier one of its annotator has ended."""
    last: dict[tuple[str, str], Segment] = {}
    for one in sorted(found, key=lambda one: (one.start, one.end)):
        other = last.get((one.film, one.annotator))
        if other is not None and one.start < other.end:
            what = f"overlaps {found[other]} by {clock(min(one.end, other.end) - one.start)}"
            yield Remark(found[one], one.film, one.annotator, what, KEPT)
        if other is None or one.end > other.end:
            last[one.film, one.annotator] = one
