"""The marks of figures: bars, points, intervals, and the axes that they stand on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from obygaze_models.drawing.svg import (
    WIDTH,
    clean,
    element,
    mark,
    number,
    short,
    text,
    text_width,
    wrap,
)
from obygaze_models.drawing.theme import INK, LINE, PAPER, SERIES, SOFT

__all__ = [
    "Scale",
    "Series",
    "axis_bottom",
    "circle",
    "diamond",
    "ends_of",
    "grid",
    "legend",
    "scale_of",
    "spread",
    "swatch",
    "whisker",
]


@dataclass(frozen=True)
class Series:
    """What a colour, 1 to 6, stands for; hatched where a second of the same colour is meant."""

    label: str
    colour: int
    hatched: bool = False

    @property
    def paint(self) -> str:
        """The colour as SVG takes it."""
        return SERIES[self.colour - 1]


@dataclass(frozen=True)
class Scale:
    """From values to places on the horizontal axis."""

    low: float
    high: float
    left: float
    right: float

    def at(self, value: float) -> float:
        """Where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)

    def held(self, value: float) -> float:
        """Where a value lies, or the end of the axis beyond which it does."""
        return min(max(self.at(value), self.left), self.right)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the axis."""
        step = _step((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def scale_of(
    values: Iterable[float], limits: tuple[float, float] | None, left: float, right: float
) -> Scale:
    """An axis that holds all values: between `limits`, or wider; without these, round ends."""
    held = [*values, *(limits or ())] or [0.0, 1.0]
    low, high = min(held), max(held)
    if low == high:
        low, high = low - 0.5, high + 0.5
    step = _step((high - low) / 5)
    if limits is None or low < limits[0]:
        low = math.floor(low / step + 1e-9) * step
    if limits is None or high > limits[1]:
        high = math.ceil(high / step - 1e-9) * step
    return Scale(low, high, left, right)


def _step(width: float) -> float:
    power = 10.0 ** math.floor(math.log10(width))
    return next(base * power for base in (1, 2, 5, 10) if base * power >= width * (1 - 1e-9))


def ends_of(low: float | None, high: float | None) -> tuple[float, float] | None:
    """An interval, unless one of its ends is undefined."""
    if low is None or high is None or not math.isfinite(low + high):
        return None
    return float(low), float(high)


def circle(x: float, y: float, radius: float, paint: str, value: float, key: str, tip: str) -> str:
    """A filled point."""
    return element(
        "circle",
        element("title", clean(tip)),
        cx=x,
        cy=y,
        r=radius,
        fill=paint,
        **mark(value, key),
    )


def diamond(x: float, y: float, value: float | None = None, *, key: str = "", tip: str = "") -> str:
    """A hollow diamond: what others have published."""
    half = 6.5
    return element(
        "path",
        element("title", clean(tip)) if tip else "",
        d=f"M{short(x - half)} {short(y)}l{half} {-half}l{half} {half}l{-half} {half}z",
        fill="none",
        stroke=INK,
        stroke_width=1.4,
        **({} if value is None else mark(value, key)),
    )


def whisker(left: float, right: float, y: float, paint: str = INK, **data: str | None) -> str:
    """An interval with short ends, on a rim of paper that parts it from what lies below."""
    x, to = short(left), short(right)
    low, high = short(y - 3), short(y + 3)
    d = f"M{x} {short(y)}H{to}M{x} {low}V{high}M{to} {low}V{high}"
    under = element("path", d=d, stroke=PAPER, stroke_width=3.6, fill="none")
    return under + element("path", d=d, stroke=paint, stroke_width=1.5, fill="none", **data)


def spread(
    scale: Scale, ends: tuple[float, float] | None, y: float, key: str, paint: str = INK
) -> str:
    """The whisker of an interval, if there is one; what lies beyond the axis is cut off."""
    if ends is None:
        return ""
    left, right = map(scale.held, ends)
    data = {"data_low": repr(ends[0]), "data_high": repr(ends[1]), "data_key": key or None}
    return whisker(left, right, y, paint, **data)


def swatch(
    x: float,
    y: float,
    width: float,
    height: float,
    series: Series,
    *,
    value: float | None = None,
    key: str = "",
    tip: str = "",
) -> str:
    """A bar of a series' colour, hatched where the series is."""
    shape = element(
        "rect",
        element("title", clean(tip)) if tip else "",
        x=x,
        y=y,
        width=width,
        height=height,
        fill=PAPER if series.hatched else series.paint,
        stroke=series.paint if series.hatched else None,
        stroke_width=1.2 if series.hatched else None,
        **({} if value is None else mark(value, key)),
    )
    return shape + (_hatches(x, y, width, height, series.paint) if series.hatched else "")


def _hatches(x: float, y: float, width: float, height: float, paint: str) -> str:
    """Lines drawn within the bar itself: a pattern would need an id that can clash in a page."""
    parts, start = [], 4.0
    while start < width + height:
        # Rising from (start, bottom) to the right by the height, cut at the bar's ends.
        from_x, to_x = max(0.0, start - height), min(start, width)
        from_y, to_y = start - from_x, start - to_x
        parts.append(
            f"M{short(x + from_x)} {short(y + from_y)}L{short(x + to_x)} {short(y + to_y)}"
        )
        start += 5
    return element("path", d="".join(parts), stroke=paint, stroke_width=1.4) if parts else ""


def legend(series: Sequence[Series], y: float, *, width: float = WIDTH) -> tuple[str, float]:
    """Swatches and their names in as many lines as they take; and the height below them."""
    parts, x = [], 0.0
    for one in series:
        name = wrap(one.label, width - 22, 12, lines=1)[0]
        wide = 20 + text_width(name, 12)
        if x and x + wide > width:
            x, y = 0.0, y + 19
        parts.append(swatch(x, y, 14, 12, one))
        parts.append(
            text(x + 20, y + 10.5, name, size=12, tip=one.label if name != one.label else "")
        )
        x += wide + 14
    return "".join(parts), y + 22


def grid(scale: Scale, top: float, bottom: float, *, most: int = 5) -> str:
    """Faint lines at the ticks."""
    lines = "".join(
        f"M{short(scale.at(tick))} {short(top)}V{short(bottom)}" for tick in scale.ticks(most)
    )
    return element("path", d=lines, stroke=LINE, stroke_width=1)


def axis_bottom(scale: Scale, y: float, title: str, *, percent: bool = False) -> tuple[str, float]:
    """The ticks' numbers and what they measure, below `y`; and the height below them."""
    ticks = scale.ticks()
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]))) if len(ticks) > 1 else 2
    parts = [
        text(
            scale.at(tick),
            y + 15,
            number(tick, digits=digits, percent=percent),
            size=11.5,
            fill=SOFT,
            anchor="middle",
        )
        for tick in ticks
    ]
    lines = wrap(title, WIDTH - 4, 12) if title else []
    middle = (scale.left + scale.right) / 2
    for line in lines:
        y += 17
        half = text_width(line, 12) / 2
        at = min(max(middle, half), WIDTH - half)
        parts.append(text(at, y + 15, line, size=12, fill=SOFT, anchor="middle"))
    return "".join(parts), y + 24
