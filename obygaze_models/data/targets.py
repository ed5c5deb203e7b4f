"""Targets: how labels become numbers, what predictions look like, and how they are scored.

A `Task` names its target, and `TARGETS` has each by its key. Whatever differs for another kind of
target, such as a number, belongs here: its labels, the columns of its predictions, its scores and
the scores of guessing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.metrics import (
    CLASSES,
    CONCEPTS,
    Array,
    Scores,
    baselines,
    predicted_classes,
    ranking_keys,
    value_keys,
)
from obygaze_models.scoring.values import NUMBER, ORDERED, score_constant

if TYPE_CHECKING:
    from obygaze_models.data.dataset import ClipDataset
    from obygaze_models.data.tasks import Task

UNUSED = -1
"""The label of clips that are left out."""
PROBABILITY = "probability"
"""The prefix of the columns of probabilities."""
TOLERANCE = 1e-6
"""The tolerance of a probability outside 0 and 1."""
NUMBERED = "number"
"""The level of clips that have a number, where that is the target."""
EASY, CARRIERS = "EN", ("HN", "S")
"""ObyGaze's level without any concept, and the levels from which concepts are learned."""
# The paper's three sets of negatives (its solid bars, its hatched bars, and a third), in short.
NEGATIVES = {"a": "EN", "b": "all without", "c": "HN+S without"}


class Counts(NamedTuple):
    """The numbers of clips: in all, by class, and of positives if there are two classes.

    A target without classes counts all its clips as a single class.
    """

    clips: int
    positives: int | None
    classes: dict[str, int]


class Classes:
    """The target of classification tasks: a number for each class, from 0.

    Predictions are probabilities: [N] of the second of two classes, or [N, classes] of more.
    """

    key: ClassVar[str] = CLASSES
    is_numeric: ClassVar[bool] = False
    label_type: ClassVar[type] = np.int64

    def encode(self, task: Task, data: ClipDataset) -> Array:
        """Return the number of each clip's class; `UNUSED` if it is left out."""
        if task.concept:
            column = data.concept_names.index(task.concept)
            return clip_targets(data, task.negatives)[:, column].astype(np.int64)
        code_of = {level: code for code, kind in enumerate(task.classes) for level in kind.levels}
        return np.array([code_of.get(level, UNUSED) for level in data.levels], dtype=np.int64)

    def takes_part(self, labels: Array) -> Array:
        """Return True for each clip that takes part in a task, by its label."""
        return labels >= 0

    def strata(self, labels: Array) -> Array:
        """Return the strata by which folds are drawn and balanced; `UNUSED` for clips left out."""
        return labels

    def format_labels(self, task: Task, labels: Array) -> Array:
        """Return the cells of labels in a file: the keys of the classes."""
        return np.array(task.class_keys, dtype=object)[labels.astype(np.int64)]

    def read_labels(self, task: Task, cells: Array) -> Array:
        """Return the labels of cells; `UNUSED` for unknown classes."""
        import pandas as pd

        return np.asarray(pd.Index(task.class_keys).get_indexer(pd.Index(cells)))

    def count(self, task: Task, labels: Array) -> Counts:
        """Count all clips, those of each class, and the positives of two classes."""
        count = Counter(labels.tolist())
        return Counts(
            clips=len(labels),
            positives=count[1] if task.is_binary else None,
            classes={key: count[code] for code, key in enumerate(task.class_keys)},
        )

    def missing(self, task: Task, labels: Array, *, least: int | None = None) -> list[str]:
        """Return the titles of the classes without clips, if fewer than `least` classes have clips.

        By default every class needs clips.
        """
        present = np.unique(labels)
        missing = [title for code, title in enumerate(task.class_titles) if code not in present]
        enough = len(task.classes) if least is None else least
        return missing if len(task.classes) - len(missing) < enough else []

    def columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns of predictions, by the names of the classes; two classes have one."""
        if len(names) == 2:
            return [PROBABILITY]
        return [f"{PROBABILITY}_{name}" for name in names]

    def columns_in(self, names: Iterable[str]) -> list[str]:
        """Return the columns of a table that have predictions."""
        return [name for name in names if name.startswith(PROBABILITY)]

    def to_columns(self, outputs: Array) -> Array:
        """Return the columns to store, from the probabilities of all classes."""
        return outputs[:, 1:] if outputs.shape[1] == 2 else outputs

    def from_columns(self, values: Array) -> Array:
        """Return the probabilities of all classes, from the stored columns."""
        return np.column_stack([1 - values, values]) if values.shape[1] == 1 else values

    def outputs_of(self, task: Task, test: Task, table: Array) -> Array:
        """Return what the predictions of a task say of one of its tests."""
        return table

    def allows(self, values: Array) -> Array:
        """Return True for each value that a prediction can have."""
        return (values >= -TOLERANCE) & (values <= 1 + TOLERANCE)

    def called(self, values: Array) -> Array:
        """Return each clip's most probable class; of two classes, the second above one half."""
        return predicted_classes(values)

    def guesses(self, labels: Array, others: Array) -> dict[str, Scores]:
        """Return what each way of guessing scores on a film's clips, by these and all others."""
        return baselines(float(np.mean(labels)))

    def ranking_scores(self, *, several: bool) -> list[str]:
        """Return the scores by which models of two classes, or of several, can be ranked."""
        return ranking_keys(multiclass=several)

    def default_score(self, task: Task) -> str:
        """Return the score by which models are ranked, unless an experiment names another.

        For two classes it is a score of the ranking, because a model that calls all clips positive
        has a high F1.
        """
        return "auroc" if task.is_binary else "f1_macro"


class _Numeric(Classes):
    """The base of ordered levels and numbers, whose predictions are a number for each clip."""

    is_numeric = True
    column: ClassVar[str]
    main: ClassVar[str]

    def columns(self, names: Sequence[str]) -> list[str]:
        """Return the one column of predictions."""
        return [self.column]

    def columns_in(self, names: Iterable[str]) -> list[str]:
        """Return those columns of a table that have predictions."""
        return [name for name in names if name == self.column]

    def to_columns(self, outputs: Array) -> Array:
        """Return the predictions as they are."""
        return outputs

    def from_columns(self, values: Array) -> Array:
        """Return the values of the column as they are."""
        return values

    def allows(self, values: Array) -> Array:
        """Return True for each value that a prediction can have."""
        return np.isfinite(values)

    def count(self, task: Task, labels: Array) -> Counts:
        """Count all clips, and those of each level."""
        return super().count(task, labels)._replace(positives=None)

    def guesses(self, labels: Array, others: Array) -> dict[str, Scores]:
        """Return the scores of the mean of the other films, and of the film's own mean."""
        means = {"mean of the other films": others, "mean of the film": labels}
        return {
            name: score_constant(labels, float(labels_of.mean()), self.key)
            for name, labels_of in means.items()
            if len(labels_of)
        }

    def ranking_scores(self, *, several: bool) -> list[str]:
        """Return the scores that models can be ranked by."""
        return value_keys(self.key)

    def default_score(self, task: Task) -> str:
        """Return the score that models are ranked by, unless an experiment names another."""
        return self.main


class Ordered(_Numeric):
    """The target of levels in order: a label is the place of a level, from 0.

    A prediction is a position on the scale from the lowest level (0) to the highest, and may be
    a little beyond its ends.
    """

    key = ORDERED
    column = "position"
    main = "weighted_kappa"

    def called(self, values: Array) -> Array:
        """Return the nearest level, or one above the highest."""
        return np.maximum(np.rint(values), 0).astype(np.int64)


class Number(_Numeric):
    """The target of a number for each clip, such as a rating; NaN takes no part."""

    key = NUMBER
    column = "value"
    main = "spearman"
    label_type = np.float64

    def encode(self, task: Task, data: ClipDataset) -> Array:
        """Return each clip's number."""
        if data.numbers is None:
            raise ExperimentError(f"{task.key}: the clips were read without their numbers")
        return data.numbers

    def takes_part(self, labels: Array) -> Array:
        """Return True for each clip that has a number."""
        return np.isfinite(labels)

    def strata(self, labels: Array) -> Array:
        """Return 0 for each clip that has a number, as folds are not balanced by numbers."""
        return np.where(np.isfinite(labels), 0, UNUSED)

    def format_labels(self, task: Task, labels: Array) -> Array:
        """Return the cells of labels in a file."""
        return labels.astype(object)

    def read_labels(self, task: Task, cells: Array) -> Array:
        """Return the numbers of cells."""
        return cells.astype(np.float64)

    def count(self, task: Task, labels: Array) -> Counts:
        """Count all clips."""
        return Counts(len(labels), None, {key: len(labels) for key in task.class_keys})

    def missing(self, task: Task, labels: Array, *, least: int | None = None) -> list[str]:
        """Return what is missing if there are fewer than two clips."""
        return [f"{task.title} (two are needed)"] if len(labels) < 2 else []

    def called(self, values: Array) -> Array:
        """Return the predicted numbers."""
        return values


class Concepts(Classes):
    """The target of several concepts that one fit learns, each tested as a separate task.

    A label is a row: 1 for each concept that a clip shows, 0 for those that it is a negative of,
    else `UNUSED`.
    """

    key = CONCEPTS

    def encode(self, task: Task, data: ClipDataset) -> Array:
        """Return the labels of each clip, [N, concepts]."""
        columns = [data.concept_names.index(name) for name in task.class_titles]
        return clip_targets(data, task.negatives)[:, columns].astype(np.int64)

    def takes_part(self, labels: Array) -> Array:
        """Return True for each clip that has a label of any concept."""
        return np.asarray((labels >= 0).any(axis=1))

    def strata(self, labels: Array) -> Array:
        """Return 0 for each clip that takes part, as folds are not balanced by concepts."""
        return np.where(self.takes_part(labels), 0, UNUSED)

    def count(self, task: Task, labels: Array) -> Counts:
        """Count all clips, and those that show each concept."""
        positives = (labels > 0).sum(axis=0).tolist()
        return Counts(len(labels), None, dict(zip(task.class_keys, positives, strict=True)))

    def missing(self, task: Task, labels: Array, *, least: int | None = None) -> list[str]:
        """Return the concepts if no clip shows any: each concept may be missing."""
        return [] if (labels > 0).any() else task.class_titles

    def outputs_of(self, task: Task, test: Task, table: Array) -> Array:
        """Return the probabilities [N, 2] of one concept."""
        positive = table[:, task.class_titles.index(test.concept)]
        return np.column_stack([1 - positive, positive])


Target = Classes
"""The interface of a target, which all others share."""
TARGETS: dict[str, Target] = {
    target.key: target for target in (Classes(), Ordered(), Number(), Concepts())
}
"""Every target by its key."""


def target_of_columns(names: Iterable[str]) -> Target:
    """Return the target whose predictions a table with these columns has."""
    names = list(names)
    fitting = [target for target in TARGETS.values() if target.columns_in(names)]
    return fitting[0] if fitting else TARGETS[Classes.key]


def concept_targets(
    levels: Sequence[str],
    concepts: Array,
    negatives: str,
    *,
    is_obygaze: bool = True,
) -> Array:
    """Return 1 where a clip shows a concept, 0 where it is a negative of it, else -1; [N, K].

    Not Sure clips are left out, and so is an Easy Negative that is marked with the concept. If the
    levels are not ObyGaze's (`LabelScheme.is_obygaze`), whatever their codes, each clip either
    shows the concept or is a negative of it.
    """
    if negatives not in NEGATIVES:
        raise ExperimentError(
            f"unknown negatives {negatives!r}. Choose "
            + "; ".join(f"{name} ({text})" for name, text in NEGATIVES.items())
        )
    has_concept = np.asarray(concepts, dtype=bool)
    if not is_obygaze:
        return has_concept.astype(np.int8)
    easy, annotated = (np.isin(levels, group)[:, None] for group in ((EASY,), CARRIERS))
    among = {"a": easy, "b": easy | annotated, "c": annotated}[negatives]
    targets = np.full(has_concept.shape, -1, dtype=np.int8)
    targets[among & ~has_concept] = 0
    targets[annotated & has_concept] = 1
    return targets


def clip_targets(data: ClipDataset, negatives: str) -> Array:
    """Return the `concept_targets` of clips, by the scheme of their levels."""
    is_obygaze = data.scheme.is_obygaze
    return concept_targets(data.levels, data.concepts, negatives, is_obygaze=is_obygaze)
