"""Make and fit an experiment's estimators, and record the clips that each has used."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
from msgspec import Meta
from sklearn import config_context
from sklearn.base import BaseEstimator, is_regressor

from obygaze_features.common.plugins import one_line
from obygaze_features.errors import ExperimentError
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.folds import Fold
from obygaze_models.data.targets import Classes, Number, clip_targets
from obygaze_models.data.tasks import Problem, Task, default_negatives
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.estimators.classes import (
    best_cut,
    keywords,
    move_cut,
    reads_of,
)
from obygaze_models.estimators.fusion import StoreFusion
from obygaze_models.estimators.inner_folds import whole_groups
from obygaze_models.estimators.outputs import predict_outputs
from obygaze_models.estimators.registry import (
    best_of,
    find_entry,
    make_estimator,
    modules_of,
    plugin_errors,
)
from obygaze_models.experiments.predictions import tabulate
from obygaze_models.experiments.record import Skipped
from obygaze_models.experiments.spec import EstimatorSpec, folder_name
from obygaze_models.scoring.metrics import Array


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted estimator, with the settings that turn its output into predictions.

    Parameters
    ----------
    estimator
        The fitted estimator.
    classes
        The number of classes. Classes that are missing in training get probability 0.
    seen
        All rows that were used in the fit, to detect leaks.
    reads
        The kind of input: ``features``, ``frames`` or ``groups`` (films).
    facts, warnings
        The choices that the estimator made, and warnings about it.
    cut
        The threshold for the second of two classes, if chosen on validation clips. Probabilities
        are shifted so that this threshold becomes 0.5.
    target
        The key of the target.
    """

    estimator: Any
    classes: int
    seen: Array
    reads: str = "features"
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[RunWarning] = field(default_factory=list)
    cut: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    target: str = Classes.key

    def probabilities(self, data: ClipDataset, rows: Array) -> Array:
        """Return class probabilities [n, classes] for some rows, or predicted numbers [n, 1]."""
        arguments: dict[str, Any] = {}
        if self.reads == "groups":
            arguments["groups"] = data.groups.astype(str)[rows]
        with plugin_errors(modules_of(self.estimator)):
            X = _features(data, self.estimator, self.reads)[rows]
            table = predict_outputs(self.estimator, X, self.target, self.classes, **arguments)
        return move_cut(table, self.cut)


@dataclass(frozen=True, eq=False)
class PlannedFit:
    """An estimator of the experiment, with the task and the fold to fit and test it on.

    `namesakes` counts earlier tasks of the experiment with the same folder name.
    """

    name: str
    spec: EstimatorSpec
    problem: Problem
    fold: Fold
    balance: str | None = None
    namesakes: int = 0

    @property
    def task(self) -> Task:
        """The task to learn."""
        return self.problem.train

    @property
    def key(self) -> tuple[str, str, int]:
        """The key that identifies the fit within an experiment."""
        return self.name, self.task.key, self.fold.index

    @property
    def place(self) -> str:
        """The path of the fit's folder, such as ``mlp/HN-vs-S-0``, valid on every file system."""
        task = folder_name(self.task.key) + (f"~{self.namesakes}" if self.namesakes else "")
        return f"{folder_name(self.name)}/{task}-{self.fold.index}"

    def fit(self, data: ClipDataset, memo: FitMemo | None = None) -> Fit:
        """Fit the estimator; its errors (`ExperimentError` or `ValueError`) are not caught."""
        fold, labels = self.fold, self.task.labels(data)
        # Parts that learn from whole folds must not see tested clips, or clips near them.
        apart = np.union1d(fold.test_rows, fold.near)
        apart = np.setdiff1d(apart, np.union1d(fold.train, fold.validation))
        data = replace(data, folds=np.where(np.isin(np.arange(len(data)), apart), -1, data.folds))
        return fit_estimator(
            self.spec, data, fold.train, fold.validation, labels, fold.seed, memo,
            balance=self.balance, task=self.task,
        )  # fmt: skip

    def compute(self, data: ClipDataset, memo: FitMemo | None = None) -> FitResult:
        """Fit the estimator and predict the test clips; a failure is also returned as a result.

        Before many fits, limit threads to one: small fits are slower on several threads.
        """
        try:
            fit = self.fit(data, memo)
            return FitResult(self, fit, fit.probabilities(data, self.fold.test_rows))
        except (ExperimentError, ValueError) as reason:  # scikit-learn raises ValueError
            return FitResult(self, None, None, one_line(reason))


@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of a planned fit: the fit, and its predictions [n, classes] for the test rows.

    Both are None if fitting failed; `reason` then has the error.
    """

    planned: PlannedFit
    fit: Fit | None
    table: Array | None
    reason: str = ""

    @property
    def skipped(self) -> Skipped:
        """The record of the failure for ``run.json``."""
        return skipped_fit(self.planned.name, self.planned.task, self.planned.fold, self.reason)


def skipped_fit(model: str, task: Task, fold: Fold, reason: str) -> Skipped:
    """Return the record of a model that has no predictions for a fold."""
    title = f"{model}, {fold.name}"
    return Skipped(task=task.key, fit=fold.index, what=title, why=reason)


def test_predictions(
    data: ClipDataset, problem: Problem, model: str, fold: Fold, table: Array
) -> list[pd.DataFrame]:
    """Split a fold's probabilities [test rows, classes] into a table for each test set."""
    all_rows, predictions = fold.test_rows, []
    for test in problem.tests:
        if (rows := fold.tests.get(test.key)) is not None:
            ids, labels = [data.ids[row] for row in rows.tolist()], test.labels(data)[rows]
            outputs = table[np.searchsorted(all_rows, rows)]
            predictions.append(tabulate(test, model, fold.index, ids, labels, outputs))
    return predictions


def digest_of_values(value: Any) -> str:
    """Return a SHA-256 digest of (nested) plain values, arrays and estimators' parameters."""
    digest = hashlib.sha256()

    def add(part: Any) -> None:
        kind = type(part)
        digest.update(f"{kind.__module__}.{kind.__qualname__}".encode())
        if isinstance(part, np.ndarray) and part.dtype != object:
            digest.update(f"{part.dtype} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        elif isinstance(part, BaseEstimator):
            add(part.get_params(deep=False))
        elif isinstance(part, Mapping):
            add(list(part.items()))
        elif isinstance(part, np.ndarray):
            add(part.tolist())
        elif isinstance(part, list | tuple):
            digest.update(f"{len(part)}".encode())
            for element in part:
                add(element)
        else:
            digest.update(repr(part).encode())

    add(value)
    return digest.hexdigest()


def class_weight_options(spec: EstimatorSpec) -> dict[str, str] | None:
    """Return the options that make an estimator, or its head, weight classes by inverse size.

    Return None if the estimator has no class weights, and {} for guesses, which need no weights.
    """
    if find_entry(spec.name).before_balancing:
        return {}
    parameters = spec.estimator.get_params(deep=True)
    keys = [key for key in ("class_weight", "head__class_weight") if key in parameters]
    return {key: "balanced" for key in keys if key not in spec.options} if keys else None


class FitMemo:
    """An in-memory cache that lets several heads share a concept bank fitted on the same fold."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], Any] = {}

    def cache(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with cached results, as in `joblib.Memory.cache`."""

        def cached(*arguments: Any) -> Any:
            key = function.__qualname__, digest_of_values(arguments)
            if key not in self._results:
                self._results[key] = function(*arguments)
            return self._results[key]

        return cached

    def __deepcopy__(self, memo: Any) -> FitMemo:
        return self  # clones of an estimator share the cache


def fit_estimator(
    spec: EstimatorSpec,
    data: ClipDataset,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    memo: FitMemo | None = None,
    *,
    balance: str | None = None,
    task: Task | None = None,
) -> Fit:
    """Make an estimator and fit it with the keyword arguments that its `fit` accepts.

    Parameters
    ----------
    spec
        The estimator and its options.
    data
        All clips.
    train, validation
        The rows of `data` to train and to validate on.
    labels
        The class of each clip of `data`, counted from 0; negative for clips that are left out.
    seed
        The random state, unless the options set one.
    memo
        A cache of fitted concept banks, shared by estimators on the same rows.
    balance
        With ``weights``, the estimator weights the classes if it can.
    task
        The task to learn; by default the classes of the labels.
    """
    target = task.target if task else Classes()
    model, accepted, reads = _make_model(spec, data, seed, memo, weights=balance == "weights")
    with plugin_errors(modules_of(model)):
        X = _features(data, model, reads)
    all_train, all_validation = rows_of_same_folds(data, train, validation)
    if find_entry(spec.name).before_balancing:
        train = all_train[target.takes_part(labels[all_train])]
    learn, choose = train, validation
    if "labelled" in accepted:
        learn, choose = all_train, all_validation
    films = data.groups.astype(str)
    concepts = clip_targets(data, spec.negatives) if "concepts" in accepted else data.concepts
    offered = {
        "concepts": concepts[learn],
        "concepts_val": concepts[choose],
        "concept_names": data.concept_names,
        "groups": films[learn],
        "groups_val": films[choose],
        "labelled": np.isin(learn, train),
        "labelled_val": np.isin(choose, validation),
        "X_val": X[choose],
        "y_val": labels[choose],
        "order": learn,
        "order_val": choose,
    }
    arguments = {name: value for name, value in offered.items() if name in accepted}
    chooses = "X_val" in accepted or spec.threshold
    seen = np.unique(np.concatenate([learn, train, *([choose, validation] if chooses else [])]))
    classes = int(labels.max()) + 1
    if task is not None and target.key != Classes.key:
        classes = len(task.classes)
    fit = Fit(model, classes, seen, reads, target=target.key)
    inner_groups = None if isinstance(model, StoreFusion) else films[learn]
    fit = _fit_model(fit, spec.name, X[learn], labels[learn], inner_groups, arguments)
    if "labelled" in accepted and "concepts" in fit.facts:
        fit = replace(fit, facts={"negatives": _negatives(spec, data), **fit.facts})
    if spec.threshold:
        scores = fit.probabilities(data, validation)[:, 1]
        fit = replace(fit, cut=best_cut(scores, labels[validation] == 1))
    return fit


def _negatives(spec: EstimatorSpec, data: ClipDataset) -> str:
    """Return the set of negatives that a bottleneck's concepts were learned from."""
    return spec.negatives if data.scheme.is_obygaze else default_negatives(data.scheme)


def _make_model(
    spec: EstimatorSpec, data: ClipDataset, seed: int, memo: FitMemo | None, *, weights: bool
) -> tuple[Any, frozenset[str], str]:
    """Make an estimator; return it, the keywords that its `fit` accepts, and what it reads."""
    model = make_estimator(spec.name, spec.options, random_state=seed, numbers=spec.numbers)
    if weights:
        model.set_params(**(class_weight_options(spec) or {}))
    if memo is not None and "memory" in model.get_params(deep=False):
        model.set_params(memory=memo)
    with plugin_errors(modules_of(model)):
        accepted, reads = keywords(model.fit), reads_of(model)
    if len(data.stores) < 2 or not spec.fuses:
        return model, accepted, reads
    fusion = StoreFusion(
        model,
        dict(data.stores),
        use=[*spec.use] or None,
    )
    return fusion, accepted | {"groups"}, reads


def _fit_model(
    fit: Fit,
    name: str,
    X: Array,
    y: Array,
    inner_groups: Array | None,
    arguments: Mapping[str, Any],
) -> Fit:
    """Fit a model, and collect its choices and warnings.

    `inner_groups` has the films of `X`, so that inner folds keep films whole. It is None for a
    fusion, which keeps films whole itself.
    """
    model = fit.estimator
    # Arguments are passed by the signature of fit, even if a caller has enabled metadata routing.
    with (
        plugin_errors(modules_of(model)),
        config_context(enable_metadata_routing=False),
        warnings.catch_warnings(record=True) as raised,
    ):
        warnings.simplefilter("always", UserWarning)
        strata = np.zeros(len(y)) if fit.target == Number.key else y
        with whole_groups(model, strata, inner_groups):
            model.fit(X, y, **arguments)
        model = best_of(model)
        if isinstance(model, StoreFusion):
            model.set_params(estimator=best_of(model.estimator))  # do not save the search itself
        codes = np.asarray(getattr(model, "classes_", ()))
        if not is_regressor(model) and codes.dtype.kind not in "iu":
            raise ExperimentError("fit must set classes_ to the sorted classes of y")
        facts = dict(_as_json(getattr(model, "facts_", {})))
        notes = list(getattr(model, "warnings_", []))
        if not notes:
            notes = [warning.message for warning in raised]
        noted = unique_warnings(
            note if isinstance(note, RunWarning) else RunWarning("fit", name, one_line(note))
            for note in notes
        )
    return replace(fit, estimator=model, facts=facts, warnings=noted)


def _features(data: ClipDataset, model: Any, reads: str) -> Array:
    """Return the input of a model: one vector per clip, or the frames of each clip."""
    if reads != "frames":
        return data.X
    if data.frames is None:
        raise ExperimentError("the model reads frames. Load the clips with frames=True")
    return data.frames


def _as_json(value: Any) -> Any:
    """Convert a value to JSON types, with None for NaN and infinity."""

    def convert(part: Any) -> Any:
        if isinstance(part, np.generic | np.ndarray):
            return part.tolist()
        raise TypeError(f"facts_ must contain only JSON values (got {type(part).__name__})")

    return json.loads(json.dumps(value, default=convert), parse_constant=lambda _: None)


def rows_of_same_folds(data: ClipDataset, train: Array, validation: Array) -> tuple[Array, Array]:
    """Return all clips of the training folds, and all clips of the validation folds.

    Concepts are learned from all of these clips, even those that the balancing or the task left
    out, such as Easy Negatives. If training and validation share a fold, or if a clip is in no fold
    (-1), the rows were not chosen by fold and are returned unchanged.
    """
    folds, held = np.unique(data.folds[train]), np.unique(data.folds[validation])
    if len(np.intersect1d(folds, held)) or min([*folds, *held]) < 0:
        return train, validation
    return np.flatnonzero(np.isin(data.folds, folds)), np.flatnonzero(np.isin(data.folds, held))
