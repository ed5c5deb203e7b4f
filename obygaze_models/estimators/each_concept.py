"""A single estimator with a classifier for each concept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from obygaze_models.estimators.registry import best_of
from obygaze_models.scoring.metrics import Array


@dataclass(eq=False, repr=False)
class EachConcept(BaseEstimator):  # type: ignore[misc]
    """A clone of a classifier for each concept, fitted to the clips with a label for the concept.

    If no label is missing, this is the same as scikit-learn's ``MultiOutputClassifier``. If all
    labels of a concept are the same, its probability is always 0 or 1.

    Parameters
    ----------
    estimator
        The classifier.

    Attributes
    ----------
    classes_
        The numbers of the concepts.
    models_, shares_
        The classifier of each concept (None if all its labels are the same), and the share of
        labelled clips that show the concept.
    """

    estimator: Any

    def fit(self, X: Any, y: Any) -> EachConcept:
        """Fit on features [N, D] and labels [N, concepts]: 1, 0, or -1 if unlabelled."""
        X, y = np.asarray(X), np.asarray(y)
        self.classes_, self.n_features_in_ = np.arange(y.shape[1]), X.shape[1]
        self.models_: list[Any] = []
        self.shares_ = np.zeros(y.shape[1])
        for concept, labels in enumerate(y.T):
            rows = labels >= 0
            self.shares_[concept] = labels[rows].mean() if rows.any() else 0.0
            model = None
            if 0 < self.shares_[concept] < 1:
                model = best_of(clone(self.estimator).fit(X[rows], labels[rows]))
            self.models_.append(model)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each concept, [N, concepts]."""
        check_is_fitted(self)
        table = np.tile(self.shares_, (len(X), 1))
        for concept, model in enumerate(self.models_):
            if model is not None:
                table[:, concept] = model.predict_proba(X)[:, 1]
        return table

    def predict(self, X: Any) -> Array:
        """Return 1 for each concept that is more likely than not, [N, concepts]."""
        return (self.predict_proba(X) > 0.5).astype(np.int64)
