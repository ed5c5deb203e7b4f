"""Bars side by side: a group a thing, such as a concept, and a bar a series in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from obygaze_models.drawing.marks import (
    Scale,
    Series,
    axis_bottom,
    diamond,
    ends_of,
    grid,
    legend,
    scale_of,
    spread,
    swatch,
)
from obygaze_models.drawing.svg import (
    WIDTH,
    defined,
    element,
    frame,
    label,
    number,
    room_for,
    text,
    text_width,
)
from obygaze_models.drawing.theme import SOFT

__all__ = ["Bar", "grouped_bars"]

NAMES = (124.0, 156.0, 188.0)
"""How wide the groups' names may be: the least in which none is cut."""


@dataclass(frozen=True)
class Bar:
    """A bar: its value, None where it is undefined, an interval, and a published value.

    `key` names the number for who reads it back; the published one's is ``key/reference``.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reference: float | None = None
    key: str = ""


def grouped_bars(
    groups: Mapping[str, Sequence[Bar]],
    series: Sequence[Series],
    *,
    title: str,
    axis: str,
    description: str,
    limits: tuple[float, float] | None = None,
    percent: bool = False,
    reference: str = "published",
    printed: Callable[[float], str] | None = None,
    origin: float = 0.0,
    ends: tuple[str, str] | None = None,
) -> str:
    """Draw groups of horizontal bars, a bar a series.

    Parameters
    ----------
    groups
        Each group's bars, in the order of `series`.
    series
        The bars' names, colours, and which are hatched.
    title, axis, description
        The figure's name, what is measured, and what is seen, for those who cannot see it.
    limits
        The ends of the axis; values beyond them widen it, intervals do not.
    percent
        Values are shares, to be printed as percentages.
    reference
        The name of the hollow diamonds.
    printed
        How numbers are printed; by default with two decimals, or as percentages.
    origin
        Where bars begin.
    ends
        What the lower and the upper end of the axis mean.
    """
    said = printed or (lambda value: number(value, percent=percent))
    bars = [bar for group in groups.values() for bar in group]
    drawn = [
        one
        for bar in bars
        for one in (bar.value, bar.reference, *(() if limits else (bar.low, bar.high)))
        if one is not None and defined(one)
    ]
    # What is kept free on either side of the plot for the longest bars' numbers.
    wide = 9 + max([35.0, *(text_width(said(one), 12) for one in drawn)])
    below = wide if any(one < origin for one in drawn) else 0.0
    names = room_for(groups, NAMES)
    scale = scale_of([origin, *drawn], limits, names + 14 + below, WIDTH - wide)
    heading, y = legend(series, 2)
    parts = [heading]
    if any(defined(bar.reference) for bar in bars):
        parts.append(diamond(7, y + 6) + text(20, y + 10.5, reference, size=12))
        y += 20
    if ends:
        parts.append(text(scale.left, y + 10, f"← {ends[0]}", size=12, fill=SOFT))
        parts.append(text(scale.right, y + 10, f"{ends[1]} →", size=12, fill=SOFT, anchor="end"))
        y += 20
    top = y = y + 4
    for name, group in groups.items():
        tall = max(17.0 * len(series), 30.0)
        parts.append(label(0, y + tall / 2, name, names, lines=int(tall / 15)))
        start = y + (tall - 17.0 * len(series)) / 2
        for place, (bar, one) in enumerate(zip(group, series, strict=True)):
            parts.append(_bar(bar, one, name, scale, start + 17 * place, (origin, said, reference)))
        y += tall + 9
    zero = element(
        "line",
        x1=scale.at(origin),
        x2=scale.at(origin),
        y1=top - 4,
        y2=y,
        stroke=SOFT,
        stroke_width=1,
    )
    under, bottom = axis_bottom(scale, y, axis, percent=percent)
    body = grid(scale, top - 4, y) + "".join(parts) + zero + under
    return frame(title, description, bottom, body)


def _bar(
    bar: Bar,
    series: Series,
    group: str,
    scale: Scale,
    y: float,
    way: tuple[float, Callable[[float], str], str],
) -> str:
    origin, printed, reference = way
    zero = scale.at(origin)
    middle = y + 7.5
    if bar.value is None or not defined(bar.value):
        return text(zero + 5, middle + 4, "undefined", size=11.5, fill=SOFT, halo=True)
    at = scale.at(bar.value)
    said = printed(bar.value)
    ends = ends_of(bar.low, bar.high)
    tip = f"{group}, {series.label}: {said}"
    if ends:
        tip += " ({} to {})".format(*map(printed, ends))
    parts = [
        swatch(
            min(zero, at),
            y + 0.5,
            abs(at - zero),
            14,
            series,
            value=bar.value,
            key=bar.key,
            tip=tip,
        )
    ]
    end, start = max(zero, at), min(zero, at)
    if ends:
        parts.append(spread(scale, ends, middle, bar.key))
        end, start = max(end, scale.held(ends[1])), min(start, scale.held(ends[0]))
    if bar.reference is not None and defined(bar.reference):
        key = f"{bar.key}/reference" if bar.key else ""
        tip = f"{group}, {series.label}, {reference}: {printed(bar.reference)}"
        parts.append(diamond(scale.at(bar.reference), middle, bar.reference, key=key, tip=tip))
        end = max(end, scale.at(bar.reference) + 7)
        start = min(start, scale.at(bar.reference) - 7)
    if at < zero:
        parts.append(text(start - 5, middle + 4, said, size=12, anchor="end"))
    else:
        parts.append(text(end + 5, middle + 4, said, size=12))
    return "".join(parts)
