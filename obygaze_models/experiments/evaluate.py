"""The heart of an experiment: arrays in, predictions out; no files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from obygaze_features.common.progress import progress
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import keywords
from obygaze_models.estimators.registry import find_entry, make_estimator
from obygaze_models.estimators.targets import concept_targets
from obygaze_models.experiments.experiment import EstimatorSpec, Problem
from obygaze_models.experiments.known import Known
from obygaze_models.experiments.protocol import Draw
from obygaze_models.experiments.record import Skipped
from obygaze_models.experiments.task import Task
from obygaze_models.warnings import RunWarning

__all__ = [
    "Evaluation",
    "Fit",
    "FitMemo",
    "Prediction",
    "Trained",
    "evaluate",
    "fit_estimator",
    "usable",
]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted estimator, and what it was fitted to.

    Parameters
    ----------
    model
        The estimator.
    classes
        The number of classes of the labels; those that training lacked get probability 0.
    seen
        The rows that had any part in the fit: an audit for leaks looks at them.
    reads
        What it predicts from: ``features``, ``concepts`` (annotated) or ``groups`` (films).
    facts, history, warnings
        What the estimator chose, its epochs, and what a reader must know of it.
    """

    model: Any
    classes: int
    seen: Array
    reads: str = "features"
    facts: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[RunWarning] = field(default_factory=list)

    def probabilities(self, known: Known, rows: Array) -> Array:
        """The probability of each class for some rows, [n, classes]."""
        given = {} if self.reads == "features" else {self.reads: _annotations(known, self.reads)}
        given = {name: values[rows] for name, values in given.items()}
        table = np.zeros((len(rows), self.classes))
        table[:, self.model.classes_] = self.model.predict_proba(known.features[rows], **given)
        return table


class FitMemo:
    """Keeps what functions return, in this process: heads of one fold share their fitted bank."""

    def __init__(self) -> None:
        self._results: dict[str, Any] = {}

    def cache(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, called once for each set of arguments; as `joblib.Memory.cache`."""
        import joblib

        def cached(*arguments: Any) -> Any:
            key = joblib.hash((function.__qualname__, arguments))
            if key not in self._results:
                self._results[key] = function(*arguments)
            return self._results[key]

        return cached

    def __deepcopy__(self, memo: Any) -> FitMemo:
        return self  # a clone of an estimator shares it


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


def fit_estimator(
    spec: EstimatorSpec,
    known: Known,
    train: Array,
    validation: Array,
    labels: Array,
    seed: int,
    memo: FitMemo | None = None,
) -> Fit:
    """Make an estimator and fit it, with what its `fit` names.

    Parameters
    ----------
    spec
        The estimator and its options.
    known
        All clips.
    train, validation
        Rows of `known`.
    labels
        A class from 0 up for each clip of `known`, negative where it takes no part.
    seed
        Its random state, where the options give none.
    memo
        Keeps fitted banks for other estimators on the same rows.
    """
    model = make_estimator(spec.name, spec.options, random_state=seed)
    if memo is not None and "memory" in model.get_params(deep=False):
        model.set_params(memory=memo)
    wanted, reads = keywords(model.fit), keywords(model.predict_proba)
    all_train, all_validation = rows_of_same_folds(known, train, validation)
    if find_entry(spec.name).before_balancing:
        train = all_train[labels[all_train] >= 0]
    learn, choose = train, validation
    if "labelled" in wanted:
        learn, choose = all_train, all_validation
    parts: dict[str, Any] = {"concepts": None, "groups": np.array(known.films)}
    if "concepts" in reads:
        parts["concepts"] = _annotations(known, "concepts")
    elif "concepts" in wanted:
        parts["concepts"] = concept_targets(known.levels, known.concepts, spec.negatives)
    given = {name: part[learn] for name, part in parts.items() if name in wanted}
    given |= {
        f"{name}_val": part[choose] for name, part in parts.items() if f"{name}_val" in wanted
    }
    given |= {
        "labelled": np.isin(learn, train),
        "labelled_val": np.isin(choose, validation),
        "concept_names": known.concept_names,
        "X_val": known.features[choose],
        "y_val": labels[choose],
    }
    given = {name: value for name, value in given.items() if name in wanted}
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", UserWarning)
        model.fit(known.features[learn], labels[learn], **given)
    noted = list(getattr(model, "warnings_", []))
    if not noted:
        noted = [RunWarning("fit", spec.name, text) for text in {str(w.message): 0 for w in raised}]
    facts = dict(getattr(model, "facts_", {}))
    if "labelled" in wanted and "concepts" in facts:
        facts = {"negatives": spec.negatives, **facts}
    seen = np.concatenate([learn, train, *([choose, validation] if "X_val" in wanted else [])])
    return Fit(
        model,
        int(labels.max()) + 1,
        np.unique(seen),
        next((name for name in ("concepts", "groups") if name in reads), "features"),
        facts,
        list(getattr(model, "history_", [])),
        noted,
    )


def rows_of_same_folds(known: Known, train: Array, validation: Array) -> tuple[Array, Array]:
    """All clips of the training folds, and all of the validation folds.

    Concepts are learned from all of these, also those that balancing and the task left out, such
    as Easy Negatives. Where training and validation share a fold, or a clip has none (-1), the
    fold column does not describe the draw, and the very rows are returned.
    """
    folds, held = np.unique(known.folds[train]), np.unique(known.folds[validation])
    if len(np.intersect1d(folds, held)) or min(*folds, *held) < 0:
        return train, validation
    return np.flatnonzero(np.isin(known.folds, folds)), np.flatnonzero(np.isin(known.folds, held))


def _annotations(known: Known, name: str) -> Array:
    """The column of the clips that a model predicts from in place of features."""
    return np.array(known.films) if name == "groups" else known.concepts.astype(np.float64)


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
