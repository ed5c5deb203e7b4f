"""Balanced accuracy: how many clips of a class are found, on average over the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["balanced_accuracy"]


def balanced_accuracy(labels: NDArray[Any], predictions: NDArray[Any]) -> float | None:
    """Mean recall of the classes that there are; None with one class only."""
    classes = np.unique(labels)
    if len(classes) < 2:
        return None
    return float(np.mean([(predictions[labels == one] == one).mean() for one in classes]))
