"""Targets: how labels become numbers, what predictions look like, and how they are scored.

A `Task` names its target, and `TARGETS` has each by its key. Whatever differs for another kind of
target, such as a number, belongs here: its labels, the columns of its predictions, its scores and
the scores of guessing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.guesses import baselines
from obygaze_models.scoring.metrics import Array, Scores, predicted_classes, ranking_keys

if TYPE_CHECKING:
    from obygaze_models.data.dataset import ClipDataset
    from obygaze_models.data.tasks import Task

UNUSED = -1
"""The label of clips that are left out."""
PROBABILITY = "probability"
"""The prefix of the columns of probabilities."""
TOLERANCE = 1e-6
"""How far a probability may be outside 0 and 1."""
EASY, CARRIERS = "EN", ("HN", "S")
"""ObyGaze's level without any concept, and the levels from which concepts are learned."""
# : The paper's three sets of negatives (its solid bars, its hatched bars, and a third), in short.
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

    key = "classes"

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

    def allows(self, values: Array) -> Array:
        """Return True for each value that a prediction can have."""
        return (values >= -TOLERANCE) & (values <= 1 + TOLERANCE)

    def called(self, values: Array) -> Array:
        """Return each clip's most probable class; of two, the second above one half."""
        return predicted_classes(values)

    def guesses(self, labels: Array) -> dict[str, Scores]:
        """Return what each way of guessing scores on clips of two classes."""
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


Target = Classes
"""The interface of a target, which a second one has to share."""
TARGETS: dict[str, Target] = {target.key: target for target in (Classes(),)}
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
