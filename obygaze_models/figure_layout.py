"""The layout of figures: a sheet filled from the top down, text that is measured and wrapped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from obygaze_features.common.figures import (
    INK,
    PAPER,
    SERIES,
    SOFT,
    describe,
    figure_style,
    plain,
    tip,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 300.0
"""In points, as all lengths here; so narrow that no text is below 10 px on a phone (390 px)."""
TITLE, TEXT, SMALL = 11.0, 9.5, 8.5
"""Font sizes."""
_LINE = 1.3
"""A line's height, in font sizes."""
ROW = 13.0
_DASHES = {
    "all positive": (0, (4, 2.5)), "random": (0, (1.2, 2.2)), "majority": (0, (7, 2.5, 1.5, 2.5)),
}  # fmt: skip
MARGIN = 10.0
_Mark = Callable[[float, float], None]
"""Draws a legend's mark at a index."""


@dataclass(frozen=True)
class Series:
    """What a colour stands for; hatched where a second series has the same colour."""

    label: str
    colour: str
    hatched: bool = False

    @property
    def fill(self) -> dict[str, Any]:
        """How matplotlib fills a bar of this series."""
        if self.hatched:
            return {"facecolor": PAPER, "edgecolor": self.colour, "hatch": "////", "linewidth": 1.0}
        return {"facecolor": self.colour, "edgecolor": "none", "linewidth": 0.0}


def dashes(label: str) -> Any:
    """How a line is drawn, by what it means: the same in every figure."""
    return _DASHES.get(label, "solid")


class Sheet:
    """A figure that is filled from the top down; lengths are points from its upper left corner.

    The height is only known at the end, so `reserve` sets it, and places are computed after.
    """

    def __init__(self, title: str, description: str) -> None:
        with figure_style():
            from matplotlib.figure import Figure

            self.figure = Figure(figsize=(1, 1))
        describe(self.figure, title, description)
        self.y = MARGIN
        self.height = 0.0
        self._pending: list[tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]] = []
        for line in wrap(title, WIDTH, TITLE, lines=3, bold=True) if title else []:
            self._later(self.write, 0, self.y + TITLE * 0.65, line, size=TITLE, weight="bold")
            self.y += TITLE * _LINE
        self.y += 5

    def _later(self, function: Callable[..., None], *args: Any, **options: Any) -> None:
        self._pending.append((function, args, options))

    def reserve(self, height: float) -> None:
        """Fix the figure's height: `height` points follow what is there already."""
        self.height = self.y + height
        width = WIDTH + 2 * MARGIN
        self.figure.set_size_inches(width / 72, (self.height + MARGIN) / 72)
        for function, args, options in self._pending:
            function(*args, **options)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return (x + MARGIN) / (WIDTH + 2 * MARGIN), 1 - y / (self.height + MARGIN)

    def write(self, x: float, y: float, text: str, **options: Any) -> None:
        """Text at a index of the figure, its middle at `y`."""
        options = {"va": "center_baseline", "size": TEXT, **options}
        with figure_style():
            self.figure.text(*self._at(x, y), plain(text), **options)

    def line(self, x: Sequence[float], y: Sequence[float], axes: Axes) -> None:
        """A thin line; x in points, y in the axes' rows."""
        axes.plot(
            x, y, color=SOFT, linewidth=0.9, clip_on=False, transform=self._points_across(axes)
        )

    def _points_across(self, axes: Axes) -> Any:
        from matplotlib.transforms import Affine2D, blended_transform_factory

        across = Affine2D().translate(MARGIN, 0).scale(1 / (WIDTH + 2 * MARGIN), 1)
        return blended_transform_factory(across + self.figure.transFigure, axes.transData)

    def text(self, axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
        """Text in a row of the axes, at `x` points across the figure."""
        options = {"va": "center_baseline", "size": TEXT, **options}
        with figure_style():
            axes.text(x, y, plain(text), transform=self._points_across(axes), **options)

    def label(
        self, axes: Axes, y: float, text: str, width: float, right: float, **options: Any
    ) -> None:
        """A row's name in one or two lines, at the left."""
        lines = wrap(text, width, TEXT, bold=options.get("weight") == "bold")
        if lines[-1].endswith("…"):
            options["gid"] = tip(text)
        for index, line in enumerate(lines):
            self.text(axes, 0, y + (index - (len(lines) - 1) / 2) * TEXT * 1.15, line, **options)

    def place(self, left: float, right: float, y: float, height: float) -> Axes:
        """Axes of a given index, whose y counts points from its top."""
        x0, y0 = self._at(left, y + height)
        x1, y1 = self._at(right, y)
        with figure_style():
            axes = self.figure.add_axes((x0, y0, x1 - x0, y1 - y0))
        axes.set_ylim(height, 0)
        axes.set_yticks([])
        return axes

    def axes(
        self,
        height: float,
        left: float,
        right: float,
        axis: str = "",
        *,
        ends: tuple[str, str] | None = None,
        footnote: str = "",
    ) -> Axes:
        """The one axes of a figure, with what stands above and below it."""
        if ends:
            self.y += 2
            for x, text, side in ((left, f"← {ends[0]}", "left"), (right, f"{ends[1]} →", "right")):
                self._later(self.write, x, self.y + 5, text, size=SMALL, color=SOFT, ha=side)
            self.y += 14
        top, below = self.y, self.y + height
        if axis:
            below += 15
            for line in wrap(axis, WIDTH, SMALL + 0.5):
                half = text_width(line, SMALL + 0.5) / 2
                middle = min(max((left + right) / 2, half), WIDTH - half)
                self._later(
                    self.write, middle, below + 6, line, size=SMALL + 0.5, color=SOFT, ha="center"
                )
                below += 11.5
        for line in wrap(footnote, WIDTH, SMALL, lines=4) if footnote else []:
            self._later(self.write, 0, below + 9, line, size=SMALL, color=SOFT)
            below += 10.5
        self.reserve(below + 2 - self.y)
        return self.place(left, right, top, height)

    def _entries(
        self, entries: Sequence[tuple[Callable[[float, float], None], str, float]]
    ) -> None:
        """A legend: marks of a width and their names, in as many lines as needed."""
        x = 0.0
        for draw, name, mark in entries:
            (text,) = wrap(name, WIDTH - mark - 5, TEXT - 0.5, lines=1)
            width = mark + 5 + text_width(text, TEXT - 0.5)
            if x and x + width > WIDTH:
                x, self.y = 0.0, self.y + 14
            self._later(draw, x, self.y + 6)
            self._later(self.write, x + mark + 5, self.y + 6, text, size=TEXT - 0.5)
            x += width + 14
        self.y += 17 if entries else 0

    def _artist(self, x: float, y: float, mark: float, **options: Any) -> None:
        from matplotlib.lines import Line2D

        points = [self._at(x, y), self._at(x + mark, y)][: 2 if mark else 1]
        xs, ys = zip(*points, strict=True)
        self.figure.add_artist(Line2D(xs, ys, **options))

    def legend(self, series: Sequence[Series], guess: str = "", *, dots: bool = False) -> None:
        """The series' colours and names, as swatches or dots, and the tick of a guess."""
        from matplotlib.patches import Rectangle

        def dot(kind: Series) -> _Mark:
            style = dot_style(not kind.hatched, kind.colour)
            return lambda x, y: self._artist(x + 5, y, 0, linestyle="none", **style)

        def swatch(kind: Series) -> _Mark:
            def draw(x: float, y: float) -> None:
                low, high = self._at(x, y + 4.5), self._at(x + 11, y - 4.5)
                size = high[0] - low[0], high[1] - low[1]
                with figure_style():
                    self.figure.add_artist(Rectangle(low, *size, **kind.fill))

            return draw

        entries = [((dot if dots else swatch)(kind), kind.label, 11.0) for kind in series]
        if guess:
            entries.append((lambda x, y: self._artist(x + 5, y, 0, **GUESS), guess, 10.0))
        self._entries(entries)

    def _diamond(self, x: float, y: float) -> None:
        self._artist(x + 5, y, 0, **DIAMOND)

    def key(self, value: str, reference: str, lines: Sequence[str], *, show_value: bool) -> None:
        """What points, diamonds and lines are."""

        def point(x: float, y: float) -> None:
            self._artist(x, y, 18, color=SERIES[0], linewidth=1.3)
            self._artist(x + 9, y, 0, marker="o", markersize=6, color=SERIES[0], linestyle="none")

        def dashed(label: str) -> _Mark:
            style = dashes(label)
            return lambda x, y: self._artist(x, y, 18, color=SOFT, linewidth=1.0, linestyle=style)

        entries: list[tuple[_Mark, str, float]] = [(point, value, 18.0)] if show_value else []
        if reference:
            entries.append((self._diamond, reference, 10.0))
        entries += [(dashed(name), name, 18.0) for name in lines]
        self._entries(entries)

    def dots(self, names: Sequence[tuple[bool, str]]) -> None:
        """What filled and hollow points mean."""

        def dot(filled: bool) -> _Mark:
            return lambda x, y: self._artist(x + 4, y, 0, linestyle="none", **dot_style(filled))

        self._entries([(dot(filled), name, 8.0) for filled, name in names])


DIAMOND: dict[str, Any] = {
    "marker": "D", "markersize": 5.0, "markerfacecolor": PAPER, "markeredgecolor": INK,
    "markeredgewidth": 1.1, "linestyle": "none",
}  # fmt: skip
"""A published value."""
GUESS: dict[str, Any] = {
    "marker": "|", "markersize": 9.0, "markerfacecolor": SOFT, "markeredgecolor": SOFT,
    "markeredgewidth": 1.8,
    "linestyle": "none",
}  # fmt: skip
"""What guessing reaches."""


def dot_style(filled: bool, colour: str = SERIES[0]) -> dict[str, Any]:
    """A filled or a hollow point."""
    return {
        "marker": "o", "markersize": 6.0, "markeredgewidth": 1.3, "markeredgecolor": colour,
        "markerfacecolor": colour if filled else PAPER,
    }  # fmt: skip


MARKS = {
    "model": dot_style(True),
    "annotators": {**dot_style(True, INK), "marker": "s"},
    "guess": {key: value for key, value in GUESS.items() if key != "linestyle"},
}
"""A mark for each who scores, the same in every figure."""


@cache
def _advance(character: str, bold: bool) -> float:
    """How wide a character is, in font sizes."""
    import unicodedata
    import warnings

    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    font = FontProperties(family="DejaVu Sans", size=100, weight="bold" if bold else "normal")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        width = text_to_path.get_text_width_height_descent(f"|{character}|", font, ismath=False)[0]
        bars = text_to_path.get_text_width_height_descent("||", font, ismath=False)[0]
    return float(width - bars) / 100


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """The width of a text in DejaVu Sans, in points."""
    return size * sum(_advance(character, bold) for character in text)


def wrap(text: str, width: float, size: float, *, lines: int = 2, bold: bool = False) -> list[str]:
    """Text in lines of a width; what does not fit in so many lines ends in an ellipsis."""
    wrapped: list[str] = []
    rest = plain(text)
    while rest and len(wrapped) < lines:
        end = _fitting(rest, width, size, bold)
        if end < len(rest):
            space = rest.rfind(" ", 1, end + 1)
            end = space if space > 0 else end
        wrapped.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    if rest:
        last = f"{wrapped[-1]} {rest}"
        end = _fitting(last, width - text_width("…", size, bold=bold), size, bold)
        wrapped[-1] = last[:end].rstrip() + "…"
    return wrapped or [""]


def _fitting(text: str, width: float, size: float, bold: bool) -> int:
    """How many characters fit, at least one."""
    total = 0.0
    for index, character in enumerate(text):
        total += size * _advance(character, bold)
        if total > width and index:
            return index
    return len(text)


def name_width(names: Iterable[str], *, bold: bool = False) -> float:
    """The column of the names: wide enough for one line, else for two, up to a limit."""
    texts = [plain(name) for name in names]
    widest = max((text_width(text, TEXT, bold=bold) for text in texts), default=0.0)
    if widest <= 100.0:
        return max(widest + 1, 40.0)
    for width in (95.0, 110.0):
        if all(" ".join(wrap(text, width, TEXT, bold=bold)) == text for text in texts):
            return width
    return 125.0
