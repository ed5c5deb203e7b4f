"""Moments: the intervals of films that a frame-level model rates as positive.

This module finds moments, reads and writes tables of moments, and draws them on a film's time axis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.common.figures import (
    INK,
    LINE,
    NAMES,
    SERIES,
    SOFT,
    Bar,
    caption,
    draw_level_bars,
    figure_style,
    figure_width,
    level_keys,
    show_time,
    wrap,
)
from obygaze_features.common.tables import align, format_spreadsheet, read_table
from obygaze_features.common.text import counted, format_time, join_some, shorten
from obygaze_features.errors import UsageError
from obygaze_features.items.films import film_titles, find_film, known_titles
from obygaze_features.items.items import format_seconds, name_film, require_same_clips
from obygaze_features.manifests import Items, Manifest
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.data.warnings import synthetic_note
from obygaze_models.explain.frame_scores import (
    MAX_ROUNDING_US,
    Axis,
    AxisFrames,
    FrameScores,
    join_spans,
    locate_clip,
    loudness_heights,
    place_frames,
    read_axes,
    read_numbers,
    read_spans,
    to_microseconds,
)
from obygaze_models.saved.about import description_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obygaze_features import Timelines
    from obygaze_models.data.warnings import RunWarning
    from obygaze_models.saved.inference import FramePredictions

MIN_LENGTH_S, CLOSE_GAPS_S = 2.0, 5.0
CLOSE_GAPS_SHARE = 0.1
"""The limit for gaps to close in films and clips shorter than 50 s, as a share of their length."""
EPSILON = 1e-12
"""The tolerance for rounding errors in the mean of equal thresholds."""
MAX_ROWS_SHOWN = 20
CURVE = 1.7
"""The height of the frame probabilities in a figure, in rows."""


@dataclass(frozen=True)
class Moment:
    """An interval of a time axis, in seconds.

    `score` is the mean probability in the interval. `clips` are the clips that show the interval,
    and `seen` is "yes" if the model was trained on any of these clips.
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
    facts = description_of(predictions.about)
    of_axis = {axis.film: clip for axis, clip in zip(frames.axes, frames.ids, strict=True)}
    media = {film: locate_clip(clip, items, manifest)[0].media for film, clip in of_axis.items()}
    title = f"{facts.estimator}: {facts.task}"
    if predictions.probabilities.ndim == 3:
        title += f", probability of {facts.classes[-1]}"
    part = "window" if " windows of " in str(facts.features) else "frame"
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
    was_seen = "yes" if "yes" in seen else max(seen)
    return Moment(axis, start / 1e6, end / 1e6, score, clips, was_seen)


def moment_figure(
    moments: Moments,
    film: Collection[str] | str = (),
    *,
    timelines: Timelines | None = None,
    manifest: Manifest | None = None,
) -> Figure:
    """Draw a film's moments below the frame probabilities.

    Parameters
    ----------
    moments
        The result of `find_moments`.
    film
        The film's id or title, or the id of a clip whose position in the film is unknown. By
        default, the first film.
    timelines
        The annotators' segments, drawn above the probabilities, with a row per annotator.
    manifest
        The manifest whose labels are drawn below the segments.
    """
    axis = _find_axis(moments, film)
    timelines = timelines and timelines.named_as([axis.name])
    rows = _label_rows(axis, timelines, manifest, set(moments.frames.ids))
    frames, own = moments.frames.by_axis[axis], [m for m in moments.moments if m.axis == axis]
    with figure_style():
        from matplotlib.figure import Figure

        size = figure_width(11), 2.1 + 0.55 * (len(rows) + CURVE)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        base = 0.4 - len(rows) - CURVE
        _draw_curve(axes, moments, axis, own, base)
        bottom = base - 0.85
        starts, lengths = [m.start for m in own], [m.end - m.start for m in own]
        axes.bar(starts, 0.5, lengths, bottom + 0.1, align="edge", color=INK)
        room = 72 * NAMES * size[0]
        names = ["\n".join(wrap(name, room, 9.5)) for name, _, _ in rows]
        ticks = [*(-y - 0.1 for y in range(len(rows))), base + CURVE * 0.4, bottom + 0.35]
        names += [f"probability of\neach {moments.part}", "moments"]
        if frames.loudness is not None:
            bottom -= 0.6
            heights = bottom + 0.45 * loudness_heights(frames.loudness)
            axes.stairs(
                heights, frames.edges / 1e6, baseline=bottom, fill=True, color=SOFT, alpha=0.6
            )
            ticks, names = [*ticks, bottom + 0.2], [*names, "loudness"]
        axes.set_yticks(ticks, names)
        axes.set_ylim(bottom - 0.1, 0.6)
        times = [time for _, bars, _ in rows for start, end, _ in bars for time in (start, end)]
        times += (frames.edges[[0, -1]] / 1e6).tolist()
        show_time(axes, max(times), min(times))
        for y, (_, bars, levels) in enumerate(rows):
            draw_level_bars(axes, -y, bars, levels)
        details = timelines.films.get(axis.name) if timelines is not None else None
        title = moments.titles.get(axis.name, axis.name)
        title = details.title if details and details.title else title
        text = _describe(moments, axis, len(own))
        drawn = {list(levels.values())[bar[2]] for _, bars, levels in rows for bar in bars}
        keys = {
            name: colour
            for _, _, levels in rows
            for name, colour in level_keys(levels).items()
            if name in drawn
        }
        caption(figure, title, text, keys)
    return figure


def _find_axis(moments: Moments, film: Collection[str] | str) -> Axis:
    axes = list(moments.frames.by_axis)
    if not film:
        return axes[0]
    names = {axis.name: moments.titles.get(axis.name, "") for axis in axes}
    return axes[list(names).index(find_film(film, names))]


def _label_rows(
    axis: Axis, timelines: Timelines | None, manifest: Manifest | None, clips: set[str]
) -> list[tuple[str, list[Bar], dict[str, str]]]:
    """Return the name, bars and levels of each annotator, and of the clips' labels."""
    rows = []
    if timelines is not None and not axis.clip:
        if axis.film not in timelines.by_film:
            raise UsageError(
                f"the timelines {timelines.name} have no film {shorten(axis.film)} (they have "
                f"{join_some(list(timelines.by_film))}). Choose another film or other timelines"
            )
        codes = timelines.scheme.codes
        for annotator, segments in timelines.by_film[axis.film].items():
            bars = [(s.start, s.end, codes.index(s.level)) for s in segments]
            rows.append((timelines.names.get(annotator, annotator), bars, timelines.scheme.name_of))
    if manifest is not None and manifest.label_names and not axis.clip:
        codes, level_of = manifest.scheme.codes, manifest.labels().level_of
        bars = [
            (item.start, item.end, codes.index(level_of[item.id]))
            for item in manifest.items
            if item.id in clips & level_of.keys()
            and axis.film == name_film(item.film, item.media)
            and item.start is not None
            and item.end is not None
        ]
        rows.append(("labels of clips", bars, manifest.scheme.name_of))
    return rows


def _draw_curve(axes: Axes, moments: Moments, axis: Axis, own: list[Moment], base: float) -> None:
    """Draw the frames' probabilities above the height `base`, on the shaded moments `own`."""
    frames = moments.frames.by_axis[axis]
    for moment in own:
        across = (moment.start, moment.start, moment.end, moment.end)
        axes.fill(across, (base, base + CURVE, base + CURVE, base), color=LINE, linewidth=0)
    heights = base + CURVE * frames.probabilities
    axes.stairs(heights, frames.edges / 1e6, baseline=None, color=SERIES[0], linewidth=1.1)
    _draw_height(axes, base, "0")
    _draw_height(axes, base + CURVE, "1")
    clips = {moments.frames.ids[row] for row in moments.frames.rows[axis].tolist()}
    if thresholds := [moments.thresholds[clip] for clip in clips if clip in moments.thresholds]:
        threshold = sum(thresholds) / len(thresholds)
        _draw_height(axes, base + CURVE * threshold, f"threshold {threshold:.2f}", dashed=True)


def _draw_height(axes: Axes, y: float, text: str, *, dashed: bool = False) -> None:
    """Draw a horizontal line with its name at the right end."""
    style: Any = (0, (4, 2.5)) if dashed else "solid"
    axes.axhline(y, color=SOFT if dashed else LINE, linewidth=0.8, linestyle=style)
    style_of_text: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(text, (1, y), (4, 0), **style_of_text, va="center", size=8, color=SOFT)


def _describe(moments: Moments, axis: Axis, count: int) -> str:
    frames = moments.frames.axes.count(axis)
    text = f"{moments.title}; {counted(count, 'moment')} in {counted(frames, moments.part)}"
    if moments.min_length is not None:
        by_default = moments.close_gaps is None
        gap = f"{CLOSE_GAPS_S if by_default else moments.close_gaps:g} s"
        gap += " (in short clips, a tenth of their length)" if by_default else ""
        text += f"; gaps under {gap} closed, moments under {moments.min_length:g} s dropped"
    note = synthetic_note(moments.warnings)
    return f"{text}. {note}" if note else text
