"""What an experiment's protocol finds in a manifest: its fold column, its runs, its test lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun
from obygaze_features.manifests import Manifest, RunSet, Split, stratified
from obygaze_features.manifests.splits import cut_files, describe_neighbours
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.folds import N_FOLDS, ByFolds, Fold, MadeWhenNeeded, Near
from obygaze_models.data.protocols import PROTOCOLS, find_released_runs, released_test_ids
from obygaze_models.data.tasks import Problem, Task
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
TAKES_THREE = "to train, validate and test takes three"


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
    near: str = ""
    """How many clips are near others of another drawn fold, and what keeps them apart."""

    def folds(
        self, data: ClipDataset, problem: Problem, *, seed: int, near: Near = None, **options: Any
    ) -> Sequence[Fold]:
        """Return the folds of one problem, by the protocol with these options."""
        splitter = PROTOCOLS[self.protocol].of_clips(data, self, random_state=seed, **options)
        tests = {task.key: task.strata(data) for task in problem.tests}
        how: dict[str, Any] = {"groups": data.groups} | ({"near": near} if near else {})
        folds = splitter.make_folds(problem.train.strata(data), tests, **how)
        if self.protocol != "split":
            return folds
        films = [sorted(set(data.groups[fold.test_rows].tolist())) for fold in folds]
        names = [name for own in films for name in own]
        if max(map(len, films), default=0) != 1 or len(set(names)) < len(names):
            return folds
        return MadeWhenNeeded(
            len(folds), lambda number: replace(folds[number], group="".join(films[number]))
        )


def make_division(
    experiment: Experiment, manifest: Manifest, problems: Sequence[Problem]
) -> Division:
    """Look up what the protocol needs; `ExperimentError` if it is not there, or does not fit."""
    asked = experiment.protocol_name
    by_folds = asked is None or (issubclass(PROTOCOLS[asked], ByFolds) and asked != OFFICIAL)
    if experiment.split is None and by_folds and manifest.split_names:
        name, note = _only_split(experiment, manifest)
        division = make_division(structs.replace(experiment, split=name), manifest, problems)
        return replace(division, note="; ".join(filter(None, [note, division.note])))
    fixed = experiment.split == OFFICIAL and experiment.balance is None and not experiment.gap
    name = asked or (OFFICIAL if fixed else "split")
    if name == "released":
        return _released(experiment, manifest, problems)
    if name == "leave-film-out":
        return _by_film(experiment, manifest)
    if not (experiment.split or issubclass(PROTOCOLS[name], ByFolds)):
        return Division(name)
    near = ""
    if experiment.split:
        split = _named_split(experiment, manifest.split(experiment.split), name)
    elif name == OFFICIAL:
        raise ExperimentError(
            f"{experiment.name!r}: the official protocol goes by a benchmark's own sets; name "
            f'their fold column: split = "official" ({manifest.name} has '
            f"{', '.join(manifest.split_names) or 'none'})"
        )
    else:
        split = _draw_split(experiment, manifest)
        if not experiment.groups and not experiment.gap:
            near = _describe_near(manifest, split)
    if gaps := [fold for fold, clips in enumerate(split.sizes) if not clips]:
        raise ExperimentError(
            f"the split {split.name!r} goes up to fold {split.last_fold}, and no clip is in fold "
            f"{gaps[0]}; number its folds from 0 on without gaps, or split the clips anew: "
            "obygaze manifests split MANIFEST --by-film --overwrite"
        )
    last = split.last_fold if PROTOCOLS[name].in_turn else split.test_fold
    return Division(name, split.name, split.fold_of, last, frozenset(split.ids), near=near)


def _only_split(experiment: Experiment, manifest: Manifest) -> tuple[str, str]:
    """Return the only split of a manifest, or "" to draw one, and a note that says so."""
    only, *others = manifest.split_names
    if others:
        raise ExperimentError(
            f"{experiment.name!r}: the manifest {manifest.name!r} has several splits: "
            f'{", ".join(manifest.split_names)}. Name one in the experiment (split = "NAME"), '
            'or draw ten new folds (split = "")'
        )
    own, column = manifest.split(only), experiment.groups
    groups = manifest.items.groups(column, own.ids) if column else own.ids
    if len({*zip(groups, own.folds, strict=True)}) > len({*groups}):
        return "", f"folds are drawn: {only} divides {group_noun(column or '')}s"
    return only, f"folds of {only}, the only split of {manifest.name}"


def _by_film(experiment: Experiment, manifest: Manifest) -> Division:
    """Make each film, or other group, a fold of its own."""
    films = manifest.items.groups(experiment.groups or "film", manifest.ids)
    number = {film: fold for fold, film in enumerate(sorted(set(films)))}
    fold_of = {clip: number[film] for clip, film in zip(manifest.ids, films, strict=True)}
    division = Division("leave-film-out", "", fold_of, len(number) - 1)
    if not experiment.split:
        return division
    split = manifest.split(experiment.split)
    return replace(division, split=split.name, ids=frozenset(split.ids))


def _named_split(experiment: Experiment, split: Split, protocol: str) -> Split:
    """Return the split that an experiment names, if it has the folds that the protocol needs."""
    if protocol != OFFICIAL and split.last_fold < 2:
        raise ExperimentError(
            f"{experiment.name!r}: the split {split.name!r} has "
            f"{counted(split.last_fold + 1, 'fold')}; {TAKES_THREE}; name another, or draw "
            'folds: split = "", and gap = 5 where clips are of one file'
        )
    if protocol == OFFICIAL and split.lost_folds:
        raise ExperimentError(
            f"{experiment.name!r}: set {split.lost_folds[0]} of the official sets "
            f"{split.name!r} has no clip left, so the others are not the official ones. Let "
            'each set test in turn: protocol = "split"'
        )
    return split


def _draw_split(experiment: Experiment, manifest: Manifest) -> Split:
    """Draw folds that keep groups together, or stretches of files that are a gap apart."""
    column, labels = experiment.groups, manifest.labels(experiment.label_set)
    gap, items = 0.0 if column else experiment.gap, manifest.items
    groups = items.groups(column, labels.ids) if column else cut_files(items, labels.ids, gap)
    # Two stretches a fold, if possible: of levels that change seldom each then has some.
    most = max(3, len({*groups}) // 2) if gap else N_FOLDS
    folds = min(N_FOLDS, most, len({*groups}))
    if folds < 3 and gap:
        raise ExperimentError(
            f"{experiment.name!r}: gap = {gap:g} leaves "
            f"{counted(folds, 'stretch', 'stretches')} of files; {TAKES_THREE}; take a smaller gap"
        )
    if folds < 3 and column:
        raise ExperimentError(
            f'{experiment.name!r}: groups = "{column}" has {counted(folds, group_noun(column))}; '
            f'{TAKES_THREE}; in place of groups take split = "", gap = 5'
        )
    kind = "stretches of files" if gap else "stratified"
    by_column = f" by {column}" if column else ""
    return stratified(
        manifest,
        folds=folds,
        seed=experiment.seed,
        name=f"{kind}, {folds} folds{by_column}, seed {experiment.seed}",
        labels=experiment.label_set,
        groups=column,
        gap=gap,
    )


def _describe_near(manifest: Manifest, split: Split) -> str:
    """Say how many clips are near others of another fold, and what keeps them apart."""
    near, files = describe_neighbours(manifest.items, split), {*manifest.items.column("media")}
    whole = 'groups = "media" or ' if len(files - {""}) > 2 else ""
    return near and f"{near}; {whole}gap = 5 keeps them apart."


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
    once = not problems[0].train.concept
    split = manifest.split(name)
    runs = find_released_runs(manifest, name, first=split.test_fold - 1 if once else 0)
    tested = {
        task.key: released_test_ids(
            manifest,
            _released_name(manifest, _file_of(task)) if name in manifest.run_names else name,
        )
        for problem in problems
        for task in problem.tests
    }
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
            f"the authors released no split for {task.key}; they did for {names}, S positive"
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
