"""The heart of an experiment: arrays in, predictions out; no files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from obygaze_features.common.plugins import one_line
from obygaze_features.common.progress import progress
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.protocols import Fold
from obygaze_models.data.tasks import Task
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.estimators.attention import check_frames
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.experiments.experiment import Problem
from obygaze_models.experiments.fit import EstimatorSpec, Fit, FitMemo, fit_estimator
from obygaze_models.experiments.outside import OutsideModel
from obygaze_models.experiments.predictions import FitPredictions
from obygaze_models.experiments.record import Skipped

__all__ = ["Evaluation", "FitResult", "evaluate", "usable_folds"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FitResult:
    """What came of one fit.

    Parameters
    ----------
    model, task, fold
        The name of the estimator in the experiment, and what it was fitted to.
    fit
        The fit; None where it failed, and `reason` says why.
    table
        The probabilities [n, classes] of the fold's test rows, see `test_rows`.
    """

    model: str
    task: Task
    fold: Fold
    fit: Fit | None
    table: Array | None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All that came of training and testing.

    `folds` are by task; `seen` has by task and fold the rows that some model of it looked at;
    `warnings` are those of other packages' estimators, in any of their fits.
    """

    data: ClipDataset
    folds: dict[str, list[Fold]]
    skipped: list[Skipped]
    predictions: list[FitPredictions]
    history: list[dict[str, Any]]
    seen: dict[tuple[str, int], Array]
    warnings: list[RunWarning]


def usable_folds(
    data: ClipDataset, problem: Problem, folds: Sequence[Fold]
) -> tuple[list[Fold], list[Skipped]]:
    """The folds that can be trained and tested, and why the others cannot.

    Training needs clips of every class, validation and each test of at least two.
    """
    usable, skipped = [], []
    task = problem.train
    labels = task.labels(data)
    tested = {test.name: test for test in problem.tests}
    for fold in folds:
        why = _missing_classes(
            "training set", task, labels[fold.train], len(task.classes)
        ) or _missing_classes("validation set", task, labels[fold.validation], 2)
        if why:
            skipped.append(Skipped(task=task.name, fit=fold.index, what=fold.name, why=why))
            continue
        tests = dict(fold.tests)
        for name, rows in fold.tests.items():
            codes = tested[name].labels(data)[rows]
            if why := _missing_classes("test set", tested[name], codes, 2):
                what = f"{fold.name}, test {name}"
                skipped.append(Skipped(task=task.name, fit=fold.index, what=what, why=why))
                del tests[name]
        if tests:
            usable.append(replace(fold, tests=tests))
    return usable, skipped


def evaluate(
    data: ClipDataset,
    problems: Sequence[Problem],
    folds_of: Callable[[Problem], list[Fold]],
    estimators: Mapping[str, EstimatorSpec],
    *,
    outside: Sequence[OutsideModel] = (),
    finished: Callable[[str, Task, Fold], FitResult | None] = lambda model, task, fold: None,
    on_result: Callable[[FitResult, int], None] = lambda result, total: None,
    memo: FitMemo | None = None,
    balance: str | None = None,
) -> Evaluation:
    """Fit every estimator in every fold of every problem, and predict every test set.

    Parameters
    ----------
    data
        All clips.
    problems
        What is learnt and tested.
    folds_of
        The folds of a problem; `Plan.folds` gives them.
    estimators
        What is fitted, by the name under which it is listed.
    outside
        Models that only bring predictions.
    finished
        The result of an earlier, interrupted evaluation, if it has one.
    on_result
        Called with each result, and the number of fits in all.
    memo
        Fitted banks of earlier evaluations.
    balance
        How training clips are balanced, as an experiment has it.
    """
    broken = np.flatnonzero(~np.isfinite(data.X).all(axis=1))
    if len(broken):
        names = ", ".join(data.ids[row] for row in broken[:5])
        raise ExperimentError(
            f"{counted(len(broken), 'clip has', 'clips have')} features that are not finite "
            f"numbers, such as {names}; verify the store and extract them again"
        )
    if data.frames is not None:
        check_frames(data.frames, data.ids)
    folds: dict[str, list[Fold]] = {}
    skipped: list[Skipped] = []
    for problem in problems:
        folds[problem.train.name], more = usable_folds(data, problem, folds_of(problem))
        skipped += more
    if not any(folds.values()):
        first = skipped[0]
        raise ExperimentError(
            f"nothing can be learnt: in {first.task}, {first.what}, {first.why}; "
            "label more clips, make fewer folds (obygaze manifests split MANIFEST --folds N "
            "--overwrite), or see which clips the store lacks"
        )
    predictions: list[FitPredictions] = []
    history: list[dict[str, Any]] = []
    seen: dict[tuple[str, int], Array] = {}
    warnings: list[RunWarning] = []
    todo = [
        (problem, name, fold)
        for problem in problems
        for name in estimators
        for fold in folds[problem.train.name]
    ]
    memo = memo or FitMemo()
    # Steps this small are faster on one thread than on several.
    with threadpool_limits(1):
        for problem, name, fold in progress(todo, "train", unit="fit"):
            task = problem.train
            result = finished(name, task, fold) or _fit(
                data, task, name, fold, estimators[name], memo, balance
            )
            on_result(result, len(todo))
            if result.fit is None or result.table is None:
                what = f"{name}, {fold.name}"
                skipped.append(
                    Skipped(task=task.name, fit=fold.index, what=what, why=result.reason)
                )
                continue
            key = {"model": name, "task": task.name, "fit": fold.index}
            if estimators[name].name not in ESTIMATORS:
                warnings += [
                    RunWarning(note.code, name, f"{name}: {note.text}")
                    for note in result.fit.warnings
                ]
            history += [{**key, **epoch} for epoch in result.fit.history]
            before = seen.get((task.name, fold.index), np.array([], dtype=np.intp))
            seen[task.name, fold.index] = np.union1d(before, result.fit.seen)
            predictions += _predictions(data, problem, name, fold, result.table)
    for model in outside:
        for problem in problems:
            for fold in folds[problem.train.name]:
                ids = [data.ids[row] for row in test_rows(fold).tolist()]
                table = model.probabilities(problem.train, fold.index, ids)
                if table is not None:
                    predictions += _predictions(data, problem, model.name, fold, table)
                    continue
                what = f"{model.name}, {fold.name}"
                why = f"{model.path.name} has no predictions of fit {fold.index}"
                skipped.append(Skipped(task=problem.train.name, fit=fold.index, what=what, why=why))
    if not predictions:
        raise ExperimentError(f"nothing could be learnt: {skipped[-1].what}: {skipped[-1].why}")
    return Evaluation(data, folds, skipped, predictions, history, seen, unique_warnings(warnings))


def test_rows(fold: Fold) -> Array:
    """The rows of all test sets; a clip of several is asked about once."""
    return np.unique(np.concatenate(list(fold.tests.values())))


def _fit(
    data: ClipDataset,
    task: Task,
    name: str,
    fold: Fold,
    spec: EstimatorSpec,
    memo: FitMemo,
    balance: str | None,
) -> FitResult:
    try:
        labels = task.labels(data)
        fit = fit_estimator(
            spec, data, fold.train, fold.validation, labels, fold.seed, memo, balance=balance
        )
        return FitResult(name, task, fold, fit, fit.probabilities(data, test_rows(fold)))
    except (ExperimentError, ValueError) as reason:  # scikit-learn raises the latter
        # One that cannot learn here does not take the others' work with it.
        return FitResult(name, task, fold, None, None, one_line(reason))


def _predictions(
    data: ClipDataset, problem: Problem, model: str, fold: Fold, table: Array
) -> list[FitPredictions]:
    """What a table of the fold's test rows says of each test set."""
    all_rows, result = test_rows(fold), []
    for test in problem.tests:
        rows = fold.tests.get(test.name)
        if rows is not None:
            given = table[np.searchsorted(all_rows, rows)]
            result.append(
                FitPredictions(
                    model,
                    fold.index,
                    test.name,
                    [data.ids[row] for row in rows.tolist()],
                    test.labels(data)[rows],
                    given[:, 1] if len(test.classes) == 2 else given,
                    fold.group,
                )
            )
    return result


def _missing_classes(name: str, task: Task, labels: Array, classes: int) -> str:
    """Why a set cannot be used; empty if it can."""
    counts = [int((labels == code).sum()) for code in range(len(task.classes))]
    if sum(count > 0 for count in counts) >= classes:
        return ""
    missing = [label for label, count in zip(task.classes, counts, strict=True) if not count]
    return f"the {name} has no clip of {' or '.join(missing)}"
