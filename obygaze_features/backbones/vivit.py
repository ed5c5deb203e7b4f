"""ViViT (Arnab et al., 2021) in Hugging Face's form: tubelets of 2 x 16 x 16, attended jointly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.tiny import write_vivit
from obygaze_features.backbones.weights import load_folder
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor


def tubelet_arrays(
    steps: int,
    patches: int,
    width: int,
    first: tuple[ArraySpec, ...],
    order: str,
    *,
    part: str = "moment's {} tubelets",
) -> tuple[ArraySpec, ...]:
    """The arrays of a network of tubelets: `patches` tubelets in each of `steps` time steps.

    Those of the clip's embedding come first; `order` is that of the tokens; a time step has `part`.
    """
    has_class_token = any(spec.name == "cls" for spec in first)
    tokens = steps * patches + has_class_token
    return (
        *first,
        ArraySpec("max", (width,), "float32", f"maximum over all {tokens:,} tokens"),
        ArraySpec("mean", (width,), "float32", f"mean over all {tokens:,} tokens"),
        ArraySpec("frames", (steps, width), "float16", f"mean of each {part.format(patches)}"),
        ArraySpec("tokens", (tokens, width), "float16", f"all tokens, {order}"),
    )


def count_steps(frames: int, depth: int, folder: Path, setting: str = "num_frames") -> int:
    """The time steps of a clip, of `depth` frames each; the network would drop a remainder."""
    if frames < 1 or depth < 1 or frames % depth:
        raise BackboneError(
            f"{folder / 'config.json'}: {setting} must be a multiple of the tubelet's {depth} "
            f"frames (got {frames})"
        )
    return frames // depth


def mean_over_patches(tubelets: Tensor, steps: int) -> Tensor:
    """The mean of each time step, of tokens ``[B, steps * patches, width]``."""
    return tubelets.unflatten(1, (steps, -1)).mean(2)


def vivit_arrays(steps: int, patches: int, width: int) -> tuple[ArraySpec, ...]:
    """ViViT's arrays."""
    first = (
        ArraySpec("native", (width,), "float32", "class token after the last layer norm"),
        ArraySpec("cls", (width,), "float32", "class token, the same as `native`"),
    )
    return tubelet_arrays(steps, patches, width, first, "the class token first")


def load(path: Path, mode: str) -> Backbone:
    """Load a ViViT from a folder in Hugging Face's layout."""
    # Neither the pooler, which was never trained, nor the classifier.
    model, fields = load_folder(path, mode, "VivitModel", add_pooling_layer=False)
    config = model.config
    steps = count_steps(config.num_frames, config.tubelet_size[0], path)
    patches = model.embeddings.patch_embeddings.num_patches // steps

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        tokens = model(pixels).last_hidden_state.float()
        arrays = {"native": tokens[:, 0], "cls": tokens[:, 0], "tokens": tokens}
        if names & {"max", "mean"}:
            arrays["max"], arrays["mean"] = tokens.amax(1), tokens.mean(1)
        if "frames" in names:
            arrays["frames"] = mean_over_patches(tokens[:, 1:], steps)
        return arrays

    return Backbone(
        module=model,
        sampling=Sampling(config.num_frames),
        arrays=vivit_arrays(steps, patches, config.hidden_size),
        encode_clips=encode_clips,
        **fields,
    )


TINY = KnownCheckpoint(
    "tiny-vivit",
    "a small ViViT of random weights",
    Sampling(8),
    vivit_arrays(4, 16, 32),
    write=write_vivit,
)

FAMILY = Family("vivit", "vivit", (*published("vivit", vivit_arrays), TINY), load)
