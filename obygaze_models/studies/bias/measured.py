"""The result of a measure of bias, which is printed, or written as a table, JSON or a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obygaze_models.figures.dots import PUBLISHED, Dot, dot_plot, numbered_series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]


@dataclass(frozen=True)
class Drawing:
    """A drawing of rows as dots, whose intervals are the columns ``low`` and ``high``.

    Parameters
    ----------
    title, axis
        The figure's title, and the meaning of its axis.
    groups
        The columns whose texts name a row's group.
    value
        The column of the dot's number.
    series
        The column that names a row's dot, if a group has several dots.
    limits
        The ends of the axis; by default, Matplotlib's choice.
    """

    title: str
    axis: str
    groups: Sequence[str]
    value: str
    series: str = ""
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class Measured:
    """Rows of results, with other facts.

    Parameters
    ----------
    rows
        The results. None is an undefined number.
    drawing
        How to draw the rows.
    about
        Other facts and results.
    notes
        Warnings for the user.
    details
        Long results, which appear only in Python and in JSON.
    """

    rows: list[Row]
    drawing: Drawing
    about: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return all results as JSON values."""
        return {"rows": self.rows, **self.about, **self.details}

    def figure(self) -> Figure:
        """Draw a dot for each row, and another for its ``published_d``, if present."""
        drawing = self.drawing
        names = list(dict.fromkeys(row.get(drawing.series, "here") for row in self.rows))
        series = numbered_series(names)
        if any("published_d" in row for row in self.rows):
            series.append(PUBLISHED)
        groups: dict[str, list[Dot]] = {}
        for row in self.rows:
            words = dict.fromkeys(row[name] for name in drawing.groups if row.get(name))
            dots = groups.setdefault(" ".join(words), [Dot(None)] * len(series))
            dot = Dot(row[drawing.value], row.get("low"), row.get("high"))
            dots[names.index(row.get(drawing.series, "here"))] = dot
            if "published_d" in row:
                dots[-1] = Dot(row["published_d"])
        return dot_plot(
            [*groups.items()],
            series,
            title=drawing.title,
            axis=drawing.axis,
            limits=drawing.limits,
            description=drawing.title,
        )
