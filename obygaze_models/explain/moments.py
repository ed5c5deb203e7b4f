"""Moments: the intervals of films that a frame-level model rates as positive.

This module finds moments, reads and writes tables of moments, and draws them on a film's time axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from obygaze_features.common.printer import align
from obygaze_features.common.tables import format_spreadsheet, read_table
from obygaze_features.common.text import counted, format_time, shorten
from obygaze_features.errors import UsageError
from obygaze_features.items.films import film_titles, known_titles
from obygaze_features.items.items import format_seconds, require_same_clips
from obygaze_features.manifests import Items, Manifest
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.explain.frame_scores import (
    MAX_ROUNDING_US,
    Axis,
    AxisFrames,
    FrameScores,
    join_spans,
    locate_clip,
    place_frames,
    read_axes,
    read_numbers,
    read_spans,
    to_microseconds,
)
from obygaze_models.saved.about import CLIP

if TYPE_CHECKING:
    from obygaze_models.data.warnings import RunWarning
    from obygaze_models.saved.predict import FramePredictions

MIN_LENGTH_S, CLOSE_GAPS_S = 2.0, 5.0
CLOSE_GAPS_SHARE = 0.1
"""The limit for gaps to close in films and clips shorter than 50 s, as a share of their length."""
EPSILON = 1e-12
"""The tolerance for rounding errors in the mean of equal thresholds."""
MAX_ROWS_SHOWN = 20


@dataclass(frozen=True)
class Moment:
    """An interval of a time axis, in seconds.

    `score` is the mean probability in the interval. `clips` are the clips that show the interval,
    and `seen` is "clip" if the model was trained on any of these clips.
    """

    axis: Axis
    start: float
    end: float
    score: float
    clips: tuple[str, ...] = ()
    seen: str = ""


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments of films, and the frames in which they were found.

    Parameters
    ----------
    moments
        The moments, in order of film and time.
    frames
        A probability for each frame.
    thresholds
        The threshold of each clip.
    min_length, close_gaps
        See `find_moments`.
    title
        The model, and the classes that it was trained to distinguish.
    media
        The name of each film's file.
    warnings
        Warnings for the reader.
    part
        The noun for a frame: ``window`` if each row of features covers several frames or sound.
    titles
        The titles of films, by id, if known.
    """

    moments: list[Moment]
    frames: FrameScores
    thresholds: Mapping[str, float] = field(default_factory=dict)
    min_length: float | None = None
    close_gaps: float | None = None
    title: str = "moments"
    media: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[RunWarning] = ()
    part: str = "frame"
    titles: Mapping[str, str] = field(default_factory=known_titles)

    def __repr__(self) -> str:
        films = len({axis.film for axis in self.frames.axes})
        return f"Moments({counted(len(self.moments), 'moment')} in {counted(films, 'film')})"

    @property
    def threshold(self) -> float | None:
        """The mean threshold over clips, or None if unknown."""
        return float(np.mean(list(self.thresholds.values()))) if self.thresholds else None

    def describe(self) -> str:
        """Return a table of the first moments, and the number of all moments."""
        rows = [
            (cut(m.axis.name, 40), format_time(m.start), format_time(m.end), f"{m.score:.2f}")
            for m in self.moments[:MAX_ROWS_SHOWN]
        ]
        lines = [align(["film", "start", "end", "score"], rows)] if rows else []
        if (more := len(self.moments) - MAX_ROWS_SHOWN) > 0:
            lines.append(f"and {counted(more, 'more moment', 'more moments')}")
        axes = self.frames.rows.keys()
        clips = sum(bool(axis.clip) for axis in axes)
        where = [counted(len(axes) - clips, "film")] if len(axes) > clips else []
        if clips:
            where.append(
                f"{counted(clips, 'clip')} whose position in the film is unknown (times count "
                "from the start of the clip)"
            )
        limits = sorted({f"{limit:.3f}" for limit in self.thresholds.values()})
        used = f" at a threshold of {limits[0]}" if limits else ""
        if len(limits) > 1:
            used = f" at thresholds of {limits[0]} to {limits[-1]}"
        lines.append(f"{counted(len(self.moments), 'moment')}{used} in {' and '.join(where)}")
        return "\n".join(lines)

    def to_csv(self) -> str:
        """Return a table with a row per moment, and times in seconds."""
        return format_spreadsheet(
            {
                "film": [m.axis.film for m in self.moments],
                "start": [format_seconds(m.start) for m in self.moments],
                "end": [format_seconds(m.end) for m in self.moments],
                "score": [repr(m.score) for m in self.moments],
                "clips": [SEPARATOR.join(m.clips) for m in self.moments],
                "time_in": ["clip" if m.axis.clip else "film" for m in self.moments],
                "seen_in_training": [m.seen for m in self.moments],
            }
        )

    @classmethod
    def from_csv(cls, moments: str | Path, frames: str | Path) -> Moments:
        """Read a table of moments (film, start, end, score) and a table of frames."""
        required = ("film", "start", "end", "score")
        table = read_table(Path(moments), required=required).without_escapes()
        starts, ends = read_spans(table)
        scores = FrameScores.from_csv(frames)
        films = {axis.film for axis in scores.axes}
        for row, film in enumerate(table["film"]):
            if film not in films:
                wrong = f"{frames} has no frames of {shorten(film)}. Use tables of the same films"
                raise table.problem(row, wrong)
        clips = [tuple(filter(None, cell.split(SEPARATOR))) for cell in table.get("clips")]
        times = (starts / 1e6).tolist(), (ends / 1e6).tolist()
        numbers, axes = read_numbers(table, "score").tolist(), read_axes(table, table.get("clips"))
        columns = axes, *times, numbers, clips, table.get("seen_in_training")
        return cls([Moment(*cells) for cells in zip(*columns, strict=True)], scores)


def cut(text: str, width: int) -> str:
    """Shorten a name to fit in a table."""
    return text if len(text) <= width else text[: width - 3] + "..."


def find_moments(
    predictions: FramePredictions,
    items: Items,
    *,
    manifest: Manifest | str | Path | None = None,
    threshold: float | None = None,
    min_length: float = MIN_LENGTH_S,
    close_gaps: float | None = None,
) -> Moments:
    """Find the intervals in which frames reach a threshold.

    Parameters
    ----------
    predictions
        The result of `predict_frames`.
    items
        The items of the store, with each clip's film, start and end.
    manifest
        A manifest with the same ids. For clips that have their own files, it provides the positions
        in the film.
    threshold
        A probability; by default, the model's threshold, which was chosen on validation clips. In a
        run, each clip has the mean threshold of the models that were tested on it.
    min_length
        The minimum length of an interval, in seconds, after gaps were closed.
    close_gaps
        The length below which gaps between intervals are closed, in seconds, if clips cover the
        gap. By default, `CLOSE_GAPS_S`, or the share `CLOSE_GAPS_SHARE` of a short film or clip.
    """
    if threshold is not None and not 0 <= threshold <= 1:
        raise UsageError(f"the threshold must be a probability from 0 to 1 (got {threshold:g})")
    for name, seconds in (("minimum length", min_length), ("gap to close", close_gaps or 0.0)):
        if not 0 <= seconds < math.inf:
            raise UsageError(f"the {name} must be 0 seconds or more (got {seconds:g})")
    if manifest is not None:
        manifest = manifest if isinstance(manifest, Manifest) else Manifest.load(manifest)
        require_same_clips(items, manifest.items)
    frames = place_frames(predictions, items, manifest)
    longest_gap = CLOSE_GAPS_S if close_gaps is None else close_gaps
    shortest, gap = to_microseconds([min_length, longest_gap]).tolist()
    chosen = predictions.threshold if threshold is None else threshold
    by_clip = np.broadcast_to(chosen, len(predictions.ids)).tolist()
    thresholds = dict(zip(predictions.ids, by_clip, strict=True))
    limits = replace(frames, probabilities=np.array([thresholds[clip] for clip in frames.ids]))
    moments = []
    for axis, film in frames.by_axis.items():
        limit = limits.by_axis[axis].probabilities
        reached = np.flatnonzero(film.probabilities >= limit - EPSILON)  # False for NaN
        length = int(film.edges[-1] - film.edges[0])
        own_gap = min(gap, round(CLOSE_GAPS_SHARE * length)) if close_gaps is None else gap
        for low, high in film.unbroken:  # gaps between clips stay
            inside = reached[(film.edges[reached] >= low) & (film.edges[reached + 1] <= high)]
            for start, end in join_spans(film.spans(inside), max(own_gap - 1, MAX_ROUNDING_US)):
                if end - start >= shortest:
                    moments.append(_make_moment(axis, start, end, film, frames))
    about = predictions.about
    of_axis = {axis.film: clip for axis, clip in zip(frames.axes, frames.ids, strict=True)}
    media = {film: locate_clip(clip, items, manifest)[0].media for film, clip in of_axis.items()}
    title = f"{about.estimator}: {about.learned.key}"
    if predictions.probabilities.ndim == 3:
        title += f", probability of {about.learned.class_titles[-1]}"
    part = "window" if " windows of " in str(about.features) else "frame"
    titles = film_titles(items) | (film_titles(manifest.items) if manifest else {})
    described = title, media, predictions.warnings, part, titles
    return Moments(moments, frames, thresholds, min_length, close_gaps, *described)


def _make_moment(axis: Axis, start: int, end: int, film: AxisFrames, frames: FrameScores) -> Moment:
    edges = np.clip(film.edges, start, end)
    weights = np.where(np.isnan(film.probabilities), 0, np.diff(edges))
    score = float(np.average(np.nan_to_num(film.probabilities), weights=weights))
    rows = frames.rows[axis]
    inside = rows[(frames.starts[rows] < end) & (frames.ends[rows] > start)].tolist()
    seen = {frames.seen[row] for row in inside}
    clips = tuple(dict.fromkeys(frames.ids[row] for row in inside))
    was_seen = CLIP if CLIP in seen else max(seen)
    return Moment(axis, start / 1e6, end / 1e6, score, clips, was_seen)
