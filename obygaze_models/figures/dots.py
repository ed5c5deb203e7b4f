"""A dot plot: a row for each name, with a dot, its interval and its number for each series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obygaze_features.common.figures import (
    INK,
    PAPER,
    SERIES,
    SOFT,
    describe,
    figure_style,
    figure_width,
    level_colours,
    wrap,
)
from obygaze_features.common.formatting import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 4.6
"""The usual width of a figure, in inches."""
ROW = 15.0
EDGES = 50.0
"""The heights of a row or a line of text, and of the ticks and margins, in points."""
GAP = 0.3
"""The gap below the rows of a name, in rows."""
LINES = ("-", "--", ":")


@dataclass(frozen=True)
class Dot:
    """A value (None if it is undefined) and its interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A series of dots. A hollow series can share the colour of a filled one."""

    label: str
    colour: str = SERIES[0]
    marker: str = "o"
    hollow: bool = False

    @property
    def style(self) -> dict[str, Any]:
        """Matplotlib's options for the dots of this series."""
        return {
            "fmt": self.marker,
            "color": self.colour,
            "mfc": PAPER if self.hollow else self.colour,
            "ms": 6,
            "capsize": 2.5,
        }


PUBLISHED = Series("published", SOFT, "D", hollow=True)
"""The series of published numbers."""


def level_series(names: Mapping[str, str]) -> list[Series]:
    """Return a series for each level (code -> name), in the level's colour."""
    colours = level_colours([*names])
    return [Series(name, colour) for name, colour in zip(names.values(), colours, strict=True)]


def numbered_series(names: Sequence[str]) -> list[Series]:
    """Return a series for each name. If colours run out, they repeat with hollow dots."""
    size = len(SERIES)
    series = []
    for number, name in enumerate(names):
        colour = SERIES[number % size]
        series.append(Series(name, colour, hollow=number >= size))
    return series


def dot_plot(
    rows: Sequence[tuple[str, Sequence[Dot]]],
    series: Sequence[Series],
    *,
    title: str,
    axis: str,
    description: str,
    lines: Mapping[str, float] = {},
    limits: tuple[float, float] | None = None,
    form: str = ".2f",
) -> Figure:
    """Draw rows of dots with their intervals, and their numbers at the right edge.

    Parameters
    ----------
    rows
        Each row's name, and its dots in the order of `series`. A name without dots is a heading.
    series
        The names, colours and markers of the dots.
    title, axis, description
        The figure's title, what is measured, and a description for those who cannot see the figure.
    lines
        Values to compare with, such as chance, by name.
    limits
        The ends of the axis.
    form
        The format of the numbers: ``"+.2f"`` for differences.
    """
    with figure_style():
        from matplotlib.figure import Figure

        width = figure_width(WIDTH_IN)
        names = []
        sizes = []
        for name, dots in rows:
            wrapped = wrap(name, 0.4 * 72 * width, 9.5, 3)
            names.append(wrapped)
            sizes.append(max(len(dots), len(wrapped)))
        measure = wrap(axis, 0.6 * 72 * width, 9.4, 4)
        heading = wrap(title, 72 * width - 20, 12.6, 3)
        keys = len(lines)
        if len(series) > 1:
            keys += len({line.label for line in series})
        texts = len(measure) + len(heading) + keys
        height = ROW * (sum(sizes) + GAP * len(rows) + texts) + EDGES
        figure = Figure(figsize=(width, height / 72), layout="constrained")
        axes = figure.add_subplot()
        marks = [description]
        ticks = []
        y = 0.0
        numbers = {}
        for (name, dots), size in zip(rows, sizes, strict=True):
            ticks.append(y + (size - 1) / 2)
            for place, (dot, line) in enumerate(zip(dots, series, strict=False)):
                if dot.value is not None:
                    text = format_number(dot.value, form)
                    numbers[y + place] = text
                    _draw(axes, dot.value, dot, y + place, line)
                    marks.append(f"{name}, {line.label}: {text}")
            y += size + GAP
        for (name, value), style in zip(lines.items(), LINES, strict=False):
            axes.axvline(value, color=SOFT, linewidth=1, linestyle=style, label=name, zorder=0)
        axes.set_yticks(ticks, ["\n".join(lines) for lines in names])
        for label, (_, dots) in zip(axes.get_yticklabels(), rows, strict=True):
            label.set_fontweight("normal" if dots else "bold")
        axes.set_ylim(y - 0.5, -0.7)
        axes.set_xlabel("\n".join(measure))
        if limits is not None:
            axes.set_xlim(*limits)
        axes.grid(axis="x")
        beside = axes.secondary_yaxis("right")
        beside.spines["right"].set_visible(False)
        beside.set_yticks([*numbers], [*numbers.values()], color=INK)
        add_legend(figure, axes, series, heading)
        describe(figure, title, *marks)
    return figure


def _draw(axes: Axes, value: float, dot: Dot, y: float, line: Series) -> None:
    """Draw a dot and its interval."""
    ends = None
    if dot.low is not None and dot.high is not None:
        ends = [[value - dot.low], [dot.high - value]]
    axes.errorbar([value], [y], xerr=ends, **line.style)


def add_legend(
    figure: Figure,
    axes: Axes,
    series: Sequence[Series],
    heading: Sequence[str],
) -> None:
    """Write the title, and the names of the series (if there are several) and of the lines."""
    handles: list[Any] = axes.get_legend_handles_labels()[0]
    if len(series) > 1:
        by_label = {line.label: line for line in series}
        for label, line in by_label.items():
            handles.append(axes.errorbar([], [], label=label, **line.style))
    figure.legend(
        handles=handles,
        loc="outside upper left",
        alignment="left",
        title="\n".join(heading),
        title_fontproperties={"size": 11, "weight": "bold"},
    )
