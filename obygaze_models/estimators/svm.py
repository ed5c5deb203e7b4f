"""A linear SVM on frozen features, with C chosen on validation clips or by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import (
    LinearClassifier,
    as_logits,
    check_both,
    encode,
    find_classes,
    fit_temperature,
)
from obygaze_models.estimators.svm_solver import (
    DEFAULT_CS,
    FOLDS,
    as_cs,
    choose_svm,
    inner_products,
    loss_warnings,
)


class NoChoice(UserWarning):
    """A warning that C could not be chosen, so the middle value is used."""


@dataclass(eq=False, repr=False)
class LinearSVMProbe(LinearClassifier):
    """A linear SVM; for more than two classes, one SVM per class against all other classes.

    Individual weights of clips (``sample_weight``) are not supported.

    Parameters
    ----------
    C
        The cost of a clip on the wrong side of the hyperplane; or several costs, of which the one
        with the best AUC on the validation clips (or else in cross-validation) is chosen for each
        hyperplane.
    class_weight
        ``"balanced"`` makes the clips of the rarer side cost more. None makes all clips cost the
        same. A mapping gives the weight of each class's clips.
    cv
        The maximum number of folds on which C is chosen.

    Attributes
    ----------
    classes_
        The labels, sorted.
    coef_, intercept_
        The hyperplanes: one for two classes, else one for each class.
    C_, bounded_
        For each hyperplane, the C, and the share of training clips whose dual is at its bound; see
        `obygaze_models.estimators.svm_solver.LinearSVMFit`.
    temperature_
        The divisor of the decision values before the softmax (for two classes: sigmoid) that gives
        the probabilities. It minimises log loss on the validation clips, on the clips held out in
        cross-validation, or else on the training clips, where the probabilities are overconfident.
        No offset is added, so the probability on the hyperplane of two classes is 1/2.
    facts_
        A dict of ``C``, ``bounded`` and ``converged``.
    warnings_
        A `RunWarning` if there are so many clips that the loss is the squared hinge.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "cv": [FOLDS],
    }

    C: float | Sequence[float] = DEFAULT_CS
    _: KW_ONLY
    class_weight: str | Mapping[Any, float] | None = "balanced"
    cv: int = 5

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        X_val: Any = None,
        y_val: Any = None,
        groups: Any = None,
    ) -> LinearSVMProbe:
        """Fit the hyperplanes. C and the temperature are chosen on validation clips, if passed.

        Parameters
        ----------
        X, y
            Features [N, D] and one label per row.
        X_val, y_val
            The same for the validation clips.
        groups
            The film of each clip, so that each film stays in a single fold of cross-validation.
        """
        self._validate_params()
        check_both(X_val, y_val)
        Cs = as_cs(self.C)
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, codes = find_classes(y)
        if X_val is not None:
            X_val, y_val = validate_data(self, X_val, y_val, dtype=np.float64, reset=False)
            val_codes = encode(y_val, self.classes_)
        self.warnings_ = loss_warnings(len(X))
        products = inner_products(X)
        weight: Any = self.class_weight
        if isinstance(weight, Mapping):
            weight = compute_sample_weight(dict(weight), y)
        chosen = []
        first = 1 if len(self.classes_) == 2 else 0
        for code in range(first, len(self.classes_)):
            validation = None if X_val is None else (X_val, val_codes == code)
            choice = choose_svm(
                X,
                codes == code,
                Cs,
                class_weight=weight,
                products=products,
                validation=validation,
                cv=self.cv,
                groups=groups,
            )
            if choice.by == "default":
                self._take_default(code, choice.fit.C, X_val)
            chosen.append(choice)
        fits = [choice.fit for choice in chosen]
        self.coef_ = np.stack([fit.coef for fit in fits])
        self.intercept_ = np.array([fit.intercept for fit in fits])
        self.C_ = [fit.C for fit in fits]
        self.bounded_ = [fit.bounded for fit in fits]
        self.facts_ = {
            "C": self.C_,
            "bounded": self.bounded_,
            "converged": [fit.converged for fit in fits],
        }
        if X_val is not None:
            self.temperature_ = fit_temperature(self._logits(X_val), val_codes)
            return self
        logits = self._logits(X)
        held_out = [choice.held_out for choice in chosen if choice.held_out is not None]
        if len(held_out) == len(chosen) and np.isfinite(held_out).all():
            logits = as_logits(np.stack(held_out, axis=1))
        self.temperature_ = fit_temperature(logits, codes)
        return self

    def _take_default(self, code: int, C: float, X_val: Any) -> None:
        """Warn that C could not be chosen; raise if there are validation clips."""
        label = self.classes_.tolist()[code]  # a Python value, because NumPy prints types
        if X_val is not None:
            raise ExperimentError(
                f"all or none of the {len(X_val)} validation clips are of class {label!r}, so C "
                "cannot be chosen. Pass a single C"
            )
        warnings.warn(
            f"too few clips or films to choose C for class {label!r} by cross-validation, so "
            f"C = {C:g} is used",
            NoChoice,
            stacklevel=3,
        )
