"""Figure 2: the frequency of the levels in the annotation, and of the concepts at each level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obygaze_features.common.package import reference_json
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.statistics import statistics
from obygaze_models.figures.dots import Dot, dot_plot, level_series
from obygaze_models.studies.reproduce.context import ReproductionContext, Runs
from obygaze_models.studies.reproduce.render import Artifacts, Block, Line, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
