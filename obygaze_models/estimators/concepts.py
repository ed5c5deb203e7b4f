"""Concept activation vectors: a direction in feature space for each concept."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import counted
from obygaze_features.errors import ExperimentError
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.estimators.classes import Chance, check_both
from obygaze_models.estimators.svm_solver import (
    DEFAULT_CS,
    FOLDS,
    ChosenSVM,
    LinearSVMFit,
    as_cs,
    choose_svm,
    clip_weights,
    fit_svm,
    has_both,
    inner_products,
    loss_warnings,
    part_of,
)
from obygaze_models.scoring.metrics import auroc, score

Output = Literal["distance", "decision"]
# The number of random directions if no concepts are passed.
RANDOM_DIRECTIONS = 8

Clips = tuple[Array, Array]
"""The features [N, D] and the targets of clips."""


class DegenerateConcept(UserWarning):
    """A warning that a concept's direction is unreliable."""


class Facts(msgspec.Struct):
    """An estimator's facts about concepts. All other facts are only shown to readers."""

    concepts: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    warnings: list[RunWarning] = []

    @property
    def unreliable(self) -> list[str]:
        """The concepts whose directions are unreliable; `warnings` has the reasons."""
        subjects = {warning.subject for warning in self.warnings}
        return [name for name in self.concepts if name in subjects]


class _Directions(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A base class for transformers from features to distances from hyperplanes."""

    cavs_: Array
    output: Output = "distance"

    def transform(self, X: Any) -> Array:
        """Return the signed distance of each clip from each hyperplane, [N, K].

        A `ConceptBank` returns decision values instead if its ``output`` says so.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        distances = X @ self.cavs_.T + self.intercepts_
        if self.output == "decision":
            distances = distances * self.scales_
        return np.asarray(distances)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the concepts, or names such as ``random 1``, in the order of `transform`."""
        super().get_feature_names_out(input_features)  # checks them
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
        If validation clips are passed, fit again on all clips.
    cv
        The maximum number of folds on which C is chosen if there are no validation clips.
    random_state
        The seed for drawing clips.

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
        ``cross-validation`` or ``training``), ``auc``, ``f1``, ``positives``, ``negatives``, ``C``,
        ``aucs`` (by C), ``degenerate`` and ``converged`` (see
        `obygaze_models.estimators.svm_solver.LinearSVMFit`).
    skipped_
        A mapping from each concept that could not be learned to the reason.
    warnings_
        The warnings, as `RunWarning`.
    facts_
        A dict of ``concepts`` (quality by name), ``skipped``, and ``warnings`` of unreliable
        directions.

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
        "cv": [FOLDS],
        "random_state": ["random_state"],
    }

    _: KW_ONLY
    C: float | Sequence[float] | Mapping[str, float] = DEFAULT_CS
    balance: Literal["weights", "subsample"] = "weights"
    output: Output = "distance"
    refit: bool = False
    cv: int = 5
    random_state: Chance = None

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
            The names of the K concepts; by default, the columns of a data frame, or ``concept 1``
            and so on.
        X_val, concepts_val
            The validation clips, for choosing C and measuring quality; by default, folds of X.
        groups
            The film of each clip, so that each film stays in a single fold.
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

        self.columns_ = np.flatnonzero(_has_both_kinds(targets))
        self.names_ = [names[column] for column in self.columns_]
        self.skipped_ = _describe_skipped(names, targets)
        if not self.names_:
            reasons = "; ".join(f"{name} has {why}" for name, why in self.skipped_.items())
            raise ExperimentError(f"no concept can be learned: {reasons}")

        fits = []
        self.quality_: list[dict[str, Any]] = []
        unreliable = []
        for name, rows, y, products in self._problems(X, targets):
            clips = X[rows]
            validation = _annotated(held, names.index(name))
            choice = choose_svm(
                clips,
                y == 1,
                self._costs(name),
                class_weight=self._class_weight,
                products=products,
                validation=validation,
                cv=self.cv,
                groups=None if groups is None else np.asarray(groups)[rows],
            )
            fits.append(choice.fit)
            self.quality_.append(_quality(choice, clips, y, validation))
            for text in _remarks(choice, validation):
                unreliable.append(RunWarning("concepts-unreliable", name, text))

        self.C_ = [fit.C for fit in fits]
        self._report(unreliable)
        self.warnings_ += loss_warnings(len(X))

        if self.refit and held is not None:
            X = np.vstack([X, held[0]])
            targets = np.vstack([targets, held[1]])
            fits = []
            for _, rows, y, products in self._problems(X, targets):
                fits.append(self.fit_again(len(fits), X[rows], y, products))
        normals = np.stack([fit.coef for fit in fits])
        self.scales_ = np.array([np.linalg.norm(normal) for normal in normals])
        self.cavs_ = normals / self.scales_[:, None]
        self.intercepts_ = np.array([fit.intercept for fit in fits]) / self.scales_
        return self

    def _report(self, unreliable: Sequence[RunWarning]) -> None:
        """Set `warnings_` and `facts_`, and warn of unreliable directions."""
        left_out = [RunWarning("concepts-left-out", *names) for names in self.skipped_.items()]
        self.warnings_ = [*left_out, *unreliable]
        self.facts_ = {
            "concepts": dict(zip(self.names_, self.quality_, strict=True)),
            "skipped": self.skipped_,
            "warnings": [asdict(warning) for warning in unreliable],
        }
        if unreliable:
            text = "; ".join(f"{warning.subject}: {warning.text}" for warning in unreliable)
            warnings.warn(text, DegenerateConcept, stacklevel=3)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

    def _check(
        self,
        X: Any,
        concepts: Any,
        names: Sequence[str] | None,
        *,
        reset: bool,
    ) -> tuple[Array, Array]:
        """Return the features and concepts as arrays; raise if their shapes do not match."""
        X = validate_data(self, X, dtype=np.float64, reset=reset, ensure_min_samples=1 + reset)
        if np.ndim(concepts) != 2:
            got = f"got the shape {np.shape(concepts)}"
            if concepts is None:
                got = "requires y to be passed, but the target y is None"
            raise ExperimentError(
                "a ConceptBank needs concepts [N, K]: 1 shown, 0 not shown, -1 unknown "
                f"({got}). Use fit(X, y, concepts=C) or fit(X, C); in a Pipeline, pass "
                "conceptbank__concepts=C, or enable metadata routing"
            )
        if np.shape(concepts)[1] == 0:
            raise ExperimentError(
                "a ConceptBank needs concepts, but the labels mark none. Use a model without a bank"
            )
        concepts = check_array(concepts, dtype=None)
        shape = (len(X), len(names or concepts[0]))
        if concepts.shape != shape:
            raise ExperimentError(
                f"concepts need a row for each clip and a column for each name, {shape} (got "
                f"{concepts.shape})"
            )
        if not np.isin(concepts, (-1, 0, 1)).all():
            raise ExperimentError("concepts must be 1 (shown), 0 (not shown) or -1 (unknown)")
        return X, concepts.astype(np.int8)

    def _problems(
        self,
        X: Array,
        targets: Array,
    ) -> Iterator[tuple[str, Array, Array, Array | None]]:
        """Yield the name, rows, targets and inner products of each concept that can be learned."""
        chance = check_random_state(self.random_state)
        products = inner_products(X)
        for name, column in zip(self.names_, self.columns_, strict=True):
            y = targets[:, column]
            rows = self.draw_rows(y, chance)
            yield name, rows, y[rows], part_of(products, rows)

    def draw_rows(self, y: Array, chance: np.random.RandomState) -> Array:
        """Return the rows with a label, or equally many of each kind for ``"subsample"``."""
        rows = np.flatnonzero(y >= 0)
        if self.balance == "weights":
            return rows
        kinds = [rows[y[rows] == code] for code in (0, 1)]
        fewer = min(map(len, kinds))
        drawn = [chance.choice(kind, fewer, replace=False) for kind in kinds]
        return np.sort(np.concatenate(drawn))

    def fit_again(self, concept: int, X: Array, y: Array, products: Array | None) -> LinearSVMFit:
        """Fit a hyperplane to the labels `y` with the bank's settings and a concept's C."""
        weights = clip_weights(self._class_weight, y)
        return fit_svm(X, y == 1, self.C_[concept], weights, products)

    def _costs(self, name: str) -> list[float]:
        """Return the values of C to choose from for a concept."""
        if not isinstance(self.C, Mapping):
            return as_cs(self.C)
        if name not in self.C:
            raise ExperimentError(f"C has no value for the concept {name!r}. Add one")
        return as_cs(self.C[name])

    @property
    def _class_weight(self) -> str | None:
        return "balanced" if self.balance == "weights" else None


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
            raise ExperimentError("the labels mark no concepts. Set n_directions")
        normals = check_random_state(self.random_state).normal(size=(count, X.shape[1]))
        self.cavs_ = normals / np.linalg.norm(normals, axis=1, keepdims=True)
        self.intercepts_ = -self.cavs_ @ X.mean(axis=0)
        self.scales_ = np.ones(count)
        return self


def _has_both_kinds(targets: Array) -> Array:
    """Return for each concept whether some clips show it and some do not."""
    return np.asarray((targets == 1).any(axis=0) & (targets == 0).any(axis=0))


def _describe_skipped(names: Sequence[str], targets: Array) -> dict[str, str]:
    """Return the reason for each concept that cannot be learned."""
    skipped = {}
    for column in np.flatnonzero(~_has_both_kinds(targets)).tolist():
        annotated = int((targets[:, column] >= 0).sum())
        missing = "negative" if (targets[:, column] == 1).any() else "positive"
        skipped[names[column]] = f"no {missing} among {counted(annotated, 'training clip')}"
    return skipped


def _find_names(concepts: Any, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None and hasattr(concepts, "columns"):
        names = [str(name) for name in concepts.columns]
    if names is not None and (isinstance(names, str) or len({*names}) < len(names)):
        raise ExperimentError(f"concept_names must be distinct strings (got {names!r})")
    return None if names is None else tuple(names)


def _annotated(clips: Clips | None, column: int) -> Clips | None:
    """Return the validation clips, if any, with a known target for a concept."""
    if clips is None:
        return None
    X, targets = clips
    rows = targets[:, column] >= 0
    return X[rows], targets[rows, column]


def _remarks(choice: ChosenSVM, validation: Clips | None) -> Iterator[str]:
    """Yield the reasons why a concept's hyperplane is unreliable."""
    fit = choice.fit
    if choice.by == "default":
        clips = "clips or films" if validation is None else "validation clips"
        yield f"too few positive or negative {clips} to choose C, so C = {fit.C:g} is used"
    if fit.degenerate:
        yield (
            f"at C = {fit.C:g} no clip is outside the margin, so the SVM is degenerate: a "
            "difference of means with an arbitrary offset. Use a larger C or scale the features"
        )


def _quality(choice: ChosenSVM, X: Array, y: Array, validation: Clips | None) -> dict[str, Any]:
    """Return the quality of a concept's hyperplane, measured on held-out clips if possible."""
    fit = choice.fit
    on = "training"
    truth = y
    if validation is not None and has_both(validation[1]):
        on = "validation"
        truth = validation[1]
        values = fit.decide(validation[0])
    elif choice.held_out is not None:
        on = "cross-validation"
        tested = np.isfinite(choice.held_out)
        truth = y[tested]
        values = choice.held_out[tested]
    else:
        values = fit.decide(X)
    # scikit-learn's F1 would take as long as fitting the SVM.
    called = (values > 0).astype(float)
    positives = int(truth.sum())
    return {
        "on": on,
        "auc": auroc(truth, values),
        "f1": score(truth, called)["f1"],
        "positives": positives,
        "negatives": len(truth) - positives,
        "C": fit.C,
        "aucs": {str(C): auc for C, auc in choice.aucs.items()},
        "degenerate": fit.degenerate,
        "converged": fit.converged,
    }
