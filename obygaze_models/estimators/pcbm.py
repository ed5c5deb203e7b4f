"""Concept bottlenecks: what a clip measures along concepts decides, and can be read.

`PCBMClassifier` sees a clip only through a bank of concept directions; `PCBMHybrid` adds what
the concepts leave over, and says how much it does without them; `OracleBottleneck` is given the
annotated concepts. The last, and random directions, say what a bottleneck's score is worth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.calibration import softmax
from obygaze_models.estimators.classes import classes_of, codes_of
from obygaze_models.estimators.directions import Output, RandomDirections, project
from obygaze_models.estimators.heads import Head, HeadKind, LinearHead, fit_head, fit_logistic

__all__ = ["OracleBottleneck", "PCBMClassifier", "PCBMHybrid"]

Array = NDArray[Any]
Chance = int | np.random.RandomState | None


class PCBMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A tree or a linear rule on what clips measure along concepts.

    Parameters
    ----------
    bank
        A fitted `ConceptBank` or `RandomDirections`; None draws eight random directions.
    head
        ``"tree"``, ``"logistic"`` or ``"elastic-net"``.
    output
        What the head sees: signed ``"distance"`` from the concepts' hyperplanes (the paper), or
        the SVMs' ``"decision"`` values (the released code).
    max_depth, min_samples_leaf
        Of a tree.
    C, l1_ratio
        Of a linear head: the inverse of its penalty, and how much of that is l1.
    random_state
        Fixes all chance.

    Attributes
    ----------
    classes_
        The labels, sorted.
    bank_, head_
        The directions, and the fitted `TreeHead` or `LinearHead`.
    """

    def __init__(
        self,
        bank: Any = None,
        head: HeadKind = "tree",
        output: Output = "distance",
        max_depth: int | None = 10,
        min_samples_leaf: int = 1,
        C: float = 0.1,
        l1_ratio: float = 0.0,
        random_state: Chance = None,
    ) -> None:
        self.bank = bank
        self.head = head
        self.output = output
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.C = C
        self.l1_ratio = l1_ratio
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PCBMClassifier:
        """Fit the head; the bank stays as it is."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_ = classes_of(y)
        seed = _seed(self.random_state)
        self.bank_ = _fitted_bank(self.bank, X, seed)
        self.head_ = _fit_head(self, project(self.bank_, X, self.output), y, seed)
        return self

    def measure(self, X: Any) -> Array:
        """What the head sees of each clip, [N, K]: one column a concept."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return project(self.bank_, X, self.output)

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        measured = self.measure(X)
        return self.head_.probabilities(measured)

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class PCBMHybrid(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear bottleneck, then a linear rule on the features for what it leaves over.

    The bottleneck is fitted first and then left alone. A residual that does as well without the
    concepts has not been explained by them: so ``accuracy_`` always says how it does then.

    Parameters
    ----------
    bank, output, C, l1_ratio, random_state
        Of the bottleneck, as in `PCBMClassifier` with a logistic head.
    residual_C
        The inverse of the penalty on the residual's weights.

    Attributes
    ----------
    classes_
        The labels, sorted.
    bank_, head_
        The bottleneck's directions and its `LinearHead`.
    residual_
        The `LinearHead` on the features.
    mean_logits_
        What the bottleneck says of the training clips on average; in its place when ablated.
    accuracy_
        ``full``, ``concepts_ablated``, ``residual_ablated``, each on ``clips`` clips ``on``
        validation, or on training where there is no validation.
    """

    def __init__(
        self,
        bank: Any = None,
        output: Output = "distance",
        C: float = 0.1,
        l1_ratio: float = 0.0,
        residual_C: float = 1.0,
        random_state: Chance = None,
    ) -> None:
        self.bank = bank
        self.output = output
        self.C = C
        self.l1_ratio = l1_ratio
        self.residual_C = residual_C
        self.random_state = random_state

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> PCBMHybrid:
        """Fit the bottleneck, then the residual; validation data only measure."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_ = classes_of(y)
        codes, seed = codes_of(y, self.classes_), _seed(self.random_state)
        self.bank_ = _fitted_bank(self.bank, X, seed)
        measured = project(self.bank_, X, self.output)
        self.head_ = fit_logistic(measured, codes, C=self.C, l1_ratio=self.l1_ratio, seed=seed)
        base = self.head_.logits(measured)
        self.mean_logits_ = base.mean(axis=0)
        self.residual_ = _fit_residual(X, codes, base, self.residual_C)
        if X_val is not None:
            X, y = validate_data(self, X_val, y_val, dtype=np.float64, reset=False)
        ways = {
            "full": self._logits(X),
            "concepts_ablated": self._logits(X, without="concepts"),
            "residual_ablated": self._logits(X, without="residual"),
        }
        self.accuracy_: dict[str, Any] = {
            "on": "training" if X_val is None else "validation",
            "clips": len(y),
            **{
                name: float((self.classes_[logits.argmax(axis=1)] == y).mean())
                for name, logits in ways.items()
            },
        }
        return self

    def predict_proba(self, X: Any, *, without: str | None = None) -> Array:
        """The probability of each class, [N, classes].

        Parameters
        ----------
        X
            Features [N, D].
        without
            ``"concepts"`` or ``"residual"``: what is left of the model when that is ablated.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return softmax(self._logits(X, without=without))

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _logits(self, X: Array, *, without: str | None = None) -> Array:
        if without == "concepts":
            base = np.broadcast_to(self.mean_logits_, (len(X), len(self.classes_)))
        else:
            base = self.head_.logits(project(self.bank_, X, self.output))
        return base if without == "residual" else base + self.residual_.logits(X)


class OracleBottleneck(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A head on the concepts that people marked: what a bottleneck with perfect concepts scores.

    Parameters
    ----------
    head, max_depth, min_samples_leaf, C, l1_ratio, random_state
        As in `PCBMClassifier`.

    Attributes
    ----------
    classes_, head_
        As in `PCBMClassifier`.
    """

    def __init__(
        self,
        head: HeadKind = "tree",
        max_depth: int | None = 10,
        min_samples_leaf: int = 1,
        C: float = 0.1,
        l1_ratio: float = 0.0,
        random_state: Chance = None,
    ) -> None:
        self.head = head
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.C = C
        self.l1_ratio = l1_ratio
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> OracleBottleneck:
        """Fit the head on concepts X [N, K]."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_ = classes_of(y)
        self.head_ = _fit_head(self, X, y, _seed(self.random_state))
        return self

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.head_.probabilities(X)

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


def _fit_head(
    model: PCBMClassifier | OracleBottleneck,
    Z: Array,
    y: Array,
    seed: int,
) -> Head:
    """The head that a model's parameters ask for, on concepts Z [N, K]."""
    return fit_head(
        model.head,
        Z,
        codes_of(y, model.classes_),
        max_depth=model.max_depth,
        min_samples_leaf=model.min_samples_leaf,
        C=model.C,
        l1_ratio=model.l1_ratio,
        seed=seed,
    )


def _seed(random_state: Chance) -> int:
    """A number as it is, so that scikit-learn's own estimators given it do the same."""
    if isinstance(random_state, int):
        return random_state
    return int(check_random_state(random_state).randint(2**31 - 1))


def _fitted_bank(bank: Any, X: Array, seed: int) -> Any:
    """The bank that was given, once it is known to fit; else random directions."""
    if bank is None:
        return RandomDirections(random_state=seed).fit(X)
    try:
        check_is_fitted(bank)
    except NotFittedError:
        raise ExperimentError(
            f"the bottleneck's {type(bank).__name__} is not fitted; call its fit first"
        ) from None
    if bank.cavs_.shape[1] != X.shape[1]:
        raise ExperimentError(
            f"the bank's directions have {bank.cavs_.shape[1]} numbers, the clips' features "
            f"{X.shape[1]}; it was fitted on other features"
        )
    return bank


def _fit_residual(X: Array, codes: Array, base: Array, C: float) -> LinearHead:
    """Multinomial logistic regression on top of fixed logits, penalised as scikit-learn does."""
    from scipy.optimize import minimize

    shape = (base.shape[1], X.shape[1])
    truth = np.eye(len(base[0]))[codes]

    def loss(flat: Array) -> tuple[float, Array]:
        coef, intercept = flat[: -shape[0]].reshape(shape), flat[-shape[0] :]
        logits = base + X @ coef.T + intercept
        peak = logits.max(axis=1, keepdims=True)
        log_total = peak[:, 0] + np.log(np.exp(logits - peak).sum(axis=1))
        wrong = C * (softmax(logits) - truth)
        value = C * float((log_total - (logits * truth).sum(axis=1)).sum())
        gradient = np.concatenate([(wrong.T @ X + coef).ravel(), wrong.sum(axis=0)])
        return value + float((coef**2).sum()) / 2, gradient

    start = np.zeros(shape[0] * (shape[1] + 1))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000}).x
    return LinearHead(found[: -shape[0]].reshape(shape), found[-shape[0] :])
