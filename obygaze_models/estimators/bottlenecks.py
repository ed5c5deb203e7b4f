"""Concept bottlenecks: a classifier on the concepts of a clip, which people can read.

`ConceptBottleneck` sees a clip only through a bank of concepts; `HybridBottleneck` adds what the
features say beyond them, and measures how it does without them; `OracleBottleneck` is given the
annotated concepts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, check_memory, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import (
    Chance,
    as_logits,
    encode,
    find_classes,
    keywords,
    set_seed,
    softmax,
)
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.logistic import LogisticProbe, fit_residual

Array = NDArray[Any]


def _head_has(method: str) -> Callable[[Any], bool]:
    def check(model: Any) -> bool:
        head = getattr(model, "head_", None) or model._default_head(model.head)
        return hasattr(head, method)

    return check


class ConceptBottleneck(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier on the concepts that a bank finds in the features.

    Both parts are cloned and fitted by `fit`. The bank learns from all clips, the head only from
    those that have a label; where validation clips chose the bank's C, the head learns from
    them, too, as in the paper.

    Parameters
    ----------
    bank
        Any transformer; by default a `ConceptBank`. One that was fitted before is used as it is
        within ``sklearn.frozen.FrozenEstimator``.
    head
        Any classifier; by default a decision tree of at most ten levels.
    memory
        Where to keep fitted banks, so that several heads share one: a folder, or an object with
        `cache` such as `joblib.Memory`.
    random_state
        For the bank and the head, unless they set one.

    Attributes
    ----------
    classes_
        The labels, sorted.
    bank_, head_
        The fitted parts.
    facts_, warnings_
        The bank's.

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

    def __init__(
        self,
        bank: Any = None,
        head: Any = None,
        *,
        memory: Any = None,
        random_state: Chance = None,
    ) -> None:
        self.bank = bank
        self.head = head
        self.memory = memory
        self.random_state = random_state

    @staticmethod
    def _default_head(head: Any) -> Any:
        return DecisionTreeClassifier(max_depth=10) if head is None else head

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        concepts: Any = None,
        concept_names: Sequence[str] | None = None,
        labelled: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        concepts_val: Any = None,
        labelled_val: Any = None,
        groups: Any = None,
        order: Any = None,
        order_val: Any = None,
    ) -> ConceptBottleneck:
        """Fit the bank, then the head.

        Parameters
        ----------
        X, y
            Features [N, D] and one label a row.
        concepts, concept_names
            For the bank; see `ConceptBank.fit`.
        labelled
            Whether each clip has a label. Those without teach only the concepts, and their y is
            not looked at. By default all have.
        X_val, y_val, concepts_val, labelled_val
            The same of the clips that choose the bank's C.
        groups
            The film of each clip, for the bank's folds.
        order, order_val
            A number for each clip, by which the bank's refit orders them.
        """
        X, y, labelled = _check_rows(self, X, y, labelled, reset=True)
        rows, labels = X[labelled], y[labelled]
        if X_val is not None:
            X_val, y_val, labelled_val = _check_rows(self, X_val, y_val, labelled_val, reset=False)
            rows = np.concatenate([rows, X_val[labelled_val]])
            labels = np.concatenate([labels, y_val[labelled_val]])
        self.classes_ = find_classes(labels)
        self.bank_ = _fit_bank(
            self, X, y, labelled, concepts=concepts, concept_names=concept_names,
            X_val=X_val, concepts_val=concepts_val, groups=groups, order=order, order_val=order_val,
        )  # fmt: skip
        head = set_seed(clone(self._default_head(self.head)), self.random_state)
        self.head_ = head.fit(self._measure(rows), labels)
        self.facts_ = dict(getattr(self.bank_, "facts_", {}))
        self.warnings_ = list(getattr(self.bank_, "warnings_", []))
        return self

    def concept_scores(self, X: Any) -> Array:
        """The input of the head: one column for each concept, [N, K]."""
        check_is_fitted(self)
        return self._measure(validate_data(self, X, dtype=np.float64, reset=False))

    def concept_names(self) -> tuple[str, ...]:
        """The names of the columns of `concept_scores`."""
        check_is_fitted(self)
        return tuple(str(name) for name in self.bank_.get_feature_names_out())

    @available_if(_head_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        return np.asarray(self.head_.predict_proba(self.concept_scores(X)))

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        scores = self.concept_scores(X)
        if hasattr(self.head_, "predict_proba"):
            return np.asarray(self.classes_[self.head_.predict_proba(scores).argmax(axis=1)])
        return np.asarray(self.head_.predict(scores))

    def _measure(self, X: Array) -> Array:
        return np.asarray(self.bank_.transform(X))


class HybridBottleneck(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear bottleneck, then a linear rule on the features for what it leaves over.

    The bottleneck is fitted first and then stays. A residual that does as well without the
    concepts is not explained by them; so ``accuracy_`` says how it does then.

    Parameters
    ----------
    bank, memory, random_state
        As in `ConceptBottleneck`.
    head
        A linear classifier; by default ``LogisticProbe(C=0.1)``.
    residual_C
        The inverse of the penalty on the residual's weights.

    Attributes
    ----------
    classes_
        The labels, sorted.
    bank_, head_
        The bottleneck's fitted parts.
    residual_coef_, residual_intercept_
        The rule on the features, a row for each class.
    mean_logits_
        The bottleneck's mean logits on the training clips; they stand for it when it is ablated.
    accuracy_
        ``full``, ``concepts_ablated``, ``residual_ablated``, each on ``clips`` clips ``on``
        validation, or on training where there is no validation.
    facts_, warnings_
        The bank's, and ``accuracy``.
    """

    def __init__(
        self,
        bank: Any = None,
        head: Any = None,
        *,
        residual_C: float = 1.0,
        memory: Any = None,
        random_state: Chance = None,
    ) -> None:
        self.bank = bank
        self.head = head
        self.residual_C = residual_C
        self.memory = memory
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        concepts: Any = None,
        concept_names: Sequence[str] | None = None,
        labelled: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        concepts_val: Any = None,
        labelled_val: Any = None,
        groups: Any = None,
        order: Any = None,
        order_val: Any = None,
    ) -> HybridBottleneck:
        """Fit the bottleneck, then the residual; see `ConceptBottleneck.fit`.

        The head learns from X alone: the validation clips measure how the model does.
        """
        X, y, labelled = _check_rows(self, X, y, labelled, reset=True)
        rows, labels = X[labelled], y[labelled]
        self.classes_ = find_classes(labels)
        codes = encode(labels, self.classes_)
        if X_val is not None:
            X_val, y_val, labelled_val = _check_rows(self, X_val, y_val, labelled_val, reset=False)
        self.bank_ = _fit_bank(
            self, X, y, labelled, concepts=concepts, concept_names=concept_names,
            X_val=X_val, concepts_val=concepts_val, groups=groups, order=order, order_val=order_val,
        )  # fmt: skip
        head = LogisticProbe(C=0.1) if self.head is None else self.head
        if not hasattr(head, "decision_function"):
            raise ExperimentError(
                f"head {head!r} has no decision_function; a HybridBottleneck needs a linear one, "
                "such as LogisticProbe"
            )
        self.head_ = set_seed(clone(head), self.random_state).fit(self._measure(rows), labels)
        base = self._concept_logits(rows)
        self.mean_logits_ = base.mean(axis=0)
        self.residual_coef_, self.residual_intercept_ = fit_residual(
            rows, codes, base, self.residual_C
        )
        if X_val is not None:
            rows, labels = X_val[labelled_val], y_val[labelled_val]
        ablations = {
            "full": self._logits(rows),
            "concepts_ablated": self._logits(rows, without="concepts"),
            "residual_ablated": self._logits(rows, without="residual"),
        }
        self.accuracy_: dict[str, Any] = {
            "on": "training" if X_val is None else "validation",
            "clips": len(labels),
            **{
                name: float((self.classes_[logits.argmax(axis=1)] == labels).mean())
                for name, logits in ablations.items()
            },
        }
        self.facts_ = {**getattr(self.bank_, "facts_", {}), "accuracy": self.accuracy_}
        self.warnings_ = list(getattr(self.bank_, "warnings_", []))
        return self

    def concept_scores(self, X: Any) -> Array:
        """The input of the head: one column for each concept, [N, K]."""
        check_is_fitted(self)
        return self._measure(validate_data(self, X, dtype=np.float64, reset=False))

    def concept_names(self) -> tuple[str, ...]:
        """The names of the columns of `concept_scores`."""
        check_is_fitted(self)
        return tuple(str(name) for name in self.bank_.get_feature_names_out())

    def residual_logits(self, X: Any) -> Array:
        """What the features add to each class's logit, [N, classes]."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ self.residual_coef_.T + self.residual_intercept_)

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        return softmax(self._logits(validate_data(self, X, dtype=np.float64, reset=False)))

    def predict_proba_without(self, X: Any, part: str) -> Array:
        """The probabilities without ``"concepts"``, or without the ``"residual"``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return softmax(self._logits(X, without=part))

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _measure(self, X: Array) -> Array:
        return np.asarray(self.bank_.transform(X))

    def _concept_logits(self, X: Array) -> Array:
        return as_logits(self.head_.decision_function(self._measure(X)))

    def _logits(self, X: Array, *, without: str | None = None) -> Array:
        if without == "concepts":
            base = np.broadcast_to(self.mean_logits_, (len(X), len(self.classes_)))
        else:
            base = self._concept_logits(X)
        if without == "residual":
            return base
        return np.asarray(base + (X @ self.residual_coef_.T + self.residual_intercept_))


class OracleBottleneck(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier on the annotated concepts: what perfect concepts would score.

    Parameters
    ----------
    head
        Any classifier; by default a decision tree of at most ten levels.
    random_state
        For the head, unless it sets one.

    Attributes
    ----------
    classes_, head_
        The labels, sorted; and the fitted head.
    """

    def __init__(self, head: Any = None, *, random_state: Chance = None) -> None:
        self.head = head
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        concepts: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        concepts_val: Any = None,
    ) -> OracleBottleneck:
        """Fit the head on concepts [N, K]; X is not looked at.

        With validation clips the head learns from them, too, as that of a `ConceptBottleneck`.
        """
        concepts, y = self._read(X, concepts), np.asarray(y)
        validate_data(self, X, skip_check_array=True)
        if X_val is not None:
            concepts = np.concatenate([concepts, self._read(X_val, concepts_val)])
            y = np.concatenate([y, np.asarray(y_val)])
        self.classes_ = find_classes(y)
        head = DecisionTreeClassifier(max_depth=10) if self.head is None else self.head
        self.head_ = set_seed(clone(head), self.random_state).fit(concepts, y)
        return self

    def predict_proba(self, X: Any, *, concepts: Any = None) -> Array:
        """The probability of each class, [N, classes], by the clips' annotated concepts [N, K]."""
        check_is_fitted(self)
        return np.asarray(self.head_.predict_proba(self._read(X, concepts)))

    def predict(self, X: Any, *, concepts: Any = None) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X, concepts=concepts).argmax(axis=1)])

    def _read(self, X: Any, concepts: Any) -> Array:
        if concepts is None:
            raise ExperimentError(
                "an OracleBottleneck reads annotated concepts, not features; pass concepts=C to "
                "fit and to predict_proba (it only works for labelled clips)"
            )
        concepts = np.asarray(concepts, dtype=np.float64)
        if concepts.ndim != 2 or len(concepts) != len(X):
            raise ExperimentError(
                f"concepts of shape {concepts.shape} do not fit {len(X)} clips; give [N, K]"
            )
        if not concepts.shape[1]:
            raise ExperimentError("the labels mark no concepts, which an oracle bottleneck reads")
        return np.asarray(concepts)


def _check_rows(
    model: Any, X: Any, y: Any, labelled: Any, *, reset: bool
) -> tuple[Array, Array, Array]:
    """Features, labels, and whether each clip has a label."""
    X, y = validate_data(model, X, y, dtype=np.float64, reset=reset)
    rows = np.ones(len(X), bool) if labelled is None else np.asarray(labelled, dtype=bool)
    if rows.shape != (len(X),):
        raise ExperimentError(f"labelled has shape {rows.shape}; give one value for each clip")
    return X, y, rows


def _fit_bank(model: Any, X: Array, y: Any, labelled: Array, **arguments: Any) -> Any:
    """The fitted bank of a bottleneck; it gets what its `fit` names, or requests by routing."""
    bank = ConceptBank() if model.bank is None else model.bank
    if isinstance(bank, FrozenEstimator):
        check_is_fitted(bank.estimator)
        return bank.estimator
    accepted = keywords(bank.fit)
    if get_config()["enable_metadata_routing"]:
        accepted |= get_routing_for_object(bank).consumes("fit", arguments)
    if "concepts" not in accepted:
        X, y = X[labelled], y[labelled]
    passed = {name: value for name, value in arguments.items() if name in accepted}
    passed = {name: value for name, value in passed.items() if value is not None}
    bank = set_seed(clone(bank), model.random_state)
    if isinstance(bank, ConceptBank) and "concepts" in passed:
        y = None  # it learns the concepts: without y all tasks of one fold share its fit
    return check_memory(model.memory).cache(_fitted)(bank, X, y, passed)


def _fitted(bank: Any, X: Array, y: Array | None, passed: dict[str, Any]) -> Any:
    return bank.fit(X, y, **passed)
