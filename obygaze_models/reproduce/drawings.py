"""The drawings of figure 5 (the first questions of a tree) and figure 6 (factors of errors)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.figures import (
    NAMES,
    PAPER,
    SOFT,
    add_number,
    figure_style,
    ink_on,
    text_width,
    wrap,
)
from obygaze_features.common.text import counted, format_number
from obygaze_models.figures import sheet as draw
from obygaze_models.figures.dots import CLEARNESS
from obygaze_models.figures.sheet import ROW, SMALL, TEXT, Cell, Dot, Series, Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obygaze_models.estimators.trees import TreeArrays
    from obygaze_models.explain.error_factors import FilmFactors

DEPTH = 4
"""The number of levels of a tree to show."""
SIDES = {"more often right": "<", "more often wrong": ">"}
"""The meanings of coefficients left and right of 0, with their markers."""


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
    return _with_children(head, np.bincount(head.apply(values), minlength=len(head.left)))


def _with_children(head: TreeArrays, numbers: NDArray[Any]) -> NDArray[Any]:
    """Add to each node's number the numbers of all nodes below it."""
    sums = numbers.astype(np.int64)
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
    from matplotlib.patches import Patch

    nodes, questions = first_nodes(head, concepts, depth), _with_children(head, head.left != -1)
    small: dict[str, Any] = {"size": SMALL, "color": SOFT}
    names, numbers, y = list[Cell](), [Cell(0, count, small)], 1.5 * ROW
    keys = [Patch(facecolor=kind.colour, linewidth=0, label=kind.label) for kind in classes]
    bars = []
    for node in nodes:
        indent = "  " * node.level
        room = 0.55 * draw.sheet_width() - text_width(indent + node.limit, TEXT)
        (name,) = wrap(node.concept, room, TEXT, 1)  # cut a long name, never the number
        names.append(Cell(y, f"{indent}{name}{node.limit}"))
        numbers.append(Cell(y, f"{int(counts[node.number]):,}"))
        bars.append((y, node))
        below = int(questions[node.number])
        if below and node.level + 1 == depth:
            y += ROW
            names.append(Cell(y, f"{indent}… and {counted(below, 'more question')}", small))
        y += 1.5 * ROW
    sheet = Sheet(title, description, y, keys=keys, footnote="Bars: training clips.")
    sheet.axes.set_xlim(0, 1)
    sheet.axes.set_axis_off()
    sheet.name_rows(names)
    sheet.add_column(numbers)
    for y, node in bars:
        _draw_stack(sheet.axes, head.value[node.number], classes, y, node.concept + node.limit)
    return sheet.draw()


def _draw_stack(
    axes: Axes, shares: NDArray[Any], classes: Sequence[Series], y: float, name: str
) -> None:
    """Draw a stacked bar of shares. Numbers are printed on parts that are wide enough."""
    left = 0.0
    for share, kind in zip(map(float, shares), classes, strict=True):
        style: Any = {"height": 1.2 * ROW, "color": kind.colour, "edgecolor": PAPER}
        with figure_style():
            axes.barh(y, share, left=left, zorder=3, **style)
        text = format_number(share, percent=True)
        add_number(axes, f"{name}, {kind.label}: {text}")
        if share >= 0.25:
            draw.write_in(axes, left + share / 2, y, text, ink_on(kind.colour), bbox=None)
        left += share


def error_factors(
    films: Sequence[FilmFactors], titles: Mapping[str, str], *, title: str, description: str
) -> Figure:
    """Draw the factors of errors as in the paper: a panel per film, with a row per factor.

    Parameters
    ----------
    films
        The result of `obygaze_models.explain.error_factors`.
    titles
        The films' titles.
    title, description
        The figure's title, and a description for those who cannot see it.
    """
    factors = next(([f.name for f in film.factors] for film in films if film.factors), [])
    ends = [v for film in films for f in film.factors for v in (f.coefficient, f.low, f.high)]
    reach = 1.05 * max((abs(v) for v in ends if draw.is_defined(v)), default=1.0)
    columns = min(max(1, int(draw.sheet_width() / 150)), len(films)) or 1
    room = max(NAMES * draw.sheet_width(), 122.0)
    panel = (draw.sheet_width() - room) / columns
    labels = ["All films" if f.film is None else titles.get(f.film, f.film) for f in films]
    keys = [
        *(kind.key for kind in CLEARNESS),
        *(draw.key(name, **draw.point(shape, 5.0, SOFT, SOFT)) for name, shape in SIDES.items()),
    ]
    figure = draw.new_figure(title, description, keys)
    height = ROW * max(len(factors), 4)
    with figure_style():
        shape = math.ceil(len(films) / columns) or 1, columns
        grid = figure.subplots(*shape, squeeze=False, sharey=True).ravel()
    names = ["\n".join(wrap(name, room, SMALL, 1)) for name in factors]
    grid[0].set_yticks([ROW * (row + 0.5) for row in range(len(factors))], names)
    grid[0].set_ylim(height, 0)
    small: Any = {"textcoords": "offset points", "size": SMALL, "color": SOFT}
    for axes, film, label in zip(grid, films, labels, strict=False):
        axes.tick_params(axis="y", labelsize=SMALL)
        heading = "\n".join(wrap(label, panel, 1.15 * TEXT, 3))
        axes.set_title(heading, loc="left", size=TEXT, weight="bold", pad=17)
        wrong = f"{film.wrong:,}/{film.clips:,} wrong"
        axes.annotate(wrong, (0, 1), (0, 4), xycoords="axes fraction", **small)
        if film.too_few:
            axes.set_axis_off()
            lines = "\n".join(wrap(film.too_few, panel, SMALL, 5))
            axes.annotate(lines, (0, 1), (0, -12), xycoords="axes fraction", va="top", **small)
        else:
            _draw_factors(axes, film, label, reach)
    for axes in grid[len(films) or 1 :]:
        axes.remove()
    return draw.fit(figure, grid[0], height, shape[0])


def _draw_factors(axes: Axes, film: FilmFactors, label: str, reach: float) -> None:
    """Draw a film's factors, one per row."""
    draw.scale_x(axes, [], (-reach, reach))
    axes.axvline(0, color=SOFT, linewidth=1.0, zorder=1)
    for index, factor in enumerate(film.factors):
        middle = ROW * (index + 0.5)
        if factor.coefficient is None:
            draw.write_in(axes, 0, middle, "every clip" if factor.clips else "no clip", SOFT)
            continue
        dot = Dot(factor.coefficient, factor.low, factor.high)
        draw.draw_dot(axes, dot, middle, CLEARNESS[dot.is_clear].dot, f"{label}, {factor.name}")
