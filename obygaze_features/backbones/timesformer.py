"""TimeSformer (Bertasius et al., 2021) in Hugging Face's form: attention in time, then in space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.vivit import mean_over_patches, tubelet_arrays
from obygaze_features.backbones.weights import load_folder
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor


def timesformer_arrays(frames: int, patches: int, width: int) -> tuple[ArraySpec, ...]:
    """TimeSformer's arrays, of `patches` patches per frame."""
    first = (
        ArraySpec("native", (width,), "float32", "class token after the last layer norm"),
        ArraySpec("cls", (width,), "float32", "class token, the same as `native`"),
    )
    order = "the class token first, then frame by frame"
    return tubelet_arrays(frames, patches, width, first, order, part="frame's {} patches")


def load(path: Path, mode: str) -> Backbone:
    """Load a TimeSformer from a folder in Hugging Face's layout."""
    model, fields = load_folder(path, mode, "TimesformerModel")
    config = model.config
    frames, patches = config.num_frames, model.embeddings.num_patches
    if config.attention_type == "space_only":
        raise BackboneError(
            f"{path / 'config.json'}: attention_type must be divided_space_time or "
            "joint_space_time: space_only gives one class token per frame, none per clip"
        )

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        tokens = model(pixels).last_hidden_state.float()
        cls = tokens[:, :1]
        # The network has them patch by patch.
        tubelets = tokens[:, 1:].unflatten(1, (patches, frames)).transpose(1, 2).flatten(1, 2)
        arrays = {"native": cls[:, 0], "cls": cls[:, 0]}
        if names & {"max", "mean"}:
            arrays["max"], arrays["mean"] = tokens.amax(1), tokens.mean(1)
        if "frames" in names:
            arrays["frames"] = mean_over_patches(tubelets, frames)
        if "tokens" in names:
            arrays["tokens"] = cls.new_empty(tokens.shape)
            arrays["tokens"][:, :1], arrays["tokens"][:, 1:] = cls, tubelets
        return arrays

    return Backbone(
        module=model,
        sampling=Sampling(frames),
        arrays=timesformer_arrays(frames, patches, config.hidden_size),
        encode_clips=encode_clips,
        **fields,
    )


FAMILY = Family("timesformer", "timesformer", published("timesformer", timesformer_arrays), load)
