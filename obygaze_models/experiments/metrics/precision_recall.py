"""Precision and recall of the positive class."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

__all__ = ["precision", "recall"]


def precision(labels: NDArray[Any], predictions: NDArray[Any]) -> float | None:
    """Share of the clips called positive that are; None where none was called so."""
    return float(labels[predictions == 1].mean()) if predictions.any() else None


def recall(labels: NDArray[Any], predictions: NDArray[Any]) -> float | None:
    """Share of the positive clips that were called so; None where there are none."""
    return float(predictions[labels == 1].mean()) if labels.any() else None
