"""SigLIP (Zhai et al., 2023) in Hugging Face's form: its image tower, a frame at a time.

SigLIP 2 at a fixed resolution has the same layout, and says so in its ``config.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import SYNTHETIC_WORDS, Card, Family, Network
from obygaze_features.backbones.checkpoint import load_model, weight_files
from obygaze_features.backbones.image_towers import SAMPLING, arrays_of, summarise
from obygaze_features.backbones.made_up import TEXT, TINY, write_random
from obygaze_features.common.extras import need
from obygaze_features.common.files import read_json
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FAMILY", "load", "write_siglip"]


def _arrays(patches: int, width: int) -> tuple[ArraySpec, ...]:
    """What can be kept, of `patches` patches a frame, `width` wide; there is no class token."""
    frame = "embedding of each frame: its tokens, pooled by attention"
    return arrays_of(width, frame, patches, width, "after the last layer norm")


def load(path: Path, mode: str) -> Network:
    """Load a SigLIP from a folder with ``config.json`` and its kin."""
    need("transformers", extra="extract")
    from transformers import SiglipVisionModel

    from obygaze_features.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    # Without the text tower, which nobody asks here.
    model = load_model(SiglipVisionModel, path, files)
    settings = model.config
    if not getattr(settings, "vision_use_head", True):  # transformers 4.57 has no such word
        raise BackboneError(f"{path} has no pooling head, so it gives no embedding of a frame")
    preprocessing.check_size(settings.image_size, path)

    def compute(pixels: Tensor, present: Tensor, wanted: frozenset[str]) -> dict[str, Tensor]:
        seen = model(pixels.flatten(0, 1))
        return summarise(seen.pooler_output, seen.last_hidden_state)

    return Network(
        module=model,
        compute=compute,
        sampling=SAMPLING,
        preprocessing=preprocessing,
        arrays=_arrays(
            (settings.image_size // settings.patch_size) ** 2,
            settings.hidden_size,
        ),
        weights=files,
        config=read_json(path / "config.json", BackboneError),
    )


def write_siglip(folder: Path, seed: int, vision: Mapping[str, Any]) -> None:
    """Write a SigLIP of random weights; the text tower is there, and small."""
    need("transformers", extra="extract")
    from transformers import SiglipConfig, SiglipModel

    config = SiglipConfig(
        text_config={**TEXT, "bos_token_id": 0, "eos_token_id": 1},
        vision_config=dict(vision),
        synthetic=SYNTHETIC_WORDS,
    )
    size = config.vision_config.image_size
    processor = {
        "image_processor_type": "SiglipImageProcessor",
        "do_resize": True,
        "size": {"height": size, "width": size},
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    write_random(folder, lambda: SiglipModel(config), processor, seed)


def _published(tail: str, title: str, grid: int, width: int) -> Card:
    """A published checkpoint, whose pictures are cut into `grid` x `grid` patches."""
    arrays = _arrays(grid * grid, width)
    return Card(tail, f"{title}, each frame alone", SAMPLING, arrays, repository=f"google/{tail}")


CARDS = (
    _published("siglip-base-patch16-224", "SigLIP B/16", 14, 768),
    _published("siglip-base-patch16-384", "SigLIP B/16 at 384 pixels", 24, 768),
    _published("siglip-large-patch16-256", "SigLIP L/16 at 256 pixels", 16, 1024),
    _published("siglip-so400m-patch14-224", "SigLIP So400m/14", 16, 1152),
    _published("siglip-so400m-patch14-384", "SigLIP So400m/14 at 384 pixels", 27, 1152),
    _published("siglip2-base-patch16-224", "SigLIP 2 B/16", 14, 768),
    _published("siglip2-large-patch16-256", "SigLIP 2 L/16 at 256 pixels", 16, 1024),
    _published("siglip2-so400m-patch14-384", "SigLIP 2 So400m/14 at 384 pixels", 27, 1152),
    Card(
        "tiny-siglip",
        "a small SigLIP of random weights",
        SAMPLING,
        _arrays(16, 32),
        write=lambda folder, seed: write_siglip(folder, seed, TINY),
    ),
    Card(
        "random-siglip",
        "SigLIP B/16 of random weights, of the size of siglip-base-patch16-224",
        SAMPLING,
        _arrays(196, 768),
        write=lambda folder, seed: write_siglip(folder, seed, {}),
    ),
)

FAMILY = Family("siglip", "siglip", CARDS, load)
