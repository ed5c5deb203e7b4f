"""Figure 6 (4 in version 2): what errors go with, film by film."""

from __future__ import annotations

from obygaze_features.manifests.statistics import film_titles
from obygaze_models.experiments.results import average_over_fits
from obygaze_models.explain.error_factors import FilmFactors, factors_of_clips
from obygaze_models.figures import error_factors
from obygaze_models.reproduce.bench import Bench
from obygaze_models.reproduce.caveats import about_runs, once
from obygaze_models.reproduce.table4 import FILMS_LEFT_OUT, TEST, films_left_out
from obygaze_models.reproduce.tables import Block, Line, Made, Table, Value

__all__ = ["fig6"]

MODEL = "mlp"


def fig6(bench: Bench) -> Made:
    """Right or wrong, regressed on concepts and levels, from predictions on films left out."""
    name, title = "fig6", "Figure 6: what errors of the network (X-CLIP, native) go with, by film"
    results = films_left_out(bench)
    if isinstance(results, str):
        return Made([Table(name, title, [], [], missing=[f"all films: {results}"])])
    said = average_over_fits(
        [one for one in results.said if (one.model, one.test) == (MODEL, TEST)]
    )
    clips = [results.clips[one] for one in said.ids]
    found = factors_of_clips(clips, said.wrong, bench.read.scheme.codes)
    titles = film_titles(bench.read)
    columns = ["clips", "wrong", *(one.name for one in found[0].factors)]
    lines = [line for of in found for line in _lines(of, titles.get(of.film or "", of.film))]
    block = Block(f"{TEST}, trained on HN vs S", "leave-film-out", "coefficient", lines)
    notes = [
        "Coefficients of a logistic regression of wrong (1) or right (0) on the factors, with a "
        "ridge penalty; in brackets the 95% interval over draws of the film's clips, of all films "
        "over draws of films. A dash: all of the film's clips have the factor, or none has.",
        "The paper fits the clips of one test fold, 4 to 16 a film. These are of films left out of "
        "training, each clip by its mean probability over the runs that tested it.",
    ]
    notes += once(about_runs(FILMS_LEFT_OUT, "X-CLIP, native", results))
    notes += [f"{titles.get(of.film or '', of.film)}: {of.too_few}" for of in found if of.too_few]
    figure = error_factors(
        found,
        {film: title.partition(" (")[0] for film, title in titles.items()},
        title=f"What errors of the network go with{bench.mark}",
        description="For each film how the odds of an error change with each concept and level.",
    )
    return Made([Table(name, title, columns, [block], notes)], {"fig6": figure})


def _lines(of: FilmFactors, title: str | None) -> list[Line]:
    counts: dict[str, Value | None] = {"clips": Value(of.clips), "wrong": Value(of.wrong)}
    for one in of.factors:
        if one.coefficient is None:
            counts[one.name] = None
            continue
        ends = None if one.low is None or one.high is None else (one.low, one.high)
        counts[one.name] = Value(one.coefficient, interval=ends)
    return [Line(title or "all films", "ours", counts)]
