"""DINOv2 (Oquab et al., 2023) and DINOv3 (Siméoni et al., 2025) in Hugging Face's form.

They embed each frame of a clip alone, and single images; they read no texts. Their input has the
size that the checkpoint's processor gives it, whatever size they were trained with.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint
from obygaze_features.backbones.clip import SAMPLING, frame_arrays, frame_backbone
from obygaze_features.backbones.weights import load_folder
from obygaze_features.store import ArraySpec


def dino_arrays(patches: int, width: int, registers: int = 0) -> tuple[ArraySpec, ...]:
    """DINO's arrays, of `patches` patches and `registers` register tokens per frame."""
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


def _published(name: str, title: str, patches: int, width: int, registers: int) -> KnownCheckpoint:
    arrays = dino_arrays(patches, width, registers)
    title = f"{title}, each frame alone"
    return KnownCheckpoint(name, title, SAMPLING, arrays, repository=f"facebook/{name}")


_DINOV2 = (("small", "S", 384), ("base", "B", 768), ("large", "L", 1024), ("giant", "g", 1536))
_DINOV3 = (
    ("vits16", "S/16", 384),
    ("vits16plus", "S+/16", 384),
    ("vitb16", "B/16", 768),
    ("vitl16", "L/16", 1024),
    ("vith16plus", "H+/16", 1280),
    ("vit7b16", "7B/16", 4096),
)
FAMILIES = (
    Family(
        "dinov2",
        "dinov2",
        tuple(
            _published(f"dinov2-{size}", f"DINOv2 {letter}/14", 256, width, 0)
            for size, letter, width in _DINOV2
        ),
        partial(_load, "Dinov2Model"),
        embeds_images=True,
    ),
    Family(
        "dinov2-with-registers",
        "dinov2_with_registers",
        tuple(
            _published(
                f"dinov2-with-registers-{size}", f"DINOv2 {letter}/14 with registers", 256, width, 4
            )
            for size, letter, width in _DINOV2
        ),
        partial(_load, "Dinov2WithRegistersModel"),
        embeds_images=True,
    ),
    Family(
        "dinov3",
        "dinov3_vit",
        tuple(
            _published(f"dinov3-{size}-pretrain-lvd1689m", f"DINOv3 {title}", 196, width, 4)
            for size, title, width in _DINOV3
        ),
        partial(_load, "DINOv3ViTModel"),
        embeds_images=True,
    ),
)
