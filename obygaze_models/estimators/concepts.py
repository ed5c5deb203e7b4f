"""Concept activation vectors: a direction in feature space for each concept."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, asdict, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _check_feature_names_in,
    check_array,
    check_is_fitted,
    validate_data,
)
from threadpoolctl import threadpool_limits

from obygaze_features.common.package import usable_cores
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError
from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.classes import Chance, check_both
from obygaze_models.estimators.svm_solver import (
    DEFAULT_CS,
    GRAM_ROWS,
    LinearSVM,
    LinearSVMFit,
    as_cs,
    as_cv,
    choose_svm,
)
from obygaze_models.scoring.metrics import Array, roc_area, weighted_scores

Output = Literal["distance", "decision"]
# The number of random directions if no concepts are passed.
RANDOM_DIRECTIONS = 8
# The number of concepts learned in parallel if there are many clips. Each may copy the clips.
CONCEPTS_AT_ONCE = 2

Clips = tuple[Array, Array]
"""The features [N, D] and the targets of clips."""
Learned = tuple[LinearSVMFit, dict[str, Any], list[str]]
"""A concept's hyperplane and its quality, and the reasons why the concept is unreliable."""


class DegenerateConcept(UserWarning):
    """A warning that a concept's direction is unreliable."""


class _Directions(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A base class for transformers from features to distances from hyperplanes."""

    cavs_: Array
    output: Output = "distance"

    def transform(self, X: Any) -> Array:
        """Return the signed distance of each clip from each hyperplane, [N, K].

        A `ConceptBank` returns decision values instead if its ``output`` says so.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return project(self, X, self.output)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the directions in the order of `transform`, such as ``random 1``."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features, generate_names=False)
        numbered = [f"random {number + 1}" for number in range(len(self.cavs_))]
        return np.array(getattr(self, "names_", numbered), dtype=object)


@dataclass(eq=False, repr=False)
class ConceptBank(_Directions):
    """A bank with a direction for each concept, learned by linear SVMs.

    A clip may show any number of concepts.

    Parameters
    ----------
    C
        The cost of a clip on the wrong side of the hyperplane; or several costs, of which the one
        with the best AUC is chosen for each concept; or a mapping from each concept to its cost.
    balance
        The treatment of rare concepts. ``"weights"`` makes their clips cost more, as in the
        released code. ``"subsample"`` draws as many clips of the commoner kind as there are of the
        rarer kind, as in the paper.
    output
        The output of `transform`: the signed ``"distance"`` from the hyperplanes, or the SVMs'
        ``"decision"`` values.
    refit
        If C was chosen on validation clips, fit again on all clips, as the released code does.
    cv
        The folds on which C is chosen if there are no validation clips: their number (None: 5), a
        splitter, or the training and test rows of each fold.
    random_state
        The seed for drawing clips.
    features
        A mapping from concepts to the (start, stop) of the features that they are learned from.
        Their directions are 0 along all other features. By default, concepts are learned from all
        features.

    Attributes
    ----------
    names_, columns_
        The concepts that could be learned, and their columns in the targets.
    cavs_, intercepts_
        Unit normals [K, D] and offsets [K]. The signed distance is ``X @ cav + intercept``.
    scales_
        The lengths of the normals before scaling. The decision value is distance times scale.
    C_
        The C of each concept.
    quality_
        A dict for each concept: ``on`` (the clips that the scores are from: ``validation``,
        ``cross-validation`` or ``training``), ``auc``, ``f1``, ``balanced_accuracy``, counts,
        ``C``, ``aucs`` (by C), ``bounded``, ``margin``, ``solver`` and
        ``duality_gap`` (see `obygaze_models.estimators.svm_solver.LinearSVMFit`).
    skipped_
        A mapping from each concept that could not be learned to the reason.
    warnings_
        The warnings, as `RunWarning`.
    facts_
        A dict of ``concepts`` (quality by name), ``skipped`` and ``warnings``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> C = X[:, :2] > 0
    >>> bank = ConceptBank().fit(X, C, concept_names=["Look", "Body"])
    >>> bank.get_feature_names_out().tolist(), bank.transform(X).shape
    (['Look', 'Body'], (60, 2))
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"concepts": True}

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0, None, closed="neither"), "array-like", Mapping],
        "balance": [StrOptions({"weights", "subsample"})],
        "output": [StrOptions({"distance", "decision"})],
        "refit": ["boolean"],
        "cv": ["cv_object"],
        "random_state": ["random_state"],
        "features": [Mapping, None],
    }

    _: KW_ONLY
    C: float | Sequence[float] | Mapping[str, float] = DEFAULT_CS
    balance: Literal["weights", "subsample"] = "weights"
    output: Output = "distance"
    refit: bool = False
    cv: Any = 5
    random_state: Chance = None
    features: Mapping[str, Sequence[int]] | None = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        concepts: Any = None,
        concept_names: Sequence[str] | None = None,
        X_val: Any = None,
        concepts_val: Any = None,
        groups: Any = None,
        order: Any = None,
        order_val: Any = None,
    ) -> ConceptBank:
        """Learn a direction for each concept.

        Parameters
        ----------
        X
            Features [N, D].
        y
            The concepts, if `concepts` is not passed; else ignored.
        concepts
            1 (shown), 0 (not shown) or -1 (unknown, or not used) for each clip and concept, [N, K].
        concept_names
            The names of the K concepts; by default, the columns of a data frame.
        X_val, concepts_val
            The validation clips, for choosing C and measuring quality; by default, folds of X.
        groups
            The film of each clip, so that each film stays in a single fold.
        order, order_val
            A number for each clip, by which `refit` sorts training and validation clips. Solvers
            stop at a tolerance, so the last digits of their results depend on the order.
        """
        self._validate_params()
        targets = y if concepts is None else concepts
        names = _find_names(targets, concept_names)
        X, targets = self._check(X, targets, names, reset=True)
        check_both(X_val, concepts_val, "concepts_val")
        held = None
        if X_val is not None:
            held = self._check(X_val, concepts_val, names, reset=False)
        names = names or tuple(f"concept {number + 1}" for number in range(targets.shape[1]))
        learned, skipped = self._learn(names, (X, targets), held, groups)
        fits, quality, remarks = zip(*learned.values(), strict=True)
        self.names_ = [names[column] for column in learned]
        self.quality_: list[dict[str, Any]] = list(quality)
        self.C_ = [fit.C for fit in fits]
        self.skipped_ = skipped
        unreliable = [
            RunWarning("concepts-unreliable", name, text)
            for name, texts in zip(self.names_, remarks, strict=True)
            for text in texts
        ]
        left_out = [RunWarning("concepts-left-out", *names) for names in skipped.items()]
        self.warnings_ = left_out + unreliable
        self.columns_ = np.array(list(learned))
        self.scales_ = np.array([np.linalg.norm(fit.coef) for fit in fits])
        self.cavs_ = np.stack([fit.coef for fit in fits]) / self.scales_[:, None]
        self.intercepts_ = np.array([fit.intercept for fit in fits]) / self.scales_
        self.facts_ = {
            "concepts": dict(zip(self.names_, self.quality_, strict=True)),
            "skipped": self.skipped_,
            "warnings": [asdict(warning) for warning in unreliable],
        }
        if unreliable:
            text = "; ".join(f"{warning.subject}: {warning.text}" for warning in unreliable)
            warnings.warn(text, DegenerateConcept, stacklevel=2)
        if self.refit and held is not None:
            X, targets = np.vstack([X, held[0]]), np.vstack([targets, held[1]])
            if order is not None and order_val is not None:
                rows = np.argsort(np.concatenate([order, order_val]), kind="stable")
                X, targets = X[rows], targets[rows]
            self._refit(X, targets[:, self.columns_])
        return self

    def cosines(self) -> Array:
        """Return the cosine between each pair of directions, [K, K]."""
        check_is_fitted(self)
        return np.asarray(self.cavs_ @ self.cavs_.T)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        return tags

    def _check(
        self, X: Any, concepts: Any, names: Sequence[str] | None, *, reset: bool
    ) -> tuple[Array, Array]:
        """Return the features and concepts as arrays; raise if their shapes do not match."""
        X = validate_data(self, X, dtype=np.float64, reset=reset, ensure_min_samples=1 + reset)
        if np.ndim(concepts) != 2:
            shape = "is None" if concepts is None else f"has shape {np.shape(concepts)}"
            raise ExperimentError(
                "a ConceptBank needs concepts (got none). Pass fit(X, y, concepts=C) or "
                "fit(X, C) with C [N, K]: 1 shown, 0 not shown, -1 unknown (it requires y to be "
                f"passed, but the target y {shape}). In a Pipeline, enable metadata routing"
            )
        if np.shape(concepts)[1] == 0:
            raise ExperimentError("a ConceptBank needs concepts, but the labels mark no concepts")
        concepts = check_array(concepts, dtype=None)
        if len(concepts) != len(X) or (names is not None and len(names) != concepts.shape[1]):
            raise ExperimentError(
                f"concepts of shape {concepts.shape} do not match {counted(len(X), 'clip')}"
                + ("" if names is None else f" and {counted(len(names), 'concept name')}")
            )
        if not np.isin(concepts, (-1, 0, 1)).all():
            raise ExperimentError("concepts must be 1 (shown), 0 (not shown) or -1 (unknown)")
        return X, concepts.astype(np.int8)

    def _learn(
        self, names: Sequence[str], clips: Clips, held: Clips | None, groups: Any
    ) -> tuple[dict[int, Learned], dict[str, str]]:
        """Return the learned concepts by column, and the reason for each skipped concept."""
        X, targets = clips
        groups = None if groups is None else np.asarray(groups)
        cv, chance = as_cv(self.cv), check_random_state(self.random_state)
        products = X @ X.T if len(X) <= GRAM_ROWS else None
        skipped: dict[str, str] = {}
        learners: dict[int, Any] = {}
        for column, name in enumerate(names):
            rows = np.flatnonzero(targets[:, column] >= 0)
            positives = int(targets[rows, column].sum())
            if not 0 < positives < len(rows):
                missing = "positive" if positives == 0 else "negative"
                skipped[name] = f"no {missing} among {counted(len(rows), 'training clip')}"
                continue
            if self.balance == "subsample":
                rows = _subsample(rows, targets[:, column], chance)
            validation, own = None, self.own_features(X, name)
            if held is not None:
                annotated = held[1][:, column] >= 0
                validation = held[0][annotated], held[1][annotated, column]
            shared = products if own is X else None
            learners[column] = delayed(self._fit_concept)(
                name, own, rows, targets[rows, column], validation, cv, groups, shared
            )
        if not learners:
            reasons = "; ".join(f"{name} has {reason}" for name, reason in skipped.items())
            raise ExperimentError(f"no concept can be learned: {reasons}")
        # With many clips, learn several concepts at a time, in threads that use one core each.
        workers = min(CONCEPTS_AT_ONCE, usable_cores()) if len(X) > GRAM_ROWS else 1
        with threadpool_limits(1) if workers > 1 else nullcontext():
            learned = Parallel(workers, prefer="threads")(learners.values())
        return dict(zip(learners, learned, strict=True)), skipped

    def _fit_concept(
        self,
        name: str,
        X: Array,
        rows: Array,
        y: Array,
        validation: Clips | None,
        cv: Any,
        groups: Array | None,
        products: Array | None,
    ) -> Learned:
        """Return a concept's hyperplane and quality, and the reasons why it is unreliable."""
        features = X if len(rows) == len(X) else X[rows]
        if isinstance(cv, list):
            cv = [tuple(np.flatnonzero(np.isin(rows, part)) for part in fold) for fold in cv]
        part = products
        if products is not None and len(rows) < len(X):
            part = products.take(rows, axis=0).take(rows, axis=1)
        choice = choose_svm(
            LinearSVM(features, y == 1, self._class_weight, products=part),
            self._choices(name),
            validation=validation,
            cv=cv,
            groups=None if groups is None else groups[rows],
        )
        fit, clips = choice.fit, "validation clips" if validation is not None else "clips"
        remarks = []
        if choice.by == "default":
            remarks.append(
                f"too few positive or negative {clips} to choose C, so C = {fit.C:g} is used"
            )
        if fit.degenerate:
            remarks.append(
                f"at C = {fit.C:g} no clip is outside the margin, so the SVM is degenerate: a "
                "difference of means with an arbitrary offset. Use a larger C or scale the features"
            )
        quality = _quality(fit, features, y, validation, choice.held_out)
        facts = {
            "C": fit.C,
            "aucs": {str(C): auc for C, auc in choice.aucs.items()},
            "bounded": fit.bounded,
            "margin": float(1 / np.linalg.norm(fit.coef)),
            "solver": fit.solver,
            "converged": True,
            "duality_gap": fit.duality_gap,
        }
        return fit, quality | facts, remarks

    def _choices(self, name: str) -> list[float]:
        if isinstance(self.C, Mapping) and name not in self.C:
            raise ExperimentError(
                f"C has no value for the concept {name!r} (got {', '.join(self.C)})"
            )
        return as_cs(self.C[name] if isinstance(self.C, Mapping) else self.C)

    def own_features(self, X: Array, name: str) -> Array:
        """Return the features that a concept is learned from, with 0 in all other columns."""
        if (span := (self.features or {}).get(name)) is None:
            return X
        first, end = span
        return np.pad(X[:, first:end], ((0, 0), (first, X.shape[1] - end)))

    @property
    def _class_weight(self) -> str | None:
        return "balanced" if self.balance == "weights" else None

    def _refit(self, X: Array, targets: Array) -> None:
        """Learn the directions again with the chosen C, and keep their quality."""
        again = clone(self).set_params(refit=False, C=dict(zip(self.names_, self.C_, strict=True)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateConcept)  # the first fit has already warned
            again.fit(X, targets, concept_names=self.names_)
        self.cavs_, self.intercepts_, self.scales_ = again.cavs_, again.intercepts_, again.scales_


@dataclass(eq=False, repr=False)
class RandomDirections(_Directions):
    """Random directions, a baseline for the concepts of a bottleneck.

    Parameters
    ----------
    n_directions
        The number of directions; by default, the number of concepts passed to `fit`, or else 8.
    random_state
        The seed of the directions.

    Attributes
    ----------
    cavs_, intercepts_, scales_
        The unit normals [K, D], offsets and scales of hyperplanes through the training clips' mean.
        All scales are 1.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_directions": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    n_directions: int | None = None
    _: KW_ONLY
    random_state: Chance = None

    def fit(self, X: Any, y: Any = None, *, concepts: Any = None) -> RandomDirections:
        """Draw random directions, with hyperplanes through the mean of X."""
        self._validate_params()
        X = validate_data(self, X, dtype=np.float64)
        count = self.n_directions
        if count is None:
            count = RANDOM_DIRECTIONS if concepts is None else np.shape(concepts)[1]
        if not count:
            raise ExperimentError("the labels mark no concepts. Pass n_directions instead")
        normals = check_random_state(self.random_state).normal(size=(count, X.shape[1]))
        self.cavs_ = normals / np.linalg.norm(normals, axis=1, keepdims=True)
        self.intercepts_ = -self.cavs_ @ X.mean(axis=0)
        self.scales_ = np.ones(count)
        return self


def project(bank: Any, X: Array, output: str) -> Array:
    """Return the positions of clips X [N, D] relative to a bank's hyperplanes, [N, K], in float64.

    For ``"distance"``, a position is the signed distance from the hyperplane. For ``"decision"``,
    it is the SVM's decision value: the distance times the length of the normal.
    """
    distances = np.asarray(X, dtype=np.float64) @ bank.cavs_.T + bank.intercepts_
    return np.asarray(distances * bank.scales_ if output == "decision" else distances)


def fit_direction(
    bank: ConceptBank, concept: int, X: Array, y: Array, products: Array | None = None
) -> LinearSVMFit:
    """Fit a direction to the labels `y` with the settings and C of a bank's concept."""
    own = bank.own_features(X, bank.names_[concept])
    shared = products if own is X else None
    problem = LinearSVM(own, y == 1, bank._class_weight, products=shared)
    return problem.fit(bank.C_[concept])


def _find_names(concepts: Any, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None and hasattr(concepts, "columns"):
        names = [str(name) for name in concepts.columns]
    if names is not None and (isinstance(names, str) or len({*names}) < len(names)):
        raise ExperimentError(f"concept_names must be distinct strings (got {names!r})")
    return None if names is None else tuple(names)


def _subsample(rows: Array, targets: Array, chance: np.random.RandomState) -> Array:
    """Return all rows of the rarer class, and a sample of as many rows of the other class."""
    kinds = [rows[targets[rows] == code] for code in (0, 1)]
    fewer = min(map(len, kinds))
    return np.sort(np.concatenate([chance.choice(kind, fewer, replace=False) for kind in kinds]))


def _quality(
    fit: LinearSVMFit, X: Array, y: Array, validation: Clips | None, held_out: Array | None
) -> dict[str, Any]:
    """Return the quality of a concept's hyperplane, measured on held-out clips if possible."""
    on, truth = "training", y
    if validation is not None and 0 < validation[1].sum() < len(validation[1]):
        on, truth = "validation", validation[1]
        values = fit.decide(validation[0])
    elif held_out is not None:
        on = "cross-validation"
        tested = np.isfinite(held_out)
        truth, values = y[tested], held_out[tested]
    else:
        values = fit.decide(X)
    # scikit-learn's F1 and balanced accuracy would take as long as fitting the SVM.
    scores = weighted_scores(truth, (values > 0).astype(float), np.ones((1, len(truth))))
    return {
        "on": on,
        "auc": roc_area(truth, values),
        "f1": float(scores["f1"][0]),
        "balanced_accuracy": float(scores["balanced_accuracy"][0]),
        "positives": int(truth.sum()),
        "negatives": int(len(truth) - truth.sum()),
        "training_positives": int(y.sum()),
        "training_negatives": int(len(y) - y.sum()),
    }
