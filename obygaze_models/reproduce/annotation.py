"""Figure 2: the frequency of the levels in the annotation, and of the concepts at each level."""

from __future__ import annotations

from obygaze_features.common.package import reference_json
from obygaze_features.items.films import film_titles
from obygaze_features.manifests.statistics import statistics, statistics_figure
from obygaze_models.reproduce.context import ReproductionContext, Runs
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, plain


def make_figure2(context: ReproductionContext, runs: Runs) -> Artifacts:
    """Tabulate levels, next to the paper's numbers, and concepts; draw levels by film."""
    counts = statistics(context.manifest)
    total = counts.all
    codes = [code for code in context.manifest.scheme.codes if total.levels[code]]
    published = {}
    if context.has_papers_clips:
        published = reference_json("published.json")["figure2"]

    lines = [Line("clips", "count", plain({code: total.levels[code] for code in codes}))]
    for name, key, measure in (
        ("share of clips", "shares", total.share),
        ("concepts a clip", "concepts_per_clip", total.concepts_per_item),
    ):
        numbers = {code: number for code in codes if (number := measure(code))}
        ours = Line(name, "ours", plain(numbers))
        lines += ours.beside(plain(published.get(key, {})))
    rates = []
    for concept in counts.concepts:
        numbers = {code: total.concept_rate(code, concept) for code in codes}
        rates.append(Line(concept, "ours", plain(numbers)))
    blocks = [
        Block("Levels", "", "share", lines),
        Block("Share of the level's clips that show a concept", "", "share", rates),
    ]
    figure = statistics_figure(
        counts,
        film_titles(context.manifest.items),
        by_film=True,
        title=f"Levels of objectification{context.title_suffix}",
    )
    return Artifacts([Table(codes, blocks)], {"fig2": figure}, {"labels": counts.labels})
