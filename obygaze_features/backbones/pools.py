"""Pool the tokens of clips, or of their frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import ARRAYS

if TYPE_CHECKING:
    from torch import Tensor

Pooling = Callable[[Any, Any], Any]
"""A function that pools tokens from ``[..., T, D]`` to ``[..., D]``.

Its second argument may be a mask ``[..., T, 1]`` that is false for padding.
"""


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


POOLS: dict[str, Pooling] = {"max": pool_max, "mean": pool_mean}
"""The functions that compute arrays by pooling tokens, by array."""


def pool_specs(width: int, tokens: str, **notes: str) -> tuple[ArraySpec, ...]:
    """Return the specs of all arrays pooled from `tokens`, with a note for each name in `notes`."""
    specs = []
    for name in POOLS:
        meaning = f"{ARRAYS[name].title} over {tokens}" + notes.get(name, "")
        specs.append(ArraySpec.named(name, (width,), meaning))
    return tuple(specs)


def pool_tokens(
    tokens: Tensor,
    names: Collection[str],
    mask: Tensor | None = None,
) -> dict[str, Tensor]:
    """Compute the arrays in `names` that are pooled from tokens ``[B,T,D]``.

    The mask ``[B,T,1]`` is false for padding.
    """
    return {name: pool(tokens, mask) for name, pool in POOLS.items() if name in names}


def clip_by_clip(
    embed_tokens: Callable[[Tensor], Tensor],
    pools: Mapping[str, Pooling],
) -> Callable[..., Any]:
    """Make the `encode` of a reader from a function that embeds one clip's frames or windows.

    `embed_tokens` returns a token per frame or window, without padding. The array `frames` has
    these tokens, and the functions in `pools` pool them.
    """
    import torch

    def encode_clips(inputs: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        arrays: dict[str, list[Tensor]] = {name: [] for name in (*pools, "frames")}
        for clip, count in zip(inputs, present.sum(1).tolist(), strict=True):
            tokens = embed_tokens(clip[:count])
            for name, pool in pools.items():
                arrays[name].append(pool(tokens, None))
            frames = clip.new_full((len(clip), *tokens.shape[1:]), torch.nan)
            frames[:count] = tokens
            arrays["frames"].append(frames)
        return {name: torch.stack(rows) for name, rows in arrays.items()}

    return encode_clips
