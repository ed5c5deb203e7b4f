"""Figures 2, 3 and 5: levels and concepts, concept vectors, and the first questions of trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from obygaze_features.common.figures import SERIES, SOFT
from obygaze_features.common.grouping import group_by
from obygaze_features.common.package import reference_json
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.statistics import statistics
from obygaze_models.data.targets import NEGATIVES
from obygaze_models.figures.dots import Dot, Series, dot_plot, level_series
from obygaze_models.saved.model import load_model
from obygaze_models.scoring.metrics import baselines
from obygaze_models.studies.reproduce.context import PlannedRun, ReproductionContext, Runs
from obygaze_models.studies.reproduce.protocols import CONCEPTS_FILE
from obygaze_models.studies.reproduce.render import Artifacts, Block, Line, Table, Value
from obygaze_models.studies.reproduce.table2 import HEADS, READINGS, plan_bottlenecks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from obygaze_models.estimators.trees import TreeArrays

BARS = {"a": "solid bars", "b": "hatched bars"}
"""The bars of each set of negatives in the paper's figure 3."""
_METHODS = {
    "released": "classes weighted, C from the authors",
    "leak-free": "negatives sampled to balance, C chosen on validation",
    "paper": "negatives of some folds, C chosen on validation",
}
"""The method by which each protocol trains the vectors."""
LEVELS = 3
"""The number of levels of questions of a tree to show."""
TREE_COLUMNS = ["threshold", "share of S where not above", "share of S where above"]


def make_figure2(context: ReproductionContext, runs: Runs) -> Artifacts:
    """Tabulate levels (with the paper's numbers) and concepts, and draw both."""
    counts = statistics(context.manifest)
    levels = [row for row in counts["levels"] if row["clips"]]
    codes = [row["level"] for row in levels]
    published = {}
    if context.has_papers_clips:
        published = reference_json("published.json")["figure2"]

    lines = [Line("clips", "count", {row["level"]: row["clips"] for row in levels})]
    for name, measure, key in (
        ("share of clips", "share", "shares"),
        ("concepts a clip", "concepts_per_clip", "concepts_per_clip"),
    ):
        numbers = {row["level"]: row[measure] for row in levels if row[measure]}
        lines.append(Line(name, "ours", numbers))
        lines.append(Line("published", "published", published.get(key, {})))
    rates = []
    for row in counts["concepts"]:
        rates.append(Line(row["concept"], "ours", {code: row[code] for code in codes}))
    blocks = [
        Block("Levels", "", "share", lines),
        Block("Share of the level's clips that show a concept", "", "share", rates),
    ]

    figure = levels_figure(context.manifest, f"Levels of objectification{context.title_suffix}")
    labels = context.manifest.labels().name
    return Artifacts([Table(codes, blocks)], {"fig2": figure}, {"labels": labels})


def levels_figure(manifest: Manifest, title: str) -> Figure:
    """Draw the share of each level, and of each level's clips that have each concept."""
    counts = statistics(manifest)
    # Levels without concepts come last. They have dots only in the first row.
    levels = [row for row in reversed(counts["levels"]) if row["clips"]]
    levels.sort(key=lambda row: row["concepts_per_clip"] == 0)
    with_concepts = [row["level"] for row in levels if row["concepts_per_clip"]]
    rows = [("share of clips", [Dot(row["share"]) for row in levels])]
    for row in counts["concepts"]:
        rows.append((row["concept"], [Dot(row[code]) for code in with_concepts]))

    names = manifest.label_scheme().name_of
    series = dict(zip(names, level_series(names), strict=True))
    return dot_plot(
        rows,
        [series[row["level"]] for row in levels],
        title=title,
        axis="share of all clips (first row), and of each level's clips that have the concept",
        description="The share of each level, and of each level's clips that have a concept.",
        limits=(0, 1),
    )


def plan_vectors(context: ReproductionContext) -> Iterator[PlannedRun]:
    """Yield a part for each setting, set of negatives and C, with the concepts for this C.

    Only the released protocol fixes the C of each concept.
    """
    for setting, negatives in product(context.settings, BARS):
        C_of = {}
        if setting.protocol == "released":
            C_of = READINGS["code"]["concepts"]["bank__C"]
        for C, concepts in group_by(context.manifest.scheme.visual_concepts, C_of.get).items():
            suffix = f"concepts-{negatives}"
            name = f"Concepts against {NEGATIVES[negatives]}, {setting.key}"
            estimator = {"name": "svm"}
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
            yield PlannedRun("all bars", setting, "xclip", "native", suffix, options)


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
        lines = []
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


def plan_trees(context: ReproductionContext) -> Iterator[PlannedRun]:
    """Yield the bottlenecks for the first available setting."""
    for setting in context.settings[:1]:
        yield from plan_bottlenecks("all trees", setting)


def make_figure5(context: ReproductionContext, runs: Runs) -> Artifacts:
    """Tabulate the trees for both readings and both training sets."""
    setting = context.settings[0]
    blocks = []
    for (folder, run), reading in product(runs.items(), READINGS):
        level = folder.rpartition("-")[2]
        name = f"{HEADS['tree'][1]}, {reading}"
        saved = next(row for row in run.saved if row["model"] == name)
        model = load_model(saved["folder"]).estimator
        head = model.head_
        concepts = list(map(str, model.bank_.get_feature_names_out()))
        title = f"{level} against S, {READINGS[reading]['title']}"
        lines = []
        for node, question in first_questions(head, concepts):
            shares = [head.value[side[node], 1] for side in (head.left, head.right)]
            numbers = map(float, (head.threshold[node], *shares))
            values = dict(zip(TREE_COLUMNS, numbers, strict=True))
            lines.append(Line(question, "ours", values))
        about = f"{title}; {setting.key}, run {saved['fit']}"
        blocks.append(Block(about, setting.protocol, "threshold", lines))
    return Artifacts([Table(TREE_COLUMNS, blocks)], facts={"setting": setting.title})


def first_questions(
    head: TreeArrays,
    concepts: Sequence[str],
    node: int = 0,
    path: str = "",
    levels: int = LEVELS,
) -> Iterator[tuple[int, str]]:
    """Yield the node and the path of each question in the first levels, in preorder."""
    if head.left[node] == -1 or not levels:
        return
    question = path + concepts[head.feature[node]]
    yield node, question
    for side, children in (("not above", head.left), ("above", head.right)):
        child = int(children[node])
        yield from first_questions(head, concepts, child, f"{question} {side}: ", levels - 1)
