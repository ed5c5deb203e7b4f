"""A sheet that figures are drawn on: one column, its title, legend and axis, and marks for rows.

Lengths are points. Text is measured by its number of letters, so that a figure has the same places
in every font; what does not fit is wrapped, then cut.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from obygaze_features.common.figures import (
    INK,
    PAPER,
    SERIES,
    SOFT,
    add_number,
    describe,
    figure_style,
    plain,
)
from obygaze_features.common.text import format_number

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

WIDTH = 300.0
"""So narrow that no text is below 10 px on a phone (390 px)."""
TITLE, TEXT, SMALL = 11.0, 9.5, 8.5
"""Font sizes."""
MARGIN = 2.0
ROW = 13.0
_DASHES = {"all positive": (0, (4, 2.5)), "random": (0, (1.2, 2.2))}


def _point(marker: str, size: float, face: str, edge: str, width: float = 1.3) -> dict[str, Any]:
    return {
        "marker": marker, "markersize": size, "markerfacecolor": face, "markeredgecolor": edge,
        "markeredgewidth": width, "linestyle": "none",
    }  # fmt: skip


PUBLISHED = _point("D", 5.0, PAPER, INK, 1.1)
MARKS = {
    "model": _point("o", 6.0, SERIES[0], SERIES[0]),
    "annotators": _point("s", 6.0, INK, INK),
    "guess": _point("|", 9.0, SOFT, SOFT, 1.8),
}
"""A mark for each who scores, the same in every figure."""


@dataclass(frozen=True)
class Series:
    """What a colour stands for; hatched or hollow where a second series has the same colour."""

    label: str
    colour: str
    hatched: bool = False

    @property
    def fill(self) -> dict[str, Any]:
        """How matplotlib fills a bar of this series."""
        if self.hatched:
            return {"facecolor": PAPER, "edgecolor": self.colour, "hatch": "////", "linewidth": 1.0}
        return {"facecolor": self.colour, "edgecolor": "none", "linewidth": 0.0}

    @property
    def dot(self) -> dict[str, Any]:
        """How matplotlib draws a point of this series."""
        return _point("o", 6.0, PAPER if self.hatched else self.colour, self.colour)

    def key(self, *, bar: bool = False) -> Artist:
        """Its place in a legend."""
        from matplotlib.patches import Patch

        return Patch(label=self.label, **self.fill) if bar else key(self.label, **self.dot)


def key(label: str, **style: Any) -> Artist:
    """A legend's line or point."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=plain(label), **style)


def line_style(label: str) -> dict[str, Any]:
    """How a line is drawn, by what it means: the same in every figure."""
    return {"color": SOFT, "linewidth": 1.0, "linestyle": _DASHES.get(label, "solid")}


@dataclass(frozen=True)
class Dot:
    """A value, None where it is undefined, its interval, and what guessing reaches."""

    value: float | None
    low: float | None = None
    high: float | None = None
    guess: float | None = None

    @property
    def is_clear(self) -> bool:
        """Whether its interval is on one side of 0."""
        return is_defined(self.low) and is_defined(self.high) and self.low * self.high > 0


class Sheet:
    """A figure of `height` points below its title and legend, above what its axis measures.

    Without an `axis`, not even an empty one, it has no room for the numbers of ticks.

    `text` and `axes` count points from the upper left corner of this body.
    """

    def __init__(
        self,
        title: str,
        description: str,
        height: float,
        *,
        keys: Sequence[Artist] = (),
        axis: str | None = None,
        ends: tuple[str, str] | None = None,
        footnote: str = "",
        left: float = 0.0,
        right: float = WIDTH,
    ) -> None:
        heading = wrap(title, WIDTH, 1.1 * TITLE, 3)  # bold
        below = wrap(axis or "", WIDTH, SMALL, 2)
        notes = wrap(footnote, WIDTH, SMALL, 4)
        widest = max((text_width(str(each.get_label()), TEXT) for each in keys), default=0.0) + 28
        columns = max(1, min(len(keys), int(WIDTH / widest)))
        legend = 13.0 * math.ceil(len(keys) / columns) + 6 if keys else 0.0
        over = 14.5 * len(heading) + 5
        self._top = over + legend + (15 if ends else 0)
        ticks = 4 if axis is None else 16
        self._full = self._top + height + ticks + 11.5 * (len(below) + len(notes))
        with figure_style():
            from matplotlib.figure import Figure

            self.figure = Figure(figsize=((WIDTH + 2 * MARGIN) / 72, (self._full) / 72))
            describe(self.figure, title, description)
            if keys:
                self.figure.legend(
                    handles=keys, loc="upper left", bbox_to_anchor=self._at(0, over - self._top),
                    ncols=columns, borderaxespad=0, borderpad=0, handlelength=1.7,
                    handletextpad=0.6, columnspacing=1.2, labelspacing=0.4,
                )  # fmt: skip
        self.lines(0, 7 - self._top, heading, step=14.5, size=TITLE, weight="bold")
        if ends:
            self.text(left, -8, f"← {ends[0]}", size=SMALL, color=SOFT)
            self.text(right, -8, f"{ends[1]} →", size=SMALL, color=SOFT, ha="right")
        for number, line in enumerate(below):
            half = text_width(line, SMALL) / 2
            middle = min(max((left + right) / 2, half), WIDTH - half)
            y = height + ticks + 5 + 11.5 * number
            self.text(middle, y, line, size=SMALL, color=SOFT, ha="center")
        self.lines(0, height + ticks + 5 + 11.5 * len(below), notes, size=SMALL, color=SOFT)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return (x + MARGIN) / (WIDTH + 2 * MARGIN), 1 - (y + self._top) / self._full

    def text(self, x: float, y: float, text: str, **options: Any) -> None:
        """Text whose middle is at `y`."""
        options = {"va": "center_baseline", "size": TEXT, **options}
        with figure_style():
            self.figure.text(*self._at(x, y), plain(text), **options)

    def lines(
        self, x: float, y: float, texts: Sequence[str], *, step: float = 11.5, **options: Any
    ) -> None:
        """Lines of text, of which the first is at `y`."""
        for number, text in enumerate(texts):
            self.text(x, y + step * number, text, **options)

    def label(self, y: float, text: str, width: float, **options: Any) -> None:
        """A row's name in one or two lines, at the left."""
        lines, step = wrap(text, width, TEXT), TEXT * 1.15
        self.lines(0, y - (len(lines) - 1) / 2 * step, lines, step=step, **options)

    def axes(self, left: float, right: float, y: float, height: float) -> Axes:
        """Axes whose y counts points from its top."""
        x0, y0 = self._at(left, y + height)
        x1, y1 = self._at(right, y)
        with figure_style():
            axes = self.figure.add_axes((x0, y0, x1 - x0, y1 - y0))
        axes.set_ylim(height, 0)
        axes.set_yticks([])
        axes.tick_params(axis="x", pad=3)
        return axes


def text_width(text: str, size: float) -> float:
    """About how wide a text is, in points."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return size * (wide + 0.59 * (len(text) - wide))


def wrap(text: str, width: float, size: float, lines: int = 2) -> list[str]:
    """Text in lines of a width; what does not fit in so many lines ends in an ellipsis."""
    text = plain(text)
    letters = int(width / (text_width(text, size) / len(text))) if text else 0
    return textwrap.wrap(text, max(letters, 4), max_lines=lines, placeholder="…")


def name_width(names: Sequence[str]) -> float:
    """The column of the names, which have one line where they are short, else two."""
    return min(max([30.0, *(text_width(plain(name), TEXT) for name in names)]), 118.0)


def is_defined(value: float | None) -> TypeGuard[float]:
    """Whether there is a number to draw."""
    return value is not None and math.isfinite(value)


def scale_x(
    axes: Axes,
    values: Sequence[float],
    limits: tuple[float, float] | None,
    *,
    percent: bool = False,
    grid: bool = True,
) -> None:
    """An axis that holds all values: `limits`, or wider; without limits, round ends."""
    from matplotlib.ticker import MaxNLocator

    # A narrow axis has few ticks, so that their numbers stay apart.
    narrow = axes.get_position().width < 0.37
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
    axes.set_xticks(ticks, [format_number(t, digits=digits, percent=percent) for t in ticks])
    if grid:
        axes.grid(axis="x")


def draw_dot(
    axes: Axes,
    dot: Dot,
    y: float,
    style: Mapping[str, Any],
    label: str,
    to_text: Callable[[float], str] = format_number,
) -> None:
    """A dot on its interval, cut at the axis' ends; "undefined" where there is no value."""
    low, high = axes.get_xlim()
    if not is_defined(dot.value):
        write_in(axes, low + (high - low) / 50, y, "undefined", SOFT, ha="left")
        return
    text = f"{label}: {to_text(dot.value)}"
    if is_defined(dot.low) and is_defined(dot.high):
        text += f" ({to_text(dot.low)} to {to_text(dot.high)})"
        ends = [min(max(end, low), high) for end in (dot.low, dot.high)]
        axes.plot(
            ends, [y, y], color=style["markeredgecolor"], linewidth=1.3, marker="|", markersize=5,
            markeredgewidth=1.3, clip_on=False, zorder=4,
        )  # fmt: skip
    add_number(axes, text)
    axes.plot([dot.value], [y], zorder=5, clip_on=False, label=label, **style)
    if is_defined(dot.guess):
        name = f"{label}, guess"
        add_number(axes, f"{name}: {to_text(dot.guess)}")
        axes.plot([dot.guess], [y], zorder=3, clip_on=False, label=name, **MARKS["guess"])


def write_in(axes: Axes, x: float, y: float, text: str, colour: str, **options: Any) -> None:
    """Small text on its paper, at a place of the axes."""
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}
    options = {"ha": "center", "size": SMALL, "bbox": box, **options}
    with figure_style():
        axes.text(x, y, text, color=colour, va="center_baseline", zorder=6, **options)
