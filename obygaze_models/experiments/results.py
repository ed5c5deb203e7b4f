"""All that a run folder holds, read back and held against ``run.json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import sha256_of
from obygaze_features.common.tables import Table, read_table
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_models.experiments.clip_table import Clip, read_clip_table
from obygaze_models.experiments.explanations import Explained, read_explanations
from obygaze_models.experiments.record import MAKE
from obygaze_models.experiments.run import FILES, Run, read_run

__all__ = [
    "Clip",
    "Explained",
    "FitPredictions",
    "MeanPredictions",
    "Results",
    "average_over_fits",
    "read_results",
]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FitPredictions:
    """What one fit of a model said of one test set.

    Parameters
    ----------
    model, fit, test
        Whose, and of which clips.
    ids, labels
        The clips, and the class of each from 0 on.
    probabilities
        [N] of the positive class, or [N, classes] where there are more than two.
    """

    model: str
    fit: int
    test: str
    ids: list[str]
    labels: Array
    probabilities: Array

    @property
    def called(self) -> Array:
        """The class that each clip is given: the likeliest; of two the second above one half."""
        if self.probabilities.ndim == 2:
            return np.asarray(self.probabilities.argmax(axis=1))
        return (self.probabilities > 0.5).astype(np.int64)

    @property
    def wrong(self) -> Array:
        """Which clips are given another class than the annotators'."""
        return np.asarray(self.called != self.labels)


@dataclass(frozen=True, eq=False)
class MeanPredictions(FitPredictions):
    """What a model said on average over its fits; see `average_over_fits`.

    `low` and `high` are the lowest and highest of what its `fits` said of a clip: of the last
    class, if there are many.
    """

    low: Array
    high: Array
    fits: Array


@dataclass(frozen=True, eq=False)
class Results:
    """A run, its clips by id, what its models said of them, and why."""

    run: Run
    clips: dict[str, Clip]
    said: list[FitPredictions]
    explained: list[Explained]

    def classes(self, test: str) -> tuple[str, ...]:
        """The names of a test's classes."""
        return tuple(self.run.record.tests[test].classes)


def read_results(folder: Path) -> Results:
    """Read a run folder; `ExperimentError` where it is incomplete or does not fit together."""
    run = read_run(folder)
    for name in FILES:
        if not (folder / name).is_file():
            raise ExperimentError(
                f"{folder} is not complete: it has no {name}; run it again with: {MAKE}"
            )
    clips = read_clip_table(folder / "clips.csv")
    said = _predictions(folder / "predictions.csv", run)
    explained = read_explanations(folder / "explanations.jsonl")
    _check(run, clips, said)
    _check_explanations(run, said, explained)
    for name in FILES:
        if sha256_of(folder / name) != run.record.files.get(name):
            raise ExperimentError(
                f"{folder / name} was changed since the run wrote it (its digest is another), and "
                f"run.json has scores of what it was; run it again with: {MAKE}"
            )
    return Results(run, clips, said, explained)


def _predictions(path: Path, run: Run) -> list[FitPredictions]:
    """In the file's order, which is that of models, then runs, then tests."""
    try:
        table = read_table(path, required=("id", "model", "fit", "test", "label"))
        rows: dict[tuple[str, str, str], list[int]] = {}
        keys = zip(table["model"], table["fit"], table["test"], strict=True)
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        return [_said(table, key, of, run) for key, of in rows.items()]
    except (ManifestError, KeyError, ValueError) as problem:
        raise ExperimentError(
            f"{path} cannot be read ({problem}); run it again with: {MAKE}"
        ) from None


def _said(table: Table, key: tuple[str, str, str], rows: list[int], run: Run) -> FitPredictions:
    model, number, test = key
    classes = list(run.record.tests[test].classes)
    if len(classes) == 2:
        labels, columns = ["0", "1"], ["probability"]
    else:
        labels, columns = classes, [f"probability_{name}" for name in classes]
    for row in rows:
        if table["label"][row] not in labels:
            raise ValueError(
                f"line {table.lines[row]}: label {table['label'][row]!r}, not one of "
                f"{', '.join(labels)}"
            )
        for name in columns:
            if not 0 <= float(table[name][row]) <= 1:  # nor is nan
                raise ValueError(
                    f"line {table.lines[row]}: {name} {table[name][row]}, not from 0 to 1"
                )
    ids = [table["id"][row] for row in rows]
    if len(set(ids)) < len(ids):
        raise ValueError(f"a clip stands twice for {model}, run {number}, test {test}")
    said = np.array([[float(table[name][row]) for name in columns] for row in rows])
    return FitPredictions(
        model,
        int(number),
        test,
        ids,
        np.array([labels.index(table["label"][row]) for row in rows], dtype=np.int64),
        said[:, 0] if len(classes) == 2 else said,
    )


def _check(run: Run, clips: dict[str, Clip], said: list[FitPredictions]) -> None:
    """Whether the predictions are those that the scores are of, as far as counts tell."""
    expected = {(of.model, number, of.test) for of in run.record.scores for number in of.fits}
    found = {(one.model, one.fit, one.test) for one in said}
    if found != expected:
        model, number, test = sorted(expected ^ found)[0]
        where = "predictions.csv" if (model, number, test) in expected else "run.json"
        raise ExperimentError(
            f"{run.folder} does not fit together: {where} has nothing of {model}, run {number}, "
            f"test {test}; run it again with: {MAKE}"
        )
    for test, of in run.record.tests.items():
        ids = {one for each in said if each.test == test for one in each.ids}
        if len(ids) != of.clips:
            raise ExperimentError(
                f"{run.folder} does not fit together: predictions.csv has "
                f"{counted(len(ids), 'clip')} of {test}, run.json {of.clips:,}; run it again "
                f"with: {MAKE}"
            )
        if lost := sorted(ids - set(clips)):
            raise ExperimentError(
                f"{run.folder} does not fit together: clips.csv lacks {lost[0]}; run it again "
                f"with: {MAKE}"
            )


def _check_explanations(
    run: Run, said: Sequence[FitPredictions], explained: Sequence[Explained]
) -> None:
    """Whether they are of models, runs and clips that predictions are of."""
    tasks = {draw.task for draw in run.record.fits}
    ids: dict[tuple[str, int], set[str]] = {}
    for one in said:
        ids.setdefault((one.model, one.fit), set()).update(one.ids)
    for why in explained:
        known = ids.get((why.model, why.fit), set())
        strange = [one for one in why.ids if one not in known]
        if strange or not known or why.task not in tasks:
            raise ExperimentError(
                f"{run.folder} does not fit together: explanations.jsonl speaks of "
                f"{strange[0] if strange and known else why.task} by {why.model}, run {why.fit}, "
                f"of which predictions.csv has nothing; run it again with: {MAKE}"
            )


def average_over_fits(said: Sequence[FitPredictions]) -> MeanPredictions:
    """The mean probability of each clip over the runs of one model that tested it, ids in order.

    Where one run tested a clip in several test sets, which its model said the same of, it counts
    once.
    """
    if len({one.model for one in said}) != 1:
        raise ExperimentError("means over runs are of one model")
    ids, first, place = np.unique(
        [one for each in said for one in each.ids], return_index=True, return_inverse=True
    )
    runs = np.concatenate([np.full(len(one.ids), one.fit) for one in said])
    _, once = np.unique(np.stack([runs, place]), axis=1, return_index=True)
    place = place[once]
    probabilities = np.concatenate([one.probabilities for one in said])[once]
    last = probabilities if probabilities.ndim == 1 else probabilities[:, -1]
    total = np.zeros((len(ids), *probabilities.shape[1:]))
    np.add.at(total, place, probabilities)
    low, high = np.full(len(ids), np.inf), np.full(len(ids), -np.inf)
    np.minimum.at(low, place, last)
    np.maximum.at(high, place, last)
    fits = np.bincount(place)
    return MeanPredictions(
        said[0].model,
        -1,
        said[0].test,
        ids.tolist(),
        np.concatenate([one.labels for one in said])[first],
        (total.T / fits).T,
        low,
        high,
        fits,
    )
