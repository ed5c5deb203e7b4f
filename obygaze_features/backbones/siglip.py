"""SigLIP (Zhai et al., 2023) in Hugging Face's form.

Its vision tower embeds each frame of a clip alone; both towers embed images and texts.
SigLIP 2 at a fixed resolution has the same layout and the same ``model_type``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint
from obygaze_features.backbones.clip import SAMPLING, frame_arrays, make_text_tower, pool_frames
from obygaze_features.backbones.weights import load_model, weight_files
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor


def siglip_arrays(patches: int, width: int) -> tuple[ArraySpec, ...]:
    """SigLIP's arrays, of `patches` patches a frame, `width` wide; without a class token."""
    meaning = "embedding of each frame: its tokens, pooled by attention"
    return frame_arrays(width, meaning, patches, width, "after the last layer norm")


def load(path: Path, mode: str) -> Backbone:
    """Load a SigLIP from a folder in Hugging Face's layout."""
    need("transformers", extra="extract")
    from torch.nn import ModuleDict
    from transformers import SiglipModel

    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    model = load_model(SiglipModel, path, files)
    settings = model.config.vision_config
    if not getattr(settings, "vision_use_head", True):  # transformers 4.57 has no such setting
        raise BackboneError(f"{path} has no pooling head, so it gives no embedding of a frame")
    preprocessing.check_size(settings.image_size, path)
    vision = model.vision_model

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        output = vision(pixels.flatten(0, 1))
        return pool_frames(output.pooler_output, output.last_hidden_state)

    def encode_images(pixels: Tensor) -> Tensor:
        embedded: Tensor = vision(pixels).pooler_output
        return embedded

    return Backbone(
        module=ModuleDict({"vision": vision}),
        sampling=SAMPLING,
        preprocessing=preprocessing,
        arrays=siglip_arrays(
            (settings.image_size // settings.patch_size) ** 2, settings.hidden_size
        ),
        encode_clips=encode_clips,
        weights=files,
        config=read_json(path / "config.json", BackboneError),
        embedding=ArraySpec(
            "native", (settings.hidden_size,), "float32",
            "pooled tokens of an image, or projected last token of a text",
        ),
        encode_images=encode_images,
        # SigLIP was trained on padded texts.
        text_tower=make_text_tower(path, model.text_model, padding="max_length"),
    )  # fmt: skip


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
