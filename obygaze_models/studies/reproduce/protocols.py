"""The protocols of the paper: the authors' lists of clips in their code, and the paper's text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, Run, RunSet
from obygaze_models.data.splitters import Clips, Parts, Splitter
from obygaze_models.data.tasks import Task

FILES = {
    frozenset({"EN", "S"}): "02_EN_S",
    frozenset({"HN", "S"}): "02_HN_S",
    frozenset({"EN", "HN", "S"}): "02_ENHN_S",
}
"""The authors' split file for each set of levels."""
CONCEPTS_FILE = "02_EN_HN_S"
"""The authors' split file for learning concepts."""


class PapersText(Splitter):
    """Test on the last fold, validate on the one before, and train on the rest.

    There is a fit for each training fold. All fits train on all positives. Negatives are chosen as
    whole folds, so that there are about as many negatives as positives. Fit r takes the
    negatives of fold r and of the next few folds, where fold 0 follows the last training fold. If
    negatives do not outnumber positives, all fits train on the same clips.
    """

    two_classes = True

    def parts(self, clips: Clips) -> Iterator[Parts]:
        """Yield the parts of each fold."""
        y = clips.y
        folds = clips.folds
        last = clips.last
        pool = last - 1
        training = (folds >= 0) & (folds < pool)
        positives = int((training & (y == 1)).sum())
        negatives = int((training & (y == 0)).sum())
        wanted = round(pool * positives / max(1, negatives))
        n_chosen = min(pool, max(1, wanted))
        for index in range(pool):
            chosen = np.arange(index, index + n_chosen) % pool
            train = training & ((y == 1) | np.isin(folds, chosen))
            name = f"negatives of folds {', '.join(map(str, chosen))}"
            yield Parts(name, train, folds == pool, folds == last)


@dataclass(eq=False, repr=False, kw_only=True)
class AuthorsLists(Splitter):
    """Use the authors' lists of clips as in their code, without drawing clips.

    Parameters
    ----------
    runs
        The training and validation clips of each run.
    tested
        The clips of each test set.
    concepts_note
        A warning for models that learn concepts, or "".
    """

    divides = "clips"
    two_classes = True
    runs: RunSet = field(default_factory=lambda: RunSet("", []))
    tested: Mapping[str, frozenset[str]] = field(default_factory=dict)
    concepts_note: str = ""

    def parts(self, clips: Clips) -> Iterator[Parts]:
        """Yield the parts of each fold."""
        tested = {}
        for test, ids in self.tested.items():
            tested[test] = np.isin(clips.ids, list(ids))
        for run in self.runs.runs:
            train = np.isin(clips.ids, run.train)
            validation = np.isin(clips.ids, run.validation)
            yield Parts(f"{self.runs.name} run {run.name}", train, validation, tested)

    @classmethod
    def divide(
        cls,
        splitter: Callable[..., Splitter],
        split: str | None,
        manifest: Manifest,
        tasks: Mapping[Task, Sequence[Task]],
    ) -> dict[str, Any]:
        """Return a division into the authors' runs, or the folds used to learn their concepts.

        For concepts, the last fold is the test set, and each of the other folds is the validation
        set once. The authors' bottlenecks are trained once, on all folds except the last (the
        second to last counts as validation here). Clips without a media file are not tested, as in
        the authors' code.
        """
        task = next(iter(tasks))
        name = split or _file_of(task)
        if name not in (*FILES.values(), CONCEPTS_FILE):
            raise ExperimentError(f"{name} is not one of the authors' splits. Leave split out")
        folds = manifest.split(name)
        runs = _runs(manifest, name, first=0 if task.concept else folds.last_fold - 1)
        tested = {}
        for test in dict.fromkeys(test for tests in tasks.values() for test in tests):
            file = _file_of(test) if name in manifest.run_names else name
            authors_split = manifest.split(file)
            tested[test.key] = frozenset(
                _with_media(manifest).intersection(authors_split.fold(authors_split.last_fold))
            )
        note = ""
        if name != CONCEPTS_FILE:
            note = (
                f"The bottlenecks learned their concepts from {name}. The authors' bottlenecks "
                f"used {CONCEPTS_FILE}. Use a separate experiment with the authors' split."
            )
        trained = {clip for run in runs.runs for clip in (*run.train, *run.validation)}
        return {
            "cv": splitter(runs=runs, tested=tested, concepts_note=note),
            "split": name,
            "fold_of": folds.fold_of,
            "among": frozenset(trained.union(*tested.values())),
        }


def _file_of(task: Task) -> str:
    if task.concept:
        return CONCEPTS_FILE
    name = FILES.get(frozenset(task.levels))
    if name is None or not task.is_binary or task.classes[1].levels != ("S",):
        names = ", ".join("+".join(sorted(levels)) for levels in FILES)
        raise ExperimentError(
            f"the authors released no split for {task.key}. Use one of {names}, with S as positive"
        )
    return name


def _runs(manifest: Manifest, name: str, *, first: int = 0) -> RunSet:
    """Return the authors' runs of a split, or make runs from its fold column.

    If the manifest has no runs of the split, there is a run for each validation fold from `first`
    on. These runs leave out clips without a media file, as in the authors' code.
    """
    if name in manifest.run_names:
        return manifest.runs(name)
    split = manifest.split(name)
    usable = split.where(_with_media(manifest).__contains__)
    last = split.last_fold

    runs = []
    for fold in range(first, last):
        train = [clip for clip, number in usable.fold_of.items() if number not in (fold, last)]
        runs.append(Run(str(fold), train, usable.fold(fold)))
    return RunSet(name, runs)


def _with_media(manifest: Manifest) -> set[str]:
    return {item.id for item in manifest if item.media}


OF_PAPER: dict[str, type[Splitter]] = {"paper": PapersText, "released": AuthorsLists}
"""The protocols of the paper by name."""
