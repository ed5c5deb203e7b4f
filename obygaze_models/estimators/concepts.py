"""Concept activation vectors: for each concept a direction in feature space."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.directions import Output, project
from obygaze_models.estimators.svm import LinearSVMFit, SharedGram, choose_c, fit_linear_svm
from obygaze_models.metrics import auroc, score

__all__ = ["DEFAULT_CS", "ConceptBank", "DegenerateConcept", "fit_direction"]

Array = NDArray[Any]
DEFAULT_CS = (0.01, 0.05, 0.1, 0.5, 1.0, 10.0)


class DegenerateConcept(UserWarning):
    """A concept's direction is not what it seems."""


class ConceptBank(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """One direction a concept, from clips that are marked with any number of concepts.

    scikit-learn's common checks do not apply: the targets are a matrix with entries of -1
    (takes no part), and a bank cannot be fitted without them.

    Parameters
    ----------
    kind
        ``"svm"``: normals of linear SVMs, the paper's. ``"mean-difference"``: from the mean of
        the negatives to that of the positives, in closed form; the hyperplane lies midway.
    Cs
        For SVMs, from which validation chooses by AUC, a concept at a time; or the C of each
        concept by its name.
    balance
        What is done about rare concepts. ``"weights"``: their clips count more (the released
        code). ``"subsample"``: as many negatives are drawn as there are positives (the paper).
    output
        What `transform` gives: signed ``"distance"``, or the SVM's ``"decision"`` values.
    random_state
        Fixes what is drawn.

    Attributes
    ----------
    names_
        The concepts that could be learnt; of all below a row each.
    columns_
        The targets' columns that they are.
    cavs_, intercepts_
        Unit normals [K, D], and offsets [K]: signed distance = ``X @ cav + intercept``.
    scales_
        Lengths of the normals before: decision value = distance * scale.
    C_
        The chosen C of each concept; None for a mean difference.
    quality_
        For each concept: ``on`` (validation or training), ``auc``, ``f1``, ``balanced_accuracy``,
        counts of positives and negatives, and of an SVM ``C``, ``aucs`` (of each C that had a
        say; see `choose_c`),
        ``bounded`` (see `LinearSVMFit`), ``margin``, ``solver`` and ``converged``.
    skipped_
        Concepts that could not be learnt, each with the reason.
    warnings_
        What a reader of these directions has to know.
    """

    def __init__(
        self,
        kind: Literal["svm", "mean-difference"] = "svm",
        Cs: Sequence[float] | Mapping[str, float] = DEFAULT_CS,
        balance: Literal["weights", "subsample"] = "weights",
        output: Output = "distance",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kind = kind
        self.Cs = Cs
        self.balance = balance
        self.output = output
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        Y: Any,
        X_val: Any = None,
        Y_val: Any = None,
        names: Sequence[str] | None = None,
    ) -> ConceptBank:
        """Learn a direction for each column of Y.

        Parameters
        ----------
        X, Y
            Features [N, D], and for each clip and concept 1, 0, or -1 (takes no part): [N, K].
        X_val, Y_val
            The same, for clips that choose C and on which quality is measured.
        names
            The concepts' names.
        """
        X, Y = _checked(self, X, Y, names, reset=True)
        if (X_val is None) != (Y_val is None):
            raise ExperimentError("validation takes both features and targets (X_val, Y_val)")
        if X_val is not None:
            X_val, Y_val = _checked(self, X_val, Y_val, names, reset=False)
        elif self.kind == "svm" and len(self.Cs) > 1 and not isinstance(self.Cs, Mapping):
            raise ExperimentError("to choose among several C takes validation data; or give one C")
        names = tuple(names or [f"concept {one + 1}" for one in range(Y.shape[1])])
        chance = check_random_state(self.random_state)
        gram = SharedGram(X)
        self.names_: list[str] = []
        self.quality_: list[dict[str, Any]] = []
        self.C_: list[float | None] = []
        self.skipped_: dict[str, str] = {}
        self.warnings_: list[str] = []
        fits, kept = [], []
        for column, name in enumerate(names):
            targets = Y[:, column]
            rows = np.flatnonzero(targets >= 0)
            positives = int(targets[rows].sum())
            if not 0 < positives < len(rows):
                missing = "positive" if positives == 0 else "negative"
                self.skipped_[name] = f"no {missing} among {counted(len(rows), 'training clip')}"
                continue
            if self.balance == "subsample":
                rows = _balanced(rows, targets, chance)
            held_out = None
            if Y_val is not None:
                held = np.flatnonzero(Y_val[:, column] >= 0)
                if 0 < Y_val[held, column].sum() < len(held):
                    held_out = X_val[held], Y_val[held, column]
            fit, aucs = self._direction(name, gram, rows, targets[rows], held_out)
            fits.append(fit)
            kept.append(column)
            self.names_.append(name)
            self.C_.append(fit.C if self.kind == "svm" else None)
            self.quality_.append(_quality(fit, gram.features[rows], targets[rows], held_out))
            if self.kind == "svm":
                self.quality_[-1] |= {
                    "C": fit.C,
                    "aucs": aucs,
                    "bounded": fit.bounded,
                    "margin": fit.margin,
                    "solver": fit.solver,
                    "converged": fit.converged,
                }
        if not fits:
            said = "; ".join(f"{name} has {why}" for name, why in self.skipped_.items())
            raise ExperimentError(f"no concept can be learnt: {said}")
        self.columns_ = np.array(kept)
        self.scales_ = np.array([np.linalg.norm(fit.coef) for fit in fits])
        self.cavs_ = np.stack([fit.coef for fit in fits]) / self.scales_[:, None]
        self.intercepts_ = np.array([fit.intercept for fit in fits]) / self.scales_
        if self.warnings_:
            warnings.warn("; ".join(self.warnings_), DegenerateConcept, stacklevel=2)
        return self

    def transform(self, X: Any) -> Array:
        """What each clip measures along each concept, [N, K]; see ``output``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return project(self, X, self.output)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the concepts that `transform` gives, in its order."""
        check_is_fitted(self)
        return np.array(self.names_, dtype=object)

    def cosines(self) -> Array:
        """How alike the directions are, [K, K]: 1 the same, 0 nothing in common."""
        check_is_fitted(self)
        return np.asarray(self.cavs_ @ self.cavs_.T)

    def _choices(self, name: str) -> list[float]:
        """The C that a concept may have, ascending."""
        if not isinstance(self.Cs, Mapping):
            return sorted(self.Cs)
        if name not in self.Cs:
            raise ExperimentError(
                f"no C is given for the concept {name!r}; there are {', '.join(self.Cs)}"
            )
        return [self.Cs[name]]

    def _direction(
        self,
        name: str,
        gram: SharedGram,
        rows: Array,
        y: Array,
        held_out: tuple[Array, Array] | None,
    ) -> tuple[LinearSVMFit, dict[str, float]]:
        """The direction of one concept; of an SVM also the AUC of each C. Keeps warnings."""
        Cs, aucs = self._choices(name), {}
        if self.kind == "svm" and len(Cs) > 1 and held_out is not None:
            weight = "balanced" if self.balance == "weights" else None
            fit, by_c = choose_c(gram, rows, y, Cs, weight, *held_out)
            aucs = {str(C): auc for C, auc in by_c.items()}
            if fit.converged and len(by_c) < len(Cs):
                self.warnings_.append(
                    f"{name}: {gram.solver} was stopped before its end at C = {Cs[len(by_c)]:g}, "
                    "so C is chosen among smaller ones"
                )
        else:
            middle = Cs[(len(Cs) - 1) // 2]
            fit = fit_direction(gram, rows, y, self.kind, self.balance, middle)
            if self.kind == "svm" and len(Cs) > 1:
                self.warnings_.append(
                    f"{name}: the validation clips are all of one kind, so C cannot be chosen "
                    f"by them and is {middle:g}, the middle one"
                )
        if fit.degenerate:
            self.warnings_.append(
                f"{name}: at C = {fit.C:g} every dual is at its bound, so the SVM is degenerate: "
                "a difference of means whose offset is arbitrary; give larger C, or larger features"
            )
        if not fit.converged:
            self.warnings_.append(
                f"{name}: {fit.solver} was stopped before its end at C = {fit.C:g}, so this is "
                "not quite the SVM; give smaller C, or smaller features"
            )
        return fit, aucs


def fit_direction(
    gram: SharedGram,
    rows: Array,
    y: Array,
    kind: str,
    balance: str,
    C: float | None,
) -> LinearSVMFit:
    """One direction on some rows; ``C`` is not looked at for a mean difference."""
    if kind == "svm":
        assert C is not None
        return fit_linear_svm(gram, rows, y, C, "balanced" if balance == "weights" else None)
    positive, negative = (gram.features[rows[y == code]].mean(axis=0) for code in (1, 0))
    coef = positive - negative
    norm = float(np.linalg.norm(coef))
    if norm == 0:
        raise ExperimentError("a concept's positives and negatives have the very same mean")
    offset = -float(coef @ (positive + negative) / 2)
    return LinearSVMFit(coef, offset, 0.0, None, 1 / norm, "closed form", True)


def _checked(
    bank: ConceptBank,
    X: Any,
    Y: Any,
    names: Sequence[str] | None,
    *,
    reset: bool,
) -> tuple[Array, Array]:
    X = validate_data(bank, X, dtype=np.float64, reset=reset)
    Y = check_array(Y, dtype=np.int8)
    if len(Y) != len(X) or (names is not None and len(names) != Y.shape[1]):
        raise ExperimentError(
            f"targets of shape {Y.shape} do not fit {counted(len(X), 'clip')}"
            + ("" if names is None else f" and {counted(len(names), 'concept name')}")
        )
    if not np.isin(Y, (-1, 0, 1)).all():
        raise ExperimentError("a concept's target is 1, 0, or -1 where a clip takes no part")
    return X, Y


def _balanced(rows: Array, targets: Array, chance: np.random.RandomState) -> Array:
    """All rows of the rarer kind, and as many of the other."""
    kinds = [rows[targets[rows] == code] for code in (0, 1)]
    fewer = min(map(len, kinds))
    return np.sort(np.concatenate([chance.choice(of, fewer, replace=False) for of in kinds]))


def _quality(
    fit: LinearSVMFit,
    X: Array,
    y: Array,
    held_out: tuple[Array, Array] | None,
) -> dict[str, Any]:
    on, truth = held_out or (X, y)
    decisions = fit.decide(on)
    scores = score(truth, (decisions > 0).astype(float))
    return {
        "on": "training" if held_out is None else "validation",
        "auc": auroc(truth, decisions),
        "f1": scores["f1"],
        "balanced_accuracy": scores["balanced_accuracy"],
        "positives": int(truth.sum()),
        "negatives": int(len(truth) - truth.sum()),
        "training_positives": int(y.sum()),
        "training_negatives": int(len(y) - y.sum()),
    }
