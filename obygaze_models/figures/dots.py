"""Dot plots of numbers with intervals, in rows, groups or panels, or beside published numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from obygaze_features.common.figures import LINE, SERIES, SOFT, add_number, level_colours, wrap
from obygaze_features.common.text import format_number
from obygaze_models.figures.sheet import (
    MARKS,
    PUBLISHED,
    ROW,
    SMALL,
    TEXT,
    Cell,
    Dot,
    Limits,
    Series,
    Sheet,
    ToText,
    draw_dot,
    is_defined,
    key,
    line_style,
    name_lines,
    on_paper,
    scale_x,
    sheet_width,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


CLEARNESS = (
    Series("interval includes 0", SERIES[0], hatched=True),
    Series("interval excludes 0", SERIES[0]),
)
"""The series of dots whose interval includes or excludes 0."""


@dataclass(frozen=True)
class Point:
    """A row of a dot plot: a score (None if undefined), its interval, and a published score.

    Consecutive rows with the same `group` are listed under the group's name. A `mark`, such as
    ``*``, follows the score. The `note` has its own column. `kind` is the kind of rater (a model,
    annotators or a guess), which has the same marker in every figure.
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
    """A value to compare with, such as chance, drawn across the rows of `group` or all rows."""

    value: float
    label: str
    group: str | None = None


@dataclass(frozen=True)
class Panel:
    """Rows of dots on an axis, with at most one dot per series.

    `line` is a value to compare with, such as chance. `axis` is the name of the measure.
    """

    rows: Sequence[Sequence[Dot]]
    series: Sequence[Series]
    axis: str
    limits: Limits = (0.0, 1.0)
    line: float | None = None
    percent: bool = False


def level_series(names: Mapping[str, str]) -> list[Series]:
    """Return a series for each level (code -> name). A level has the same colour in all figures."""
    return list(map(Series, names.values(), level_colours(list(names))))


def numbered_series(names: Sequence[str]) -> list[Series]:
    """Return a series for each name. If there are more names than colours, the rest are hollow."""
    size = len(SERIES)
    return [Series(name, SERIES[i % size], hatched=i >= size) for i, name in enumerate(names)]


def round_up(share: float) -> float:
    """Return the end of an axis for shares up to `share`: a multiple of a fifth, at most 1."""
    return min(1.0, math.ceil(share * 5 - 1e-9) / 5) or 0.2


def start_of_axis(dots: Iterable[Dot], line: float) -> float:
    """Return the start of an axis with these dots, intervals and line: a multiple of a fifth."""
    values = [line, *(end for dot in dots for end in (dot.value, dot.low) if is_defined(end))]
    return math.floor(5 * min(values) + 1e-9) / 5


def grouped_dots(
    groups: Mapping[str, Sequence[Dot]],
    series: Sequence[Series],
    *,
    title: str,
    axis: str,
    description: str,
    limits: Limits | None = None,
    percent: bool = False,
    guess: str = "guess",
    number_format: ToText | None = None,
    origin: float | None = None,
    ends: tuple[str, str] | None = None,
) -> Figure:
    """Draw groups of dots and their intervals, with a row per series.

    Parameters
    ----------
    groups
        Each group's dots, in the order of `series`.
    series
        The names and colours of the dots, and which of them are hollow.
    title, axis, description
        The figure's title, what is measured, and a description for those who cannot see it.
    limits
        The ends of the axis. Values outside widen the axis; intervals do not.
    percent
        If True, print values as percentages.
    guess
        The name of the grey ticks, which mark the scores of guessing.
    number_format
        The format of the numbers; by default, two decimals, or percentages.
    origin
        A value at which to draw a line that divides the axis.
    ends
        The meaning of the lower and the upper end of the axis.
    """
    to_text = number_format or partial(format_number, percent=percent)
    dots = [dot for group in groups.values() for dot in group]
    values = [v for dot in dots for v in (dot.value, dot.guess, origin) if is_defined(v)]
    if limits is None:
        values += [v for dot in dots for v in (dot.low, dot.high) if is_defined(v)]
    keys = [kind.key for kind in series]
    if any(is_defined(dot.guess) for dot in dots):
        keys.append(key(guess, **MARKS["guess"]))
    height = max(ROW * len(series), 2 * TEXT * 1.2) + 8
    sheet = Sheet(title, description, height * max(len(groups), 1), keys=keys, axis=axis)
    scale_x(sheet.axes, values, limits, percent=percent)
    if origin is not None:
        sheet.axes.axvline(origin, color=SOFT, linewidth=0.9, zorder=1)
    if ends:
        sheet.write_ends(ends, origin or 0.0)
    middles = [height * (number + 0.5) for number in range(len(groups))]
    _fill(sheet, dict(zip(groups, middles, strict=True)), [*groups.values()], series, to_text, ROW)
    return sheet.draw()


def _fill(
    sheet: Sheet,
    middles: Mapping[str, float],
    rows: Sequence[Sequence[Dot]],
    series: Sequence[Series],
    to_text: ToText,
    step: float,
) -> None:
    """Name the rows and draw their dots. Each series is `step` points below the previous series.

    Numbers are printed beside the dots unless two of them would be on the same line.
    """
    numbers = []
    for (name, middle), dots in zip(middles.items(), rows, strict=True):
        for index, (dot, kind) in enumerate(zip(dots, series, strict=True)):
            y = middle + step * (index - (len(series) - 1) / 2)
            if is_defined(dot.value):
                numbers.append(Cell(y, to_text(dot.value)))
            if is_defined(dot.value) or step:
                draw_dot(sheet.axes, dot, y, kind.dot, f"{name}, {kind.label}", to_text)
    sheet.name_rows(Cell(middle, name_lines(name)) for name, middle in middles.items())
    if len({number.y for number in numbers}) == len(numbers):
        sheet.add_column(numbers)


def panel_plot(
    groups: Sequence[Sequence[str]], panel: Panel, *, title: str, description: str
) -> Figure:
    """Draw groups of named rows, which align across figures with the same groups.

    If no row has more than one dot, the dots' numbers are printed beside them.
    """
    row, between = 19.0, 8.0
    middles, height = dict[str, float](), 0.0
    for group in groups:
        middles |= {name: height + row * (index + 0.5) for index, name in enumerate(group)}
        height += row * len(group) + between
    keys = [kind.key for kind in panel.series]  # always, to align the rows of figures
    sheet = Sheet(title, description, height - between, keys=keys, axis=panel.axis)
    axes, (low, high) = sheet.axes, panel.limits
    scale_x(axes, [], panel.limits, percent=panel.percent)
    axes.set_xticks([low, (low + high) / 2, high])
    axes.grid(visible=False)
    axes.hlines([*middles.values()], low, high, color=LINE, linewidth=0.8, zorder=1)
    if panel.line is not None:
        axes.axvline(panel.line, color=SOFT, linewidth=1.0, zorder=2)
    to_text = partial(format_number, percent=panel.percent)
    _fill(sheet, middles, panel.rows, panel.series, to_text, 0)
    return sheet.draw()


def dot_plot(
    points: Sequence[Point],
    *,
    title: str,
    axis: str,
    description: str,
    lines: Sequence[Line] = (),
    limits: Limits | None = None,
    interval: str = "",
    value: str = "ours",
    reference: str = "published",
    signed: bool = False,
    note: str = "",
    footnote: str = "",
    ends: tuple[str, str] | None = None,
) -> Figure:
    """Draw scores with intervals, one per row, beside published scores (a forest plot).

    Parameters
    ----------
    points
        The rows, from the top down.
    title, axis, description
        The figure's title, what is measured, and a description for those who cannot see it.
    lines
        Vertical lines to compare with.
    limits
        The ends of the axis, such as 0 and 1. Values outside widen the axis; intervals do not.
    interval
        The meaning of intervals, such as "95% interval over films".
    value, reference
        The names of the points, and of the hollow diamonds for published scores.
    signed
        Print + before positive numbers, as for differences.
    note
        The heading of the points' notes.
    footnote
        A remark on all points, at the bottom.
    ends
        The meaning of the lower and the upper end of the axis.
    """
    to_text = partial(format_number, signed=signed)
    heads = any(point.note for point in points)
    keys = _keys(points, lines, interval, value, reference)
    names, middles, spans, full = _place_rows(points, top=TEXT * 1.9 if heads else 2.0)
    sheet = Sheet(title, description, full, keys=keys, axis=axis, footnote=footnote)
    axes = sheet.axes
    drawn = [v for p in points for v in (p.value, p.reference) if is_defined(v)]
    if limits is None:
        drawn += [v for p in points for v in (p.low, p.high) if is_defined(v)]
    scale_x(axes, drawn + [line.value for line in lines], limits)
    if ends:
        sheet.write_ends(ends, 0.0)
    for line in lines:
        for group, span in spans.items():  # never across a group's name
            if line.group in (None, group):
                style = line_style(line.label)
                axes.plot([line.value] * 2, span, zorder=2, label=line.label, **style)
    numbers, notes = list[Cell](), list[Cell]()
    if heads:
        small = {"size": SMALL, "color": SOFT}
        numbers.append(Cell(TEXT * 0.8, value, small))
        notes.append(Cell(TEXT * 0.8, note, small))
    for point, middle in zip(points, middles, strict=True):
        numbers += _draw_point(axes, point, middle, value, reference, to_text)
        notes.append(Cell(middle, point.note))
    sheet.name_rows(names)
    sheet.add_column(numbers)
    sheet.add_column(notes)
    return sheet.draw()


def _keys(
    points: Sequence[Point], lines: Sequence[Line], interval: str, value: str, reference: str
) -> list[Artist]:
    """Return the entries of a legend."""
    has_interval = bool(interval) and any(is_defined(p.low) and is_defined(p.high) for p in points)
    has_reference = any(is_defined(point.reference) for point in points)
    keys = []
    if has_interval or has_reference:
        name = f"{value}, with {interval}" if has_interval else value
        keys.append(key(name, **{**MARKS["model"], "linestyle": "-", "color": SERIES[0]}))
    if has_reference:
        keys.append(key(reference, **PUBLISHED))
    titles = dict.fromkeys(line.label for line in lines if line.label)
    return keys + [key(name, **line_style(name)) for name in titles]


def _draw_point(
    axes: Axes,
    point: Point,
    middle: float,
    value: str,
    reference: str,
    to_text: ToText,
) -> Iterator[Cell]:
    """Draw a point and its published score, and yield their numbers."""
    above = 0.0
    if is_defined(point.reference):  # drawn lower, so that both are visible
        above = 5.0
        mark = {"label": f"{point.label}, {reference}", **PUBLISHED}
        add_number(axes, f"{mark['label']}: {to_text(point.reference)}")
        axes.plot([point.reference], [middle + 5], zorder=4.5, clip_on=False, **mark)
        yield Cell(middle + 6, to_text(point.reference) + point.reference_mark, {"color": SOFT})
    if is_defined(point.value):
        yield Cell(middle - above, to_text(point.value) + point.mark, {"weight": "bold"})
    name = f"{point.label}, {value}" if point.kind == "model" else point.label
    dot = Dot(point.value, point.low, point.high)
    draw_dot(axes, dot, middle - above, MARKS[point.kind], name, to_text)


def _place_rows(
    points: Sequence[Point], top: float
) -> tuple[list[Cell], list[float], dict[str, tuple[float, float]], float]:
    """Return the names of rows and groups, the rows' middles, the groups' ends, and the height."""
    names, middles = list[Cell](), list[float]()
    spans: dict[str, tuple[float, float]] = {}
    y = top
    for group, members in groupby(points, key=lambda point: point.group):
        if group:
            heading = wrap(group, sheet_width(), 1.15 * TEXT, 2)
            style = {"weight": "bold", "bbox": on_paper()}
            names.append(Cell(y + 4 + 6 * len(heading), "\n".join(heading), style))
            y += 8 + 12 * len(heading)
        start = y
        for point in members:
            name = name_lines(point.label, 3)
            least = 26.0 if is_defined(point.reference) else 17.0
            height = max(least, 17.0 + 10.5 * name.count("\n"))
            middles.append(y + height / 2)
            names.append(Cell(y + height / 2, name))
            y += height
        spans[group] = start, y
        y += 6 if group else 2
    return names, middles, spans, y
