"""A decision tree as an outline: a row a node, its condition, its clips and their classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import counted
from obygaze_models.drawing.marks import (
    Scale,
    Series,
    legend,
)
from obygaze_models.drawing.svg import (
    WIDTH,
    element,
    frame,
    text,
    text_width,
    wrap,
)
from obygaze_models.drawing.theme import SOFT
from obygaze_models.estimators.trees import TreeArrays
from obygaze_models.figures.shares import stacked

__all__ = ["tree", "visits"]

INDENT = 20.0
ROW = 30.0
BAR = 150.0


@dataclass(frozen=True)
class _Row:
    """A node, its parent's place among the rows, and how many questions follow that are cut.

    Its condition is a concept and a `limit`, such as "> 0.3".
    """

    node: int
    depth: int
    parent: int
    concept: str
    limit: str
    threshold: float | None
    below: int


def tree(
    head: TreeArrays,
    concepts: Sequence[str],
    classes: Sequence[Series],
    *,
    title: str,
    description: str,
    depth: int = 4,
    counts: NDArray[Any] | None = None,
    count: str = "clips",
    key: str = "",
) -> str:
    """Draw the first levels of a tree.

    Parameters
    ----------
    head
        The tree; the classes' shares in a node are those of its training clips.
    concepts
        The names of its columns.
    classes
        The names and colours of its classes.
    title, description
        The figure's name, and what is seen, for those who cannot see it.
    depth
        How many levels, the root's counted.
    counts
        How many clips came to each node, from `visits`.
    count
        What these are, such as "test clips".
    key
        Names the numbers for who reads them back: ``key/node/threshold``, ``key/node/n`` and
        ``key/node/class``.
    """
    heading, y = legend(classes, 2)
    scale = Scale(0.0, 1.0, WIDTH - BAR, WIDTH)
    numbers = WIDTH - BAR - 12
    words = numbers - (max(40.0, text_width(count, 11.5)) + 8 if counts is not None else 0)
    parts = [heading, text(scale.left, y + 11, "training clips", size=11.5, fill=SOFT)]
    if counts is not None:
        parts.append(text(numbers, y + 11, count, size=11.5, fill=SOFT, anchor="end"))
    y += 18
    rows = _rows(head, concepts, depth)
    middles: list[float] = []
    for row in rows:
        tall = ROW + (10 if row.below else 0)
        middle, x = y + tall / 2, INDENT * row.depth
        middles.append(middle)
        y += tall
        name = f"{key}/{row.node}" if key else ""
        if row.depth:
            parts.append(_branch(x, middles[row.parent] + 10, middle))
        parts.append(_condition(row, x, middle, words, name))
        if counts is not None:
            said = int(counts[row.node])
            parts.append(
                text(
                    numbers,
                    middle + 4.5,
                    f"{said:,}",
                    size=12,
                    anchor="end",
                    data_value=repr(said),
                    data_key=f"{name}/n" if name else None,
                )
            )
        shares = [float(share) for share in head.value[row.node]]
        parts.append(
            stacked(shares, classes, scale, middle - 10, 20, row.concept + row.limit, name)
        )
    return frame(title, description, y + 4, "".join(parts))


def visits(head: TreeArrays, Z: NDArray[Any]) -> NDArray[Any]:
    """How many of the clips, by what they measure [N, concepts], come to each node."""
    counts = np.bincount(head.apply(Z), minlength=len(head.left))
    for node in reversed(np.flatnonzero(head.left != -1)):  # children come after their parents
        counts[node] = counts[head.left[node]] + counts[head.right[node]]
    return counts


def _rows(head: TreeArrays, concepts: Sequence[str], depth: int) -> list[_Row]:
    """The nodes of the first levels, each after its parent, what is not above first."""
    below = np.zeros(len(head.left), dtype=np.int64)
    for node in reversed(np.flatnonzero(head.left != -1)):
        below[node] = 1 + below[head.left[node]] + below[head.right[node]]
    rows: list[_Row] = []
    waiting = [_Row(0, 0, -1, "all clips", "", None, int(below[0]))]
    while waiting:
        row = waiting.pop()
        cut = row.depth + 1 == depth
        rows.append(row if cut else replace(row, below=0))
        if cut or not row.below:
            continue
        at = float(head.threshold[row.node])
        asked, said = concepts[int(head.feature[row.node])], f"{at:.3g}".replace("-", "−")
        for sign, children in ((">", head.right), ("≤", head.left)):
            child, limit = int(children[row.node]), f" {sign} {said}"
            waiting.append(
                _Row(child, row.depth + 1, len(rows) - 1, asked, limit, at, int(below[child]))
            )
    return rows


def _branch(x: float, top: float, middle: float) -> str:
    return element(
        "path",
        d=f"M{x - 13:g} {top:g}V{middle:g}H{x - 4:g}",
        stroke=SOFT,
        stroke_width=1.2,
        fill="none",
    )


def _condition(row: _Row, x: float, middle: float, words: float, name: str) -> str:
    more = f"… and {counted(row.below, 'more question')}" if row.below else ""
    whole = row.concept + row.limit
    # A long name is cut, never the number.
    (asked,) = wrap(row.concept, words - x - text_width(row.limit, 13), 13, lines=1)
    tip = whole if asked.endswith("…") else ""
    said = text(x, middle + 4.5 - (7 if more else 0), asked + row.limit, tip=tip)
    if more:
        said += text(x, middle + 13, more, size=11.5, fill=SOFT)
    if row.threshold is None:
        return said
    return element(
        "g",
        said,
        data_value=repr(row.threshold),
        data_key=f"{name}/threshold" if name else None,
    )
