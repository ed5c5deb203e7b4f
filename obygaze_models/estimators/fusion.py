"""Models that read several stores: one classifier for all features, or one for each store."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.classes import Chance, keywords
from obygaze_models.estimators.inner_folds import DIVIDED, Folds, name_groups, whole_groups
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.estimators.registry import best_of
from obygaze_models.scoring.metrics import Array

FUSIONS = ("early", "late")
N_STACKED = 5
"""The number of folds whose held-out logits train late fusion's logistic regression."""
FEW_FILMS = (
    "late fusion: too few films have clips of each class with features in each store, so the "
    "stores' weights were learned on clips of films that were also in training."
)
NO_GROUPS = (
    "late fusion without groups learns the stores' weights from folds that split films. Pass "
    "groups (in a cross-validation: set_fit_request(groups=True), params={'groups': films})"
)
_SURE = 1e-4
"""The minimum distance of probabilities from 0 and 1. At 0 or 1, logits would be infinite."""


@dataclass(eq=False, repr=False)
class StoreFusion(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that reads the features of several stores, side by side.

    The features of each store are centred and scaled on the training clips, so that the variances
    of its columns sum to 1 and no store dominates. If a store lacks a clip, the clip's columns are
    NaN and are replaced by the mean.

    Parameters
    ----------
    estimator
        Any classifier of vectors. Its `fit` gets only the arguments that it has parameters for.
    stores
        The number of columns of each store by name, in order, as in `ClipDataset.stores`.
    use
        The names of the stores to use; by default, all.
    how
        ``early`` for one classifier on all columns. ``late`` for one classifier per store, and a
        logistic regression on their logits, which learns from training clips held out by group.
    class_weight
        The class weight of the logistic regression.
    random_state
        The seed of the folds.
    concept_stores
        A mapping from concepts to the stores that they are learned from, for a bottleneck whose
        bank is a `ConceptBank`. All other concepts, and concepts of unused stores, are learned from
        all stores.

    Attributes
    ----------
    classes_
        The labels, sorted.
    models_
        The fitted classifier; for late fusion, a `StoreFusion` for each store.
    means_, scales_
        The mean and the scale of each column.
    stacker_
        The logistic regression; None if a single classifier predicts.
    """

    estimator: Any
    stores: Mapping[str, int]
    _: KW_ONLY
    use: Sequence[str] | None = None
    how: str = "early"
    class_weight: str | None = None
    random_state: Chance = None
    concept_stores: Mapping[str, str] | None = None

    def fit(
        self, X: Any, y: Any, *, groups: Any = None, order: Any = None, **arguments: Any
    ) -> StoreFusion:
        """Fit on features [N, D] and one label per row.

        Parameters
        ----------
        X, y
            The features of all stores side by side, and the labels.
        groups
            The film of each clip. Late fusion holds out whole films.
        order
            The number of each row's clip, if clips have several rows.
        arguments
            Other arguments of the classifier's `fit`, with a value per row, or per row of `X_val`
            if the name ends in ``_val``.
        """
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        if self.how not in FUSIONS:
            raise ExperimentError(f"'how' must be {' or '.join(FUSIONS)} (got {self.how!r})")
        if X.shape[1] != (columns := sum(self.stores.values())):
            raise ExperimentError(f"X has {X.shape[1]} columns, but the stores have {columns}")
        y, arguments = np.asarray(y), arguments | {"groups": groups, "order": order}
        self.means_, self.scales_ = np.zeros(X.shape[1]), np.ones(X.shape[1])
        for name, own in self._columns.items():
            clips = X[:, own][~np.isnan(X[:, own]).any(axis=1)]
            if not len(clips):
                raise ExperimentError(f"no training clip has features in {name}. Omit this store")
            self.means_[own] = clips.mean(axis=0)
            self.scales_[own] = np.sqrt(clips.var(axis=0).sum()) or 1.0
        self.stacker_: Any = None
        late = self.how == "late" and len(self._columns) > 1
        (self._fit_late if late else self._fit_early)(X, y, arguments)
        self.classes_ = self.models_[0].classes_
        return self

    def _fit_early(self, X: Array, y: Array, arguments: dict[str, Any]) -> None:
        if arguments.get("X_val") is not None:
            arguments = arguments | {"X_val": self.scaled(arguments["X_val"])}
        model, spans = clone(self.estimator), self._spans(self._columns)
        if self.concept_stores and "bank__features" in model.get_params():
            features = {c: spans[n] for c, n in self.concept_stores.items() if n in spans}
            model.set_params(bank__features=features)
        accepted = {key: arguments[key] for key in keywords(model.fit) & arguments.keys()}
        films_and_order = arguments["groups"], arguments["order"]
        with whole_groups(model, y, *films_and_order, random_state=self.random_state) as notes:
            model.fit(self.scaled(X), y, **accepted)
        self.models_ = [best_of(model)]
        for key in ("facts_", "history_"):
            if hasattr(self.models_[0], key):
                setattr(self, key, getattr(self.models_[0], key))
        self.warnings_ = [*notes, *getattr(self.models_[0], "warnings_", [])]

    def _fit_late(self, X: Array, y: Array, arguments: dict[str, Any]) -> None:
        parts = [clone(self).set_params(use=[name], how="early") for name in self._columns]
        labelled = arguments.get("labelled", np.ones(len(y), dtype=bool))
        folds, notes = self._folds(X, y, labelled, arguments)
        classes, weights = len(np.unique(y[labelled])), arguments.get("sample_weight")
        logits = np.zeros((len(y), len(parts) * (classes if classes > 2 else 1)))
        for train, held in folds:
            own = {key: _take(key, value, train) for key, value in arguments.items()}
            fitted = [clone(part).fit(X[train], y[train], **own) for part in parts]
            logits[held] = self.logits_of(fitted, X[held])
        for _ in [*parts, None]:
            self.stacker_ = LogisticProbe(class_weight=self.class_weight)
            self.stacker_.fit(logits[labelled], y[labelled], _take("", weights, labelled))
            if classes == 2:  # leave out stores with a negative weight
                logits[:, self.stacker_.coef_[0] < 0] = 0
        self.models_ = [part.fit(X, y, **arguments) for part in parts]
        weights = dict(zip(self._columns, self.stacker_.coef_[0].tolist(), strict=False))
        self.facts_ = {"weights": weights} if classes == 2 else {}
        self.warnings_ = notes + [n for part in parts for n in getattr(part, "warnings_", [])]

    def _folds(
        self, X: Array, y: Array, labelled: Array, arguments: Mapping[str, Any]
    ) -> tuple[Folds, list[RunWarning]]:
        """Return the training and held-out rows of folds of whole films, and warnings.

        Films are split if a fold of whole films would train without some class or some store.
        """
        order, groups = arguments["order"], arguments["groups"]
        if groups is None:
            warnings.warn(NO_GROUPS, stacklevel=4)
        films, clips = (name_groups(labels, order, len(y)) for labels in (groups, None))
        divided = [RunWarning(DIVIDED, "", FEW_FILMS)]
        unnamed = groups is not None and np.array_equal(films, clips)
        classes = np.unique(y[labelled])
        for names, notes in ((films, divided if unnamed else []), (clips, divided)):
            count = min(N_STACKED, len(np.unique(names[labelled])))
            if count > 1:
                parting = StratifiedGroupKFold(count, shuffle=True, random_state=self.random_state)
                folds = [*parting.split(X, y, names)]
                if all(
                    np.array_equal(np.unique(y[train][labelled[train]]), classes)
                    and all(
                        (~np.isnan(X[np.ix_(train, columns)]).any(axis=1)).any()
                        for columns in self._columns.values()
                    )
                    for train, _ in folds
                ):
                    return folds, notes
        raise ExperimentError(
            'a class or a store has too few training clips for late fusion. Set fusion = "early"'
        )

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self, "models_")
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        if self.stacker_ is None:
            return np.asarray(self.models_[0].predict_proba(self.scaled(X)))
        return np.asarray(self.stacker_.predict_proba(self.logits_of(self.models_, X)))

    def predict(self, X: Any) -> Array:
        """Return the class with the highest probability."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def scaled(self, X: Any) -> Array:
        """Return the scaled features of the stores in use. Missing features become 0."""
        own = np.concatenate([*self._columns.values()])
        means, scales = self.means_.take(own), self.scales_.take(own)
        scaled = (np.asarray(X, np.float64)[:, own] - means) / scales
        return np.asarray(np.nan_to_num(scaled, nan=0.0))

    def check_fitted_parts(self) -> None:
        """Raise `ExperimentError` unless stores, scales and models match."""
        sizes, used = self.stores, self.use or ()
        is_layout = isinstance(sizes, Mapping) and all(
            isinstance(name, str) and type(size) is int and size > 0 for name, size in sizes.items()
        )
        if not is_layout or not sizes:
            raise ExperimentError("a fusion's stores must map names to numbers of columns")
        if not isinstance(used, list | tuple) or not sizes.keys() >= {*map(str, used)}:
            raise ExperimentError("a fusion must only use stores that it has")
        shape = (sum(sizes.values()),)
        if not shape == self.means_.shape == self.scales_.shape or (self.scales_ <= 0).any():
            raise ExperimentError("a fusion needs one positive scale per column")
        if len(self.models_) != (1 if self.stacker_ is None else len(self._columns)):
            raise ExperimentError("a fusion's models do not match its stores")
        codes = [np.asarray(model.classes_) for model in (self, *self.models_)]
        if any(own.dtype != codes[0].dtype or not np.array_equal(own, codes[0]) for own in codes):
            raise ExperimentError("a fusion's models must have the same classes as the fusion")

    def lacks(self, X: Any) -> Array:
        """Return a mask [N, stores] of the clips that each store lacks."""
        own = self._columns.values()
        return np.stack([np.isnan(np.asarray(X)[:, c]).any(axis=1) for c in own], axis=1)

    def logits_of(self, models: Sequence[Any], X: Array) -> Array:
        """Return the stacker's input: log-odds for two classes, else log-probabilities."""
        tables = [np.clip(model.predict_proba(X), _SURE, 1 - _SURE) for model in models]
        return np.hstack([logit(t[:, 1:]) if t.shape[1] == 2 else np.log(t) for t in tables])

    @property
    def _columns(self) -> dict[str, Array]:
        """The columns of X that each store fills, for the stores in `use` (or else all)."""
        spans = self._spans(self.stores)
        return {name: np.arange(*spans[name]) for name in self.use or self.stores}

    def _spans(self, names: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return each store's range of columns in a table of these stores."""
        ends = accumulate(self.stores[name] for name in names)
        return {n: (end - self.stores[n], end) for n, end in zip(names, ends, strict=True)}


def _take(name: str, value: Any, rows: Array) -> Any:
    """Return the values of a `fit` argument for some of the training clips."""
    is_shared = value is None or name == "concept_names" or name.endswith("_val")
    return value if is_shared else np.asarray(value)[rows]


def unfuse(model: Any, X: Any = None) -> tuple[Any, Any]:
    """Return an early fusion's classifier and its scaled input; return other models unchanged."""
    if isinstance(model, StoreFusion) and model.stacker_ is None:
        return model.models_[0], None if X is None else model.scaled(X)
    return model, X
