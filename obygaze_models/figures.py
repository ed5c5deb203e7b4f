"""Figures: numbers in, a matplotlib `Figure` out; `save_figure` writes SVG, PDF or PNG.

Each is one column wide. Rows have a fixed height, so a figure grows with what it shows; long
names are wrapped, then cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common import figures
from obygaze_features.common.figures import (
    INK,
    LINE,
    PAPER,
    SERIES,
    SOFT,
    figure_style,
    ink_on,
    level_colours,
    plain,
    save_figure,
    tip,
)
from obygaze_features.common.text import counted
from obygaze_models.figure_layout import (
    DIAMOND,
    GUESS,
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obygaze_models.estimators.trees import TreeArrays
    from obygaze_models.explain.error_factors import Factor, FilmFactors

__all__ = [
    "Dot", "Line", "Panel", "Point", "Series", "Share", "count_visits", "dot_plot",
    "error_factors", "grouped_dots", "inline_svg", "level_series", "numbered_series",
    "panel_plot", "round_up", "save_figure", "stacked_shares", "tree_outline",
]  # fmt: skip


@dataclass(frozen=True)
class Dot:
    """A value, None where it is undefined, its interval, and what guessing reaches."""

    value: float | None
    low: float | None = None
    high: float | None = None
    guess: float | None = None


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


@dataclass(frozen=True)
class Share:
    """A row: its parts, from 0 to 1, and how many clips they are of; an `overall` row is bold."""

    label: str
    parts: Sequence[float]
    count: int
    overall: bool = False


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


def format_number(
    value: float, *, digits: int = 2, percent: bool = False, signed: bool = False
) -> str:
    """A number as figures print it.

    Examples
    --------
    >>> format_number(0.789), format_number(0.524, percent=True), format_number(-0.031)
    ('0.79', '52%', '−0.03')
    """
    text = f"{100 * value:.0f}%" if percent else f"{value:.{digits}f}"
    if not text.strip("-0.%"):
        return text.lstrip("-")
    return ("+" if signed and value > 0 else "") + text.replace("-", "−")


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
    values = [v for dot in dots for v in (dot.value, dot.guess, origin) if _defined(v)]
    if limits is None:
        values += [v for dot in dots for v in (dot.low, dot.high) if _defined(v)]
    numbers = max([24.0, *(text_width(to_text(v), TEXT) for v in values)]) + 8
    names = name_width(groups)
    heights = [max(ROW * len(series), 2 * TEXT * 1.2) + 8 for _ in groups]
    sheet = Sheet(title, description)
    sheet.legend(series, guess if any(_defined(dot.guess) for dot in dots) else "", dots=True)
    axes = sheet.axes(sum(heights) or 10.0, names + 12, WIDTH - numbers, axis, ends=ends)
    _scale_x(axes, values, limits, percent=percent)
    if origin is not None:
        axes.axvline(origin, color=SOFT, linewidth=0.9, zorder=1)
    y = 0.0
    for (name, group), height in zip(groups.items(), heights, strict=True):
        sheet.label(axes, y + height / 2, name, names, names + 12)
        middle = y + height / 2 - ROW * (len(series) - 1) / 2
        for dot, kind in zip(group, series, strict=True):
            _draw_dot(axes, dot, middle, dot_style(not kind.hatched, kind.colour),
                      f"{name}, {kind.label}", to_text)  # fmt: skip
            if _defined(dot.value):
                sheet.text(axes, WIDTH, middle, to_text(dot.value), size=TEXT - 0.5, ha="right")
            if _defined(dot.guess):
                _draw_guess(axes, dot.guess, middle, f"{name}, {kind.label}, {guess}", to_text)
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
    shown = [[dot.value for dot in dots if _defined(dot.value)] for dots in panel.rows]
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
            if _defined(dot.value):
                _draw_dot(axes, dot, middle, style, f"{label}, {kind.label}", to_text)
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
    with_reference = any(_defined(point.reference) for point in points)
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
    drawn = [v for p in points for v in (p.value, p.reference) if _defined(v)]
    if limits is None:
        drawn += [v for p in points for v in (p.low, p.high) if _defined(v)]
    has_interval = bool(interval) and any(_interval(p.low, p.high) for p in points)
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
            height = max(height, 24.0) if _defined(point.reference) else height
            rows.append((point, y + height / 2))
            y += height
        spans[group] = start, y
        y += 6 if group else 2
    axes = sheet.axes(max(y, 10.0), names + 12, right, axis, ends=ends, footnote=footnote)
    _scale_x(axes, drawn + [line.value for line in lines], limits)
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


def stacked_shares(
    rows: Sequence[Share],
    parts: Sequence[Series],
    *,
    title: str,
    axis: str,
    description: str,
    count: str = "clips",
) -> Figure:
    """Draw each row as a bar of its parts; `count` names the numbers behind the bars."""
    numbers = max(
        [text_width(count, SMALL), *(text_width(f"{r.count:,}", TEXT, bold=True) for r in rows)]
    )
    names = name_width([row.label for row in rows], bold=True)
    sheet = Sheet(title, description)
    sheet.legend(parts)
    heights = [33.0 if row.overall else 24.0 for row in rows]
    axes = sheet.axes(14 + sum(heights), names + 10, WIDTH - numbers - 10, axis)
    _scale_x(axes, [0, 1], (0, 1), percent=True, grid=False)
    sheet.text(axes, WIDTH, 6, count, size=SMALL, color=SOFT, ha="right")
    y = 14.0
    for row, height in zip(rows, heights, strict=True):
        weight = "bold" if row.overall else "normal"
        sheet.label(axes, y + 10, row.label, names, names + 10, weight=weight)
        _draw_stack(axes, row.parts, parts, y + 10, 18, row.label)
        sheet.text(axes, WIDTH, y + 10, f"{row.count:,}", weight=weight, ha="right")
        y += height
    return sheet.figure


def error_factors(
    films: Sequence[FilmFactors], titles: Mapping[str, str], *, title: str, description: str
) -> Figure:
    """Draw the factors of errors as the paper does: a small panel a film, a row a factor.

    Parameters
    ----------
    films
        As `obygaze_models.explain.error_factors` gives them.
    titles
        The films' titles.
    title, description
        The figure's title, and what is seen, for those who cannot see it.
    """
    factors = next(([f.name for f in film.factors] for film in films if film.factors), [])
    reach = max(
        (
            abs(v)
            for film in films
            for f in film.factors
            for v in (f.coefficient, f.low, f.high)
            if _defined(v)
        ),
        default=1.0,
    )
    columns = min(2, len(films)) or 1
    names = min(max((text_width(name, SMALL) for name in factors), default=40.0), 130.0)
    gap, row = 14.0, 13.5
    panel = (WIDTH - names - 8 - gap * (columns - 1)) / columns
    labels = ["All films" if f.film is None else titles.get(f.film, f.film) for f in films]
    wrapped = [wrap(label, panel, TEXT, lines=3, bold=True) for label in labels]
    head = 20 + 11.5 * max(map(len, wrapped), default=1)
    body = row * max(len(factors), 4)
    bands = math.ceil(len(films) / columns)
    sheet = Sheet(title, description)
    sheet.dots([(False, "interval includes 0"), (True, "interval excludes 0")])
    top = sheet.y
    sheet.reserve(bands * (head + body + 22) + 4)
    for number, film in enumerate(films):
        left = names + 8 + (number % columns) * (panel + gap)
        y = top + (number // columns) * (head + body + 22) + head
        axes = sheet.place(left, left + panel, y, body)
        name = labels[number]
        for index, line in enumerate(reversed(wrapped[number])):
            sheet.write(left, y - 20 - 11.5 * index, line, weight="bold")
        sheet.write(left, y - 8, f"{film.wrong:,}/{film.clips:,} wrong", size=SMALL, color=SOFT)
        if number % columns == 0:
            for index, label in enumerate(factors):
                (text,) = wrap(label, names, SMALL, lines=1)
                sheet.write(names, y + row * (index + 0.5), text, size=SMALL, ha="right")
        if film.too_few:
            for index, line in enumerate(wrap(film.too_few, panel, SMALL, lines=5)):
                sheet.write(left, y + 10 + 11 * index, line, size=SMALL, color=SOFT)
            axes.set_axis_off()
            continue
        axes.set_xlim(-1.05 * reach, 1.05 * reach)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda v, _: format_number(v, digits=0 if v % 1 == 0 else 1))
        axes.grid(axis="x")
        axes.axvline(0, color=SOFT, linewidth=1.0, zorder=1)
        for index, factor in enumerate(film.factors):
            _draw_factor(axes, factor, name, row * (index + 0.5))
    sheet.write(names + 8, sheet.height - 5, "← more often right", size=SMALL, color=SOFT)
    sheet.write(WIDTH, sheet.height - 5, "more often wrong →", size=SMALL, color=SOFT, ha="right")
    return sheet.figure


def tree_outline(
    head: TreeArrays,
    concepts: Sequence[str],
    classes: Sequence[Series],
    *,
    title: str,
    description: str,
    depth: int = 4,
    counts: NDArray[Any] | None = None,
    count: str = "clips",
) -> Figure:
    """Draw the first levels of a decision tree: a row a node, with the classes of its clips.

    Parameters
    ----------
    head
        The tree; a node's shares of classes are those of its training clips.
    concepts
        The names of its columns.
    classes
        The names and colours of its classes.
    title, description
        The figure's title, and what is seen, for those who cannot see it.
    depth
        How many levels, the root included.
    counts
        How many clips came to each node, from `count_visits`.
    count
        What these are, such as "test clips".
    """
    bar, row, indent = 100.0, 23.0, 11.0
    numbers = WIDTH - bar - 10
    room = numbers - (max(34.0, text_width(count, SMALL)) + 8 if counts is not None else 0)
    nodes = _tree_rows(head, concepts, depth)
    sheet = Sheet(title, description)
    sheet.legend(classes)
    heights = [row + (8 if node.below else 0) for node in nodes]
    axes = sheet.axes(14 + sum(heights), WIDTH - bar, WIDTH)
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    sheet.text(axes, WIDTH - bar, 6, "training clips", size=SMALL, color=SOFT)
    if counts is not None:
        sheet.text(axes, numbers, 6, count, size=SMALL, color=SOFT, ha="right")
    y, middles = 14.0, list[float]()
    for node, height in zip(nodes, heights, strict=True):
        middle, x = y + height / 2, indent * node.depth
        middles.append(middle)
        if node.depth:
            above = middles[node.parent] + 7
            sheet.line([x - 10, x - 10, x - 3], [above, middle, middle], axes)
        # A long name is cut, never the number.
        (name,) = wrap(node.concept, room - x - text_width(node.limit, TEXT), TEXT, lines=1)
        sheet.text(axes, x, middle - (5 if node.below else 0), name + node.limit)
        if node.below:
            more = f"… and {counted(node.below, 'more question')}"
            sheet.text(axes, x, middle + 6, more, size=SMALL, color=SOFT)
        if counts is not None:
            sheet.text(axes, numbers, middle, f"{int(counts[node.node]):,}", ha="right")
        shares = [float(share) for share in head.value[node.node]]
        _draw_stack(axes, shares, classes, middle, 16, node.concept + node.limit)
        y += height
    return sheet.figure


def count_visits(head: TreeArrays, values: NDArray[Any]) -> NDArray[Any]:
    """How many clips, by their concept scores [N, concepts], come to each node."""
    counts = np.bincount(head.apply(values), minlength=len(head.left))
    for node in reversed(np.flatnonzero(head.left != -1)):  # children come after their parents
        counts[node] = counts[head.left[node]] + counts[head.right[node]]
    return counts


def _defined(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _interval(low: float | None, high: float | None) -> tuple[float, float] | None:
    if low is None or high is None or not math.isfinite(low + high):
        return None
    return float(low), float(high)


def _scored(value: float | None, mark: str, signed: bool) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return format_number(value, signed=signed) + mark


#: Axes below this width have few ticks, so that their numbers stay apart.
NARROW = 110.0


def _scale_x(
    axes: Axes,
    values: Sequence[float],
    limits: tuple[float, float] | None,
    *,
    percent: bool = False,
    grid: bool = True,
) -> None:
    """An axis that holds all values: `limits`, or wider; without limits, round ends."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    narrow = axes.get_position().width * WIDTH < NARROW
    locator = MaxNLocator(2 if narrow else 5, steps=[1, 2, 5, 10])
    given = [*values, *(limits or ())] or [0.0, 1.0]
    low, high = min(given), max(given)
    if low == high:
        low, high = low - 0.5, high + 0.5
    ticks = locator.tick_values(low, high)
    if limits is None or low < limits[0]:
        low = max((t for t in ticks if t <= low + 1e-9), default=low)
    if limits is None or high > limits[1]:
        high = min((t for t in ticks if t >= high - 1e-9), default=high)
    axes.set_xlim(low, high)
    ticks = [t for t in ticks if low - 1e-9 <= t <= high + 1e-9]
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 0.01
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _: format_number(v, digits=digits, percent=percent))
    )
    axes.tick_params(axis="x", pad=3)
    if grid:
        axes.grid(axis="x")


def _draw_interval(axes: Axes, ends: tuple[float, float] | None, y: float, colour: str) -> None:
    """A whisker on a rim of paper; what is outside the axis is cut."""
    if ends is None:
        return
    low, high = axes.get_xlim()
    left, right = (min(max(end, low), high) for end in ends)
    for width, paint in ((3.2, PAPER), (1.3, colour)):
        axes.plot(
            [left, right], [y, y], color=paint, linewidth=width, marker="|", markersize=5,
            markeredgewidth=width, clip_on=False, zorder=4, solid_capstyle="butt",
        )  # fmt: skip


def _draw_dot(
    axes: Axes,
    dot: Dot,
    y: float,
    style: Mapping[str, Any],
    name: str,
    to_text: Callable[[float], str],
) -> None:
    """A dot on its interval; a value that is undefined is said in words."""
    if not _defined(dot.value):
        low, _ = axes.get_xlim()
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}
        _beside(axes, low, y, "undefined", 3, color=SOFT, size=SMALL, bbox=box)
        return
    ends = _interval(dot.low, dot.high)
    more = " ({} to {})".format(*map(to_text, ends)) if ends else ""
    _draw_interval(axes, ends, y, style["markeredgecolor"])
    axes.plot(
        [dot.value], [y], linestyle="none", zorder=5, clip_on=False,
        gid=tip(f"{name}: {to_text(dot.value)}{more}"), **style,
    )  # fmt: skip


def _draw_guess(
    axes: Axes, value: float, y: float, name: str, to_text: Callable[[float], str]
) -> None:
    axes.plot([value], [y], **GUESS, zorder=3, clip_on=False, gid=tip(f"{name}: {to_text(value)}"))


def _beside(axes: Axes, x: float, y: float, text: str, points: float, **options: Any) -> None:
    """Text some points beside a value: to its right, or to its left where negative."""
    with figure_style():
        axes.annotate(
            plain(text), (x, y), (points, 0), textcoords="offset points", zorder=6,
            va="center_baseline", ha="right" if points < 0 else "left",
            **{"size": TEXT - 0.5, **options},
        )  # fmt: skip


def _draw_point(axes: Axes, point: Point, y: float, signed: bool, names: tuple[str, str]) -> None:
    """A score on its interval; a published one below it, so that neither hides the other."""
    name = f"{point.label}, {names[0]}" if point.kind == "model" else point.label
    published = point.reference if _defined(point.reference) else None
    if published is not None:
        y -= 4
        text = f"{point.label}, {names[1]}: {format_number(published, signed=signed)}"
        axes.plot([published], [y + 9], **DIAMOND, zorder=4.5, clip_on=False, gid=tip(text))
    dot = Dot(point.value, point.low, point.high)
    _draw_dot(axes, dot, y, MARKS[point.kind], name, lambda v: format_number(v, signed=signed))


def _draw_factor(axes: Axes, factor: Factor, film: str, y: float) -> None:
    if factor.coefficient is None:
        text = "no clip" if factor.clips == 0 else "every clip"
        _centred(axes, 0, y, text, SOFT, SMALL, background=PAPER)
        return
    ends = _interval(factor.low, factor.high)
    excludes_zero = ends is not None and (ends[0] > 0 or ends[1] < 0)
    text = format_number(factor.coefficient, signed=True)
    if ends:
        text += f" ({format_number(ends[0])} to {format_number(ends[1])})"
    clips = counted(factor.clips, "clip")
    _draw_interval(axes, ends, y, SERIES[0])
    axes.plot(
        [factor.coefficient], [y], linestyle="none", zorder=5, clip_on=False,
        gid=tip(f"{film}, {factor.name}: {text}, {clips} with it"), **dot_style(excludes_zero),
    )  # fmt: skip


def _draw_stack(
    axes: Axes, values: Sequence[float], parts: Sequence[Series], y: float, height: float, name: str
) -> None:
    """A bar in parts, each with its share where it is wide enough for it."""
    before = 0.0
    low, high = axes.get_xlim()
    width = axes.get_position().width * (WIDTH + 2 * MARGIN)
    for value, part in zip(values, parts, strict=True):
        text = format_number(value, percent=True)
        with figure_style():
            axes.barh(
                y, value, height=height, left=before, zorder=3, clip_on=False,
                gid=tip(f"{name}, {part.label}: {text}"), **part.fill,
            )  # fmt: skip
        if before:
            axes.plot(
                [before] * 2, [y - height / 2, y + height / 2], color=PAPER, linewidth=1.1,
                zorder=4, clip_on=False,
            )  # fmt: skip
        if value * width / (high - low) >= text_width(text, SMALL) + 4:
            ink, background = (INK, PAPER) if part.hatched else (ink_on(part.colour), None)
            _centred(axes, before + value / 2, y, text, ink, SMALL, background=background)
        before += value


def _centred(
    axes: Axes, x: float, y: float, text: str, colour: str, size: float, *, background: str | None
) -> None:
    box = {"facecolor": background, "edgecolor": "none", "pad": 1} if background else None
    with figure_style():
        axes.text(
            x, y, text, color=colour, size=size, ha="center", va="center_baseline", bbox=box,
            zorder=6,
        )  # fmt: skip


@dataclass(frozen=True)
class _TreeRow:
    """A node, its parent's row, its condition (a concept and a limit), and questions cut below."""

    node: int
    depth: int
    parent: int
    concept: str
    limit: str
    below: int


def _tree_rows(head: TreeArrays, concepts: Sequence[str], depth: int) -> list[_TreeRow]:
    """The nodes of the first levels, each after its parent, "not above" first."""
    below = np.zeros(len(head.left), dtype=np.int64)
    for node in reversed(np.flatnonzero(head.left != -1)):
        below[node] = 1 + below[head.left[node]] + below[head.right[node]]
    rows: list[_TreeRow] = []
    waiting = [_TreeRow(0, 0, -1, "all clips", "", int(below[0]))]
    while waiting:
        row = waiting.pop()
        cut = row.depth + 1 == depth
        rows.append(row if cut else replace(row, below=0))
        if cut or not row.below:
            continue
        concept = concepts[int(head.feature[row.node])]
        limit = f"{float(head.threshold[row.node]):.3g}".replace("-", "−")
        for sign, children in ((">", head.right), ("≤", head.left)):
            child = int(children[row.node])
            waiting.append(
                _TreeRow(
                    child, row.depth + 1, len(rows) - 1, concept, f" {sign} {limit}",
                    int(below[child]),
                )
            )  # fmt: skip
    return rows
