"""What an experiment's protocol finds in a manifest: its fold column, its runs, its test lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, RunSet
from obygaze_features.manifests.splits import stratified
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.folds import N_FOLDS, ByFolds, Fold
from obygaze_models.data.protocols import PROTOCOLS, find_released_runs, released_test_ids
from obygaze_models.data.tasks import LevelTask, Problem, Task
from obygaze_models.experiments.experiment import Experiment

#: The authors' file for each pairing of levels; their concepts are learnt from the last one.
RELEASED = {
    frozenset({"EN", "S"}): "02_EN_S",
    frozenset({"HN", "S"}): "02_HN_S",
    frozenset({"EN", "HN", "S"}): "02_ENHN_S",
}
RELEASED_CONCEPTS = "02_EN_HN_S"
OFFICIAL = "official"
"""The name of the split, and of the protocol, of a benchmark's own sets."""


@dataclass(frozen=True)
class Division:
    """How the clips of a manifest are divided.

    `split` is the name of the fold column, `fold_of` its folds (by film where films are left
    out), `last` its last fold. `ids` are
    the clips that have a place at all; None for all. `runs` and `tested` are the released lists.
    """

    protocol: str
    split: str = ""
    fold_of: Mapping[str, int] = field(default_factory=dict)
    last: int = -1
    ids: frozenset[str] | None = None
    runs: RunSet | None = None
    tested: Mapping[str, frozenset[str]] = field(default_factory=dict)
    note: str = ""
    """Which split was taken where the experiment names none."""

    def folds(
        self, data: ClipDataset, problem: Problem, *, seed: int, balance: str | None = None
    ) -> list[Fold]:
        """The folds of one problem; `balance` as an experiment has it."""
        options: dict[str, Any] = {} if balance is None else {"balance": balance}
        splitter = PROTOCOLS[self.protocol].of_clips(data, self, random_state=seed, **options)
        tests = {task.name: task.labels(data) for task in problem.tests}
        folds = splitter.make_folds(problem.train.labels(data), tests, groups=data.groups)
        films = [sorted(set(data.groups[fold.test_rows].tolist())) for fold in folds]
        names = [name for own in films for name in own]
        if self.protocol != "split" or max(map(len, films), default=0) != 1:
            return folds
        if len(set(names)) < len(names):
            return folds
        return [replace(fold, group="".join(own)) for fold, own in zip(folds, films, strict=True)]


def choose_protocol(experiment: Experiment, manifest: Manifest) -> str:
    """The experiment's protocol; by default ``official`` for a benchmark's sets, ``split`` where
    each fold is a film, else ``leak-free``.
    """
    if experiment.protocol is not None:
        return experiment.protocol
    if not experiment.split:
        return "leak-free"
    if experiment.split == OFFICIAL and experiment.balance is None:
        return "official"
    films = dict(zip(manifest.ids, manifest.items.films, strict=True))
    fold_of = manifest.split(experiment.split).fold_of
    pairs = {(fold, films.get(clip, "")) for clip, fold in fold_of.items()}
    folds, names = ({pair[part] for pair in pairs} for part in (0, 1))
    by_film = "" not in names and len(pairs) == len(folds) == len(names) > 1
    return "split" if by_film else "leak-free"


def make_division(
    experiment: Experiment, manifest: Manifest, problems: Sequence[Problem]
) -> Division:
    """Look up what the protocol needs; `ExperimentError` if it is not there, or does not fit."""
    asked = experiment.protocol
    by_folds = asked is None or (issubclass(PROTOCOLS[asked], ByFolds) and asked != OFFICIAL)
    if experiment.split is None and by_folds and manifest.split_names:
        only, *others = manifest.split_names
        if others:
            raise ExperimentError(
                f"{experiment.name!r}: the manifest {manifest.name!r} has several splits: "
                f'{", ".join(manifest.split_names)}. Name one in the experiment (split = "NAME"), '
                'or draw ten new folds (split = "")'
            )
        division = make_division(replace(experiment, split=only), manifest, problems)
        note = f"folds of {only}, the only split of {manifest.name}"
        return replace(division, note=f"{note}; protocol {division.protocol}")
    name = choose_protocol(experiment, manifest)
    if name == "released":
        return _released(experiment, manifest, problems)
    if name == "leave-film-out":
        films = manifest.items.films
        if "" in films:
            nameless = manifest.ids[films.index("")]
            raise ExperimentError(
                f"{manifest.name}: {nameless} has no film, which leave-film-out asks of each clip"
            )
        split = manifest.split(experiment.split) if experiment.split else None
        number = {film: fold for fold, film in enumerate(sorted(set(films)))}
        fold_of = {clip: number[film] for clip, film in zip(manifest.ids, films, strict=True)}
        ids, title = (frozenset(split.ids), split.name) if split else (None, "")
        return Division(name, title, fold_of, len(number) - 1, ids)
    if name == "official" and not experiment.split:
        raise ExperimentError(
            f"{experiment.name!r}: the official protocol goes by a benchmark's own sets; name "
            f'their fold column: split = "official" ({manifest.name} has '
            f"{', '.join(manifest.split_names) or 'none'})"
        )
    if experiment.split:
        split = manifest.split(experiment.split)
    else:
        split = stratified(
            manifest,
            folds=N_FOLDS,
            seed=experiment.seed,
            labels=experiment.label_set,
            name=f"stratified, {N_FOLDS} folds, seed {experiment.seed}",
        )
    if gaps := [fold for fold, clips in enumerate(split.sizes) if not clips]:
        raise ExperimentError(
            f"the split {split.name!r} goes up to fold {split.last_fold}, and no clip is in fold "
            f"{gaps[0]}; number its folds from 0 on without gaps"
        )
    return Division(name, split.name, split.fold_of, split.last_fold, frozenset(split.ids))


def _released(experiment: Experiment, manifest: Manifest, problems: Sequence[Problem]) -> Division:
    """The authors' runs where there are any for the split; else what their concepts do.

    For their concepts the last fold tests, each other one validates in turn and all the rest
    trains. Their bottlenecks are trained once, on all folds but the last (of which the last but
    one is called validation here). Clips without a media file are left out, as their code does.
    """
    if experiment.split not in (None, "", *RELEASED.values(), RELEASED_CONCEPTS):
        raise ExperimentError(
            f"{experiment.split} is not a split of the authors; leave split out, or take "
            f"the protocol 'split' for it"
        )
    name = _released_name(manifest, experiment.split or _file_of(problems[0].train))
    once = isinstance(problems[0].train, LevelTask)
    split = manifest.split(name)
    runs = find_released_runs(manifest, name, first=split.last_fold - 1 if once else 0)
    tested = {
        task.name: released_test_ids(
            manifest,
            _released_name(manifest, _file_of(task)) if name in manifest.run_names else name,
        )
        for problem in problems
        for task in problem.tests
    }
    trained = {clip for run in runs.runs for clip in (*run.train, *run.validation)}
    return Division(
        "released",
        split.name,
        split.fold_of,
        split.last_fold,
        frozenset(trained.union(*tested.values())),
        runs,
        tested,
    )


def _file_of(task: Task) -> str:
    if not isinstance(task, LevelTask):
        return RELEASED_CONCEPTS
    name = RELEASED.get(frozenset(task.levels))
    if name is None or task.positives != ("S",):
        names = ", ".join("+".join(sorted(levels)) for levels in RELEASED)
        raise ExperimentError(
            f"the authors released no split for {task.name}; they did for {names}, S positive"
        )
    return name


def _released_name(manifest: Manifest, name: str) -> str:
    if name not in manifest.split_names:
        raise ExperimentError(
            f"the manifest {manifest.name!r} has no split {name!r}, which the released protocol "
            "needs: the authors released it for ObyGaze12 alone, so take leak-free for other "
            "clips; for ObyGaze12: obygaze manifests import obygaze12-splits SOURCE -o FOLDER"
        )
    return name
