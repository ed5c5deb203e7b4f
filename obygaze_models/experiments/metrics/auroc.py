"""Area under the ROC curve."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["auroc"]


def auroc(labels: NDArray[Any], scores: NDArray[Any]) -> float | None:
    """Chance that a positive clip is ranked above a negative one; None with one class only."""
    positive = labels == 1
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return None
    # Of the positives' ranks, those among themselves are known: the rest counts negatives below.
    below = rankdata(scores)[positive].sum() - ones * (ones + 1) / 2
    return float(below / (ones * zeros))
