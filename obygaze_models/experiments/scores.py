"""Scores of predictions: of each run, their mean and interval, and what guessing gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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

__all__ = ["class_counts", "score_runs", "score_tests"]


def score_runs(
    predictions: Sequence[Prediction],
    films: Sequence[str],
    *,
    seed: int,
    trec_ids: Sequence[str] | None = None,
) -> list[ModelScores]:
    """For each model and test set the scores of each run, their mean, deviation and interval.

    The deviation is that of these very runs (divided by n), as numpy gives it; the interval is
    that of `film_intervals`. Where runs fall into groups, such as the film that was left out,
    each group has its mean and deviation, too. With the clips' ids in `trec_ids` average precision
    as trec_eval has it is among the scores.
    """
    grouped: dict[tuple[str, str], list[Prediction]] = {}
    for one in predictions:
        grouped.setdefault((one.model, one.test.name), []).append(one)
    rows = []
    for (model, test), of in grouped.items():
        ranks = [_trec_ranks(one, trec_ids) for one in of]
        runs = [_score(one, rank) for one, rank in zip(of, ranks, strict=True)]
        scored = [
            ScoredClips(one.labels, _said(one), [films[row] for row in one.rows.tolist()], rank)
            for one, rank in zip(of, ranks, strict=True)
        ]
        names = list(dict.fromkeys(one.draw.group for one in of))
        groups = {
            name: [run for run, one in zip(runs, of, strict=True) if one.draw.group == name]
            for name in names
            if name
        }
        rows.append(
            ModelScores(
                model=model,
                test=test,
                mean=_over(np.mean, runs),
                std=_over(np.std, runs),
                interval=film_intervals(scored, seed=seed),
                films=len({film for one in scored for film in one.films}),
                groups={
                    name: GroupScores(
                        fits=len(group), mean=_over(np.mean, group), std=_over(np.std, group)
                    )
                    for name, group in groups.items()
                },
                fits=[one.draw.run for one in of],
                by_fit=runs,
            )
        )
    return rows


def score_tests(predictions: Sequence[Prediction], *, seed: int) -> dict[str, TestSet]:
    """Each test set's size, and what guessing scores there: the mean over the runs' test clips.

    Where all runs share their test clips that is the closed form at these clips' share. A coin is
    thrown for real, too, for each run's test clips; of these the mean and the deviation are means.
    """
    found: dict[str, dict[int, Prediction]] = {}
    for one in predictions:
        found.setdefault(one.test.name, {})[one.draw.run] = one
    tests = {}
    for name, of in found.items():
        classes = next(iter(of.values())).test.classes
        label_of = {
            row: label
            for one in of.values()
            for row, label in zip(one.rows.tolist(), one.labels.tolist(), strict=True)
        }
        counts = class_counts(np.array(list(label_of.values())), classes)
        guesses: dict[str, Any] = {}
        if len(classes) == 2:
            by_run = [baselines(float(one.labels.mean())) for one in of.values()]
            guesses = {guess: _over(np.mean, [run[guess] for run in by_run]) for guess in by_run[0]}
        share = None if counts.positives is None else counts.positives / counts.clips
        chance = None
        if guesses:
            thrown = [
                simulated(len(one.labels), int(one.labels.sum()), seed=seed) for one in of.values()
            ]
            chance = Simulated(
                mean=_over(np.mean, [one["mean"] for one in thrown]),
                std=_over(np.mean, [one["std"] for one in thrown]),
            )
        tests[name] = TestSet(
            clips=counts.clips,
            positives=counts.positives,
            classes=counts.classes,
            share=share,
            baselines=guesses,
            simulated=chance,
        )
    return tests


def class_counts(labels: NDArray[Any], classes: Sequence[str]) -> ClassCounts:
    """Clips in all and of each class; and the positive ones, where there are two classes."""
    count = Counter(labels.tolist())
    return ClassCounts(
        clips=len(labels),
        positives=count[1] if len(classes) == 2 else None,
        classes={name: count[code] for code, name in enumerate(classes)},
    )


def _said(one: Prediction) -> NDArray[Any]:
    """The probability of the positive class, or of each where there are several."""
    return one.probabilities[:, 1] if len(one.test.classes) == 2 else one.probabilities


def _trec_ranks(one: Prediction, ids: Sequence[str] | None) -> NDArray[Any] | None:
    if ids is None:
        return None
    return trec_ranks([ids[row] for row in one.rows.tolist()], _said(one))


def _score(one: Prediction, trec: NDArray[Any] | None) -> Scores:
    scores = score(one.labels, _said(one))
    # All clips here are returned, so that the ranks say all; what has no features is cautioned of.
    return scores if trec is None else {**scores, TREC: average_precision(one.labels, trec)}


def _over(statistic: Any, runs: Sequence[Scores]) -> Scores:
    """A statistic of each metric over the runs in which it is defined; None if in none."""
    result: Scores = {}
    for metric in runs[0]:
        values = [run[metric] for run in runs if run[metric] is not None]
        result[metric] = float(statistic(values)) if values else None
    return result
