"""A proportional-odds model of ordered levels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit
from sklearn.utils import compute_sample_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, validate_data

from obygaze_models.estimators.classes import LogitClassifier, find_classes
from obygaze_models.estimators.logistic import MAX_ITER, NotConverged
from obygaze_models.scoring.metrics import Array

_LEAST_GAP = 1e-9
"""The minimum distance between two cuts, in log-odds."""
_LEAST = float(np.finfo(np.float64).tiny)


@dataclass(eq=False, repr=False)
class OrderedProbe(LogitClassifier):
    """A proportional-odds model: a single direction, with a cut between neighbouring levels.

    The log-odds of a level above the k-th are ``X @ coef_ - cuts_[k]``, so all cuts share the
    direction. If there are two classes, this is a logistic regression. `fit` warns if it does not
    converge.

    Parameters
    ----------
    C
        The inverse of the l2 penalty on the direction.
    class_weight
        None, ``"balanced"``, or a weight for each class.

    Attributes
    ----------
    classes_
        The labels, sorted in the order of the levels.
    coef_
        The direction, [D].
    cuts_
        The cuts between the levels, ascending.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    C: float = 1.0
    _: KW_ONLY
    class_weight: Mapping[Any, float] | str | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OrderedProbe:
        """Fit on features [N, D], one label per row, and a weight for each row (default: 1)."""
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, codes = find_classes(y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        weights = weights * compute_sample_weight(self.class_weight, y)
        below = np.cumsum(np.bincount(codes, weights))[:-1] / weights.sum()
        cuts = logit(np.clip(below, _LEAST_GAP, 1 - _LEAST_GAP))
        gaps = np.log(np.maximum(np.diff(cuts), _LEAST_GAP))
        result = minimize(
            _loss,
            np.concatenate([np.zeros(X.shape[1]), cuts[:1], gaps]),
            (X, codes, weights, self.C),
            method="L-BFGS-B",
            jac=True,
            options={"maxiter": MAX_ITER, "maxfun": 2 * MAX_ITER},
        )
        if not result.success:
            warnings.warn(
                f"the proportional-odds model did not converge in {MAX_ITER} steps. Lower C "
                f"(now {self.C:g}), or scale the features",
                NotConverged,
                stacklevel=2,
            )
        self.coef_, self.cuts_ = result.x[: X.shape[1]], _cuts_of(result.x[X.shape[1] :])
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on classes without an order
        return tags

    def _logits(self, X: Array) -> Array:
        above = expit((X @ self.coef_)[:, None] - self.cuts_)
        edges = np.pad(above, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
        return np.asarray(np.log(np.maximum(edges[:, :-1] - edges[:, 1:], _LEAST)))


def _cuts_of(free: Array) -> Array:
    """Return ascending cuts from the first cut and the logarithms of the gaps between cuts."""
    return np.asarray(np.cumsum(np.concatenate([free[:1], np.exp(free[1:])])))


def _loss(free: Array, X: Array, codes: Array, weights: Array, C: float) -> tuple[float, Array]:
    """Return the penalised negative log likelihood, and its gradient.

    The probability of a level between the cuts `low` and `high` is ``expit(high) - expit(low)``. It
    is computed as ``expit(high) * expit(-low) * (1 - exp(low - high))``.
    """
    direction, own = free[: X.shape[1]], free[X.shape[1] :]
    edges = np.concatenate([[-np.inf], _cuts_of(own), [np.inf]])
    low, high = edges[codes] - X @ direction, edges[codes + 1] - X @ direction
    logs = log_expit(high) + log_expit(-low) + np.log(-np.expm1(low - high))
    with np.errstate(over="ignore"):
        between = 1 / np.expm1(high - low)
    by_high, by_low = expit(-high) + between, -expit(low) - between
    loss = direction @ direction / 2 - C * (weights @ logs)
    by_direction = direction + C * ((weights * (by_high + by_low)) @ X)
    levels = len(edges) - 1
    by_cut = np.bincount(codes, weights * by_high, levels)[:-1]
    by_cut = by_cut + np.bincount(codes, weights * by_low, levels)[1:]
    after = np.cumsum(by_cut[::-1])[::-1]
    after[1:] *= np.exp(own[1:])
    return float(loss), np.concatenate([by_direction, -C * after])
