"""Figure 2: the frequency of the levels in the annotation, and of the concepts at each level."""

from __future__ import annotations

from collections.abc import Mapping

from obygaze_features.common.package import reference_json
from obygaze_features.items.films import film_titles
from obygaze_features.manifests.statistics import statistics, statistics_figure
from obygaze_models.data.warnings import origin_warnings
from obygaze_models.experiments.warnings import notes
from obygaze_models.reproduce.context import ReproductionContext, Runs, Target
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value


@Target("fig2", "Figure 2", "levels and concepts", draws=True)
def fig2(context: ReproductionContext, runs: Runs) -> Artifacts:
    """Tabulate levels, next to the paper's numbers, and concepts; draw levels by film."""
    counts = statistics(context.manifest)
    total = counts.all
    codes = [code for code in context.manifest.scheme.codes if total.levels[code]]
    printed, source = {}, f"The clips are from {context.manifest.name}, not from the paper."
    if context.has_papers_clips:
        printed = reference_json("published.json")["figure2"]
        source = "The published bars have no numbers. The published numbers here are from the text."
    shares = {code: total.share(code) for code in codes}
    per_clip = {code: n for code in codes if (n := total.concepts_per_item(code))}
    lines = [
        Line.of("clips", "count", {code: total.levels[code] for code in codes}),
        *_lines("share of clips", shares, printed.get("shares", {})),
        *_lines("concepts a clip", per_clip, printed.get("concepts_per_clip", {})),
    ]
    rates = [
        Line.of(concept, "ours", {code: total.concept_rate(code, concept) for code in codes})
        for concept in counts.concepts
    ]
    blocks = [
        Block("Levels", "", "share", lines),
        Block("Share of the level's clips that show a concept", "", "share", rates),
    ]
    titles = film_titles(context.manifest.items)
    title = f"Levels of objectification{context.title_suffix}"
    figure = statistics_figure(counts, titles, by_film=True, title=title)
    table_notes = notes(f"Label set: {counts.labels}. {source}")
    table_notes += origin_warnings(context.manifest.items)
    return Artifacts([Table(codes, blocks, table_notes)], {"fig2": figure})


def _lines(name: str, ours: Mapping[str, float], printed: Mapping[str, float]) -> list[Line]:
    """Return a line of our numbers, with the paper's numbers below it."""
    paper = {code: Value(number) for code, number in printed.items()}
    return Line.of(name, "ours", ours).beside(paper) if ours else []
