"""SigLIP (Zhai et al., 2023) in Hugging Face's form.

Of clips its image tower sees each frame alone; pictures and texts go through both towers.
SigLIP 2 at a fixed resolution has the same layout, and says so in its ``config.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import SYNTHETIC_WORDS, Card, Family, Network, TowerNetwork
from obygaze_features.backbones.checkpoint import load_model, weight_files
from obygaze_features.backbones.image_towers import SAMPLING, arrays_of, summarise
from obygaze_features.backbones.made_up import TINY, write_random
from obygaze_features.backbones.made_up_words import sentence_text, write_sentence_tokenizer
from obygaze_features.backbones.tokens import read_tokenizer
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FAMILY", "load", "load_towers", "write_siglip"]


def _arrays(patches: int, width: int) -> tuple[ArraySpec, ...]:
    """What can be kept, of `patches` patches a frame, `width` wide; there is no class token."""
    frame = "embedding of each frame: its tokens, pooled by attention"
    return arrays_of(width, frame, patches, width, "after the last layer norm")


def load(path: Path, mode: str) -> Network:
    """Load a SigLIP from a folder with ``config.json`` and its kin."""
    need("transformers", extra="extract")
    from transformers import SiglipVisionModel

    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    # Without the text tower, which has nothing to do with clips.
    model = load_model(SiglipVisionModel, path, files)
    settings = model.config
    _check_head(settings, path)
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


def load_towers(path: Path, mode: str) -> TowerNetwork:
    """Load both towers of a SigLIP."""
    need("transformers", extra="extract")
    from transformers import SiglipModel

    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    model = load_model(SiglipModel, path, files)
    sees, reads = model.config.vision_config, model.config.text_config
    _check_head(sees, path)
    preprocessing.check_size(sees.image_size, path)

    def see(pixels: Tensor) -> Tensor:
        embedded: Tensor = model.vision_model(pixels).pooler_output
        return embedded

    def read(tokens: Mapping[str, Tensor]) -> Tensor:
        embedded: Tensor = model.text_model(**tokens).pooler_output
        return embedded

    longest = reads.max_position_embeddings
    return TowerNetwork(
        module=model,
        see=see,
        read=read,
        # It was trained on texts that were all filled up.
        tokens=read_tokenizer(path, longest, reads.vocab_size, padding="max_length"),
        dim=sees.hidden_size,
        meaning="pooled tokens of an image, or projected last token of a text",
        preprocessing=preprocessing,
        weights=files,
        config=read_json(path / "config.json", BackboneError),
    )


def _check_head(settings: Any, path: Path) -> None:
    if not getattr(settings, "vision_use_head", True):  # transformers 4.57 has no such word
        raise BackboneError(f"{path} has no pooling head, so it gives no embedding of a frame")


def write_siglip(folder: Path, seed: int, vision: Mapping[str, Any]) -> None:
    """Write a SigLIP of random weights; the text tower and its vocabulary are small."""
    need("transformers", extra="extract")
    from transformers import SiglipConfig, SiglipModel

    width = vision.get("hidden_size", 768)
    config = SiglipConfig(
        text_config={**sentence_text(), "projection_size": width},
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
    write_sentence_tokenizer(folder, config.text_config.max_position_embeddings)


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

FAMILY = Family("siglip", "siglip", CARDS, load, load_towers)
