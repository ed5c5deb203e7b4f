"""Figure 5: the first questions of a bottleneck's decision tree."""

from __future__ import annotations

import json
from typing import Any

from obygaze_models.estimators.heads import TreeHead
from obygaze_models.experiments.results import Results
from obygaze_models.figures.marks import Series
from obygaze_models.figures.tree import tree, visits
from obygaze_models.persistence import load_model
from obygaze_models.reproduce.bench import Bench
from obygaze_models.reproduce.table2 import bottlenecks
from obygaze_models.reproduce.tables import Block, Line, Made, Table, Value

__all__ = ["fig5"]

DEPTH = 4
READINGS = {"text": "the paper's text", "code": "the released code"}


def fig5(bench: Bench) -> Made:
    """The trees of both readings and both trainings, of the first setting that can be had."""
    name, title = "fig5", f"Figure 5: decision trees on concepts, the first {DEPTH} levels"
    feature = bench.feature("xclip", "native")
    columns = ["threshold", "share of S where not above", "share of S where above"]
    if isinstance(feature, str):
        return Made([Table(name, title, columns, [], missing=[f"all trees: {feature}"])])
    setting = bench.settings()[0]
    blocks, figures = [], {}
    for negatives, (results, _) in bottlenecks(bench, setting, feature).items():
        for reading, words in READINGS.items():
            model = f"PCBM-DT, {reading}"
            fitted = _first(results, model)
            if fitted is None:
                continue
            concepts = [str(one) for one in fitted.bank_.get_feature_names_out()]
            key = f"{reading}-{negatives[0]}"
            blocks.append(
                Block(
                    f"{negatives[0]} against S, {words}; {setting.key}, first run",
                    setting.protocol,
                    "threshold",
                    _questions(fitted.head_, concepts),
                )
            )
            measured = next(
                one.values for one in results.explained if one.model == model and one.run == 0
            )
            figures[f"fig5-{key}.svg"] = tree(
                fitted.head_,
                concepts,
                [Series(negatives[0], 1), Series("S", 2)],
                title=f"{negatives[0]} against S: {words}",
                description="The first questions of the tree, and the classes of the training "
                "clips that came to each.",
                depth=DEPTH,
                counts=visits(fitted.head_, measured),
                count="test clips",
                key=key,
            )
    notes = [
        f"{setting.title}. Thresholds are signed distances from the concepts' hyperplanes in the "
        "text's reading, and raw decision values in the code's. A tree of another run asks other "
        "questions: see how much the scores vary before reading much into one."
    ]
    return Made([Table(name, title, columns, blocks, notes)], figures)


def _first(results: Results, model: str) -> Any:
    """The model of the first run in which it could be trained; None where in none."""
    lines = (results.run.folder / "models.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        if row["model"] == model:
            return load_model(results.run.folder / row["folder"])[0]
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
        values = {
            "threshold": Value(float(head.threshold[node])),
            "share of S where not above": Value(float(head.value[left, 1])),
            "share of S where above": Value(float(head.value[right, 1])),
        }
        lines.append(Line(f"{path}{concept}", "ours", values))
        waiting.append((right, depth + 1, f"{path}{concept} above: "))
        waiting.append((left, depth + 1, f"{path}{concept} not above: "))
    return lines
