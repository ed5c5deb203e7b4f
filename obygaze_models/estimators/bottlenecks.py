"""Concept bottlenecks: a classifier on the concepts of a clip, which people can read.

`ConceptBottleneck` sees a clip only through a bank of concepts; `HybridBottleneck` adds what the
features say beyond them, and measures how it does without them; `OracleBottleneck` is given the
annotated concepts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import _safe_indexing, assert_all_finite, get_tags
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    _check_method_params,
    check_array,
    check_consistent_length,
    check_is_fitted,
    check_memory,
    column_or_1d,
    validate_data,
)

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import (
    Array,
    Chance,
    as_logits,
    check_both,
    encode,
    find_classes,
    keywords,
    set_seed,
    softmax,
)
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.logistic import LogisticProbe, fit_residual
from obygaze_models.estimators.trees import TreeArrays

FOR_BANK = ("concepts", "concept_names", "concepts_val", "groups", "order", "order_val")
"""What a bottleneck's `fit` takes only for its bank."""


def _head_has(method: str) -> Callable[[Any], bool]:
    def check(model: Any) -> bool:
        head = getattr(model, "head_", None)
        return hasattr(model._make_head() if head is None else head, method)

    return check


@dataclass(eq=False, repr=False)
class _Bottleneck(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A bank and a head on it: what both bottlenecks share."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "bank": [HasMethods(["fit", "transform"]), None],
        "head": [HasMethods(["fit", "predict"]), None],
        "memory": [str, HasMethods(["cache"]), None],
        "random_state": ["random_state"],
    }

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
        labelled: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        concepts_val: Any = None,
        labelled_val: Any = None,
        groups: Any = None,
        order: Any = None,
        order_val: Any = None,
        **params: Any,
    ) -> Self:
        """Fit the bank, then the head; and then a `HybridBottleneck` its residual.

        Parameters
        ----------
        X, y
            Features [N, D] and one label a row.
        concepts, concept_names
            For the bank; see `ConceptBank.fit`.
        labelled
            Whether each clip has a label. Those without teach only the concepts, and their y is
            ignored. By default all have.
        X_val, y_val, concepts_val, labelled_val
            The same of the clips that choose the bank's C. A `ConceptBottleneck` also teaches
            its head with them; a `HybridBottleneck` measures by them how it does.
        groups
            The film of each clip, for the bank's folds.
        order, order_val
            A number for each clip, by which the bank's refit orders them.
        params
            With metadata routing: what else the bank and the head request, such as the head's
            ``sample_weight``.
        """
        self._validate_params()
        check_both(X_val, y_val)
        y, labelled = _check_labels(self, X, y, labelled, reset=True)
        rows, labels = [_select(X, labelled)], [y[labelled]]
        for_bank, for_head = _route(
            self, X, labelled, params, concepts=concepts, concept_names=concept_names,
            X_val=X_val, concepts_val=concepts_val, groups=groups, order=order, order_val=order_val,
        )  # fmt: skip
        if X_val is not None:
            y_val, labelled_val = _check_labels(self, X_val, y_val, labelled_val, reset=False)
            rows.append(_select(X_val, labelled_val))
            labels.append(y_val[labelled_val])
        self._check_head(labels, for_head)
        self.bank_ = _fit_bank(self, X, y, labelled, for_bank)
        self.facts_ = dict(getattr(self.bank_, "facts_", {}))
        self.warnings_ = list(getattr(self.bank_, "warnings_", []))
        head = set_seed(clone(self._make_head()), self.random_state)
        self._fit_head(head, rows, labels, for_head)
        return self

    @abstractmethod
    def _check_head(self, labels: list[Array], for_head: dict[str, Any]) -> None:
        """Set the classes, and raise where the head cannot be fitted."""

    @abstractmethod
    def _fit_head(
        self, head: Any, rows: list[Any], labels: list[Array], for_head: dict[str, Any]
    ) -> None:
        """Fit it to training clips, behind which may stand those for validation."""

    def concept_scores(self, X: Any) -> Array:
        """The input of the head: one column for each concept, [N, K]."""
        check_is_fitted(self)
        scores = self.bank_.transform(X)
        return np.asarray(scores.toarray() if sparse.issparse(scores) else scores)

    def concept_names(self) -> tuple[str, ...]:
        """The names of the columns of `concept_scores`."""
        check_is_fitted(self)
        return tuple(str(name) for name in self.bank_.get_feature_names_out())

    def get_metadata_routing(self) -> MetadataRouter:
        """What `fit` takes for itself, and what it hands on to the bank and the head.

        With a bank of your own its requests decide, and the bottleneck's need none; without one
        the bottleneck's requests are the bank's: it asks for concepts unless told not to.
        """
        own, fits = self._get_metadata_request(), MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self)
        if self.bank is None:
            if own.fit.requests.get("concepts") is None:
                own.fit.add_request(param="concepts", alias=True)
        else:
            router.add(bank=self.bank, method_mapping=fits)
            for name in FOR_BANK:
                if own.fit.requests.get(name) is None:
                    own.fit.add_request(param=name, alias=False)
        return router.add_self_request(own).add(head=self._make_head(), method_mapping=fits)

    def _make_head(self) -> Any:
        return _head_or_tree(self)


@dataclass(eq=False, repr=False)
class ConceptBottleneck(_Bottleneck):
    """A classifier on the concepts that a bank finds in the features.

    Both parts are cloned and fitted by `fit`. The bank learns from all clips, the head only from
    those that have a label; where validation clips chose the bank's C, the head learns from
    them, too, as in the paper. A bank whose `fit` takes no concepts, such as a `StandardScaler`,
    gets none and learns from the clips with a label; with metadata routing, concepts that no part
    requests are an error.

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

    def _check_head(self, labels: list[Array], for_head: dict[str, Any]) -> None:
        if len(labels) > 1 and for_head:
            raise ExperimentError(
                f"the head learns from X_val, too, and {', '.join(for_head)} is not given for "
                "these clips; leave out X_val and y_val"
            )
        self.classes_ = find_classes(np.concatenate(labels))

    def _fit_head(
        self, head: Any, rows: list[Any], labels: list[Array], for_head: dict[str, Any]
    ) -> None:
        scores = self.concept_scores(_stack(rows))
        self.head_ = head.fit(scores, np.concatenate(labels), **for_head)

    @available_if(_head_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        return np.asarray(self.head_.predict_proba(self.concept_scores(X)))

    @available_if(_head_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """The head's scores: [N] for two classes, else [N, classes]."""
        check_is_fitted(self)
        return np.asarray(self.head_.decision_function(self.concept_scores(X)))

    def predict(self, X: Any) -> Array:
        """The class of each row, as the head predicts it."""
        scores = self.concept_scores(X)
        if isinstance(self.head_, TreeArrays):  # a tree from a file has probabilities alone
            return np.asarray(self.classes_[self.head_.predict_proba(scores).argmax(axis=1)])
        return np.asarray(self.head_.predict(scores))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.bank is not None and get_tags(self.bank).input_tags.sparse
        return tags


@dataclass(eq=False, repr=False)
class HybridBottleneck(_Bottleneck):
    """A linear bottleneck, then a linear model on the features for what the bottleneck misses.

    The bottleneck is fitted first and does not change. The head learns from X alone: validation
    clips measure how the model does. A residual that predicts as well without
    the concepts is not explained by them; ``accuracy_`` says how well it does alone.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_Bottleneck._parameter_constraints,
        "residual_C": [Interval(Real, 0, None, closed="neither")],
    }

    residual_C: float = field(default=1.0, kw_only=True)  # noqa: N815

    def _check_head(self, labels: list[Array], for_head: dict[str, Any]) -> None:
        self.classes_ = find_classes(labels[0])
        head = self._make_head()
        if not hasattr(head, "decision_function"):
            raise ExperimentError(
                f"head {head!r} has no decision_function; a HybridBottleneck needs a linear one, "
                "such as LogisticProbe"
            )

    def _fit_head(
        self, head: Any, rows: list[Any], labels: list[Array], for_head: dict[str, Any]
    ) -> None:
        X, codes = rows[0], encode(labels[0], self.classes_)
        self.head_ = head.fit(self.concept_scores(X), labels[0], **for_head)
        base = self._concept_logits(X)
        self.mean_logits_ = base.mean(axis=0)
        self.residual_coef_, self.residual_intercept_ = fit_residual(
            check_array(X, dtype=np.float64), codes, base, self.residual_C
        )
        ablations = {
            "full": self._logits(rows[-1]),
            "concepts_ablated": self._logits(rows[-1], without="concepts"),
            "residual_ablated": self._logits(rows[-1], without="residual"),
        }
        self.accuracy_: dict[str, Any] = {
            "on": "training" if len(rows) == 1 else "validation",
            "clips": len(labels[-1]),
        } | {
            name: float((self.classes_[logits.argmax(axis=1)] == labels[-1]).mean())
            for name, logits in ablations.items()
        }
        self.facts_["accuracy"] = self.accuracy_

    def residual_logits(self, X: Any) -> Array:
        """What the features add to each class's logit, [N, classes]."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ self.residual_coef_.T + self.residual_intercept_)

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        return softmax(self._logits(X))

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _make_head(self) -> Any:
        return LogisticProbe(C=0.1) if self.head is None else self.head

    def _concept_logits(self, X: Any) -> Array:
        return as_logits(self.head_.decision_function(self.concept_scores(X)))

    def _logits(self, X: Any, *, without: str | None = None) -> Array:
        base = self.mean_logits_ if without == "concepts" else self._concept_logits(X)
        return base if without == "residual" else np.asarray(base + self.residual_logits(X))


@dataclass(eq=False, repr=False)
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "head": [HasMethods(["fit", "predict_proba"]), None],
        "random_state": ["random_state"],
    }

    head: Any = None
    _: KW_ONLY
    random_state: Chance = None

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
        """Fit the head on concepts [N, K]; X is checked, and not used.

        With validation clips the head learns from them, too, as that of a `ConceptBottleneck`.
        """
        self._validate_params()
        check_both(X_val, y_val)
        X, y = validate_data(self, X, y)
        concepts = self._read(X, concepts)
        if X_val is not None:
            X_val, y_val = validate_data(self, X_val, y_val, reset=False)
            concepts = np.concatenate([concepts, self._read(X_val, concepts_val)])
            y = np.concatenate([y, y_val])
        self.classes_ = find_classes(y)
        self.head_ = set_seed(clone(_head_or_tree(self)), self.random_state).fit(concepts, y)
        return self

    def predict_proba(self, X: Any, *, concepts: Any = None) -> Array:
        """The probability of each class, [N, classes], by the clips' annotated concepts [N, K]."""
        check_is_fitted(self)
        concepts = self._read(validate_data(self, X, reset=False), concepts)
        return np.asarray(self.head_.predict_proba(concepts))

    def predict(self, X: Any, *, concepts: Any = None) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X, concepts=concepts).argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, concepts: Any = None) -> float:
        """The accuracy by the clips' annotated concepts [N, K]."""
        predicted = self.predict(X, concepts=concepts)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

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


def _head_or_tree(model: Any) -> Any:
    return DecisionTreeClassifier(max_depth=10) if model.head is None else model.head


def _check_labels(model: Any, X: Any, y: Any, labelled: Any, *, reset: bool) -> tuple[Array, Array]:
    """Labels, and whether each clip has one; the bank checks the features."""
    validate_data(model, X, y, skip_check_array=True, reset=reset)
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    rows = np.ones(len(y), bool) if labelled is None else np.asarray(labelled, dtype=bool)
    if rows.shape != y.shape:
        raise ExperimentError(f"labelled has shape {rows.shape}; give one value for each clip")
    assert_all_finite(y[rows], input_name="y")
    return y, rows


def _select(X: Any, rows: Array) -> Any:
    """Rows of an array, a data frame or a sparse matrix."""
    return X if rows.all() else _safe_indexing(X, rows)


def _stack(parts: Sequence[Any]) -> Any:
    """Arrays, data frames or sparse matrices, one below the other."""
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "iloc"):
        import pandas

        return pandas.concat(parts)
    return sparse.vstack(parts) if sparse.issparse(parts[0]) else np.concatenate(parts)


def _route(
    model: Any, X: Any, labelled: Array, params: dict[str, Any], **given: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the bank's `fit` gets, and what the head's: by routing, or what the bank's names."""
    given = {name: value for name, value in given.items() if value is not None}
    for_bank, for_head = given, {}
    if get_config()["enable_metadata_routing"]:
        routed = process_routing(model, "fit", **given, **params)
        for_head = _check_method_params(X, routed["head"]["fit"], indices=labelled)
        if model.bank is not None:
            for_bank = routed["bank"]["fit"]
    else:
        _raise_for_params(params, model, "fit")
        if model.bank is not None:
            accepted = keywords(model.bank.fit)
            for_bank = {name: value for name, value in given.items() if name in accepted}
    return for_bank, for_head


def _fit_bank(model: Any, X: Any, y: Any, labelled: Array, metadata: dict[str, Any]) -> Any:
    """The fitted bank of a bottleneck."""
    bank = ConceptBank() if model.bank is None else model.bank
    if isinstance(bank, FrozenEstimator):
        check_is_fitted(bank.estimator)
        return bank.estimator
    bank = set_seed(clone(bank), model.random_state)
    if "concepts" not in metadata and not labelled.all():
        metadata = _check_method_params(X, metadata, indices=labelled)
        X, y = _select(X, labelled), y[labelled]
    if isinstance(bank, ConceptBank) and "concepts" in metadata:
        y = None  # it learns the concepts: without y all tasks of one fold share its fit
    return check_memory(model.memory).cache(_fitted)(bank, X, y, metadata)


def _fitted(bank: Any, X: Any, y: Array | None, metadata: dict[str, Any]) -> Any:
    return bank.fit(X, y, **metadata)
