"""Labels as codes: a class's place among the sorted classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from obygaze_features.errors import ExperimentError

__all__ = ["classes_of", "codes_of"]

Array = NDArray[Any]


def classes_of(y: Array, *, at_least: int = 2) -> Array:
    """The classes among training labels, sorted."""
    check_classification_targets(y)
    classes = np.unique(y)
    if len(classes) < at_least:
        raise ExperimentError(f"all {len(y)} labels are of one class, {classes[0]!r}")
    return classes


def codes_of(y: Array, classes: Array) -> Array:
    """Each label's place in `classes`."""
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ExperimentError(
            f"validation labels {unknown.tolist()} are not among the training labels "
            f"{classes.tolist()}"
        )
    return np.searchsorted(classes, y)
