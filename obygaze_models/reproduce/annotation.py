"""Figure 2: how common the levels are in the annotation, and the concepts within each."""

from __future__ import annotations

from collections.abc import Mapping

from obygaze_features.common.package import reference_json
from obygaze_features.manifests.statistics import Statistics, film_titles, statistics
from obygaze_models.data.warnings import origin_warnings
from obygaze_models.experiments.messages import notes
from obygaze_models.figures.bars import Share, stacked_shares
from obygaze_models.figures.dots import Panel, level_series, panel_plot, round_up
from obygaze_models.figures.sheet import Dot
from obygaze_models.reproduce.context import ReproductionContext, target
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value, published_lines


@target("fig2", trains=False, draws=True)
def fig2(context: ReproductionContext) -> Artifacts:
    """Levels by film, concepts by level; both beside the numbers that the paper prints."""
    counts = statistics(context.manifest)
    scheme = context.manifest.scheme
    codes = [code for code in scheme.codes if counts.all.levels[code]]
    titles = film_titles(context.manifest)
    names = {level.code: level.name for level in scheme.levels}
    levels = level_series({code: names[code] for code in codes})
    films = {"all films": counts.all} | {
        titles.get(film, film): of_film for film, of_film in counts.films.items()
    }
    rows = [
        Share(film, [part.share(code) for code in codes], part.total, overall=part is counts.all)
        for film, part in films.items()
    ]
    figures = {
        "fig2-levels": stacked_shares(
            rows,
            levels,
            title=f"Levels of objectification by film{context.title_suffix}",
            axis="share of the film's clips",
            description="For each film the shares of its clips by level, and those of all films.",
        )
    }
    with_concepts = [code for code in codes if sum(counts.all.concepts[code].values())]
    rates = {
        concept: [Dot(counts.all.concept_rate(code, concept)) for code in with_concepts]
        for concept in counts.concepts
    }
    if rates:
        largest = max(dot.value or 0.0 for dots in rates.values() for dot in dots)
        panel = Panel(
            list(rates.values()),
            [levels[codes.index(code)] for code in with_concepts],
            "share of the level's clips that show the concept",
            limits=(0.0, round_up(largest)),
            percent=True,
        )
        figures["fig2-concepts"] = panel_plot(
            [list(rates)],
            panel,
            title=f"Concepts within levels{context.title_suffix}",
            description="For each concept how common it is among the clips of each level.",
        )
    return Artifacts([_table(context, counts, codes)], figures)


def _table(context: ReproductionContext, counts: Statistics, codes: list[str]) -> Table:
    total = counts.all
    printed, source = {}, f"The clips are those of {context.manifest.name}, not the paper's."
    if context.has_papers_clips:
        printed = reference_json("published.json")["figure2"]
        source = "The published bars have no numbers; these are the ones that the text prints."
    shares = {code: total.share(code) for code in codes}
    per_clip = {code: n for code in codes if (n := total.concepts_per_item(code))}
    lines = [
        Line.of("clips", "count", {code: total.levels[code] for code in codes}),
        *_lines("share of clips", shares, printed.get("shares", {})),
        *_lines("concepts a clip", per_clip, printed.get("concepts_per_clip", {})),
    ]
    rates = [
        line
        for concept in counts.concepts
        for line in _lines(concept, {code: total.concept_rate(code, concept) for code in codes}, {})
    ]
    return Table(
        "fig2",
        "Figure 2: levels and concepts",
        codes,
        [
            Block("Levels", "", "share", lines),
            Block("Share of the level's clips that show a concept", "", "share", rates),
        ],
        [*notes(f"Label set: {counts.labels}. {source}"), *origin_warnings(context.manifest.items)],
    )


def _lines(name: str, ours: Mapping[str, float], printed: Mapping[str, float]) -> list[Line]:
    """Our numbers, and those that the paper prints with ours less them."""
    published = {
        code: Value(printed[code], difference=value - printed[code])
        for code, value in ours.items()
        if code in printed
    }
    return [Line.of(name, "ours", ours), *published_lines(published)] if ours else []
