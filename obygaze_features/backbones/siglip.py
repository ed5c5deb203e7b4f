"""SigLIP (Zhai et al., 2023) in Hugging Face's form.

Its vision tower embeds each frame of a clip alone; both towers embed images and texts.
SigLIP 2 at a fixed resolution has the same layout and the same ``model_type``.
"""

from __future__ import annotations

from pathlib import Path

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint
from obygaze_features.backbones.clip import SAMPLING, frame_arrays, frame_backbone, make_text_tower
from obygaze_features.backbones.weights import load_folder
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec


def siglip_arrays(patches: int, width: int) -> tuple[ArraySpec, ...]:
    """SigLIP's arrays, of `patches` patches per frame, `width` wide; without a class token."""
    meaning = "embedding of each frame: its tokens, pooled by attention"
    return frame_arrays(width, meaning, patches, width, "after the last layer norm")


def load(path: Path, mode: str) -> Backbone:
    """Load a SigLIP from a folder in Hugging Face's layout."""
    model, fields = load_folder(path, mode, "SiglipModel")
    from torch.nn import Identity

    settings = model.config.vision_config
    if not getattr(settings, "vision_use_head", True):  # transformers 4.57 has no such setting
        raise BackboneError(f"{path} has no pooling head, so it gives no embedding of a frame")
    patches = (settings.image_size // settings.patch_size) ** 2
    return frame_backbone(
        model.vision_model,
        fields,
        Identity(),
        # SigLIP was trained on padded texts.
        make_text_tower(path, model.text_model, padding="max_length"),
        siglip_arrays(patches, settings.hidden_size),
        "pooled tokens of an image, or projected last token of a text",
    )


def _published(name: str, title: str, grid: int, width: int) -> KnownCheckpoint:
    """A published checkpoint, which cuts a frame into `grid` x `grid` patches."""
    arrays = siglip_arrays(grid * grid, width)
    title = f"{title}, each frame alone"
    return KnownCheckpoint(name, title, SAMPLING, arrays, repository=f"google/{name}")


CHECKPOINTS = (
    _published("siglip-base-patch16-224", "SigLIP B/16", 14, 768),
    _published("siglip-base-patch16-384", "SigLIP B/16 at 384 pixels", 24, 768),
    _published("siglip-large-patch16-256", "SigLIP L/16 at 256 pixels", 16, 1024),
    _published("siglip-so400m-patch14-224", "SigLIP So400m/14", 16, 1152),
    _published("siglip-so400m-patch14-384", "SigLIP So400m/14 at 384 pixels", 27, 1152),
    _published("siglip2-base-patch16-224", "SigLIP 2 B/16", 14, 768),
    _published("siglip2-large-patch16-256", "SigLIP 2 L/16 at 256 pixels", 16, 1024),
    _published("siglip2-so400m-patch14-384", "SigLIP 2 So400m/14 at 384 pixels", 27, 1152),
)

FAMILY = Family("siglip", "siglip", CHECKPOINTS, load, embeds_texts=True)
