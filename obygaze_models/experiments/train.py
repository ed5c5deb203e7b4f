"""Train one model on the labelled clips of all folds of an experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from obygaze_features.common.arrays import Array
from obygaze_features.common.names import unknown_name
from obygaze_features.common.plugins import one_line
from obygaze_features.errors import ExperimentError
from obygaze_models.data.folds import Fold, balanced
from obygaze_models.data.tasks import Task
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import fit_fold, rows_of
from obygaze_models.experiments.plan import Plan
from obygaze_models.experiments.run import make_plan
from obygaze_models.saved.about import model_card
from obygaze_models.saved.model import Model, save_model


def train_model(
    experiment: Experiment | str | Path,
    output: str | Path | None = None,
    *,
    estimator: str | None = None,
    overwrite: bool = False,
) -> Model:
    """Train one of an experiment's estimators on all folds, balanced as in a run.

    No clips are left to test the model. If the estimator uses validation clips, the last fold that
    has and leaves clips of every class is held out. If there is no such fold, folds that add a
    class are held out, the last first. The official protocol is an exception: the test set is left
    out, so the model is the same as in a run.

    Parameters
    ----------
    experiment
        An `Experiment`, or the path of its TOML file.
    output
        A folder for the model.
    estimator
        The estimator to train; by default the first. It learns the first task.
    overwrite
        Replace an existing model.
    """
    plan = make_plan(experiment)
    name = estimator or next(iter(plan.models), "")
    if name not in plan.models:
        raise ExperimentError(unknown_name("estimator", name, plan.models))
    task = next(iter(plan.tasks))
    learner = plan.models[name]
    fold = _fold_of_all(plan, task, validate=learner.uses_validation)
    _, skips = plan.usable(task, fold, validate=learner.uses_validation)
    for why in skips:
        raise ExperimentError(
            f"{task.key}: {why}. Label at least two clips of each class, in different folds or "
            "films"
        )
    try:
        with threadpool_limits(1):
            model = fit_fold(plan.data, task, learner, fold, name=name)
    except (ExperimentError, ValueError) as reason:  # scikit-learn raises ValueError
        raise ExperimentError(f"{name} cannot be trained: {one_line(reason)}") from reason
    counts = {
        "trained": len(fold.train),
        "validated": len(fold.validation) if learner.uses_validation else 0,
        "seen": len(rows_of(plan.data, task, learner, fold).seen),
    }
    model = replace(model, counts=counts)
    if output is not None:
        card = model_card(Path(output).name, model.about, plan.data.record.manifest, counts)
        save_model(model, output, card=card, overwrite=overwrite)
    return model


def _fold_of_all(plan: Plan, task: Task, *, validate: bool) -> Fold:
    """Return a fold that trains on all but validation and official test clips, balanced."""
    seed: Any = plan.cv.random_state
    if plan.cv.own_sets:  # the test set is not even used for validation
        return next(plan.folds(task, validate=True))
    labels = task.target.strata(plan.data.labels[task])
    folds = plan.data.folds
    if not plan.fold_of:
        folds = np.unique(plan.data.groups, return_inverse=True)[1]
    rows = np.flatnonzero((labels >= 0) & (folds >= 0))
    held = np.zeros_like(rows, bool)
    if validate:
        held = _held_out(folds[rows], labels[rows])
    train = balanced(rows[~held], labels, seed, plan.balance or "none")
    return Fold(0, "all clips", seed, train, rows[held], {})


def _held_out(folds: Array, labels: Array) -> Array:
    """Return a mask of the last fold that has and leaves all classes, or of several folds."""
    classes = {*labels.tolist()}
    last_first = np.unique(folds)[::-1]
    for fold in last_first:
        held: Array = folds == fold
        if {*labels[held].tolist()} == {*labels[~held].tolist()} == classes:
            return held
    held = np.zeros(len(folds), bool)
    for fold in last_first:  # add folds that have a new class
        if {*labels[folds == fold].tolist()} - {*labels[held].tolist()}:
            held |= folds == fold
    return held
