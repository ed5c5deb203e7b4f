"""DINOv2 (Oquab et al., 2023) and DINOv3 (Siméoni et al., 2025) in Hugging Face's form.

They embed each frame of a clip separately, and single images; they do not read texts. Their input
has the size that the checkpoint's processor sets, not the size of their training.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.clip import frame_arrays, frame_backbone
from obygaze_features.backbones.weights import load_folder
from obygaze_features.store import ArraySpec


def dino_arrays(patches: int, width: int, registers: int = 0) -> tuple[ArraySpec, ...]:
    """Return DINO's arrays, of `patches` patches and `registers` register tokens per frame."""
    order = "class token first, " + (f"then {registers} registers, " if registers else "")
    meaning = "class token of each frame, after the last layer norm"
    tokens = 1 + registers + patches
    return frame_arrays(width, meaning, tokens, width, f"{order}after the last layer norm")


def _load(model: str, path: Path, mode: str) -> Backbone:
    """Load a DINO, by its class's name, from a folder in Hugging Face's layout."""
    network, fields = load_folder(path, mode, model, size=None)
    from torch.nn import Identity

    config = network.config
    height, width = (side // config.patch_size for side in fields["preprocessing"].crop)
    registers = getattr(config, "num_register_tokens", 0)
    arrays = dino_arrays(height * width, config.hidden_size, registers)
    return frame_backbone(network, fields, Identity(), None, arrays, "class token of an image")


FAMILIES = tuple(
    Family(
        name, model_type, published(name, dino_arrays), partial(_load, model), embeds_images=True
    )
    for name, model_type, model in (
        ("dinov2", "dinov2", "Dinov2Model"),
        ("dinov2-with-registers", "dinov2_with_registers", "Dinov2WithRegistersModel"),
        ("dinov3", "dinov3_vit", "DINOv3ViTModel"),
    )
)
