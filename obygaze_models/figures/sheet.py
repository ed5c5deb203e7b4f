"""A sheet for figures: rows of names, marks and numbers below a title and a legend.

Heights of rows are in points. Matplotlib lays out the sheet, but `wrap` breaks long names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from obygaze_features.common.figures import (
    EDGE,
    INK,
    NAMES,
    PAPER,
    SERIES,
    SOFT,
    add_number,
    describe,
    figure_style,
    figure_width,
    wrap,
)
from obygaze_features.common.text import format_number

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Limits = tuple[float, float]
"""The ends of an axis."""
Style = Mapping[str, Any]
"""Options for matplotlib."""
ToText = Callable[[float], str]
"""A function that formats numbers."""
USUAL_IN = 312 / 72
"""The default width of a sheet, in inches. On a phone (390 px), no text is smaller than 11 px."""
TITLE, TEXT, SMALL = 11.0, 9.5, 9.4
"""Font sizes in points."""
ROW = 13.0
"""The height of a row with a single line, in points."""
STAR = 5.0
"""The width of the star after a number, in points."""
_DASHES = {"all positive": (0, (4, 2.5)), "random": (0, (1.2, 2.2))}


def point(marker: str, size: float, face: str, edge: str, width: float = 1.3) -> dict[str, Any]:
    """Return matplotlib's options for a point."""
    return {
        "marker": marker, "markersize": size, "markerfacecolor": face, "markeredgecolor": edge,
        "markeredgewidth": width, "linestyle": "none",
    }  # fmt: skip


PUBLISHED = point("D", 5.0, "none", INK, 1.1)
MARKS = {
    "model": point("o", 6.0, SERIES[0], SERIES[0]),
    "annotators": point("s", 6.0, INK, INK),
    "guess": point("|", 9.0, SOFT, SOFT, 1.8),
}
"""The marker of each kind of rater, the same in every figure."""


def sheet_width() -> float:
    """Return the width of a sheet between its margins, in points."""
    return 72 * figure_width(USUAL_IN) - 2 * EDGE


@dataclass(frozen=True)
class Series:
    """A series and its colour. `hatched` series have hollow dots, and can share a colour."""

    label: str
    colour: str
    hatched: bool = False

    @property
    def dot(self) -> dict[str, Any]:
        """Matplotlib's options for a point of this series."""
        return point("o", 6.0, PAPER if self.hatched else self.colour, self.colour)

    @property
    def key(self) -> Artist:
        """The entry of this series in a legend."""
        return key(self.label, **self.dot)


def key(label: str, **style: Any) -> Artist:
    """Return a line or point for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **style)


def line_style(label: str) -> dict[str, Any]:
    """Return the style of a line with this label, the same in every figure."""
    return {"color": SOFT, "linewidth": 1.0, "linestyle": _DASHES.get(label, "solid")}


@dataclass(frozen=True)
class Dot:
    """A value (None if undefined), its interval, and the score of guessing."""

    value: float | None
    low: float | None = None
    high: float | None = None
    guess: float | None = None

    @property
    def is_clear(self) -> bool:
        """True if the interval excludes 0."""
        return is_defined(self.low) and is_defined(self.high) and self.low * self.high > 0


class Cell(NamedTuple):
    """A text in a column. `y` is the text's middle in points from the top."""

    y: float
    text: str
    style: Mapping[str, Any] = {}


def new_figure(title: str, description: str, keys: Sequence[Artist]) -> Figure:
    """Make a figure with a title and a legend. `fit` lays out the axes below them."""
    from matplotlib.figure import Figure

    width = sheet_width()
    for handle in keys:
        handle.set_label("\n".join(wrap(str(handle.get_label()), width - 30, TEXT, 2)))
    with figure_style():
        figure = Figure(figsize=(figure_width(USUAL_IN), 4), layout="constrained")
        describe(figure, title, description)
        for columns in range(max(len(keys), 1), 0, -1):  # as many as fit
            legend = figure.legend(
                handles=keys, loc="outside upper left", ncols=columns, alignment="left",
                title="\n".join(wrap(title, width, 1.15 * TITLE, 3)),
                title_fontproperties={"size": TITLE, "weight": "bold"},
                borderaxespad=EDGE / SMALL, borderpad=0, handlelength=1.7, handletextpad=0.6,
                columnspacing=1.2, labelspacing=0.4,
            )  # fmt: skip
            if columns == 1 or width_of(legend) <= width:
                break
            legend.remove()
    return figure


def fit(figure: Figure, axes: Axes, height: float, rows: int = 1) -> Figure:
    """Lay out a figure so that each of its `rows` of axes is `height` points high."""
    with figure_style():
        figure.set_figheight(rows * height / 72 + 4)
        for _ in range(2):  # the axes' width may change the ticks
            figure.draw_without_rendering()
            missing = height / 72 - axes.get_position().height * figure.get_figheight()
            figure.set_figheight(figure.get_figheight() + rows * missing)
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def width_of(artist: Any) -> float:
    """Return the width of an artist in points."""
    return float(72 * artist.get_window_extent().width / artist.figure.dpi)


class Sheet:
    """Rows of names, marks and numbers on one axes object, with y in points from the top.

    Parameters
    ----------
    title, description
        The figure's title, and a description for those who cannot see it.
    height
        The height of the rows, in points.
    keys
        The entries of the legend.
    axis
        The name of the measure.
    footnote
        A remark at the bottom.
    """

    def __init__(
        self,
        title: str,
        description: str,
        height: float,
        *,
        keys: Sequence[Artist] = (),
        axis: str = "",
        footnote: str = "",
    ) -> None:
        width = sheet_width()
        self.figure = new_figure(title, description, keys)
        with figure_style():
            self.axes = self.figure.add_subplot()
            self.axes.set_xlabel("\n".join(wrap(axis, 0.75 * width, SMALL, 4)))
            if footnote:
                text = "\n".join(wrap(footnote, width, SMALL, 6))
                left: Any = {"x": EDGE / (width + 2 * EDGE), "ha": "left"}
                self.figure.supxlabel(text, size=SMALL, color=SOFT, **left)
        self.axes.set_ylim(height, 0)
        self.axes.set_yticks([])
        self._height, self._edge = height, 0.0

    def name_rows(self, cells: Iterable[Cell]) -> None:
        """Write texts at the left edge. Bold texts may extend over the axes."""
        with figure_style():
            drawn = [self._write(0, cell, ha="left") for cell in cells]
            names = [text for text in drawn if text.get_fontweight() != "bold"]
            gap = 12 + max(map(width_of, names), default=0.0)
        for text in drawn:
            text.xyann = (-gap, 0)

    def add_column(self, cells: Iterable[Cell]) -> None:
        """Write right-aligned texts to the right of the axes and of earlier columns."""
        with figure_style():
            drawn = [self._write(1, cell, ha="right") for cell in cells if cell.text]
            self._edge += 9 + max(map(width_of, drawn), default=-9.0)
        marked = {text for text in drawn if text.get_text().endswith("*")}
        for text in drawn:
            # Keep decimals aligned if only some numbers have a mark.
            gap = STAR if marked and text not in marked else 0.0
            text.xyann = (self._edge - gap, 0)

    def write_ends(self, ends: tuple[str, str], zero: float) -> None:
        """Write the meanings of values below and above `zero`, at the top of the axes."""
        sides = (f"← {ends[0]}", -4, "right"), (f"{ends[1]} →", 4, "left")
        with figure_style():
            for text, gap, side in sides:
                lines = "\n".join(wrap(text, 0.38 * sheet_width(), SMALL, 3))
                look: Any = {"size": SMALL, "color": SOFT, "ha": side, "va": "bottom"}
                offset: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
                self.axes.annotate(lines, (zero, 1), (gap, 4), **offset, **look)

    def draw(self) -> Figure:
        """Lay out and return the figure."""
        return fit(self.figure, self.axes, self._height)

    def _write(self, x: float, cell: Cell, **options: Any) -> Any:
        options |= {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        options |= {"va": "center_baseline", "size": TEXT, "linespacing": 1.1, **cell.style}
        return self.axes.annotate(cell.text, (x, cell.y), (0, 0), **options)


def on_paper() -> dict[str, Any]:
    """Return matplotlib's options for a box that hides the lines behind a text."""
    return {"facecolor": PAPER, "edgecolor": "none", "pad": 1}


def name_lines(name: str, lines: int = 2) -> str:
    """Wrap a row's name to its column, in at most `lines` lines."""
    return "\n".join(wrap(name, NAMES * sheet_width(), TEXT, lines))


def is_defined(value: float | None) -> TypeGuard[float]:
    """Return True if the value is a finite number."""
    return value is not None and math.isfinite(value)


def scale_x(
    axes: Axes, values: Sequence[float], limits: Limits | None, *, percent: bool = False
) -> None:
    """Scale the x axis to `limits`; missing or exceeded limits become round numbers."""
    from matplotlib.ticker import AutoLocator, MaxNLocator, PercentFormatter

    values_shown = [*values, *(limits or ())] or [0.0, 1.0]
    low, high = min(values_shown), max(values_shown)
    if low == high:
        low, high = low - 0.5, high + 0.5
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high)
    smallest, greatest = limits or (math.inf, -math.inf)
    axes.set_xlim(low if low >= smallest else ticks[0], high if high <= greatest else ticks[-1])
    axes.xaxis.set_major_locator(AutoLocator())  # as many as fit
    if percent:
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.tick_params(axis="x", pad=3)
    axes.grid(axis="x")


def draw_dot(
    axes: Axes, dot: Dot, y: float, style: Style, label: str, to_text: ToText = format_number
) -> None:
    """Draw a dot and its interval, clipped to the axis; write "undefined" if the value is None."""
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
    """Write small text on the axes, hiding the lines behind it."""
    options = {"ha": "center", "size": SMALL, "bbox": on_paper(), **options}
    with figure_style():
        axes.text(x, y, text, color=colour, va="center_baseline", zorder=6, **options)
