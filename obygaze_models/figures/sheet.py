"""A sheet that figures are drawn on: one column, its title, legend and axis, and marks for rows.

Lengths are points. Text is measured by its number of letters, so that a figure has the same places
in every font; what does not fit is wrapped, then cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from obygaze_features.common.figures import (
    CROP,
    EDGE,
    INK,
    NAMES,
    SERIES,
    SOFT,
    add_number,
    axes_width,
    describe,
    figure_style,
    figure_width,
    paper,
    plain,
    text_width,
    wrap,
)
from obygaze_features.common.text import format_number

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

USUAL_IN = 312 / 72
"""So narrow that no text is below 11 px on a phone (390 px)."""
TITLE, TEXT, SMALL = 11.0, 9.5, 9.4
"""Font sizes."""
ROW = 13.0
_DASHES = {"all positive": (0, (4, 2.5)), "random": (0, (1.2, 2.2))}


def _point(marker: str, size: float, face: str, edge: str, width: float = 1.3) -> dict[str, Any]:
    return {
        "marker": marker, "markersize": size, "markerfacecolor": face, "markeredgecolor": edge,
        "markeredgewidth": width, "linestyle": "none",
    }  # fmt: skip


PUBLISHED = _point("D", 5.0, "none", INK, 1.1)
MARKS = {
    "model": _point("o", 6.0, SERIES[0], SERIES[0]),
    "annotators": _point("s", 6.0, INK, INK),
    "guess": _point("|", 9.0, SOFT, SOFT, 1.8),
}
"""A mark for each who scores, the same in every figure."""


def sheet_width() -> float:
    """How wide a sheet is between its margins."""
    return 72 * figure_width(USUAL_IN) - 2 * EDGE


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
            return {"facecolor": paper(), "edgecolor": self.colour, "hatch": "////", "linewidth": 1}
        return {"facecolor": self.colour, "edgecolor": "none", "linewidth": 0.0}

    @property
    def dot(self) -> dict[str, Any]:
        """How matplotlib draws a point of this series."""
        return _point("o", 6.0, paper() if self.hatched else self.colour, self.colour)

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

    Without an `axis`, not even an empty one, it has no room for the numbers of ticks. The axis is
    from `left` to `right`; `ends` say what these mean, see `write_ends`.

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
        right: float | None = None,
    ) -> None:
        self.width = width = sheet_width()
        heading = wrap(title, width, 1.15 * TITLE, 3)  # bold
        below = wrap(axis or "", width, SMALL, 3)
        notes = wrap(footnote, width, SMALL, 6)
        widest = max((text_width(str(each.get_label()), TEXT) for each in keys), default=0.0) + 28
        columns = max(1, min(len(keys), int(width / widest)))
        legend = 13.0 * math.ceil(len(keys) / columns) + 6 if keys else 0.0
        over = 14.5 * len(heading) + 5
        texts = [f"← {ends[0]}", f"{ends[1]} →"] if ends else []
        self._ends = [wrap(text, width, SMALL, 1)[0] for text in texts]
        self._apart = 12.0 * (sum(text_width(text, SMALL) for text in texts) + 8 > width)
        self._top = over + legend + (15 + self._apart if ends else 0)
        ticks = 4 if axis is None else 16
        self._full = self._top + height + ticks + 11.5 * (len(below) + len(notes)) + 2 * CROP + 2
        with figure_style():
            from matplotlib.figure import Figure

            self.figure = Figure(figsize=((width + 2 * EDGE) / 72, self._full / 72))
            describe(self.figure, title, description)
            if keys:
                self.figure.legend(
                    handles=keys, loc="upper left", bbox_to_anchor=self._at(0, over - self._top),
                    ncols=columns, borderaxespad=0, borderpad=0, handlelength=1.7,
                    handletextpad=0.6, columnspacing=1.2, labelspacing=0.4,
                )  # fmt: skip
        self.lines(0, 7 - self._top, heading, step=14.5, size=TITLE, weight="bold")
        for number, line in enumerate(below):
            half = text_width(line, SMALL) / 2
            middle = min(max((left + (right or width)) / 2, half), width - half)
            y = height + ticks + 5 + 11.5 * number
            self.text(middle, y, line, size=SMALL, color=SOFT, ha="center")
        self.lines(0, height + ticks + 5 + 11.5 * len(below), notes, size=SMALL, color=SOFT)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return (x + EDGE) / (self.width + 2 * EDGE), 1 - (y + self._top + CROP) / self._full

    def write_ends(self, axes: Axes | None = None, zero: float = 0.0) -> None:
        """Say above axes what values below and above `zero` mean; without axes, at x = `zero`."""
        if axes is not None:
            low, high = axes.get_xlim()
            before = axes.get_position().x0 * (self.width + 2 * EDGE) - EDGE
            zero = before + (zero - low) / (high - low) * axes_width(axes)
        wide, far = (text_width(text, SMALL) for text in self._ends)
        left, right = max(zero - 4, wide), min(zero + 4, self.width - far)
        if not self._apart:
            left = min(left, self.width - far - 8)
            right = left + 8
        self.text(left, -8 - self._apart, self._ends[0], size=SMALL, color=SOFT, ha="right")
        self.text(right, -8, self._ends[1], size=SMALL, color=SOFT)

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

    def label(self, y: float, text: str, width: float, lines: int = 2, **options: Any) -> None:
        """A row's name at the left."""
        texts, step = wrap(text, width, TEXT, lines), TEXT * 1.15
        self.lines(0, y - (len(texts) - 1) / 2 * step, texts, step=step, **options)

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


def name_width(names: Sequence[str]) -> float:
    """The column of the names, which have one line where they are short, else two."""
    widest = max([30.0, *(text_width(plain(name), TEXT) for name in names)])
    return min(widest, NAMES * sheet_width())


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

    locator = MaxNLocator(5, steps=[1, 2, 5, 10])
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
    # On a narrow axis few have a number, so that these stay apart.
    every = math.ceil(24 * len(ticks[1:]) / axes_width(axes))
    axes.set_xticks(ticks, [
        "" if round(t / step) % every else format_number(t, digits=digits, percent=percent)
        for t in ticks
    ])  # fmt: skip
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
    box = {"facecolor": paper(), "edgecolor": "none", "pad": 1}
    options = {"ha": "center", "size": SMALL, "bbox": box, **options}
    with figure_style():
        axes.text(x, y, text, color=colour, va="center_baseline", zorder=6, **options)
