"""Grids: the clips that timelines are projected onto, as a manifest whose items have spans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.cells import moment
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Timelines, decimal
from obygaze_features.common.tables import map_columns, read_table
from obygaze_features.common.text import counted, did_you_mean, join_some
from obygaze_features.errors import AnnotationError, UsageError
from obygaze_features.manifests.items import (
    MIN_SPAN_S,
    Items,
    id_problem,
    media_problem,
    media_stem,
    safe_id,
)
from obygaze_features.manifests.manifest import Manifest

__all__ = ["SLACK", "clips_by_film", "films_of", "microseconds", "read_grid"]

#: Times are rounded to whole microseconds, so that what a clip and a segment have in common may be
#: off by one, and what is asked of it by another.
SLACK = 2
#: What a typing error such as 0.001 would go beyond, and fill the memory.
MOST = 1_000_000
_LENGTH = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?s?", re.ASCII)


def read_grid(what: str | Path, timelines: Timelines) -> tuple[Manifest, list[Remark]]:
    """The clips of a grid, and what is odd about them.

    Parameters
    ----------
    what
        A manifest's folder, whose items have spans; a time (``60``, ``60s`` or
        ``0:01:00``: clips from 0 to each film's end, the last one shorter where need be); or a CSV
        file of shots or scenes, with the columns film, start and end (seconds or h:mm:ss), and if
        you like id.
    timelines
        What is to be projected: its films are cut into clips, and each of them needs some.
    """
    name = str(what)
    if (length := _length(name)) is not None:
        grid, remarks = _regular(length, timelines)
        name = f"a grid of {length:g} s"
    elif Path(what).is_dir():
        grid, remarks = _of_manifest(Path(what))
    elif Path(what).is_file():
        grid, remarks = _listed(Path(what), timelines)
    else:
        raise UsageError(
            f"{name} is no grid: a manifest's folder, a number of seconds (60) or a CSV file with "
            "film, start and end is meant"
        )
    by_film = clips_by_film(grid.items)
    return grid, [*remarks, *_films(name, by_film, timelines), *_apart(name, grid.items, by_film)]


def _length(text: str) -> float | None:
    """Seconds, if that is what is said."""
    if found := _LENGTH.fullmatch(text):
        return float(found[1])
    try:
        return moment(text, "grid") if ":" in text else None
    except AnnotationError:
        return None


def films_of(items: Items) -> list[str]:
    """The film of each item; a span of which none is named is of the film that its media is."""
    spans = (~np.isnan(items.starts)).tolist()
    return [
        film or (media_stem(media) if span else "")
        for film, media, span in zip(items.films, items.media, spans, strict=True)
    ]


def clips_by_film(items: Items) -> dict[str, NDArray[np.intp]]:
    """Film, by `films_of` -> the rows of its spans, in time."""
    found: dict[str, list[int]] = {}
    films = films_of(items)
    for row in np.flatnonzero(~np.isnan(items.starts)).tolist():
        found.setdefault(films[row], []).append(row)
    ordered = {}
    for film, of_film in found.items():
        rows = np.array(of_film, np.intp)
        ordered[film] = rows[np.lexsort((items.ends[rows], items.starts[rows]))]
    return ordered


def microseconds(values: Iterable[float]) -> NDArray[np.int64]:
    """Seconds as whole microseconds, in which spans compare exactly."""
    found: NDArray[np.int64] = np.rint(np.asarray(values, float) * 1e6).astype(np.int64)
    return found


def _of_manifest(folder: Path) -> tuple[Manifest, list[Remark]]:
    grid = Manifest.load(folder)
    blank = np.flatnonzero(np.isnan(grid.items.starts)).tolist()
    if len(blank) == len(grid):
        raise AnnotationError(
            f"{folder}: its items have no spans, so that nothing can be projected onto them; give "
            "items.csv a start and an end, in seconds of the film"
        )
    where = str(folder / "items.csv")
    return grid, [
        Remark(where, grid.items.films[row], "", f"{grid.ids[row]} has no span", LEFT_OUT)
        for row in blank
    ]


def _regular(length: float, timelines: Timelines) -> tuple[Manifest, list[Remark]]:
    step = round(length * 1e6)
    if step < MIN_SPAN_S * 1e6:
        raise UsageError(f"a grid of {length:g} s is none; give seconds above 0")
    films = [film for film in timelines.films if film in timelines.by_film]
    ends = [round(timelines.end_of(film) * 1e6) for film in films]
    # What is shorter than a span may be, one microsecond, is no clip of its own.
    counts = [max(1, -(-(end - 1) // step)) for end in ends]
    if sum(counts) > MOST:
        raise UsageError(
            f"a grid of {length:g} s would have {sum(counts):,} clips; take longer ones"
        )
    spans = [
        (film, place * step / 1e6, min((place + 1) * step, end) / 1e6)
        for film, end, count in zip(films, ends, counts, strict=True)
        for place in range(count)
    ]
    grid = _made(f"{timelines.name}-{decimal(length)}s", timelines, spans, _numbered(spans))
    if not (unknown := [film for film in films if timelines.films[film].end is None]):
        return grid, []
    what = f"no end is known of {counted(len(unknown), 'film')}: {join_some(unknown)}"
    done = "the last clip ends where the last segment does"
    return grid, [Remark(f"a grid of {length:g} s", "", "", what, done)]


def _listed(path: Path, timelines: Timelines) -> tuple[Manifest, list[Remark]]:
    """Shots or scenes, in order of film (as films come in the file) and time."""
    required = ("film", "start", "end")
    meanings = dict.fromkeys((*required, "id"), ())
    table = map_columns(read_table(path, delimiter=None), meanings, required=required)
    named = "id" in table.columns
    cells = (table[name] for name in ("film", "start", "end", *(["id"] if named else [])))
    found: list[tuple[tuple[str, float, float], str, int]] = []
    bad: list[tuple[int, str]] = []
    seen: set[str] = set()
    for row, (named_film, start, end, *given) in enumerate(zip(*cells, strict=True)):
        # As importers of timelines call it.
        film = safe_id(named_film) if named_film.strip() else ""
        try:
            begin, finish = (
                moment(text, what, table.delimiter)
                for text, what in ((start, "start"), (end, "end"))
            )
        except AnnotationError as error:
            bad.append((row, str(error)))
            continue
        identifier = given[0] if named else ""
        if problem := id_problem(film):
            bad.append((row, f"film: {problem}"))
        elif named and (problem := id_problem(identifier)):
            bad.append((row, problem))
        elif named and identifier.lower() in seen:
            bad.append((row, f"another clip is called {identifier!r} already"))
        elif finish < begin + MIN_SPAN_S:
            ends = "ends before it starts" if finish < begin else "has no length"
            bad.append((row, f"the clip {ends} ({start} to {end})"))
        else:
            seen.add(identifier.lower())
            found.append(((film, begin, finish), identifier, row))
    if not found:
        raise AnnotationError(f"{path} holds no clips, only {counted(len(bad), 'bad row')}")
    films = list(dict.fromkeys(span[0] for span, _, _ in found))
    place = {film: number for number, film in enumerate(films)}
    found.sort(key=lambda one: (place[one[0][0]], *one[0][1:], one[1]))
    spans = [span for span, _, _ in found]
    extra = {
        name: [column[row] for _, _, row in found]
        for name, column in table.columns.items()
        if name not in ("film", "start", "end", "id", "kind", "media", "text")
    }
    ids = [identifier for _, identifier, _ in found] if named else _numbered(spans)
    lines = table.lines if bad else []
    return _made(path.stem, timelines, spans, ids, extra), [
        Remark(f"{path}, line {lines[row]}", table["film"][row], "", what, LEFT_OUT)
        for row, what in bad
    ]


def _numbered(spans: Sequence[tuple[str, float, float]]) -> list[str]:
    """Ids of the spans' films and their numbers in them, from 1 on."""
    counts: dict[str, int] = {}
    ids = []
    for film, _, _ in spans:
        counts[film] = counts.get(film, 0) + 1
        ids.append(f"{film}-{counts[film]:04d}")
    return ids


def _made(
    name: str,
    timelines: Timelines,
    spans: Sequence[tuple[str, float, float]],
    ids: list[str],
    extra: Mapping[str, list[str]] | None = None,
) -> Manifest:
    films = [film for film, _, _ in spans]
    names = {
        film: one.name
        for film, one in timelines.films.items()
        if one.name and "/" not in one.name and media_problem(one.name) is None
    }
    items = Items(
        ids=ids,
        kinds=["clip"] * len(ids),
        films=films,
        media=[names.get(film, film) for film in films],
        texts=[""] * len(ids),
        starts=np.array([start for _, start, _ in spans]),
        ends=np.array([end for _, _, end in spans]),
        extra=extra or {},
    )
    about = {key: getattr(timelines, key) for key in ("source", "licence", "citation")}
    return Manifest(name, items, scheme=timelines.scheme, **about)


def _films(
    where: str, by_film: Mapping[str, NDArray[np.intp]], timelines: Timelines
) -> list[Remark]:
    """Films that only the timelines have, or only the grid."""
    annotated = timelines.by_film
    if not annotated:
        raise AnnotationError(f"the timelines {timelines.name!r} hold no segments")
    if not set(annotated) & set(by_film):
        raise AnnotationError(
            f"{where} has no clips of any film of the timelines: it has "
            f"{join_some(list(by_film))}"
            f", they have {join_some(list(annotated))}{did_you_mean(annotated, by_film)}"
        )
    return [
        *(
            Remark(
                where,
                film,
                "",
                f"the grid has no clips of it{did_you_mean([film], by_film)}",
                LEFT_OUT,
            )
            for film in annotated
            if film not in by_film
        ),
        *(
            Remark(where, film, "", "nobody annotated it", "no labels")
            for film in dict.fromkeys([*timelines.films, *by_film])
            if film not in annotated
        ),
    ]


def _apart(where: str, items: Items, by_film: Mapping[str, NDArray[np.intp]]) -> list[Remark]:
    """Clips that do not begin where those before them end."""
    found = []
    for film, rows in by_film.items():
        starts, ends = microseconds(items.starts[rows]), microseconds(items.ends[rows])
        apart = starts[1:] - np.maximum.accumulate(ends)[:-1]
        for place in np.flatnonzero(np.abs(apart) > SLACK).tolist():
            by, clip = decimal(abs(int(apart[place])) / 1e6), items.ids[int(rows[place + 1])]
            if apart[place] > 0:
                what, done = f"a gap of {by} s before {clip}", "kept; segments there count nowhere"
            else:
                what, done = f"{clip} overlaps what is before it by {by} s", "kept; both count"
            found.append(Remark(where, film, "", what, done))
    return found
