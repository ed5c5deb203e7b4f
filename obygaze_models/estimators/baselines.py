"""A classifier that uses only each clip's film, as a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import find_classes
from obygaze_models.scoring.metrics import Array


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
        X, y = validate_data(self, X, y)
        films = _read_films(X, groups)
        self.classes_, codes = find_classes(y)
        counts = np.bincount(codes)
        self.shares_ = counts / counts.sum()
        self.films_, film_codes = np.unique(films, return_inverse=True)
        table = np.zeros((len(self.films_), len(self.classes_)))
        np.add.at(table, (film_codes, codes), 1)
        table += self.prior_clips * self.shares_
        self.film_shares_ = table / table.sum(axis=1, keepdims=True)
        return self

    def predict_proba(self, X: Any, *, groups: Any = None) -> Array:
        """Return the shares of the classes in each clip's film, [N, classes]."""
        check_is_fitted(self)
        films = _read_films(validate_data(self, X, reset=False), groups)
        rows = np.searchsorted(self.films_, films)
        rows = np.minimum(rows, len(self.films_) - 1)
        in_training = self.films_[rows] == films
        shares = self.film_shares_[rows]
        return np.asarray(np.where(in_training[:, None], shares, self.shares_))

    def predict(self, X: Any, *, groups: Any = None) -> Array:
        """Return the class with the largest share in each clip's film."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X, groups=groups).argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> float:
        """Return the accuracy of `predict`."""
        return float(accuracy_score(y, self.predict(X, groups=groups), sample_weight=sample_weight))


def _read_films(X: Any, groups: Any) -> Array:
    films = None if groups is None else np.asarray(groups, dtype=str)
    if films is None or films.shape != (len(X),):
        raise ExperimentError(
            f"a FilmPrior needs the film of each of the {len(X)} clips. Pass "
            "groups=films to fit and to predict_proba"
        )
    return films
