"""F1, in the two readings that the paper's tables mix.

The released code scores its neural networks by the support-weighted F1 and its concept models
by the positive-class F1; on the same predictions these may lie far apart. Here both are always
given, side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["f1_macro", "f1_positive", "f1_weighted"]

Array = NDArray[Any]


def f1_positive(labels: Array, predictions: Array) -> float | None:
    """F1 of the positive class; None where nothing is positive and nothing was called so."""
    named = labels.sum() + predictions.sum()
    return float(2 * (labels & predictions).sum() / named) if named else None


def f1_weighted(labels: Array, predictions: Array) -> float | None:
    """Mean of the classes' F1, weighted by their sizes; None for no clips at all."""
    if not len(labels):
        return None
    f1, sizes = _by_class(labels, predictions)
    return float((f1 * sizes).sum() / len(labels))


def f1_macro(labels: Array, predictions: Array) -> float | None:
    """Plain mean of the F1 of all classes that occur or were named; None for no clips at all."""
    return float(_by_class(labels, predictions)[0].mean()) if len(labels) else None


def _by_class(labels: Array, predictions: Array) -> tuple[Array, Array]:
    """The F1 of each class that occurs or was named, and how many clips are of it."""
    classes = np.union1d(labels, predictions)
    true, said = labels == classes[:, None], predictions == classes[:, None]
    sizes = true.sum(axis=1)
    return 2 * (true & said).sum(axis=1) / (sizes + said.sum(axis=1)), sizes
