"""All that a run folder holds, read back and held against ``run.json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import Table, read_table
from obygaze_features.common.words import counted
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_models.experiments.clip_table import Clip, read_clip_table
from obygaze_models.experiments.explanations import Explained, read_explanations
from obygaze_models.experiments.run import MAKE, Run, read_run

__all__ = ["Clip", "Explained", "Results", "Said", "over_runs", "read_results"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Said:
    """What one model of one run said of one test set.

    Parameters
    ----------
    model, run, test
        Whose, and of which clips.
    ids, labels
        The clips, and the class of each from 0 on.
    probabilities
        [N] of the positive class, or [N, classes] where there are more than two.
    """

    model: str
    run: int
    test: str
    ids: list[str]
    labels: Array
    probabilities: Array


@dataclass(frozen=True, eq=False)
class Results:
    """A run, its clips by id, what its models said of them, and why."""

    run: Run
    clips: dict[str, Clip]
    said: list[Said]
    explained: list[Explained]

    def classes(self, test: str) -> tuple[str, ...]:
        """The names of a test's classes."""
        return tuple(self.run.record["tests"][test]["classes"])


def read_results(folder: Path) -> Results:
    """Read a run folder; `ExperimentError` where it is incomplete or does not fit together."""
    run = read_run(folder)
    for name in ("predictions.csv", "clips.csv", "explanations.jsonl"):
        if not (folder / name).is_file():
            raise ExperimentError(
                f"{folder} is not complete: it has no {name}; run it again with: {MAKE}"
            )
    clips = read_clip_table(folder / "clips.csv")
    said = _predictions(folder / "predictions.csv", run)
    _check(run, clips, said)
    return Results(run, clips, said, read_explanations(folder / "explanations.jsonl"))


def _predictions(path: Path, run: Run) -> list[Said]:
    """In the file's order, which is that of models, then runs, then tests."""
    try:
        table = read_table(path, required=("id", "model", "run", "test", "label"))
        rows: dict[tuple[str, str, str], list[int]] = {}
        keys = zip(table["model"], table["run"], table["test"], strict=True)
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        return [_said(table, key, of, run) for key, of in rows.items()]
    except (ManifestError, KeyError, ValueError) as problem:
        raise ExperimentError(
            f"{path} cannot be read ({problem}); run it again with: {MAKE}"
        ) from None


def _said(table: Table, key: tuple[str, str, str], rows: list[int], run: Run) -> Said:
    model, number, test = key
    classes = list(run.record["tests"][test]["classes"])
    labels = [table["label"][row] for row in rows]
    if len(classes) == 2:
        codes, columns = [int(label) for label in labels], ["probability"]
    else:
        codes = [classes.index(label) for label in labels]
        columns = [f"probability_{name}" for name in classes]
    said = np.array([[float(table[name][row]) for name in columns] for row in rows])
    return Said(
        model,
        int(number),
        test,
        [table["id"][row] for row in rows],
        np.array(codes, dtype=np.int64),
        said[:, 0] if len(classes) == 2 else said,
    )


def _check(run: Run, clips: dict[str, Clip], said: list[Said]) -> None:
    """Whether the predictions are those that the scores are of, as far as counts tell."""
    expected = {
        (of["model"], number, of["test"]) for of in run.record["scores"] for number in of["of_runs"]
    }
    found = {(one.model, one.run, one.test) for one in said}
    if found != expected:
        model, number, test = sorted(expected ^ found)[0]
        where = "predictions.csv" if (model, number, test) in expected else "run.json"
        raise ExperimentError(
            f"{run.folder} does not fit together: {where} has nothing of {model}, run {number}, "
            f"test {test}; run it again with: {MAKE}"
        )
    for test, of in run.record["tests"].items():
        ids = {one for each in said if each.test == test for one in each.ids}
        if len(ids) != of["clips"]:
            raise ExperimentError(
                f"{run.folder} does not fit together: predictions.csv has "
                f"{counted(len(ids), 'clip')} of {test}, run.json {of['clips']:,}; run it again "
                f"with: {MAKE}"
            )
        if lost := sorted(ids - set(clips)):
            raise ExperimentError(
                f"{run.folder} does not fit together: clips.csv lacks {lost[0]}; run it again "
                f"with: {MAKE}"
            )


def over_runs(said: Sequence[Said]) -> Said:
    """The mean probability of each clip over the runs that tested it, of one model and test."""
    if len({(one.model, one.test) for one in said}) != 1:
        raise ExperimentError("means over runs are of one model and test set")
    totals: dict[str, Any] = {}
    counts: dict[str, int] = {}
    labels: dict[str, int] = {}
    for one in said:
        for clip, label, of in zip(one.ids, one.labels.tolist(), one.probabilities, strict=True):
            totals[clip] = totals.get(clip, 0.0) + of
            counts[clip] = counts.get(clip, 0) + 1
            labels[clip] = label
    return Said(
        said[0].model,
        -1,
        said[0].test,
        list(totals),
        np.array([labels[clip] for clip in totals], dtype=np.int64),
        np.array([total / counts[clip] for clip, total in totals.items()]),
    )
