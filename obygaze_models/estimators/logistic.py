"""Logistic regression with the solvers of the released code."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import validate_data

from obygaze_models.estimators.classes import Chance, LinearClassifier, find_classes

MAX_ITER = 5_000


class NotConverged(ConvergenceWarning):  # type: ignore[misc]
    """A warning that a model stopped before it converged."""


@dataclass(eq=False, repr=False)
class LogisticProbe(LinearClassifier):
    """scikit-learn's logistic regression, with the same solver as the released code.

    If there are two classes and the penalty is all l2 or all l1, the solver is liblinear, which
    also shrinks the intercept. Otherwise, it is lbfgs (l2) or saga. `fit` warns if it does not
    converge.

    Parameters
    ----------
    C
        The inverse of the penalty.
    l1_ratio
        The share of l1 in the penalty; the rest is l2.
    class_weight
        None, ``"balanced"``, or a weight for each class.
    random_state
        The seed of the solver.

    Attributes
    ----------
    classes_
        The labels, sorted.
    coef_, intercept_
        One row for two classes, else one for each class.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "random_state": ["random_state"],
    }

    C: float = 1.0
    _: KW_ONLY
    l1_ratio: float = 0.0
    class_weight: Mapping[Any, float] | str | None = None
    random_state: Chance = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LogisticProbe:
        """Fit on features [N, D], one label per row, and a weight for each row (default: 1)."""
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, _ = find_classes(y)
        solver = "saga" if self.l1_ratio else "lbfgs"
        if len(self.classes_) == 2 and self.l1_ratio in (0, 1):
            solver = "liblinear"
        model = LogisticRegression(
            l1_ratio=self.l1_ratio,
            C=self.C,
            solver=solver,
            class_weight=self.class_weight,
            random_state=self.random_state,
            max_iter=MAX_ITER,
        )
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", ConvergenceWarning)
            model.fit(X, y, sample_weight)
        if any(issubclass(warning.category, ConvergenceWarning) for warning in raised):
            warnings.warn(
                f"the logistic regression did not converge in {MAX_ITER} steps. "
                f"Lower C (now {self.C:g}), or scale the features",
                NotConverged,
                stacklevel=2,
            )
        self.coef_ = model.coef_.astype(np.float64)
        self.intercept_ = model.intercept_.astype(np.float64)
        return self
