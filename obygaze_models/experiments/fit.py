"""Fit an estimator on a fold, and predict clips with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import joblib
import msgspec
import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.base import is_regressor

from obygaze_features.common.plugins import one_line
from obygaze_features.errors import ExperimentError
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.folds import Fold
from obygaze_models.data.run_warning import RunWarning, origin_warnings, unique_warnings
from obygaze_models.data.targets import clip_targets
from obygaze_models.data.tasks import Problem
from obygaze_models.estimators.classes import best_cut, keywords
from obygaze_models.estimators.fusion import StoreFusion
from obygaze_models.estimators.inner_folds import whole_groups
from obygaze_models.estimators.registry import best_of, make_estimator, modules_of, plugin_errors
from obygaze_models.experiments.plan import Plan, PlannedFit
from obygaze_models.saved.about import About, spans_of
from obygaze_models.saved.predict import predict_features
from obygaze_models.scoring.metrics import Array

WEIGHTS = ("class_weight", "head__class_weight")
"""The parameters that weight classes."""


class Fit(NamedTuple):
    """A fitted estimator, and as much of its description as the fit determines."""

    estimator: Any
    about: About

    def predict(self, data: ClipDataset, rows: Array) -> Array:
        """Return class probabilities [n, classes] for some rows, or predicted numbers [n, 1]."""
        groups: dict[str, Any] = {}
        if self.about.reads == "groups":
            groups["groups"] = data.groups.astype(str)[rows]
        X = input_of(data, self.about.reads)[rows]
        with plugin_errors(modules_of(self.estimator)):
            return predict_features(self.estimator, self.about, X, **groups)


def input_of(data: ClipDataset, reads: str) -> Array:
    """Return the frame features or the vectors of all clips."""
    X = data.frames if reads == "frames" else data.X
    assert X is not None
    return X


class FitMemo:
    """A cache in memory, so that several heads share a concept bank fitted on the same fold."""

    def __init__(self) -> None:
        self._results: dict[Any, Any] = {}

    def cache(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with cached results, as in `joblib.Memory.cache`."""

        def cached(*arguments: Any) -> Any:
            key = function, joblib.hash(arguments)
            if key not in self._results:
                self._results[key] = function(*arguments)
            return self._results[key]

        return cached

    def __deepcopy__(self, memo: Any) -> FitMemo:
        return self  # clones of an estimator share the cache


class FitRows(NamedTuple):
    """The rows that a fit uses.

    `fitted` are for training, and `held_out` for validation. `labelled` are the fitted rows whose
    labels are learned; only concepts are learned from the others. `seen` are all used rows.
    """

    labelled: Array
    fitted: Array
    held_out: Array
    seen: Array


def rows_of(plan: Plan, planned: PlannedFit) -> FitRows:
    """Return the rows that a fit uses.

    Concepts are learned from all clips of the training folds, and validated on all clips of the
    validation folds, even those that balancing or the task left out. Clips that the fit only
    tests, or that are too near its test clips, are left out. If training and validation share a
    fold, or clips have no fold, concepts are learned from the chosen clips only.
    """
    learner = planned.learner
    fold = planned.fold
    task = planned.task
    accepted = keywords(learner.estimator.fit)
    folds = plan.data.folds.copy()
    apart = np.union1d(fold.test_rows, fold.near)
    folds[np.setdiff1d(apart, np.union1d(fold.train, fold.validation))] = -1
    of_train = np.unique(folds[fold.train])
    of_held = np.unique(folds[fold.validation])
    share_a_fold = len(np.intersect1d(of_train, of_held)) > 0
    have_folds = min([*of_train, *of_held]) >= 0
    pool = fold.train
    held_out = fold.validation
    if have_folds and not share_a_fold:
        pool = np.flatnonzero(np.isin(folds, of_train))
        held_out = np.flatnonzero(np.isin(folds, of_held))

    labelled = fold.train
    if learner.is_guess:  # it counts classes before they are balanced
        labelled = pool[task.target.takes_part(plan.labels_of[task][pool])]
    learns_concepts = "labelled" in accepted
    if not learns_concepts:
        pool = labelled
        held_out = fold.validation
    seen = np.unique(pool)
    if "X_val" in accepted or learner.threshold:
        seen = np.union1d(pool, held_out)
    return FitRows(labelled, pool, held_out, seen)


def fit_planned(plan: Plan, planned: PlannedFit, memo: FitMemo | None = None) -> Fit:
    """Fit an estimator with the keyword arguments that its `fit` accepts."""
    learner = planned.learner
    fold = planned.fold
    data = plan.data
    labels = plan.labels_of[planned.task]
    rows = rows_of(plan, planned)
    fitted = rows.fitted
    held_out = rows.held_out
    model = _make_model(plan, planned, memo)
    accepted = keywords(learner.estimator.fit)
    if isinstance(model, StoreFusion):  # it keeps films whole in the inner folds of its model
        accepted |= {"groups"}
    concepts = data.concepts
    if "concepts" in accepted:
        concepts = clip_targets(data, learner.negatives)
    films = data.groups.astype(str)
    X = input_of(data, learner.reads)
    offered = {
        "concepts": concepts[fitted],
        "concepts_val": concepts[held_out],
        "concept_names": data.concept_names,
        "groups": films[fitted],
        "groups_val": films[held_out],
        "labelled": np.isin(fitted, rows.labelled),
        "labelled_val": np.isin(held_out, fold.validation),
        "X_val": X[held_out],
        "y_val": labels[held_out],
    }
    arguments = {name: value for name, value in offered.items() if name in accepted}
    fit = _fit_model(model, planned, X[fitted], labels[fitted], films[fitted], arguments)
    if learner.threshold:
        scores = fit.predict(data, fold.validation)[:, 1]
        cut = best_cut(scores, labels[fold.validation] == 1)
        return Fit(fit.estimator, msgspec.structs.replace(fit.about, cut=cut))
    return fit


def about_model(plan: Plan, planned: PlannedFit, about: About) -> About:
    """Return the description of a fit, completed with its learner, features and footage."""
    data = plan.data
    items = plan.manifest.items
    learner = planned.learner
    options = dict(learner.options)
    if learner.negatives:
        options["negatives"] = learner.negatives
    if learner.threshold:
        options["threshold"] = learner.threshold
    seen = rows_of(plan, planned).seen
    groups = {*data.groups[seen].tolist()} - {""}
    held_out = {*data.groups[planned.fold.test_rows].tolist()}
    # A fit that leaves out whole films has seen the others; it need not list each of their clips.
    is_whole = bool(held_out) and "" not in held_out and not held_out & groups
    spans = {} if is_whole else spans_of(items, data.ids_at(seen))
    return msgspec.structs.replace(
        about,
        model=planned.model,
        estimator=learner.name,
        options=options,
        features=plan.features(frames=about.reads == "frames"),
        levels=plan.scheme.name_of,
        senses=plan.scheme.senses,
        seen=spans,
        seen_groups={data.grouped_by: sorted(groups)},
        warnings=origin_warnings(items, plan.store.attributes),
    )


def tabulate_tests(
    plan: Plan,
    problem: Problem,
    model: str,
    fold: Fold,
    outputs: Array,
) -> list[pd.DataFrame]:
    """Return a table of predictions for each test set that can be scored.

    `outputs` are class probabilities [test rows, classes], or numbers [test rows, 1]. Labels are as
    in ``predictions.csv``. `read_labels` converts them to numbers.
    """
    tables = []
    for test in problem.tests:
        if test.key in fold.tests:
            rows = fold.tests[test.key]
            target = test.target
            columns = {
                "id": plan.data.ids_at(rows),
                "model": model,
                "fit": fold.index,
                "test": test.key,
                "label": target.format_labels(test, plan.labels_of[test][rows]),
            }
            shares = target.to_columns(outputs[np.searchsorted(fold.test_rows, rows)])
            columns |= zip(target.columns(test.class_keys), shares.T, strict=True)
            tables.append(pd.DataFrame(columns))
    return tables


def _make_model(plan: Plan, planned: PlannedFit, memo: FitMemo | None) -> Any:
    """Return the unfitted estimator of a fit, in a `StoreFusion` if it reads several stores."""
    learner = planned.learner
    model = make_estimator(learner.name, learner.options, random_state=planned.fold.seed)
    if plan.experiment.balance == "weights" and not learner.is_guess:
        parameters = model.get_params(deep=True)
        for key in WEIGHTS:
            if key in parameters and key not in learner.options:
                model.set_params(**{key: "balanced"})
    if memo is not None and "memory" in model.get_params(deep=False):
        model.set_params(memory=memo)
    if len(plan.data.stores) > 1 and learner.reads == "features" and not learner.is_guess:
        return StoreFusion(model, dict(plan.data.stores))
    return model


def _fit_model(
    model: Any,
    planned: PlannedFit,
    X: Array,
    y: Array,
    films: Array,
    arguments: Mapping[str, Any],
) -> Fit:
    """Fit a model with inner folds that keep films whole, and collect its choices and warnings."""
    strata = planned.task.target.strata(y)
    # Arguments are passed by the signature of fit, even if a caller has enabled metadata routing.
    with (
        plugin_errors(modules_of(model)),
        config_context(enable_metadata_routing=False),
        warnings.catch_warnings(record=True) as raised,
    ):
        warnings.simplefilter("always", UserWarning)
        with whole_groups(model, strata, films):
            model.fit(X, y, **arguments)
        model = best_of(model)
        if isinstance(model, StoreFusion):
            model.set_params(estimator=best_of(model.estimator))  # do not save the search itself
        codes = np.asarray(getattr(model, "classes_", ()))
        if not is_regressor(model) and codes.dtype.kind not in "iu":
            raise ExperimentError("fit must set classes_ to the sorted classes of y")
        facts = msgspec.json.encode(getattr(model, "facts_", {}), enc_hook=_as_plain)
        notes = [*getattr(model, "warnings_", [])]
    named = []
    for note in notes or [warning.message for warning in raised]:
        if not isinstance(note, RunWarning):
            note = RunWarning("fit", planned.model, one_line(note))
        named.append(note)
    about = About(
        reads=planned.learner.reads,
        task=planned.task,
        facts=msgspec.json.decode(facts),  # NaN becomes None
        notes=unique_warnings(named),
    )
    return Fit(model, about)


def _as_plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"facts_ must contain only JSON values (got {type(value).__name__})")
