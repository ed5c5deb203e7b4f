"""A model that reads several stores: their features side by side, scaled store by store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import keywords
from obygaze_models.estimators.inner_folds import whole_groups
from obygaze_models.estimators.registry import best_of
from obygaze_models.scoring.metrics import Array


@dataclass(eq=False, repr=False)
class StoreFusion(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that reads the features of several stores, side by side.

    The features of each store are centred and scaled on the training clips, so that the variances
    of its columns sum to 1 and no store dominates.

    Parameters
    ----------
    estimator
        Any classifier of vectors. Its `fit` gets only the arguments that it has parameters for.
    stores
        The number of columns of each store by name, in order, as in `ClipDataset.stores`.

    Attributes
    ----------
    classes_
        The labels, sorted.
    model_
        The fitted classifier.
    means_, scales_
        The mean and the scale of each column.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"stores": [Mapping]}

    estimator: Any
    stores: Mapping[str, int]

    def fit(self, X: Any, y: Any, *, groups: Any = None, **arguments: Any) -> StoreFusion:
        """Fit on features [N, D] and one label per row.

        Parameters
        ----------
        X, y
            The features of all stores side by side, and the labels.
        groups
            The film of each row's clip, so that inner folds hold out whole films.
        arguments
            Other arguments of the classifier's `fit`.
        """
        self._validate_params()
        X = validate_data(self, X, dtype=np.float64)
        columns = sum(self.stores.values())
        if X.shape[1] != columns:
            raise ExperimentError(
                f"X needs the stores' {columns} columns, side by side (got {X.shape[1]})"
            )

        self.means_ = np.zeros(columns)
        self.scales_ = np.ones(columns)
        start = 0
        for size in self.stores.values():
            own = slice(start, start + size)
            self.means_[own] = X[:, own].mean(axis=0)
            spread = X[:, own].var(axis=0).sum()
            self.scales_[own] = np.sqrt(spread) or 1.0
            start += size

        arguments["groups"] = groups
        if arguments.get("X_val") is not None:
            arguments["X_val"] = self.scaled(arguments["X_val"])
        model = clone(self.estimator)
        accepted = {key: arguments[key] for key in keywords(model.fit) & arguments.keys()}
        with whole_groups(model, y, groups):
            model.fit(self.scaled(X), y, **accepted)

        self.model_ = best_of(model)
        self.classes_ = self.model_.classes_
        for key in ("warnings_", "facts_", "history_"):
            if hasattr(self.model_, key):
                setattr(self, key, getattr(self.model_, key))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self, "model_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.model_.predict_proba(self.scaled(X)))

    def predict(self, X: Any) -> Array:
        """Return the class with the highest probability."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def scaled(self, X: Any) -> Array:
        """Return the centred and scaled features."""
        return np.asarray((np.asfortranarray(X, np.float64) - self.means_) / self.scales_)

    def check_fitted_parts(self) -> None:
        """Raise `ExperimentError` unless the stores, scales and classes match."""
        sizes = self.stores.values()
        own = np.asarray(self.classes_)
        codes = np.asarray(self.model_.classes_)
        matching = (
            all(type(size) is int and size > 0 for size in sizes),
            (sum(sizes),) == self.means_.shape == self.scales_.shape,
            (self.scales_ > 0).all(),
            own.dtype == codes.dtype,
            np.array_equal(own, codes),
        )
        if not all(matching):
            raise ExperimentError("a fusion's stores, scales or classes do not match its model")


def unfuse(model: Any, X: Any = None) -> tuple[Any, Any]:
    """Return a fusion's classifier and its scaled input; return other models unchanged."""
    if not isinstance(model, StoreFusion):
        return model, X
    return model.model_, None if X is None else model.scaled(X)
