"""A model that reads several stores: their features side by side, each store on its own scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import accumulate
from typing import Any

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
    use
        The names of the stores to use; by default, all.

    Attributes
    ----------
    classes_
        The labels, sorted.
    models_
        The fitted classifier, in a list.
    means_, scales_
        The mean and the scale of each column.
    """

    estimator: Any
    stores: Mapping[str, int]
    _: KW_ONLY
    use: Sequence[str] | None = None

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
        X = validate_data(self, X, dtype=np.float64)
        columns = sum(self.stores.values())
        if X.shape[1] != columns:
            raise ExperimentError(f"X has {X.shape[1]} columns, but the stores have {columns}")

        self.means_ = np.zeros(columns)
        self.scales_ = np.ones(columns)
        for own in self._columns:
            part = X.take(own, axis=1)
            self.means_[own] = part.mean(axis=0)
            self.scales_[own] = np.sqrt(part.var(axis=0).sum()) or 1.0

        arguments["groups"] = groups
        if arguments.get("X_val") is not None:
            arguments["X_val"] = self.scaled(arguments["X_val"])
        model = clone(self.estimator)
        accepted = {key: arguments[key] for key in keywords(model.fit) & arguments.keys()}
        with whole_groups(model, y, groups):
            model.fit(self.scaled(X), y, **accepted)

        fitted = best_of(model)
        self.models_ = [fitted]
        self.classes_ = fitted.classes_
        self.warnings_ = list(getattr(fitted, "warnings_", []))
        for key in ("facts_", "history_"):
            if hasattr(fitted, key):
                setattr(self, key, getattr(fitted, key))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self, "models_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.models_[0].predict_proba(self.scaled(X)))

    def predict(self, X: Any) -> Array:
        """Return the class with the highest probability."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def scaled(self, X: Any) -> Array:
        """Return the scaled features of the stores in use."""
        own = np.concatenate(self._columns)
        centred = np.asarray(X, np.float64)[:, own] - self.means_[own]
        return np.asarray(centred / self.scales_[own])

    def check_fitted_parts(self) -> None:
        """Raise `ExperimentError` unless stores, scales and models match."""
        sizes = self.stores.values()
        own = np.asarray(self.classes_)
        codes = np.asarray(self.models_[0].classes_)
        matching = (
            all(type(size) is int and size > 0 for size in sizes),
            self.stores.keys() >= {*(self.use or ())},
            (sum(sizes),) == self.means_.shape == self.scales_.shape,
            (self.scales_ > 0).all(),
            own.dtype == codes.dtype,
            np.array_equal(own, codes),
        )
        if not all(matching):
            raise ExperimentError("a fusion needs a scale for each column and the model's classes")

    @property
    def _columns(self) -> list[Array]:
        """The columns of X that each store in use fills."""
        ends = dict(zip(self.stores, accumulate(self.stores.values()), strict=True))
        return [np.arange(ends[name] - self.stores[name], ends[name]) for name in self.use or ends]


def unfuse(model: Any, X: Any = None) -> tuple[Any, Any]:
    """Return a fusion's classifier and its scaled input; return other models unchanged."""
    if not isinstance(model, StoreFusion):
        return model, X
    return model.models_[0], None if X is None else model.scaled(X)
