"""Scores with their intervals, a row each, beside what others have published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from obygaze_models.drawing.marks import (
    Scale,
    axis_bottom,
    circle,
    diamond,
    ends_of,
    grid,
    scale_of,
    spread,
    whisker,
)
from obygaze_models.drawing.svg import (
    WIDTH,
    defined,
    element,
    frame,
    label,
    mark,
    number,
    room_for,
    text,
    text_width,
    wrap,
)
from obygaze_models.drawing.theme import SERIES, SOFT

__all__ = ["Line", "Point", "forest"]

NAMES = (106.0, 142.0, 172.0, 202.0)
"""How wide the rows' names may be: the least in which none is cut."""
COLUMN = 54.0
"""How wide a column of numbers is, after the plot."""
DASHES = ("5 3", "1.5 3", "9 3 2 3")


@dataclass(frozen=True)
class Point:
    """A row: a score, None where it is undefined, its interval, and a published score.

    Rows of one `group` that follow one another stand under its name. `key` names the number for
    who reads it back; the published one's is ``key/reference``. Marks, such as ``*``, stand after
    the scores, and the note beside ours.
    """

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    reference: float | None = None
    group: str = ""
    key: str = ""
    mark: str = ""
    reference_mark: str = ""
    note: str = ""


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
    note: str = "",
    footnote: str = "",
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
        The ends of the axis, such as 0 and 1; values beyond them widen it, intervals do not.
    interval
        What intervals are, such as "95% interval over films".
    value, reference
        The names of the points and of the hollow diamonds.
    signed
        Print + before what is above 0, as of differences.
    note
        What the points' notes are.
    footnote
        What stands below, of all points.
    """
    referred = any(defined(point.reference) for point in points)
    column = max(COLUMN, text_width(reference, 11.5) + 10) if referred else 0.0
    noted = WIDTH - column
    beside = max((text_width(point.note, 12) + 10 for point in points if point.note), default=0.0)
    at = noted - beside
    marked = (
        max(text_width(one.mark or one.reference_mark, 13) for one in points) if points else 0.0
    )
    names = room_for((point.label for point in points), NAMES)
    scale = scale_of(_numbers(points, lines, limits is None), limits, names + 16, at - COLUMN)
    parts, y = [], 4.0
    if referred or beside:
        heads = [(value, at), (note, noted if beside else 0.0), (reference, WIDTH * referred)]
        parts += [
            text(place, 13, head, size=11.5, fill=SOFT, anchor="end")
            for head, place in heads
            if place
        ]
        y = 22.0
    top = y
    shared = _flags([line for line in lines if line.group is None], scale)
    y += _height(shared)
    base = y
    for group, rows in groupby(points, key=lambda point: point.group):
        flags = _flags([line for line in lines if line.group == group], scale)
        if group:
            # Lines' names stand beside the group's, unless one of them is too long for that.
            level = text_width(group, 13, bold=True) + 12 < min(
                (flag.left for flag in flags), default=WIDTH
            )
            head = max(26.0, _height(flags)) if level else 26.0
            parts.append(label(0, y + head - 13, group, WIDTH, weight="600", lines=1))
            y += head if level else head + _height(flags)
        start, drawn = y, []
        for point in rows:
            tall = 38.0 if len(wrap(point.label, names, 13)) > 1 else 25.0
            places = names, at, noted, marked
            drawn.append(_row(point, scale, y + tall / 2, places, signed, (value, reference)))
            y += tall
        parts += [_draw_flags(flags, scale, start, y), *drawn]
        y += 8 if group else 0
    under = grid(scale, top, y) + _draw_flags(shared, scale, base, y)
    below, y = axis_bottom(scale, y, axis)
    drawn_ends = bool(interval) and any(ends_of(point.low, point.high) for point in points)
    said = f"{value}, with {interval}" if drawn_ends else value
    if drawn_ends or referred:
        shown, y = _legend(said, drawn_ends, reference if referred else "", y)
        below += shown
    for one in wrap(footnote, WIDTH, 11.5, lines=3) if footnote else []:
        below += text(0, y + 12, one, size=11.5, fill=SOFT)
        y += 15
    return frame(title, description, y, under + "".join(parts) + below)


def _legend(value: str, interval: bool, reference: str, y: float) -> tuple[str, float]:
    parts = [whisker(1, 21, y + 10, SERIES[0])] if interval else []
    parts.append(element("circle", cx=11, cy=y + 10, r=4.5, fill=SERIES[0]))
    words = wrap(value, WIDTH - 30, 12, lines=1)[0]
    parts.append(text(30, y + 14, words, size=12, tip=value if words != value else ""))
    x = 30 + text_width(words, 12) + 16
    if reference and x + 20 + text_width(reference, 12) > WIDTH:
        x, y = 4.0, y + 19
    if reference:
        parts.append(diamond(x + 7, y + 10))
        parts.append(label(x + 20, y + 10, reference, WIDTH - x - 20, size=12, lines=1))
    return "".join(parts), y + 24


def _numbers(points: Sequence[Point], lines: Sequence[Line], intervals: bool) -> list[float]:
    values = [
        (point.value, point.reference, *((point.low, point.high) if intervals else ()))
        for point in points
    ]
    drawn = [one for of_point in values for one in of_point if one is not None and defined(one)]
    return drawn + [line.value for line in lines]


def _row(
    point: Point,
    scale: Scale,
    y: float,
    places: tuple[float, float, float, float],
    signed: bool,
    names: tuple[str, str],
) -> str:
    wide, at, noted, marked = places
    parts = [label(0, y, point.label, wide)]
    if point.note:
        parts.append(text(noted, y + 4.5, point.note, size=12, anchor="end"))
    if point.value is None or not defined(point.value):
        parts.append(text(at, y + 4.5, "–", anchor="end", tip="undefined"))
    else:
        ends = ends_of(point.low, point.high)
        parts.append(spread(scale, ends, y, point.key, SERIES[0]))
        said = number(point.value, signed=signed)
        tip = f"{point.label}, {names[0]}: {said}"
        if ends:
            tip += " ({} to {})".format(*(number(end, signed=signed) for end in ends))
        parts.append(circle(scale.at(point.value), y, 4.5, SERIES[0], point.value, point.key, tip))
        parts.append(
            text(
                at - _short_of(point.mark, marked),
                y + 4.5,
                said + point.mark,
                anchor="end",
                weight="600",
            )
        )
    if point.reference is not None and defined(point.reference):
        said = number(point.reference, signed=signed)
        key = f"{point.key}/reference" if point.key else ""
        tip = f"{point.label}, {names[1]}: {said}"
        parts.append(diamond(scale.at(point.reference), y, point.reference, key=key, tip=tip))
        parts.append(
            text(
                WIDTH - _short_of(point.reference_mark, marked),
                y + 4.5,
                said + point.reference_mark,
                anchor="end",
            )
        )
    return "".join(parts)


def _short_of(mark: str, marked: float) -> float:
    """How much to the left a number ends, so that those with and without marks are in line."""
    return marked - text_width(mark, 13)


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
