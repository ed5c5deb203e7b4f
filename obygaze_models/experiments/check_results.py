"""Whether the files of a run agree: its scores are those of its predictions, and names are known.

A run's files have digests, and so has ``run.json``; but who edits them can write new ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.explanations import Explained
from obygaze_models.experiments.predictions import FitPredictions
from obygaze_models.experiments.record import MAKE, ModelScores, RunRecord, Scores
from obygaze_models.experiments.scores import over_fits
from obygaze_models.metrics import TREC, average_precision, score, trec_ranks

TOLERANCE = 1e-6
"""Between scores that another release of a library computes."""


def check_results(
    folder: Path,
    record: RunRecord,
    clips: Mapping[str, Any],
    predictions: Sequence[FitPredictions],
    explained: Sequence[Explained],
) -> None:
    """Raise if a run's files contradict each other."""

    def require(holds: bool, problem: str) -> None:
        if not holds:
            raise ExperimentError(
                f"{folder}: {problem}; a file was edited or is damaged; run it again with: {MAKE}"
            )

    tasks = {fit.task for fit in record.fits}
    for part, name in [(part, "predictions.csv") for part in predictions] + [
        (part, "explanations.jsonl") for part in explained
    ]:
        require(part.model in record.models, f"{name} names {part.model!r:.60}, run.json does not")
        unknown = sorted({*part.ids} - clips.keys())
        require(not unknown, f"{name} has the clip {''.join(unknown[:1])!r:.60}, clips.csv has not")
    for explanation in explained:
        require(explanation.task in tasks, f"there is no task {explanation.task!r:.60}")
    fits: dict[tuple[str, str], dict[int, FitPredictions]] = {}
    for fit in predictions:
        fits.setdefault((fit.model, fit.test), {})[fit.fit] = fit
    scored = {(scores.model, scores.test): scores for scores in record.scores}
    require(scored.keys() == fits.keys(), "the scores in run.json are not of its predictions")
    for key, scores in scored.items():
        by_number = fits[key]
        require(scores.fits == list(by_number), f"the fits of {key[0]} are not those predicted")
        if metric := _find_difference(scores, list(by_number.values())):
            require(False, f"the {metric} of {key[0]} on {key[1]} is not that of its predictions")


def _find_difference(scores: ModelScores, fits: Sequence[FitPredictions]) -> str:
    """The first metric that the predictions give another value of; empty if there is none."""
    by_fit = [_score(fit, TREC in scores.mean) for fit in fits]
    expected = [*by_fit, over_fits(np.mean, by_fit), over_fits(np.std, by_fit)]
    recorded = [*scores.by_fit, scores.mean, scores.std]
    if len(recorded) != len(expected):
        return "number of scores"
    for written, computed in zip(recorded, expected, strict=True):
        for metric, value in computed.items():
            if metric not in written or not _equal(written[metric], value):
                return metric
    return ""


def _score(fit: FitPredictions, is_trec: bool) -> Scores:
    scores = score(fit.labels, fit.probabilities)
    if is_trec:
        ranks = trec_ranks(fit.ids, fit.probabilities)
        scores[TREC] = average_precision(fit.labels, ranks)
    return scores


def _equal(written: float | None, computed: float | None) -> bool:
    if written is None or computed is None:
        return written is computed
    return math.isclose(written, computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
