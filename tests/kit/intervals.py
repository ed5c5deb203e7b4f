"""Intervals and tests over films, computed by scipy and widened for cross-validation."""

from collections.abc import Sequence

import numpy as np
from scipy import stats


def cross_validated_interval(scores: Sequence[float]) -> tuple[float, float]:
    """Return the 95% t interval of the mean of film scores."""
    ends = stats.t.interval(0.95, len(scores) - 1, np.mean(scores), _error(scores))
    return float(ends[0]), float(ends[1])


def cross_validated_p(scores: Sequence[float]) -> float:
    """Return the p value of the t test that the mean of film scores is 0."""
    return float(2 * stats.t.sf(abs(np.mean(scores)) / _error(scores), len(scores) - 1))


def _error(scores: Sequence[float]) -> float:
    films = len(scores)
    return float(np.var(scores, ddof=1) * (1 / films + 1 / (films - 1))) ** 0.5
