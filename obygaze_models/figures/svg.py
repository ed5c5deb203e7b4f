"""What all figures are made of: elements, words that fit, scales, marks and the frame."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from obygaze_models.figures.theme import INK, LINE, PAPER, SERIES, SOFT

__all__ = [
    "WIDTH",
    "Scale",
    "Series",
    "axis_bottom",
    "circle",
    "defined",
    "diamond",
    "element",
    "frame",
    "grid",
    "label",
    "legend",
    "mark",
    "number",
    "scale_of",
    "swatch",
    "text",
    "text_width",
    "whisker",
    "wrap",
]

#: Narrow, so that on a phone words are shrunk little; pages may show figures larger.
WIDTH = 480
_SHOWN = 600
#: What XML cannot hold at all, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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


def defined(value: float | None) -> bool:
    """Whether there is a number to draw."""
    return value is not None and math.isfinite(value)


def number(value: float, *, digits: int = 2, percent: bool = False, signed: bool = False) -> str:
    """A number as figures print it.

    Examples
    --------
    >>> number(0.789), number(0.524, percent=True), number(-0.031), number(0.2, signed=True)
    ('0.79', '52%', '−0.03', '+0.20')
    """
    said = f"{100 * value:.0f}%" if percent else f"{value:.{digits}f}"
    if not said.strip("-0.%"):
        return said.lstrip("-")
    return ("+" if signed and value > 0 else "") + said.replace("-", "−")


def element(tag: str, content: str = "", /, **attributes: str | float | None) -> str:
    """An element; `content` is markup, attributes are escaped, ``stroke_width`` has a dash."""
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{said}>{content}</{tag}>" if content else f"<{tag}{said}/>"


def mark(value: float, key: str) -> dict[str, str | None]:
    """The attributes of what shows a number, from which it can be read back."""
    return {"data_value": repr(float(value)), "data_key": key or None}


def _attribute(value: str | float) -> str:
    if isinstance(value, str):
        return _clean(value)
    return _short(value)


def _short(value: float) -> str:
    said = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if said == "-0" else said


def _clean(words: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", words))


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 13,
    fill: str = INK,
    anchor: str | None = None,
    weight: str | None = None,
    tip: str = "",
    halo: bool = False,
    **data: str | None,
) -> str:
    """Words on the line `y`; a `tip` says more where the pointer rests, such as words in full."""
    said = _clean(words) + (element("title", _clean(tip)) if tip else "")
    around: dict[str, str | float] = (
        {"stroke": PAPER, "stroke_width": 3.0, "paint_order": "stroke"} if halo else {}
    )
    return element(
        "text",
        said,
        x=x,
        y=y,
        font_size=size,
        fill=fill,
        text_anchor=anchor,
        font_weight=weight,
        **around,
        **data,
    )


def text_width(words: str, size: float) -> float:
    """About how wide words are, in a wide typeface: rather too wide than too narrow."""
    return size * sum(map(_wide, words))


def _wide(one: str) -> float:
    if unicodedata.combining(one):
        return 0.0
    if unicodedata.east_asian_width(one) in "WF":
        return 1.05
    if one in " iljI.,:;'|!()[]ftr-":
        return 0.38
    if one in "mwMW@%…—":
        return 0.92
    return 0.7 if one.isupper() else 0.62


def wrap(words: str, width: float, size: float, *, lines: int = 2) -> list[str]:
    """Words in lines of that width; what does not fit in so many lines ends in an ellipsis."""
    found: list[str] = []
    rest = " ".join(words.split())
    while rest and len(found) < lines:
        end = _fits(rest, width, size)
        if end < len(rest):
            space = rest.rfind(" ", 1, end + 1)
            end = space if space > 0 else end
        found.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    if rest:
        last = f"{found[-1]} {rest}"
        found[-1] = last[: _fits(last, width - text_width("…", size), size)].rstrip() + "…"
    return found or [""]


def _fits(words: str, width: float, size: float) -> int:
    """How many characters of `words` fit, at least one."""
    end = 1
    while end < len(words) and text_width(words[: end + 1], size) <= width:
        end += 1
    return end


def label(
    x: float,
    middle: float,
    words: str,
    width: float,
    *,
    size: float = 13,
    anchor: str | None = None,
    weight: str | None = None,
    fill: str = INK,
    lines: int = 2,
) -> str:
    """Words in one or two lines about a middle height; cut ones are whole in their tip."""
    said = wrap(words, width, size, lines=lines)
    tip = words if said[-1].endswith("…") else ""
    top = middle + size * 0.35 - (len(said) - 1) * size * 0.58
    return "".join(
        text(
            x,
            top + place * size * 1.16,
            line,
            size=size,
            anchor=anchor,
            weight=weight,
            fill=fill,
            tip=tip,
        )
        for place, line in enumerate(said)
    )


def circle(x: float, y: float, radius: float, paint: str, value: float, key: str, tip: str) -> str:
    """A filled point."""
    return element(
        "circle",
        element("title", _clean(tip)),
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
        element("title", _clean(tip)) if tip else "",
        d=f"M{_short(x - half)} {_short(y)}l{half} {-half}l{half} {half}l{-half} {half}z",
        fill="none",
        stroke=INK,
        stroke_width=1.4,
        **({} if value is None else mark(value, key)),
    )


def whisker(left: float, right: float, y: float, paint: str = INK) -> str:
    """An interval with short ends."""
    x, to = _short(left), _short(right)
    low, high = _short(y - 3), _short(y + 3)
    d = f"M{x} {_short(y)}H{to}M{x} {low}V{high}M{to} {low}V{high}"
    under = element("path", d=d, stroke=PAPER, stroke_width=3.6, fill="none")
    return under + element("path", d=d, stroke=paint, stroke_width=1.5, fill="none")


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
        element("title", _clean(tip)) if tip else "",
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
            f"M{_short(x + from_x)} {_short(y + from_y)}L{_short(x + to_x)} {_short(y + to_y)}"
        )
        start += 5
    return element("path", d="".join(parts), stroke=paint, stroke_width=1.4) if parts else ""


def legend(series: Sequence[Series], y: float) -> tuple[str, float]:
    """Swatches and their names in as many lines as they take; and the height below them."""
    parts, x = [], 0.0
    for one in series:
        name = wrap(one.label, WIDTH - 22, 12, lines=1)[0]
        wide = 20 + text_width(name, 12)
        if x and x + wide > WIDTH:
            x, y = 0.0, y + 19
        parts.append(swatch(x, y, 14, 12, one))
        parts.append(
            text(x + 20, y + 10.5, name, size=12, tip=one.label if name != one.label else "")
        )
        x += wide + 14
    return "".join(parts), y + 22


def grid(scale: Scale, top: float, bottom: float) -> str:
    """Faint lines at the ticks."""
    lines = "".join(
        f"M{_short(scale.at(tick))} {_short(top)}V{_short(bottom)}" for tick in scale.ticks()
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


def frame(title: str, description: str, height: float, body: str, *, width: float = WIDTH) -> str:
    """The whole figure: `body` is drawn below the title, from 0 down to `height`."""
    lines = wrap(title, width, 14.5) if title else []
    down = 20 * len(lines) + (6 if lines else 0)
    heading = "".join(
        text(0, 15 + 20 * place, line, size=14.5, weight="600") for place, line in enumerate(lines)
    )
    whole = math.ceil(height + down)
    shown = _SHOWN / WIDTH
    return element(
        "svg",
        element("title", _clean(title))
        + element("desc", _clean(description))
        + heading
        + element("g", body, transform=f"translate(0 {down})"),
        xmlns="http://www.w3.org/2000/svg",
        class_="figure",
        role="img",
        viewBox=f"0 0 {_short(width)} {whole}",
        width=width * shown,
        height=whole * shown,
        style="max-width:100%;height:auto",
    )
