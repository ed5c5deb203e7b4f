"""Functions and base classes that the estimators share."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.common.arrays import Array
from obygaze_features.errors import ExperimentError

Chance = int | np.random.RandomState | None
CLIPS_PER_STEP = 64
"""The maximum number of clips that are checked, measured or predicted at a time."""


def find_classes(y: Array) -> tuple[Array, Array]:
    """Return the sorted classes of training labels, and the index of each label's class.

    Raise if there are fewer than two classes.
    """
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ExperimentError(
            f"the labels have only one class, {classes.tolist()}. A classifier needs two"
        )
    return classes, codes


def check_both(X_val: Any, values: Any, name: str = "y_val") -> None:
    """Raise if only one of X_val and its values is passed."""
    if (X_val is None) != (values is None):
        raise ExperimentError(f"validation clips need both X_val and {name}. Pass both, or neither")


def encode(y: Array, classes: Array) -> Array:
    """Return the index of each label in `classes`; raise if a label is not a class."""
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ExperimentError(
            f"validation labels {unknown.tolist()} are not among the training labels "
            f"{classes.tolist()}. Leave out their clips"
        )
    return np.searchsorted(classes, y)


def as_logits(decisions: Array) -> Array:
    """Return decision values for two classes, [N] or [N, 1], as logits [N, 2].

    Decision values for more classes are already logits, and are returned unchanged.
    """
    decisions = np.asarray(decisions)
    if decisions.ndim == 2 and decisions.shape[1] > 1:
        return decisions
    decisions = decisions.reshape(-1, 1)
    return np.hstack([np.zeros_like(decisions), decisions])


class LogitClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A base class for classifiers that compute logits [N, classes], in float64."""

    classes_: Array

    def _check(self, X: Any) -> Array:
        """Return the clips as an array that `_logits` accepts."""
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    @abstractmethod
    def _logits(self, X: Array) -> Array:
        """Return the logits of checked clips."""

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        logits = self._logits(self._check(X)) / getattr(self, "temperature_", 1.0)
        return np.asarray(softmax(logits, axis=1))

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each clip."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])


class LinearClassifier(LogitClassifier):
    """A base class for classifiers with one hyperplane for two classes, else one per class."""

    coef_: Array
    intercept_: Array

    def decision_function(self, X: Any) -> Array:
        """Return decision values: [N] for two classes, else [N, classes]."""
        check_is_fitted(self)
        logits = self._logits(self._check(X))
        return np.asarray(logits[:, 1] if len(self.classes_) == 2 else logits)

    def _logits(self, X: Array) -> Array:
        return as_logits(X @ self.coef_.T + self.intercept_)


def best_cut(scores: Array, positive: Array) -> float:
    """Return the threshold with the best F1 if clips above the threshold are called positive.

    Thresholds are halfway between neighbouring scores, or between 0 and the lowest score. Of
    several best thresholds, return the one nearest to 0.5. Return 0.5 if no threshold finds a
    positive clip.
    """
    edges = np.append(0.0, np.unique(scores))
    cuts = (edges[1:] + edges[:-1]) / 2
    cuts = cuts[(cuts > 0) & (cuts < 1)]
    called = _count_above(scores, cuts)
    hits = _count_above(scores[positive], cuts)
    if not hits.any():
        return 0.5
    f1 = 2 * hits / (called + positive.sum())
    best = cuts[f1 == f1.max()]
    nearest = np.abs(best - 0.5).argmin()
    return float(best[nearest])


def _count_above(scores: Array, cuts: Array) -> Array:
    return len(scores) - np.searchsorted(np.sort(scores), cuts)


def move_cut(table: Array, cut: float) -> Array:
    """Shift the log-odds of probabilities [N, 2] so that a probability of `cut` becomes one half.

    The order of the probabilities stays the same, apart from rounding.
    """
    if cut == 0.5:
        return table
    with np.errstate(divide="ignore"):
        odds_against = 1 / table[:, 1] - 1
    moved = 1 / (1 + odds_against * (cut / (1 - cut)))
    return np.column_stack([1 - moved, moved])


def fit_temperature(logits: Array, codes: Array) -> float:
    """Return the temperature whose ``softmax(logits / temperature)`` has the lowest log loss.

    A temperature changes how confident a model is, but not which class is the most probable.
    """
    from scipy.optimize import minimize_scalar

    logits = np.asarray(logits, dtype=np.float64)

    def log_loss(log_temperature: float) -> float:
        logs = log_softmax(logits / np.exp(log_temperature), axis=1)
        return -float(logs[np.arange(len(codes)), codes].mean())

    # If the classes are separated, the best temperature is 0. The bounds keep it above 0.
    return float(np.exp(minimize_scalar(log_loss, bounds=(-6, 6), method="bounded").x))


def set_seed(estimator: Any, random_state: Chance) -> Any:
    """Set the random state of an estimator and its parts, unless they have a random state."""
    if random_state is not None and hasattr(estimator, "get_params"):
        for name, value in estimator.get_params(deep=True).items():
            if value is None and name.split("__")[-1] == "random_state":
                estimator.set_params(**{name: random_state})
    return estimator


def reads_of(estimator: Any) -> str:
    """Return the kind of input that an estimator reads: ``groups``, ``frames`` or ``features``.

    The parameters of its `predict_proba` (or `predict`) and its tags decide. A search reads what
    its estimator reads.
    """
    estimator = getattr(estimator, "estimator", None) or estimator
    method = "predict_proba" if hasattr(estimator, "predict_proba") else "predict"
    if "groups" in keywords(getattr(estimator, method)):
        return "groups"
    tags = get_tags(estimator).input_tags
    return "frames" if tags.three_d_array and not tags.two_d_array else "features"


def keywords(method: Any) -> frozenset[str]:
    """Return the names of a method's parameters except X and y."""
    return frozenset(inspect.signature(method).parameters) - {"self", "X", "y"}


def check_frames(X: Array, ids: Sequence[str] = ()) -> None:
    """Raise if a clip has no frame, or a frame that is infinite or only partly NaN."""
    for start in range(0, len(X), CLIPS_PER_STEP):
        part = X[start : start + CLIPS_PER_STEP]
        is_absent = np.isnan(part).all(axis=2)
        is_present = np.isfinite(part).all(axis=2)
        is_sound = np.all(is_absent | is_present, axis=1) & np.any(is_present, axis=1)
        if not is_sound.all():
            clip = start + int(is_sound.argmin())
            name = ids[clip] if len(ids) else f"{clip} (counted from 0)"
            raise ExperimentError(
                f"clip {name} has no frames (all NaN), or features that are not finite. "
                "Verify the store, and extract the clip again or omit it"
            )
