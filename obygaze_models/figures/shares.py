"""What a whole is made of, such as a film's clips of levels: a bar a row, in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_models.drawing.marks import (
    Scale,
    Series,
    axis_bottom,
    legend,
    swatch,
)
from obygaze_models.drawing.svg import (
    WIDTH,
    element,
    frame,
    label,
    number,
    text,
    text_width,
)
from obygaze_models.drawing.theme import INK, PAPER, SOFT

__all__ = ["Share", "shares", "stacked"]

LEFT = 178.0
ROOM = 50.0


@dataclass(frozen=True)
class Share:
    """A row: its parts from 0 to 1, and of how many clips they are.

    `key` names the numbers for who reads them back: ``key/part``, and ``key/n``. A row that is
    the `overall` one stands apart.
    """

    label: str
    parts: Sequence[float]
    count: int
    key: str = ""
    overall: bool = False


def shares(
    rows: Sequence[Share],
    parts: Sequence[Series],
    *,
    title: str,
    axis: str,
    description: str,
    count: str = "clips",
) -> str:
    """Draw each row as a bar of its parts; `count` names the numbers after the bars."""
    scale = Scale(0.0, 1.0, LEFT, WIDTH - ROOM)
    heading, y = legend(parts, 2)
    drawn = [heading, text(WIDTH, y + 11, count, size=11.5, fill=SOFT, anchor="end")]
    y += 18
    for row in rows:
        weight = "600" if row.overall else None
        drawn.append(label(0, y + 11, row.label, LEFT - 14, weight=weight))
        drawn.append(stacked(row.parts, parts, scale, y, 22, row.label, row.key))
        drawn.append(
            text(
                WIDTH,
                y + 15.5,
                f"{row.count:,}",
                size=12,
                anchor="end",
                weight=weight,
                data_value=repr(row.count),
                data_key=f"{row.key}/n" if row.key else None,
            )
        )
        y += 42 if row.overall else 31
    below, y = axis_bottom(scale, y - 4, axis, percent=True)
    return frame(title, description, y, "".join(drawn) + below)


def stacked(
    values: Sequence[float],
    parts: Sequence[Series],
    scale: Scale,
    y: float,
    height: float,
    name: str,
    key: str,
) -> str:
    """A bar in parts, each with its share where it is wide enough for it."""
    drawn, before = [], 0.0
    for value, part in zip(values, parts, strict=True):
        left, right = scale.at(before), scale.at(before + value)
        said = number(value, percent=True)
        drawn.append(
            swatch(
                left,
                y,
                right - left,
                height,
                part,
                value=value,
                key=f"{key}/{part.label}" if key else "",
                tip=f"{name}, {part.label}: {said}",
            )
        )
        if before:
            # The seam is a line upon the bar, so that each part keeps its true width.
            drawn.append(
                element(
                    "line", x1=left, x2=left, y1=y, y2=y + height, stroke=PAPER, stroke_width=1.4
                )
            )
        if right - left >= text_width(said, 11.5) + 7:
            drawn.append(
                text(
                    (left + right) / 2,
                    y + height / 2 + 4,
                    said,
                    size=11.5,
                    fill=INK if part.hatched else PAPER,
                    anchor="middle",
                    halo=part.hatched,
                )
            )
        before += value
    return "".join(drawn)
