"""Figure 3: how well each concept's vector finds the concept, against two sets of negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from obygaze_features.common.figures import SERIES
from obygaze_features.common.package import reference_json
from obygaze_models.data.tasks import NEGATIVES, ConceptTask
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.estimators.baselines import baselines
from obygaze_models.experiments.division import RELEASED_CONCEPTS
from obygaze_models.experiments.messages import notes, table_warnings
from obygaze_models.experiments.run_folder import Run
from obygaze_models.figures.dots import grouped_dots
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class _Bars(NamedTuple):
    """How the paper draws a set of negatives."""

    name: str
    hatched: bool


_BARS = {"a": _Bars("solid bars", False), "b": _Bars("hatched bars", True)}
_METHODS = {
    "released": "classes weighted, C as the authors give it",
    "leak-free": "negatives drawn to balance, C chosen on validation",
    "paper": "negatives of some folds, C chosen on validation",
}
"""How the vectors of a protocol are trained."""


@dataclass(frozen=True)
class _ConceptScore:
    """F1 of a concept's vector, and the share of positives of its test clips."""

    mean: float | None
    std: float | None
    share: float

    @property
    def chance(self) -> float:
        """F1 of calling all test clips positive."""
        f1 = baselines(self.share)["all positive"]["f1"]
        assert f1 is not None
        return f1


@target("fig3", draws=True)
def fig3(context: ReproductionContext) -> Artifacts:
    """F1 of a linear SVM for each concept on X-CLIP, by protocol: a table, and a figure each."""
    name, title = "fig3", "Figure 3: concept activation vectors, F1 of the positive class"
    concepts = list(context.manifest.scheme.visual_concepts)
    try:
        feature = context.feature("xclip", "native")
        if not concepts:
            raise Unavailable("the label scheme has no visual concepts")
    except Unavailable as problem:
        return Artifacts([Table(name, title, concepts, [], missing=[f"all bars: {problem}"])])
    blocks, figures = [], {}
    warnings: list[RunWarning] = []
    settings = context.settings()
    asked = {  # all, before the first is awaited
        (setting.key, negatives): _runs(context, setting, feature, concepts, negatives)
        for setting in settings
        for negatives in _BARS
    }
    for setting in settings:
        scores: dict[str, dict[str, _ConceptScore]] = {}
        lines = []
        for negatives, bars in _BARS.items():
            runs = [pending() for pending in asked[setting.key, negatives]]
            scores[negatives] = _scores(runs, concepts, negatives)
            subject = f"concepts against {NEGATIVES[negatives]}"
            row = f"against {NEGATIVES[negatives]} ({bars.name})"
            lines += _lines(scores[negatives], row)
            for run in runs:
                warnings += table_warnings(run.record, f"{subject}, {setting.key}")
            warnings += _one_sided(runs, f"{subject}, {setting.key}")
        block_title = f"{setting.title}; {_METHODS[setting.protocol]}"
        blocks.append(Block(block_title, setting.protocol, "f1", lines))
        figures[f"fig3-{setting.key}"] = _figure(context, setting, scores, concepts)
    text = "The paper chose C by cross-validation. Its figure prints no numbers to compare with."
    table_notes = [*unique_warnings(warnings), *notes(text)]
    missing = context.missing_requirements()
    return Artifacts([Table(name, title, concepts, blocks, table_notes, missing)], figures)


def _runs(
    context: ReproductionContext,
    setting: Setting,
    feature: Feature,
    concepts: Sequence[str],
    negatives: str,
) -> list[Pending]:
    """The runs of all concepts: one, or under the released protocol one for each C."""
    by_C: dict[float | None, list[str]] = {None: list(concepts)}
    if setting.protocol == "released":
        published = reference_json("readings.json")["code"]["concept_C"]
        C_of = {context.manifest.scheme.concept(name): C for name, C in published.items()}
        by_C = {}
        for concept in concepts:
            by_C.setdefault(C_of.get(concept), []).append(concept)
    return [
        context.run(
            setting,
            feature,
            f"concepts-{negatives}" + ("" if C is None else f"-C{C:g}"),
            name=f"Concepts against {NEGATIVES[negatives]}, {setting.key}"
            + ("" if C is None else f", C = {C:g}"),
            concepts=tuple(of_C),
            negatives=negatives,
            split=RELEASED_CONCEPTS if setting.protocol == "released" else "",
            estimators=("svm" if C is None else {"name": "svm", "C": C},),
        )
        for C, of_C in by_C.items()
    ]


def _scores(
    runs: Sequence[Run], concepts: Sequence[str], negatives: str
) -> dict[str, _ConceptScore]:
    """The scores of the concepts that could be trained."""
    concept_of = {ConceptTask(concept, negatives).name: concept for concept in concepts}
    return {
        concept_of[scores.test]: _ConceptScore(
            scores.mean["f1"], scores.std["f1"], run.record.tests[scores.test].share or 0.0
        )
        for run in runs
        for scores in run.record.scores
    }


def _one_sided(runs: Sequence[Run], where: str) -> list[RunWarning]:
    """How many vectors call every test clip the same, so that their F1 shows no skill."""
    called = [fit.probabilities > 0.5 for run in runs for fit in run.predictions()]
    all_positive = sum(fit.all() for fit in called)
    none_positive = sum(not fit.any() for fit in called)
    if not (all_positive or none_positive):
        return []
    text = (
        f"{where}: of {len(called)} vectors {all_positive} call every test clip positive and "
        f"{none_positive} none: their planes are beside the clips, and their F1 says nothing "
        "(AUROC, in the runs, does)."
    )
    return [RunWarning("one-sided", where, text)]


def _lines(scores: Mapping[str, _ConceptScore], row: str) -> list[Line]:
    ours = {
        concept: None if score.mean is None else Value(score.mean, score.std)
        for concept, score in scores.items()
    }
    chance = {concept: Value(score.chance) for concept, score in scores.items()}
    share = {concept: Value(score.share) for concept, score in scores.items()}
    return [
        Line(row, "ours", ours),
        Line("all positive, at that share", "guess", chance),
        Line("share of positives, scored", "count", share),
    ]


def _figure(
    context: ReproductionContext,
    setting: Setting,
    scores: Mapping[str, Mapping[str, _ConceptScore]],
    concepts: Sequence[str],
) -> Figure:
    groups = {
        concept: [_dot(scores[negatives].get(concept)) for negatives in _BARS]
        for concept in concepts
    }
    series = [
        Series(f"against {NEGATIVES[negatives]}", SERIES[0], hatched=bars.hatched)
        for negatives, bars in _BARS.items()
    ]
    return grouped_dots(
        groups,
        series,
        title=f"Concepts found: {setting.key}{context.title_suffix}",
        axis="F1 of the positive class, mean and standard deviation over fits",
        description="For each concept the F1 of its vector against Easy Negatives only, and "
        "against all clips without the concept.",
        limits=(0, 1),
        guess="calling all clips positive",
    )


def _dot(score: _ConceptScore | None) -> Dot:
    if score is None or score.mean is None:
        return Dot(None)
    std = score.std or 0.0
    low, high = max(0.0, score.mean - std), min(1.0, score.mean + std)
    return Dot(score.mean, low, high, guess=score.chance)
