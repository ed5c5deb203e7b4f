"""Scores of a run's predictions: of each fit, their mean and interval, and those of guessing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.estimators.baselines import baselines, simulated
from obygaze_models.experiments.evaluate import Prediction
from obygaze_models.experiments.record import (
    ClassCounts,
    GroupScores,
    ModelScores,
    Scores,
    Simulated,
    TestSet,
)
from obygaze_models.intervals import ScoredClips, film_intervals
from obygaze_models.metrics import TREC, average_precision, score, trec_ranks

__all__ = ["class_counts", "over_fits", "score_models", "score_test_sets"]


def score_models(
    predictions: Sequence[Prediction],
    films: Sequence[str],
    *,
    seed: int,
    trec_ids: Sequence[str] | None = None,
) -> list[ModelScores]:
    """For each model and test set the scores of each fit, their mean, deviation and interval.

    Parameters
    ----------
    predictions
        Of all fits.
    films
        The film of each clip, by row.
    seed
        Of the draws of films.
    trec_ids
        The clips' ids, by row; with them trec_eval's average precision is among the scores.
    """
    fits_of: dict[tuple[str, str], list[Prediction]] = {}
    for prediction in predictions:
        fits_of.setdefault((prediction.model, prediction.test.name), []).append(prediction)
    return [
        _score_model(model, test, fits, films, seed, trec_ids)
        for (model, test), fits in fits_of.items()
    ]


def _score_model(
    model: str,
    test: str,
    fits: Sequence[Prediction],
    films: Sequence[str],
    seed: int,
    trec_ids: Sequence[str] | None,
) -> ModelScores:
    scored, by_fit = [], []
    by_group: dict[str, list[Scores]] = {}
    for fit in fits:
        rows, binary = fit.rows.tolist(), len(fit.test.classes) == 2
        probabilities = fit.probabilities[:, 1] if binary else fit.probabilities
        scores = score(fit.labels, probabilities)
        ranks = None
        if trec_ids is not None:
            # Every clip here is ranked, so that the ranks are enough; clips without features are
            # in a warning of the run.
            ranks = trec_ranks([trec_ids[row] for row in rows], probabilities)
            scores[TREC] = average_precision(fit.labels, ranks)
        scored.append(ScoredClips(fit.labels, probabilities, [films[row] for row in rows], ranks))
        by_fit.append(scores)
        if fit.fold.group:
            by_group.setdefault(fit.fold.group, []).append(scores)
    return ModelScores(
        model=model,
        test=test,
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
        fits=[fit.fold.index for fit in fits],
        by_fit=by_fit,
    )


def score_test_sets(predictions: Sequence[Prediction], *, seed: int) -> dict[str, TestSet]:
    """Each test set's size and what guessing scores there: the mean over the fits' test clips.

    Where all fits share their test clips that is the closed form at these clips' share of
    positives. A coin is also thrown many times for each fit's test clips; its mean and deviation
    are averaged over the fits.
    """
    labels_of: dict[str, dict[int, Prediction]] = {}
    for prediction in predictions:
        labels_of.setdefault(prediction.test.name, {})[prediction.fold.index] = prediction
    return {name: _score_test_set(list(by.values()), seed) for name, by in labels_of.items()}


def _score_test_set(fits: Sequence[Prediction], seed: int) -> TestSet:
    classes = fits[0].test.classes
    label_of: dict[int, int] = {}
    for fit in fits:
        label_of.update(zip(fit.rows.tolist(), fit.labels.tolist(), strict=True))
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
