"""The division of a manifest's clips for a protocol, by fold columns or released lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, RunSet, Split, stratified
from obygaze_features.manifests.splits import cut_files, describe_neighbours
from obygaze_models.data.folds import N_FOLDS
from obygaze_models.data.protocols import NO_RUNS, PROTOCOLS, find_released_runs, released_test_ids
from obygaze_models.data.tasks import Problem, Task
from obygaze_models.experiments.experiment import Experiment

RELEASED = {
    frozenset({"EN", "S"}): "02_EN_S",
    frozenset({"HN", "S"}): "02_HN_S",
    frozenset({"EN", "HN", "S"}): "02_ENHN_S",
}
"""The authors' split file for each set of levels."""
RELEASED_CONCEPTS = "02_EN_HN_S"
"""The authors' split file for learning concepts."""
OFFICIAL = "official"
"""The name of the split, and of the protocol, that use a benchmark's own sets."""


@dataclass(frozen=True)
class Division:
    """The division of a manifest's clips for a protocol.

    `split` is the name of the fold column, `fold_of` the fold of each clip (one fold per film for
    leave-film-out), and `last` the last fold. `ids` are the clips that take part, or None for all.
    `runs` and `tested` are the released lists.
    """

    protocol: str
    split: str = ""
    fold_of: Mapping[str, int] = field(default_factory=dict)
    last: int = -1
    ids: frozenset[str] | None = None
    runs: RunSet = NO_RUNS
    tested: Mapping[str, frozenset[str]] = field(default_factory=dict)
    near: str = ""
    """A sentence on clips that are close to clips of another drawn fold."""


def make_division(
    experiment: Experiment, manifest: Manifest, problems: Sequence[Problem]
) -> Division:
    """Return the division for an experiment."""
    is_official = experiment.split == OFFICIAL and not experiment.balance and not experiment.gap
    name = experiment.protocol_name or (OFFICIAL if is_official else "split")
    if name == "released":
        return _released(experiment, manifest, problems)
    if name == "leave-film-out":
        return _by_film(experiment, manifest)
    if not (experiment.split or PROTOCOLS[name].by_folds):
        return Division(name)
    split = _find_split(experiment, manifest, name)
    least = 2 if name == OFFICIAL else 3
    if len(split.sizes) < least or 0 in split.sizes:
        sizes = ", ".join(map(str, split.sizes))
        raise ExperimentError(
            f"the protocol {name} needs {least} folds with clips in each, but the folds of the "
            f'split {split.name!r} have {sizes}. Use another split, or split = "" and gap = 5'
        )
    near = ""
    if split.name not in manifest.split_names and not experiment.groups and not experiment.gap:
        near = describe_neighbours(manifest.items, split)
    return Division(
        name, split.name, split.fold_of, split.last_fold, frozenset(split.ids), near=near
    )


def _find_split(experiment: Experiment, manifest: Manifest, protocol: str) -> Split:
    """Return the experiment's split, the manifest's only split, or new folds."""
    names = manifest.split_names
    if experiment.split:
        return manifest.split(experiment.split)
    if protocol == OFFICIAL:
        raise ExperimentError(
            "the official protocol uses a benchmark's own sets. Name their fold column: split = "
            f'"official" ({manifest.name} has {", ".join(names) or "none"})'
        )
    if experiment.split == "" or not names:
        return _draw_split(experiment, manifest)
    if len(names) > 1:
        raise ExperimentError(
            f"{manifest.name} has several splits: {', '.join(names)}. Name one in the experiment "
            '(split = "NAME"), or draw ten new folds (split = "")'
        )
    only = manifest.split(names[0])
    if experiment.groups:
        groups = manifest.items.groups(experiment.groups, only.ids)
        if len({*zip(groups, only.folds, strict=True)}) > len({*groups}):
            return _draw_split(experiment, manifest)  # it divides a group
    return only


def _by_film(experiment: Experiment, manifest: Manifest) -> Division:
    """Return a division in which each film or other group is a fold."""
    films = manifest.items.groups(experiment.groups or "film", manifest.ids)
    names, numbers = np.unique(films, return_inverse=True)
    fold_of = dict(zip(manifest.ids, numbers.tolist(), strict=True))
    ids = None
    if experiment.split:
        ids = frozenset(manifest.split(experiment.split).ids)
    return Division("leave-film-out", experiment.split or "", fold_of, len(names) - 1, ids)


def _draw_split(experiment: Experiment, manifest: Manifest) -> Split:
    """Draw folds that keep groups together, or that divide files into stretches with gaps."""
    column = experiment.groups
    labels = manifest.labels(experiment.labels)
    gap = 0.0 if column else experiment.gap
    if column:
        groups = manifest.items.groups(column, labels.ids)
    else:
        groups = cut_files(manifest.items, labels.ids, gap)
    folds = min(N_FOLDS, len({*groups}))
    if gap:  # two stretches per fold if possible: levels rarely change
        folds = min(folds, max(3, len({*groups}) // 2))
    kind = "stretches of files" if gap else "stratified"
    by_column = f" by {column}" if column else ""
    return stratified(
        manifest,
        folds=folds,
        seed=experiment.seed,
        name=f"{kind}, {folds} folds{by_column}, seed {experiment.seed}",
        labels=experiment.labels,
        groups=column,
        gap=gap,
    )


def _released(experiment: Experiment, manifest: Manifest, problems: Sequence[Problem]) -> Division:
    """Return a division into the authors' runs, or into the folds used to learn their concepts.

    For concepts, the last fold is the test set, and each of the other folds is the validation set
    once. The authors' bottlenecks are trained once, on all folds except the last (the second to
    last counts as validation here). Clips without a media file are left out, as in the authors'
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
            f"the authors released no split for {task.key}. Use levels {names}, with S as positive"
        )
    return name
