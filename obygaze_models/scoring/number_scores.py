"""Scores of predicted numbers, such as ratings."""

from __future__ import annotations

import numpy as np

from obygaze_features.common.arrays import Array

NUMBER = "number"
"""The kind of target whose predictions are numbers."""


def none_if_nan(value: float) -> float | None:
    """Return a number, or None for NaN."""
    return None if np.isnan(value) else float(value)


def score_values(labels: Array, values: Array, weights: Array) -> dict[str, Array]:
    """Return all metrics for many weightings: metric key -> scores [draws], NaN if undefined.

    Parameters
    ----------
    labels, values
        The true and the predicted numbers [N].
    weights
        Weights [draws, N], which are not negative.
    """
    total = weights.sum(axis=1)
    ranks = _weighted_ranks(labels, weights), _weighted_ranks(values, weights)
    moments = _moments(labels, values, weights)
    squares = ratio(weights @ (labels - values) ** 2, total)
    return {
        "r2": 1 - ratio(squares, moments["var_first"]),
        "mae": ratio(weights @ np.abs(labels - values), total),
        "spearman": _correlation(_moments(*ranks, weights)),
        "pearson": _correlation(moments),
    }


def score_constant(labels: Array, value: float) -> dict[str, float | None]:
    """Return the scores of predicting the same value for every clip."""
    scores = score_values(labels, np.full(len(labels), value), np.ones((1, len(labels))))
    # The covariance with a constant is zero except for rounding errors.
    return {key: none_if_nan(round(float(draws[0]), 12) + 0.0) for key, draws in scores.items()}


def _moments(first: Array, second: Array, weights: Array) -> dict[str, Array]:
    """Return the weighted means, variances and covariance of values [N] or [draws, N]."""
    total = weights.sum(axis=1)

    def mean(values: Array) -> Array:
        return ratio((weights * values).sum(axis=1), total)

    moments = {"first": mean(first), "second": mean(second)}
    first = first - moments["first"][:, None]
    second = second - moments["second"][:, None]
    moments["var_first"] = mean(first**2)
    moments["var_second"] = mean(second**2)
    moments["covariance"] = mean(first * second)
    return moments


def _correlation(moments: dict[str, Array]) -> Array:
    """Return the correlation; NaN if either variable is constant up to rounding errors."""
    spread = np.sqrt(moments["var_first"] * moments["var_second"])
    size = 1 + moments["first"] ** 2 + moments["second"] ** 2
    return ratio(moments["covariance"], np.where(spread > 1e-14 * size, spread, 0.0))


def _weighted_ranks(values: Array, weights: Array) -> Array:
    """Return each clip's mean rank minus 1/2, with clips counted by weight."""
    _, ranks = np.unique(values, return_inverse=True)
    order = np.argsort(ranks, kind="stable")
    starts = np.flatnonzero(np.diff(ranks[order], prepend=-1))
    sums = np.add.reduceat(weights[:, order], starts, axis=1)
    middles = np.cumsum(sums, axis=1) - sums / 2
    return middles[:, ranks]


def ratio(top: Array, bottom: Array) -> Array:
    """Return a ratio; NaN where `bottom` is 0."""
    shape = np.broadcast_shapes(top.shape, bottom.shape)
    out = np.full(shape, np.nan)
    return np.asarray(np.divide(top, bottom, out=out, where=bottom != 0))
