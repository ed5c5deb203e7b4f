"""The arrays of stores, in one table for backbones, stores, views, commands and docs.

To add an array, add its entry to `ARRAYS`. A statistic of tokens, which has a `pool`, needs nothing
else: every family that pools tokens returns it, also at a rate of frames, and exports include it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Pooling = Callable[[Any, Any], Any]
"""A function that pools tokens ``[..., T, D]`` to ``[..., D]``.

Its second argument may be a mask ``[..., T, 1]`` that is false for padding.
"""

VECTOR = ("feature",)
FRAMES = ("frame", "feature")
TOKENS = ("token", "feature")
FRAME_NUMBERS = ("frame",)


@dataclass(frozen=True)
class StoredArray:
    """An entry of `ARRAYS`.

    Parameters
    ----------
    name
        The name of the array, the same for every backbone.
    axes
        The axes of a row: `VECTOR`, `FRAMES`, `TOKENS`, `FRAME_NUMBERS`, or others.
    dtype
        The number format in which it is stored.
    title
        A description such as "maximum" for a statistic, or the default meaning of an array.
    pool
        For a statistic of tokens: the function that computes it from them, whether they are of
        frames, or all tokens of a network of clips. Every family that pools tokens then returns it.
    join
        A function that joins its values for the windows of a clip; None if they do not determine
        the clip's value.
    on_request
        True if it is stored only when a user names it, because it is large.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    title: str
    pool: Pooling | None = None
    join: Pooling | None = None
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
    array.name: array
    for array in (
        StoredArray("native", VECTOR, "float32", "the model's own embedding", join=pool_mean),
        StoredArray("cls", VECTOR, "float32", "class token", join=pool_mean),
        StoredArray("max", VECTOR, "float32", "maximum", pool_max, join=pool_max),
        StoredArray("mean", VECTOR, "float32", "mean", pool_mean, join=pool_mean),
        StoredArray("count", ("number",), "float32", "the number of words", join=pool_mean),
        StoredArray("frame_index", FRAME_NUMBERS, "int32", "number of each frame"),
        StoredArray("frame_time", FRAME_NUMBERS, "float64", "when each frame is shown"),
        StoredArray("loudness", FRAME_NUMBERS, "float32", "level of each window of sound"),
        StoredArray("frames", FRAMES, "float16", "one token per frame"),
        StoredArray("frames_temporal", FRAMES, "float16", "`frames` after temporal mixing"),
        StoredArray("tokens", TOKENS, "float16", "all patch tokens", on_request=True),
    )
}
"""The arrays by name, vectors first. A backbone may define further arrays."""
