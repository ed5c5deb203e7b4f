"""How a network's logits change with what its layers see, worked out layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.mlp import MLPProbe

__all__ = ["activations", "logit_gradients", "logits"]

Array = NDArray[Any]


def activations(model: MLPProbe, X: Array, layer: int) -> Array:
    """What the clips X [N, D] are after a hidden layer, counted from 1; at 0, themselves."""
    _check(model, layer)
    return _forward(model, X)[layer]


def logit_gradients(model: MLPProbe, X: Array, code: int, *, layer: int = 0) -> Array:
    """The derivative of one class's logit, before any temperature, [N, units of the layer].

    Parameters
    ----------
    model
        Fitted.
    X
        Features [N, D].
    code
        The class's place in ``model.classes_``.
    layer
        With respect to what: 0 the features, 1 and up the hidden layers after their ReLU.
    """
    _check(model, layer)
    seen = _forward(model, X)
    gradients = np.tile(model.coefs_[-1][:, code].astype(np.float64), (len(X), 1))
    for at in range(len(model.coefs_) - 2, layer - 1, -1):
        gradients = (gradients * (seen[at + 1] > 0)) @ model.coefs_[at].T
    return np.asarray(gradients)


def logits(model: MLPProbe, X: Array) -> Array:
    """The classes' logits before any temperature, [N, classes]."""
    return np.asarray(_forward(model, X)[-1] @ model.coefs_[-1] + model.intercepts_[-1])


def _forward(model: MLPProbe, X: Array) -> list[Array]:
    """The features, then what each hidden layer makes of them, in float64 as in prediction."""
    seen = [np.asarray(X, dtype=np.float64)]
    for weight, offset in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True):
        seen.append(np.maximum(seen[-1] @ weight + offset, 0))
    return seen


def _check(model: MLPProbe, layer: int) -> None:
    hidden = len(model.coefs_) - 1
    if not 0 <= layer <= hidden:
        raise ExperimentError(
            f"the network has no layer {layer}; 0 is its input, 1 to {hidden} its hidden layers"
        )
