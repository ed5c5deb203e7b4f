"""Figures: numbers in, a matplotlib `Figure` out; `save_figure` writes SVG, PDF or PNG.

Each is one column wide. Rows have a fixed height, so a figure grows with what it shows; long
names are wrapped, then cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from obygaze_features.common import figures
from obygaze_features.common.figures import LINE, SERIES, SOFT, level_colours, save_figure, tip
from obygaze_models.figure_layout import (
    DIAMOND,
    MARGIN,
    MARKS,
    ROW,
    SMALL,
    TEXT,
    WIDTH,
    Series,
    Sheet,
    dashes,
    dot_style,
    name_width,
    text_width,
    wrap,
)
from obygaze_models.figure_marks import (
    Dot,
    draw_dot,
    draw_guess,
    format_number,
    interval_of,
    is_defined,
    scale_x,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Dot",
    "Line",
    "Panel",
    "Point",
    "Series",
    "dot_plot",
    "grouped_dots",
    "inline_svg",
    "level_series",
    "numbered_series",
    "panel_plot",
    "round_up",
    "save_figure",
]


@dataclass(frozen=True)
class Point:
    """A row of a dot plot: a score, None where it is undefined, its interval, a published score.

    Consecutive rows of one `group` stand under its name. A `mark`, such as ``*``, follows the
    score; the `note` has a column of its own. `kind` says who scored: a model, annotators or a
    guess; each has the same mark in every figure.
    """

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    reference: float | None = None
    group: str = ""
    mark: str = ""
    reference_mark: str = ""
    note: str = ""
    kind: str = "model"


@dataclass(frozen=True)
class Line:
    """A value to compare with, such as chance: across the rows of `group`, or across all."""

    value: float
    label: str
    group: str | None = None


def inline_svg(figure: Figure) -> str:
    """A figure as an ``<svg>`` element in the colours of a page, in line with the page's text."""
    return figures.inline_svg(figure, margin=MARGIN)


def level_series(names: Mapping[str, str]) -> list[Series]:
    """Code -> name of levels, as series with one colour a level in every figure."""
    return [
        Series(name, colour)
        for name, colour in zip(names.values(), level_colours(list(names)), strict=True)
    ]


def numbered_series(names: Sequence[str]) -> list[Series]:
    """A colour each; after the last colour they repeat, hollow."""
    size = len(SERIES)
    return [Series(name, SERIES[i % size], hatched=i >= size) for i, name in enumerate(names)]


def round_up(share: float) -> float:
    """The end of an axis for shares up to `share`: a multiple of a fifth, at most 1."""
    return min(1.0, math.ceil(share * 5 - 1e-9) / 5) or 0.2


def grouped_dots(
    groups: Mapping[str, Sequence[Dot]],
    series: Sequence[Series],
    *,
    title: str,
    axis: str,
    description: str,
    limits: tuple[float, float] | None = None,
    percent: bool = False,
    guess: str = "guess",
    number_format: Callable[[float], str] | None = None,
    origin: float | None = None,
    ends: tuple[str, str] | None = None,
) -> Figure:
    """Draw groups of dots with their intervals, a row a series.

    Parameters
    ----------
    groups
        Each group's dots, in the order of `series`.
    series
        The dots' names, colours, and which are hollow.
    title, axis, description
        The figure's title, what is measured, and what is seen, for those who cannot see it.
    limits
        The ends of the axis; values outside widen it, intervals do not.
    percent
        Values are shares, printed as percentages.
    guess
        The name of the grey ticks.
    number_format
        How numbers are printed; by default with two decimals, or as percentages.
    origin
        A value that divides the axis.
    ends
        What the lower and the upper end of the axis mean.
    """
    to_text = number_format or (lambda value: format_number(value, percent=percent))
    dots = [dot for group in groups.values() for dot in group]
    values = [v for dot in dots for v in (dot.value, dot.guess, origin) if is_defined(v)]
    if limits is None:
        values += [v for dot in dots for v in (dot.low, dot.high) if is_defined(v)]
    numbers = max([24.0, *(text_width(to_text(v), TEXT) for v in values)]) + 8
    names = name_width(groups)
    heights = [max(ROW * len(series), 2 * TEXT * 1.2) + 8 for _ in groups]
    sheet = Sheet(title, description)
    sheet.legend(series, guess if any(is_defined(dot.guess) for dot in dots) else "", dots=True)
    axes = sheet.axes(sum(heights) or 10.0, names + 12, WIDTH - numbers, axis, ends=ends)
    scale_x(axes, values, limits, percent=percent)
    if origin is not None:
        axes.axvline(origin, color=SOFT, linewidth=0.9, zorder=1)
    y = 0.0
    for (name, group), height in zip(groups.items(), heights, strict=True):
        sheet.label(axes, y + height / 2, name, names, names + 12)
        middle = y + height / 2 - ROW * (len(series) - 1) / 2
        for dot, kind in zip(group, series, strict=True):
            draw_dot(axes, dot, middle, dot_style(not kind.hatched, kind.colour),
                      f"{name}, {kind.label}", to_text)  # fmt: skip
            if is_defined(dot.value):
                sheet.text(axes, WIDTH, middle, to_text(dot.value), size=TEXT - 0.5, ha="right")
            if is_defined(dot.guess):
                draw_guess(axes, dot.guess, middle, f"{name}, {kind.label}, {guess}", to_text)
            middle += ROW
        y += height
    return sheet.figure


@dataclass(frozen=True)
class Panel:
    """Rows of dots, a dot a series or none, on an axis.

    `line` is a value to compare with, such as chance; `axis` says what is measured.
    """

    rows: Sequence[Sequence[Dot]]
    series: Sequence[Series]
    axis: str
    limits: tuple[float, float] = (0.0, 1.0)
    line: float | None = None
    percent: bool = False


def panel_plot(
    groups: Sequence[Sequence[str]], panel: Panel, *, title: str, description: str
) -> Figure:
    """Draw groups of named rows; the rows of figures with the same groups are in line.

    Where each row has at most one dot, its number stands beside it.
    """
    labels = [label for group in groups for label in group]
    to_text = partial(format_number, percent=panel.percent)
    shown = [[dot.value for dot in dots if is_defined(dot.value)] for dots in panel.rows]
    single = all(len(values) < 2 for values in shown)
    numbers = [to_text(values[0]) if single and values else "" for values in shown]
    names, row, between = min(max(text_width(label, TEXT) for label in labels) + 1, 140.0), 19.0, 8
    right = WIDTH - max(16.0, *(text_width(text, TEXT) + 8 for text in numbers))
    sheet = Sheet(title, description)
    below = sheet.y + 17  # as much with a legend as without
    sheet.legend(panel.series if len(panel.series) > 1 else [], dots=True)
    sheet.y = max(sheet.y, below)
    height = row * len(labels) + between * (len(groups) - 1)
    axes = sheet.axes(height, names + 10, right, panel.axis)
    _scale_panel(axes, panel)
    offsets = [between * number for number, group in enumerate(groups) for _ in group]
    for index, (label, dots, text) in enumerate(zip(labels, panel.rows, numbers, strict=True)):
        middle = row * (index + 0.5) + offsets[index]
        axes.hlines(middle, *panel.limits, color=LINE, linewidth=0.8, zorder=1)
        sheet.label(axes, middle, label, names, names + 10)
        sheet.text(axes, WIDTH, middle, text, size=TEXT - 0.5, ha="right")
        for dot, kind in zip(dots, panel.series, strict=True):
            style = dot_style(not kind.hatched, kind.colour)
            if is_defined(dot.value):
                draw_dot(axes, dot, middle, style, f"{label}, {kind.label}", to_text)
    return sheet.figure


def _scale_panel(axes: Axes, panel: Panel) -> None:
    """The panel's axis: its ends, its middle, and what to compare with."""
    low, high = panel.limits
    axes.set_xlim(low, high)
    ends = [low, (low + high) / 2, high]
    texts = [format_number(v, digits=1, percent=panel.percent) for v in ends]
    axes.set_xticks(ends, [text.removesuffix(".0") for text in texts])
    axes.tick_params(axis="x", pad=3)
    if panel.line is not None:
        axes.axvline(panel.line, color=SOFT, linewidth=1.0, zorder=2)


def dot_plot(
    points: Sequence[Point],
    *,
    title: str,
    axis: str,
    description: str,
    lines: Sequence[Line] = (),
    limits: tuple[float, float] | None = None,
    interval: str = "",
    value: str = "ours",
    reference: str = "published",
    signed: bool = False,
    note: str = "",
    footnote: str = "",
    ends: tuple[str, str] | None = None,
) -> Figure:
    """Draw scores as points with intervals, a row each, beside published ones (a forest plot).

    Parameters
    ----------
    points
        The rows, from the top down.
    title, axis, description
        The figure's title, what is measured, and what is seen, for those who cannot see it.
    lines
        Vertical lines to compare with.
    limits
        The ends of the axis, such as 0 and 1; values outside widen it, intervals do not.
    interval
        What intervals are, such as "95% interval over films".
    value, reference
        The names of the points and of the hollow diamonds.
    signed
        Print + before positive numbers, as of differences.
    note
        The heading of the points' notes.
    footnote
        A remark on all points, at the bottom.
    ends
        What the lower and the upper end of the axis mean.
    """
    with_reference = any(is_defined(point.reference) for point in points)
    numbers = [
        (value, [_scored(p.value, p.mark, signed) for p in points]),
        (note, [p.note for p in points]),
        (reference, [_scored(p.reference, p.reference_mark, signed) for p in points]),
    ]
    columns = [(head, texts) for head, texts in numbers if any(texts)]
    heads = len(columns) > 1
    widths = [
        max(text_width(text, TEXT, bold=index == 0) for text in [*texts, head if heads else ""]) + 9
        for index, (head, texts) in enumerate(columns)
    ]
    right = WIDTH - sum(widths)
    names = name_width(point.label for point in points)
    drawn = [v for p in points for v in (p.value, p.reference) if is_defined(v)]
    if limits is None:
        drawn += [v for p in points for v in (p.low, p.high) if is_defined(v)]
    has_interval = bool(interval) and any(interval_of(p.low, p.high) for p in points)
    sheet = Sheet(title, description)
    sheet.key(
        f"{value}, with {interval}" if has_interval else value,
        reference if with_reference else "",
        list(dict.fromkeys(line.label for line in lines if line.label)),
        show_value=has_interval or with_reference,
    )
    rows: list[tuple[Point, float]] = []
    spans: dict[str, tuple[float, float]] = {}
    titles: list[tuple[str, float]] = []
    y = TEXT * 1.9 if heads else 2.0
    for group, members in groupby(points, key=lambda point: point.group):
        if group:
            titles.append((group, y + 10))
            y += 20
        start = y
        for point in members:
            height = 27.0 if len(wrap(point.label, names, TEXT)) > 1 else 17.0
            height = max(height, 24.0) if is_defined(point.reference) else height
            rows.append((point, y + height / 2))
            y += height
        spans[group] = start, y
        y += 6 if group else 2
    axes = sheet.axes(max(y, 10.0), names + 12, right, axis, ends=ends, footnote=footnote)
    scale_x(axes, drawn + [line.value for line in lines], limits)
    edges = [right + sum(widths[: index + 1]) for index in range(len(widths))]
    for (head, _), edge in zip(columns if heads else [], edges, strict=False):
        sheet.text(axes, edge, TEXT * 0.8, head, size=SMALL, color=SOFT, ha="right")
    for group, middle in titles:
        (text,) = wrap(group, WIDTH, TEXT, lines=1, bold=True)
        sheet.text(axes, 0, middle, text, weight="bold")
    for line in lines:
        low, high = spans.get(line.group, (0.0, 0.0)) if line.group is not None else (0.0, y)
        axes.plot(
            [line.value] * 2, [low, high], color=SOFT, linewidth=1.0, linestyle=dashes(line.label),
            zorder=2, gid=tip(f"{line.label}: {format_number(line.value, signed=signed)}"),
        )  # fmt: skip
    for number, (point, middle) in enumerate(rows):
        sheet.label(axes, middle, point.label, names, names + 12)
        _draw_point(axes, point, middle, signed, (value, reference))
        for index, ((_, texts), edge) in enumerate(zip(columns, edges, strict=True)):
            weight = "bold" if index == 0 else "normal"
            # Decimals stay in line where only some numbers have a mark.
            marked = any(text.endswith("*") for text in texts)
            gap = text_width("*", TEXT) if marked and not texts[number].endswith("*") else 0
            sheet.text(axes, edge - gap, middle, texts[number], weight=weight, ha="right")
    return sheet.figure


def _scored(value: float | None, mark: str, signed: bool) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return format_number(value, signed=signed) + mark


def _draw_point(axes: Axes, point: Point, y: float, signed: bool, names: tuple[str, str]) -> None:
    """A score on its interval; a published one below it, so that neither hides the other."""
    name = f"{point.label}, {names[0]}" if point.kind == "model" else point.label
    published = point.reference if is_defined(point.reference) else None
    if published is not None:
        y -= 4
        text = f"{point.label}, {names[1]}: {format_number(published, signed=signed)}"
        axes.plot([published], [y + 9], **DIAMOND, zorder=4.5, clip_on=False, gid=tip(text))
    dot = Dot(point.value, point.low, point.high)
    draw_dot(axes, dot, y, MARKS[point.kind], name, lambda v: format_number(v, signed=signed))
