"""SigLIP (Zhai et al., 2023) in Hugging Face's form.

Its vision tower embeds each frame of a clip separately; both towers embed images and texts. SigLIP
2 at a fixed resolution has the same layout and the same ``model_type``.
"""

from __future__ import annotations

from pathlib import Path

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.clip import frame_arrays, frame_backbone, make_text_tower
from obygaze_features.backbones.weights import load_folder
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec


def siglip_arrays(patches: int, width: int) -> tuple[ArraySpec, ...]:
    """Return SigLIP's arrays, of `patches` patches per frame, `width` wide; no class token."""
    meaning = "embedding of each frame: its tokens, pooled by attention"
    return frame_arrays(width, meaning, patches, width, "after the last layer norm")


def load(path: Path, mode: str) -> Backbone:
    """Load a SigLIP from a folder in Hugging Face's layout."""
    model, fields = load_folder(path, mode, "SiglipModel")
    from torch.nn import Identity

    settings = model.config.vision_config
    if not getattr(settings, "vision_use_head", True):  # transformers 4.57 lacks this setting
        raise BackboneError(f"{path} has no pooling head, so it has no embedding of a frame")
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


FAMILY = Family("siglip", "siglip", published("siglip", siglip_arrays), load, embeds_texts=True)
