"""What the families share that see one picture at a time: a clip is a row of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SAMPLING", "arrays_of", "summarise"]

SAMPLING = Sampling(32)
"""The frames of the paper's X-CLIP and ViViT, so that one pass decodes them once for all."""


def arrays_of(dim: int, frame: str, tokens: int, width: int, order: str) -> tuple[ArraySpec, ...]:
    """What can be kept, of `tokens` tokens a frame, `width` wide, that become `dim` numbers."""
    frames = SAMPLING.frames
    return (
        ArraySpec("native", (dim,), "float32", "clip embedding: mean over `frames`"),
        ArraySpec("max", (dim,), "float32", "maximum over `frames`"),
        ArraySpec("mean", (dim,), "float32", "mean over `frames`, the same as `native`"),
        ArraySpec("frames", (frames, dim), "float16", frame),
        ArraySpec(
            "tokens", (frames * tokens, width), "float16", f"all tokens, {tokens} a frame, {order}"
        ),
    )


def summarise(embedded: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """The arrays, of the embedding and the tokens of every picture of a batch of clips."""
    frames = embedded.float().unflatten(0, (-1, SAMPLING.frames))
    mean = frames.mean(1)
    return {
        "native": mean,
        "max": frames.amax(1),
        "mean": mean,
        "frames": frames,
        "tokens": tokens.unflatten(0, (-1, SAMPLING.frames)).flatten(1, 2),
    }
