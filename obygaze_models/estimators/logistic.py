"""Logistic regression with the solvers of the released code."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import Chance, LinearClassifier, find_classes

MAX_ITER = 5_000
_OPTIONS = ("C", "l1_ratio", "class_weight", "random_state")


@dataclass(eq=False, repr=False)
class LogisticProbe(LinearClassifier):
    """A logistic regression by scikit-learn, in float64, with the released code's solvers.

    For two classes and a penalty that is all l2 or all l1, the solver is liblinear, which also
    shrinks the intercept. Otherwise, it is lbfgs (l2) or saga. The parameters are scikit-learn's.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: LogisticRegression._parameter_constraints[name] for name in _OPTIONS
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
        model = LogisticRegression(solver=solver, max_iter=MAX_ITER, **self.get_params())

        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                model.fit(X, y, sample_weight)
            except ConvergenceWarning:
                raise ExperimentError(
                    f"the logistic regression did not converge in {MAX_ITER} steps. "
                    f"Lower C (now {self.C:g}), or scale the features"
                ) from None

        self.coef_ = model.coef_
        self.intercept_ = model.intercept_
        return self
