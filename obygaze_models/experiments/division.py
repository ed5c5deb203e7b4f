"""The division of a manifest's clips for a protocol, by fold columns or released lists."""

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

# The authors' split file for each set of levels. RELEASED_CONCEPTS is for learning concepts.
RELEASED = {
    frozenset({"EN", "S"}): "02_EN_S",
    frozenset({"HN", "S"}): "02_HN_S",
    frozenset({"EN", "HN", "S"}): "02_ENHN_S",
}
RELEASED_CONCEPTS = "02_EN_HN_S"
OFFICIAL = "official"
"""The name of the split, and of the protocol, that use a benchmark's own sets."""
TAKES_THREE = "training, validation and test need three"


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
    runs: RunSet | None = None
    tested: Mapping[str, frozenset[str]] = field(default_factory=dict)
    note: str = ""
    """A note on the split that was chosen, if the experiment does not name a split."""
    near: str = ""
    """A sentence on clips that are close to clips of another drawn fold, with a remedy."""

    def folds(
        self, data: ClipDataset, problem: Problem, *, seed: int, near: Near = None, **options: Any
    ) -> Sequence[Fold]:
        """Return the protocol's folds for a problem."""
        splitter = PROTOCOLS[self.protocol].of_clips(data, self, random_state=seed, **options)
        tests = {task.key: task.strata(data) for task in problem.tests}
        keywords: dict[str, Any] = {"groups": data.groups} | ({"near": near} if near else {})
        folds = splitter.make_folds(problem.train.strata(data), tests, **keywords)
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
    """Return the division for an experiment.

    Raise `ExperimentError` if the manifest lacks the splits that the protocol needs.
    """
    named = experiment.protocol_name
    by_folds = named is None or (issubclass(PROTOCOLS[named], ByFolds) and named != OFFICIAL)
    if experiment.split is None and by_folds and manifest.split_names:
        name, note = _only_split(experiment, manifest)
        division = make_division(structs.replace(experiment, split=name), manifest, problems)
        return replace(division, note="; ".join(filter(None, [note, division.note])))
    fixed = experiment.split == OFFICIAL and experiment.balance is None and not experiment.gap
    name = named or (OFFICIAL if fixed else "split")
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
            f"{experiment.name!r}: the official protocol uses a benchmark's own sets. Name "
            f'their fold column, such as split = "official" ({manifest.name} has '
            f"{', '.join(manifest.split_names) or 'none'})"
        )
    else:
        split = _draw_split(experiment, manifest)
        if not experiment.groups and not experiment.gap:
            near = _describe_near(manifest, split)
    if gaps := [fold for fold, clips in enumerate(split.sizes) if not clips]:
        raise ExperimentError(
            f"the split {split.name!r} has folds up to {split.last_fold}, but no clip is in fold "
            f"{gaps[0]}. Number its folds from 0 without gaps, or split the clips again: "
            "obygaze manifests split MANIFEST --by film --overwrite"
        )
    ids = frozenset(split.ids)
    return Division(name, split.name, split.fold_of, split.last_fold, ids, near=near)


def _only_split(experiment: Experiment, manifest: Manifest) -> tuple[str, str]:
    """Return the only split of a manifest, or "" to draw folds, and a note about the choice."""
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
        return "", f"new folds are drawn: the split {only} divides {group_noun(column or '')}s"
    return only, f"using folds of {only}, the only split of {manifest.name}"


def _by_film(experiment: Experiment, manifest: Manifest) -> Division:
    """Return a division in which each film or other group is a fold."""
    films = manifest.items.groups(experiment.groups or "film", manifest.ids)
    number = {film: fold for fold, film in enumerate(sorted(set(films)))}
    fold_of = {clip: number[film] for clip, film in zip(manifest.ids, films, strict=True)}
    division = Division("leave-film-out", "", fold_of, len(number) - 1)
    if not experiment.split:
        return division
    split = manifest.split(experiment.split)
    return replace(division, split=split.name, ids=frozenset(split.ids))


def _named_split(experiment: Experiment, split: Split, protocol: str) -> Split:
    """Return the split; raise `ExperimentError` if it has too few folds for the protocol."""
    if protocol != OFFICIAL and split.last_fold < 2:
        raise ExperimentError(
            f"{experiment.name!r}: the split {split.name!r} has "
            f"{counted(split.last_fold + 1, 'fold')}; {TAKES_THREE}. Use another split, or draw "
            'folds with split = "" (add gap = 5 if clips are from the same file)'
        )
    return split


def _draw_split(experiment: Experiment, manifest: Manifest) -> Split:
    """Draw folds that keep groups together, or that divide files into stretches with gaps."""
    column, labels = experiment.groups, manifest.labels(experiment.label_set)
    gap, items = 0.0 if column else experiment.gap, manifest.items
    groups = items.groups(column, labels.ids) if column else cut_files(items, labels.ids, gap)
    # Two stretches per fold if possible, so that each fold has clips of levels that rarely change.
    max_folds = max(3, len({*groups}) // 2) if gap else N_FOLDS
    folds = min(N_FOLDS, max_folds, len({*groups}))
    if folds < 3 and gap:
        raise ExperimentError(
            f"{experiment.name!r}: gap = {gap:g} leaves "
            f"only {counted(folds, 'stretch', 'stretches')}; {TAKES_THREE}. Use a smaller gap"
        )
    if folds < 3 and column:
        raise ExperimentError(
            f'{experiment.name!r}: groups = "{column}" has {counted(folds, group_noun(column))}; '
            f'{TAKES_THREE}. Replace groups with split = "" and gap = 5'
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
    """Return a sentence on clips that are close to clips of another fold, with a remedy."""
    near, files = describe_neighbours(manifest.items, split), {*manifest.items.column("media")}
    by_file = 'groups = "media" or ' if len(files - {""}) > 2 else ""
    return near and f"{near}; {by_file}gap = 5 keeps them apart."


def _released(experiment: Experiment, manifest: Manifest, problems: Sequence[Problem]) -> Division:
    """Return a division into the authors' runs, or into the folds used to learn their concepts.

    For concepts, the last fold is the test set, and each of the other folds is the validation set
    once. The authors' bottlenecks are trained once, on all folds except the last (the second to
    last counts as validation here). Clips without a media file are left out, as in the authors'
    code.
    """
    if experiment.split not in (None, "", *RELEASED.values(), RELEASED_CONCEPTS):
        raise ExperimentError(
            f"{experiment.split} is not one of the authors' splits. Leave split out, or set "
            f"protocol = 'split'"
        )
    name = _released_name(manifest, experiment.split or _file_of(problems[0].train))
    trained_once = not problems[0].train.concept
    split = manifest.split(name)
    runs = find_released_runs(manifest, name, first=split.last_fold - 1 if trained_once else 0)
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
            f"the authors released no split for {task.key}. Use levels {names}, with S as positive"
        )
    return name


def _released_name(manifest: Manifest, name: str) -> str:
    if name not in manifest.split_names:
        raise ExperimentError(
            f"the manifest {manifest.name!r} has no split {name!r}, which the released protocol "
            "needs. For clips of ObyGaze12, import it: obygaze manifests import "
            "obygaze12 SOURCE --splits FOLDER. For other clips, use the leak-free protocol"
        )
    return name
