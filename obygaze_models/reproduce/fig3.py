"""Figure 3: how well each concept's vector finds the concept, against two sets of negatives."""

from __future__ import annotations

from typing import Any

from obygaze_models.estimators.baselines import baselines
from obygaze_models.estimators.targets import NEGATIVES
from obygaze_models.experiments.plan import RELEASED_CONCEPTS
from obygaze_models.figures.bars import Bar, grouped_bars
from obygaze_models.figures.marks import Series
from obygaze_models.reproduce.bench import Bench, Setting
from obygaze_models.reproduce.tables import Block, Line, Made, Table, Value

__all__ = ["fig3"]

SOLID, HATCHED = "a", "b"
BARS = {SOLID: "solid bars", HATCHED: "hatched bars"}
BALANCED = {
    "released": "classes weighted",
    "leak-free": "negatives drawn to balance",
    "paper": "negatives of some folds",
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
        scores: dict[str, dict[str, Any]] = {}
        lines = []
        for negatives, bars in BARS.items():
            record = bench.run(
                f"{setting.key}/xclip-native-concepts-{negatives}",
                name=f"Concepts against {NEGATIVES[negatives]}, {setting.key}",
                store=bench.stores["xclip"],
                array=feature.array,
                pooling=feature.pooling,
                concepts=("all",),
                negatives=negatives,
                labels=setting.labels,
                protocol=setting.protocol,
                split=RELEASED_CONCEPTS if setting.protocol == "released" else None,
                estimators=("svm",),
            ).run.record
            of = {one["test"].partition(" vs ")[0]: one for one in record["scores"]}
            scores[negatives] = of
            lines += _lines(record, of, concepts, f"against {NEGATIVES[negatives]} ({bars})")
            notes += [
                f"SKIPPED, {setting.key}: {one['task']}, {one['what']}: {one['why']}."
                for one in record["skipped"]
            ]
        how = BALANCED[setting.protocol]
        blocks.append(Block(f"{setting.title}; {how}", setting.protocol, "f1", lines))
        figures[f"fig3-{setting.key}.svg"] = _figure(setting, scores, concepts)
    notes.append(
        "C is chosen on the validation fold by the area under the ROC curve; the paper chose it by "
        "cross-validation. Its figure prints no numbers, so none stand beside these."
    )
    lacking = bench.lacking()
    return Made([Table(name, title, concepts, blocks, notes, lacking)], figures)


def _lines(
    record: dict[str, Any], of: dict[str, dict[str, Any]], concepts: list[str], what: str
) -> list[Line]:
    ours: dict[str, Value | None] = {}
    guess: dict[str, Value | None] = {}
    share: dict[str, Value | None] = {}
    for concept in concepts:
        if concept not in of:
            continue
        mean, std = of[concept]["mean"]["f1"], of[concept]["std"]["f1"]
        ours[concept] = None if mean is None else Value(mean, std)
        positives = record["tests"][of[concept]["test"]]["share"]
        share[concept] = Value(positives)
        scored = baselines(positives)["all positive"]["f1"] if 0 < positives < 1 else None
        guess[concept] = None if scored is None else Value(scored)
    return [
        Line(what, "ours", ours),
        Line("all positive, at that share", "guess", guess),
        Line("share of positives, scored", "count", share),
    ]


def _figure(
    setting: Setting, scores: dict[str, dict[str, dict[str, Any]]], concepts: list[str]
) -> str:
    groups = {
        concept: [
            _bar(scores[negatives].get(concept), f"{setting.key}/{concept}/{negatives}")
            for negatives in BARS
        ]
        for concept in concepts
    }
    series = [Series(f"against {NEGATIVES[one]}", 1, hatched=one == HATCHED) for one in BARS]
    return grouped_bars(
        groups,
        series,
        title=f"Concepts found, {setting.protocol} protocol",
        axis="F1 of the positive class, mean and standard deviation over runs",
        description="For each concept the F1 of its vector against Easy Negatives only, and "
        "against all clips without the concept.",
        limits=(0, 1),
    )


def _bar(of: dict[str, Any] | None, key: str) -> Bar:
    if of is None or of["mean"]["f1"] is None:
        return Bar(None, key=key)
    mean, std = of["mean"]["f1"], of["std"]["f1"]
    return Bar(mean, max(0.0, mean - std), min(1.0, mean + std), key=key)
