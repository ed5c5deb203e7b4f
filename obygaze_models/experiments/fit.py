"""One fit: a learner trained on the rows of a fold, and the clips that it predicts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import joblib
import msgspec
import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.base import clone, is_regressor
from sklearn.pipeline import Pipeline

from obygaze_features.common.arrays import Array
from obygaze_features.common.plugins import one_line
from obygaze_features.errors import ExperimentError
from obygaze_models.data.dataset import ClipDataset, clip_targets
from obygaze_models.data.folds import Fold
from obygaze_models.data.run_warning import RunWarning, origin_warnings, unique_warnings
from obygaze_models.data.tasks import Task
from obygaze_models.estimators.bottlenecks import ConceptBottleneck
from obygaze_models.estimators.classes import best_cut, set_seed
from obygaze_models.estimators.fusion import BlockScaler
from obygaze_models.estimators.inner_folds import keep_groups_whole
from obygaze_models.estimators.registry import best_of, modules_of, plugin_errors
from obygaze_models.experiments.learner import Learner
from obygaze_models.saved.about import About, spans_of
from obygaze_models.saved.model import Model, prediction_errors
from obygaze_models.saved.predict import predict_features

MAX_BANKS = 1_000
"""The maximum number of concept banks that a process keeps."""


class BankCache:
    """A cache in memory, so that heads, tasks and runs share a bank fitted on the same fold."""

    def __init__(self) -> None:
        self._results: dict[Any, Any] = {}

    def cache(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with cached results, as in `joblib.Memory.cache`."""

        def cached(*arguments: Any) -> Any:
            key = function, joblib.hash(arguments)
            if key not in self._results:
                if len(self._results) == MAX_BANKS:
                    self._results.clear()
                self._results[key] = function(*arguments)
            return self._results[key]

        return cached


BANKS = BankCache()


class FitRows(NamedTuple):
    """The rows of a fit: those with labels, all fitted ones, those for validation, and all used."""

    labelled: Array
    fitted: Array
    held_out: Array
    seen: Array


def rows_of(data: ClipDataset, task: Task, learner: Learner, fold: Fold) -> FitRows:
    """Return the rows that a fit uses.

    Concepts are learned from all clips of the training folds, and validated on all clips of the
    validation folds, even those that balancing or the task left out. Clips that the fit only
    tests, or that are too near its test clips, are left out. If training and validation share a
    fold, or clips have no fold, concepts are learned from the chosen clips only.
    """
    labelled = fold.train
    pool = fold.train
    held_out = fold.validation
    if learner.is_guess or "labelled" in learner.accepts:
        pool, held_out = _whole_folds(data, fold)
    if learner.is_guess:  # it counts classes before they are balanced
        pool = pool[task.target.takes_part(data.labels[task][pool])]
        labelled = pool
    seen = np.unique(pool)
    if learner.uses_validation:
        seen = np.union1d(pool, held_out)
    return FitRows(labelled, pool, held_out, seen)


def _whole_folds(data: ClipDataset, fold: Fold) -> tuple[Array, Array]:
    """Return whole training and validation folds, or the chosen rows if that is impossible."""
    folds = data.folds.copy()
    apart = np.union1d(fold.test_rows, fold.near)
    folds[np.setdiff1d(apart, np.union1d(fold.train, fold.validation))] = -1
    of_train = np.unique(folds[fold.train])
    of_held = np.unique(folds[fold.validation])
    share_a_fold = len(np.intersect1d(of_train, of_held)) > 0
    have_folds = min([*of_train, *of_held]) >= 0
    if share_a_fold or not have_folds:
        return fold.train, fold.validation
    return np.flatnonzero(np.isin(folds, of_train)), np.flatnonzero(np.isin(folds, of_held))


def read_input(data: ClipDataset, reads: str, rows: Array) -> Any:
    """Return the frames of some clips, or their vectors, with column names if there are any."""
    if reads == "frames":
        if data.frames is None:
            raise ExperimentError(
                "a model reads frames, but the dataset has none. Pass frames to om.load_dataset or "
                "om.dataset"
            )
        return data.frames[rows]
    if data.columns:
        return pd.DataFrame(data.X[rows], columns=[*data.columns])
    return data.X[rows]


def fit_fold(
    data: ClipDataset,
    task: Task,
    learner: Learner,
    fold: Fold,
    *,
    name: str = "",
) -> Model:
    """Fit a learner on a fold, with the keyword arguments that its `fit` accepts."""
    labels = data.labels[task]
    rows = rows_of(data, task, learner, fold)
    with plugin_errors(modules_of(learner.estimator)):
        estimator = set_seed(clone(learner.estimator), fold.seed)
    if isinstance(estimator, ConceptBottleneck):
        estimator.set_params(memory=BANKS)
    X = read_input(data, learner.reads, rows.fitted)
    arguments = _arguments(data, task, learner, fold, rows)
    scaler = None
    if len(data.stores) > 1 and learner.reads == "features" and not learner.is_guess:
        scaler = BlockScaler(dict(data.stores)).fit(X)
        X = scaler.transform(X)
        if "X_val" in arguments:
            arguments["X_val"] = scaler.transform(arguments["X_val"])

    strata = task.target.strata(labels[rows.fitted])
    # Arguments are passed by the signature of fit, even if a caller has enabled metadata routing.
    with (
        plugin_errors(modules_of(estimator)),
        config_context(enable_metadata_routing=False),
        warnings.catch_warnings(record=True) as raised,
    ):
        warnings.simplefilter("always", UserWarning)
        with keep_groups_whole(estimator, strata, data.groups[rows.fitted]):
            estimator.fit(X, labels[rows.fitted], **arguments)
        estimator = best_of(estimator)
        codes = np.asarray(getattr(estimator, "classes_", ()))
        if not is_regressor(estimator) and codes.dtype.kind not in "iu":
            raise ExperimentError("fit must set classes_ to the sorted classes of y")
        notes = _notes(estimator, raised, name)
    about = _describe(data, task, learner, fold, rows)
    about = msgspec.structs.replace(about, model=name, **notes)
    if scaler is not None:
        estimator = Pipeline([("stores", scaler), ("model", estimator)])
    if learner.threshold:
        scores = predict_rows(Model(estimator, about), data, fold.validation)[:, 1]
        cut = best_cut(scores, labels[fold.validation] == 1)
        about = msgspec.structs.replace(about, cut=cut)
    return Model(estimator, about)


def _arguments(
    data: ClipDataset,
    task: Task,
    learner: Learner,
    fold: Fold,
    rows: FitRows,
) -> dict[str, Any]:
    """Return the keyword arguments that the learner's `fit` gets."""
    accepted = learner.accepts
    if not len(fold.validation):
        accepted -= {"X_val", "y_val", "concepts_val", "groups_val", "labelled_val"}
    fitted = rows.fitted
    held_out = rows.held_out
    concepts = data.concepts
    if "concepts" in accepted:
        concepts = clip_targets(data, learner.negatives)
    offered = {
        "concepts": concepts[fitted],
        "concepts_val": concepts[held_out],
        "concept_names": data.concept_names,
        "groups": data.groups[fitted],
        "groups_val": data.groups[held_out],
        "labelled": np.isin(fitted, rows.labelled),
        "labelled_val": np.isin(held_out, fold.validation),
        "y_val": data.labels[task][held_out],
    }
    if "X_val" in accepted:
        offered["X_val"] = read_input(data, learner.reads, held_out)
    return {key: value for key, value in offered.items() if key in accepted}


def _notes(estimator: Any, raised: Sequence[Any], name: str) -> dict[str, Any]:
    """Return the facts and the warnings of a fit, for its description."""
    notes = [*getattr(estimator, "warnings_", [])] or [warning.message for warning in raised]
    named = []
    for note in notes:
        if not isinstance(note, RunWarning):
            note = RunWarning("fit", name, one_line(note))
        named.append(note)
    facts = msgspec.json.encode(getattr(estimator, "facts_", {}), enc_hook=_as_plain)
    # NaN becomes None.
    return {"facts": msgspec.json.decode(facts), "notes": unique_warnings(named)}


def _describe(
    data: ClipDataset,
    task: Task,
    learner: Learner,
    fold: Fold,
    rows: FitRows,
) -> About:
    """Describe a model: what it is, what it reads, and what it has seen."""
    record = data.record
    options = dict(learner.options)
    for key in ("negatives", "threshold"):
        if getattr(learner, key):
            options[key] = getattr(learner, key)
    groups = {*data.groups[rows.seen].tolist()} - {""}
    held_out = {*data.groups[fold.test_rows].tolist()}
    # A fit that leaves out whole films has seen the others; it need not list each of their clips.
    is_whole = bool(held_out) and "" not in held_out and not held_out & groups
    seen = [] if is_whole else data.ids_at(rows.seen)
    return About(
        estimator=learner.name,
        options=options,
        reads=learner.reads,
        task=task,
        features=record.features(frames=learner.reads == "frames"),
        levels=data.scheme.name_of,
        senses=data.scheme.senses,
        seen=spans_of(record.manifest.items, seen),
        seen_groups={data.grouped_by: sorted(groups)},
        warnings=origin_warnings(record.manifest.items, record.attributes),
    )


def predict_rows(model: Model, data: ClipDataset, rows: Array) -> Array:
    """Return class probabilities [n, classes] for some rows, or predicted numbers [n, 1]."""
    groups = {}
    if model.about.reads == "groups":
        groups["groups"] = data.groups[rows]
    X = read_input(data, model.about.reads, rows)
    with prediction_errors(model):
        return predict_features(model.estimator, model.about, X, **groups)


def _as_plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"facts_ must contain only JSON values (got {type(value).__name__})")
