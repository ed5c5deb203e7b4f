"""Area under the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

__all__ = ["auroc"]


def auroc(labels: NDArray[Any], probabilities: NDArray[Any]) -> float | None:
    """Chance that a positive clip is ranked above a negative one; None with one class only."""
    if len(np.unique(labels)) < 2:
        return None
    return float(roc_auc_score(labels, probabilities))
