"""One model for use: trained on the labelled clips but those that stop it, balanced as in a run.

`run_experiment` says how well such a model does; here is nothing left to test it on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from obygaze_models.data.protocols import balanced
from obygaze_models.data.stores import open_stores
from obygaze_models.data.tasks import levels_of
from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.registry import make_estimator
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import fit_estimator
from obygaze_models.experiments.make_record import about_model
from obygaze_models.experiments.plan import make_plan
from obygaze_models.saved.model_card import CARD, model_card

__all__ = ["TrainedModel", "train_model"]


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
    learners = experiment.learners
    name = estimator or next(iter(learners))
    if name not in learners:
        raise ExperimentError(f"{experiment.name!r}: {unknown_name('estimator', name, learners)}")
    manifest, store = Manifest.load(experiment.manifest), open_stores(experiment.store)
    scheme = manifest.label_scheme(experiment.labels)
    experiment = experiment.in_codes(scheme)
    problems = {problem.train.name: problem for problem in experiment.problems(scheme)}
    chosen = next(
        (task for task in problems if concept is None or task.startswith(f"{concept} vs ")), None
    )
    if chosen is None:
        raise ExperimentError(
            f"{experiment.name!r}: {unknown_name('task', f'{concept} vs ...', problems)}"
        )
    task = problems[chosen].train
    plan = make_plan(experiment, manifest, [problems[chosen]])
    if plan.note:
        log(f"{experiment.name}: {plan.note}")
    wanted = levels_of([task], manifest.labels(experiment.labels))
    data, joined = plan.join(experiment, manifest, store, wanted)
    labels = task.labels(data)
    rows = np.flatnonzero((labels >= 0) & (data.folds >= 0))
    if plan.protocol == "official":  # as in a run: the test set has no part, not even to stop
        [draw] = plan.folds(data, problems[chosen], seed=experiment.seed)
        train, validation, seed = draw.train, draw.validation, draw.seed
    else:
        seed = experiment.seed
        held = data.folds[rows] == plan.last
        train, validation = rows[~held], rows[held]
        if len(task.classes) == 2:  # as in a run: the larger class is drawn from
            train = balanced(train, labels, seed, experiment.balance or "undersample")
    for part, rows_of_part in (("training", train), ("validation", validation)):
        if len(np.unique(labels[rows_of_part])) < len(task.classes):
            raise ExperimentError(
                f"the {part} clips of {task.name} are not of every class; give a split whose last "
                "fold has clips of each"
            )
    from obygaze_models.saved.persistence import check_savable, save_model

    spec = learners[name]
    try:
        check_savable(make_estimator(spec.name, spec.options))
        with threadpool_limits(1):
            fitted = fit_estimator(
                spec, data, train, validation, labels, seed, balance=experiment.balance
            )
    except (ExperimentError, ValueError) as problem:  # scikit-learn raises the latter
        raise ExperimentError(f"{name} cannot be trained: {one_line(problem)}") from problem
    about = about_model(name, experiment, task, fitted, data, manifest, store)
    with new_folder(output, overwrite=overwrite, marker="model.json", allow_missing=True) as folder:
        folder.rmdir()
        save_model(fitted.model, folder, about)
        card = model_card(
            output.name, about, manifest, trained=len(train), validated=len(validation)
        )
        write_text(folder / CARD, card)
    return TrainedModel(
        path=output,
        task=task.name,
        trained=len(train),
        validated=len(validation),
        seen=len(fitted.seen),
        join=joined,
        facts=fitted.facts,
        warnings=[RunWarning(**warning) for warning in about["warnings"]],
    )
