"""Figure 6 (4 in version 2): what errors go with, film by film."""

from __future__ import annotations

from obygaze_features.manifests.statistics import film_titles
from obygaze_models.data.warnings import unique_warnings
from obygaze_models.experiments.messages import notes, table_warnings
from obygaze_models.experiments.predictions import average_over_fits
from obygaze_models.explain.error_factors import FilmFactors, factors_of_clips
from obygaze_models.figures.factors import error_factors
from obygaze_models.reproduce.context import ReproductionContext, Unavailable, target
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value
from obygaze_models.reproduce.table4 import FILMS_LEFT_OUT, MODEL, TEST, films_left_out


@target("fig6", draws=True)
def fig6(context: ReproductionContext) -> Artifacts:
    """Right or wrong, regressed on concepts and levels, from predictions on films left out."""
    name, title = "fig6", "Figure 6: what errors of the network (X-CLIP, native) go with, by film"
    try:
        run = films_left_out(context)()
    except Unavailable as problem:
        return Artifacts([Table(name, title, [], [], missing=[f"all films: {problem}"])])
    predictions = average_over_fits(
        [fit for fit in run.predictions() if (fit.model, fit.test) == (MODEL, TEST)]
    )
    clips = [run.clips()[clip] for clip in predictions.ids]
    films = factors_of_clips(clips, predictions.wrong, context.manifest.scheme.codes)
    titles = film_titles(context.manifest)
    columns = ["clips", "wrong", *(factor.name for factor in films[0].factors)]
    lines = [_line(film, titles.get(film.film or "", film.film)) for film in films]
    block = Block(f"{TEST}, trained on HN vs S", "leave-film-out", "coefficient", lines)
    table_notes = [
        *notes(
            "Coefficients of a logistic regression of wrong (1) or right (0) on the factors, with "
            "a ridge penalty; in brackets the 95% interval over draws of the film's clips, of all "
            "films over draws of films. A dash: all of the film's clips have the factor, or none "
            "has.",
            "The paper fits the clips of one test fold, 4 to 16 a film. These are of films left "
            "out of training, each clip by its mean probability over the fits that tested it.",
        ),
        *unique_warnings(table_warnings(run.record, f"X-CLIP, native, {FILMS_LEFT_OUT.key}")),
        *notes(
            *(
                f"{titles.get(film.film or '', film.film)}: {film.too_few}"
                for film in films
                if film.too_few
            )
        ),
    ]
    figure = error_factors(
        films,
        {film: title.partition(" (")[0] for film, title in titles.items()},
        title=f"What errors of the network go with{context.title_suffix}",
        description="For each film how the odds of an error change with each concept and level.",
    )
    return Artifacts([Table(name, title, columns, [block], table_notes)], {"fig6": figure})


def _line(film: FilmFactors, title: str | None) -> Line:
    values: dict[str, Value | None] = {"clips": Value(film.clips), "wrong": Value(film.wrong)}
    for factor in film.factors:
        if factor.coefficient is None:
            values[factor.name] = None
        elif factor.low is None or factor.high is None:
            values[factor.name] = Value(factor.coefficient)
        else:
            values[factor.name] = Value(factor.coefficient, interval=(factor.low, factor.high))
    return Line(title or "all films", "ours", values)
