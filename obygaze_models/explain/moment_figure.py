"""A film on its time axis: annotators' segments, clip labels, frame probabilities, moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obygaze_features.common.figures import (
    INK,
    LINE,
    SERIES,
    SOFT,
    Bar,
    describe,
    draw_level_bars,
    figure_style,
    level_keys,
    plain,
    show_time,
)
from obygaze_features.common.text import counted, join_some, shorten
from obygaze_features.errors import UsageError
from obygaze_features.manifests.statistics import known_titles, match_film
from obygaze_models.explain.frame_scores import Axis, name_film
from obygaze_models.explain.moments import CLOSE_GAPS_S, Moment, Moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obygaze_features import Manifest, Timelines


CURVE = 1.7
"""The height of the frame probabilities, in rows."""


def moment_figure(
    moments: Moments,
    film: str | None = None,
    *,
    timelines: Timelines | None = None,
    manifest: Manifest | None = None,
) -> Figure:
    """Draw a film's moments below the frame probabilities that they were found in.

    Parameters
    ----------
    moments
        From `find_moments`.
    film
        Its id or title; by default the first. Of a clip whose position in the film is unknown,
        the clip's id.
    timelines
        Annotators' segments, drawn above, a row an annotator.
    manifest
        The clips' labels, drawn below these.
    """
    axis = _find_axis(moments, film)
    rows = _label_rows(axis, timelines, manifest, set(moments.frames.ids))
    frames, own = moments.frames.by_axis[axis], [m for m in moments.moments if m.axis == axis]
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 2.1 + 0.55 * (len(rows) + CURVE)), layout="constrained")
        axes = figure.add_subplot()
        for y, (_, bars, levels) in enumerate(rows):
            draw_level_bars(axes, -y, bars, levels)
        base = 0.4 - len(rows) - CURVE
        _draw_curve(axes, moments, axis, own, base)
        bottom = base - 0.85
        starts, lengths = [m.start for m in own], [m.end - m.start for m in own]
        axes.bar(starts, 0.5, lengths, bottom + 0.1, align="edge", color=INK)
        names = [plain(name) for name, _, _ in rows]
        axes.set_yticks(
            [*(-y - 0.1 for y in range(len(rows))), base + CURVE * 0.4, bottom + 0.35],
            [*names, "probability of\neach frame", "moments"],
        )
        axes.set_ylim(bottom - 0.1, 0.6)
        times = [time for _, bars, _ in rows for start, end, _ in bars for time in (start, end)]
        times += (frames.edges[[0, -1]] / 1e6).tolist()
        show_time(axes, max(times), min(times))
        details = timelines.films.get(axis.name) if timelines is not None else None
        title = details.title if details and details.title else axis.name
        text = _describe(moments, axis, len(own))
        axes.set_title(plain(title), loc="left", weight="bold")
        figure.supxlabel(plain(text), x=0.01, ha="left", fontsize=8, color=SOFT)
        drawn = {list(levels.values())[bar[2]] for _, bars, levels in rows for bar in bars}
        keys = {
            key.get_label(): key
            for _, _, levels in rows
            for name, key in zip(levels.values(), level_keys(levels), strict=True)
            if name in drawn
        }
        if keys:
            figure.legend(handles=keys.values(), loc="outside upper right", ncols=len(keys))
    describe(figure, title, text)
    return figure


def _find_axis(moments: Moments, film: str | None) -> Axis:
    axes = list(moments.frames.by_axis)
    if film is None:
        return axes[0]
    titles = known_titles()
    names = {axis.name: titles.get(axis.name, "") for axis in axes}
    return axes[list(names).index(match_film(film, names))]


def _label_rows(
    axis: Axis, timelines: Timelines | None, manifest: Manifest | None, clips: set[str]
) -> list[tuple[str, list[Bar], dict[str, str]]]:
    """The name, bars and levels of each annotator, and of the clips' labels."""
    rows = []
    if timelines is not None and not axis.clip:
        if axis.film not in timelines.by_film:
            raise UsageError(
                f"the timelines {timelines.name} have no film {shorten(axis.film)} (they have "
                f"{join_some(list(timelines.by_film))}); choose another film or other timelines"
            )
        codes = timelines.scheme.codes
        for annotator, segments in timelines.by_film[axis.film].items():
            bars = [(s.start, s.end, codes.index(s.level)) for s in segments]
            rows.append((timelines.names.get(annotator, annotator), bars, timelines.scheme.name_of))
    if manifest is not None and not axis.clip:
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
    """The frames' probabilities from `base` (0) on, its `own` moments shaded behind them."""
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
    """A line across, named at its right end."""
    style: Any = (0, (4, 2.5)) if dashed else "solid"
    axes.axhline(y, color=SOFT if dashed else LINE, linewidth=0.8, linestyle=style)
    place: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(text, (1, y), (4, 0), **place, va="center", size=8, color=SOFT)


def _describe(moments: Moments, axis: Axis, count: int) -> str:
    frames = moments.frames.axes.count(axis)
    text = f"{moments.title}; {counted(count, 'moment')} in {counted(frames, 'frame')}"
    if moments.min_length is not None:
        by_default = moments.close_gaps is None
        gap = f"{CLOSE_GAPS_S if by_default else moments.close_gaps:g} s"
        gap += " (a tenth of short clips)" if by_default else ""
        text += f"; gaps under {gap} closed, moments under {moments.min_length:g} s dropped"
    return text
