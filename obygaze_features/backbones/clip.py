"""CLIP (Radford et al., 2021) in Hugging Face's form.

Of clips its image tower sees each frame alone; pictures and texts go through both towers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import SYNTHETIC_WORDS, Card, Family, Network, TowerNetwork
from obygaze_features.backbones.checkpoint import load_model, weight_files
from obygaze_features.backbones.image_towers import SAMPLING, arrays_of, summarise
from obygaze_features.backbones.made_up import TINY, write_random
from obygaze_features.backbones.made_up_words import clip_text, write_clip_tokenizer
from obygaze_features.backbones.tokens import read_tokenizer
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "FAMILY",
    "arrays",
    "load",
    "load_towers",
    "network_of",
    "towers_of",
    "write_clip_weights",
]


def arrays(dim: int, patches: int, width: int) -> tuple[ArraySpec, ...]:
    """What can be kept, of `patches` patches a frame, `width` wide and projected to `dim`."""
    order = "class token first, neither normalised nor projected"
    return arrays_of(dim, "projected class token of each frame", 1 + patches, width, order)


def load(path: Path, mode: str) -> Network:
    """Load the image tower of a CLIP from a folder with ``config.json`` and its kin."""
    model, kept = _load(path, mode)
    return network_of(model, path, **kept)


def load_towers(path: Path, mode: str) -> TowerNetwork:
    """Load both towers of a CLIP."""
    model, kept = _load(path, mode)
    return towers_of(model, path, **kept)


def _load(path: Path, mode: str) -> tuple[Any, dict[str, Any]]:
    """The model, and the rest that is kept of a checkpoint."""
    need("transformers", extra="extract")
    from transformers import CLIPModel

    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    kept = {
        "preprocessing": read_preprocessing(path, mode),
        "weights": files,
        "config": read_json(path / "config.json", BackboneError),
    }
    return load_model(CLIPModel, path, files), kept


def network_of(model: Any, path: Path, **kept: Any) -> Network:
    """The image tower of a CLIPModel, the rest of whose checkpoint is `kept`."""
    from torch.nn import ModuleList

    settings = model.config.vision_config
    kept["preprocessing"].check_size(settings.image_size, path)
    # Without the text tower, which has nothing to do with clips.
    vision, project = model.vision_model, model.visual_projection

    def compute(pixels: Tensor, present: Tensor, wanted: frozenset[str]) -> dict[str, Tensor]:
        seen = vision(pixels.flatten(0, 1))
        return summarise(project(seen.pooler_output), seen.last_hidden_state)

    return Network(
        module=ModuleList([vision, project]),
        compute=compute,
        sampling=SAMPLING,
        arrays=arrays(
            model.config.projection_dim,
            (settings.image_size // settings.patch_size) ** 2,
            settings.hidden_size,
        ),
        **kept,
    )


def towers_of(model: Any, path: Path, *, of: str | None = None, **kept: Any) -> TowerNetwork:
    """The towers of a CLIPModel, the rest of whose checkpoint is `kept`."""
    kept["preprocessing"].check_size(model.config.vision_config.image_size, path)
    reads = model.config.text_config

    def see(pixels: Tensor) -> Tensor:
        """The parts one by one: what `get_image_features` gives differs by version."""
        embedded: Tensor = model.visual_projection(model.vision_model(pixels).pooler_output)
        return embedded

    def read(tokens: Mapping[str, Tensor]) -> Tensor:
        embedded: Tensor = model.text_projection(model.text_model(**tokens).pooler_output)
        return embedded

    return TowerNetwork(
        module=model,
        see=see,
        read=read,
        tokens=read_tokenizer(path, reads.max_position_embeddings, reads.vocab_size, of=of),
        dim=model.config.projection_dim,
        meaning="projected class token of an image, or end token of a text",
        **kept,
    )


def write_clip_weights(folder: Path, seed: int, vision: Mapping[str, Any], dim: int) -> None:
    """Write a CLIP of random weights; the text tower and its vocabulary are small."""
    need("transformers", extra="extract")
    from transformers import CLIPConfig, CLIPModel

    config = CLIPConfig(
        text_config=clip_text(),
        vision_config=dict(vision),
        projection_dim=dim,
        synthetic=SYNTHETIC_WORDS,
    )
    # In the words of the published ones, which are older than those of today.
    processor = {
        "feature_extractor_type": "CLIPFeatureExtractor",
        "do_resize": True,
        "size": config.vision_config.image_size,
        "resample": 3,
        "do_center_crop": True,
        "crop_size": config.vision_config.image_size,
        "do_normalize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    write_random(folder, lambda: CLIPModel(config), processor, seed)
    write_clip_tokenizer(folder, config.text_config.max_position_embeddings)


def _published(tail: str, title: str, grid: int, *, large: bool = False) -> Card:
    """A published checkpoint, whose pictures are cut into `grid` x `grid` patches."""
    dim, width = (768, 1024) if large else (512, 768)
    kept = arrays(dim, grid * grid, width)
    return Card(tail, title, SAMPLING, kept, repository=f"openai/{tail}")


CARDS = (
    _published("clip-vit-base-patch32", "CLIP B/32, each frame alone", 7),
    _published("clip-vit-base-patch16", "CLIP B/16, each frame alone", 14),
    _published("clip-vit-large-patch14", "CLIP L/14, each frame alone", 16, large=True),
    _published(
        "clip-vit-large-patch14-336", "CLIP L/14 at 336 pixels, each frame alone", 24, large=True
    ),
    Card(
        "openclip-vit-base-patch32",
        "CLIP B/32 by OpenCLIP, on LAION-2B, each frame alone",
        SAMPLING,
        arrays(512, 49, 768),
        repository="laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
    ),
    Card(
        "tiny-clip",
        "a small CLIP of random weights",
        SAMPLING,
        arrays(32, 16, 32),
        write=lambda folder, seed: write_clip_weights(folder, seed, TINY, 32),
    ),
    Card(
        "random-clip",
        "CLIP B/32 of random weights, of the size of clip-vit-base-patch32",
        SAMPLING,
        arrays(512, 49, 768),
        write=lambda folder, seed: write_clip_weights(folder, seed, {}, 512),
    ),
)

FAMILY = Family("clip", "clip", CARDS, load, load_towers)
