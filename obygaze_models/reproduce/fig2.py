"""Figure 2: how common the levels are, and the concepts within each."""

from __future__ import annotations

from obygaze_features.common.package import reference_json
from obygaze_features.manifests.statistics import Counts, Statistics, film_titles, statistics
from obygaze_models.figures import Bar, Share, grouped_bars, level_series, stacked_shares
from obygaze_models.reproduce.bench import Bench
from obygaze_models.reproduce.tables import Block, Line, Made, Table, Value
from obygaze_models.warnings import synthetic_warnings

__all__ = ["fig2"]


def fig2(bench: Bench) -> Made:
    """Levels by film, concepts by level; both beside what the paper prints of them."""
    found = statistics(bench.read)
    scheme = bench.read.scheme
    codes = [code for code in scheme.codes if found.all.levels[code]]
    said = reference_json("published.json")["figure2"]
    titles = film_titles(bench.read)
    names = {level.code: level.name for level in scheme.levels}
    levels = level_series({code: names[code] for code in codes})
    rows = [
        Share("all films", _parts(found.all, codes), found.all.total, overall=True),
        *(
            Share(titles.get(film, film), _parts(of, codes), of.total)
            for film, of in found.films.items()
        ),
    ]
    within = [code for code in codes if sum(found.all.concepts[code].values())]
    rates = {
        concept: [Bar(found.all.concept_rate(code, concept)) for code in within]
        for concept in found.concepts
    }
    figures = {
        "fig2-levels": stacked_shares(
            rows,
            levels,
            title=f"Levels of objectification by film{bench.mark}",
            axis="share of the film's clips",
            description="For each film the shares of its clips by level, and those of all films.",
        ),
    }
    if rates:
        figures["fig2-concepts"] = grouped_bars(
            rates,
            [levels[codes.index(code)] for code in within],
            title=f"Concepts within levels{bench.mark}",
            axis="share of the level's clips that show the concept",
            description="For each concept how common it is among the clips of each level.",
            percent=True,
        )
    return Made([_table(bench, found, codes, said)], figures)


def _table(
    bench: Bench, found: Statistics, codes: list[str], said: dict[str, dict[str, float]]
) -> Table:
    counts, concepts = found.all, found.concepts
    if not bench.is_papers:
        said = {"shares": {}, "concepts_per_clip": {}}
    shares_of = Line("share of clips", "ours", {c: Value(counts.share(c)) for c in codes})
    marked = [code for code in codes if counts.concepts_per_item(code)]
    per = Line("concepts a clip", "ours", {c: Value(counts.concepts_per_item(c)) for c in marked})
    theirs = [
        Line(
            "published, and ours less it",
            "published",
            {
                c: Value(printed[c], difference=value.mean - printed[c])
                for c, value in line.values.items()
                if c in printed and value is not None
            },
        )
        for line, printed in ((shares_of, said["shares"]), (per, said["concepts_per_clip"]))
    ]
    clips = Line("clips", "count", {c: Value(counts.levels[c]) for c in codes})
    rates = [
        Line(name, "ours", {c: Value(counts.concept_rate(c, name)) for c in codes})
        for name in concepts
    ]
    return Table(
        "fig2",
        "Figure 2: levels and concepts",
        codes,
        [
            Block(
                "Levels",
                "",
                "share",
                [line for line in (clips, shares_of, theirs[0], per, theirs[1]) if line.values],
            ),
            Block("Share of the level's clips that show a concept", "", "share", rates),
        ],
        [
            f"Label set: {found.labels}. "
            + (
                "The published bars have no numbers; these are the ones that the text prints."
                if bench.is_papers
                else f"The clips are those of {bench.read.name}, not the paper's."
            ),
            *map(str, synthetic_warnings(bench.read.items, {})),
        ],
    )


def _parts(counts: Counts, codes: list[str]) -> list[float]:
    return [counts.share(code) for code in codes]
