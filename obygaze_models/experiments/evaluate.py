"""The heart of an experiment: arrays in, predictions out; no files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from obygaze_features.common.progress import progress
from obygaze_features.errors import ExperimentError
from obygaze_models.dataset import ClipDataset as Known
from obygaze_models.experiments.experiment import Problem
from obygaze_models.experiments.fit import EstimatorSpec, Fit, FitMemo, fit_estimator
from obygaze_models.experiments.record import Skipped
from obygaze_models.protocols import Fold as Draw
from obygaze_models.tasks import Task

__all__ = ["Evaluation", "Prediction", "Trained", "evaluate", "usable"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Trained:
    """One model of one run, as it was trained."""

    model: str
    task: Task
    draw: Draw
    fitted: Fit


@dataclass(frozen=True, eq=False)
class Prediction:
    """What one model of one run said about one test set: [n, classes] for its rows."""

    model: str
    task: str
    draw: Draw
    test: Task
    rows: Array
    labels: Array
    probabilities: Array


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All that came of training and testing.

    `seen` has by task and run the rows that some model of it looked at in any way.
    """

    known: Known
    draws: dict[str, list[Draw]]
    skipped: list[Skipped]
    predictions: list[Prediction]
    history: list[dict[str, Any]]
    seen: dict[tuple[str, int], Array]


def usable(
    known: Known, problem: Problem, draws: Sequence[Draw]
) -> tuple[list[Draw], list[Skipped]]:
    """The draws that can be trained and tested, and why the others cannot.

    Training needs clips of every class, validation and each test of at least two.
    """
    kept, skipped = [], []
    task = problem.train
    labels = task.labels(known)
    tested = {test.name: test for test in problem.tests}
    for draw in draws:
        why = _lack("training set", task, labels[draw.train], len(task.classes)) or _lack(
            "validation set", task, labels[draw.validation], 2
        )
        if why:
            skipped.append(Skipped(task=task.name, fit=draw.run, what=draw.name, why=why))
            continue
        tests = dict(draw.tests)
        for name, rows in draw.tests.items():
            if why := _lack("test set", tested[name], tested[name].labels(known)[rows], 2):
                what = f"{draw.name}, test {name}"
                skipped.append(Skipped(task=task.name, fit=draw.run, what=what, why=why))
                del tests[name]
        if tests:
            kept.append(replace(draw, tests=tests))
    return kept, skipped


def evaluate(
    known: Known,
    problems: Sequence[Problem],
    draws_of: Callable[[Problem], list[Draw]],
    learners: Mapping[str, EstimatorSpec],
    *,
    keep: Callable[[Trained], None] = lambda trained: None,
) -> Evaluation:
    """Train every learner in every run of every problem, and let it predict every test set.

    Parameters
    ----------
    known
        All clips.
    problems
        What is learnt and tested.
    draws_of
        The runs of a problem; `Plan.draws` gives them.
    learners
        What is trained, by the name under which it is listed.
    keep
        Called with each model as it is trained, to save it.
    """
    broken = np.flatnonzero(~np.isfinite(known.features).all(axis=1))
    if len(broken):
        names = ", ".join(known.ids[row] for row in broken[:5])
        raise ExperimentError(
            f"{len(broken)} clips have features that are not finite numbers, such as {names}; "
            "verify the store and extract them again"
        )
    draws: dict[str, list[Draw]] = {}
    skipped: list[Skipped] = []
    for problem in problems:
        draws[problem.train.name], more = usable(known, problem, draws_of(problem))
        skipped += more
    if not any(draws.values()):
        first = skipped[0]
        raise ExperimentError(
            f"nothing can be learnt: in {first.task}, {first.what}, {first.why}; "
            "label more clips, make fewer folds (obygaze manifests split MANIFEST --folds N "
            "--overwrite), or see which clips the store lacks"
        )
    predictions: list[Prediction] = []
    history: list[dict[str, Any]] = []
    seen: dict[tuple[str, int], Array] = {}
    todo = [
        (problem, name, draw)
        for problem in problems
        for name in learners
        for draw in draws[problem.train.name]
    ]
    memo = FitMemo()
    # Steps this small are faster on one thread than on several.
    with threadpool_limits(1):
        for problem, name, draw in progress(todo, "train", unit="model"):
            task = problem.train
            labels = task.labels(known)
            try:
                fitted = fit_estimator(
                    learners[name], known, draw.train, draw.validation, labels, draw.seed, memo
                )
                found = _predict(known, problem, name, draw, fitted)
            except (ExperimentError, ValueError) as reason:  # scikit-learn raises the latter
                # One that cannot learn here does not take the others' work with it.
                what = f"{name}, {draw.name}"
                skipped.append(Skipped(task=task.name, fit=draw.run, what=what, why=str(reason)))
                continue
            keep(Trained(name, task, draw, fitted))
            key = {"model": name, "task": task.name, "fit": draw.run}
            history += [{**key, **epoch} for epoch in fitted.history]
            before = seen.get((task.name, draw.run), np.array([], dtype=np.intp))
            seen[task.name, draw.run] = np.union1d(before, fitted.seen)
            predictions += found
    if not predictions:
        raise ExperimentError(f"nothing could be learnt: {skipped[-1].what}: {skipped[-1].why}")
    return Evaluation(known, draws, skipped, predictions, history, seen)


def _predict(
    known: Known, problem: Problem, model: str, draw: Draw, fitted: Fit
) -> list[Prediction]:
    """All test sets of a run; a clip of several is asked about once."""
    rows = np.unique(np.concatenate(list(draw.tests.values())))
    said = fitted.probabilities(known, rows)
    found = []
    for test in problem.tests:
        if test.name in draw.tests:
            mine = draw.tests[test.name]
            found.append(
                Prediction(
                    model,
                    problem.train.name,
                    draw,
                    test,
                    mine,
                    test.labels(known)[mine],
                    said[np.searchsorted(rows, mine)],
                )
            )
    return found


def _lack(what: str, task: Task, labels: Array, classes: int) -> str:
    """Why a set cannot be used; empty if it can."""
    counts = [int((labels == code).sum()) for code in range(len(task.classes))]
    if sum(count > 0 for count in counts) >= classes:
        return ""
    having = " and ".join(
        f"{count} of {name}" for count, name in zip(counts, task.classes, strict=True)
    )
    return f"the {what} has {having}"
