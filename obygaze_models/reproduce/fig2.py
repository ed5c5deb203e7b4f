"""Figure 2: how common the levels are, and the concepts within each."""

from __future__ import annotations

from collections.abc import Mapping

from obygaze_features.common.package import reference_json
from obygaze_features.manifests.statistics import Counts, Statistics, film_titles, statistics
from obygaze_models.data.warnings import origin_warnings
from obygaze_models.experiments.messages import notes
from obygaze_models.figures.bars import Share, stacked_shares
from obygaze_models.figures.dots import Panel, level_series, panel_plot, round_up
from obygaze_models.figures.sheet import Dot
from obygaze_models.reproduce.context import ReproductionContext, target
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value


@target("fig2", trains=False, draws=True)
def fig2(context: ReproductionContext) -> Artifacts:
    """Levels by film, concepts by level; both beside the numbers that the paper prints."""
    counts = statistics(context.manifest)
    scheme = context.manifest.scheme
    codes = [code for code in scheme.codes if counts.all.levels[code]]
    titles = film_titles(context.manifest)
    names = {level.code: level.name for level in scheme.levels}
    levels = level_series({code: names[code] for code in codes})
    rows = [
        Share("all films", _parts(counts.all, codes), counts.all.total, overall=True),
        *(
            Share(titles.get(film, film), _parts(of, codes), of.total)
            for film, of in counts.films.items()
        ),
    ]
    with_concepts = [code for code in codes if sum(counts.all.concepts[code].values())]
    rates = {
        concept: [Dot(counts.all.concept_rate(code, concept)) for code in with_concepts]
        for concept in counts.concepts
    }
    figures = {
        "fig2-levels": stacked_shares(
            rows,
            levels,
            title=f"Levels of objectification by film{context.title_suffix}",
            axis="share of the film's clips",
            description="For each film the shares of its clips by level, and those of all films.",
        ),
    }
    if rates:
        series = [levels[codes.index(code)] for code in with_concepts]
        largest = max(dot.value or 0.0 for dots in rates.values() for dot in dots)
        panel = Panel(
            list(rates.values()),
            series,
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
    printed = reference_json("published.json")["figure2"] if context.has_papers_clips else {}
    clips = Line("clips", "count", {code: Value(total.levels[code]) for code in codes})
    share = Line("share of clips", "ours", {code: Value(total.share(code)) for code in codes})
    per_clip = Line(
        "concepts a clip",
        "ours",
        {code: Value(number) for code in codes if (number := total.concepts_per_item(code))},
    )
    lines = [
        clips,
        share,
        _published(share, printed.get("shares", {})),
        per_clip,
        _published(per_clip, printed.get("concepts_per_clip", {})),
    ]
    rates = [
        Line(concept, "ours", {code: Value(total.concept_rate(code, concept)) for code in codes})
        for concept in counts.concepts
    ]
    source = (
        "The published bars have no numbers; these are the ones that the text prints."
        if context.has_papers_clips
        else f"The clips are those of {context.manifest.name}, not the paper's."
    )
    return Table(
        "fig2",
        "Figure 2: levels and concepts",
        codes,
        [
            Block("Levels", "", "share", [line for line in lines if line.values]),
            Block("Share of the level's clips that show a concept", "", "share", rates),
        ],
        [
            *notes(f"Label set: {counts.labels}. {source}"),
            *origin_warnings(context.manifest.items),
        ],
    )


def _published(ours: Line, printed: Mapping[str, float]) -> Line:
    """The numbers that the paper prints, and ours less them."""
    values = {
        code: Value(printed[code], difference=value.mean - printed[code])
        for code, value in ours.values.items()
        if code in printed and value is not None
    }
    return Line("published, and ours minus it", "published", values)


def _parts(counts: Counts, codes: list[str]) -> list[float]:
    return [counts.share(code) for code in codes]
