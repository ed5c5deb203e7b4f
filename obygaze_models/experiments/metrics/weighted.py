"""The same scores for many weightings of the clips at once, as resampling asks for.

A clip that was drawn twice has the weight 2. The other files of this room compute each score
once, by scikit-learn; tests hold the two to each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.experiments.metrics.calibration import BINS, calibration_bins

__all__ = ["ranking_scores", "weighted_scores"]

Array = NDArray[Any]


def weighted_scores(labels: Array, probabilities: Array, weights: Array) -> dict[str, Array]:
    """For each score of `score` or `score_classes` but the latter's auroc a value a weighting.

    Parameters
    ----------
    labels
        A class from 0 on for each of N clips.
    probabilities
        [N] of the positive class, or [N, classes].
    weights
        [B, N], not negative.

    Returns
    -------
    scores
        Name -> [B]; NaN where a score is undefined.
    """
    if probabilities.ndim == 2:
        confusion = _confusion(
            labels, probabilities.argmax(axis=1), probabilities.shape[1], weights
        )
        right = (probabilities.argmax(axis=1) == labels).astype(float)
        f1 = _f1(confusion)
        named = (confusion.sum(axis=1) + confusion.sum(axis=2)) > 0
        return {
            "f1_macro": _ratio(np.nan_to_num(f1).sum(axis=1), named.sum(axis=1)),
            "f1_weighted": _by_size(f1, confusion),
            "accuracy": _ratio(weights @ right, weights.sum(axis=1)),
            "balanced_accuracy": _balanced(confusion),
            "calibration_error": _calibration(right, probabilities.max(axis=1), weights),
        }
    confusion = _confusion(labels, (probabilities > 0.5).astype(np.int64), 2, weights)
    f1, hits = _f1(confusion), confusion[:, 1, 1]
    return {
        "f1": f1[:, 1],
        "f1_weighted": _by_size(f1, confusion),
        "precision": _ratio(hits, confusion[:, :, 1].sum(axis=1)),
        "recall": _ratio(hits, confusion[:, 1].sum(axis=1)),
        **ranking_scores(labels, probabilities, weights),
        "balanced_accuracy": _balanced(confusion),
        "calibration_error": _calibration(labels, probabilities, weights),
    }


def _confusion(labels: Array, predictions: Array, classes: int, weights: Array) -> Array:
    """Weights by label and prediction [B, classes, classes]."""
    cells = np.eye(classes * classes)[labels * classes + predictions]
    confusion: Array = (weights @ cells).reshape(len(weights), classes, classes)
    return confusion


def _f1(confusion: Array) -> Array:
    """Each class's F1 [B, classes]; NaN where nothing is of it and nothing was called so."""
    hits = np.diagonal(confusion, axis1=1, axis2=2)
    return _ratio(2 * hits, confusion.sum(axis=1) + confusion.sum(axis=2))


def _by_size(f1: Array, confusion: Array) -> Array:
    sizes = confusion.sum(axis=2)
    return _ratio((np.nan_to_num(f1) * sizes).sum(axis=1), sizes.sum(axis=1))


def _balanced(confusion: Array) -> Array:
    sizes = confusion.sum(axis=2)
    recalls = np.nan_to_num(_ratio(np.diagonal(confusion, axis1=1, axis2=2), sizes))
    found = (sizes > 0).sum(axis=1)
    return np.where(found > 1, _ratio(recalls.sum(axis=1), found), np.nan)


def ranking_scores(labels: Array, probabilities: Array, weights: Array) -> dict[str, Array]:
    """AUROC and average precision a weighting; clips of one probability share a rank."""
    order = np.argsort(-probabilities, kind="stable")
    starts = np.flatnonzero(np.diff(probabilities[order], prepend=np.inf))
    positive, negative = (
        np.add.reduceat((weights * (labels == one))[:, order], starts, axis=1) for one in (1, 0)
    )
    above, all_above = np.cumsum(positive, axis=1), np.cumsum(positive + negative, axis=1)
    positives, negatives = above[:, -1], negative.sum(axis=1)
    won = (negative * (above - positive / 2)).sum(axis=1)
    precision = np.nan_to_num(_ratio(above, all_above))
    return {
        "auroc": _ratio(won, positives * negatives),
        "average_precision": _ratio((positive * precision).sum(axis=1), positives),
    }


def _calibration(labels: Array, probabilities: Array, weights: Array) -> Array:
    gaps = np.eye(BINS)[calibration_bins(probabilities)] * (probabilities - labels)[:, None]
    return _ratio(np.abs(weights @ gaps).sum(axis=1), weights.sum(axis=1))


def _ratio(top: Array, bottom: Array) -> Array:
    ratio: Array = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom != 0)
    return ratio
