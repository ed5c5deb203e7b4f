"""A concept bottleneck: a classifier whose only input is a clip's scores on concepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, check_memory, validate_data

from obygaze_features.common.arrays import Array
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import Chance, check_both, find_classes, keywords, set_seed
from obygaze_models.estimators.concepts import ConceptBank


def _if_head_has(method: str) -> Any:
    """Return a decorator that makes a method available only if the head has the method."""
    return available_if(lambda model: hasattr(getattr(model, "head_", model._make_head()), method))


@dataclass(eq=False, repr=False)
class ConceptBottleneck(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier (head) on the concept scores that a concept bank computes from features.

    `fit` clones and fits both parts. The bank learns from all clips, and the head from the clips
    that have a label. If validation clips are passed, the head also learns from them, as in the
    released code. A bank that gets no concepts, such as a `StandardScaler`, learns from the clips
    that have a label.

    In scikit-learn's cross-validation, pass the concepts as a parameter: ``cross_val_score(model,
    X, y, groups=films, cv=cv, params={"concepts": C})``.

    Parameters
    ----------
    bank
        Any transformer; by default, a `ConceptBank`. To use a fitted bank unchanged, wrap it in
        ``sklearn.frozen.FrozenEstimator``.
    head
        Any classifier; by default, a decision tree with a depth of at most 10.
    memory
        A cache of fitted banks, so that several heads can share a bank: a folder, or an object with
        a `cache` method, such as `joblib.Memory`.
    random_state
        The random state of the bank and of the head, unless they set their own.

    Attributes
    ----------
    classes_
        The labels, sorted.
    bank_, head_
        The fitted parts.
    facts_, warnings_
        The bank's facts and warnings.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(80, 4))
    >>> C = X[:, :2] > 0
    >>> y = np.where(C.all(axis=1), "S", "EN")
    >>> model = ConceptBottleneck().fit(X, y, concepts=C)
    >>> model.predict(X[:2]).shape, model.concept_scores(X).shape
    ((2,), (80, 2))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "bank": [HasMethods(["fit", "transform"]), None],
        "head": [HasMethods(["fit", "predict"]), None],
        "memory": [str, HasMethods(["cache"]), None],
        "random_state": ["random_state"],
    }
    _validation_teaches: ClassVar[bool] = True
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"concepts": True}

    bank: Any = None
    head: Any = None
    _: KW_ONLY
    memory: Any = None
    random_state: Chance = None

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        concepts: Any = None,
        concept_names: Sequence[str] | None = None,
        labelled: Any = True,
        X_val: Any = None,
        y_val: Any = None,
        concepts_val: Any = None,
        labelled_val: Any = True,
        groups: Any = None,
    ) -> Self:
        """Fit the bank, then the head.

        Parameters
        ----------
        X, y
            Features [N, D] and one label per row.
        concepts, concept_names
            The concepts for the bank; see `ConceptBank.fit`.
        labelled
            True for each clip that has a label. The other clips are used only to learn concepts,
            and their y may be any label. By default, all clips have labels.
        X_val, y_val, concepts_val, labelled_val
            The same for the validation clips, on which the bank's C is chosen. The head also learns
            from these clips.
        groups
            The film of each clip, for the bank's folds.
        """
        self._validate_params()
        check_both(X_val, y_val)
        X, y = validate_data(self, X, y)
        labelled = np.broadcast_to(labelled, y.shape).astype(bool)
        rows = X[labelled]
        labels = y[labelled]
        if X_val is not None:
            X_val, y_val = validate_data(self, X_val, y_val, reset=False)
            has_label = np.broadcast_to(labelled_val, y_val.shape).astype(bool)
            rows = np.concatenate([rows, X_val[has_label]])
            labels = np.concatenate([labels, y_val[has_label]])
        self.classes_, _ = find_classes(labels)

        arguments = {
            "concepts": concepts,
            "concept_names": concept_names,
            "X_val": X_val,
            "concepts_val": concepts_val,
            "groups": groups,
        }
        self.bank_ = _fit_bank(self, X, y, labelled, arguments)
        self.facts_ = dict(getattr(self.bank_, "facts_", {}))
        self.warnings_ = list(getattr(self.bank_, "warnings_", []))
        head = set_seed(clone(self._make_head()), self.random_state)
        self.head_ = head.fit(self.bank_.transform(rows), labels)
        return self

    def concept_scores(self, X: Any) -> Array:
        """Return the clips' scores on the K concepts, [N, K], which are the input of the head."""
        check_is_fitted(self)
        return np.asarray(self.bank_.transform(validate_data(self, X, reset=False)))

    def concept_names(self) -> tuple[str, ...]:
        """Return the column names of `concept_scores`."""
        check_is_fitted(self)
        return tuple(str(name) for name in self.bank_.get_feature_names_out())

    @_if_head_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        return np.asarray(self.head_.predict_proba(self.concept_scores(X)))

    @_if_head_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Return the head's decision values: [N] for two classes, else [N, classes]."""
        check_is_fitted(self)
        return np.asarray(self.head_.decision_function(self.concept_scores(X)))

    def predict(self, X: Any) -> Array:
        """Return the class that the head predicts for each row."""
        scores = self.concept_scores(X)
        return np.asarray(self.head_.predict(scores))

    def _make_head(self) -> Any:
        return DecisionTreeClassifier(max_depth=10) if self.head is None else self.head


def _fit_bank(model: Any, X: Array, y: Any, labelled: Array, arguments: dict[str, Any]) -> Any:
    """Return a bottleneck's fitted bank. A frozen bank is returned as it is."""
    bank = ConceptBank() if model.bank is None else model.bank
    if isinstance(bank, FrozenEstimator):
        check_is_fitted(bank.estimator)
        return bank.estimator

    bank = set_seed(clone(bank), model.random_state)
    accepted = keywords(bank.fit)
    metadata = {}
    for name, value in arguments.items():
        if name in accepted and value is not None:
            metadata[name] = value

    if isinstance(bank, ConceptBank):
        if "concepts" not in metadata:
            raise ExperimentError(
                f"a {type(model).__name__} needs concepts (got none). Use fit(X, y, concepts=C) "
                'or cross_val_score(..., params={"concepts": C})'
            )
        # The bank ignores y. Without y, all tasks of a fold share the cached fit.
        y = None
    elif "concepts" not in metadata:
        X = X[labelled]
        y = y[labelled]
        if "groups" in metadata:
            metadata["groups"] = np.asarray(metadata["groups"])[labelled]
    return check_memory(model.memory).cache(_fitted)(bank, X, y, metadata)


def _fitted(bank: Any, X: Array, y: Array | None, metadata: dict[str, Any]) -> Any:
    return bank.fit(X, y, **metadata)
