"""TimeSformer (Bertasius et al., 2021) in Hugging Face's form: attention in time, then in space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.vivit import tubelet_arrays, tubelet_backbone
from obygaze_features.backbones.weights import load_folder
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor


def timesformer_arrays(frames: int, patches: int, width: int) -> tuple[ArraySpec, ...]:
    """Return TimeSformer's arrays, of `patches` patches per frame."""
    order = "the class token first, then frame by frame"
    return tubelet_arrays(frames, patches, width, order=order, part="frame's {} patches")


def load(path: Path, mode: str) -> Backbone:
    """Load a TimeSformer from a folder in Hugging Face's layout."""
    model, fields = load_folder(path, mode, "TimesformerModel")
    import torch

    config = model.config
    frames, patches = config.num_frames, model.embeddings.num_patches
    if config.attention_type == "space_only":
        raise BackboneError(
            f"{path / 'config.json'}: attention_type must be divided_space_time or "
            "joint_space_time: space_only has one class token per frame, and none per clip"
        )

    def arrange(tokens: Tensor) -> Tensor:
        """Sort the tokens, which the network has patch by patch, by frame."""
        by_frame = tokens[:, 1:].unflatten(1, (patches, frames)).transpose(1, 2).flatten(1, 2)
        return torch.cat([tokens[:, :1], by_frame], 1)

    arrays = timesformer_arrays(frames, patches, config.hidden_size)
    return tubelet_backbone(model, frames, arrays, fields, arrange=arrange)


FAMILY = Family("timesformer", "timesformer", published("timesformer", timesformer_arrays), load)
