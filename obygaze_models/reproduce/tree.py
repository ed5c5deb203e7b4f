"""The first questions of a decision tree, with its clips as bars in parts: figure 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.figures import (
    SOFT,
    add_number,
    figure_style,
    ink_on,
    paper,
    text_width,
    wrap,
)
from obygaze_features.common.text import counted, format_number
from obygaze_models.figures.sheet import SMALL, TEXT, Series, Sheet, sheet_width, write_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obygaze_models.estimators.trees import TreeArrays


def tree_outline(
    head: TreeArrays,
    concepts: Sequence[str],
    classes: Sequence[Series],
    *,
    title: str,
    description: str,
    counts: NDArray[Any],
    count: str,
    depth: int = 4,
) -> Figure:
    """Draw the first levels of a decision tree: a row a node, with the classes of its clips.

    Parameters
    ----------
    head
        The tree; a node's shares of classes are those of its training clips.
    concepts
        The names of its columns.
    classes
        The names and colours of its classes.
    title, description
        The figure's title, and what is seen, for those who cannot see it.
    counts
        How many clips came to each node, from `count_visits`.
    count
        What these are, such as "test clips".
    depth
        How many levels, the root included.
    """
    from matplotlib.patches import Patch

    row, indent, top = 23.0, 11.0, 14.0
    width = sheet_width()
    bar = min(width / 3, max(width - 200, 70))
    numbers = width - bar - 10
    room = numbers - max(34.0, text_width(count, SMALL)) - 8
    nodes = _tree_rows(head, concepts, depth)
    heights = [row + (8 if node.below else 0) for node in nodes]
    keys = [Patch(facecolor=kind.colour, linewidth=0, label=kind.label) for kind in classes]
    sheet = Sheet(title, description, top + sum(heights), keys=keys)
    axes = sheet.axes
    axes.set_xlim(0, width)  # points, as its y
    axes.set_axis_off()
    small: dict[str, Any] = {"size": SMALL, "color": SOFT}
    _write(axes, width - bar, 6, "training clips", **small)
    _write(axes, numbers, 6, count, ha="right", **small)
    y, middles = top, list[float]()
    for node, height in zip(nodes, heights, strict=True):
        middle, x = y + height / 2, indent * node.depth
        middles.append(middle)
        if node.depth:
            bend = [middles[node.parent] + 7, middle, middle]
            axes.plot([x - 10, x - 10, x - 3], bend, color=SOFT, linewidth=0.9)
        # A long name is cut, never the number.
        (name,) = wrap(node.concept, room - x - text_width(node.limit, TEXT), TEXT, 1)
        _write(axes, x, middle - (5 if node.below else 0), name + node.limit)
        if node.below:
            more = f"… and {counted(node.below, 'more question')}"
            _write(axes, x, middle + 6, *wrap(more, room - x, SMALL, 1), **small)
        _write(axes, numbers, middle, f"{int(counts[node.node]):,}", ha="right")
        shares = [float(share) for share in head.value[node.node]]
        _draw_stack(axes, bar, shares, classes, middle, node.concept + node.limit)
        y += height
    return sheet.draw()


def _write(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    with figure_style():
        axes.text(x, y, text, **{"va": "center_baseline", "size": TEXT, **options})


def count_visits(head: TreeArrays, values: NDArray[Any]) -> NDArray[Any]:
    """Count the clips, by their concept scores [N, concepts], that come to each node."""
    counts = np.bincount(head.apply(values), minlength=len(head.left))
    for node in reversed(np.flatnonzero(head.left != -1)):  # children come after their parents
        counts[node] = counts[head.left[node]] + counts[head.right[node]]
    return counts


def _draw_stack(
    axes: Axes, width: float, values: Sequence[float], parts: Sequence[Series], y: float, name: str
) -> None:
    """Draw a bar in parts at the right, each with its share where that fits."""
    left = axes.get_xlim()[1] - width
    for value, part in zip(values, parts, strict=True):
        style: Any = {"height": 16, "color": part.colour, "edgecolor": paper(), "linewidth": 1.0}
        with figure_style():
            axes.barh(y, value * width, left=left, zorder=3, clip_on=False, **style)
        text = format_number(value, percent=True)
        add_number(axes, f"{name}, {part.label}: {text}")
        if value * width >= text_width(text, SMALL) + 4:
            middle = left + value * width / 2
            write_in(axes, middle, y, text, ink_on(part.colour), bbox=None)
        left += value * width


class _TreeRow(NamedTuple):
    """A node, its parent's row, its condition (a concept and a limit), and questions cut below."""

    node: int
    depth: int
    parent: int
    concept: str
    limit: str
    below: int


def _tree_rows(head: TreeArrays, concepts: Sequence[str], depth: int) -> list[_TreeRow]:
    """Return the nodes of the first levels, each after its parent, "not above" first."""
    below = np.zeros(len(head.left), dtype=np.int64)
    for node in reversed(np.flatnonzero(head.left != -1)):
        below[node] = 1 + below[head.left[node]] + below[head.right[node]]
    rows: list[_TreeRow] = []
    waiting = [(0, 0, -1, "all clips", "")]
    while waiting:
        node, level, parent, concept, limit = waiting.pop()
        cut = level + 1 == depth
        rows.append(_TreeRow(node, level, parent, concept, limit, int(below[node]) if cut else 0))
        if below[node] and not cut:
            name = concepts[int(head.feature[node])]
            threshold = f"{float(head.threshold[node]):.3g}".replace("-", "−")
            for sign, children in ((">", head.right), ("≤", head.left)):
                child = int(children[node])
                waiting.append((child, level + 1, len(rows) - 1, name, f" {sign} {threshold}"))
    return rows
