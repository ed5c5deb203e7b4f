"""All that is known before anything is trained: the clips, what is fitted to which, and why not."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from obygaze_features.common.progress import progress
from obygaze_features.common.text import counted, redact_url
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.statistics import film_titles
from obygaze_features.store import Store
from obygaze_features.store.remote import is_url
from obygaze_models.data.dataset import ClipDataset, Join, join_clips
from obygaze_models.data.folds import Fold
from obygaze_models.data.protocols import FILM_CLIPS, PROTOCOLS
from obygaze_models.data.stores import open_stores
from obygaze_models.data.tasks import Problem, Task, levels_of
from obygaze_models.estimators.classes import check_frames
from obygaze_models.estimators.plugins import PluginError, plugin_versions
from obygaze_models.estimators.registry import make_estimator
from obygaze_models.experiments.division import Division, make_division
from obygaze_models.experiments.experiment import ALL, Experiment, load_experiment
from obygaze_models.experiments.fit import PlannedFit
from obygaze_models.experiments.outside import OutsideModel, read_outside
from obygaze_models.experiments.record import Films, Skipped

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Plan:
    """What an experiment will do.

    Parameters
    ----------
    experiment
        With levels by their codes, and the protocol that was chosen.
    manifest, store, problems
        Whose clips, which features, and what is learnt and tested.
    division
        How the protocol divides the clips.
    outside
        Models that only bring predictions.
    data, join
        The clips that take part; and what was missing on either side.
    levels
        The levels that the tasks ask for.
    folds, skipped
        By training task the folds that can be fitted and tested, and why the others cannot.
    identity
        Settings, digests and versions: what the numbers depend on.
    """

    experiment: Experiment
    manifest: Manifest
    store: Store
    problems: list[Problem]
    division: Division
    outside: list[OutsideModel]
    data: ClipDataset
    join: Join
    levels: frozenset[str]
    folds: dict[str, list[Fold]]
    skipped: list[Skipped]
    identity: dict[str, Any]

    def fits(self) -> list[PlannedFit]:
        """Every estimator in every fold of every problem."""
        return [
            PlannedFit(name, spec, problem, fold, self.experiment.balance)
            for problem in self.problems
            for name, spec in self.experiment.learners.items()
            for fold in self.folds[problem.train.name]
        ]

    @cached_property
    def films(self) -> Films:
        """Which films will be tested."""
        return _describe_films(self)

    def describe(self) -> str:
        """What would be trained and tested, on which clips, and what is left out."""
        folds = [fold for folds in self.folds.values() for fold in folds]
        sizes = [len(fold.train) for fold in folds]
        tested = {row for fold in folds for row in fold.test_rows.tolist()}
        films = ", ".join(self.films.titles.values())
        low, high = min(sizes), max(sizes)
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        lines = [
            f"{self.experiment.name}: {self.experiment.goal}",
            f"{counted(len(self.fits()), 'fit')}: {', '.join(self.experiment.learners)} in "
            f"{counted(len(folds), 'fold')}, each trained on {span} clips",
            f"protocol: {PROTOCOLS[self.division.protocol].title}",
            *self.notes,
            f"tested: {counted(len(tested), 'clip')}"
            + (f" of {counted(self.films.tested, 'film')} ({films})" if films else ""),
            f"{self.join.used} of {self.join.labelled} labelled clips have a fold and features",
            *self.join.lines(),
            *(f"skipped: {skip.task}, {skip.what}: {skip.why}" for skip in self.skipped),
        ]
        return "\n".join(fill(line, 100, subsequent_indent="  ") for line in lines)

    def estimate(self) -> float:
        """About how many seconds all fits take, by making one of each estimator."""
        fits = self.fits()
        counts = Counter(planned.model for planned in fits)
        seconds = 0.0
        for planned in progress(list({p.model: p for p in fits}.values()), "try", unit="fit"):
            begin = time.monotonic()
            with threadpool_limits(1):  # as a run does
                planned.compute(self.data)
            seconds += (time.monotonic() - begin) * counts[planned.model]
        return seconds

    @property
    def notes(self) -> list[str]:
        """What was chosen for the experiment, in a line each."""
        return [note for note in (self.division.note, self.films.note) if note]


def make_plan(experiment: Experiment | str | Path) -> Plan:
    """Plan an experiment; `ExperimentError` where nothing could be learnt."""
    plan = plan_clips(experiment)
    experiment, data = plan.experiment, plan.data
    folds: dict[str, list[Fold]] = {}
    skipped: list[Skipped] = []
    every: list[Fold] = []
    for problem in plan.problems:
        made = _folds(plan, problem)
        every += made
        folds[problem.train.name], more = _usable_folds(data, problem, made)
        skipped += more
    if not any(folds.values()):
        first = skipped[0]
        raise ExperimentError(
            f"nothing can be learnt: in {first.task}, {first.what}, {first.why}; "
            "label more clips, make fewer folds (obygaze manifests split MANIFEST --folds N "
            "--overwrite), or see which clips the store lacks"
        )
    identity = {
        "experiment": describe_experiment(replace(experiment, predictions=())),
        "manifest": plan.manifest.digest,
        "backbone": about_features(experiment, plan.store),
        "versions": _library_versions(experiment),
        **_digests(data, every),
    }
    return replace(plan, folds=folds, skipped=skipped, identity=identity)


def plan_clips(experiment: Experiment | str | Path) -> Plan:
    """A plan of the clips and their division, without its folds."""
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment)
    manifest = Manifest.load(experiment.manifest)
    scheme = manifest.label_scheme(experiment.labels)
    experiment = experiment.in_codes(scheme)
    store = open_stores(experiment.store)
    problems = experiment.problems(scheme)
    outside = [model for path in experiment.predictions for model in read_outside(path)]
    _check_names(experiment, [model.name for model in outside])
    division = make_division(experiment, manifest, problems)
    experiment = replace(experiment, protocol=division.protocol)
    tasks = [task for problem in problems for task in (problem.train, *problem.tests)]
    levels = frozenset(levels_of(tasks, manifest.labels(experiment.labels)))
    data, join = join_clips(
        manifest,
        store,
        levels,
        labels=experiment.labels,
        array=experiment.array,
        pooling=experiment.pooling,
        frames=experiment.frame_array,
        fold_of=division.fold_of,
        among=division.ids,
        concepts=[name for name in experiment.concepts if name != ALL],
    )
    _check_finite(data)
    return Plan(
        experiment, manifest, store, problems, division, outside, data, join, levels, {}, [], {}
    )


def _check_finite(data: ClipDataset) -> None:
    broken = np.flatnonzero(~np.isfinite(data.X).all(axis=1))
    if len(broken):
        names = ", ".join(data.ids[row] for row in broken[:5])
        raise ExperimentError(
            f"{counted(len(broken), 'clip has', 'clips have')} features that are not finite "
            f"numbers, such as {names}; verify the store and extract them again"
        )
    if data.frames is not None:
        check_frames(data.frames, data.ids)


def _check_names(experiment: Experiment, outside: Sequence[str]) -> None:
    names = [*experiment.learners, *outside]
    if not names:
        raise ExperimentError(
            f"{experiment.name!r}: estimators is empty; name one, or give --predictions FILE"
        )
    if double := [name for name in outside if names.count(name) > 1]:
        raise ExperimentError(
            f"{experiment.name!r}: two models are called {double[0]!r}; give the predictions "
            "another name, in their column model or as the name of their file"
        )


def _folds(plan: Plan, problem: Problem) -> list[Fold]:
    """The protocol's folds, once for each seed, numbered through."""
    experiment = plan.experiment
    seeds = experiment.seeds or (experiment.seed,)
    folds = [
        replace(fold, name=f"{fold.name}, seed {seed}") if len(seeds) > 1 else fold
        for seed in seeds
        for fold in plan.division.folds(plan.data, problem, seed=seed, balance=experiment.balance)
    ]
    return [replace(fold, index=index) for index, fold in enumerate(folds)]


def _usable_folds(
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


def _missing_classes(name: str, task: Task, labels: Array, classes: int) -> str:
    """Why a set cannot be used; empty if it can."""
    counts = [int((labels == code).sum()) for code in range(len(task.classes))]
    if sum(count > 0 for count in counts) >= classes:
        return ""
    missing = [label for label, count in zip(task.classes, counts, strict=True) if not count]
    return f"the {name} has no clip of {' or '.join(missing)}"


def describe_experiment(experiment: Experiment) -> dict[str, Any]:
    """Every setting as JSON values; paths have slashes, and URLs no secrets."""
    values: dict[str, Any] = asdict(experiment)
    stores = [
        redact_url(store) if is_url(store) else Path(store).as_posix()
        for store in experiment.stores
    ]
    values["manifest"] = experiment.manifest.as_posix()
    values["store"] = stores if isinstance(experiment.store, tuple) else stores[0]
    values["predictions"] = [path.as_posix() for path in experiment.predictions]
    return values


def _library_versions(experiment: Experiment) -> dict[str, str]:
    """Python, ours, and the libraries that decide the numbers; those of its estimators, too."""
    names = ("obygaze", "numpy", "scikit-learn", "torch")
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    for spec in experiment.learners.values():
        with suppress(PluginError):  # of which each fit tells
            versions |= plugin_versions(make_estimator(spec.name, spec.options))
    return versions


def about_features(experiment: Experiment, store: Store, *, frames: bool = False) -> dict[str, Any]:
    """What a saved model must know of the features, or frames, it fits, to refuse others."""
    attributes = store.attributes
    array = experiment.frames if frames else experiment.array
    return {
        "backbone": attributes["backbone"],
        "preprocessing": attributes["preprocessing"],
        "array": array,
        "shape": next(list(spec.shape) for spec in store.specs if spec.name == array),
        "pooling": None if frames else experiment.pooling,
    }


def _digests(data: ClipDataset, folds: Iterable[Fold]) -> dict[str, str]:
    """Digests of the clips with their labels and features, and of the folds."""
    labels = [data.ids, data.levels, list(data.concept_names), data.groups.tolist()]
    clips = hashlib.sha256(json.dumps(labels).encode())
    for array in (data.concepts, data.folds):
        clips.update(np.ascontiguousarray(array).tobytes())
    rows = hashlib.sha256()
    for fold in folds:
        rows.update(json.dumps([fold.index, fold.name, fold.seed, list(fold.tests)]).encode())
        for part in (fold.train, fold.validation, *fold.tests.values()):
            rows.update(part.tobytes())
    features = hashlib.sha256(np.ascontiguousarray(data.X).tobytes())
    if data.frames is not None:
        features.update(data.frames.data)
    return {
        "labels": clips.hexdigest(),
        "features": features.hexdigest(),
        "folds": rows.hexdigest(),
    }


def _describe_films(plan: Plan) -> Films:
    """How many films the test clips are of, how many of those train in the same fold, and why the
    others are not tested.
    """
    data = plan.data
    films, titles = data.groups.tolist(), film_titles(plan.manifest)
    tested: set[str] = set()
    also_trained: set[str] = set()
    for fold in (fold for folds in plan.folds.values() for fold in folds):
        test_films = {films[row] for rows in fold.tests.values() for row in rows.tolist()} - {""}
        tested |= test_films
        also_trained |= test_films & {films[row] for row in fold.train.tolist()}
    tasks = [task for problem in plan.problems for task in (problem.train, *problem.tests)]
    return Films(
        tested=len(tested),
        also_trained=len(also_trained),
        titles={film: titles.get(film, film) for film in sorted(tested)},
        untested={
            titles.get(film, film): _why_untested(
                data, data.groups == film, tasks, plan.division.protocol
            )
            for film in sorted(set(films) - tested - {""})
        },
    )


def _why_untested(data: ClipDataset, of_film: Array, tasks: Sequence[Task], protocol: str) -> str:
    """Why the clips of a film are not tested."""
    for task in tasks:
        labels = task.labels(data)[of_film]
        sizes = {name: int((labels == code).sum()) for code, name in enumerate(task.classes)}
        rarest = min(sizes, key=sizes.__getitem__)
        if protocol == "leave-film-out" and sizes[rarest] < FILM_CLIPS:
            clips = counted(sizes[rarest], "clip")
            return f"{clips} of {rarest}; {FILM_CLIPS} are needed to test"
        if len(sizes) == 2 and not sizes[rarest]:
            return f"no clip of {rarest}"
    return "not in a test fold"
