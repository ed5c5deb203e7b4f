"""Train one model on the labelled clips of all folds of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from obygaze_features.common.plugins import one_line
from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.data.folds import Fold, balanced, draw_folds
from obygaze_models.data.tasks import Problem
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import about_model, fit_planned, rows_of
from obygaze_models.experiments.plan import Plan, PlannedFit, make_plan
from obygaze_models.saved.about import model_card
from obygaze_models.saved.model import save_model
from obygaze_models.scoring.metrics import Array


def train_model(
    experiment: Experiment | str | Path,
    output: str | Path,
    *,
    estimator: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
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
        The model's folder.
    estimator
        The estimator to train; by default the first. It learns the first task.
    overwrite
        Replace an existing model.

    Returns
    -------
    The model's folder (``path``) and ``task``, and the numbers of clips that it was ``trained`` and
    ``validated`` on, and of all clips that it has ``seen``.
    """
    plan = make_plan(experiment)
    learners = plan.experiment.learners
    name = estimator or next(iter(learners), "")
    if name not in learners:
        raise ExperimentError(unknown_name("estimator", name, learners))
    problem = plan.problems[0]
    learner = learners[name]
    fold = _fold_of_all(plan, problem, validate=learner.uses_validation)
    planned = PlannedFit(name, learner, problem, fold)
    parts = {"training": fold.train}
    if learner.uses_validation:
        parts["validation"] = fold.validation
    for part, rows in parts.items():
        missing = plan.missing(problem.train, rows)
        if missing:
            raise ExperimentError(
                f"the {part} set of {problem.train.key} has {missing}. Label at least two "
                "clips of each class, in different folds or films"
            )
    try:
        with threadpool_limits(1):
            fit = fit_planned(plan, planned)
    except (ExperimentError, ValueError) as reason:  # scikit-learn raises ValueError
        raise ExperimentError(f"{name} cannot be trained: {one_line(reason)}") from reason
    about = about_model(plan, planned, fit.about)
    counts = {
        "trained": len(fold.train),
        "validated": len(fold.validation) if learner.uses_validation else 0,
        "seen": len(rows_of(plan, planned).seen),
    }
    output = Path(output)
    card = model_card(output.name, about, plan.manifest, counts)
    save_model(fit.estimator, output, about, card=card, overwrite=overwrite)
    return {"path": output.as_posix(), "task": problem.train.key, **counts}


def _fold_of_all(plan: Plan, problem: Problem, *, validate: bool) -> Fold:
    """Return a fold that trains on all but validation and official test clips, balanced."""
    data = plan.data
    seed = plan.experiment.seed
    if plan.protocol.own_sets:  # the test set is not even used for validation
        return next(plan.folds(problem, validate=True))
    labels = problem.train.target.strata(plan.labels_of[problem.train])
    folds = data.folds
    if not plan.division.fold_of:
        folds = draw_folds(labels, seed)
    rows = np.flatnonzero((labels >= 0) & (folds >= 0))
    held = np.zeros_like(rows, bool)
    if validate:
        held = _held_out(folds[rows], labels[rows])
    train = balanced(rows[~held], labels, seed, plan.balance or "none")
    return Fold(0, "all clips", seed, train, rows[held], {})


def _held_out(folds: Array, labels: Array) -> Array:
    """Return a mask of the validation clips: the last fold with all classes, or several folds."""
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
