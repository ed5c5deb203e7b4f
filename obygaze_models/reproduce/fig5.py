"""Figure 5: the first questions of a bottleneck's decision tree."""

from __future__ import annotations

from typing import Any

from obygaze_features.common.package import reference_json
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.estimators.trees import TreeArrays
from obygaze_models.experiments.messages import notes, table_warnings
from obygaze_models.experiments.run_folder import Run, saved_models
from obygaze_models.figures.bars import count_visits, tree_outline
from obygaze_models.figures.dots import level_series
from obygaze_models.reproduce.context import ReproductionContext, Unavailable, target
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value
from obygaze_models.reproduce.table2 import READINGS, bottlenecks
from obygaze_models.saved.persistence import load_model

DEPTH = 4
COLUMNS = ["threshold", "share of S where not above", "share of S where above"]


@target("fig5", draws=True)
def fig5(context: ReproductionContext) -> Artifacts:
    """The trees of both readings and both trainings, under the first setting available."""
    name, title = "fig5", f"Figure 5: decision trees on concepts, the first {DEPTH} levels"
    settings = context.settings()
    missing = context.missing_requirements()
    if not settings:
        return Artifacts([Table(name, title, COLUMNS, [], missing=missing)])
    setting = settings[0]
    try:
        runs = bottlenecks(context, setting, context.feature("xclip", "native"))
    except Unavailable as problem:
        return Artifacts([Table(name, title, COLUMNS, [], missing=[f"all trees: {problem}"])])
    readings = reference_json("readings.json")
    blocks, figures = [], {}
    warnings: list[RunWarning] = []
    for negatives, pending in runs.items():
        run = pending()
        warnings += table_warnings(run.record, f"PCBM, {negatives[0]}-S, {setting.key}")
        for reading in READINGS:
            model_name = f"PCBM-DT, {reading}"
            loaded = _first_model(run, model_name)
            if loaded is None:
                continue
            model, fit = loaded
            concepts = [str(concept) for concept in model.bank_.get_feature_names_out()]
            words = f"{negatives[0]} against S, {readings[reading]['title']}"
            lines = _questions(model.head_, concepts)
            block_title = f"{words}; {setting.key}, run {fit}"
            blocks.append(Block(block_title, setting.protocol, "threshold", lines))
            measured = next(
                explained.values
                for explained in run.explanations()
                if (explained.model, explained.fit) == (model_name, fit)
            )
            figures[f"fig5-{reading}-{negatives[0]}"] = tree_outline(
                model.head_,
                concepts,
                level_series({code: code for code in (*negatives, "S")}),
                title=f"{words}; {setting.key} protocol{context.title_suffix}",
                description="The first questions of the tree, and the classes of the training "
                "clips that came to each.",
                depth=DEPTH,
                counts=count_visits(model.head_, measured),
                count="test clips",
            )
    text = (
        f"{setting.title}. Thresholds are signed distances from the concepts' hyperplanes in the "
        "text's reading, and raw decision values in the code's. The tree of another fit asks other "
        "questions: check how much the scores vary before you read much into one."
    )
    table_notes = [*notes(text), *unique_warnings(warnings)]
    return Artifacts([Table(name, title, COLUMNS, blocks, table_notes, missing)], figures)


def _first_model(run: Run, name: str) -> tuple[Any, int] | None:
    """The model of this name that was saved first, and its fit."""
    for row in saved_models(run):
        if row["model"] == name:
            return load_model(run.folder / row["folder"])[0], row["fit"]
    return None


def _questions(head: TreeArrays, concepts: list[str]) -> list[Line]:
    """The inner nodes of the first levels, each after its parent."""
    lines, waiting = [], [(0, 0, "")]
    while waiting:
        node, depth, path = waiting.pop()
        if head.left[node] == -1 or depth == DEPTH - 1:
            continue
        concept = concepts[int(head.feature[node])]
        left, right = int(head.left[node]), int(head.right[node])
        numbers = [head.threshold[node], head.value[left, 1], head.value[right, 1]]
        values = {
            column: Value(float(number)) for column, number in zip(COLUMNS, numbers, strict=True)
        }
        lines.append(Line(f"{path}{concept}", "ours", values))
        waiting.append((right, depth + 1, f"{path}{concept} above: "))
        waiting.append((left, depth + 1, f"{path}{concept} not above: "))
    return lines
