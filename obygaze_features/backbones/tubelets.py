"""What the families share that see a clip in tubelets: a patch of several frames is a token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["arrays_of", "moments", "steps_of"]


def arrays_of(
    steps: int, patches: int, width: int, first: tuple[ArraySpec, ...], order: str
) -> tuple[ArraySpec, ...]:
    """What can be kept beside the `first`, of `patches` tubelets in each of `steps` moments."""
    # A class token is one more, and counts among all.
    tokens = steps * patches + any(one.name == "cls" for one in first)
    return (
        *first,
        ArraySpec("max", (width,), "float32", f"maximum over all {tokens:,} tokens"),
        ArraySpec("mean", (width,), "float32", f"mean over all {tokens:,} tokens"),
        ArraySpec("frames", (steps, width), "float16", f"mean of each moment's {patches} tubelets"),
        ArraySpec("tokens", (tokens, width), "float16", f"all tokens, {order}"),
    )


def steps_of(frames: int, depth: int, folder: Path) -> int:
    """The moments of a clip, of `depth` frames each; a network would drop frames left over."""
    if frames < 1 or depth < 1 or frames % depth:
        raise BackboneError(
            f"{folder / 'config.json'}: num_frames is {frames}, which is no multiple of the "
            f"{depth} frames of a tubelet"
        )
    return frames // depth


def moments(tubelets: Tensor, steps: int) -> Tensor:
    """The mean of each moment, of tokens ``[B, steps * patches, width]``."""
    return tubelets.unflatten(1, (steps, -1)).mean(2)
