"""Frames on the time axes of films: a table with each frame's time span and probability.

A frame's time span starts halfway after the previous frame and ends halfway before the next frame,
or at the clip's ends. If clips of a film overlap, their frames are averaged. A clip whose position
in the film is unknown has its own axis. Times are integer microseconds, so that they compare
exactly; tables have seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from obygaze_features.common.tables import Table, format_spreadsheet, read_table
from obygaze_features.common.text import counted, group_by, shorten
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import format_seconds, name_film
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_models.data.warnings import unique_warnings
from obygaze_models.saved.about import CLIP, FILM, NO
from obygaze_models.saved.predict import FramePredictions
from obygaze_models.scoring.metrics import Array

MAX_ROUNDING_US = 1000
"""The maximum gap between clips that count as adjacent, because their times are rounded."""
MAX_OUTSIDE_S = 1.0
"""The maximum time by which all frames of a clip may be outside the clip's span."""


@dataclass(frozen=True, order=True)
class Axis:
    """The time axis of a film, or of a `clip` whose position in the film is unknown."""

    film: str
    clip: str = ""

    @property
    def name(self) -> str:
        """The clip if the axis is of a clip, else the film."""
        return self.clip or self.film


@dataclass(frozen=True, eq=False)
class AxisFrames:
    """The mean scores of the frames on a time axis, from the first to the last.

    Parameters
    ----------
    edges
        The K + 1 times, in order, at which any frame's time span starts or ends.
    probabilities
        The mean probability of the frames between neighbouring edges [K]; NaN if there are none.
    loudness
        The mean loudness between neighbouring edges [K]; None if unknown.
    """

    edges: Array
    probabilities: Array
    loudness: Array | None = None

    def spans(self, parts: Array) -> list[tuple[int, int]]:
        """Return the start and end of these parts, where part i is between edges i and i + 1."""
        return list(zip(self.edges[parts].tolist(), self.edges[parts + 1].tolist(), strict=True))

    @cached_property
    def unbroken(self) -> list[tuple[int, int]]:
        """The time spans that clips cover without a gap."""
        return join_spans(
            self.spans(np.flatnonzero(~np.isnan(self.probabilities))), MAX_ROUNDING_US
        )


@dataclass(frozen=True, eq=False)
class FrameScores:
    """A probability and a time span for each frame.

    Parameters
    ----------
    axes, ids
        Each frame's time axis and clip.
    starts, ends
        The time span of each frame, in microseconds.
    probabilities
        A probability for each frame, from 0 to 1.
    seen
        A text for each frame that says if its clip was used in training, as in `Predictions`; empty
        if unknown.
    loudness
        The loudness of each frame's sound in dB; None or NaN if unknown.
    """

    axes: list[Axis]
    ids: list[str]
    starts: Array
    ends: Array
    probabilities: Array
    seen: list[str]
    loudness: Array | None = None

    @cached_property
    def rows(self) -> dict[Axis, Array]:
        """The rows of each axis. The axes are sorted."""
        rows = group_by(range(len(self.axes)), self.axes.__getitem__)
        return {axis: np.array(rows[axis]) for axis in sorted(rows)}

    @cached_property
    def by_axis(self) -> dict[Axis, AxisFrames]:
        """The mean scores of each axis."""
        by_axis = {}
        for axis, rows in self.rows.items():
            edges = np.unique(np.concatenate([self.starts[rows], self.ends[rows]]))
            frames, parts = overlapping_parts(edges, self.starts[rows], self.ends[rows])
            counts, means = np.bincount(parts, minlength=len(edges) - 1), []
            for values in (self.probabilities, self.loudness):
                if values is not None:
                    totals = np.bincount(parts, values[rows][frames], len(counts))
                    mean = np.full(len(counts), np.nan)
                    means.append(np.divide(totals, counts, out=mean, where=counts > 0))
            by_axis[axis] = AxisFrames(edges, *means)
        return by_axis

    def to_csv(self) -> str:
        """Return a table with a row per frame, and times in seconds."""
        loudness = [] if self.loudness is None else np.round(self.loudness, 1).tolist()
        heard = {"loudness": ["" if math.isnan(db) else repr(db) for db in loudness]}
        return format_spreadsheet(
            {
                "film": [axis.film for axis in self.axes],
                "id": self.ids,
                "start": [format_seconds(time / 1e6) for time in self.starts.tolist()],
                "end": [format_seconds(time / 1e6) for time in self.ends.tolist()],
                "probability": [repr(value) for value in self.probabilities.tolist()],
                "time_in": ["clip" if axis.clip else "film" for axis in self.axes],
                "seen_in_training": self.seen,
                **(heard if loudness else {}),
            }
        )

    @classmethod
    def from_csv(cls, path: str | Path) -> FrameScores:
        """Read a table with at least the columns film, id, start, end and probability."""
        columns = ("film", "id", "start", "end", "probability")
        table = read_table(Path(path), required=columns).without_escapes()
        if not len(table):
            raise ExperimentError(f"{path} has no rows. Make it again with: obygaze models moments")
        axes, numbers = read_axes(table, table["id"]), read_numbers(table, "probability")
        heard, seen = np.array(list(map(_number, table.get("loudness")))), "seen_in_training"
        heard[np.isinf(heard)] = math.nan
        loudness = None if np.isnan(heard).all() else heard
        return cls(axes, table["id"], *read_spans(table), numbers, table.get(seen), loudness)


def average_frames(parts: Sequence[FramePredictions]) -> FramePredictions:
    """Average each clip's frame probabilities over the models that predict it, and sort by id.

    A clip's threshold is the mean over the models that predict it, because another model's
    threshold may have been chosen on the clip's labels. A clip counts as seen if any of these
    models has seen it.
    """
    clips = np.concatenate([part.ids for part in parts])
    ids, first, rows, counts = np.unique(
        clips, return_index=True, return_inverse=True, return_counts=True
    )

    def average(values: Sequence[Array]) -> Array:
        total = np.zeros((len(ids), *values[0].shape[1:]))
        np.add.at(total, rows, np.concatenate(values))
        return np.asarray((total.T / counts).T)

    states = (NO, FILM, CLIP)
    seen = np.zeros(len(ids), dtype=np.intp)
    np.maximum.at(seen, rows, [states.index(state) for part in parts for state in part.seen])
    loudness = np.concatenate(
        [np.full_like(p.times, np.nan) if p.loudness is None else p.loudness for p in parts]
    )
    return FramePredictions(
        parts[0].about,
        ids.tolist(),
        np.concatenate([part.times for part in parts])[first],
        average([part.probabilities for part in parts]),
        average([np.broadcast_to(part.threshold, len(part.ids)) for part in parts]),
        [states[code] for code in seen.tolist()],
        unique_warnings(warning for part in parts for warning in part.warnings),
        None if np.isnan(loudness).all() else loudness[first],
    )


def place_frames(
    predictions: FramePredictions, items: Items, manifest: Manifest | None
) -> FrameScores:
    """Assign a time span to each frame that has a time and a probability.

    Frames of the same clip that have the same time are averaged.
    """
    probabilities = predictions.probabilities
    if probabilities.ndim == 3:
        probabilities = probabilities[..., -1]
    present = ~np.isnan(predictions.times) & ~np.isnan(probabilities)
    if not present.any():
        lacking = "probability" if np.isnan(probabilities).all() else "time"
        raise ExperimentError(
            f"no frame of {counted(len(predictions.ids), 'clip')} has a {lacking}. "
            "Extract the clips again: obygaze features extract"
        )
    if manifest is not None and not manifest.items.row_of.keys() & set(predictions.ids):
        raise ExperimentError(
            f"{manifest.name} has none of the {counted(len(predictions.ids), 'clip')} (it has "
            f"clips such as {manifest.ids[0]}, but the store has {predictions.ids[0]}). Use the "
            "manifest of the store's clips"
        )
    tables = [probabilities, predictions.loudness]
    parts, about = [], []
    media_of: dict[Axis, str] = {}
    for row in np.flatnonzero(present.any(axis=1)).tolist():
        clip = predictions.ids[row]
        item, offset = locate_clip(clip, items, manifest)
        times, same = np.unique(predictions.times[row][present[row]], return_inverse=True)
        own = [table[row][present[row]] for table in tables if table is not None]
        means = [np.bincount(same, values) / np.bincount(same) for values in own]
        times = times + offset
        low, high = item.start, item.end
        span = (-math.inf, math.inf) if low is None or high is None else (low, high)
        if times[-1] < span[0] - MAX_OUTSIDE_S or times[0] > span[1] + MAX_OUTSIDE_S:
            raise ExperimentError(
                f"clip {clip}: the frames (at {times[0]:g} to {times[-1]:g} s) are outside the "
                f"clip's span ({span[0]:g} to {span[1]:g} s). Count frame_time from the start of "
                "the film's file"
            )
        starts, ends = _cut_axis(times, low, high)
        is_shown = ends > starts
        axis = Axis(item.film, clip)
        if low is not None:
            axis = Axis(name_film(item.film, item.media))
        if item.media != (media := media_of.setdefault(axis, item.media)):
            raise ExperimentError(
                f"film {axis.film}: the clips are from two files, whose times cannot be compared "
                f"({media or 'none'}, {item.media or 'none'}). Assign each file its own "
                "film in the manifest"
            )
        parts.append([values[is_shown] for values in (starts, ends, *means)])
        about += [(axis, clip, predictions.seen[row])] * int(is_shown.sum())
    starts, ends, values, *loudness = map(np.concatenate, zip(*parts, strict=True))
    axes, ids, seen = map(list, zip(*about, strict=True))
    return FrameScores(axes, ids, starts, ends, values, seen, *loudness)


def locate_clip(clip: str, items: Items, manifest: Manifest | None) -> tuple[Item, float]:
    """Return a clip's item with its span in the film, and the offset of its frames' times.

    If the clip's file contains the whole film, the span starts at 0.
    """
    item, offset, is_whole = items[items.row(clip)], 0.0, clip in items.whole_films
    located = manifest.items.row_of.get(clip) if manifest is not None else None
    if item.start is None and manifest is not None and located is not None:
        span = manifest.items[located]
        # The times of its frames count from the start of the clip's file.
        placed, offset = (item, 0.0) if span.start is None else (span, span.start)
        item = replace(placed, film=span.film or item.film)
        is_whole &= clip in manifest.items.whole_films
    return (replace(item, start=0.0) if is_whole else item), offset


def _cut_axis(times: Array, start: float | None, end: float | None) -> tuple[Array, Array]:
    """Return each frame's span.

    If the clip's start or end is unknown, the first or last span is symmetric about its frame (but
    starts no earlier than 0).
    """
    middles = (times[1:] + times[:-1]) / 2
    first, last = (middles[0], middles[-1]) if len(middles) else (times[0] + 0.5, times[0] - 0.5)
    low = max(0.0, 2 * times[0] - first) if start is None else start
    high = 2 * times[-1] - last if end is None else end
    edges = to_microseconds(np.clip([low, *middles, high], low, high))
    return edges[:-1], edges[1:]


def join_spans(spans: Sequence[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    """Merge sorted spans that overlap or are at most `gap` apart.

    Examples
    --------
    >>> join_spans([(0, 2), (1, 4), (6, 8), (11, 12)], gap=2)
    [(0, 8), (11, 12)]
    """
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def to_microseconds(seconds: ArrayLike) -> Array:
    """Convert seconds to whole microseconds."""
    return np.rint(np.asarray(seconds, float) * 1e6).astype(np.int64)


def overlapping_parts(edges: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Return the pairs of spans and parts that overlap. A part is the time between two edges.

    Parameters
    ----------
    edges
        The edges in ascending order, including every start and end.
    starts, ends
        The starts and ends of the spans.

    Returns
    -------
    spans, parts
        The index of the span, and the index of the part, of each pair.
    """
    first, last = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    counts = last - first
    spans = np.repeat(np.arange(len(starts)), counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return spans, first[spans] + offsets


def read_axes(table: Table, clips: Sequence[str]) -> list[Axis]:
    """Return the time axis of each row of a table. `clips` lists the clip of each row."""
    times_in = table.get("time_in")
    return [
        Axis(film, clip if time_in == "clip" else "")
        for film, clip, time_in in zip(table["film"], clips, times_in, strict=True)
    ]


def read_numbers(table: Table, column: str, highest: float = 1.0) -> Array:
    """Return a column as numbers; raise for the first cell that is not from 0 to `highest`."""
    numbers = np.array([_number(cell) for cell in table[column]])
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers <= highest)))
    if len(wrong):
        cell = shorten(table[column][wrong[0]])
        wish = f"a number from 0 to {highest:g}" if highest < 10 else "a number of seconds"
        raise table.problem(int(wrong[0]), f"{column} is not {wish} (got {cell})")
    return numbers


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def read_spans(table: Table) -> tuple[Array, Array]:
    """Return `start` and `end` in microseconds; raise if an end is not after its start."""
    starts, ends = (to_microseconds(read_numbers(table, name, 1e9)) for name in ("start", "end"))
    if len(wrong := np.flatnonzero(ends <= starts)):
        raise table.problem(int(wrong[0]), "end must be after start")
    return starts, ends
