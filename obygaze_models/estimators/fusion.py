"""Several stores as one model: a scale for each store, and one probe for all or one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import Array, Chance, keywords
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.estimators.registry import best_of

FUSIONS = ("early", "late")
N_STACKED = 5
"""Parts of the training clips, each held out in turn: the stacker learns from their logits."""
_SURE = 1e-4
"""A probability nearer to 0 or 1 counts as this far from it: a tree's logits would be infinite."""


@dataclass(eq=False, repr=False)
class StoreFusion(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier on the features of several stores, side by side.

    Training clips fix each store's mean and scale, so that all stores vary alike. A clip that a
    store lacks is NaN in its columns: it counts as that store's mean.

    Parameters
    ----------
    estimator
        Any classifier of vectors; `fit` passes on what its `fit` names.
    stores
        The name of each store, and how many columns it has, in order: `ClipDataset.stores`.
    use
        The names of those that take part; by default all.
    how
        ``early``: one classifier on all columns. ``late``: one on each store's, and logistic
        regression on their logits, learnt from training clips that were held out, by group.
    class_weight
        Of that logistic regression.
    random_state
        Fixes which clips are held out together.

    Attributes
    ----------
    classes_
        The labels, sorted.
    models_
        The fitted classifier; by late fusion a `StoreFusion` of each store.
    means_, scales_
        Of each column; None by late fusion.
    stacker_
        The logistic regression; None where one classifier predicts.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": "no_validation",
        "stores": [dict],
        "use": [list, tuple, None],
        "how": [StrOptions({*FUSIONS})],
        "class_weight": [StrOptions({"balanced"}), None],
        "random_state": ["random_state"],
    }

    estimator: Any
    stores: Mapping[str, int]
    _: KW_ONLY
    use: Sequence[str] | None = None
    how: str = "early"
    class_weight: str | None = None
    random_state: Chance = None

    def fit(
        self, X: Any, y: Any, *, groups: Any = None, order: Any = None, **arguments: Any
    ) -> StoreFusion:
        """Fit on features [N, D] and one label a row.

        Parameters
        ----------
        X, y
            The features of all stores side by side, and the labels.
        groups
            The film of each clip: late fusion holds the clips of one out together.
        order
            A number for each clip, where a clip has several rows.
        arguments
            For the classifier's `fit`: a value a row, or of validation clips, ending in ``_val``.
        """
        self._validate_params()
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        if X.shape[1] != sum(self.stores.values()):
            raise ExperimentError(
                f"X has {X.shape[1]} columns, the stores {sum(self.stores.values())}; give data.X "
                "and data.stores of one dataset"
            )
        y, names = np.asarray(y), [*(self.use or self.stores)]
        arguments |= {"groups": groups, "order": order}
        self.means_ = self.scales_ = self.stacker_ = None
        if self.how == "early" or len(names) == 1:
            self._fit_early(X, y, names, arguments)
        else:
            self._fit_late(X, y, names, arguments)
        self.classes_ = self.models_[0].classes_
        return self

    def _fit_early(self, X: Array, y: Array, names: list[str], arguments: dict[str, Any]) -> None:
        self.means_, spreads = np.zeros(X.shape[1]), {}
        for name, own in self._columns(names).items():
            clips = X[:, own][~np.isnan(X[:, own]).any(axis=1)]
            if not len(clips):
                raise ExperimentError(f"no training clip has features of {name}; leave it out")
            self.means_[own], spreads[name] = clips.mean(axis=0), np.sqrt(clips.var(axis=0).sum())
        # One store alone stays as it is; several meet at the middle of their scales.
        varying = [spread for spread in spreads.values() if spread > 0]
        middle = np.exp(np.log(varying).mean()) if varying else 1.0
        self.scales_ = np.ones(X.shape[1])
        for name, own in self._columns(names).items():
            self.scales_[own] = spreads[name] / middle if spreads[name] > 0 else 1.0
        X_val = arguments.pop("X_val", None)
        rows, held = self._present(X), None if X_val is None else self._present(X_val)
        if X_val is not None:
            arguments["X_val"] = self.scaled(X_val)
        model = clone(self.estimator)
        wanted = keywords(model.fit)
        arguments = {key: arguments[key] for key in wanted & arguments.keys()}
        model.fit(self.scaled(X)[rows], y[rows], **_take(arguments, rows, held))
        self.models_ = [best_of(model)]

    def _fit_late(self, X: Array, y: Array, names: list[str], arguments: dict[str, Any]) -> None:
        parts = [clone(self).set_params(use=[name], how="early") for name in names]
        rows = np.asarray(arguments.get("labelled", np.ones(len(y), dtype=bool)))
        order = arguments["order"] if arguments["order"] is not None else np.arange(len(y))
        own = np.char.add("clip ", np.asarray(order).astype(str))  # of clips without a film
        films = own if arguments["groups"] is None else np.asarray(arguments["groups"]).astype(str)
        films = np.where(films == "", own, films)
        count = min(N_STACKED, len(np.unique(films[rows])))
        films = films if count > 1 else own
        folds = StratifiedGroupKFold(
            max(count, 2), shuffle=True, random_state=self.random_state
        ).split(X, y, films)
        logits: Array = np.array([])
        for train, held in folds:
            fitted = [
                clone(part).fit(X[train], y[train], **_take(arguments, train)) for part in parts
            ]
            values = self._logits(fitted, X[held])
            logits = logits if logits.size else np.zeros((len(y), values.shape[1]))
            logits[held] = values
        weights, counts = arguments.get("sample_weight"), np.ones(logits.shape[1])
        while True:
            self.stacker_ = LogisticProbe(class_weight=self.class_weight).fit(
                logits[rows] * counts, y[rows], None if weights is None else weights[rows]
            )
            # A store that speaks for a class must not count against it: that is noise.
            against = self.stacker_.coef_[0] < 0
            if logits.shape[1] > len(parts) or not against.any():
                break
            counts[against] = 0
        self.models_ = [part.fit(X, y, **arguments) for part in parts]

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self, "models_")
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        if self.stacker_ is None:
            return np.asarray(self.models_[0].predict_proba(self.scaled(X)))
        return self.stacker_.predict_proba(self._logits(self.models_, X))

    def predict(self, X: Any) -> Array:
        """The class with the highest probability."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def scaled(self, X: Array) -> Array:
        """What the one classifier reads, of its stores; 0 where a clip lacks one."""
        own = np.concatenate([*self._columns([*(self.use or self.stores)]).values()])
        return np.nan_to_num((X[:, own] - self.means_[own]) / self.scales_[own], nan=0.0)

    def store_logits(self, X: Array) -> Array | None:
        """The logits that late fusion adds up, [N, stores]; None unless it is of two classes."""
        if self.stacker_ is None or len(self.classes_) > 2:
            return None
        return self._logits(self.models_, np.asarray(X, dtype=np.float64))

    def _logits(self, models: Sequence[Any], X: Array) -> Array:
        tables = [np.clip(model.predict_proba(X), _SURE, 1 - _SURE) for model in models]
        if len({table.shape[1] for table in tables}) > 1:
            raise ExperimentError("the stores' clips are not of the same classes; leave one out")
        return np.hstack([logit(t[:, 1:]) if t.shape[1] == 2 else np.log(t) for t in tables])

    def _columns(self, names: Sequence[str]) -> dict[str, Array]:
        ends = dict(zip(self.stores, np.cumsum([*self.stores.values()]), strict=True))
        return {name: np.arange(ends[name] - self.stores[name], ends[name]) for name in names}

    def _present(self, X: Any) -> Array:
        """Which rows have features of any store that takes part; the others teach nothing."""
        columns = self._columns([*(self.use or self.stores)]).values()
        return np.any([~np.isnan(np.asarray(X)[:, own]).any(axis=1) for own in columns], axis=0)

    @property
    def facts_(self) -> dict[str, Any]:
        """What the classifier chose; of late fusion the weight of each store's logits."""
        if self.stacker_ is None:
            return dict(getattr(self.models_[0], "facts_", {}))
        weights = self.stacker_.coef_.reshape(len(self.stacker_.coef_), len(self.models_), -1)
        names = self.use or self.stores
        return {"weights": dict(zip(names, weights.mean(axis=(0, 2)).tolist(), strict=True))}

    @property
    def history_(self) -> list[dict[str, Any]]:
        """The epochs of the one classifier."""
        return list(getattr(self.models_[0], "history_", [])) if self.stacker_ is None else []

    @property
    def warnings_(self) -> list[Any]:
        """What a reader must know of the classifiers."""
        return [note for model in self.models_ for note in getattr(model, "warnings_", [])]


def _take(arguments: Mapping[str, Any], rows: Array, held: Array | None = None) -> dict[str, Any]:
    """What `fit` is given, for some rows; and for some of the validation clips."""

    def part(name: str, value: Any) -> Any:
        chosen = held if name.endswith("_val") else rows
        if value is None or chosen is None or name == "concept_names":
            return value
        return np.asarray(value)[chosen]

    return {name: part(name, value) for name, value in arguments.items()}


def unfuse(model: Any, X: Any = None) -> tuple[Any, Any]:
    """The one classifier of a fusion and what it reads; other models and features as they are."""
    if isinstance(model, StoreFusion) and model.stacker_ is None:
        return model.models_[0], None if X is None else model.scaled(X)
    return model, X
