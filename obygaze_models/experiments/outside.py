"""Predictions from outside: a table of probabilities that takes part in a run as an estimator.

==================  =====================================================================
``id``              the clip
``probability``     of the positive class; of more classes ``probability_NAME`` of each
``fit``             the fold, numbered as in ``predictions.csv``; without it, for all folds
``model``           the name under which it is listed; without it, the name of the file
``task``            as in ``run.json``; needed where an experiment learns several tasks
==================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_models.data.tasks import Task

ANY_FIT = -1
Array = NDArray[Any]


@dataclass(frozen=True)
class OutsideModel:
    """The predictions of one model: by task and fold, the probabilities of each clip."""

    name: str
    path: Path
    has_tasks: bool
    columns: tuple[str, ...]
    table: dict[tuple[str, int], dict[str, tuple[float, ...]]] = field(default_factory=dict)

    def probabilities(self, task: Task, fit: int, ids: Sequence[str]) -> Array | None:
        """[n, classes] for some clips of a fold; None where the file has nothing of the fold."""
        names = tuple(f"probability_{name}" for name in task.classes)
        two = len(task.classes) == 2
        if self.columns != (("probability",) if two else names):
            raise ExperimentError(
                f"{self.path}: the columns are {', '.join(self.columns)}, and {task.name} needs "
                f"{'probability' if two else ', '.join(names)}"
            )
        key = task.name if self.has_tasks else ""
        clips = self.table.get((key, fit), self.table.get((key, ANY_FIT)))
        if clips is None:
            return None
        if missing := [clip for clip in ids if clip not in clips]:
            raise ExperimentError(
                f"{self.path}: {self.name} has no prediction of {missing[0]} in fit {fit}, which "
                f"is a test clip there ({len(missing)} of {len(ids)} are missing)"
            )
        values = np.array([clips[clip] for clip in ids], dtype=np.float64)
        return np.column_stack([1 - values[:, 0], values[:, 0]]) if two else values


def read_outside(path: Path) -> list[OutsideModel]:
    """The models of a table of predictions; `ExperimentError` names what is wrong, and its line."""
    try:
        table = read_table(path, required=("id",))
        return _read_models(path, table)
    except (ManifestError, ValueError) as problem:
        raise ExperimentError(f"{path} cannot be read: {problem}") from None


def _read_models(path: Path, table: Table) -> list[OutsideModel]:
    columns = tuple(name for name in table.columns if name.startswith("probability"))
    if not columns:
        raise ExperimentError(
            f"{path} has no column probability; it has {', '.join(table.columns)}"
        )
    has_tasks = "task" in table.columns
    models: dict[str, OutsideModel] = {}
    for line, row in zip(table.lines, table.rows(), strict=True):
        name = row.get("model") or path.stem
        if name not in models:
            models[name] = OutsideModel(name, path, has_tasks, columns)
        fit = int(row["fit"]) if row.get("fit") else ANY_FIT
        values = tuple(float(row[column]) for column in columns)
        if not all(0 <= value <= 1 for value in values):  # nor is nan
            raise ValueError(f"line {line}: a probability is {row[columns[0]]}, not from 0 to 1")
        clips = models[name].table.setdefault((row.get("task", ""), fit), {})
        if row["id"] in clips:
            raise ValueError(f"line {line}: {row['id']} is twice in fit {row.get('fit', '')}")
        clips[row["id"]] = values
    return list(models.values())
