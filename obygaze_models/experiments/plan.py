"""The plan of an experiment: its clips and folds, the fits to make, and what is skipped and why."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from msgspec import structs
from threadpoolctl import threadpool_limits

from obygaze_features.common.progress import progress
from obygaze_features.common.text import counted, for_shell
from obygaze_features.errors import ExperimentError
from obygaze_features.items.films import distinct_titles, film_titles
from obygaze_features.manifests import LabelScheme, LabelSet, Manifest
from obygaze_features.manifests.splits import meet_in_time
from obygaze_features.store import Store
from obygaze_models.data.dataset import ClipDataset, Join, join_clips, with_numbers
from obygaze_models.data.folds import Fold, MadeWhenNeeded, Near
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.data.stores import open_stores
from obygaze_models.data.targets import Number
from obygaze_models.data.tasks import Problem, Task, levels_of, official_measure
from obygaze_models.estimators.classes import check_frames
from obygaze_models.estimators.registry import PluginError, plugin_versions
from obygaze_models.experiments.division import Division, make_division
from obygaze_models.experiments.experiment import (
    ALL,
    PROTOCOL_KEYS,
    Experiment,
    load_experiment,
)
from obygaze_models.experiments.fit import (
    PlannedFit,
    digest_of_values,
    skipped_fit,
    test_predictions,
)
from obygaze_models.experiments.messages import (
    class_table,
    leave_files_out,
    nothing_learnt,
    why_untested,
)
from obygaze_models.experiments.predictions import (
    ANY_FIT,
    OutsideModel,
    read_outside,
)
from obygaze_models.experiments.record import Films, Skipped
from obygaze_models.experiments.run_folder import Clip, Unused, annotated_clips
from obygaze_models.experiments.spec import folder_name
from obygaze_models.scoring.metrics import Array

_Part = tuple[Problem, int, str, Sequence[Fold]]
"""A problem, the number of earlier problems with the same folder name, an estimator, and folds."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of an experiment.

    Parameters
    ----------
    experiment
        The experiment, with level codes in place of names and with the chosen protocol filled in.
    manifest, store, problems
        The labelled items, the features, and the tasks to learn and test.
    division
        The protocol's division of the clips.
    outside, outside_predictions
        External models, and their predictions.
    data, join
        The clips that take part, and the clips that lack a label, a fold or features.
    folds
        The folds that can be fitted and tested, by training task.
    whole_from
        For leave-film-out, by training task: the number of the first fold without validation clips.
        This fold and all later folds are for estimators that do not use validation clips.
    skipped
        The folds and tests that are skipped, with the reasons.
    """

    experiment: Experiment
    manifest: Manifest
    store: Store
    problems: list[Problem]
    division: Division
    outside: list[OutsideModel]
    data: ClipDataset
    join: Join
    folds: dict[str, Sequence[Fold]] = field(default_factory=dict)
    whole_from: dict[str, int] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    outside_predictions: list[pd.DataFrame] = field(default_factory=list)

    @property
    def labels(self) -> LabelSet:
        """The label set of the experiment."""
        return self.manifest.labels(self.experiment.label_set)

    @property
    def scheme(self) -> LabelScheme:
        """The label scheme of the experiment."""
        return self.manifest.label_scheme(self.experiment.label_set)

    @property
    def measure(self) -> str | None:
        """The official measure for the tasks; None if they are not the tasks of a benchmark."""
        return official_measure(self.labels, self.scheme, self.tests)

    @property
    def tests(self) -> list[Task]:
        """The tasks to test, without duplicates."""
        return [*dict.fromkeys(test for problem in self.problems for test in problem.tests)]

    @property
    def tasks(self) -> list[Task]:
        """All tasks to learn and to test."""
        return [task for problem in self.problems for task in (problem.train, *problem.tests)]

    @property
    def all_folds(self) -> Iterator[Fold]:
        """The folds of all tasks."""
        return (fold for folds in self.folds.values() for fold in folds)

    def labels_of(self, task: Task) -> Array:
        """Return the label of each clip for a task."""
        if task not in self._labels:
            self._labels[task] = task.labels(self.data)
        return self._labels[task]

    @cached_property
    def _labels(self) -> dict[Task, Array]:
        return {}

    def folds_of(self, problem: Problem, *, validate: bool) -> Sequence[Fold]:
        """Return a problem's folds, with validation clips if `validate` is True."""
        name = problem.train.key
        folds, start = self.folds[name], self.whole_from.get(name)
        if start is None:
            return folds
        return folds[:start] if validate else folds[start:]

    def fits(self) -> Sequence[PlannedFit]:
        """Return all planned fits: for each problem, each estimator on each of its folds."""
        parts = self._parts()
        numbers = [(part, number) for part in parts for number in range(len(part[-1]))]

        def make_fit(index: int) -> PlannedFit:
            part, number = numbers[index]
            return self._planned(part, number)

        return MadeWhenNeeded(len(numbers), make_fit)

    def _parts(self) -> list[_Part]:
        """Return a part for each problem and estimator."""
        folders = [folder_name(problem.train.key).casefold() for problem in self.problems]
        return [
            (
                problem,
                folders[:number].count(folders[number]),
                name,
                self.folds_of(problem, validate=spec.uses_validation),
            )
            for number, problem in enumerate(self.problems)
            for name, spec in self.experiment.learners.items()
        ]

    def _planned(self, part: _Part, number: int) -> PlannedFit:
        problem, namesakes, name, folds = part
        spec, experiment = self.experiment.learners[name], self.experiment
        return PlannedFit(name, spec, problem, folds[number], experiment.balance, namesakes)

    @cached_property
    def versions(self) -> dict[str, str]:
        """The versions of Python, this package, and the libraries that affect the results."""
        versions = {name: version(name) for name in ("obygaze", "numpy", "scikit-learn", "torch")}
        for spec in self.experiment.learners.values():
            with suppress(PluginError):  # each fit reports it
                versions |= plugin_versions(spec.estimator)
        return {"python": platform.python_version(), **versions}

    def identity(self) -> dict[str, Any]:
        """Return the settings, digests and versions that the results depend on."""
        data, experiment = self.data, structs.replace(self.experiment, predictions=(), titles={})
        marks = data.concept_names, data.concepts, data.scheme.name_of
        annotated: tuple[Any, ...] = (data.ids, data.levels, data.groups, *marks)
        if data.numbers is not None:
            annotated += (data.numbers,)
        return {
            **msgspec.to_builtins(experiment.without_secrets()),
            **{f"version of {name}": number for name, number in self.versions.items()},
            **self.about_features(),
            "manifest": self.manifest.digest,
            "labels": digest_of_values((annotated, data.folds)),
            "features": digest_of_values((data.X, data.frames)),
            "folds": digest_of_values([digest_of_values(vars(fold)) for fold in self.all_folds]),
        }

    def about_features(self, *, frames: bool = False) -> dict[str, Any]:
        """Return the description of the features, or of the frames, for saved models."""
        attributes, experiment = self.store.attributes, self.experiment
        array = experiment.frames if frames else experiment.array
        return {
            "backbone": attributes["backbone"],
            "preprocessing": attributes["preprocessing"],
            "array": array,
            "shape": next(list(spec.shape) for spec in self.store.specs if spec.name == array),
        }

    @cached_property
    def films(self) -> Films:
        """The tested films, how many are also in training, and why other films are untested."""
        films, by = self.data.groups, self.data.grouped_by
        titles = {"film": film_titles(self.manifest.items), "media": self.file_names}.get(by, {})
        testable = np.any(
            [task.target.takes_part(self.labels_of(task)) for task in self.tests], axis=0
        )
        tested = {*films[self.tested_rows].tolist()} - {""}
        both = {
            film
            for fold in self.all_folds
            for film in np.intersect1d(films[fold.test_rows], films[fold.train]).tolist()
        }
        return Films(
            tested=len(tested),
            also_trained=len(both - {""}),
            titles={film: titles.get(film, film) for film in sorted(tested)},
            untested={
                titles.get(film, film): why_untested(self, film)
                for film in sorted({*films[testable].tolist()} - tested - {""})
            },
            by=by,
            clips=len(self.tested_rows),
            unnamed=int((films[self.tested_rows] == "").sum()),
            of=len(
                self.tested_rows if self.division.protocol == "leave-film-out" else films[testable]
            ),
        )

    @property
    def blank(self) -> list[str]:
        """The tested clips whose features are all zero."""
        return [self.data.ids[row] for row in self.tested_rows if not self.data.X[row].any()]

    @property
    def file_names(self) -> dict[str, str]:
        """The readable name of each file in the column ``media``, for messages."""
        items = self.manifest.items
        return distinct_titles(dict(zip(items.column("media"), items.media, strict=True)))

    def clips(self, leaked: Collection[str] = ()) -> dict[str, Clip]:
        """Return all labelled clips by id, with their folds and the reasons why some are unused."""
        reasons: dict[str, Unused] = dict.fromkeys(self.join.without_fold, "no-fold")
        reasons |= dict.fromkeys(self.join.without_features, "no-features")
        levels, folds = levels_of(self.tasks, self.labels, self.scheme), self.division.fold_of
        clips = annotated_clips(self.manifest, self.labels, self.data.grouped_by)
        for name, clip in clips.items():
            used: Unused = reasons.get(name, "") if clip.level in levels else "not-in-task"
            clips[name] = replace(clip, fold=folds.get(name), used=used, leaked=name in leaked)
        return clips

    def estimate(self) -> tuple[float, list[Skipped]]:
        """Estimate the seconds for all fits from one fit per estimator; also return failed fits."""
        last = {part[2]: part for part in self._parts() if part[-1]}
        counts, failed, seconds = self.fold_counts(), [], 0.0
        for name, part in progress(list(last.items()), "try", unit="fit"):
            begin = time.monotonic()
            with threadpool_limits(1):  # as in a run
                result = self._planned(part, -1).compute(self.data)
            failed += [result.skipped] if result.fit is None else []
            seconds += (time.monotonic() - begin) * counts[name]
        return seconds, failed

    def fold_counts(self) -> Counter[str]:
        """Count the fits of each estimator."""
        counts: Counter[str] = Counter()
        for _, _, name, folds in self._parts():
            counts[name] += len(folds)
        return counts

    @cached_property
    def tested_rows(self) -> list[int]:
        """The rows of the clips in the test set of any fold."""
        is_tested = np.zeros(len(self.data), dtype=bool)
        for fold in self.all_folds:
            is_tested[fold.test_rows] = True
        return np.flatnonzero(is_tested).tolist()


def make_plan(experiment: Experiment | str | Path) -> Plan:
    """Plan an experiment; raise `ExperimentError` if no model could be trained."""
    plan = plan_clips(experiment)
    experiment = plan.experiment
    near = _near(plan)
    for problem in plan.problems:
        try:
            _plan_folds(plan, problem, near)
        except ExperimentError as refusal:
            remedy = f"{refusal}{leave_files_out(plan)}"
            raise ExperimentError(f"{remedy}\n{class_table(plan, problem.train)}") from None
    if not any(plan.folds.values()):
        raise ExperimentError(nothing_learnt(plan, plan.skipped[0]))
    for model in plan.outside:
        _add_outside(plan, model)
    return plan


@dataclass(frozen=True, eq=False)
class _FoldPosition:
    """The position of a fold among the folds that a protocol makes with one seed."""

    folds: Sequence[Fold]
    number: int
    title: str
    validates: bool


def _plan_folds(plan: Plan, problem: Problem, near: Near) -> None:
    """Add a problem's usable folds to the plan.

    Each fold keeps its number among all folds. Folds are not stored, but made again when needed.
    """
    experiment, name = plan.experiment, problem.train.key
    seeds = experiment.seeds or (experiment.seed,)
    positions: list[_FoldPosition] = []
    for validates in _kinds_of_folds(plan, problem):
        options = _fold_options(experiment, validates=validates)
        for seed in seeds:
            folds = plan.division.folds(plan.data, problem, seed=seed, near=near, **options)
            title = f", seed {seed}" if len(seeds) > 1 else ""
            positions += [
                _FoldPosition(folds, number, title, validates) for number in range(len(folds))
            ]

    def make_fold(index: int, tests: Collection[str]) -> Fold:
        position = positions[index]
        fold = position.folds[position.number]
        usable_sets = {test: rows for test, rows in fold.tests.items() if test in tests}
        return replace(fold, index=index, name=fold.name + position.title, tests=usable_sets)

    usable: list[tuple[int, tuple[str, ...]]] = []
    all_tests = [task.key for task in problem.tests]
    for index, position in enumerate(positions):
        fold = make_fold(index, all_tests)
        if tests := _usable_tests(plan, problem, fold, validates=position.validates):
            usable.append((index, tests))
    plan.folds[name] = MadeWhenNeeded(len(usable), lambda number: make_fold(*usable[number]))
    if plan.division.protocol == "leave-film-out":
        plan.whole_from[name] = sum(positions[index].validates for index, _ in usable)


def _kinds_of_folds(plan: Plan, problem: Problem) -> list[bool]:
    """Return the kinds of folds to make: with (True) and without (False) validation clips.

    In leave-film-out, models that use no validation clips need no validation films. External models
    need them only if they have predictions for more fits than tested films times seeds.
    """
    experiment = plan.experiment
    if plan.division.protocol != "leave-film-out":
        return [True]
    kinds = {spec.uses_validation for spec in experiment.learners.values()}
    options = _fold_options(experiment, validates=False)
    films = plan.division.folds(plan.data, problem, seed=experiment.seed, **options)
    max_fits = len(films) * max(1, len(experiment.seeds))
    kinds |= {_fit_count(model) > max_fits for model in plan.outside}
    return sorted(kinds, reverse=True)


def _fold_options(experiment: Experiment, *, validates: bool) -> dict[str, Any]:
    """Return the protocol's options for folds with or without validation clips."""
    keys = {key: getattr(experiment, key) for key in PROTOCOL_KEYS}
    if experiment.protocol_name == "leave-film-out" and not validates:
        keys["validation_films"] = 0
    options = {key: value for key, value in keys.items() if value is not None}
    return options | experiment.protocol_options


def _fit_count(model: OutsideModel) -> int:
    """Return the number of fits with predictions, or 0 if the predictions are for any fit."""
    return len({fit for _, fit in model.table} - {ANY_FIT})


def _near(plan: Plan) -> Near:
    """Return a function that finds clips too close to test clips, or None if there is no gap."""
    items, gap = plan.manifest.items, plan.experiment.gap
    if not gap:
        return None
    rows = np.array([items.row(clip) for clip in plan.data.ids], dtype=np.int64)
    spans = items.files, items.starts, items.ends
    return lambda tested: meet_in_time(spans, rows, rows[tested], gap)


def plan_clips(experiment: Experiment | str | Path) -> Plan:
    """Plan an experiment's clips and their division, without folds."""
    experiment = experiment if isinstance(experiment, Experiment) else load_experiment(experiment)
    manifest = Manifest.load(experiment.manifest)
    if (column := experiment.check().column) is not None:
        manifest = with_numbers(manifest, column)
    experiment = structs.replace(experiment, labels=_find_labels(experiment, manifest))
    scheme = manifest.label_scheme(experiment.label_set)
    merged = manifest.labels(experiment.label_set)
    annotators = [name for name in merged.merged_annotators if name in manifest.label_names]
    experiment = experiment.in_codes(scheme)
    problems = experiment.problems(scheme)
    store = open_stores(experiment.store)
    outside = [model for path in experiment.predictions for model in read_outside(Path(path))]
    names = [*experiment.learners, *(model.name for model in outside)]
    experiment.check_models(names)
    if not names:
        raise ExperimentError(
            f"{experiment.name!r}: estimators is empty. Add an estimator, or --predictions FILE"
        )
    if double := [model.name for model in outside if names.count(model.name) > 1]:
        raise ExperimentError(
            f"{experiment.name!r}: two models are called {double[0]!r}. Rename the model in "
            "the predictions file: change its model column, or rename the file"
        )
    division = make_division(experiment, manifest, problems)
    protocol = {"name": division.protocol} | experiment.protocol_options
    experiment = structs.replace(experiment, protocol=protocol)
    is_drawn = bool(PROTOCOLS[division.protocol].default_balance)
    if is_drawn and experiment.target == Number.key:
        experiment = structs.replace(experiment, balance=experiment.balance or "none")
    tasks = [task for problem in problems for task in (problem.train, *problem.tests)]
    data, join = join_clips(
        manifest,
        store,
        levels_of(tasks, merged, scheme),
        labels=experiment.label_set,
        array=experiment.array,
        frames=experiment.frame_array,
        fold_of=division.fold_of,
        among=division.ids,
        concepts={*experiment.concepts} - {ALL},
        annotators=annotators,
        groups=experiment.groups or "film",
    )
    _check_features(data)
    return Plan(experiment, manifest, store, problems, division, outside, data, join)


def _check_features(data: ClipDataset) -> None:
    """Raise `ExperimentError` if a clip has features that are not finite numbers."""
    broken = np.flatnonzero(~np.isfinite(data.X).all(axis=1))
    if len(broken):
        named = ", ".join(data.ids[row] for row in broken[:5])
        clips = counted(len(broken), f"clip ({named}) has", f"clips (such as {named}) have")
        raise ExperimentError(
            f"{clips} non-finite features. Verify the store, and extract these clips again"
        )
    if data.frames is not None:
        check_frames(data.frames, data.ids)


def _find_labels(experiment: Experiment, manifest: Manifest) -> str | None:
    """Return an experiment's label set, or the set that was merged from the named annotators."""
    names = experiment.labels
    if not isinstance(names, tuple):
        return names
    merged = [n for n in manifest.label_names if {*manifest.labels(n).merged_from} == {*names}]
    if not merged:
        options = " ".join(f"--labels {manifest.labels(name).name}" for name in names)
        remedy = f". Use: obygaze annotations merge {for_shell(experiment.manifest)} {options}"
        raise ExperimentError(
            f"{experiment.name!r}: {manifest.name} has no labels merged from {' and '.join(names)}"
            + (remedy if len(names) > 1 else f'. For one annotator, set labels = "{names[0]}"')
        )
    return manifest.default_labels if manifest.default_labels in merged else merged[0]


def _add_outside(plan: Plan, model: OutsideModel) -> None:
    """Add the predictions of an external model to the plan."""
    for problem in plan.problems:
        films = plan.folds_of(problem, validate=False)
        is_of_films = _fit_count(model) <= len(films)
        for fold in films if is_of_films else plan.folds_of(problem, validate=True):
            ids = [plan.data.ids[row] for row in fold.test_rows.tolist()]
            table = model.probabilities(problem.train, fold.index, ids)
            if table is None:
                reason = f"{model.path.name} has no predictions for fit {fold.index}"
                plan.skipped.append(skipped_fit(model.name, problem.train, fold, reason))
            else:
                tables = test_predictions(plan.data, problem, model.name, fold, table)
                plan.outside_predictions.extend(tables)


def _usable_tests(plan: Plan, problem: Problem, fold: Fold, *, validates: bool) -> tuple[str, ...]:
    """Return a fold's tests that can be scored, or () if no model can be trained on the fold.

    Training needs clips of every class. Validation and each test need at least two classes. Skipped
    folds and tests are added to the plan, with the reasons.
    """

    def skip(rows: Array, name: str, task: Task, classes: int | None, where: str = "") -> bool:
        missing = task.target.missing(task, plan.labels_of(task)[rows], least=classes)
        if not missing:
            return False
        reason = f"the {name} has no clips of {' or '.join(missing)}"
        title = fold.name + where
        plan.skipped.append(Skipped(task=problem.train.key, fit=fold.index, what=title, why=reason))
        return True

    train = problem.train
    if skip(fold.train, "training set", train, None):
        return ()
    if validates and skip(fold.validation, "validation set", train, 2):
        return ()
    return tuple(
        task.key
        for task in problem.tests
        if task.key in fold.tests
        and not skip(fold.tests[task.key], "test set", task, 2, f", test {task.key}")
    )
