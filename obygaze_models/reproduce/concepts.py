"""Figures 3 and 5: the scores of concept vectors, and the first questions of concept trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from obygaze_features.common.figures import SERIES, SOFT
from obygaze_features.common.package import reference_json
from obygaze_features.common.text import group_by
from obygaze_models.data.targets import NEGATIVES
from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.trees import TreeArrays
from obygaze_models.experiments.division import RELEASED_CONCEPTS
from obygaze_models.experiments.tables import Run
from obygaze_models.experiments.warnings import notes, table_warnings
from obygaze_models.explain.parts import measured
from obygaze_models.figures.dots import Dot, Series, dot_plot, level_series
from obygaze_models.reproduce.context import Needs, ReproductionContext, Runs, Target, Unavailable
from obygaze_models.reproduce.drawings import DEPTH, count_visits, first_nodes, tree_outline
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value
from obygaze_models.reproduce.table2 import HEADS, READINGS, bottlenecks, model_name
from obygaze_models.saved.model import load_model
from obygaze_models.scoring.metrics import baselines

BARS = {"a": "solid bars", "b": "hatched bars"}
"""The bars of each set of negatives in the paper's figure 3."""
_METHODS = {
    "released": "classes weighted, C from the authors",
    "leak-free": "negatives sampled to balance, C chosen on validation",
    "paper": "negatives of some folds, C chosen on validation",
}
"""The method by which each protocol trains the vectors."""
_Values = dict[str, Value | None]
_Numbers = dict[str, float | None]
TREE_COLUMNS = ["threshold", "share of S where not above", "share of S where above"]


def _vectors(context: ReproductionContext) -> Needs:
    """Plan an experiment for each setting, set of negatives and C, with the concepts for this C.

    Only the released protocol fixes the C of each concept.
    """
    needs = context.needs()
    with needs.lacking("all bars"):
        scheme = context.manifest.scheme
        if not scheme.visual_concepts:
            raise Unavailable("the label scheme has no visual concepts")
        for setting, negatives in product(context.settings(), BARS):
            released = setting.protocol == "released"
            C_of = context.concept_costs("code") if released else {}
            for C, concepts in group_by(scheme.visual_concepts, C_of.get).items():
                against = f"Concepts against {NEGATIVES[negatives]}, {setting.key}"
                needs.experiments[setting.key, negatives, C] = context.plan(
                    setting,
                    "xclip",
                    "native",
                    f"concepts-{negatives}" if C is None else f"concepts-{negatives}-C{C:g}",
                    name=against if C is None else f"{against}, C = {C:g}",
                    concepts=tuple(concepts),
                    negatives=negatives,
                    split=RELEASED_CONCEPTS if released else "",
                    estimators=("svm" if C is None else {"name": "svm", "C": C},),
                )
    return needs


@Target(
    "fig3",
    "Figure 3",
    "concept activation vectors, F1 of the positive class",
    needs=_vectors,
    draws=True,
)
def fig3(context: ReproductionContext, runs: Runs) -> Artifacts:
    """Tabulate and draw the F1 of a linear SVM for each concept on X-CLIP, by protocol."""
    concepts = list(context.manifest.scheme.visual_concepts)
    blocks, figures = [], {}
    warnings: list[RunWarning] = []
    for setting in context.settings() if runs else ():
        lines: list[Line] = []
        dots: dict[str, list[Dot]] = {concept: [] for concept in concepts}
        for negatives, bars in BARS.items():
            of_bars = [run for key, run in runs.items() if key[:2] == (setting.key, negatives)]
            against = f"against {NEGATIVES[negatives]}"
            for run in of_bars:
                warnings += table_warnings(run, f"concepts {against}, {setting.key}")
            ours, chance, shares = _scores_of_concepts(of_bars)
            lines += [
                Line(f"{against} ({bars})", "ours", ours),
                Line.of("all positive, at that share", "guess", chance),
                Line.of("share of positives, scored", "count", shares),
            ]
            for concept in concepts:
                dots[concept].append(_dot(ours.get(concept)))
                dots[concept].append(Dot(chance.get(concept)))
        block_title = f"{setting.title}; {_METHODS[setting.protocol]}"
        blocks.append(Block(block_title, setting.protocol, "f1", lines))
        series = []
        for key in BARS:
            series.append(Series(f"against {NEGATIVES[key]}", SERIES[0], hollow=key == "b"))
            series.append(Series("calling all clips positive", SOFT, "|"))
        figures[f"fig3-{setting.key}"] = dot_plot(
            [*dots.items()],
            series,
            title=f"Concept detection: {setting.key}{context.title_suffix}",
            axis="F1 of the positive class, mean and standard deviation over fits",
            description="The F1 of each concept's vector against Easy Negatives only, and "
            "against all clips without the concept.",
            limits=(0, 1),
        )
    text = (
        "Scores are means over fits, as in the paper. The paper chose C by cross-validation. The "
        "paper's figure has no numbers to compare with."
    )
    table_notes = [*warnings, *notes(text)]
    return Artifacts([Table(concepts, blocks, table_notes)], figures)


def _scores_of_concepts(runs: Iterable[Run]) -> tuple[_Values, _Numbers, _Numbers]:
    """Return each concept's F1, the F1 of calling all clips positive, and the positives' share."""
    ours: _Values = {}
    chance: _Numbers = {}
    shares: _Numbers = {}
    for run in runs:
        for scores in run.model_scores:
            concept = run.task(scores.test).concept
            test = run.tests[scores.test]
            share = (test.positives or 0) / test.clips
            ours[concept] = Value.of(scores.mean_of_fits["f1"], scores.std_of_fits["f1"])
            # This is for all clips together, whereas the run records the mean over films.
            chance[concept] = baselines(share)["all positive"]["f1"]
            shares[concept] = share
    return ours, chance, shares


def _dot(value: Value | None) -> Dot:
    if value is None:
        return Dot(None)
    std = value.std or 0.0
    return Dot(value.mean, max(0.0, value.mean - std), min(1.0, value.mean + std))


def _trees(context: ReproductionContext) -> Needs:
    """Plan the bottlenecks for the first available setting."""
    needs = context.needs()
    with needs.lacking("all trees"):
        for setting in context.settings()[:1]:
            needs.experiments.update(bottlenecks(context, setting).items())
    return needs


@Target(
    "fig5",
    "Figure 5",
    f"decision trees on concepts, the first {DEPTH} levels",
    needs=_trees,
    draws=True,
)
def fig5(context: ReproductionContext, runs: Runs) -> Artifacts:
    """Draw the trees for both readings and both training sets."""
    if not runs:
        return Artifacts([Table(TREE_COLUMNS)])
    setting = context.settings()[0]
    blocks, figures = [], {}
    warnings: list[RunWarning] = []
    for (level,), run in runs.items():
        warnings += table_warnings(run, f"PCBM, {level}-S, {setting.key}")
        for reading in READINGS:
            name = model_name(HEADS["tree"][1], reading)
            saved = next((row for row in run.saved if row["model"] == name), None)
            if saved is None:
                continue
            model, _ = load_model(saved["folder"])
            concepts = [str(concept) for concept in model.bank_.get_feature_names_out()]
            title = f"{level} against S, {reference_json('readings.json')[reading]['title']}"
            block_title = f"{title}; {setting.key}, run {saved['fit']}"
            lines = list(_questions(model.head_, concepts))
            key = f"fig5-{reading}-{level}"
            blocks.append(Block(block_title, setting.protocol, "threshold", lines))
            reasons = run.reasons
            of_tree = (reasons["model"] == name) & (reasons["fit"] == saved["fit"])
            values = measured(reasons[of_tree]).to_numpy()
            figures[key] = tree_outline(
                model.head_,
                concepts,
                level_series({code: code for code in (level, "S")}),
                title=f"{title}; {setting.key} protocol{context.title_suffix}",
                description="The first questions of the tree, and the classes of the training "
                "clips that reached each node.",
                counts=count_visits(model.head_, values),
                count="test clips",
            )
    text = (
        f"{setting.title}. In trees that follow the paper's text, thresholds are signed distances "
        "from the concepts' hyperplanes; in trees that follow its code, they are raw decision "
        "values. Trees of different fits ask different questions, so check how much scores vary "
        "before you rely on a tree."
    )
    table_notes = [*notes(text), *warnings]
    return Artifacts([Table(TREE_COLUMNS, blocks, table_notes)], figures)


def _questions(head: TreeArrays, concepts: Sequence[str]) -> Iterator[Line]:
    """Yield a line for each question in a tree's first levels, parents first."""
    for node in first_nodes(head, concepts, DEPTH - 1):
        left, right = head.left[node.number], head.right[node.number]
        if left != -1:
            name = f"{node.path}{concepts[head.feature[node.number]]}"
            shares = head.value[left, 1], head.value[right, 1]
            numbers = map(float, (head.threshold[node.number], *shares))
            yield Line.of(name, "ours", dict(zip(TREE_COLUMNS, numbers, strict=True)))
