"""Intervals and tests over films, computed by scipy and widened for cross-validation."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy import stats


def cross_validated_interval(scores: Sequence[float]) -> tuple[float, float]:
    """Return the 95% t interval of the mean of film scores."""
    error = _error(scores)
    ends = stats.t.interval(0.95, len(scores) - 1, np.mean(scores), error)
    return float(ends[0]), float(ends[1])


def cross_validated_p(scores: Sequence[float]) -> float:
    """Return the p value of the t test that the mean of film scores is 0."""
    t = abs(np.mean(scores)) / _error(scores)
    return float(2 * stats.t.sf(t, len(scores) - 1))


def holm_by_closed_tests(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Bonferroni tests of every set of them that has the one in question."""
    rows = range(len(p_values))
    adjusted = dict.fromkeys(rows, 0.0)
    for size in range(1, len(p_values) + 1):
        for chosen in combinations(rows, size):
            together = min(1.0, size * min(p_values[row] for row in chosen))
            for row in chosen:
                adjusted[row] = max(adjusted[row], together)
    return [*adjusted.values()]


def _error(scores: Sequence[float]) -> float:
    films = len(scores)
    shared = 1 / films + 1 / (films - 1)
    return float(np.var(scores, ddof=1) * shared) ** 0.5
