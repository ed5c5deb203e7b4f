"""Each annotator's labels for a run's test clips, and where annotators or the model disagree."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from obygaze_features.common.plugins import one_line
from obygaze_features.common.tables import format_table, read_table
from obygaze_features.errors import ExperimentError
from obygaze_models.data.tasks import Task, level_key
from obygaze_models.experiments.predictions import (
    average_over_fits,
    is_cross_validated,
    split_by,
)
from obygaze_models.experiments.record import MAKE, RunRecord
from obygaze_models.scoring.annotators import (
    AnnotatorComparison,
    compare_with_annotators,
)

if TYPE_CHECKING:
    from obygaze_models.experiments.plan import Plan
    from obygaze_models.experiments.run_folder import Run

ANNOTATORS = "annotators.csv"
"""The file with a row for each labelled clip of a test set, and a column for each annotator."""
LABEL_OF = "label of "
"""The prefix of an annotator's column name."""
Votes = dict[str, dict[str, dict[str, str]]]
"""Each label's class (or its level, if it is in no class), by test set, clip and annotator."""


def read_votes(path: Path, record: RunRecord) -> Votes:
    """Read the votes that `format_votes` wrote."""
    votes: Votes = {}
    levels = record.manifest.levels
    keys_of = {task.key: {*task.titles(levels)} for task in record.tasks}
    try:
        for row in read_table(path, required=("test", "id")).rows():
            labels = {
                column.removeprefix(LABEL_OF): label
                for column, label in row.items()
                if label and column.startswith(LABEL_OF)
            }
            if not {*labels.values()} <= keys_of[row["test"]]:
                raise ValueError(f"{row['id']} has an unknown class")
            votes.setdefault(row["test"], {})[row["id"]] = labels
    except (KeyError, ValueError) as problem:
        raise ExperimentError(
            f"{path} differs from run.json ({one_line(problem)}). Run the experiment again: {MAKE}"
        ) from None
    return votes


def format_votes(plan: Plan, predictions: pd.DataFrame) -> str:
    """Return ``annotators.csv``: each annotator's class for each test clip."""
    data = plan.data
    own = [dict(zip(part.ids, part.levels, strict=True)) for part in data.annotators.values()]
    columns: dict[str, list[str]] = {"test": [], "id": []}
    columns |= {f"{LABEL_OF}{name}": [] for name in data.annotators}
    for task in plan.tests:
        tested = {*predictions.loc[predictions["test"] == task.key, "id"]}
        for clip, codes in zip(data.ids, data.votes(task).T.tolist(), strict=True):
            if clip in tested:
                codes_and_levels = zip(codes, (levels.get(clip, "") for levels in own), strict=True)
                labels = [_vote(task, code, level) for code, level in codes_and_levels]
                for column, cell in zip(columns.values(), [task.key, clip, *labels], strict=True):
                    column.append(cell)
    return format_table(columns)


def _vote(task: Task, code: int, level: str) -> str:
    """Return the key of a label's class, or of its level if it is in no class; "" if unlabelled."""
    if code >= 0:
        return task.classes[code].key
    return level_key(level) if level else ""


def compare_models(plan: Plan, predictions: pd.DataFrame) -> dict[str, AnnotatorComparison]:
    """Compare the models with each annotator on each test set; {} if there are no annotators."""
    data = plan.data
    if not data.annotators:
        return {}

    row_of = {clip: row for row, clip in enumerate(data.ids)}
    compared = {}
    for task in plan.tests:
        if task.target.is_numeric:
            continue

        of_test = predictions[predictions["test"] == task.key]
        values = {}
        crossed = False
        for model, fits in split_by(of_test, "model").items():
            crossed |= is_cross_validated(fits)
            mean = average_over_fits(fits)
            rows = [row_of[clip] for clip in mean["id"]]
            values[model] = np.full(len(data), np.nan)
            values[model][rows] = mean["called"]

        comparison = compare_with_annotators(
            dict(zip(data.annotators, data.votes(task), strict=True)),
            values,
            data.groups.tolist(),
            task.class_titles,
            cross_validated=crossed,
        )
        if comparison is not None:
            compared[task.key] = comparison
    return compared


def find_differing(labels_of: Mapping[str, Collection[str]]) -> dict[str, bool]:
    """Map each clip with two or more labels to True if the labels differ.

    >>> find_differing({"a": ["S", "EN"], "b": ["S", "S"], "c": ["S"]})
    {'a': True, 'b': False}
    """
    return {clip: len({*labels}) > 1 for clip, labels in labels_of.items() if len(labels) > 1}


def differing_clips(run: Run, test: str) -> set[str]:
    """Return the clips of a test set to which annotators assigned different classes."""
    votes, classes = run.annotations().get(test, {}), {*run.record.task(test).class_keys}
    return {clip for clip, labels in votes.items() if len(classes & {*labels.values()}) > 1}
