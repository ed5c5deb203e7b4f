"""Targets: how labels are encoded, what predictions look like, and how they are scored.

A `Task` has the key of its target in `TARGETS`. Everything that depends on the kind of target
belongs here: its labels, the columns of its predictions, its scores and the scores of guesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.metrics import (
    CLASSES,
    Array,
    Scores,
    baselines,
    number_keys,
    predicted_classes,
    ranking_keys,
)
from obygaze_models.scoring.number_scores import NUMBER, score_constant

if TYPE_CHECKING:
    from obygaze_models.data.dataset import ClipDataset
    from obygaze_models.data.tasks import Task

UNUSED = -1
"""The label of clips that are left out."""
PROBABILITY = "probability"
"""The prefix of the names of probability columns."""
VALUE = "value"
"""The name of the column of predicted numbers."""
TOLERANCE = 1e-6
"""The tolerance for probabilities below 0 or above 1."""
NUMBERED = "number"
"""The level of clips that have a number, if the target is a number."""
EASY = "EN"
CARRIERS = ("HN", "S")
"""ObyGaze's level without any concept, and its levels with concepts."""
# Short names of the sets of negatives. In the paper, a has solid bars and b has hatched bars.
NEGATIVES = {"a": "EN", "b": "all without", "c": "HN+S without"}


class Counts(NamedTuple):
    """The number of all clips, of clips in each class, and of positives if there are two classes.

    For numbers, all clips count as a single class.
    """

    clips: int
    positives: int | None
    classes: dict[str, int]


class Classes:
    """The target of classification tasks. Labels are class codes, from 0.

    With two classes, predictions are the probabilities [N] of the second class. With more, they are
    the probabilities [N, classes] of all classes.
    """

    key = CLASSES
    is_numeric = False
    label_type = np.int64

    def encode(self, task: Task, data: ClipDataset) -> Array:
        """Return the class code of each clip; `UNUSED` for clips that are left out."""
        if task.concept:
            column = data.concept_names.index(task.concept)
            return clip_targets(data, task.negatives)[:, column].astype(np.int64)
        code_of: dict[str, int] = {}
        for code, kind in enumerate(task.classes):
            code_of |= dict.fromkeys(kind.levels, code)
        return np.array([code_of.get(level, UNUSED) for level in data.levels], dtype=np.int64)

    def takes_part(self, labels: Array) -> Array:
        """Return a mask of the clips whose labels take part in the task."""
        return labels >= 0

    def strata(self, labels: Array) -> Array:
        """Return the strata for drawing and balancing folds; `UNUSED` for clips left out."""
        return labels

    def format_labels(self, task: Task, labels: Array) -> Array:
        """Format labels as cells of a CSV file: the keys of the classes."""
        return np.array(task.class_keys, dtype=object)[labels.astype(np.int64)]

    def read_labels(self, task: Task, cells: Array) -> Array:
        """Convert cells to labels; `UNUSED` for unknown classes."""
        import pandas as pd

        return np.asarray(pd.Index(task.class_keys).get_indexer(pd.Index(cells)))

    def count(self, task: Task, labels: Array) -> Counts:
        """Count all clips, the clips of each class, and the positives if there are two classes."""
        count = Counter(labels.tolist())
        classes = {key: count[code] for code, key in enumerate(task.class_keys)}
        positives = None
        if task.is_binary:
            positives = count[1]
        return Counts(clips=len(labels), positives=positives, classes=classes)

    def missing(self, task: Task, labels: Array, *, least: int | None = None) -> list[str]:
        """Return the titles of the classes without clips, if fewer than `least` classes have clips.

        By default, every class needs clips.
        """
        present = np.unique(labels)
        missing = [title for code, title in enumerate(task.class_titles) if code not in present]
        enough = len(task.classes) if least is None else least
        return missing if len(task.classes) - len(missing) < enough else []

    def columns(self, names: Sequence[str]) -> list[str]:
        """Return the names of the prediction columns: one per class, or one for two classes."""
        if len(names) == 2:
            return [PROBABILITY]
        return [f"{PROBABILITY}_{name}" for name in names]

    def columns_in(self, names: Iterable[str]) -> list[str]:
        """Return the names of the columns that have predictions."""
        return [name for name in names if name.startswith(PROBABILITY)]

    def to_columns(self, outputs: Array) -> Array:
        """Convert the probabilities of all classes to the columns to store."""
        return outputs[:, 1:] if outputs.shape[1] == 2 else outputs

    def from_columns(self, values: Array) -> Array:
        """Convert the stored columns to the probabilities of all classes."""
        if values.shape[1] > 1:
            return values
        return np.column_stack([1 - values, values])

    def allows(self, values: Array) -> Array:
        """Return a mask of the values that are valid predictions."""
        return (values >= -TOLERANCE) & (values <= 1 + TOLERANCE)

    def called(self, values: Array) -> Array:
        """Return each clip's most probable class. With two classes, the threshold is 0.5."""
        return predicted_classes(values)

    def guesses(self, labels: Array, others: Array) -> dict[str, Scores]:
        """Score each kind of guess on a film's clips, given their labels and all other labels."""
        return baselines(float(np.mean(labels)))

    def ranking_scores(self, *, several: bool) -> list[str]:
        """Return the keys of the scores that can rank models, for two classes or for several."""
        return ranking_keys(multiclass=several)

    def default_score(self, task: Task) -> str:
        """Return the score that ranks models by default.

        For two classes, it is AUROC, because F1 can be high even for a model that predicts positive
        for all clips.
        """
        return "auroc" if task.is_binary else "f1_macro"


class Number:
    """The target of a number for each clip, such as a rating. Clips with NaN are left out."""

    key = NUMBER
    is_numeric = True
    label_type = np.float64

    def encode(self, task: Task, data: ClipDataset) -> Array:
        """Return each clip's number."""
        if data.numbers is None:
            raise ExperimentError(
                f"{task.key}: the labels have no numbers; see data.dataset.with_numbers"
            )
        return data.numbers

    def takes_part(self, labels: Array) -> Array:
        """Return a mask of the clips that have a finite number."""
        return np.isfinite(labels)

    def strata(self, labels: Array) -> Array:
        """Return 0 for clips with a finite label, else `UNUSED`: numbers do not balance folds."""
        return np.where(np.isfinite(labels), 0, UNUSED)

    def format_labels(self, task: Task, labels: Array) -> Array:
        """Format labels as cells of a CSV file."""
        return labels.astype(object)

    def read_labels(self, task: Task, cells: Array) -> Array:
        """Convert cells to numbers."""
        return cells.astype(np.float64)

    def count(self, task: Task, labels: Array) -> Counts:
        """Count all clips."""
        return Counts(len(labels), None, dict.fromkeys(task.class_keys, len(labels)))

    def missing(self, task: Task, labels: Array, *, least: int | None = None) -> list[str]:
        """Return a description of what is missing if there are fewer than two clips."""
        return [f"{task.title}, or only one"] if len(labels) < 2 else []

    def columns(self, names: Sequence[str]) -> list[str]:
        """Return the name of the single column of predictions."""
        return [VALUE]

    def columns_in(self, names: Iterable[str]) -> list[str]:
        """Return the names of the columns that have predictions."""
        return [name for name in names if name == VALUE]

    def to_columns(self, outputs: Array) -> Array:
        """Return the predictions unchanged."""
        return outputs

    def from_columns(self, values: Array) -> Array:
        """Return the values of the column unchanged."""
        return values

    def allows(self, values: Array) -> Array:
        """Return a mask of the values that are valid predictions."""
        return np.isfinite(values)

    def called(self, values: Array) -> Array:
        """Return the predicted numbers."""
        return values

    def guesses(self, labels: Array, others: Array) -> dict[str, Scores]:
        """Score two guesses on a film: the mean of all other clips, and the film's own mean."""
        means = {"mean of the other films": others, "mean of the film": labels}
        scores = {}
        for name, labels_of in means.items():
            if len(labels_of):
                scores[name] = score_constant(labels, float(labels_of.mean()))
        return scores

    def ranking_scores(self, *, several: bool) -> list[str]:
        """Return the keys of the scores that can rank models."""
        return number_keys()

    def default_score(self, task: Task) -> str:
        """Return the score that ranks models by default."""
        return "spearman"


Target = Classes | Number
"""The type of all targets, which have the same methods."""
TARGETS: dict[str, Target] = {Classes.key: Classes(), Number.key: Number()}
"""All targets, by key."""


def target_of_columns(names: Iterable[str]) -> Target:
    """Return the target of a table of predictions, by the names of its columns."""
    if VALUE in names:
        return TARGETS[NUMBER]
    return TARGETS[CLASSES]


def concept_targets(
    levels: Sequence[str],
    concepts: Array,
    negatives: str,
    *,
    is_obygaze: bool = True,
) -> Array:
    """Return [N, K] labels: 1 if a clip shows a concept, 0 if it is a negative, otherwise -1.

    Not Sure clips are left out, as are Easy Negatives that are marked with the concept. If the
    levels are not ObyGaze's (see `LabelScheme.is_obygaze`), `negatives` must be ``b``, and every
    clip without the concept is a negative.
    """
    if negatives not in NEGATIVES:
        choices = "; ".join(f"{name} ({text})" for name, text in NEGATIVES.items())
        raise ExperimentError(f"unknown negatives {negatives!r}. Choose one: {choices}")
    has_concept = np.asarray(concepts, dtype=bool)
    if not is_obygaze:
        if negatives != "b":
            raise ExperimentError(
                f'negatives = "{negatives}" needs ObyGaze\'s levels. Use "b" (all clips without '
                "the concept)"
            )
        return has_concept.astype(np.int8)
    easy = np.isin(levels, [EASY])[:, None]
    annotated = np.isin(levels, CARRIERS)[:, None]
    among = {"a": easy, "b": easy | annotated, "c": annotated}[negatives]
    targets = np.full(has_concept.shape, -1, dtype=np.int8)
    targets[among & ~has_concept] = 0
    targets[annotated & has_concept] = 1
    return targets


def clip_targets(data: ClipDataset, negatives: str) -> Array:
    """Return the `concept_targets` of the clips in a dataset; "" means the default negatives."""
    is_obygaze = data.scheme.is_obygaze
    if not negatives:
        negatives = "a" if is_obygaze else "b"
    return concept_targets(data.levels, data.concepts, negatives, is_obygaze=is_obygaze)
