"""The plan of an experiment: its clips, its folds, and the fits to make."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import msgspec
import numpy as np
import pandas as pd

from obygaze_features.common.text import counted, file_names
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun
from obygaze_features.manifests import LabelScheme, LabelSet, Manifest, RunSet, Split, stratified
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_features.manifests.splits import (
    cut_files,
    describe_neighbours,
    meet_in_time,
    whole_groups,
)
from obygaze_models.data.dataset import ClipDataset, join_clips, with_numbers
from obygaze_models.data.folds import N_FOLDS, Fold, Near
from obygaze_models.data.protocols import (
    NO_RUNS,
    PROTOCOLS,
    Clips,
    Protocol,
    find_released_runs,
    released_test_ids,
)
from obygaze_models.data.stores import Sources, fingerprint, open_stores
from obygaze_models.data.tasks import Problem, Task, levels_of
from obygaze_models.estimators.classes import check_frames
from obygaze_models.estimators.registry import plugin_versions
from obygaze_models.experiments.experiment import Experiment, Learner, folder_name, load_experiment
from obygaze_models.experiments.scores import records
from obygaze_models.experiments.tables import CONCEPTS_OF, LABEL_OF, annotated_clips
from obygaze_models.saved.about import Features
from obygaze_models.scoring.metrics import Array

RELEASED = {
    frozenset({"EN", "S"}): "02_EN_S",
    frozenset({"HN", "S"}): "02_HN_S",
    frozenset({"EN", "HN", "S"}): "02_ENHN_S",
}
"""The authors' split file for each set of levels."""
RELEASED_CONCEPTS = "02_EN_HN_S"
"""The authors' split file for learning concepts."""
CLIPS = "clips"
"""The value of `split` for new folds of clips, which mix films."""
MIN_FOLDS = 3
"""One for each of training, validation and testing."""
OFFICIAL = "official"
"""The name of the split, and of the protocol, for a benchmark's own sets."""


class Division(msgspec.Struct, frozen=True):
    """The division of a manifest's clips for a protocol.

    `split` is the name of the fold column, `fold_of` the fold of each clip (one fold per film for
    leave-film-out), and `last` the last fold. `ids` are the clips that take part, or None for all.
    `runs` and `tested` are the released lists.
    """

    protocol: str
    split: str = ""
    fold_of: Mapping[str, int] = {}
    last: int = -1
    ids: frozenset[str] | None = None
    runs: RunSet = NO_RUNS
    tested: Mapping[str, frozenset[str]] = {}
    near: str = ""
    """A description of clips that are close to clips of another drawn fold, or ""."""


class PlannedFit(NamedTuple):
    """A learner, and the problem and the fold to fit and test it on.

    `place` is the path of the fit's model in the run, such as ``models/mlp/HN-vs-S-0``. `skips`
    are the reasons why parts of the fold cannot be fitted or tested.
    """

    model: str
    learner: Learner
    problem: Problem
    fold: Fold
    place: str = ""
    skips: Sequence[str] = ()

    @property
    def task(self) -> Task:
        """The task to learn."""
        return self.problem.train


@dataclass(frozen=True, eq=False)
class Plan:
    """An experiment's clips, their division, and the tasks to learn and to test."""

    experiment: Experiment
    manifest: Manifest
    store: Sources
    problems: list[Problem]
    division: Division
    data: ClipDataset
    tasks: list[Task]
    labels: LabelSet
    scheme: LabelScheme

    @property
    def tests(self) -> list[Task]:
        """The tasks to test, without duplicates."""
        return [*dict.fromkeys(test for problem in self.problems for test in problem.tests)]

    @property
    def protocol(self) -> Protocol:
        """The protocol."""
        return PROTOCOLS[self.division.protocol]

    @property
    def balance(self) -> str:
        """The way to balance training clips; empty if the protocol fixes them."""
        default = self.protocol.balance
        if default and self.experiment.column:
            default = "none"
        return self.experiment.balance or default

    @cached_property
    def clips(self) -> pd.DataFrame:
        """All annotated clips, in the form of `Run.clips`; the column ``leaked`` is empty."""
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
            if name in self.manifest.label_names:
                own = self.manifest.labels(name)
                concepts = [SEPARATOR.join(own.concepts_of.get(clip, ())) for clip in ids]
                table[f"{LABEL_OF}{name}"] = [own.level_of.get(clip, "") for clip in ids]
                table[f"{CONCEPTS_OF}{name}"] = concepts
        return table

    @cached_property
    def labels_of(self) -> dict[Task, Array]:
        """The label of each clip, for each task."""
        return {task: task.labels(self.data) for task in self.tasks}

    def folds(self, problem: Problem, *, validate: bool) -> Iterator[Fold]:
        """Yield a problem's folds, one seed after another."""
        experiment = self.experiment
        division = self.division
        tests = {task.key: task.target.strata(self.labels_of[task]) for task in problem.tests}
        clips = Clips(
            y=problem.train.target.strata(self.labels_of[problem.train]),
            groups=self.data.groups,
            ids=self.data.ids,
            folds=self.data.folds,
            last=division.last,
            near=self._near if experiment.gap else None,
            runs=division.runs,
            tested=division.tested,
            validate=validate,
        )
        seeds = experiment.seeds or (experiment.seed,)
        index = 0
        for seed in seeds:
            try:
                folds = self.protocol.make_folds(
                    replace(clips, seed=seed),
                    tests,
                    self.balance,
                    **experiment.protocol_options,
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
        return lambda tested: meet_in_time(items, rows, rows[tested], gap)

    def fits(self) -> Iterator[PlannedFit]:
        """Yield all planned fits: for each problem, each learner on each of its folds."""
        folders = file_names([folder_name(problem.train.key) for problem in self.problems], "")
        for problem, folder in zip(self.problems, folders, strict=True):
            for model, learner in self.experiment.learners.items():
                for fold in self.folds(problem, validate=learner.uses_validation):
                    place = f"models/{folder_name(model)}/{folder}-{fold.index}"
                    usable, skips = self.usable(problem, fold, validate=learner.uses_validation)
                    yield PlannedFit(model, learner, problem, usable, place, skips)

    def usable(self, problem: Problem, fold: Fold, *, validate: bool) -> tuple[Fold, list[str]]:
        """Return a fold with the tests that can be scored, and why others cannot.

        Training needs clips of every class. Validation and each test need two classes.
        """
        lacks = {"training": self.missing(problem.train, fold.train)}
        if validate or len(fold.validation):
            lacks["validation"] = self.missing(problem.train, fold.validation, 2)
        for part, missing in lacks.items():
            if missing:
                return replace(fold, tests={}), [f"the {part} set has {missing}"]

        tests = {}
        skips = []
        for task in problem.tests:
            missing = self.missing(task, fold.tests[task.key], 2)
            if missing:
                skips.append(f"the test set {task.key} has {missing}")
            else:
                tests[task.key] = fold.tests[task.key]
        return replace(fold, tests=tests), skips

    def missing(self, task: Task, rows: Array, least: int | None = None) -> str:
        """Return which classes have no clips; "" if `least` classes (by default, all) have some."""
        missing = task.target.missing(task, self.labels_of[task][rows], least=least)
        return f"no clips of {' or '.join(missing)}" if missing else ""

    def counts(self) -> list[dict[str, Any]]:
        """Return a row for each model and task: its fits, training clips, and one reason for skips.

        The training clips are those of the largest fit.
        """
        rows = []
        for planned in self.fits():
            rows.append(
                {
                    "model": planned.model,
                    "task": planned.task.key,
                    "fits": int(bool(planned.fold.tests)),
                    "training_clips": len(planned.fold.train),
                    "skipped": "; ".join(planned.skips),
                }
            )
        by_model = pd.DataFrame(rows).groupby(["model", "task"], sort=False, as_index=False)
        return records(by_model.agg({"fits": "sum", "training_clips": "max", "skipped": "max"}))

    def versions(self) -> dict[str, str]:
        """Return the versions of Python, of the main packages, and of plug-ins."""
        versions = {"python": platform.python_version()}
        for name in ("obygaze", "numpy", "scikit-learn", "torch"):
            versions[name] = version(name)
        for learner in self.experiment.learners.values():
            versions |= plugin_versions(learner.estimator)
        return versions

    def identity(self) -> str:
        """Return a digest of the experiment, its data and `versions`."""
        parts = (
            msgspec.to_builtins(self.experiment),
            self.versions(),
            self.manifest.digest,
            fingerprint(self.store),
            self.clips.to_csv(),
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
    tasks = dict.fromkeys(task for problem in problems for task in (problem.train, *problem.tests))
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
        raise ExperimentError(
            f"non-finite features in {len(broken)} of the clips, such as {data.ids[broken[0]]}. "
            "Verify the store, and extract or import the features again"
        )
    if data.frames is not None:
        check_frames(data.frames, data.ids)
    return Plan(experiment, manifest, store, problems, division, data, [*tasks], labels, scheme)


def make_division(
    experiment: Experiment,
    manifest: Manifest,
    problems: Sequence[Problem],
) -> Division:
    """Return the division for an experiment."""
    is_official = experiment.split == OFFICIAL and not experiment.balance and not experiment.gap
    name = experiment.protocol_name or (OFFICIAL if is_official else "split")
    if name == "released":
        return _released(experiment, manifest, problems)
    protocol = PROTOCOLS[name]
    if protocol.divides == "groups":
        films = manifest.items.groups(experiment.groups or "film", manifest.ids)
        folds, numbers = np.unique(films, return_inverse=True)
        fold_of = dict(zip(manifest.ids, numbers.tolist(), strict=True))
        ids = None
        if experiment.split:
            ids = frozenset(manifest.split(experiment.split).ids)
        return Division(name, experiment.split or "", fold_of, len(folds) - 1, ids)
    if protocol.divides == "clips" and not experiment.split:
        return Division(name)
    split = _find_split(experiment, manifest, name)
    least = 2 if protocol.own_sets else MIN_FOLDS
    if len(split.sizes) < least or 0 in split.sizes:
        sizes = ", ".join(map(str, split.sizes))
        raise ExperimentError(
            f"the protocol {name} needs {least} or more folds, all with clips, but {split.name!r} "
            f"has folds of {sizes} clips. Use another split (see obygaze manifests split)"
        )
    near = ""
    if split.name not in manifest.split_names and not experiment.gap:
        near = describe_neighbours(manifest.items, split)
    return Division(
        name,
        split.name,
        split.fold_of,
        split.last_fold,
        frozenset(split.ids),
        near=near,
    )


def _find_split(experiment: Experiment, manifest: Manifest, protocol: str) -> Split:
    """Return the experiment's split, the manifest's only split, or new folds.

    The only split counts if it keeps films (or other groups) whole.
    """
    names = manifest.split_names
    if experiment.split == CLIPS and CLIPS not in names:
        return _draw_split(experiment, manifest, "")
    if experiment.split:
        return manifest.split(experiment.split)
    if PROTOCOLS[protocol].own_sets:
        raise ExperimentError(
            "the official protocol uses a benchmark's own sets. Set split = "
            f'"official" (splits of {manifest.name}: {", ".join(names) or "none"})'
        )
    column = _grouping(experiment, manifest)
    if experiment.split == "" or not names:
        return _draw_split(experiment, manifest, column)
    if len(names) > 1:
        raise ExperimentError(
            f"{manifest.name} has several splits: {', '.join(names)}. Name one in the experiment "
            '(split = "NAME"), or draw new folds (split = "")'
        )
    only = manifest.split(names[0])
    if column:
        groups = manifest.items.groups(column, only.ids)
        if len({*zip(groups, only.folds, strict=True)}) > len({*groups}):
            return _draw_split(experiment, manifest, column)  # it divides a group
    return only


def _grouping(experiment: Experiment, manifest: Manifest) -> str:
    """Return the column of groups that drawn folds keep whole; "" if clips have no films."""
    if experiment.groups:
        return experiment.groups
    items = manifest.items
    labelled = manifest.labels(experiment.labels).ids
    has_films = any(items.films[items.row(clip)] for clip in labelled)
    return "film" if has_films else ""


def _draw_split(experiment: Experiment, manifest: Manifest, column: str) -> Split:
    """Draw folds of whole groups; without a column, of clips or (with a gap) stretches of files."""
    seed = experiment.seed
    if column:
        drawn = whole_groups(manifest, groups=column, labels=experiment.labels, seed=seed)
        count = len(drawn.sizes)
        if count < MIN_FOLDS:
            noun = group_noun(column)
            raise ExperimentError(
                f"{counted(count, noun)}: training, validation and testing need one {noun} each. "
                f'For folds of clips, which mix {noun}s, set split = "{CLIPS}"'
            )
        return replace(drawn, name=f"{count} folds by {column}, seed {seed}")

    labels = manifest.labels(experiment.labels)
    gap = experiment.gap
    count = len({*cut_files(manifest.items, labels.ids, gap)})
    folds = min(N_FOLDS, count)
    if gap:  # two stretches per fold if possible: levels rarely change
        folds = min(folds, max(MIN_FOLDS, count // 2))
    kind = "stretches of files" if gap else "stratified"
    return stratified(
        manifest,
        folds=folds,
        seed=seed,
        name=f"{kind}, {folds} folds, seed {seed}",
        labels=experiment.labels,
        gap=gap,
    )


def _released(experiment: Experiment, manifest: Manifest, problems: Sequence[Problem]) -> Division:
    """Return a division into the authors' runs, or into the folds used to learn their concepts.

    For concepts, the last fold is the test set, and each of the other folds is the validation set
    once. The authors' bottlenecks are trained once, on all folds except the last (the second to
    last counts as validation here). Clips without a media file are not tested, as in the authors'
    code.
    """
    name = experiment.split or _file_of(problems[0].train)
    if name not in (*RELEASED.values(), RELEASED_CONCEPTS):
        raise ExperimentError(f"{name} is not one of the authors' splits. Leave split out")
    split = manifest.split(name)
    first = 0 if problems[0].train.concept else split.last_fold - 1
    runs = find_released_runs(manifest, name, first=first)
    tested = {}
    for problem in problems:
        for task in problem.tests:
            file = _file_of(task) if name in manifest.run_names else name
            tested[task.key] = released_test_ids(manifest, file)
    trained = {clip for run in runs.runs for clip in (*run.train, *run.validation)}
    ids = frozenset(trained.union(*tested.values()))
    return Division("released", split.name, split.fold_of, split.last_fold, ids, runs, tested)


def _file_of(task: Task) -> str:
    if task.concept:
        return RELEASED_CONCEPTS
    name = RELEASED.get(frozenset(task.levels))
    if name is None or not task.is_binary or task.classes[1].levels != ("S",):
        names = ", ".join("+".join(sorted(levels)) for levels in RELEASED)
        raise ExperimentError(
            f"the authors released no split for {task.key}. Use one of {names}, with S as positive"
        )
    return name
