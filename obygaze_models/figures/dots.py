"""Numbers as dots with their intervals, a row each: in groups, panels, beside published ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from obygaze_features.common.figures import (
    LINE,
    NAMES,
    SERIES,
    SOFT,
    add_number,
    level_colours,
    text_width,
    wrap,
)
from obygaze_features.common.text import format_number
from obygaze_models.figures.sheet import (
    MARKS,
    PUBLISHED,
    ROW,
    SMALL,
    TEXT,
    Dot,
    Series,
    Sheet,
    draw_dot,
    is_defined,
    key,
    line_style,
    name_width,
    scale_x,
    sheet_width,
    write_in,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from obygaze_models.explain.error_factors import FilmFactors


CLEARNESS = (
    Series("interval includes 0", SERIES[0], hatched=True),
    Series("interval excludes 0", SERIES[0]),
)
"""What fills a dot: whether its interval is on one side of 0."""


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


def level_series(names: Mapping[str, str]) -> list[Series]:
    """Code -> name of levels, as series with one colour a level in every figure."""
    return list(map(Series, names.values(), level_colours(list(names))))


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
    to_text = number_format or partial(format_number, percent=percent)
    dots = [dot for group in groups.values() for dot in group]
    values = [v for dot in dots for v in (dot.value, dot.guess, origin) if is_defined(v)]
    if limits is None:
        values += [v for dot in dots for v in (dot.low, dot.high) if is_defined(v)]
    names = name_width(list(groups))
    left = names + 12
    numbers = max([24.0, *(text_width(to_text(value), TEXT) for value in values)])
    right = sheet_width() - 8 - numbers
    height = max(ROW * len(series), 2 * TEXT * 1.2) + 8
    keys = [kind.key() for kind in series]
    if any(is_defined(dot.guess) for dot in dots):
        keys.append(key(guess, **MARKS["guess"]))
    full = height * max(len(groups), 1)
    sheet = Sheet(title, description, full, keys=keys, axis=axis, ends=ends, left=left, right=right)
    axes = sheet.axes(left, right, 0, full)
    scale_x(axes, values, limits, percent=percent)
    if origin is not None:
        axes.axvline(origin, color=SOFT, linewidth=0.9, zorder=1)
    if ends:
        sheet.write_ends(axes, origin or 0.0)
    for number, (name, group) in enumerate(groups.items()):
        middle = height * (number + 0.5)
        sheet.label(middle, name, names)
        for place, (dot, kind) in enumerate(zip(group, series, strict=True)):
            y = middle + ROW * (place - (len(series) - 1) / 2)
            draw_dot(axes, dot, y, kind.dot, f"{name}, {kind.label}", to_text)
            if is_defined(dot.value):
                sheet.text(sheet.width, y, to_text(dot.value), ha="right")
    return sheet.figure


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
    names, row, between = name_width(labels), 19.0, 8.0
    left, right = names + 10, sheet_width() - max(16.0, *(text_width(t, TEXT) + 8 for t in numbers))
    height = row * len(labels) + between * (len(groups) - 1)
    keys = [kind.key() for kind in panel.series]  # always, so that rows of figures are in line
    sheet = Sheet(title, description, height, keys=keys, axis=panel.axis, left=left, right=right)
    axes = sheet.axes(left, right, 0, height)
    low, high = panel.limits
    axes.set_xlim(low, high)
    ends = [low, (low + high) / 2, high]
    texts = [format_number(v, digits=1, percent=panel.percent) for v in ends]
    axes.set_xticks(ends, [text.removesuffix(".0") for text in texts])
    if panel.line is not None:
        axes.axvline(panel.line, color=SOFT, linewidth=1.0, zorder=2)
    offsets = [between * number for number, group in enumerate(groups) for _ in group]
    for index, (label, dots, text) in enumerate(zip(labels, panel.rows, numbers, strict=True)):
        middle = row * (index + 0.5) + offsets[index]
        axes.hlines(middle, low, high, color=LINE, linewidth=0.8, zorder=1)
        sheet.label(middle, label, names)
        sheet.text(sheet.width, middle, text, ha="right")
        for dot, kind in zip(dots, panel.series, strict=True):
            if is_defined(dot.value):
                draw_dot(axes, dot, middle, kind.dot, f"{label}, {kind.label}", to_text)
    return sheet.figure


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
    to_text = partial(format_number, signed=signed)
    ours = [_scored(p.value, p.mark, to_text) for p in points]
    theirs = [_scored(p.reference, p.reference_mark, to_text) for p in points]
    notes = [p.note for p in points]
    heads = any(notes)
    scores, asides = (
        9 + max([text_width(head, SMALL) if heads else 0, *(text_width(t, TEXT) for t in texts)])
        for head, texts in ((value, ours + theirs), (note, notes))
    )
    names = name_width([point.label for point in points])
    left, right = names + 12, sheet_width() - scores - (asides if heads else 0)
    has_interval = bool(interval) and any(is_defined(p.low) and is_defined(p.high) for p in points)
    has_reference = any(is_defined(point.reference) for point in points)
    keys = []
    if has_interval or has_reference:
        name = f"{value}, with {interval}" if has_interval else value
        keys.append(key(name, **{**MARKS["model"], "linestyle": "-", "color": SERIES[0]}))
    if has_reference:
        keys.append(key(reference, **PUBLISHED))
    keys += [
        key(name, **line_style(name))
        for name in dict.fromkeys(line.label for line in lines)
        if name
    ]

    rows: list[tuple[Point, float]] = []
    spans: dict[str, tuple[float, float]] = {}
    titles: list[tuple[list[str], float]] = []
    y = TEXT * 1.9 if heads else 2.0
    for group, members in groupby(points, key=lambda point: point.group):
        if group:
            heading = wrap(group, sheet_width(), 1.15 * TEXT, 2)
            titles.append((heading, y + 10))
            y += 8 + 12 * len(heading)
        start = y
        for point in members:
            count = len(wrap(point.label, names, TEXT, 3))
            height = max(17.0, 26.0 if is_defined(point.reference) else 0.0, 5 + 10.5 * count)
            rows.append((point, y + height / 2))
            y += height
        spans[group] = start, y
        y += 6 if group else 2

    sheet = Sheet(
        title, description, y, keys=keys, axis=axis, ends=ends, footnote=footnote,
        left=left, right=right,
    )  # fmt: skip
    axes = sheet.axes(left, right, 0, y)
    drawn = [v for p in points for v in (p.value, p.reference) if is_defined(v)]
    if limits is None:
        drawn += [v for p in points for v in (p.low, p.high) if is_defined(v)]
    scale_x(axes, drawn + [line.value for line in lines], limits, grid=False)
    if ends:
        sheet.write_ends(axes)
    for head, edge in ((value, right + scores), (note, sheet.width)) if heads else ():
        sheet.text(edge, TEXT * 0.8, head, size=SMALL, color=SOFT, ha="right")
    for heading, middle in titles:
        sheet.lines(0, middle, heading, step=12, weight="bold")
    for group, span in spans.items():  # never across a group's name
        axes.vlines(axes.get_xticks(), *span, color=LINE, linewidth=0.8, zorder=0)
        for line in lines:
            if line.group in (None, group):
                style = line_style(line.label)
                axes.plot([line.value] * 2, span, zorder=2, label=line.label, **style)
    for index, (point, middle) in enumerate(rows):
        sheet.label(middle, point.label, names, 3)
        dot = Dot(point.value, point.low, point.high)
        if is_defined(point.reference):  # below ours, so that neither hides the other
            mark = {"label": f"{point.label}, {reference}", **PUBLISHED}
            add_number(axes, f"{mark['label']}: {to_text(point.reference)}")
            axes.plot([point.reference], [middle + 5], zorder=4.5, clip_on=False, **mark)
        above = 5 if is_defined(point.reference) else 0
        name = f"{point.label}, {value}" if point.kind == "model" else point.label
        draw_dot(axes, dot, middle - above, MARKS[point.kind], name, to_text)
        for text, texts, below, look in (
            (ours[index], ours, -above, {"weight": "bold"}),
            (theirs[index], theirs, 6, {"color": SOFT}),
        ):
            # Decimals stay in line where only some numbers have a mark.
            marked = any(each.endswith("*") for each in texts) and not text.endswith("*")
            gap = text_width("*", TEXT) if marked else 0
            sheet.text(right + scores - gap, middle + below, text, ha="right", **look)
        sheet.text(sheet.width, middle, notes[index], ha="right")
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
    ends = [v for film in films for f in film.factors for v in (f.coefficient, f.low, f.high)]
    reach = 1.05 * max((abs(v) for v in ends if is_defined(v)), default=1.0)
    columns = min(max(1, int(sheet_width() / 150)), len(films)) or 1
    widest = max((text_width(name, SMALL) for name in factors), default=40.0)
    names = min(widest, max(NAMES * sheet_width(), 112.0))
    gap, row = 14.0, 13.5
    panel = (sheet_width() - names - 8 - gap * (columns - 1)) / columns
    labels = ["All films" if f.film is None else titles.get(f.film, f.film) for f in films]
    wrapped = [wrap(label, panel, TEXT, 3) for label in labels]
    head = 20 + 11.5 * max(map(len, wrapped), default=1)
    body = row * max(len(factors), 4)
    band = head + body + 22
    height = band * math.ceil(len(films) / columns) + 8
    keys = [kind.key() for kind in CLEARNESS]
    sides = "more often right", "more often wrong"
    sheet = Sheet(title, description, height - 16, keys=keys, ends=sides)
    for number, film in enumerate(films):
        left = names + 8 + (number % columns) * (panel + gap)
        y = (number // columns) * band + head
        axes = sheet.axes(left, left + panel, y, body)
        sheet.lines(left, y - 8.5 - 11.5 * len(wrapped[number]), wrapped[number], weight="bold")
        sheet.text(left, y - 8, f"{film.wrong:,}/{film.clips:,} wrong", size=SMALL, color=SOFT)
        for index, label in enumerate(factors if number % columns == 0 else []):
            [text] = wrap(label, names, SMALL, 1)
            sheet.text(names, y + row * (index + 0.5), text, size=SMALL, ha="right")
        if film.too_few:
            lines = wrap(film.too_few, panel, SMALL, 5)
            sheet.lines(left, y + 10, lines, step=11, size=SMALL, color=SOFT)
            axes.set_axis_off()
            continue
        axes.set_xlim(-reach, reach)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda v, _: format_number(v, digits=0 if v % 1 == 0 else 1))
        axes.grid(axis="x")
        axes.axvline(0, color=SOFT, linewidth=1.0, zorder=1)
        for index, factor in enumerate(film.factors):
            middle = row * (index + 0.5)
            if factor.coefficient is None:
                write_in(axes, 0, middle, "every clip" if factor.clips else "no clip", SOFT)
                continue
            dot = Dot(factor.coefficient, factor.low, factor.high)
            style = CLEARNESS[dot.is_clear].dot
            draw_dot(axes, dot, middle, style, f"{labels[number]}, {factor.name}")
    sheet.write_ends(zero=(names + 8 + sheet.width) / 2)
    return sheet.figure


def _scored(value: float | None, mark: str, to_text: Callable[[float], str]) -> str:
    return to_text(value) + mark if is_defined(value) else ""
