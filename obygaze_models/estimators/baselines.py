"""A classifier that uses only each clip's film, as a baseline."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from obygaze_features.common.arrays import Array
from obygaze_models.estimators.classes import find_classes


@dataclass(eq=False, repr=False)
class FilmPrior(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that predicts the shares of the classes in a clip's film, and ignores features.

    Parameters
    ----------
    prior_clips
        The weight of the overall shares in each film's shares, as a number of clips. Films without
        training clips get the overall shares.

    Attributes
    ----------
    classes_
        The labels, sorted.
    shares_
        The overall shares of the classes.
    films_, film_shares_
        The films of the training clips, sorted, and each film's shares, [films, classes].
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "prior_clips": [Interval(Real, 0, None, closed="neither")]
    }

    prior_clips: float = 1.0

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> FilmPrior:
        """Count the classes in each film. `groups` has each clip's film [N]. X is only checked."""
        self._validate_params()
        X, y = validate_data(self, X, y, ensure_all_finite=False)
        if groups is None:
            warnings.warn(
                "a FilmPrior without the films predicts the overall shares. Pass groups=films",
                stacklevel=2,
            )
        self.classes_, codes = find_classes(y)
        counts = pd.crosstab(_films(X, groups), codes)
        totals = counts.to_numpy().sum(axis=0)
        self.shares_ = totals / totals.sum()
        self.films_ = counts.index.to_numpy(dtype=str)
        table = counts.to_numpy() + self.prior_clips * self.shares_
        self.film_shares_ = table / table.sum(axis=1, keepdims=True)
        return self

    def predict_proba(self, X: Any, *, groups: Any = None) -> Array:
        """Return the shares of the classes in each clip's film, [N, classes]."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, ensure_all_finite=False)
        shares = pd.DataFrame(self.film_shares_, self.films_).reindex(_films(X, groups))
        return shares.fillna(dict(enumerate(self.shares_))).to_numpy()

    def predict(self, X: Any, *, groups: Any = None) -> Array:
        """Return the class with the largest share in each clip's film."""
        best = self.predict_proba(X, groups=groups).argmax(axis=1)
        return np.asarray(self.classes_[best])


GUESSES = (DummyClassifier, DummyRegressor, FilmPrior)
"""Estimators that ignore features. They are fitted on the clips before balancing."""


def _films(X: Array, groups: Any) -> Array:
    """Return the film of each clip; "" if `groups` is None."""
    films = np.full(len(X), "") if groups is None else np.asarray(groups, dtype=str)
    check_consistent_length(X, films)
    return films
