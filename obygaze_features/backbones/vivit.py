"""ViViT (Arnab et al., 2021) in Hugging Face's form: tubelets of 2 x 16 x 16, attended jointly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import SYNTHETIC_WORDS, Card, Family, Network
from obygaze_features.backbones.checkpoint import load_model, weight_files
from obygaze_features.backbones.made_up import TINY, write_random
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.tubelets import arrays_of, moments, steps_of
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FAMILY", "load", "write_vivit"]


def _arrays(steps: int, patches: int, width: int) -> tuple[ArraySpec, ...]:
    """What can be kept, of `patches` tubelets in each of `steps` moments."""
    first = (
        ArraySpec("native", (width,), "float32", "class token after the last layer norm"),
        ArraySpec("cls", (width,), "float32", "class token, the same as `native`"),
    )
    return arrays_of(steps, patches, width, first, "the class token first")


def load(path: Path, mode: str) -> Network:
    """Load a ViViT from a folder with ``config.json`` and its kin."""
    need("transformers", extra="extract")
    from transformers import VivitModel

    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    # Neither the pooler, which was never trained, nor the classifier.
    model = load_model(VivitModel, path, files, add_pooling_layer=False)
    config = model.config
    preprocessing.check_size(config.image_size, path)
    steps = steps_of(config.num_frames, config.tubelet_size[0], path)
    patches = model.embeddings.patch_embeddings.num_patches // steps

    def compute(pixels: Tensor, present: Tensor, wanted: frozenset[str]) -> dict[str, Tensor]:
        tokens = model(pixels).last_hidden_state.float()
        found = {"native": tokens[:, 0], "cls": tokens[:, 0], "tokens": tokens}
        if wanted & {"max", "mean"}:
            found["max"], found["mean"] = tokens.amax(1), tokens.mean(1)
        if "frames" in wanted:
            found["frames"] = moments(tokens[:, 1:], steps)
        return found

    return Network(
        module=model,
        compute=compute,
        sampling=Sampling(config.num_frames),
        preprocessing=preprocessing,
        arrays=_arrays(steps, patches, config.hidden_size),
        weights=files,
        config=read_json(path / "config.json", BackboneError),
    )


_TINY = {**TINY, "tubelet_size": [2, 8, 8], "num_frames": 8}


def write_vivit(folder: Path, seed: int, sizes: dict[str, Any]) -> None:
    """Write a ViViT classifier of random weights, as the published ones are."""
    need("transformers", extra="extract")
    from transformers import VivitConfig, VivitForVideoClassification

    config = VivitConfig(**sizes, synthetic=SYNTHETIC_WORDS)
    processor = {
        "image_processor_type": "VivitImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": config.image_size * 256 // 224},
        "resample": 2,
        "do_center_crop": True,
        "crop_size": {"height": config.image_size, "width": config.image_size},
        "do_rescale": True,
        "rescale_factor": 1 / 127.5,
        "offset": True,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }

    def make() -> Any:
        model = VivitForVideoClassification(config)
        # Zeros by default, so that no token would know its place.
        for weights in (
            model.vivit.embeddings.position_embeddings,
            model.vivit.embeddings.cls_token,
        ):
            weights.normal_(std=config.initializer_range)
        return model

    write_random(folder, make, processor, seed)


CARDS = (
    Card(
        "vivit",
        "ViViT B/16x2, Kinetics-400: the paper's ViViT",
        Sampling(32),
        _arrays(16, 196, 768),
        repository="google/vivit-b-16x2-kinetics400",
    ),
    Card(
        "tiny-vivit",
        "a small ViViT of random weights",
        Sampling(8),
        _arrays(4, 16, 32),
        write=lambda folder, seed: write_vivit(folder, seed, _TINY),
    ),
    Card(
        "random-vivit",
        "ViViT B/16x2 of random weights, of the size of vivit",
        Sampling(32),
        _arrays(16, 196, 768),
        write=lambda folder, seed: write_vivit(folder, seed, {}),
    ),
)

FAMILY = Family("vivit", "vivit", CARDS, load)
