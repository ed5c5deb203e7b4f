"""Average precision: the area under the precision-recall curve, in steps."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

__all__ = ["average_precision"]


def average_precision(labels: NDArray[Any], probabilities: NDArray[Any]) -> float | None:
    """Mean precision over the ranks of the positive clips; None where there are none."""
    return float(average_precision_score(labels, probabilities)) if labels.any() else None
