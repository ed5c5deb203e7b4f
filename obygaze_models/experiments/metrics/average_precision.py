"""Average precision: the area under the precision-recall curve, in steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["average_precision"]


def average_precision(labels: NDArray[Any], probabilities: NDArray[Any]) -> float | None:
    """Mean precision over the ranks of the positive clips; None where there are none.

    Clips of one probability share a rank.
    """
    if not labels.any():
        return None
    order = np.argsort(-probabilities, kind="stable")
    ranked, positive = probabilities[order], labels[order] == 1
    last = np.flatnonzero(np.append(np.diff(ranked) != 0, True))  # of each rank
    hits = np.cumsum(positive)[last]
    return float((np.diff(hits, prepend=0) * hits / (last + 1)).sum() / hits[-1])
