"""Figure 5: the first questions of a bottleneck's decision tree."""

from __future__ import annotations

from typing import Any

from obygaze_features.common.package import reference_json
from obygaze_models.estimators.heads import TreeHead
from obygaze_models.experiments.results import Results
from obygaze_models.experiments.run import saved_models
from obygaze_models.figures import count_visits, level_series, tree_outline
from obygaze_models.persistence import load_model
from obygaze_models.reproduce.bench import Bench
from obygaze_models.reproduce.caveats import about_runs, once
from obygaze_models.reproduce.rows import READINGS, bottlenecks
from obygaze_models.reproduce.tables import Block, Line, Made, Table, Value

__all__ = ["fig5"]

DEPTH = 4
COLUMNS = ["threshold", "share of S where not above", "share of S where above"]


def fig5(bench: Bench) -> Made:
    """The trees of both readings and both trainings, of the first setting that can be had."""
    name, title = "fig5", f"Figure 5: decision trees on concepts, the first {DEPTH} levels"
    feature = bench.feature("xclip", "native")
    settings = bench.settings()
    runs: Any = feature
    if not settings:
        return Made([Table(name, title, COLUMNS, [], missing=bench.lacking())])
    setting = settings[0]
    if not isinstance(feature, str):
        runs = bottlenecks(bench, setting, feature)
    if isinstance(runs, str):
        return Made([Table(name, title, COLUMNS, [], missing=[f"all trees: {runs}"])])
    blocks, figures = [], {}
    notes = [
        f"{setting.title}. Thresholds are signed distances from the concepts' hyperplanes in the "
        "text's reading, and raw decision values in the code's. A tree of another run asks other "
        "questions: see how much the scores vary before reading much into one."
    ]
    for negatives, results in runs.items():
        notes += about_runs(setting, f"PCBM, {negatives[0]}-S", results)
        for reading in READINGS:
            found = _first(results, f"PCBM-DT, {reading}")
            if found is None:
                continue
            model, run = found
            concepts = [str(one) for one in model.bank_.get_feature_names_out()]
            words = f"{negatives[0]} against S, {reference_json('readings.json')[reading]['title']}"
            blocks.append(
                Block(
                    f"{words}; {setting.key}, run {run}",
                    setting.protocol,
                    "threshold",
                    _questions(model.head_, concepts),
                )
            )
            measured = next(
                one.values
                for one in results.explained
                if (one.model, one.fit) == (f"PCBM-DT, {reading}", run)
            )
            figures[f"fig5-{reading}-{negatives[0]}"] = tree_outline(
                model.head_,
                concepts,
                level_series({code: code for code in (*negatives, "S")}),
                title=f"{words}; {setting.key} protocol{bench.mark}",
                description="The first questions of the tree, and the classes of the training "
                "clips that came to each.",
                depth=DEPTH,
                counts=count_visits(model.head_, measured),
                count="test clips",
            )
    return Made([Table(name, title, COLUMNS, blocks, once(notes), bench.lacking())], figures)


def _first(results: Results, model: str) -> tuple[Any, int] | None:
    """The model of the first run in which it could be trained, and that run; None if in none."""
    for row in saved_models(results.run):
        if row["model"] == model:
            return load_model(results.run.folder / row["folder"])[0], row["fit"]
    return None


def _questions(head: TreeHead, concepts: list[str]) -> list[Line]:
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
