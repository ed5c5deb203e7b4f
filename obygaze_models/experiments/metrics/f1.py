"""F1, in the two readings that the paper's tables mix.

The released code scores its neural networks by the support-weighted F1 and its concept models
by the positive-class F1; they differ by up to .4 on the same predictions. Here both are
always given, side by side.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.metrics import f1_score

__all__ = ["f1_macro", "f1_positive", "f1_weighted"]


def f1_positive(labels: NDArray[Any], predictions: NDArray[Any]) -> float | None:
    """F1 of the positive class; None where nothing is positive and nothing was called so."""
    if not (labels.any() or predictions.any()):
        return None
    return float(f1_score(labels, predictions))


def f1_weighted(labels: NDArray[Any], predictions: NDArray[Any]) -> float | None:
    """Mean of the classes' F1, weighted by their sizes; None for no clips at all."""
    if not len(labels):
        return None
    return float(f1_score(labels, predictions, average="weighted", zero_division=0))


def f1_macro(labels: NDArray[Any], predictions: NDArray[Any]) -> float | None:
    """Plain mean of the F1 of all classes that occur or were named; None for no clips at all."""
    if not len(labels):
        return None
    return float(f1_score(labels, predictions, average="macro", zero_division=0))
