"""The drawings of figure 5 (the first questions of a tree) and figure 6 (factors of errors)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.figures import (
    PAPER,
    add_number,
    describe,
    figure_style,
    figure_width,
    ink_on,
    wrap,
)
from obygaze_features.common.text import format_number
from obygaze_models.figures.dots import Dot, Series, dot_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obygaze_models.estimators.trees import TreeArrays
    from obygaze_models.explain.error_factors import FilmFactors

DEPTH = 4
"""The number of levels of a tree to show."""
WIDTH_IN, ROW, HEAD = 4.6, 16.0, 90.0
"""The usual width of a tree, and the heights of a node and of the title, in points."""


class Node(NamedTuple):
    """A tree's node, with the condition that leads to it, and the path of all conditions."""

    number: int
    level: int
    concept: str = "all clips"
    limit: str = ""
    path: str = ""


def first_nodes(head: TreeArrays, concepts: Sequence[str], depth: int) -> list[Node]:
    """Return the nodes of the first levels in preorder; "not above" comes before "above"."""
    nodes: list[Node] = []
    waiting = [Node(0, 0)]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        if head.left[node.number] == -1 or node.level + 1 == depth:
            continue
        name = concepts[head.feature[node.number]]
        threshold = f"{float(head.threshold[node.number]):.3g}".replace("-", "−")
        for side, sign, children in (("above", ">", head.right), ("not above", "≤", head.left)):
            child, path = int(children[node.number]), f"{node.path}{name} {side}: "
            waiting.append(Node(child, node.level + 1, name, f" {sign} {threshold}", path))
    return nodes


def count_visits(head: TreeArrays, values: NDArray[Any]) -> NDArray[Any]:
    """Count the clips that reach each node, where `values` has the clips' scores [N, concepts]."""
    sums = np.bincount(head.apply(values), minlength=len(head.left))
    for node in reversed(np.flatnonzero(head.left != -1)):  # children come after their parents
        sums[node] += sums[head.left[node]] + sums[head.right[node]]
    return sums


def tree_outline(
    head: TreeArrays,
    concepts: Sequence[str],
    classes: Sequence[Series],
    *,
    title: str,
    description: str,
    counts: NDArray[Any],
    count: str,
    depth: int = DEPTH,
) -> Figure:
    """Draw the first levels of a decision tree: a row per node, with the classes of its clips.

    Parameters
    ----------
    head
        The tree. The bars show each node's shares of the classes in training.
    concepts
        The names of the tree's columns.
    classes
        The names and colours of the tree's classes.
    title, description
        The figure's title, and a description for those who cannot see it.
    counts
        The number of clips that reach each node, from `count_visits`.
    count
        The noun for what `counts` counts, such as "test clips".
    depth
        The number of levels to draw, including the root.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    width = figure_width(WIDTH_IN)
    nodes = first_nodes(head, concepts, depth)
    names, numbers = [], []
    for node in nodes:
        indent = "  " * node.level
        (concept,) = wrap(node.concept, 0.24 * 72 * width, 8, 1)
        names.append(f"{indent}{concept}{node.limit}")
        numbers.append(f"{int(counts[node.number]):,}")
    with figure_style():
        height = (ROW * len(nodes) + HEAD) / 72
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        describe(figure, title, description)
        _draw_shares(axes, head, nodes, classes)
        rows = [*range(len(nodes))]
        axes.set_xlim(0, 1)
        axes.set_xticks([])
        axes.set_yticks(rows, names, ha="left")
        axes.tick_params(axis="y", pad=0.46 * 72 * width, labelsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("bars: training clips")
        beside = axes.secondary_yaxis("right")
        beside.spines["right"].set_visible(False)
        beside.set_yticks(rows, numbers)
        beside.set_ylabel(count)
        keys = [Patch(facecolor=kind.colour, linewidth=0, label=kind.label) for kind in classes]
        heading = "\n".join(wrap(title, 72 * width - 20, 12.6, 3))
        bold = {"size": 11, "weight": "bold"}
        figure.legend(
            handles=keys,
            loc="outside upper left",
            ncols=2,
            alignment="left",
            title=heading,
            title_fontproperties=bold,
        )
    return figure


def _draw_shares(
    axes: Axes, head: TreeArrays, nodes: Sequence[Node], classes: Sequence[Series]
) -> None:
    """Draw each node's shares of the classes as a bar, with the large ones printed on it."""
    left = np.zeros(len(nodes))
    for place, kind in enumerate(classes):
        shares = head.value[[node.number for node in nodes], place]
        bars = axes.barh(range(len(nodes)), shares, left=left, color=kind.colour, edgecolor=PAPER)
        texts = [format_number(float(share), percent=True) for share in shares]
        shown = np.where(shares >= 0.25, texts, "").tolist()
        axes.bar_label(bars, shown, label_type="center", color=ink_on(kind.colour), size=9)
        for node, text in zip(nodes, texts, strict=True):
            add_number(axes, f"{node.concept}{node.limit}, {kind.label}: {text}")
        left += shares


def error_factors(
    films: Sequence[FilmFactors], titles: Mapping[str, str], *, title: str, description: str
) -> Figure:
    """Draw the factors of errors as in the paper: a heading per film, with a row per factor.

    Parameters
    ----------
    films
        The result of `obygaze_models.explain.error_factors`.
    titles
        The films' titles.
    title, description
        The figure's title, and a description for those who cannot see it.
    """
    rows: list[tuple[str, list[Dot]]] = []
    for film in films:
        name = "All films" if film.film is None else titles.get(film.film, film.film)
        rows.append((f"{name}: {film.wrong:,} of {film.clips:,} wrong", []))
        for factor in () if film.too_few else film.factors:
            rows.append((factor.name, [Dot(factor.coefficient, factor.low, factor.high)]))
    return dot_plot(
        rows,
        [Series("coefficient")],
        title=title,
        axis="← more often right | more often wrong →",
        description=description,
        lines={"no change": 0.0},
        signed=True,
    )
