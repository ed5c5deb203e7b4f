"""Baselines that learn: the nearest clips, a linear rule, each film's habit, the majority."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_models.estimators.classes import classes_of, codes_of
from obygaze_models.estimators.heads import fit_logistic

__all__ = ["FilmPrior", "LogisticClassifier", "MajorityClassifier", "NearestClips"]

Array = NDArray[Any]


class LogisticClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """scikit-learn's logistic regression on the features.

    Parameters
    ----------
    C
        The inverse of the penalty (l2).

    Attributes
    ----------
    classes_, head_
        The labels, sorted, and the `LinearHead`.
    """

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Any, y: Any) -> LogisticClassifier:
        """Fit on features [N, D] and one label a row."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_ = classes_of(y)
        codes = codes_of(y, self.classes_)
        self.head_ = fit_logistic(X, codes, C=self.C, l1_ratio=0, seed=0)
        return self

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.head_.probabilities(X)

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class NearestClips(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """scikit-learn's k-NN, kept as the training clips themselves.

    Parameters
    ----------
    n_neighbors
        How many of the nearest clips vote.
    metric
        ``"cosine"`` or ``"euclidean"``.

    Attributes
    ----------
    classes_
        The labels, sorted.
    features_, codes_
        The training clips, and the place of each one's label in ``classes_``.
    """

    def __init__(
        self, n_neighbors: int = 5, metric: Literal["cosine", "euclidean"] = "cosine"
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric

    def fit(self, X: Any, y: Any) -> NearestClips:
        """Keep the clips."""
        X, y = validate_data(self, X, y, dtype=(np.float32, np.float64))
        self.classes_ = classes_of(y)
        self.features_, self.codes_ = X.copy(), codes_of(y, self.classes_)
        return self

    def predict_proba(self, X: Any) -> Array:
        """The share of each class among the nearest clips, [N, classes]."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        among = min(self.n_neighbors, len(self.features_))
        voting = KNeighborsClassifier(among, metric=self.metric, algorithm="brute")
        return np.asarray(voting.fit(self.features_, self.codes_).predict_proba(X))

    def predict(self, X: Any) -> Array:
        """The commonest class among the nearest clips."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class MajorityClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The classes' shares among the training clips, whatever a clip shows.

    scikit-learn's common checks do not apply: several ask that something be learnt from X.

    Attributes
    ----------
    classes_, shares_
        The labels, sorted, and how common each is.
    """

    def fit(self, X: Any, y: Any) -> MajorityClassifier:
        """Count the classes."""
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / counts.sum()
        return self

    def predict_proba(self, X: Any) -> Array:
        """The shares, for each row of X, [N, classes]."""
        check_is_fitted(self)
        return np.tile(self.shares_, (len(X), 1))

    def predict(self, X: Any) -> Array:
        """The commonest class."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class FilmPrior(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """How common the classes are in a clip's film: what one knows who sees no clip at all.

    scikit-learn's common checks do not apply: X is the clips' films, not numbers.

    Parameters
    ----------
    prior_clips
        The overall shares count like so many clips in each film; a film that training lacks
        gets those alone.

    Attributes
    ----------
    classes_
        The labels, sorted.
    shares_
        The classes' shares overall.
    films_, film_shares_
        The films of the training clips, sorted, and the shares in each, [films, classes].
    """

    def __init__(self, prior_clips: float = 1.0) -> None:
        self.prior_clips = prior_clips

    def fit(self, X: Any, y: Any) -> FilmPrior:
        """Count the classes in each film; X is one film a clip, [N]."""
        films = np.asarray(X, dtype=str)
        self.classes_, counts = np.unique(y, return_counts=True)
        codes = codes_of(np.asarray(y), self.classes_)
        self.shares_ = counts / counts.sum()
        self.films_, film_codes = np.unique(films, return_inverse=True)
        table = np.zeros((len(self.films_), len(self.classes_)))
        np.add.at(table, (film_codes, codes), 1)
        table += self.prior_clips * self.shares_
        self.film_shares_ = table / table.sum(axis=1, keepdims=True)
        return self

    def predict_proba(self, X: Any) -> Array:
        """The shares in each clip's film, [N, classes]."""
        check_is_fitted(self)
        films = np.asarray(X, dtype=str)
        at = np.minimum(np.searchsorted(self.films_, films), len(self.films_) - 1)
        known = self.films_[at] == films
        return np.asarray(np.where(known[:, None], self.film_shares_[at], self.shares_))

    def predict(self, X: Any) -> Array:
        """The commonest class in each clip's film."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])
