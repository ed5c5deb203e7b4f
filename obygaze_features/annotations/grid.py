"""Grids: manifests of clips with start and end times, onto which timelines are projected."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import ORIGIN, Timelines
from obygaze_features.common.formatting import join_some
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.items.films import TITLE_COLUMN
from obygaze_features.items.items import MEDIA_NAME, MIN_SPAN_S, Item, Items, format_seconds
from obygaze_features.manifests.importers.reading import parse_time
from obygaze_features.manifests.manifest import Manifest

#: The tolerance for rounding: times are rounded to whole microseconds, so the overlap of a clip
#: and a segment may be off by one microsecond, and the required overlap by another one.
ROUNDING_US = 2
#: The maximum number of clips in a grid, so that a mistyped length such as 0.001 does not exhaust
#: the memory.
MAX_CLIPS = 1_000_000


def read_grid(
    grid: float | str | Path | Manifest,
    timelines: Timelines,
) -> tuple[Manifest, list[Remark]]:
    """Return the clips of a grid, and remarks on anything unusual about them.

    Parameters
    ----------
    grid
        A manifest (or its folder) whose items have spans; or the length of a clip (``60`` or
        ``0:01:00``). A length cuts each film into clips from 0 to its end; the last clip may be
        shorter.
    timelines
        The timelines to project. Their films are cut into clips if `grid` is a length.
    """
    if not timelines.segments:
        raise AnnotationError(
            f"the timelines {timelines.name!r} have no segments; see their remarks for the reasons"
        )
    if not isinstance(grid, Manifest):
        grid = str(grid)
        if not Path(grid).is_dir():
            return _regular_grid(grid, timelines)
        grid = Manifest.load(grid)

    by_film = grid.items.spans_by_film
    if by_film.keys().isdisjoint(timelines.by_film):
        raise AnnotationError(
            f"the grid {grid.name!r} has no clips with spans of any film in the timelines. It has "
            f"{join_some(list(by_film)) or 'none'}; the timelines have "
            f"{join_some(list(timelines.by_film))}. Use the same films in both"
        )
    remarks = []
    for row in np.flatnonzero(np.isnan(grid.items.starts)).tolist():
        film = grid.items.films[row]
        remarks.append(Remark(f"{grid.name}, {grid.ids[row]}", film, "", "has no span", LEFT_OUT))
    for film in timelines.by_film:
        if film not in by_film:
            remarks.append(Remark(grid.name, film, "", "has no spans in the grid", LEFT_OUT))
    return grid, remarks


def microseconds(values: Iterable[float]) -> NDArray[np.int64]:
    """Convert seconds to whole microseconds, so that spans can be compared exactly."""
    times = np.asarray(values, float) * 1e6
    return np.rint(times).astype(np.int64)


def _regular_grid(text: str, timelines: Timelines) -> tuple[Manifest, list[Remark]]:
    """Cut each film into clips of the length that the text says."""
    try:
        length = parse_time(text, "grid")
    except ManifestError:
        raise UsageError(
            f"{text} is not a grid; pass a number of seconds (60) or a manifest's folder. To "
            "make a manifest from a table of shots: obygaze manifests import csv TABLE "
            "--column media=film -o FOLDER"
        ) from None
    step = round(length * 1e6)
    films = list(timelines.by_film)
    ends = []
    counts = []
    for film in films:
        end = round(timelines.end_of(film) * 1e6)
        ends.append(end)
        # A last clip of one microsecond would be too short for a span.
        counts.append(max(1, -(-(end - 1) // max(step, 1))))
    if step < MIN_SPAN_S * 1e6 or sum(counts) > MAX_CLIPS:
        raise UsageError(f"the clips of a grid of {length:g} s are too short; use longer clips")

    clips = []
    for film, end, count in zip(films, ends, counts, strict=True):
        about = timelines.films[film]
        media = about.media or about.name or film
        if "/" in media or not MEDIA_NAME.fullmatch(media):
            media = film
        for number in range(count):
            start = number * step / 1e6
            stop = min((number + 1) * step, end) / 1e6
            name = f"{film}-{number + 1:04d}"
            clips.append(Item(name, film=film, media=media, start=start, end=stop))
    titles = [timelines.films[clip.film].title for clip in clips]
    grid = Manifest(
        f"{timelines.name}-{format_seconds(length)}s",
        Items.of(clips, {TITLE_COLUMN: titles} if any(titles) else None),
        scheme=timelines.scheme,
        **{key: getattr(timelines, key) for key in ORIGIN},
    )
    remarks = []
    for film in films:
        if timelines.films[film].end is None:
            done = "the last clip ends with the last segment"
            remarks.append(
                Remark(grid.name, film, "", "has no end (import again with --film-table)", done)
            )
    return grid, remarks
