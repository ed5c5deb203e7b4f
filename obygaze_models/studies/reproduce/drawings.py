"""The drawing of figure 5: the first questions of a decision tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.figures import (
    PAPER,
    describe,
    figure_style,
    figure_width,
    ink_on,
    wrap,
)
from obygaze_features.common.formatting import format_number
from obygaze_models.figures.dots import WIDTH_IN, Series, add_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from obygaze_models.estimators.trees import TreeArrays

DEPTH = 4
"""The number of levels of a tree to show."""
ROW = 16.0
HEAD = 90.0
"""The heights of a node and of the title, in points."""


class Node(NamedTuple):
    """A tree's node, with the condition that leads to it, and the path of all conditions.

    `clips` has the concept scores of the clips that reach the node.
    """

    number: int
    level: int
    clips: NDArray[Any]
    concept: str = "all clips"
    limit: str = ""
    path: str = ""


def first_nodes(head: TreeArrays, concepts: Sequence[str], clips: NDArray[Any]) -> list[Node]:
    """Return the nodes of the first levels in preorder; "not above" comes before "above".

    Parameters
    ----------
    head, concepts
        The tree, and the names of its columns.
    clips
        The clips' scores [N, concepts].
    """
    nodes: list[Node] = []
    waiting = [Node(0, 0, clips.astype(np.float32))]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        if head.left[node.number] == -1 or node.level + 1 == DEPTH:
            continue
        column = head.feature[node.number]
        threshold = head.threshold[node.number]
        is_below = node.clips[:, column] <= threshold
        limit = format_number(threshold, ".3g")
        for side, sign, children, rows in (
            ("above", ">", head.right, ~is_below),
            ("not above", "≤", head.left, is_below),
        ):
            waiting.append(
                Node(
                    int(children[node.number]),
                    node.level + 1,
                    node.clips[rows],
                    concepts[column],
                    f" {sign} {limit}",
                    f"{node.path}{concepts[column]} {side}: ",
                )
            )
    return nodes


def tree_outline(
    head: TreeArrays,
    nodes: Sequence[Node],
    classes: Sequence[Series],
    *,
    title: str,
    description: str,
) -> Figure:
    """Draw the first levels of a decision tree: a row per node, with the classes of its clips.

    Parameters
    ----------
    head
        The tree. The bars show each node's shares of the classes in training.
    nodes
        The nodes to draw, from `first_nodes`.
    classes
        The names and colours of the tree's classes.
    title, description
        The figure's title, and a description for those who cannot see the figure.
    """
    from matplotlib.figure import Figure

    width = figure_width(WIDTH_IN)
    rows = range(len(nodes))
    names = []
    for node in nodes:
        (concept,) = wrap(node.concept, 0.24 * 72 * width, 8, 1)
        names.append("  " * node.level + concept + node.limit)
    with figure_style():
        height = (ROW * len(nodes) + HEAD) / 72
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        marks = [description]
        left = np.zeros(len(nodes))
        for place, kind in enumerate(classes):
            shares = head.value[[node.number for node in nodes], place]
            bars = axes.barh(
                rows,
                shares,
                left=left,
                color=kind.colour,
                edgecolor=PAPER,
                label=kind.label,
            )
            texts = [format_number(share, ".0%") for share in shares]
            shown = np.where(shares >= 0.25, texts, "")
            axes.bar_label(bars, shown, label_type="center", color=ink_on(kind.colour), size=9)
            for node, text in zip(nodes, texts, strict=True):
                marks.append(f"{node.concept}{node.limit}, {kind.label}: {text}")
            left += shares
        axes.set_xlim(0, 1)
        axes.set_xticks([])
        axes.set_yticks(rows, names, ha="left")
        axes.tick_params(axis="y", pad=0.46 * 72 * width, labelsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("bars: training clips")
        beside = axes.secondary_yaxis("right")
        beside.spines["right"].set_visible(False)
        beside.set_yticks(rows, [f"{len(node.clips):,}" for node in nodes])
        beside.set_ylabel("test clips")
        add_legend(figure, axes, (), wrap(title, 72 * width - 20, 12.6, 3))
        describe(figure, title, *marks)
    return figure
