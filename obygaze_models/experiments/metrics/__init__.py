"""Scores of predictions; one a file. Undefined is None, never a warning and never zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.experiments.metrics.auroc import auroc
from obygaze_models.experiments.metrics.average_precision import average_precision
from obygaze_models.experiments.metrics.balanced_accuracy import balanced_accuracy
from obygaze_models.experiments.metrics.calibration import calibration_error
from obygaze_models.experiments.metrics.f1 import f1_macro, f1_positive, f1_weighted
from obygaze_models.experiments.metrics.precision_recall import precision, recall

__all__ = ["Scores", "score", "score_classes"]

Scores = dict[str, float | None]


def score(labels: NDArray[Any], probabilities: NDArray[Any]) -> Scores:
    """All scores of one set of predictions of two classes.

    Parameters
    ----------
    labels
        1 where a clip is positive, else 0.
    probabilities
        The model's probability that it is; more than 0.5 counts as "positive".
    """
    predictions = (probabilities > 0.5).astype(np.int64)
    return {
        "f1": f1_positive(labels, predictions),
        "f1_weighted": f1_weighted(labels, predictions),
        "precision": precision(labels, predictions),
        "recall": recall(labels, predictions),
        "auroc": auroc(labels, probabilities),
        "average_precision": average_precision(labels, probabilities),
        "balanced_accuracy": balanced_accuracy(labels, predictions),
        "calibration_error": calibration_error(labels, probabilities),
    }


def score_classes(labels: NDArray[Any], probabilities: NDArray[Any]) -> Scores:
    """All scores of one set of predictions of three classes and more.

    Parameters
    ----------
    labels
        A class from 0 on for each clip.
    probabilities
        One for each clip and class [N, classes]; the most probable class counts.
    """
    predictions = probabilities.argmax(axis=1)
    right = (predictions == labels).astype(np.int64)
    ranked = [
        auroc((labels == one).astype(np.int64), probabilities[:, one])
        for one in range(probabilities.shape[1])
    ]
    known = [area for area in ranked if area is not None]
    return {
        "f1_macro": f1_macro(labels, predictions),
        "f1_weighted": f1_weighted(labels, predictions),
        "accuracy": float(right.mean()) if len(labels) else None,
        "auroc": float(np.mean(known)) if len(known) == len(ranked) else None,
        "balanced_accuracy": balanced_accuracy(labels, predictions),
        "calibration_error": calibration_error(right, probabilities.max(axis=1)),
    }
