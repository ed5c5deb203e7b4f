"""Directions in feature space, and what clips measure along them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["Output", "RandomDirections", "project"]

Array = NDArray[Any]
Output = Literal["distance", "decision"]


def project(bank: Any, X: Array, output: str) -> Array:
    """What the clips X [N, D] measure along a bank's hyperplanes, [N, K], in float64.

    ``"distance"``: the signed distance from each hyperplane. ``"decision"``: the SVM's decision
    value, which is the distance times the length of its normal.
    """
    distances = np.asarray(X, dtype=np.float64) @ bank.cavs_.T + bank.intercepts_
    return np.asarray(distances * bank.scales_ if output == "decision" else distances)


class RandomDirections(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A bank of directions that mean nothing: what a bottleneck owes to its mere width.

    Parameters
    ----------
    n_directions
        How many.
    random_state
        Fixes them.

    Attributes
    ----------
    cavs_, intercepts_, scales_
        Unit normals [K, D] of hyperplanes through the training clips' mean; all scales are 1.
    """

    def __init__(
        self, n_directions: int = 8, random_state: int | np.random.RandomState | None = None
    ) -> None:
        self.n_directions = n_directions
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RandomDirections:
        """Draw the directions; of X only the width and the mean matter."""
        X = validate_data(self, X, dtype=np.float64)
        drawn = check_random_state(self.random_state).normal(size=(self.n_directions, X.shape[1]))
        self.cavs_ = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        self.intercepts_ = -self.cavs_ @ X.mean(axis=0)
        self.scales_ = np.ones(self.n_directions)
        return self

    def transform(self, X: Any) -> Array:
        """Signed distances [N, K]."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return project(self, X, "distance")

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """``random 1``, ``random 2`` ..."""
        check_is_fitted(self)
        return np.array([f"random {one + 1}" for one in range(len(self.cavs_))], dtype=object)
