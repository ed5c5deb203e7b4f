"""What guessing scores, in closed form at a share of positives; and a guess by film.

The paper's baselines. Its v1 prints their positive-class F1 and its v2 the support-weighted
one, at the share of positives of the whole dataset; a model is scored on a test fold that has
another share. So a baseline is a function of the share that was scored.
"""

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
from obygaze_models.scoring.metrics import Array, Scores


def baselines(share: float) -> dict[str, Scores]:
    """Return every baseline's scores where `share` of the clips are positive."""
    return {
        # A fair coin: half of either class is called positive.
        "random": _scores(share, called_positive=0.5),
        "all positive": _scores(share, called_positive=1.0),
        # Every clip is given the commoner class; the positive one where both are equal.
        "majority": _scores(share, called_positive=1.0 if share >= 0.5 else 0.0),
    }


def _scores(share: float, *, called_positive: float) -> Scores:
    """Return the scores of calling each clip positive with the same chance."""
    if not 0 < share < 1:
        raise ExperimentError(f"a share of positives lies between 0 and 1, not at {share}")
    positive = _f1(precision=share, recall=called_positive)
    negative = _f1(precision=1 - share, recall=1 - called_positive)
    return {
        "f1": positive,
        "f1_weighted": share * positive + (1 - share) * negative,
        "precision": share if called_positive else None,
        "recall": called_positive,
        # One score for all clips ranks nothing: half of the pairs, precision = share throughout.
        "auroc": 0.5,
        "average_precision": share,
    }


def _f1(*, precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall)


@dataclass(eq=False, repr=False)
class FilmPrior(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A guess that sees no clip, only how common the classes are in the clip's film.

    Parameters
    ----------
    prior_clips
        The overall shares count like this number of clips in each film; a film that training lacks
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "prior_clips": [Interval(Real, 0, None, closed="neither")]
    }

    prior_clips: float = 1.0

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> FilmPrior:
        """Count the classes in each film; `groups` are the clips' films [N], X is not used."""
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
        """Return the shares in each clip's film, [N, classes]."""
        check_is_fitted(self)
        films = _read_films(validate_data(self, X, reset=False), groups)
        places = np.minimum(np.searchsorted(self.films_, films), len(self.films_) - 1)
        in_training = self.films_[places] == films
        return np.asarray(np.where(in_training[:, None], self.film_shares_[places], self.shares_))

    def predict(self, X: Any, *, groups: Any = None) -> Array:
        """Return the commonest class in each clip's film."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X, groups=groups).argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> float:
        """Return the accuracy of each film's commonest class."""
        return float(accuracy_score(y, self.predict(X, groups=groups), sample_weight=sample_weight))


def _read_films(X: Any, groups: Any) -> Array:
    films = None if groups is None else np.asarray(groups, dtype=str)
    if films is None or films.shape != (len(X),):
        raise ExperimentError(
            f"a FilmPrior reads the films of the {len(X)} clips, not their features; pass "
            "groups=films to fit and to predict_proba"
        )
    return films
