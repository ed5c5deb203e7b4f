"""Scores with their intervals, a row each, beside what others have published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from obygaze_models.figures.svg import (
    WIDTH,
    Scale,
    axis_bottom,
    circle,
    defined,
    diamond,
    element,
    frame,
    grid,
    label,
    mark,
    number,
    scale_of,
    text,
    text_width,
    whisker,
    wrap,
)
from obygaze_models.figures.theme import SERIES, SOFT

__all__ = ["Line", "Point", "forest"]

LEFT = 158.0
"""Where the plot begins, after the rows' names."""
COLUMN = 48.0
"""How wide a column of numbers is, after the plot."""
DASHES = ("5 3", "1.5 3", "9 3 2 3")


@dataclass(frozen=True)
class Point:
    """A row: a score, None where it is undefined, its interval, and a published score.

    Rows of one `group` that follow one another stand under its name. `key` names the number for
    who reads it back; the published one's is ``key/reference``.
    """

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    reference: float | None = None
    group: str = ""
    key: str = ""


@dataclass(frozen=True)
class Line:
    """A value to compare with, such as a guess; across the rows of `group`, or across all."""

    value: float
    label: str
    group: str | None = None
    key: str = ""


def forest(
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
) -> str:
    """Draw scores as points with intervals.

    Parameters
    ----------
    points
        The rows, from the top down.
    title, axis, description
        The figure's name, what is measured, and what is seen, for those who cannot see it.
    lines
        Vertical lines to compare with.
    limits
        The ends of the axis, such as 0 and 1; values beyond them widen it.
    interval
        What intervals are, such as "95% interval over films".
    value, reference
        The names of the points and of the hollow diamonds.
    signed
        Print + before what is above 0, as of differences.
    """
    referred = any(defined(point.reference) for point in points)
    right = WIDTH - 8 - COLUMN * (1 + referred)
    scale = scale_of(_numbers(points, lines), limits, LEFT, right)
    parts, y = _head(value, reference) if referred else ([], 4.0)
    top = y
    shared = _flags([line for line in lines if line.group is None], scale)
    y += _height(shared)
    base = y
    for group, rows in groupby(points, key=lambda point: point.group):
        if group:
            parts.append(label(0, y + 13, group, WIDTH, weight="600", lines=1))
            y += 24
        flags = _flags([line for line in lines if line.group == group], scale)
        y += _height(flags)
        start, drawn = y, []
        for point in rows:
            tall = 38.0 if len(wrap(point.label, LEFT - 16, 13)) > 1 else 25.0
            drawn.append(_row(point, scale, y + tall / 2, referred, signed, value, reference))
            y += tall
        parts += [_draw_flags(flags, scale, start, y), *drawn]
        y += 6 if group else 0
    under = grid(scale, top, y) + _draw_flags(shared, scale, base, y)
    below, y = axis_bottom(scale, y, axis)
    parts.append(below)
    if interval:
        parts.append(whisker(LEFT - 24, LEFT - 2, y + 9, SERIES[0]))
        parts.append(
            element("circle", cx=LEFT - 13, cy=y + 9, r=4.5, fill=SERIES[0])
            + label(LEFT + 6, y + 9, f"{value}, with {interval}", WIDTH - LEFT - 6, size=12)
        )
        y += 28
    return frame(title, description, y, under + "".join(parts))


def _head(value: str, reference: str) -> tuple[list[str], float]:
    """The names of the columns of numbers."""
    return [
        text(WIDTH - COLUMN - 6, 13, value, size=11.5, fill=SOFT, anchor="end"),
        text(WIDTH, 13, reference, size=11.5, fill=SOFT, anchor="end"),
    ], 20.0


def _numbers(points: Sequence[Point], lines: Sequence[Line]) -> list[float]:
    values = [(point.value, point.low, point.high, point.reference) for point in points]
    drawn = [one for of_point in values for one in of_point if one is not None and defined(one)]
    return drawn + [line.value for line in lines]


def _row(
    point: Point,
    scale: Scale,
    y: float,
    referred: bool,
    signed: bool,
    value: str,
    reference: str,
) -> str:
    parts = [label(0, y, point.label, LEFT - 16)]
    if point.low is not None and point.high is not None and defined(point.low + point.high):
        parts.append(whisker(scale.at(point.low), scale.at(point.high), y, SERIES[0]))
    at = WIDTH - (COLUMN + 6 if referred else 0)
    if point.value is not None and defined(point.value):
        said = number(point.value, signed=signed)
        tip = f"{point.label}, {value}: {said}"
        parts.append(circle(scale.at(point.value), y, 4.5, SERIES[0], point.value, point.key, tip))
        parts.append(text(at, y + 4.5, said, anchor="end", weight="600"))
    else:
        parts.append(text(at, y + 4.5, "–", anchor="end", tip="undefined"))
    if point.reference is not None and defined(point.reference):
        said = number(point.reference, signed=signed)
        key = f"{point.key}/reference" if point.key else ""
        tip = f"{point.label}, {reference}: {said}"
        parts.append(diamond(scale.at(point.reference), y, point.reference, key, tip))
        parts.append(text(WIDTH, y + 4.5, said, anchor="end"))
    return "".join(parts)


@dataclass(frozen=True)
class _Flag:
    """A line's name beside its top; the line rises to its storey, 0 being the lowest."""

    line: Line
    words: str
    left: float
    right: float
    storey: int


def _flags(lines: Sequence[Line], scale: Scale) -> list[_Flag]:
    """Names to the right of their lines, so high that no line runs through another's name."""
    flags: list[_Flag] = []
    for line in sorted(lines, key=lambda line: -line.value):
        words = wrap(line.label, WIDTH - 12, 11.5, lines=1)[0]
        at, wide = scale.at(line.value), text_width(words, 11.5)
        left = at + 4 if at + 4 + wide <= WIDTH else max(0.0, at - 4 - wide)
        storey = 0
        while storey < len(flags) and any(
            (other.storey == storey and left < other.right + 6 and other.left < left + wide + 6)
            or (other.storey >= storey and left < scale.at(other.line.value) < left + wide)
            or (other.storey < storey and other.left < at < other.right)
            for other in flags
        ):
            storey += 1
        flags.append(_Flag(line, words, left, left + wide, storey))
    return flags


def _draw_flags(flags: Sequence[_Flag], scale: Scale, base: float, bottom: float) -> str:
    """Lines from their names, that stand above `base`, down to `bottom`."""
    drawn, names = [], []
    for place, flag in enumerate(sorted(flags, key=lambda flag: flag.line.value)):
        y, at = base - 15 * flag.storey, scale.at(flag.line.value)
        drawn.append(
            element(
                "line",
                x1=at,
                x2=at,
                y1=y - 11,
                y2=bottom,
                stroke=SOFT,
                stroke_width=1.3,
                stroke_dasharray=DASHES[place % len(DASHES)],
                **mark(flag.line.value, flag.line.key),
            )
        )
        names.append(text(flag.left, y - 2, flag.words, size=11.5, fill=SOFT, halo=True))
    return "".join(drawn + names)


def _height(flags: Sequence[_Flag]) -> float:
    return 15.0 * (1 + max(flag.storey for flag in flags)) + 3 if flags else 0.0
