"""Figure 5: the first questions of the bottlenecks' decision trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from obygaze_features.common.formatting import format_number
from obygaze_models.figures.dots import Dot, Series, dot_plot
from obygaze_models.saved.model import load_model
from obygaze_models.studies.reproduce.context import Part, ReproductionContext, Runs
from obygaze_models.studies.reproduce.render import Artifacts, Block, Line, Table
from obygaze_models.studies.reproduce.table2 import HEADS, READINGS, plan_bottlenecks

if TYPE_CHECKING:
    from obygaze_models.estimators.trees import TreeArrays

DEPTH = 4
"""The number of levels of a tree to show."""
COLUMNS = ["threshold", "share of S where not above", "share of S where above"]


def plan_trees(context: ReproductionContext) -> Iterator[Part]:
    """Yield the bottlenecks for the first available setting."""
    for setting in context.settings[:1]:
        yield from plan_bottlenecks("all trees", setting)


def make_figure5(context: ReproductionContext, runs: Runs) -> Artifacts:
    """Tabulate and draw the trees for both readings and both training sets."""
    setting = context.settings[0]
    blocks = []
    figures = {}
    for (folder, run), reading in product(runs.items(), READINGS):
        level = folder.rpartition("-")[2]
        name = f"{HEADS['tree'][1]}, {reading}"
        saved = next(row for row in run.saved if row["model"] == name)
        model = load_model(saved["folder"]).estimator
        head = model.head_
        concepts = list(map(str, model.bank_.get_feature_names_out()))
        title = f"{level} against S, {READINGS[reading]['title']}"
        lines = []
        rows = []
        for node in first_nodes(head, concepts):
            place = ".".join(node.steps)
            rows.append((f"{place} {node.condition}", [Dot(head.value[node.number, 1])]))
            if node.question:
                children = head.left[node.number], head.right[node.number]
                numbers = [
                    head.threshold[node.number],
                    *(head.value[child, 1] for child in children),
                ]
                values = dict(zip(COLUMNS, map(float, numbers), strict=True))
                lines.append(Line(f"{node.path}{node.question}", "ours", values))
        about = f"{title}; {setting.key}, run {saved['fit']}"
        blocks.append(Block(about, setting.protocol, "threshold", lines))
        figures[f"fig5-{reading}-{level}"] = dot_plot(
            rows,
            [Series("Sure")],
            title=f"{title}; {setting.key} protocol{context.title_suffix}",
            axis="share of Sure clips among the training clips that reach the node",
            description="The first questions of the tree, and the share of Sure training clips.",
            limits=(0, 1),
        )
    return Artifacts([Table(COLUMNS, blocks)], figures, {"setting": setting.title})


class Node(NamedTuple):
    """A tree's node.

    `steps` are the turns from the root, 1 for "not above" and 2 for "above". `condition` is the
    last of them, and `path` has all. `question` is the concept that the node asks about; "" if its
    children are not shown.
    """

    number: int
    steps: str
    condition: str
    path: str
    question: str


def first_nodes(
    head: TreeArrays,
    concepts: Sequence[str],
    number: int = 0,
    steps: str = "",
    condition: str = "all clips",
    path: str = "",
) -> Iterator[Node]:
    """Yield the nodes of the first levels in preorder; "not above" comes before "above"."""
    if head.left[number] == -1 or len(steps) == DEPTH - 1:
        yield Node(number, steps, condition, path, "")
        return
    concept = concepts[head.feature[number]]
    limit = format_number(head.threshold[number], ".3g")
    yield Node(number, steps, condition, path, concept)
    for step, side, sign, children in (
        ("1", "not above", "≤", head.left),
        ("2", "above", ">", head.right),
    ):
        yield from first_nodes(
            head,
            concepts,
            int(children[number]),
            steps + step,
            f"{concept} {sign} {limit}",
            f"{path}{concept} {side}: ",
        )
