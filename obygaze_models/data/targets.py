"""Targets: how labels are encoded, what predictions look like, and how they are scored.

A `Task` has the key of its target in `TARGETS`. Everything that depends on the kind of target
belongs here: the columns of its predictions, its scores and the scores of guesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_features.common.arrays import Array
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import LabelScheme
from obygaze_models.scoring.metrics import CLASSES, Scores, baselines, predicted_classes
from obygaze_models.scoring.number_scores import NUMBER, score_constant

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


@dataclass(frozen=True)
class Target:
    """What a task predicts: a class or, if `is_numeric`, a number such as a rating.

    Labels are class codes from 0, or numbers (NaN for clips that are left out). With two classes,
    predictions are the probabilities [N] of the second class; with more, the probabilities
    [N, classes] of all classes.
    """

    key: str
    is_numeric: bool
    label_type: type[np.generic]

    def strata(self, labels: Array) -> Array:
        """Return the strata for drawing and balancing folds; `UNUSED` for clips left out.

        Numbers do not balance folds, so they are a single stratum.
        """
        if self.is_numeric:
            return np.where(np.isfinite(labels), 0, UNUSED)
        return labels

    def takes_part(self, labels: Array) -> Array:
        """Return a mask of the clips whose labels take part in the task."""
        return self.strata(labels) >= 0

    def columns(self, names: Sequence[str]) -> list[str]:
        """Return the names of the prediction columns: one per class, or one for two classes."""
        if self.is_numeric:
            return [VALUE]
        if len(names) == 2:
            return [PROBABILITY]
        return [f"{PROBABILITY}_{name}" for name in names]

    def columns_in(self, names: Iterable[str]) -> list[str]:
        """Return the names of the columns that have predictions."""
        prefix = VALUE if self.is_numeric else PROBABILITY
        return [name for name in names if name.startswith(prefix)]

    def to_columns(self, outputs: Array) -> Array:
        """Convert the probabilities of all classes (or numbers) to the columns to store."""
        return outputs[:, 1:] if outputs.shape[1] == 2 else outputs

    def from_columns(self, values: Array) -> Array:
        """Convert the stored columns to the probabilities of all classes (or numbers)."""
        if self.is_numeric or values.shape[1] > 1:
            return values
        return np.column_stack([1 - values, values])

    def allows(self, values: Array) -> Array:
        """Return a mask of the values that are valid predictions."""
        if self.is_numeric:
            return np.isfinite(values)
        return (values >= -TOLERANCE) & (values <= 1 + TOLERANCE)

    def called(self, values: Array) -> Array:
        """Return each clip's most probable class (of two, the second above 0.5), or its number."""
        return values if self.is_numeric else predicted_classes(values)

    def guesses(self, labels: Array, others: Array) -> dict[str, Scores]:
        """Score each kind of guess on a film's clips, given their labels and all other labels.

        For numbers, the guesses are the mean of all other clips, and the film's own mean.
        """
        if not self.is_numeric:
            return baselines(float(np.mean(labels)))
        means = {"mean of the other films": others, "mean of the film": labels}
        scores = {}
        for name, labels_of in means.items():
            if len(labels_of):
                scores[name] = score_constant(labels, float(labels_of.mean()))
        return scores


TARGETS = {
    CLASSES: Target(CLASSES, is_numeric=False, label_type=np.int64),
    NUMBER: Target(NUMBER, is_numeric=True, label_type=np.float64),
}
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
                f"the negatives {negatives!r} need ObyGaze's levels. Use 'b' (all clips without "
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


def default_negatives(scheme: LabelScheme) -> str:
    """Return the default set of negatives for concepts."""
    return "a" if scheme.is_obygaze else "b"
