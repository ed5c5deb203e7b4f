"""Grids: manifests of clips with start and end times, onto which timelines are projected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import ORIGIN, Timelines
from obygaze_features.common.text import counted, did_you_mean, join_some
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.items.films import TITLE_COLUMN
from obygaze_features.items.items import (
    MEDIA_NAME,
    MIN_SPAN_S,
    Item,
    Items,
    format_seconds,
)
from obygaze_features.manifests.importers.reading import parse_time
from obygaze_features.manifests.manifest import Manifest

#: The tolerance for rounding: times are rounded to whole microseconds, so the overlap of a clip
#: and a segment may be off by one microsecond, and the required overlap by another one.
ROUNDING_US = 2
#: The maximum number of clips in a grid, so that a mistyped length such as 0.001 does not exhaust
#: the memory.
MAX_CLIPS = 1_000_000
_LENGTH = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?s?", re.ASCII)


def number_stretches(starts: Iterable[float | None], ends: Iterable[float | None]) -> list[int]:
    """Return each clip's stretch number, for clips sorted by time; a gap starts a new stretch.

    A clip without an end is taken to last until the end of the film, so no gap follows it.
    """
    begins = np.array([*starts], dtype=float)  # None becomes NaN
    latest_ends = np.maximum.accumulate(np.array([*ends], dtype=float))  # NaN stays NaN
    gaps = begins[1:] > latest_ends[:-1]
    return [0, *np.cumsum(gaps).tolist()][: len(begins)]


def read_grid(
    grid: float | str | Path | Manifest, timelines: Timelines
) -> tuple[Manifest, list[Remark]]:
    """Return the clips of a grid, and remarks on anything unusual about them.

    Parameters
    ----------
    grid
        A manifest (or its folder) whose items have spans; or the length of a clip (``60``, ``60s``
        or ``0:01:00``). A length cuts each film into clips from 0 to its end; the last clip may be
        shorter.
    timelines
        The timelines to project. Their films are cut into clips if `grid` is a length.
    """
    name = grid.name if isinstance(grid, Manifest) else str(grid)
    length = None if isinstance(grid, Manifest) else _parse_length(name)
    if length is not None:
        clips, remarks = _regular_grid(length, timelines)
        name = f"a grid of {length:g} s"
    elif isinstance(grid, Manifest):
        clips, remarks = _manifest_grid(grid, name)
    elif Path(name).is_dir():
        clips, remarks = _manifest_grid(Manifest.load(name), str(Path(name) / "items.csv"))
    else:
        raise UsageError(
            f"{name} is not a grid; pass a number of seconds (60) or a manifest's folder. To make "
            "a manifest from a table of shots: obygaze manifests import csv TABLE "
            "--column media=film --column film=film -o FOLDER"
        )
    return clips, [*remarks, *_film_remarks(name, clips.items.spans_by_film, timelines)]


def microseconds(values: Iterable[float]) -> NDArray[np.int64]:
    """Convert seconds to whole microseconds, so that spans can be compared exactly."""
    rounded: NDArray[np.int64] = np.rint(np.asarray(values, float) * 1e6).astype(np.int64)
    return rounded


def _parse_length(text: str) -> float | None:
    """Return the length in seconds, or None if the text is not a time."""
    if match := _LENGTH.fullmatch(text):
        return float(match[1])
    try:
        return parse_time(text, "grid") if ":" in text else None
    except ManifestError:
        return None


def _manifest_grid(grid: Manifest, location: str) -> tuple[Manifest, list[Remark]]:
    blank = np.flatnonzero(np.isnan(grid.items.starts)).tolist()
    if len(blank) == len(grid):
        raise AnnotationError(
            f"{location}: the items have no spans, so nothing can be projected onto them; "
            "give each item a start and an end, in seconds of the film"
        )
    films = grid.items.films
    return grid, [
        Remark(location, films[row], "", f"{grid.ids[row]} has no span", LEFT_OUT, "no-span")
        for row in blank
    ]


def _regular_grid(length: float, timelines: Timelines) -> tuple[Manifest, list[Remark]]:
    step = round(length * 1e6)
    if step < MIN_SPAN_S * 1e6:
        raise UsageError(f"the clips of a grid are too short (got {length:g} s); use longer clips")
    films = [film for film in timelines.films if film in timelines.by_film]
    ends = [round(timelines.end_of(film) * 1e6) for film in films]
    # A last clip of one microsecond would be too short for a span.
    counts = [max(1, -(-(end - 1) // step)) for end in ends]
    if sum(counts) > MAX_CLIPS:
        raise UsageError(
            f"a grid of {length:g} s would have {sum(counts):,} clips; use longer clips"
        )
    media = {}
    for film in films:
        name = timelines.films[film].name
        media[film] = film if "/" in name or not MEDIA_NAME.fullmatch(name) else name or film
    clips = [
        Item(
            f"{film}-{number + 1:04d}",
            film=film,
            media=media[film],
            start=number * step / 1e6,
            end=min((number + 1) * step, end) / 1e6,
        )
        for film, end, count in zip(films, ends, counts, strict=True)
        for number in range(count)
    ]
    titles = [timelines.films[clip.film].title for clip in clips]
    grid = Manifest(
        f"{timelines.name}-{format_seconds(length)}s",
        Items.of(clips, {TITLE_COLUMN: titles} if any(titles) else None),
        scheme=timelines.scheme,
        **{key: getattr(timelines, key) for key in ORIGIN},
    )
    if not (unknown := [film for film in films if timelines.films[film].end is None]):
        return grid, []
    names = join_some([timelines.titles[film] for film in unknown])
    problem = f"{counted(len(unknown), 'film')} without an end: {names}"
    done = "the last clip ends with the last segment; import with --film-table for other ends"
    return grid, [Remark(f"a grid of {length:g} s", "", "", problem, done)]


def _film_remarks(
    location: str, by_film: Mapping[str, NDArray[np.intp]], timelines: Timelines
) -> list[Remark]:
    """Return remarks on films that are only in the timelines or only in the grid."""
    annotated = timelines.by_film
    if not annotated:
        raise AnnotationError(f"the timelines {timelines.name!r} have no segments")
    if not set(annotated) & set(by_film):
        raise AnnotationError(
            f"{location} has no clips of any film in the timelines. It has clips of "
            f"{join_some(list(by_film))}"
            f"; the timelines have {join_some(list(annotated))}{did_you_mean(annotated, by_film)}"
        )
    no_clips = "the grid has no clips of this film"
    return [
        Remark(location, film, "", "nobody annotated this film", "no labels", "not-annotated")
        if film not in annotated
        else Remark(
            location, film, "", f"{no_clips}{did_you_mean([film], by_film)}", LEFT_OUT, "no-clips"
        )
        for film in dict.fromkeys([*annotated, *timelines.films, *by_film])
        if film not in annotated or film not in by_film
    ]
