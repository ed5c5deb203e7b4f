"""What estimators share: labels as codes, scores as probabilities, hyperplanes, checks."""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.metrics import Array

Chance = int | np.random.RandomState | None
CLIPS_PER_STEP = 64
"""Of frames, which take much memory."""
TOLERANCE = 1e-3
"""How far probabilities may be from 0, and their sums from 1."""
MAX_WEIGHTS = 2**27
"""Of a layer: 0.5 GB in single precision, of which training keeps several copies."""


def find_classes(y: Array) -> tuple[Array, Array]:
    """Return the classes of training labels, sorted, and the position of each label in them.

    Raise if there are fewer than two.
    """
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ExperimentError(
            f"only one class {classes.tolist()} in all {len(y)} labels; a classifier needs two"
        )
    return classes, codes


def check_both(X_val: Any, values: Any, name: str = "y_val") -> None:
    """Raise if only X_val is given of the validation clips, or only what goes with it."""
    if (X_val is None) != (values is None):
        raise ExperimentError(f"validation clips need both X_val and {name}")


def encode(y: Array, classes: Array) -> Array:
    """Return the position of each label in `classes`."""
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ExperimentError(
            f"validation labels {unknown.tolist()} are not among the training labels "
            f"{classes.tolist()}"
        )
    return np.searchsorted(classes, y)


def as_logits(decisions: Array) -> Array:
    """Return decision values [N] or [N, 1] of two classes as [N, 2], and others unchanged."""
    decisions = np.asarray(decisions)
    if decisions.ndim == 2 and decisions.shape[1] > 1:
        return decisions
    decisions = decisions.reshape(-1, 1)
    return np.hstack([np.zeros_like(decisions), decisions])


class LogitClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Prediction by logits, in float64, [N, classes]; the largest wins."""

    classes_: Array

    @abstractmethod
    def _check(self, X: Any) -> Array:
        """Return clips as an array that `_logits` reads."""

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
        check_is_fitted(self)
        best = self._logits(self._check(X)).argmax(axis=1)
        return np.asarray(self.classes_[best])


class LinearClassifier(LogitClassifier):
    """Prediction by hyperplanes: one for two classes, else one for each class."""

    coef_: Array
    intercept_: Array

    def decision_function(self, X: Any) -> Array:
        """Return decision values: [N] for two classes, else [N, classes]."""
        check_is_fitted(self)
        logits = self._logits(self._check(X))
        return np.asarray(logits[:, 1] if len(self.classes_) == 2 else logits)

    def _check(self, X: Any) -> Array:
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _logits(self, X: Array) -> Array:
        return as_logits(X @ self.coef_.T + self.intercept_)


def best_cut(scores: Array, positive: Array) -> float:
    """Return the cut of the best F1, where clips above it are called positive.

    It is halfway between two neighbouring scores, or between 0 and the lowest; of several the
    nearest to one half. One half where no cut is possible.
    """
    edges = np.append(0.0, np.unique(scores))
    cuts = (edges[1:] + edges[:-1]) / 2
    cuts = cuts[(cuts > 0) & (cuts < 1)]
    called, hits = (
        len(part) - np.searchsorted(np.sort(part), cuts) for part in (scores, scores[positive])
    )
    f1 = 2 * hits / (called + positive.sum())
    best = cuts[f1 == f1.max(initial=0)]
    return float(best[np.abs(best - 0.5).argmin()]) if hits.any() else 0.5


def check_probabilities(given: Array, shape: tuple[int, int], where: str = "predict_proba") -> None:
    """Raise unless a table of such a shape has probabilities that sum to 1 in each row."""
    if given.shape != shape:
        raise ExperimentError(f"{where} gave {given.shape}, not {shape}: one column a class")
    if not (given >= -TOLERANCE).all() or not (abs(given.sum(axis=1) - 1) < TOLERANCE).all():
        raise ExperimentError(
            f"{where} gave what is not probabilities: from "
            f"{given.min():.3g} to {given.max():.3g}, and rows that sum to "
            f"{given.sum(axis=1).min():.3g} to {given.sum(axis=1).max():.3g}, not 1"
        )


def move_cut(table: Array, cut: float) -> Array:
    """Return probabilities [N, 2] with the log-odds of the cut subtracted.

    A probability at the cut becomes one half. Their order stays, also where they are rounded.
    """
    if cut == 0.5:
        return table
    with np.errstate(divide="ignore"):
        moved = 1 / (1 + (1 / table[:, 1] - 1) * (cut / (1 - cut)))
    return np.column_stack([1 - moved, moved])


def fit_temperature(logits: Array, codes: Array) -> float:
    """Return the temperature whose ``softmax(logits / temperature)`` has the lowest log loss.

    It changes how confident a model is, and never which class comes first.
    """
    from scipy.optimize import minimize_scalar

    logits = np.asarray(logits, dtype=np.float64)

    def log_loss(log_temperature: float) -> float:
        logs = log_softmax(logits / np.exp(log_temperature), axis=1)
        return -float(logs[np.arange(len(codes)), codes].mean())

    # Where the classes are separated, the best temperature is 0: the bounds keep it finite.
    return float(np.exp(minimize_scalar(log_loss, bounds=(-6, 6), method="bounded").x))


def hold_out(y: Array, fraction: float, chance: np.random.RandomState) -> list[Array]:
    """Return the rows that train and the share that validates, which has the same classes."""
    classes, counts = np.unique(y, return_counts=True)
    held = max(round(fraction * len(y)), len(classes))
    if counts.min() < 2 or len(y) - held < len(classes):
        raise ExperimentError(
            f"too few clips ({len(y)}, {counts.min()} of the rarest class) to hold out clips of "
            "every class for early stopping; give X_val and y_val, or early_stopping=False"
        )
    rows = np.arange(len(y))
    parts: list[Array] = train_test_split(rows, test_size=held, stratify=y, random_state=chance)
    return parts


def set_seed(estimator: Any, random_state: Chance) -> Any:
    """Give an estimator and its parts the random state, unless they set one."""
    if random_state is not None and hasattr(estimator, "get_params"):
        free = {
            name: random_state
            for name, value in estimator.get_params(deep=True).items()
            if value is None and name.split("__")[-1] == "random_state"
        }
        estimator.set_params(**free)
    return estimator


def check_layer(*shape: int) -> None:
    """Raise where a layer has more weights than training has memory for."""
    if math.prod(shape) > MAX_WEIGHTS:
        raise ExperimentError(
            f"a layer of {' x '.join(f'{size:,}' for size in shape)} weights is too large (at most "
            f"{MAX_WEIGHTS:,}); give fewer hidden units"
        )


def reads_frames(estimator: Any) -> bool:
    """Return True if an estimator reads sequences of frames [N, T, D], by its tags."""
    tags = get_tags(estimator).input_tags
    return bool(tags.three_d_array and not tags.two_d_array)


def reads_of(estimator: Any) -> str:
    """Return what an estimator reads: ``groups``, ``frames`` or ``features``.

    A plug-in has no entry of ours that could say so: its own `predict_proba` and tags do.
    """
    method = "predict_proba" if hasattr(estimator, "predict_proba") else "predict"
    if "groups" in keywords(getattr(estimator, method)):
        return "groups"
    return "frames" if reads_frames(estimator) else "features"


def keywords(method: Any) -> frozenset[str]:
    """Return the names of a method's parameters but X and y."""
    return frozenset(inspect.signature(method).parameters) - {"self", "X", "y"}


def check_frames(X: Array, ids: Sequence[str] = ()) -> None:
    """Raise where a frame is NaN in part, or a clip has no frame; clips are named by `ids`."""
    for start in range(0, len(X), CLIPS_PER_STEP):
        part = X[start : start + CLIPS_PER_STEP]
        absent = np.isnan(part).sum(axis=2)
        partly = ((absent > 0) & (absent < X.shape[2])) | np.isinf(part).any(axis=2)
        if partly.any():
            clip, frame = (int(index[0]) for index in np.nonzero(partly))
            name = ids[start + clip] if len(ids) else f"{start + clip} (from 0)"
            raise ExperimentError(
                f"frame {frame} of clip {name} has features that are not finite numbers; verify "
                "the store and extract the clip again"
            )
        empty = np.flatnonzero((absent > 0).all(axis=1))
        if len(empty):
            raise ExperimentError(
                f"clip {start + int(empty[0])} (from 0) has no frame at all: all are NaN; leave "
                "it out"
            )
