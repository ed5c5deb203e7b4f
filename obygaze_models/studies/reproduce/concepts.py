"""Figure 3: the scores of concept vectors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from obygaze_features.common.figures import SERIES, SOFT
from obygaze_features.common.grouping import group_by
from obygaze_models.data.targets import NEGATIVES
from obygaze_models.figures.dots import Dot, Series, dot_plot
from obygaze_models.scoring.metrics import baselines
from obygaze_models.studies.reproduce.context import Part, ReproductionContext, Runs
from obygaze_models.studies.reproduce.protocols import CONCEPTS_FILE
from obygaze_models.studies.reproduce.render import Artifacts, Block, Line, Table, Value
from obygaze_models.studies.reproduce.table2 import READINGS

BARS = {"a": "solid bars", "b": "hatched bars"}
"""The bars of each set of negatives in the paper's figure 3."""
_METHODS = {
    "released": "classes weighted, C from the authors",
    "leak-free": "negatives sampled to balance, C chosen on validation",
    "paper": "negatives of some folds, C chosen on validation",
}
"""The method by which each protocol trains the vectors."""


def plan_vectors(context: ReproductionContext) -> Iterator[Part]:
    """Yield a part for each setting, set of negatives and C, with the concepts for this C.

    Only the released protocol fixes the C of each concept.
    """
    for setting, negatives in product(context.settings, BARS):
        C_of: dict[str, float] = {}
        if setting.protocol == "released":
            C_of = READINGS["code"]["concepts"]["bank__C"]
        for C, concepts in group_by(context.manifest.scheme.visual_concepts, C_of.get).items():
            suffix = f"concepts-{negatives}"
            name = f"Concepts against {NEGATIVES[negatives]}, {setting.key}"
            estimator: dict[str, Any] = {"name": "svm"}
            if C is not None:
                suffix += f"-C{C:g}"
                name += f", C = {C:g}"
                estimator["C"] = C
            options = {
                "name": name,
                "concepts": tuple(concepts),
                "negatives": negatives,
                "split": CONCEPTS_FILE,
                "estimators": (estimator,),
            }
            yield Part("all bars", setting, "xclip", "native", suffix, options)


def make_figure3(context: ReproductionContext, runs: Runs) -> Artifacts:
    """Tabulate and draw the F1 of a linear SVM for each concept on X-CLIP, by protocol."""
    concepts = list(context.manifest.scheme.visual_concepts)
    series = []
    for negatives in BARS:
        is_hollow = negatives == "b"
        series.append(Series(f"against {NEGATIVES[negatives]}", SERIES[0], hollow=is_hollow))
        series.append(Series("calling all clips positive", SOFT, "|"))
    blocks = []
    figures = {}
    for setting in context.settings:
        lines: list[Line] = []
        for negatives in BARS:
            ours = {}
            guess = {}
            shares = {}
            for folder, run in runs.items():
                if not folder.startswith(f"{setting.key}/xclip-native-concepts-{negatives}"):
                    continue
                for scores in run.model_scores:
                    concept = run.task(scores.test).concept
                    test = run.tests[scores.test]
                    share = (test.positives or 0) / test.clips
                    ours[concept] = Value(scores.mean_of_fits["f1"], scores.std_of_fits["f1"])
                    # This is for all clips together, whereas the run records the mean over films.
                    guess[concept] = baselines(share)["all positive"]["f1"]
                    shares[concept] = share
            lines += [
                Line(f"against {NEGATIVES[negatives]} ({BARS[negatives]})", "ours", ours),
                Line("all positive, at the share below", "guess", guess),
                Line("share of positives, scored", "count", shares),
            ]
        rows = []
        for concept in concepts:
            dots = []
            for line in lines:
                if line.kind != "count":
                    mean, std, *_ = line.values.get(concept, Value(None))
                    ends = () if mean is None or std is None else (mean - std, mean + std)
                    dots.append(Dot(mean, *ends))
            rows.append((concept, dots))
        title = f"{setting.title}; {_METHODS[setting.protocol]}"
        blocks.append(Block(title, setting.protocol, "f1", lines))
        figures[f"fig3-{setting.key}"] = dot_plot(
            rows,
            series,
            title=f"Concept detection: {setting.key}{context.title_suffix}",
            axis="F1 of the positive class, mean and standard deviation over fits",
            description="The F1 of each concept's vector against Easy Negatives only, and "
            "against all clips without the concept.",
            limits=(0, 1),
        )
    return Artifacts([Table(concepts, blocks)], figures)
