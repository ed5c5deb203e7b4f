"""Scores of predictions; one a file. Undefined is None, never a warning and never zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.experiments.metrics.auroc import auroc
from obygaze_models.experiments.metrics.average_precision import average_precision
from obygaze_models.experiments.metrics.f1 import f1_positive, f1_weighted
from obygaze_models.experiments.metrics.precision_recall import precision, recall

__all__ = ["score"]


def score(labels: NDArray[Any], probabilities: NDArray[Any]) -> dict[str, float | None]:
    """All scores of one set of predictions.

    Parameters
    ----------
    labels
        1 where a clip is positive, else 0.
    probabilities
        The model's probability that it is; 0.5 and more counts as "positive".
    """
    predictions = (probabilities >= 0.5).astype(np.int64)
    return {
        "f1": f1_positive(labels, predictions),
        "f1_weighted": f1_weighted(labels, predictions),
        "precision": precision(labels, predictions),
        "recall": recall(labels, predictions),
        "auroc": auroc(labels, probabilities),
        "average_precision": average_precision(labels, probabilities),
    }
