"""Elements, the words in them, and the frame of a figure."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

from obygaze_models.drawing.theme import INK, PAPER

__all__ = [
    "WIDTH",
    "clean",
    "defined",
    "element",
    "frame",
    "label",
    "mark",
    "number",
    "room_for",
    "short",
    "text",
    "text_width",
    "wrap",
]

#: Narrow, so that on a phone words are shrunk little; pages may show figures larger.
WIDTH = 480
_SHOWN = 600
#: What XML cannot hold at all, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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


def defined(value: float | None) -> bool:
    """Whether there is a number to draw."""
    return value is not None and math.isfinite(value)


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
        return clean(value).replace("\n", "&#10;").replace("\t", "&#9;").replace("\r", "&#13;")
    return short(value)


def short(value: float) -> str:
    """A place, to the hundredth."""
    said = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if said == "-0" else said


def clean(words: str) -> str:
    """Words as markup."""
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
    said = clean(words) + (element("title", clean(tip)) if tip else "")
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
    said = wrap(words, width, size, lines=lines, bold=weight is not None)
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


def text_width(words: str, size: float, *, bold: bool = False) -> float:
    """About how wide words are, in a wide typeface: rather too wide than too narrow."""
    return size * sum(map(_wide, words)) * (1.12 if bold else 1)


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


def wrap(words: str, width: float, size: float, *, lines: int = 2, bold: bool = False) -> list[str]:
    """Words in lines of that width; what does not fit in so many lines ends in an ellipsis."""
    width = width / 1.12 if bold else width
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


def room_for(names: Iterable[str], widths: Sequence[float], *, size: float = 13) -> float:
    """The least of some widths in which no name is cut, nor a word broken; else the greatest."""
    wanted = [" ".join(name.split()) for name in names]
    for width in widths:
        if all(" ".join(wrap(name, width, size)) == name for name in wanted):
            return width
    return widths[-1]


def frame(title: str, description: str, height: float, body: str, *, width: float = WIDTH) -> str:
    """The whole figure: `body` is drawn below the title, from 0 down to `height`."""
    lines = wrap(title, width, 14.5, lines=3, bold=True) if title else []
    down = 20 * len(lines) + (6 if lines else 0)
    heading = "".join(
        text(0, 15 + 20 * place, line, size=14.5, weight="600") for place, line in enumerate(lines)
    )
    whole = math.ceil(height + down)
    shown = _SHOWN / WIDTH
    return element(
        "svg",
        element("title", clean(title))
        + (element("desc", clean(description)) if description else "")
        + heading
        + element("g", body, transform=f"translate(0 {down})"),
        xmlns="http://www.w3.org/2000/svg",
        class_="figure",
        role="img",
        viewBox=f"0 0 {short(width)} {whole}",
        width=width * shown,
        height=whole * shown,
        style="max-width:100%;height:auto",
    )
