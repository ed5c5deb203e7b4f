"""Figures 3 and 5: how well concepts' vectors find them, and what trees on concepts ask first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from obygaze_features.common.figures import SERIES
from obygaze_features.common.package import reference_json
from obygaze_features.common.text import group_by
from obygaze_models.data.tasks import NEGATIVES
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.estimators.baselines import baselines
from obygaze_models.estimators.trees import TreeArrays
from obygaze_models.experiments.division import RELEASED_CONCEPTS
from obygaze_models.experiments.messages import notes, table_warnings
from obygaze_models.experiments.predictions import called_of, split_by
from obygaze_models.experiments.run_folder import Run
from obygaze_models.explain.parts import measured
from obygaze_models.figures.dots import grouped_dots, level_series
from obygaze_models.figures.sheet import Dot, Series
from obygaze_models.reproduce.context import (
    Feature,
    Pending,
    ReproductionContext,
    Setting,
    Unavailable,
    target,
)
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value
from obygaze_models.reproduce.table2 import READINGS, bottlenecks
from obygaze_models.reproduce.tree import count_visits, tree_outline
from obygaze_models.saved.persistence import load_model

BARS = {"a": "solid bars", "b": "hatched bars"}
"""How the paper's figure 3 draws each set of negatives."""
_METHODS = {
    "released": "classes weighted, C as the authors give it",
    "leak-free": "negatives drawn to balance, C chosen on validation",
    "paper": "negatives of some folds, C chosen on validation",
}
"""How the vectors of a protocol are trained."""
DEPTH = 4
FIG3 = "Figure 3: concept activation vectors, F1 of the positive class"
FIG5 = f"Figure 5: decision trees on concepts, the first {DEPTH} levels"
TREE_COLUMNS = ["threshold", "share of S where not above", "share of S where above"]


@target("fig3", FIG3, "all bars", draws=True)
def fig3(context: ReproductionContext) -> Artifacts:
    """F1 of a linear SVM for each concept on X-CLIP, by protocol: a table, and a figure each."""
    concepts = list(context.manifest.scheme.visual_concepts)
    feature = context.feature("xclip", "native")
    if not concepts:
        raise Unavailable("the label scheme has no visual concepts")
    blocks, figures = [], {}
    warnings: list[RunWarning] = []
    asked = {  # all, before the first is awaited
        pair: _concept_runs(context, pair[0], feature, concepts, pair[1])
        for pair in product(context.settings(), BARS)
    }
    for setting in dict.fromkeys(setting for setting, _ in asked):
        lines: list[Line] = []
        dots: dict[str, list[Dot]] = {concept: [] for concept in concepts}
        for negatives, bars in BARS.items():
            runs = [pending() for pending in asked[setting, negatives]]
            against = f"against {NEGATIVES[negatives]}"
            where = f"concepts {against}, {setting.key}"
            for run in runs:
                warnings += table_warnings(run.record, where)
            warnings += _one_sided(runs, where)
            ours: dict[str, Value | None] = {}
            shares: dict[str, float | None] = {}
            chance: dict[str, float | None] = {}
            for run in runs:
                for scores in run.record.scores:
                    concept, over = run.record.task(scores.test).concept, scores.over_fits
                    mean = over.mean["f1"]
                    ours[concept] = None if mean is None else Value(mean, over.std["f1"])
                    share = shares[concept] = run.record.tests[scores.test].share or 0.0
                    chance[concept] = baselines(share)["all positive"]["f1"]
            lines += [
                Line(f"{against} ({bars})", "ours", ours),
                Line.of("all positive, at that share", "guess", chance),
                Line.of("share of positives, scored", "count", shares),
            ]
            for concept in concepts:
                dots[concept].append(_dot(ours.get(concept), chance.get(concept)))
        block_title = f"{setting.title}; {_METHODS[setting.protocol]}"
        blocks.append(Block(block_title, setting.protocol, "f1", lines))
        figures[f"fig3-{setting.key}"] = grouped_dots(
            dots,
            [Series(f"against {NEGATIVES[key]}", SERIES[0], hatched=key == "b") for key in BARS],
            title=f"Concepts found: {setting.key}{context.title_suffix}",
            axis="F1 of the positive class, mean and standard deviation over fits",
            description="For each concept the F1 of its vector against Easy Negatives only, and "
            "against all clips without the concept.",
            limits=(0, 1),
            guess="calling all clips positive",
        )
    text = (
        "Scores are means over fits, as in the paper. The paper chose C by cross-validation. Its "
        "figure prints no numbers to compare with."
    )
    table_notes = [*unique_warnings(warnings), *notes(text)]
    missing = context.missing_requirements()
    return Artifacts([Table("fig3", FIG3, concepts, blocks, table_notes, missing)], figures)


def _concept_runs(
    context: ReproductionContext,
    setting: Setting,
    feature: Feature,
    concepts: Sequence[str],
    negatives: str,
) -> list[Pending]:
    """The runs of all concepts: one, or under the released protocol one for each C."""
    released = setting.protocol == "released"
    published = reference_json("readings.json")["code"]["concept_C"] if released else {}
    C_of = {context.manifest.scheme.concept(name): C for name, C in published.items()}
    return [
        context.run(
            setting,
            feature,
            f"concepts-{negatives}" + ("" if C is None else f"-C{C:g}"),
            name=f"Concepts against {NEGATIVES[negatives]}, {setting.key}"
            + ("" if C is None else f", C = {C:g}"),
            concepts=tuple(of_C),
            negatives=negatives,
            split=RELEASED_CONCEPTS if released else "",
            estimators=("svm" if C is None else {"name": "svm", "C": C},),
        )
        for C, of_C in group_by(concepts, C_of.get).items()
    ]


def _dot(value: Value | None, chance: float | None) -> Dot:
    if value is None:
        return Dot(None)
    std = value.std or 0.0
    low, high = max(0.0, value.mean - std), min(1.0, value.mean + std)
    return Dot(value.mean, low, high, guess=chance)


def _one_sided(runs: Sequence[Run], where: str) -> Iterator[RunWarning]:
    """How many vectors call every test clip the same, so that their F1 shows no skill."""
    called = [
        called_of(fit)
        for run in runs
        for fit in split_by(run.predictions(), "model", "test", "fit").values()
    ]
    all_positive = sum(fit.all() for fit in called)
    none_positive = sum(not fit.any() for fit in called)
    if all_positive or none_positive:
        text = (
            f"{where}: of {len(called)} vectors {all_positive} call every test clip positive and "
            f"{none_positive} none: their planes are beside the clips, and their F1 says nothing "
            "(AUROC, in the runs, does)."
        )
        yield RunWarning("one-sided", where, text)


@target("fig5", FIG5, "all trees", draws=True)
def fig5(context: ReproductionContext) -> Artifacts:
    """The trees of both readings and both trainings, under the first setting available."""
    missing = context.missing_requirements()
    if not (settings := context.settings()):
        return Artifacts([Table("fig5", FIG5, TREE_COLUMNS, [], missing=missing)])
    setting = settings[0]
    runs = bottlenecks(context, setting)
    readings = reference_json("readings.json")
    blocks, figures = [], {}
    warnings: list[RunWarning] = []
    for negatives, pending in runs.items():
        run = pending()
        warnings += table_warnings(run.record, f"PCBM, {negatives[0]}-S, {setting.key}")
        for reading in READINGS:
            tree = f"PCBM-DT, {reading}"
            saved = next((row for row in run.models() if row["model"] == tree), None)
            if saved is None:
                continue
            model, _ = load_model(saved["folder"])
            concepts = [str(concept) for concept in model.bank_.get_feature_names_out()]
            words = f"{negatives[0]} against S, {readings[reading]['title']}"
            block_title = f"{words}; {setting.key}, run {saved['fit']}"
            lines = _questions(model.head_, concepts)
            blocks.append(Block(block_title, setting.protocol, "threshold", lines))
            reasons = run.reasons()
            of_tree = (reasons["model"] == tree) & (reasons["fit"] == saved["fit"])
            values = measured(reasons[of_tree]).to_numpy()
            figures[f"fig5-{reading}-{negatives[0]}"] = tree_outline(
                model.head_,
                concepts,
                level_series({code: code for code in (*negatives, "S")}),
                title=f"{words}; {setting.key} protocol{context.title_suffix}",
                description="The first questions of the tree, and the classes of the training "
                "clips that came to each.",
                depth=DEPTH,
                counts=count_visits(model.head_, values),
                count="test clips",
            )
    text = (
        f"{setting.title}. Thresholds are signed distances from the concepts' hyperplanes in the "
        "text's reading, and raw decision values in the code's. The tree of another fit asks other "
        "questions: check how much the scores vary before you read much into one."
    )
    table_notes = [*notes(text), *unique_warnings(warnings)]
    return Artifacts([Table("fig5", FIG5, TREE_COLUMNS, blocks, table_notes, missing)], figures)


def _questions(
    head: TreeArrays, concepts: list[str], node: int = 0, depth: int = 0, path: str = ""
) -> list[Line]:
    """The inner nodes of the first levels, each after its parent."""
    if head.left[node] == -1 or depth == DEPTH - 1:
        return []
    concept = concepts[int(head.feature[node])]
    left, right = int(head.left[node]), int(head.right[node])
    numbers = map(float, (head.threshold[node], head.value[left, 1], head.value[right, 1]))
    return [
        Line.of(f"{path}{concept}", "ours", dict(zip(TREE_COLUMNS, numbers, strict=True))),
        *_questions(head, concepts, left, depth + 1, f"{path}{concept} not above: "),
        *_questions(head, concepts, right, depth + 1, f"{path}{concept} above: "),
    ]
