"""Pool the tokens of clips as described in `ARRAYS`, for all families."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import ARRAYS, Pooling

if TYPE_CHECKING:
    from torch import Tensor


def pool_specs(width: int, tokens: str, **notes: str) -> tuple[ArraySpec, ...]:
    """Return the specs of all arrays pooled from `tokens`, with a note for each name in `notes`."""
    return tuple(
        ArraySpec.named(name, (width,), f"{entry.title} over {tokens}{notes.get(name, '')}")
        for name, entry in ARRAYS.items()
        if entry.pool
    )


def pool_tokens(
    tokens: Tensor, names: Collection[str], mask: Tensor | None = None
) -> dict[str, Tensor]:
    """Compute the arrays in `names` that are pooled from tokens ``[B,T,D]``.

    The mask ``[B,T,1]`` is false for padding.
    """
    return {
        name: entry.pool(tokens, mask)
        for name, entry in ARRAYS.items()
        if name in names and entry.pool
    }


def clip_by_clip(
    embed_tokens: Callable[[Tensor], Mapping[str, Tensor]], pools: Mapping[str, Pooling]
) -> Callable[..., Any]:
    """Make `Backbone.encode_clips` from a function that embeds one clip's frames or windows.

    `embed_tokens` returns a token per frame or window, without padding, for each array in `pools`.
    The functions in `pools` pool these tokens. The array `frames` has the tokens of `native`.
    """
    import torch

    def embed_clip(clip: Tensor, rows: int) -> dict[str, Tensor]:
        tokens = embed_tokens(clip)
        arrays = {name: pool(tokens[name], None) for name, pool in pools.items()}
        arrays["frames"] = clip.new_full((rows, *arrays["native"].shape), torch.nan)
        arrays["frames"][: len(tokens["native"])] = tokens["native"]
        return arrays

    def encode_clips(inputs: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        counts = present.sum(1).tolist()
        rows = inputs.shape[1]
        clips = [embed_clip(clip[:n], rows) for clip, n in zip(inputs, counts, strict=True)]
        return {name: torch.stack([clip[name] for clip in clips]) for name in clips[0]}

    return encode_clips
