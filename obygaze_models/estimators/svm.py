"""Linear support vector machines: many fits on one Gram matrix.

To choose C for many concepts over many folds takes hundreds of fits on the same clips. The
clips' inner products are computed once, in float64, and each fit picks its own out of them:
the same solver and, but for rounding, the same numbers as ``SVC(kernel="linear")``. Above
`GRAM_LIMIT` rows the matrix would not fit a laptop; there liblinear solves the hinge loss's
dual, which also shrinks the intercept and so is a slightly different model.

Where the classes cannot be told apart and C is large beside the features' squared length, the
solver takes millions of steps for a plane that means nothing. `fit_linear_svm` stops it after
`STEPS` a clip and says so; `choose_c` climbs no further. C is never rescaled.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.calibration import as_logits, fit_temperature, softmax
from obygaze_models.estimators.classes import classes_of, codes_of
from obygaze_models.metrics import auroc

__all__ = [
    "GRAM_LIMIT",
    "STEPS",
    "LinearSVMClassifier",
    "LinearSVMFit",
    "SharedGram",
    "choose_c",
    "fit_linear_svm",
]

Array = NDArray[Any]

#: Rows above which liblinear stands in: 8,000 rows are a matrix of 512 MB.
GRAM_LIMIT = 8_000
#: The most steps of libsvm for each training clip. Fits on features with any signal take 1 to 10.
STEPS = 50


class SharedGram:
    """Features of N clips and, made when first asked for, their inner products.

    Parameters
    ----------
    X
        Features [N, D].
    limit
        Rows above which there is no matrix.
    """

    def __init__(self, X: Array, *, limit: int = GRAM_LIMIT) -> None:
        self.features = np.ascontiguousarray(X, dtype=np.float64)
        self.solver = "libsvm" if len(X) <= limit else "liblinear"
        self._matrix: Array | None = None
        self._last: tuple[bytes, Array] | None = None

    def among(self, rows: Array) -> Array:
        """The inner products of some rows with each other; those asked for last are kept."""
        if self._matrix is None:
            self._matrix = self.features @ self.features.T
        key = rows.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._matrix[np.ix_(rows, rows)]
        return self._last[1]


@dataclass(frozen=True, eq=False)
class LinearSVMFit:
    """A hyperplane: ``X @ coef + intercept`` is above 0 on the positives' side.

    Parameters
    ----------
    coef, intercept
        Its normal [D] and its offset.
    C
        What a clip on the wrong side costs.
    bounded
        The share of the training clips whose dual is at its bound; None with liblinear, which
        does not tell. At 1 the fit is degenerate: a difference of means with no margin to speak
        of, whose offset is arbitrary.
    margin
        Half the width of the empty street, 1 / |coef|.
    solver
        ``libsvm`` or ``liblinear``.
    converged
        Whether the solver came to its end, so that this is the SVM at C, or was stopped before.
    """

    coef: Array
    intercept: float
    C: float
    bounded: float | None
    margin: float
    solver: str
    converged: bool

    @property
    def degenerate(self) -> bool:
        """Whether every dual is at its bound."""
        return self.bounded is not None and self.bounded > 1 - 1e-9

    def decide(self, X: Array) -> Array:
        """Decision values [N], in float64."""
        return np.asarray(X, dtype=np.float64) @ self.coef + self.intercept


def fit_linear_svm(
    gram: SharedGram,
    rows: Array,
    y: Array,
    C: float,
    class_weight: str | None = "balanced",
    *,
    products: Array | None = None,
) -> LinearSVMFit:
    """Fit on some rows of a shared matrix.

    Parameters
    ----------
    gram
        The clips.
    rows, y
        Which of them to train on, and whether each is positive.
    C
        What a clip on the wrong side costs.
    class_weight
        ``"balanced"``: the rarer class's clips cost more, by as much as they are rarer.
    products
        ``gram.among(rows)``, where several fits on the same rows share it.
    """
    y = np.asarray(y).astype(np.int64)
    classes_of(y)
    if gram.solver == "libsvm":
        products = gram.among(rows) if products is None else products
        # A few clips cost next to nothing, so that they may take as long as a thousand.
        steps = STEPS * max(len(rows), 1_000)
        model = SVC(C=C, kernel="precomputed", class_weight=class_weight, max_iter=steps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # said by `converged`
            model.fit(products, y)
        support, duals = model.support_, model.dual_coef_[0]
        coef = duals @ gram.features[rows[support]]
        weights = (
            np.ones(2)
            if class_weight is None
            else compute_class_weight(class_weight, classes=np.array([0, 1]), y=y)
        )
        at_bound = np.abs(duals) >= C * weights[y[support]] * (1 - 1e-9)
        bounded = float(at_bound.sum() / len(rows))
        converged = model.fit_status_ == 0
        intercept = float(model.intercept_[0])
    else:
        model = LinearSVC(
            C=C, loss="hinge", dual=True, class_weight=class_weight, random_state=0, max_iter=500
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # said by `converged`
            model.fit(gram.features[rows], y)
        coef, intercept = model.coef_[0], float(model.intercept_[0])
        bounded, converged = None, bool(model.n_iter_ < model.max_iter)
    norm = float(np.linalg.norm(coef))
    if norm == 0:
        raise ExperimentError("an SVM's positives and negatives have the very same features")
    return LinearSVMFit(coef, intercept, float(C), bounded, 1 / norm, gram.solver, converged)


def choose_c(
    gram: SharedGram,
    rows: Array,
    y: Array,
    Cs: Sequence[float],
    class_weight: str | None,
    X_val: Array,
    y_val: Array,
) -> tuple[LinearSVMFit, dict[float, float]]:
    """The fit that ranks the validation clips best, and each C's AUC there.

    C is raised until a fit does not converge; that one and larger ones have no AUC and no
    say, unless it is the smallest, which is then returned. Of equals one that is not degenerate
    is taken, and then the smallest C. Signs have no say: where a C is too small they are all
    the same, and right as often as one class is common.
    """
    products = gram.among(rows) if gram.solver == "libsvm" else None
    fits: list[LinearSVMFit] = []
    for C in sorted(Cs):
        fit = fit_linear_svm(gram, rows, y, C, class_weight, products=products)
        if fit.converged or not fits:
            fits.append(fit)
        if not fit.converged:
            break
    found = [auroc(y_val, fit.decide(X_val)) for fit in fits]
    aucs = [0.5 if area is None else area for area in found]  # of one class nothing is ranked
    best = max(
        range(len(fits)), key=lambda one: (aucs[one], not fits[one].degenerate, -fits[one].C)
    )
    return fits[best], {fit.C: auc for fit, auc in zip(fits, aucs, strict=True)}


class LinearSVMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear SVM; with more than two classes one against the rest.

    Parameters
    ----------
    C
        What a clip on the wrong side costs; or several, of which validation chooses by AUC.
    balanced
        Whether the rarer class's clips cost more, by as much as they are rarer.

    Attributes
    ----------
    classes_
        The labels, sorted.
    coef_, intercept_
        The hyperplanes: one for two classes, else one a class.
    C_
        The C of each hyperplane.
    bounded_
        The share of training clips whose dual is at its bound, for each hyperplane; see
        `LinearSVMFit`.
    converged_
        Whether each hyperplane's solver came to its end; see `LinearSVMFit`.
    temperature_
        Probabilities are the softmax (for two classes: the sigmoid) of decision values divided
        by it, chosen by log-loss on validation, or else on the training data, where it
        makes too sure. An offset is not fitted: a half stays on the hyperplane.
    solver_
        ``libsvm``, or ``liblinear`` above `GRAM_LIMIT` rows.
    """

    def __init__(
        self,
        C: float | Sequence[float] = 1.0,
        balanced: bool = True,
    ) -> None:
        self.C = C
        self.balanced = balanced

    def fit(
        self,
        X: Any,
        y: Any,
        X_val: Any = None,
        y_val: Any = None,
        *,
        gram: SharedGram | None = None,
        rows: Array | None = None,
    ) -> LinearSVMClassifier:
        """Fit; validation data choose C and the temperature.

        Parameters
        ----------
        X, y
            Features [N, D] and one label a row.
        X_val, y_val
            The same, for clips to choose by.
        gram, rows
            The matrix that several fits share, and where in it the rows of `X` are.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_ = classes_of(y)
        codes = codes_of(y, self.classes_)
        if X_val is not None:
            X_val, y_val = validate_data(self, X_val, y_val, dtype=np.float64, reset=False)
            val_codes = codes_of(y_val, self.classes_)
        if gram is None or rows is None:
            gram, rows = SharedGram(X), np.arange(len(X))
        Cs = [self.C] if isinstance(self.C, int | float) else list(self.C)
        if len(Cs) > 1 and X_val is None:
            raise ExperimentError("to choose among several C takes validation data; or give one C")
        class_weight = "balanced" if self.balanced else None
        fits = []
        for code in [1] if len(self.classes_) == 2 else range(len(self.classes_)):
            if len(Cs) == 1:
                fits.append(fit_linear_svm(gram, rows, codes == code, Cs[0], class_weight))
                continue
            is_class = val_codes == code
            if not 0 < is_class.sum() < len(is_class):
                raise ExperimentError(
                    f"all {len(is_class)} validation labels are on one side of class "
                    f"{self.classes_[code]!r}, so that no C can be chosen there; give one C"
                )
            fit, _ = choose_c(gram, rows, codes == code, Cs, class_weight, X_val, is_class)
            fits.append(fit)
        self.coef_ = np.stack([fit.coef for fit in fits])
        self.intercept_ = np.array([fit.intercept for fit in fits])
        self.C_ = [fit.C for fit in fits]
        self.bounded_ = [fit.bounded for fit in fits]
        self.converged_ = [fit.converged for fit in fits]
        self.solver_ = gram.solver
        if not all(self.converged_):
            warnings.warn(
                f"{gram.solver} was stopped before its end at C = {min(self.C_):g}, so this is not "
                "quite the SVM; give a smaller C, or smaller features",
                ConvergenceWarning,
                stacklevel=2,
            )
        chosen_on = (X, codes) if X_val is None else (X_val, val_codes)
        self.temperature_ = fit_temperature(self._logits(chosen_on[0]), chosen_on[1])
        return self

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
        """The class on whose side each row lies."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.classes_[self._logits(X).argmax(axis=1)])

    def _logits(self, X: Array) -> Array:
        return as_logits(X @ self.coef_.T + self.intercept_)
