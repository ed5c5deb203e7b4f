"""Probabilities from scores, sharpened or softened by one number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_logits", "fit_temperature", "softmax"]

Array = NDArray[Any]


def softmax(logits: Array) -> Array:
    """Each row's scores as probabilities, in float64."""
    logits = np.asarray(logits, dtype=np.float64)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def as_logits(decisions: Array) -> Array:
    """Decision values [N, 1] of two classes as [N, 2]; those of more as they are."""
    if decisions.shape[1] > 1:
        return decisions
    return np.hstack([np.zeros_like(decisions), decisions])


def fit_temperature(logits: Array, codes: Array) -> float:
    """The temperature whose ``softmax(logits / temperature)`` has the lowest log-loss.

    It changes how sure one is, never which class comes first.
    """
    from scipy.optimize import minimize_scalar

    logits = np.asarray(logits, dtype=np.float64)

    def log_loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        peak = scaled.max(axis=1)
        total = peak + np.log(np.exp(scaled - peak[:, None]).sum(axis=1))
        return float((total - scaled[np.arange(len(codes)), codes]).mean())

    # Where all is told apart, the best temperature is 0: the bounds keep it finite.
    return float(np.exp(minimize_scalar(log_loss, bounds=(-6, 6), method="bounded").x))
