"""The table of arrays that stores can hold, shared by backbones and stores.

To add an array, add an entry to `ARRAYS`. If the entry has a `pool`, nothing else is needed: the
families that call `pool_tokens` compute the array, and exports include it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Pooling = Callable[[Any, Any], Any]
"""A function that pools tokens from ``[..., T, D]`` to ``[..., D]``.

Its second argument may be a mask ``[..., T, 1]`` that is false for padding.
"""

VECTOR = ("feature",)
FRAMES = ("frame", "feature")
TOKENS = ("token", "feature")
FRAME_NUMBERS = ("frame",)


@dataclass(frozen=True)
class StoredArray:
    """An array that stores can hold, as listed in `ARRAYS`.

    Parameters
    ----------
    axes
        The axes of a row: `VECTOR`, `FRAMES`, `TOKENS`, `FRAME_NUMBERS`, or others.
    dtype
        The data type in which the array is stored.
    title
        The default meaning of the array, such as "maximum".
    pool
        The function that computes the array by pooling tokens; None if the array is not pooled. The
        tokens may come from one frame or from a whole clip.
    on_request
        True if the array is large and is stored only when a user asks for it by name.
    """

    axes: tuple[str, ...]
    dtype: str
    title: str
    pool: Pooling | None = None
    on_request: bool = False


def pool_mean(tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean over tokens."""
    if mask is None:
        return tokens.mean(-2)
    return tokens.where(mask, 0).sum(-2) / mask.sum(-2)


def pool_max(tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the maximum over tokens."""
    if mask is not None:
        tokens = tokens.where(mask, -math.inf)
    return tokens.amax(-2)


ARRAYS: dict[str, StoredArray] = {
    "native": StoredArray(VECTOR, "float32", "the model's own embedding"),
    "cls": StoredArray(VECTOR, "float32", "class token"),
    "max": StoredArray(VECTOR, "float32", "maximum", pool_max),
    "mean": StoredArray(VECTOR, "float32", "mean", pool_mean),
    "count": StoredArray(("number",), "float32", "the number of words"),
    "frame_index": StoredArray(FRAME_NUMBERS, "int32", "number of each frame"),
    "frame_time": StoredArray(FRAME_NUMBERS, "float64", "when each frame is shown"),
    "loudness": StoredArray(FRAME_NUMBERS, "float32", "level of each window of sound"),
    "frames": StoredArray(FRAMES, "float16", "one token per frame"),
    "frames_temporal": StoredArray(FRAMES, "float16", "`frames` after temporal mixing"),
    "tokens": StoredArray(TOKENS, "float16", "all patch tokens", on_request=True),
}
"""The arrays by name, vectors first. Backbones and imports can define others."""
