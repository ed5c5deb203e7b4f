"""A model of the zoo in one file: the nearer mean of the training clips."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_models.estimators.classes import find_classes, softmax

Array = NDArray[Any]


class Centroids(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The nearer mean of the training clips.

    Parameters
    ----------
    sharpness
        How fast probabilities fall with the distance to a mean.

    Attributes
    ----------
    classes_, means_
        The labels, sorted, and the mean of each one's clips, [classes, D].
    """

    def __init__(self, sharpness: float = 1.0) -> None:
        self.sharpness = sharpness

    def fit(self, X: Any, y: Any) -> Centroids:
        """Compute the means of features [N, D]."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_ = find_classes(y)
        self.means_ = np.stack([X[y == label].mean(axis=0) for label in self.classes_])
        return self

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return softmax(-self.sharpness * ((X[:, None] - self.means_) ** 2).mean(axis=2))

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])
