"""Figure 3: how well each concept's vector finds the concept, against two sets of negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from obygaze_features.common.figures import SERIES
from obygaze_features.common.package import reference_json
from obygaze_models.estimators.baselines import baselines
from obygaze_models.experiments.plan import RELEASED_CONCEPTS
from obygaze_models.experiments.record import ModelScores
from obygaze_models.experiments.results import Results
from obygaze_models.figures import Bar, Series, grouped_bars
from obygaze_models.reproduce.bench import Bench, Feature, Setting
from obygaze_models.reproduce.caveats import about_runs, once
from obygaze_models.reproduce.tables import Block, Line, Made, Table, Value
from obygaze_models.tasks import NEGATIVES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["fig3"]

BARS = {"a": "solid bars", "b": "hatched bars"}
"""The set of negatives of each kind of bar."""
HOW = {
    "released": "classes weighted, C as the authors give it",
    "leak-free": "negatives drawn to balance, C chosen on validation",
    "paper": "negatives of some folds, C chosen on validation",
}


def fig3(bench: Bench) -> Made:
    """F1 of a linear SVM a concept on X-CLIP, by protocol: a table, and a figure each."""
    name, title = "fig3", "Figure 3: concept activation vectors, F1 of the positive class"
    feature = bench.feature("xclip", "native")
    concepts = list(bench.read.scheme.visual_concepts)
    if isinstance(feature, str) or not concepts:
        why = feature if isinstance(feature, str) else "the label scheme has no visual concepts"
        return Made([Table(name, title, concepts, [], missing=[f"all bars: {why}"])])
    blocks, figures, notes = [], {}, []
    for setting in bench.settings():
        found: dict[str, dict[str, tuple[ModelScores, float]]] = {}
        lines = []
        for negatives, bars in BARS.items():
            runs = _runs(bench, setting, feature, concepts, negatives)
            of = _scores(runs)
            found[negatives] = of
            lines += _lines(of, concepts, f"against {NEGATIVES[negatives]} ({bars})")
            what = f"concepts against {NEGATIVES[negatives]}"
            notes += [note for run in runs for note in about_runs(setting, what, run)]
            notes += _one_sided(runs, f"{what}, {setting.key}")
        how = HOW[setting.protocol]
        blocks.append(Block(f"{setting.title}; {how}", setting.protocol, "f1", lines))
        figures[f"fig3-{setting.key}"] = _figure(bench, setting, found, concepts)
    notes.append(
        "The paper chose C by cross-validation. Its figure prints no numbers, so none stand beside "
        "these."
    )
    return Made([Table(name, title, concepts, blocks, once(notes), bench.lacking())], figures)


def _runs(
    bench: Bench, setting: Setting, feature: Feature, concepts: Sequence[str], negatives: str
) -> list[Results]:
    """The runs of all concepts: one, or under the released protocol one for each C."""
    by_c: dict[float | None, list[str]] = {None: list(concepts)}
    if setting.protocol == "released":
        given = reference_json("readings.json")["code"]["concept_C"]
        known = {bench.read.scheme.concept(name): C for name, C in given.items()}
        by_c = {}
        for concept in concepts:
            by_c.setdefault(known.get(concept), []).append(concept)
    return [
        bench.run(
            setting,
            feature,
            f"concepts-{negatives}" + ("" if C is None else f"-C{C:g}"),
            name=f"Concepts against {NEGATIVES[negatives]}, {setting.key}"
            + ("" if C is None else f", C = {C:g}"),
            concepts=tuple(of),
            negatives=negatives,
            split=RELEASED_CONCEPTS if setting.protocol == "released" else None,
            estimators=("svm" if C is None else {"name": "svm", "C": C},),
        )
        for C, of in by_c.items()
    ]


def _scores(runs: Sequence[Results]) -> dict[str, tuple[ModelScores, float]]:
    """Concept -> its scores, and the share of positives of its test clips."""
    return {
        of.test.partition(" vs ")[0]: (of, run.run.record.tests[of.test].share or 0.0)
        for run in runs
        for of in run.run.record.scores
    }


def _one_sided(runs: Sequence[Results], what: str) -> list[str]:
    """How many vectors call every test clip the same; F1 of such is no skill."""
    said = [one.probabilities > 0.5 for run in runs for one in run.said]
    all_of, none_of = sum(one.all() for one in said), sum(not one.any() for one in said)
    if not (all_of or none_of):
        return []
    return [
        f"{what}: of {len(said)} vectors {all_of} call every test clip positive and {none_of} "
        "none: their planes lie beside the clips, and their F1 says nothing (AUROC, in the runs, "
        "does)."
    ]


def _lines(
    found: Mapping[str, tuple[ModelScores, float]], concepts: Sequence[str], what: str
) -> list[Line]:
    ours: dict[str, Value | None] = {}
    guess: dict[str, Value | None] = {}
    share: dict[str, Value | None] = {}
    for concept in concepts:
        if concept not in found:
            continue
        of, positives = found[concept]
        mean, std = of.mean["f1"], of.std["f1"]
        ours[concept] = None if mean is None else Value(mean, std)
        share[concept] = Value(positives)
        guess[concept] = Value(_all_positive(positives))
    return [
        Line(what, "ours", ours),
        Line("all positive, at that share", "guess", guess),
        Line("share of positives, scored", "count", share),
    ]


def _all_positive(share: float) -> float:
    scored = baselines(share)["all positive"]["f1"]
    assert scored is not None
    return scored


def _figure(
    bench: Bench,
    setting: Setting,
    found: Mapping[str, Mapping[str, tuple[ModelScores, float]]],
    concepts: Sequence[str],
) -> Figure:
    groups = {
        concept: [_bar(found[negatives].get(concept)) for negatives in BARS] for concept in concepts
    }
    series = [
        Series(f"against {NEGATIVES[negatives]}", SERIES[0], hatched=bars == "hatched bars")
        for negatives, bars in BARS.items()
    ]
    return grouped_bars(
        groups,
        series,
        title=f"Concepts found: {setting.key}{bench.mark}",
        axis="F1 of the positive class, mean and standard deviation over runs",
        description="For each concept the F1 of its vector against Easy Negatives only, and "
        "against all clips without the concept.",
        limits=(0, 1),
        reference="calling all clips positive",
    )


def _bar(found: tuple[ModelScores, float] | None) -> Bar:
    if found is None or found[0].mean["f1"] is None:
        return Bar(None)
    mean, std = found[0].mean["f1"], found[0].std["f1"] or 0.0
    guess = _all_positive(found[1])
    return Bar(mean, max(0.0, mean - std), min(1.0, mean + std), reference=guess)
