"""Table 4 and figure 6 (4 in version 2): each film left out in turn, and what errors go with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from obygaze_features.common.text import group_by
from obygaze_features.manifests.statistics import film_titles
from obygaze_models.data.protocols import FILM_CLIPS
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.estimators.baselines import baselines
from obygaze_models.experiments.messages import notes, table_warnings
from obygaze_models.experiments.predictions import average_over_fits, score_over_fits
from obygaze_models.experiments.published import AVERAGES, published_average, published_films
from obygaze_models.experiments.run_folder import Run
from obygaze_models.explain.error_factors import factors_of_clips
from obygaze_models.reproduce.context import Pending, ReproductionContext, Setting, target
from obygaze_models.reproduce.factors import error_factors
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value

FILMS_LEFT_OUT = Setting("leave-film-out", "leave-film-out", None, "Each film left out")
TABLE4 = "Table 4: each film left out in turn, X-CLIP, HN-S/ENHN-S"
FIG6 = "Figure 6: what errors of the network (X-CLIP, native) go with, by film"
TEST = "EN+HN vs S"
MODEL = "mlp"
#: The authors' list of clips for this table, if the manifest has it.
_CLIPS = "movieset_ENHN_S"
_DIFFERENCES = {column: f"ours minus it, {column}" for column in AVERAGES}
_COLUMNS = [
    *AVERAGES, "published", *_DIFFERENCES.values(), "clips", "of them S",
    *(f"all positive, {column}" for column in AVERAGES),
]  # fmt: skip
Values = dict[str, Value | None]


def films_left_out(context: ReproductionContext) -> Pending:
    """The run that leaves out one film after another."""
    has_clips = _CLIPS in context.manifest.split_names
    return context.run(
        replace(FILMS_LEFT_OUT, labels=context.released_labels),
        context.feature("xclip", "native"),
        "HN",
        name="X-CLIP, native: HN against S, each film left out",
        positives=("S",),
        train_negatives=("HN",),
        test_negatives=(("EN", "HN"),),
        split=_CLIPS if has_clips else None,
        balance="none",  # as the authors do
        # The bottleneck explains decisions in the report; to choose its C in 90 fits gains nothing.
        estimators=(MODEL, {"name": "pcbm-logistic", "bank__C": 0.1}),
    )


@target("table4", TABLE4)
def table4(context: ReproductionContext) -> Artifacts:
    """One row a film, mean and deviation over the other films that stop the training."""
    run = films_left_out(context)()
    scores_of_run = next(scores for scores in run.record.scores if scores.model == MODEL)
    clips, table = run.clips(), run.predictions()
    first = table[table["model"] == MODEL].drop_duplicates("fit")
    films = {fit: clips[clip].group for fit, clip in zip(first["fit"], first["id"], strict=True)}
    by_film = group_by(
        zip(scores_of_run.fits, scores_of_run.by_fit, strict=True), lambda pair: films[pair[0]]
    )
    groups = {
        film: score_over_fits([scores for _, scores in fits]) for film, fits in by_film.items()
    }
    published = published_films() if context.is_published("xclip") else {}
    labels = _labels_by_film(run)
    lines: list[Line] = []
    means: dict[str, list[float]] = {column: [] for column in AVERAGES}
    for film, scores in groups.items():
        positives = sum(labels[film].values())
        chance = baselines(positives / len(labels[film]))["all positive"]
        values: Values = {"clips": Value(len(labels[film])), "of them S": Value(positives)}
        for column, metric in AVERAGES.items():
            mean, guess = scores.mean[metric], chance[metric]
            values[column] = None if mean is None else Value(mean, scores.std[metric])
            means[column] += [] if mean is None else [mean]
            values[f"all positive, {column}"] = None if guess is None else Value(guess)
        if film in published:
            values |= _beside(values, published[film].mean, published[film].std)
        lines.append(Line(run.clips()[next(iter(labels[film]))].title, "ours", values))
    average: Values = {
        column: Value(float(np.mean(scores))) if scores else None
        for column, scores in means.items()
    }
    if published and published.keys() == groups.keys():
        average |= _beside(average, published_average().mean, None)
    lines.append(Line("average", "ours", average))
    texts = [
        "The paper does not say which average of F1 Table 4 has, so both of ours are here. Its "
        "Table 2 has the weighted one for such networks.",
        f"Clips: {run.record.split or 'all with one of these labels'}; a film is tested if it has "
        f"{FILM_CLIPS} clips of each class in training; {len(groups)} have.",
        "Deviations are over the films that stop the training, not over test clips: they say "
        "little about how certain a film's score is.",
    ]
    if absent := [film for film in published if film not in groups]:
        texts.append(
            f"Published, but not tested here: {', '.join(absent)}; so the paper's average, which "
            "is over other films, is left out."
        )
    table_notes = [*notes(*texts), *_run_warnings(run)]
    differences = list(_DIFFERENCES.values())
    return Artifacts(
        [Table("table4", TABLE4, _COLUMNS, [_block("f1", lines)], table_notes, (), differences)]
    )


def _labels_by_film(run: Run) -> dict[str, dict[str, int]]:
    """The labels of each film's test clips, by id."""
    labels: dict[str, dict[str, int]] = {}
    clips, table = run.clips(), run.predictions()
    own = table[table["model"] == MODEL]
    for clip, label in zip(own["id"], own["label"].tolist(), strict=True):
        labels.setdefault(clips[clip].film, {})[clip] = label
    return labels


def _beside(ours: Mapping[str, Value | None], mean: float, std: float | None) -> dict[str, Value]:
    """The published number, and ours minus it."""
    return {"published": Value(mean, std)} | {
        difference: Value(value.mean - mean)
        for column, difference in _DIFFERENCES.items()
        if (value := ours[column]) is not None
    }


@target("fig6", FIG6, "all films", draws=True)
def fig6(context: ReproductionContext) -> Artifacts:
    """Right or wrong, regressed on concepts and levels, from predictions on films left out."""
    run = films_left_out(context)()
    all_fits = run.predictions()
    is_asked = (all_fits["model"] == MODEL) & (all_fits["test"] == TEST)
    predictions = average_over_fits(all_fits[is_asked])
    clips = [run.clips()[clip] for clip in predictions["id"]]
    is_wrong = (predictions["called"] != predictions["label"]).to_numpy()
    films = factors_of_clips(clips, is_wrong, context.manifest.scheme.codes)
    titles = film_titles(context.manifest)
    names = [titles.get(film.film, film.film) if film.film else "all films" for film in films]
    lines = []
    for name_of_film, film in zip(names, films, strict=True):
        values: Values = {"clips": Value(film.clips), "wrong": Value(film.wrong)}
        for factor in film.factors:
            low, high, mean = factor.low, factor.high, factor.coefficient
            interval = None if low is None or high is None else (low, high)
            values[factor.name] = None if mean is None else Value(mean, interval=interval)
        lines.append(Line(name_of_film, "ours", values))
    columns = ["clips", "wrong", *(factor.name for factor in films[0].factors)]
    texts = (
        "Coefficients of a logistic regression of wrong (1) or right (0) on the factors, with "
        "a ridge penalty; in brackets the 95% interval over draws of the film's clips, of all "
        "films by the jackknife over films. A dash: all of the film's clips have the factor, or "
        "none has.",
        "The paper fits the clips of one test fold, 4 to 16 a film. These are of films left "
        "out of training, each clip by its mean probability over the fits that tested it.",
    )
    too_few = [
        f"{title}: {film.too_few}" for title, film in zip(names, films, strict=True) if film.too_few
    ]
    table_notes = [*notes(*texts), *_run_warnings(run), *notes(*too_few)]
    figure = error_factors(
        films,
        {film: title.partition(" (")[0] for film, title in titles.items()},
        title=f"What errors of the network go with{context.title_suffix}",
        description="For each film how the odds of an error change with each concept and level.",
    )
    table = Table("fig6", FIG6, columns, [_block("coefficient", lines)], table_notes)
    return Artifacts([table], {"fig6": figure})


def _run_warnings(run: Run) -> list[RunWarning]:
    return unique_warnings(table_warnings(run.record, f"X-CLIP, native, {FILMS_LEFT_OUT.key}"))


def _block(score: str, lines: list[Line]) -> Block:
    return Block(f"{TEST}, trained on HN vs S", "leave-film-out", score, lines)
