"""What an experiment's protocol finds in a manifest: its fold column, its runs, its test lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, Run, RunSet, Split
from obygaze_features.manifests.splits import stratified
from obygaze_models.experiments import protocol
from obygaze_models.experiments.experiment import Experiment, Problem
from obygaze_models.experiments.known import Known
from obygaze_models.experiments.protocol import Draw
from obygaze_models.experiments.task import LevelTask, Task

__all__ = ["RELEASED_CONCEPTS", "Plan", "make_plan"]

#: The authors' file for each pairing of levels; their concepts are learnt from the last one.
RELEASED = {
    frozenset({"EN", "S"}): "02_EN_S",
    frozenset({"HN", "S"}): "02_HN_S",
    frozenset({"EN", "HN", "S"}): "02_ENHN_S",
}
RELEASED_CONCEPTS = "02_EN_HN_S"
FOLDS = 10


@dataclass(frozen=True)
class Plan:
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

    def draws(self, known: Known, problem: Problem, *, seed: int) -> list[Draw]:
        """The runs of one problem."""
        labels = problem.train.labels(known)
        tests = {task.name: task.labels(known) for task in problem.tests}
        if self.protocol == "leave-film-out":
            return protocol.leave_film_out(known.films, labels, tests, seed=seed)
        if self.runs is not None:
            return protocol.released(
                known.ids, labels, tests, runs=self.runs, tested=self.tested, seed=seed
            )
        draw = {
            "leak-free": protocol.leak_free,
            "paper": protocol.paper,
            "split": protocol.cross_validation,
            "official": protocol.official,
        }[self.protocol]
        return draw(known.folds, labels, tests, last=self.last, seed=seed)


def make_plan(experiment: Experiment, manifest: Manifest, problems: Sequence[Problem]) -> Plan:
    """Look up what the protocol needs; `ExperimentError` if it is not there, or does not fit."""
    name = experiment.protocol
    if name == "released":
        return _released(experiment, manifest, problems)
    if name == "leave-film-out":
        if "" in manifest.items.films:
            nameless = manifest.ids[manifest.items.films.index("")]
            raise ExperimentError(
                f"{manifest.name}: {nameless} has no film, which leave-film-out asks of each clip"
            )
        split = manifest.split(experiment.split) if experiment.split is not None else None
        films = sorted(set(manifest.items.films))
        number = {film: fold for fold, film in enumerate(films)}
        fold_of = {
            one: number[film] for one, film in zip(manifest.ids, manifest.items.films, strict=True)
        }
        if split is None:
            return Plan(name, "", fold_of, len(films) - 1)
        return Plan(name, split.name, fold_of, len(films) - 1, frozenset(split.ids))
    if name == "official" and experiment.split is None:
        raise ExperimentError(
            f"{experiment.name!r}: the official protocol goes by a benchmark's own sets; name "
            f'their fold column: split = "official" ({manifest.name} has '
            f"{', '.join(manifest.split_names) or 'none'})"
        )
    if experiment.split is not None:
        split = manifest.split(experiment.split)
    else:
        split = stratified(
            manifest,
            folds=FOLDS,
            seed=experiment.seed,
            labels=experiment.labels,
            name=f"stratified, {FOLDS} folds, seed {experiment.seed}",
        )
    if gaps := [fold for fold, clips in enumerate(split.sizes) if not clips]:
        raise ExperimentError(
            f"the split {split.name!r} goes up to fold {split.last_fold}, and no clip is in fold "
            f"{gaps[0]}; number its folds from 0 on without gaps"
        )
    return Plan(name, split.name, split.fold_of, split.last_fold, frozenset(split.ids))


def _released(experiment: Experiment, manifest: Manifest, problems: Sequence[Problem]) -> Plan:
    """The authors' runs where there are any for the split; else what their concepts do.

    For their concepts the last fold tests, each other one validates in turn and all the rest
    trains. Their bottlenecks are trained once, on all folds but the last (of which the last but
    one is called validation here). Clips without a media file are left out, as their code does.
    """
    if experiment.split not in (None, *RELEASED.values(), RELEASED_CONCEPTS):
        raise ExperimentError(
            f"{experiment.split} is no split that the authors released; leave split out, or take "
            f"the protocol 'split' for it"
        )
    split = _released_split(manifest, experiment.split or _file_of(problems[0].train))
    with_media = {item.id for item in manifest if item.media}
    rebuilt = split.name in manifest.run_names
    if rebuilt:
        runs = manifest.runs(split.name)
    else:
        usable = split.where(with_media.__contains__)
        once = isinstance(problems[0].train, LevelTask)
        folds = range(split.last_fold - 1 if once else 0, split.last_fold)
        runs = RunSet(split.name, [_in_turn(usable, fold, split.last_fold) for fold in folds])
    files = {
        task.name: _released_split(manifest, _file_of(task)) if rebuilt else split
        for problem in problems
        for task in problem.tests
    }
    tested = {
        name: frozenset(with_media.intersection(file.fold(file.last_fold)))
        for name, file in files.items()
    }
    trained = {one for run in runs.runs for one in (*run.train, *run.validation)}
    return Plan(
        experiment.protocol,
        split.name,
        split.fold_of,
        split.last_fold,
        frozenset(trained.union(*tested.values())),
        runs,
        tested,
    )


def _in_turn(split: Split, fold: int, last: int) -> Run:
    train = [one for one, of in split.fold_of.items() if of not in (fold, last)]
    return Run(str(fold), train, split.fold(fold))


def _file_of(task: Task) -> str:
    if not isinstance(task, LevelTask):
        return RELEASED_CONCEPTS
    name = RELEASED.get(frozenset(task.levels))
    if name is None or task.positives != ("S",):
        known = ", ".join("+".join(sorted(levels)) for levels in RELEASED)
        raise ExperimentError(
            f"the authors released no split for {task.name}; they did for {known}, S positive"
        )
    return name


def _released_split(manifest: Manifest, name: str) -> Split:
    if name not in manifest.split_names:
        raise ExperimentError(
            f"the manifest {manifest.name!r} has no split {name!r}, which the released protocol "
            "needs: the authors released it for ObyGaze12 alone, so take leak-free for other "
            "clips; for ObyGaze12: obygaze manifests import obygaze12-splits SOURCE -o FOLDER"
        )
    return manifest.split(name)
