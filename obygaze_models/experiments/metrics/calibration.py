"""Expected calibration error: how far probabilities are from the shares that come true."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINS", "calibration_bins", "calibration_error"]

BINS = 10


def calibration_bins(probabilities: NDArray[Any]) -> NDArray[Any]:
    """Which of ten equal parts of 0 to 1 each probability is in; 1 itself is in the last."""
    return np.minimum((np.asarray(probabilities, float) * BINS).astype(np.int64), BINS - 1)


def calibration_error(labels: NDArray[Any], probabilities: NDArray[Any]) -> float | None:
    """Mean over the clips of |mean probability - share of positives| in each one's bin."""
    if not len(labels):
        return None
    gaps = np.bincount(calibration_bins(probabilities), probabilities - labels, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))
