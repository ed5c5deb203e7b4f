"""The plan of an experiment: its clips, its folds, and the fits to make."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import msgspec
import numpy as np
import pandas as pd

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import LabelScheme, LabelSet, Manifest
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_features.manifests.splits import meet_in_time
from obygaze_models.data.dataset import ClipDataset, join_clips, with_numbers
from obygaze_models.data.folds import Fold, Near
from obygaze_models.data.protocols import PROTOCOLS, Clips
from obygaze_models.data.stores import Sources, fingerprint, open_stores
from obygaze_models.data.tasks import Problem, Task, levels_of
from obygaze_models.estimators.classes import check_frames
from obygaze_models.estimators.registry import plugin_versions
from obygaze_models.experiments.division import Division, make_division
from obygaze_models.experiments.experiment import (
    Experiment,
    Learner,
    folder_name,
    load_experiment,
)
from obygaze_models.experiments.scores import records
from obygaze_models.experiments.tables import CONCEPTS_OF, LABEL_OF, annotated_clips
from obygaze_models.saved.about import Features
from obygaze_models.scoring.metrics import Array


@dataclass(frozen=True)
class PlannedFit:
    """A learner, and the problem and the fold to fit and test it on.

    `place` is the path of the fit's model in the run, such as ``models/mlp/HN-vs-S-0``. `skips`
    says what of the fold cannot be fitted or tested.
    """

    model: str
    learner: Learner
    problem: Problem
    fold: Fold
    place: str = ""
    skips: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """The task to learn."""
        return self.problem.train


@dataclass(frozen=True, eq=False)
class Plan:
    """An experiment's clips, its tasks, and their division."""

    experiment: Experiment
    manifest: Manifest
    store: Sources
    problems: list[Problem]
    division: Division
    data: ClipDataset
    _labels: dict[Task, Array] = field(default_factory=dict)

    @property
    def labels(self) -> LabelSet:
        """The label set of the experiment."""
        return self.manifest.labels(self.experiment.labels)

    @property
    def scheme(self) -> LabelScheme:
        """The label scheme of the experiment."""
        return self.manifest.label_scheme(self.experiment.labels)

    @property
    def tests(self) -> list[Task]:
        """The tasks to test, without duplicates."""
        return [*dict.fromkeys(test for problem in self.problems for test in problem.tests)]

    @property
    def tasks(self) -> list[Task]:
        """The tasks to learn and to test, without duplicates."""
        learned = [problem.train for problem in self.problems]
        return [*dict.fromkeys([*learned, *self.tests])]

    @property
    def balance(self) -> str:
        """The way to balance training clips; empty if the protocol fixes them."""
        default = PROTOCOLS[self.division.protocol].balance
        if default and self.experiment.column:
            default = "none"
        return self.experiment.balance or default

    @cached_property
    def clips(self) -> pd.DataFrame:
        """All annotated clips, in the form of `Run.clips`: their folds, and which are not used."""
        table = annotated_clips(self.manifest, self.labels, self.data.grouped_by)
        ids = table["id"]
        among = self.division.ids
        table["fold"] = ids.map(self.division.fold_of).astype("Int64")
        table["used"] = ""
        table.loc[~ids.isin(self.data.ids), "used"] = "no-features"
        if among is not None:
            table.loc[~ids.isin(among), "used"] = "no-fold"
        levels = levels_of(self.tasks, self.labels, self.scheme)
        table.loc[~table["level"].isin(levels), "used"] = "not-in-task"
        table["blank"] = ids.isin(np.array(self.data.ids)[~self.data.X.any(axis=1)])
        for name in self.labels.merged_annotators:
            if name not in self.manifest.label_names:
                continue
            own = self.manifest.labels(name)
            table[f"{LABEL_OF}{name}"] = [own.level_of.get(clip, "") for clip in ids]
            concepts = [SEPARATOR.join(own.concepts_of.get(clip, ())) for clip in ids]
            table[f"{CONCEPTS_OF}{name}"] = concepts
        return table

    def labels_of(self, task: Task) -> Array:
        """Return the label of each clip for a task."""
        if task not in self._labels:
            self._labels[task] = task.labels(self.data)
        return self._labels[task]

    def folds(self, problem: Problem, *, validate: bool) -> Iterator[Fold]:
        """Yield a problem's folds, for one seed after the other.

        With leave-film-out, learners without validation clips leave each film out only once.
        """
        experiment = self.experiment
        division = self.division
        options = dict(experiment.protocol_options)
        if division.protocol == "leave-film-out" and not validate:
            options["validation_films"] = 0
        tests = {task.key: task.target.strata(self.labels_of(task)) for task in problem.tests}
        clips = Clips(
            y=problem.train.target.strata(self.labels_of(problem.train)),
            groups=self.data.groups,
            ids=self.data.ids,
            folds=self.data.folds,
            last=division.last,
            near=self._near if experiment.gap else None,
            runs=division.runs,
            tested=division.tested,
        )
        seeds = experiment.seeds or (experiment.seed,)
        index = 0
        for seed in seeds:
            try:
                folds = PROTOCOLS[division.protocol].make_folds(
                    replace(clips, seed=seed), tests, self.balance, **options
                )
            except TypeError as problem_:
                raise ExperimentError(f"protocol {division.protocol}: {problem_}") from None
            title = f", seed {seed}" if len(seeds) > 1 else ""
            for fold in folds:
                yield replace(fold, index=index, name=fold.name + title)
                index += 1

    @cached_property
    def _near(self) -> Near:
        """A function that finds clips too close to test clips."""
        items = self.manifest.items
        gap = self.experiment.gap
        rows = np.array([items.row(clip) for clip in self.data.ids], dtype=np.int64)
        spans = items.files, items.starts, items.ends
        return lambda tested: meet_in_time(spans, rows, rows[tested], gap)

    def fits(self) -> Iterator[PlannedFit]:
        """Yield all planned fits: for each problem, each learner on each of its folds."""
        folders: list[str] = []
        for problem in self.problems:
            folder = folder_name(problem.train.key)
            namesakes = folders.count(folder.casefold())
            folders.append(folder.casefold())
            if namesakes:
                folder += f"~{namesakes}"
            for model, learner in self.experiment.learners.items():
                for fold in self.folds(problem, validate=learner.uses_validation):
                    place = f"models/{folder_name(model)}/{folder}-{fold.index}"
                    usable, skips = self.usable(problem, fold, validate=learner.uses_validation)
                    yield PlannedFit(model, learner, problem, usable, place, skips)

    def usable(
        self, problem: Problem, fold: Fold, *, validate: bool
    ) -> tuple[Fold, tuple[str, ...]]:
        """Return a fold with the tests that can be scored, and why others cannot.

        Training needs clips of every class. Validation and each test need two classes.
        """
        lacks = {"training": self.missing(problem.train, fold.train)}
        if validate or self.division.protocol != "leave-film-out":
            lacks["validation"] = self.missing(problem.train, fold.validation, 2)
        for part, missing in lacks.items():
            if missing:
                return replace(fold, tests={}), (f"the {part} set has {missing}",)

        tests = {}
        skips = []
        for task in problem.tests:
            missing = self.missing(task, fold.tests[task.key], 2)
            if missing:
                skips.append(f"the test set {task.key} has {missing}")
            else:
                tests[task.key] = fold.tests[task.key]
        return replace(fold, tests=tests), tuple(skips)

    def missing(self, task: Task, rows: Array, least: int | None = None) -> str:
        """Return which classes have no clips if they are fewer than needed, or ""."""
        missing = task.target.missing(task, self.labels_of(task)[rows], least=least)
        return f"no clips of {' or '.join(missing)}" if missing else ""

    def counts(self) -> list[dict[str, Any]]:
        """Return a row for each model and task: its fits, training clips, and skipped parts."""
        rows = []
        for planned in self.fits():
            rows.append(
                {
                    "model": planned.model,
                    "task": planned.task.key,
                    "fits": int(bool(planned.fold.tests)),
                    "trained": len(planned.fold.train),
                    "skipped": "; ".join(planned.skips),
                }
            )
        by_model = pd.DataFrame(rows).groupby(["model", "task"], sort=False, as_index=False)
        return records(by_model.agg({"fits": "sum", "trained": "max", "skipped": "max"}))

    def versions(self) -> dict[str, str]:
        """Return the versions of Python and of the packages that the results depend on."""
        versions = {"python": platform.python_version()}
        for name in ("obygaze", "numpy", "scikit-learn", "torch"):
            versions[name] = version(name)
        for learner in self.experiment.learners.values():
            versions |= plugin_versions(learner.estimator)
        return versions

    def identity(self) -> str:
        """Return a digest of all that the results depend on."""
        parts = (
            msgspec.to_builtins(self.experiment),
            self.versions(),
            self.manifest.digest,
            fingerprint(self.store),
            self.data.levels,
            self.data.concepts,
            self.data.groups,
            self.data.folds,
            self.data.numbers,
        )
        return str(joblib.hash(parts))

    def features(self, *, frames: bool = False) -> Features:
        """Return the description of the features, which saved models need."""
        array = self.experiment.frames if frames else self.experiment.array
        [spec] = [spec for spec in self.store.specs if spec.name == array]
        return Features(
            backbone=self.store.attributes["backbone"],
            preprocessing=self.store.attributes["preprocessing"],
            array=array,
            shape=list(spec.shape),
        )


def make_plan(experiment: Experiment | str | Path) -> Plan:
    """Plan an experiment's clips and their division."""
    experiment = experiment if isinstance(experiment, Experiment) else load_experiment(experiment)
    manifest = Manifest.load(experiment.check().manifest)
    if experiment.column:
        manifest = with_numbers(manifest, experiment.column)
    scheme = manifest.label_scheme(experiment.labels)
    labels = manifest.labels(experiment.labels)
    problems = experiment.problems(scheme)
    division = make_division(experiment, manifest, problems)
    store = open_stores(experiment.store)
    tasks = [task for problem in problems for task in (problem.train, *problem.tests)]
    reads_frames = any(own.reads == "frames" for own in experiment.learners.values())
    data = join_clips(
        manifest,
        store,
        levels_of(tasks, labels, scheme),
        labels=experiment.labels,
        array=experiment.array,
        frames=experiment.frames if reads_frames else None,
        fold_of=division.fold_of,
        among=division.ids,
        concepts=[task.concept for task in tasks if task.concept],
        groups=experiment.groups or "film",
    )
    broken = np.flatnonzero(~np.isfinite(data.X).all(axis=1))
    if len(broken):
        clip = data.ids[broken[0]]
        raise ExperimentError(
            f"{clip} and {len(broken) - 1} other clips have non-finite features. Verify the "
            "store, and extract these clips again"
        )
    if data.frames is not None:
        check_frames(data.frames, data.ids)
    return Plan(experiment, manifest, store, problems, division, data)
