"""Scores of a run's predictions: of each fit, their mean and interval, and those of guessing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.baselines import baselines, simulated
from obygaze_models.experiments.predictions import FitPredictions
from obygaze_models.experiments.record import (
    MAKE,
    ClassCounts,
    GroupScores,
    ModelScores,
    Scores,
    Simulated,
    TestSet,
)
from obygaze_models.scoring.intervals import ScoredClips, film_intervals
from obygaze_models.scoring.metrics import TREC, score, trec_ranks

TOLERANCE = 1e-6
"""Between scores that another release of a library computes."""


def score_models(
    predictions: Sequence[FitPredictions],
    film_of: Mapping[str, str],
    *,
    seed: int,
    trec: bool = False,
) -> list[ModelScores]:
    """For each model and test set the scores of each fit, their mean, deviation and interval.

    Parameters
    ----------
    predictions
        Of all fits.
    film_of
        The film of each clip.
    seed
        Of the draws of films.
    trec
        trec_eval's average precision is among the scores.
    """
    fits_of: dict[tuple[str, str], list[FitPredictions]] = {}
    for prediction in predictions:
        fits_of.setdefault((prediction.model, prediction.test), []).append(prediction)
    return [_score_model(fits, film_of, seed, trec) for fits in fits_of.values()]


def score_fit(fit: FitPredictions, *, trec: bool) -> Scores:
    """The scores of one fit on one test set."""
    # Clips without features are in a warning of the run.
    ranks = trec_ranks(fit.ids, fit.probabilities) if trec else None
    return score(fit.labels, fit.probabilities, ranks)


def _score_model(
    fits: Sequence[FitPredictions], film_of: Mapping[str, str], seed: int, trec: bool
) -> ModelScores:
    by_fit = [score_fit(fit, trec=trec) for fit in fits]
    scored = [
        ScoredClips(
            fit.labels,
            fit.probabilities,
            [film_of[clip] for clip in fit.ids],
            trec_ranks(fit.ids, fit.probabilities) if trec else None,
        )
        for fit in fits
    ]
    by_group: dict[str, list[Scores]] = {}
    for fit, scores in zip(fits, by_fit, strict=True):
        if fit.group:
            by_group.setdefault(fit.group, []).append(scores)
    return ModelScores(
        model=fits[0].model,
        test=fits[0].test,
        mean=over_fits(np.mean, by_fit),
        std=over_fits(np.std, by_fit),
        interval=film_intervals(scored, seed=seed),
        films=len({film for fit in scored for film in fit.films}),
        groups={
            name: GroupScores(
                fits=len(group), mean=over_fits(np.mean, group), std=over_fits(np.std, group)
            )
            for name, group in by_group.items()
        },
        fits=[fit.fit for fit in fits],
        by_fit=by_fit,
    )


def check_scores(scores: ModelScores, predictions: Sequence[FitPredictions]) -> None:
    """Raise where a record's scores are not those of its predictions: who edits a run's files can
    write new digests.
    """
    fits = [f for f in predictions if (f.model, f.test) == (scores.model, scores.test)]
    by_fit = [score_fit(fit, trec=TREC in scores.mean) for fit in fits]
    what = f"{scores.model} on {scores.test}"
    if scores.fits != [fit.fit for fit in fits] or len(scores.by_fit) != len(fits):
        raise ExperimentError(f"the fits of {what} are not those predicted; run it again")
    recorded = [*scores.by_fit, scores.mean, scores.std]
    expected = [*by_fit, over_fits(np.mean, by_fit), over_fits(np.std, by_fit)]
    for written, computed in zip(recorded, expected, strict=True):
        for metric, value in computed.items():
            recorded_value = written.get(metric)
            same = value is recorded_value is None or (
                value is not None
                and recorded_value is not None
                and math.isclose(value, recorded_value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            )
            if not same:
                raise ExperimentError(
                    f"the {metric} of {what} is not that of its predictions; a file was edited or "
                    f"is damaged; run it again with: {MAKE}"
                )


def score_test_sets(
    predictions: Sequence[FitPredictions], classes_of: Mapping[str, Sequence[str]], *, seed: int
) -> dict[str, TestSet]:
    """Each test set's size and what guessing scores there: the mean over the fits' test clips.

    Where all fits share their test clips that is the closed form at these clips' share of
    positives. A coin is also thrown many times for each fit's test clips; its mean and deviation
    are averaged over the fits.
    """
    fits_of: dict[str, dict[int, FitPredictions]] = {}
    for prediction in predictions:
        fits_of.setdefault(prediction.test, {})[prediction.fit] = prediction
    return {
        name: _score_test_set([*fits.values()], classes_of[name], seed)
        for name, fits in fits_of.items()
    }


def _score_test_set(fits: Sequence[FitPredictions], classes: Sequence[str], seed: int) -> TestSet:
    label_of: dict[str, int] = {}
    for fit in fits:
        label_of.update(zip(fit.ids, fit.labels.tolist(), strict=True))
    counts = class_counts(np.array(list(label_of.values())), classes)
    guesses: dict[str, Scores] = {}
    coin = None
    if len(classes) == 2:
        closed_forms = [baselines(float(fit.labels.mean())) for fit in fits]
        guesses = {
            name: over_fits(np.mean, [scores[name] for scores in closed_forms])
            for name in closed_forms[0]
        }
        throws = [_throw_coins(len(fit.labels), int(fit.labels.sum()), seed=seed) for fit in fits]
        coin = Simulated(
            mean=over_fits(np.mean, [scores["mean"] for scores in throws]),
            std=over_fits(np.mean, [scores["std"] for scores in throws]),
        )
    return TestSet(
        clips=counts.clips,
        positives=counts.positives,
        classes=counts.classes,
        share=None if counts.positives is None else counts.positives / counts.clips,
        baselines=guesses,
        simulated=coin,
    )


#: Many fits have test sets of the same size.
_throw_coins = cache(simulated)


def class_counts(labels: NDArray[Any], classes: Sequence[str]) -> ClassCounts:
    """How many clips there are, and of each class; and the positives of two classes."""
    count = Counter(labels.tolist())
    return ClassCounts(
        clips=len(labels),
        positives=count[1] if len(classes) == 2 else None,
        classes={name: count[code] for code, name in enumerate(classes)},
    )


def over_fits(statistic: Callable[[list[float]], Any], fits: Sequence[Scores]) -> Scores:
    """A statistic of each metric over the fits in which it is defined; None if in none."""
    result: Scores = {}
    for key in fits[0]:
        values = [value for scores in fits if (value := scores[key]) is not None]
        result[key] = float(statistic(values)) if values else None
    return result
