"""Each annotator's labels for a run's test clips, and where annotators or the model disagree."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
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
    probabilities_of,
    split_by,
)
from obygaze_models.experiments.record import MAKE, RunRecord
from obygaze_models.scoring.annotators import (
    AnnotatorComparison,
    compare_with_annotators,
)

if TYPE_CHECKING:
    from obygaze_features.annotations.agreement import LabelSetAgreement
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
    data, row_of = plan.data, {clip: row for row, clip in enumerate(plan.data.ids)}
    compared = {}
    for task in plan.tests if data.annotators else ():
        tables, crossed = {}, False
        for model, fits in split_by(predictions[predictions["test"] == task.key], "model").items():
            crossed |= is_cross_validated(fits)
            mean = average_over_fits(fits)
            probabilities = probabilities_of(mean)
            table = np.full((len(data), *probabilities.shape[1:]), np.nan)
            table[[row_of[clip] for clip in mean["id"]]] = probabilities
            tables[model] = table
        votes = dict(zip(data.annotators, data.votes(task), strict=True))
        films = data.groups.tolist()
        comparison = compare_with_annotators(
            votes, tables, films, task.class_titles, cross_validated=crossed
        )
        if comparison is not None:
            compared[task.key] = comparison
    return compared


def annotators_f1(
    record: RunRecord, test: str, pairs: Sequence[LabelSetAgreement] = ()
) -> tuple[float | None, float | None]:
    """Return the mean F1 between pairs of annotators, on a run's test clips and on all clips.

    The first number is from `RunRecord.annotators`. The second is the mean over `pairs` of label
    sets, as in `annotations agreement`.
    """
    compared = record.annotators.get(test)
    return compared.f1 if compared else None, _mean_f1(pairs, record.task(test))


def _mean_f1(pairs: Sequence[LabelSetAgreement], task: Task) -> float | None:
    """Return the mean F1 over pairs of label sets; None if undefined or the task is not binary."""
    if not task.is_binary:
        return None
    negatives, positives = task.classes
    scores = [pair.f1(positives.levels, negatives.levels) for pair in pairs]
    defined = [score for score in scores if score == score]
    return fmean(defined) if defined else None


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
