"""A linear SVM on frozen features, its C chosen on validation clips or by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import (
    as_logits,
    check_both,
    encode,
    find_classes,
    fit_temperature,
    softmax,
)
from obygaze_models.estimators.svm_solver import GRAM_ROWS, LinearSVM, LinearSVMFit
from obygaze_models.scoring.metrics import auroc

Array = NDArray[Any]
DEFAULT_CS = (0.01, 0.05, 0.1, 0.5, 1.0, 10.0)


class NoChoice(UserWarning):
    """There are too few clips to choose C by, so the middle one is taken."""


@dataclass(frozen=True, eq=False)
class ChosenSVM:
    """The SVM at the chosen C.

    Parameters
    ----------
    fit
        The hyperplane.
    aucs
        The AUC of each C on the clips that chose; empty where there was no choice.
    held_out
        The decision values by which cross-validation chose, [N] for the training clips; None
        where validation clips chose, or nothing.
    by
        ``validation``, ``cross-validation``, ``given`` or ``default``: too few clips to choose.
    """

    fit: LinearSVMFit
    aucs: dict[float, float]
    held_out: Array | None
    by: str


def choose_svm(
    X: Array,
    y: Array,
    Cs: Sequence[float],
    class_weight: Any,
    *,
    validation: tuple[Array, Array] | None = None,
    cv: Any = 5,
    groups: Array | None = None,
    products: Array | None = None,
) -> ChosenSVM:
    """Fit at the C that ranks clips best that were not trained on.

    Of equals a fit that is not degenerate is taken, and then the smallest C. Signs do not count:
    where C is too small they are all the same, and right as often as one class is common.

    Parameters
    ----------
    X, y
        Features [N, D], float64, and whether each clip is positive.
    Cs
        One C, or several to choose from.
    class_weight
        ``"balanced"`` or None; or an array, the weight of each clip.
    validation
        Features and labels of clips that choose. Without them folds of X choose.
    cv, groups
        The number of these folds, a splitter, or rows (`as_cv`); and the group of each clip,
        which stays in one fold.
    products
        ``X @ X.T``, where it is already there.
    """
    problem = LinearSVM(X, y, class_weight, products=products)
    if len(Cs) == 1:
        return ChosenSVM(problem.fit(Cs[0]), {}, None, "given")
    ascending = sorted(Cs)
    if validation is not None:
        if not 0 < validation[1].sum() < len(validation[1]):
            return ChosenSVM(problem.fit(_middle(Cs)), {}, None, "default")
        fits = [problem.fit(C) for C in ascending]
        aucs = [_auc(validation[1], fit.decide(validation[0])) for fit in fits]
        best = _best(aucs, [fit.degenerate for fit in fits])
        return ChosenSVM(fits[best], dict(zip(ascending, aucs, strict=True)), None, "validation")
    folds = split_folds(y, cv, groups)
    if folds is None:
        return ChosenSVM(problem.fit(_middle(Cs)), {}, None, "default")
    if products is None and len(X) <= GRAM_ROWS:
        products = X @ X.T
    values = np.full((len(ascending), len(X)), np.nan)
    scores, degenerate = np.zeros((len(folds), len(ascending))), np.zeros(len(ascending), bool)
    for fold, (train, test) in enumerate(folds):
        part = None if products is None else products[np.ix_(train, train)]
        weight = class_weight[train] if isinstance(class_weight, np.ndarray) else class_weight
        inner = LinearSVM(X[train], y[train], weight, products=part)
        for index, C in enumerate(ascending):
            fit = inner.fit(C)
            values[index, test] = fit.decide(X[test])
            scores[fold, index] = _auc(y[test], values[index, test])
            degenerate[index] |= fit.degenerate
    means = scores.mean(axis=0).tolist()
    best = _best(means, degenerate.tolist())
    aucs_by_c = dict(zip(ascending, means, strict=True))
    return ChosenSVM(problem.fit(ascending[best]), aucs_by_c, values[best], "cross-validation")


def split_folds(y: Array, cv: Any, groups: Array | None) -> list[tuple[Array, Array]] | None:
    """Training and test rows of each fold; None where there are too few clips for two folds."""
    if not isinstance(cv, Integral):
        folds = list(check_cv(cv).split(np.zeros((len(y), 1)), y, groups))
    else:
        count = min(int(cv), int(np.bincount(y.astype(np.int64), minlength=2).min()))
        if groups is not None:
            count = min(count, len(np.unique(groups)))
        if count < 2:
            return None
        splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
        folds = list(splitter(count).split(np.zeros((len(y), 1)), y, groups))
    usable = [fold for fold in folds if all(0 < y[part].sum() < len(part) for part in fold)]
    return usable or None


def as_cv(cv: Any) -> Any:
    """A parameter `cv` as a number of folds, a splitter, or a list of each fold's rows."""
    if cv is None:
        return 5
    return cv if isinstance(cv, Integral) or hasattr(cv, "split") else list(cv)


def as_cs(C: float | Sequence[float]) -> list[float]:
    """The values of C that a parameter gives, one or several."""
    Cs: list[float] = np.atleast_1d(np.asarray(C, dtype=np.float64)).tolist()
    if not Cs or not all(np.isfinite(value) and value > 0 for value in Cs):
        raise ExperimentError(f"C is {C!r}; give a number above 0, or several to choose from")
    return Cs


def _auc(y: Array, values: Array) -> float:
    # scikit-learn's checks take as long as an SVM of a few hundred clips.
    return auroc(y, values) or 0.0


def _middle(Cs: Sequence[float]) -> float:
    return Cs[(len(Cs) - 1) // 2]


def _best(aucs: Sequence[float], degenerate: Sequence[bool]) -> int:
    # Rounded, so that equal rankings are equal numbers.
    return max(
        range(len(aucs)), key=lambda index: (round(aucs[index], 12), not degenerate[index], -index)
    )


class LinearSVMProbe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear SVM; for more than two classes, one class against the rest.

    Clips have no weights of their own: `fit` takes no ``sample_weight``.

    Parameters
    ----------
    C
        The cost of a clip on the wrong side; or several, of which the AUC chooses one for each
        hyperplane: on the validation clips that `fit` is given, or else by cross-validation.
    class_weight
        ``"balanced"``: the clips of the rarer side cost more. None: all cost the same. Or the
        weight of each class's clips.
    cv
        The number of folds that choose C (None: 5), a splitter, or the training and test rows of
        each fold.

    Attributes
    ----------
    classes_
        The labels, sorted.
    coef_, intercept_
        The hyperplanes: one for two classes, else one for each class.
    C_, duality_gap_, bounded_
        For each hyperplane the C, the certificate, and the share of training clips whose dual is
        at its bound; see `obygaze_models.estimators.svm_solver.LinearSVMFit`.
    temperature_
        Probabilities are the softmax (for two classes: the sigmoid) of decision values divided
        by it. It is chosen by log loss on the clips that chose C, or else on the training
        clips, where it is too confident. There is no offset: 1/2 stays on the hyperplane.
    facts_
        ``C``, ``bounded``, ``solver``, ``duality_gap``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "cv": ["cv_object"],
    }

    def __init__(
        self,
        C: float | Sequence[float] = DEFAULT_CS,
        *,
        class_weight: str | Mapping[Any, float] | None = "balanced",
        cv: Any = 5,
    ) -> None:
        self.C = C
        self.class_weight = class_weight
        self.cv = cv

    def fit(
        self, X: Any, y: Any, *, X_val: Any = None, y_val: Any = None, groups: Any = None
    ) -> LinearSVMProbe:
        """Fit; validation clips choose C and the temperature.

        Parameters
        ----------
        X, y
            Features [N, D] and one label a row.
        X_val, y_val
            The same of the clips that choose.
        groups
            The film of each clip: without validation clips, a film stays in one fold.
        """
        self._validate_params()
        check_both(X_val, y_val)
        Cs, cv = as_cs(self.C), as_cv(self.cv)
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_ = find_classes(y)
        codes = encode(y, self.classes_)
        if X_val is not None:
            X_val, y_val = validate_data(self, X_val, y_val, dtype=np.float64, reset=False)
            val_codes = encode(y_val, self.classes_)
        products = X @ X.T if len(X) <= GRAM_ROWS else None
        weight: Any = self.class_weight
        if isinstance(weight, Mapping):
            weight = compute_class_weight(weight, classes=self.classes_, y=y)[codes]
        chosen = []
        for code in [1] if len(self.classes_) == 2 else range(len(self.classes_)):
            validation = None if X_val is None else (X_val, val_codes == code)
            choice = choose_svm(
                X, codes == code, Cs, weight,
                validation=validation, cv=cv, groups=groups, products=products,
            )  # fmt: skip
            if choice.by == "default":
                if X_val is not None:
                    raise ExperimentError(
                        f"all {len(X_val)} validation labels are on one side of class "
                        f"{self.classes_[code]!r}, so C cannot be chosen by them; give one C"
                    )
                warnings.warn(
                    f"too few clips of class {self.classes_[code]!r} to choose C by "
                    f"cross-validation; it is {choice.fit.C:g}",
                    NoChoice,
                    stacklevel=2,
                )
            chosen.append(choice)
        self._keep([choice.fit for choice in chosen])
        held_out = [choice.held_out for choice in chosen if choice.held_out is not None]
        if X_val is not None:
            self.temperature_ = fit_temperature(self._logits(X_val), val_codes)
        elif len(held_out) == len(chosen) and np.isfinite(held_out).all():
            self.temperature_ = fit_temperature(as_logits(np.stack(held_out, axis=1)), codes)
        else:
            self.temperature_ = fit_temperature(self._logits(X), codes)
        return self

    def _keep(self, fits: list[LinearSVMFit]) -> None:
        self.coef_ = np.stack([fit.coef for fit in fits])
        self.intercept_ = np.array([fit.intercept for fit in fits])
        self.C_ = [fit.C for fit in fits]
        self.bounded_ = [fit.bounded for fit in fits]
        self.duality_gap_ = [fit.duality_gap for fit in fits]
        self.facts_ = {
            "C": self.C_,
            "bounded": self.bounded_,
            "solver": fits[0].solver,
            "converged": [True] * len(fits),
            "duality_gap": self.duality_gap_,
        }

    def decision_function(self, X: Any) -> Array:
        """Decision values: [N] for two classes, else [N, classes]."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        decisions = X @ self.coef_.T + self.intercept_
        return np.asarray(decisions[:, 0] if len(self.classes_) == 2 else decisions)

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return softmax(self._logits(X) / self.temperature_)

    def predict(self, X: Any) -> Array:
        """The class on whose side each row is."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.classes_[self._logits(X).argmax(axis=1)])

    def _logits(self, X: Array) -> Array:
        return as_logits(X @ self.coef_.T + self.intercept_)
