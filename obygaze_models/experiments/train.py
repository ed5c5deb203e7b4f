"""One model for use: trained on the labelled clips but those that stop it, balanced as in a run.

`run_experiment` says how well such a model does; here is nothing left to test it on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from obygaze_features.common.files import new_folder, write_text
from obygaze_features.common.plugins import one_line
from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_models.data.dataset import Join
from obygaze_models.data.folds import Fold, balanced
from obygaze_models.data.tasks import ConceptTask
from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.registry import make_estimator
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import PlannedFit, fit_estimator
from obygaze_models.experiments.outcome import about_model
from obygaze_models.experiments.plan import Plan, plan_clips
from obygaze_models.saved.about import CARD, model_card


@dataclass(frozen=True)
class TrainedModel:
    """What was trained, from how many clips, and what came together.

    Parameters
    ----------
    path
        The model's folder.
    task
        What it tells apart.
    trained, validated
        How many clips it learnt to tell apart, and how many stopped it.
    seen
        How many clips it has seen in all: concepts are learnt from more.
    join
        What was missing on either side.
    facts
        What the estimator chose.
    warnings
        What must be said wherever the model is used.
    """

    path: Path
    task: str
    trained: int
    validated: int
    seen: int
    join: Join
    facts: dict[str, Any]
    warnings: list[RunWarning]


def train_model(
    experiment: Experiment,
    output: Path,
    *,
    estimator: str | None = None,
    concept: str | None = None,
    overwrite: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> TrainedModel:
    """Train one estimator of an experiment on all its labelled clips.

    The clips of the last fold stop the training; in a run they would be tested. By the official
    protocol they are left alone, and the model is what a run would have trained.

    Parameters
    ----------
    experiment
        Its first task, features, fold column and seed are used.
    output
        The model's folder.
    estimator
        Which of the experiment's; by default the first.
    concept
        Which of its concepts, where it has several; by default the first.
    overwrite
        Replace an earlier model.
    log
        Called with a line about the split that was taken.
    """
    name = estimator or next(iter(experiment.learners))
    if name not in experiment.learners:
        known = unknown_name("estimator", name, experiment.learners)
        raise ExperimentError(f"{experiment.name!r}: {known}")
    plan = plan_clips(_with_one_problem(experiment, concept))
    if plan.division.note:
        log(f"{experiment.name}: {plan.division.note}")
    [problem], data, spec = plan.problems, plan.data, experiment.learners[name]
    task, fold = problem.train, _fold(plan)
    labels = task.labels(data)
    for part, rows in (("training", fold.train), ("validation", fold.validation)):
        if len(np.unique(labels[rows])) < len(task.classes):
            raise ExperimentError(
                f"the {part} clips of {task.name} are not of every class; give a split whose last "
                "fold has clips of each"
            )
    from obygaze_models.saved.persistence import check_savable, save_model

    try:
        check_savable(make_estimator(spec.name, spec.options))
        with threadpool_limits(1):
            fit = fit_estimator(
                spec, data, fold.train, fold.validation, labels, fold.seed,
                balance=experiment.balance,
            )  # fmt: skip
    except (ExperimentError, ValueError) as problem_:  # scikit-learn raises the latter
        raise ExperimentError(f"{name} cannot be trained: {one_line(problem_)}") from problem_
    about = about_model(plan, PlannedFit(name, spec, problem, fold), fit)
    trained, validated = len(fold.train), len(fold.validation)
    with new_folder(output, overwrite=overwrite, marker="model.json", allow_missing=True) as folder:
        folder.rmdir()
        save_model(fit.model, folder, about)
        card = model_card(output.name, about, plan.manifest, trained=trained, validated=validated)
        write_text(folder / CARD, card)
    return TrainedModel(
        path=output,
        task=task.name,
        trained=trained,
        validated=validated,
        seen=len(fit.seen),
        join=plan.join,
        facts=fit.facts,
        warnings=[RunWarning(**warning) for warning in about["warnings"]],
    )


def _with_one_problem(experiment: Experiment, concept: str | None) -> Experiment:
    """The experiment, of its concepts only one; its tests are those of its training."""
    scheme = Manifest.load(experiment.manifest).label_scheme(experiment.labels)
    problems = {
        problem.train.concept: problem
        for problem in experiment.in_codes(scheme).problems(scheme)
        if isinstance(problem.train, ConceptTask)
    }
    if not problems and concept is None:
        return replace(experiment, test_negatives=())
    if concept is None:
        return replace(experiment, concepts=(next(iter(problems)),))
    name = scheme.concept(concept) if scheme.has_concept(concept) else concept
    if name not in problems:
        raise ExperimentError(f"{experiment.name!r}: {unknown_name('concept', concept, problems)}")
    return replace(experiment, concepts=(name,))


def _fold(plan: Plan) -> Fold:
    """All clips train but those of the last fold, which stop the training."""
    [problem], data, seed = plan.problems, plan.data, plan.experiment.seed
    if plan.division.protocol == "official":  # the test set has no part, not even to stop
        [fold] = plan.division.folds(data, problem, seed=seed)
        return fold
    labels = problem.train.labels(data)
    rows = np.flatnonzero((labels >= 0) & (data.folds >= 0))
    held = data.folds[rows] == plan.division.last
    train = rows[~held]
    if len(problem.train.classes) == 2:  # as in a run: the larger class is drawn from
        train = balanced(train, labels, seed, plan.experiment.balance or "undersample")
    return Fold(0, "all but the last fold", seed, train, rows[held], {})
