"""The plan of a run: what it fits and tests, in which order."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from typing import Any

import joblib
import numpy as np
import pandas as pd

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import shorten
from obygaze_features.common.names import file_names
from obygaze_features.common.plugins import one_line
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.folds import Fold
from obygaze_models.data.splitters import Clips, Splitter
from obygaze_models.data.tasks import Task, levels_of
from obygaze_models.estimators.registry import plugin_versions
from obygaze_models.experiments.learner import Learner, folder_name, require_usable
from obygaze_models.results.run import CONCEPTS_OF, LABEL_OF, annotated_clips
from obygaze_models.results.scores import records

Tasks = Mapping[Task, Sequence[Task]]
"""The tests of each task that is learned."""


@dataclass(frozen=True, eq=False)
class PlannedFit:
    """A fit to make: a learner, and the task and the fold to fit and test it on.

    `place` is the path of the fit's model in the run, such as ``models/mlp/HN-vs-S-0``. `skips`
    are the reasons why parts of the fold cannot be fitted or tested.
    """

    model: str
    learner: Learner
    task: Task
    fold: Fold
    place: str
    skips: Sequence[str]


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """The arguments of a run: models, clips with labels, tasks with their tests, and a splitter.

    `split` is the name of the fold column, `fold_of` the fold of each listed clip, and `among` the
    clips that take part, or None for all. `neighbours` describes clips that are close to clips of
    another drawn fold, or is "". `outside` yields the predictions of models from elsewhere.
    `settings` are those of an experiment, as ``run.json`` records them.
    """

    name: str
    models: Mapping[str, Learner]
    data: ClipDataset
    tasks: Tasks
    cv: Splitter
    protocol: str
    seeds: Sequence[int] = ()
    score: str = ""
    split: str = ""
    fold_of: Mapping[str, int] = field(default_factory=dict)
    among: frozenset[str] | None = None
    neighbours: str = ""
    outside: Callable[[Plan], Iterable[pd.DataFrame]] = lambda _: ()
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_usable(self.models, self.tasks, self.cv)

    @property
    def tests(self) -> list[Task]:
        """The tasks to test, without duplicates."""
        return [*dict.fromkeys(test for tests in self.tasks.values() for test in tests)]

    @property
    def balance(self) -> str:
        """The way to balance training clips; empty if the protocol fixes them."""
        return getattr(self.cv, "balance", "")

    @cached_property
    def clips(self) -> pd.DataFrame:
        """All annotated clips, in the form of `Run.clips`; the column ``leaked`` is empty."""
        data = self.data
        manifest = data.record.manifest
        labels = data.record.label_set
        table = annotated_clips(manifest, labels, data.grouped_by)
        ids = table["id"]
        table["fold"] = ids.map(self.fold_of).astype("Int64")
        table["used"] = ""
        rows: Array = pd.Index(data.ids).get_indexer(pd.Index(ids))
        featured: Array = pd.Index(data.record.ids).get_indexer(pd.Index(ids))
        table.loc[rows < 0, "used"] = "not-selected"
        table.loc[featured < 0, "used"] = "no-features"
        if self.among is not None:
            table.loc[~ids.isin(self.among), "used"] = "no-fold"
        levels = levels_of(data.labels, labels, data.scheme)
        table.loc[~table["level"].isin(levels), "used"] = "not-in-task"
        empty = np.flatnonzero(~data.X.any(axis=1))
        table["blank"] = np.isin(rows, empty)
        for person in data.record.annotators:
            concepts = [SEPARATOR.join(person.concepts_of.get(clip, ())) for clip in ids]
            table[f"{LABEL_OF}{person.name}"] = [person.level_of.get(clip, "") for clip in ids]
            table[f"{CONCEPTS_OF}{person.name}"] = concepts
        return table

    def folds(self, task: Task, *, validate: bool) -> Iterator[Fold]:
        """Yield the folds of a task, one seed after another."""
        data = self.data
        gap = getattr(self.cv, "gap", 0)
        clips = Clips(
            y=task.target.strata(data.labels[task]),
            groups=data.groups,
            ids=data.ids,
            folds=data.folds,
            last=data.last_fold,
            near=partial(data.near, gap=gap) if gap else None,
            validate=validate,
        )
        tests = {test.key: test.target.strata(data.labels[test]) for test in self.tasks[task]}
        index = 0
        for seed in self.seeds or (self.cv.random_state,):
            title = f", seed {seed}" if len(self.seeds) > 1 else ""
            for fold in replace(self.cv, random_state=seed).folds(clips, tests):
                yield replace(fold, index=index, name=fold.name + title)
                index += 1

    def fits(self) -> Iterator[PlannedFit]:
        """Yield all planned fits: of each task, each model on each of its folds."""
        folders = file_names([folder_name(task.key) for task in self.tasks], "")
        homes = file_names(map(folder_name, self.models), "")
        for task, folder in zip(self.tasks, folders, strict=True):
            for (model, learner), home in zip(self.models.items(), homes, strict=True):
                validate = learner.uses_validation
                for fold in self.folds(task, validate=validate):
                    place = f"models/{home}/{folder}-{fold.index}"
                    usable, skips = self.usable(task, fold, validate=validate)
                    yield PlannedFit(model, learner, task, usable, place, skips)

    def usable(self, task: Task, fold: Fold, *, validate: bool) -> tuple[Fold, list[str]]:
        """Return a fold with the test sets that have clips, and why it cannot be fitted.

        Training needs clips of every class, and validation needs two classes.
        """
        lacks = {"training": self.missing(task, fold.train)}
        if (validate and self.cv.validates) or len(fold.validation):
            lacks["validation"] = self.missing(task, fold.validation, 2)
        for part, missing in lacks.items():
            if missing:
                return replace(fold, tests={}), [f"the {part} set has {missing}"]

        tests = {key: rows for key, rows in fold.tests.items() if len(rows)}
        return replace(fold, tests=tests), []

    def check_fits(self) -> int:
        """Return the number of fits; raise `ExperimentError` if a test has only one class."""
        total = 0
        tested = {test: np.zeros(len(self.data), dtype=bool) for test in self.tests}
        for planned in self.fits():
            total += 1
            for test in self.tasks[planned.task]:
                tested[test][planned.fold.tests.get(test.key, [])] = True
        for test, mask in tested.items():
            missing = self.missing(test, np.flatnonzero(mask), 2)
            if mask.any() and missing:
                raise ExperimentError(
                    f"{test.title}: the tested clips include {missing}. Test more or other films"
                )
        return total

    def missing(self, task: Task, rows: Array, least: int | None = None) -> str:
        """Return which classes have no clips; "" if `least` classes (by default, all) have some."""
        missing = task.missing(self.data.labels[task][rows], least=least)
        return f"no clips of {' or '.join(missing)}" if missing else ""

    def counts(self) -> list[dict[str, Any]]:
        """Return a row for each model and task: its fits, training clips, and one reason for skips.

        The training clips are those of the largest fit.
        """
        names = ["model", "task", "fits", "training_clips", "skipped"]
        rows = []
        for fit in self.fits():
            size = len(fit.fold.train)
            rows.append((fit.model, fit.task.key, bool(fit.fold.tests), size, "; ".join(fit.skips)))
        by_task = pd.DataFrame(rows, columns=names).groupby(names[:2], sort=False)
        table = by_task.agg({"fits": "sum", "training_clips": "max", "skipped": "max"})
        return records(table.reset_index())

    def versions(self) -> dict[str, str]:
        """Return the versions of Python, of the main packages, and of plug-ins."""
        versions = {"python": platform.python_version()}
        for name in ("obygaze", "numpy", "scikit-learn", "torch"):
            versions[name] = version(name)
        for learner in self.models.values():
            versions |= plugin_versions(learner.estimator)
        return versions

    def identity(self) -> str:
        """Return a digest of the arguments, the data and `versions`."""
        record = self.data.record
        arguments = (
            self.models,
            self.cv,
            self.seeds,
            self.settings,
            self.data.labels,
            self.versions(),
            record.manifest.digest,
            record.fingerprint(),
            self.data.X,
            self.data.frames,
            self.clips.to_csv(),
        )
        try:
            return str(joblib.hash(arguments))
        except Exception as problem:  # of pickle, which only writes here
            raise ExperimentError(
                f"the run could not be resumed ({shorten(one_line(problem))}). Define the "
                "functions of models in a module, or leave output out"
            ) from None
