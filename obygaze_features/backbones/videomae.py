"""VideoMAE (Tong et al., 2022) in Hugging Face's form: tubelets of 2 x 16 x 16, no class token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import SYNTHETIC_WORDS, Card, Family, Network
from obygaze_features.backbones.checkpoint import load_model, weight_files, write_random
from obygaze_features.common.extras import need
from obygaze_features.common.files import read_json
from obygaze_features.errors import BackboneError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FAMILY", "load", "write_videomae"]


def _arrays(steps: int, patches: int, width: int, *, tuned: bool) -> tuple[ArraySpec, ...]:
    """What can be kept, of `patches` tubelets in each of `steps` moments."""
    tokens = steps * patches
    native = "`mean`, after the classifier's layer norm" if tuned else "the same as `mean`"
    return (
        ArraySpec("native", (width,), "float32", f"clip embedding: {native}"),
        ArraySpec("max", (width,), "float32", f"maximum over all {tokens:,} tokens"),
        ArraySpec("mean", (width,), "float32", f"mean over all {tokens:,} tokens"),
        ArraySpec("frames", (steps, width), "float16", f"mean of each moment's {patches} tubelets"),
        ArraySpec("tokens", (tokens, width), "float16", "all tokens, moment by moment"),
    )


def load(path: Path, mode: str) -> Network:
    """Load a VideoMAE, pretrained or fine-tuned, from a folder with ``config.json`` and its kin."""
    need("transformers", extra="extract")
    from torch.nn import Identity, ModuleList
    from transformers import VideoMAEForVideoClassification, VideoMAEModel

    from obygaze_features.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    config = read_json(path / "config.json", BackboneError)
    norm = None
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list):
        raise BackboneError(f"{path / 'config.json'}: architectures is not a list of names")
    if "VideoMAEForVideoClassification" in architectures:
        classifier = load_model(VideoMAEForVideoClassification, path, files)
        model, norm = classifier.videomae, classifier.fc_norm
    else:
        model = load_model(VideoMAEModel, path, files)
    settings = model.config
    preprocessing.check_size(settings.image_size, path)
    steps = settings.num_frames // settings.tubelet_size
    patches = model.embeddings.num_patches // steps
    finish = norm or Identity()

    def compute(pixels: Tensor, present: Tensor, wanted: frozenset[str]) -> dict[str, Tensor]:
        tokens = model(pixels).last_hidden_state.float()
        frames = tokens.unflatten(1, (steps, patches)).mean(2)
        mean = tokens.mean(1)
        return {
            "native": finish(mean),
            "max": tokens.amax(1),
            "mean": mean,
            "frames": frames,
            "tokens": tokens,
        }

    return Network(
        module=ModuleList([model, finish]),
        compute=compute,
        sampling=Sampling(settings.num_frames),
        preprocessing=preprocessing,
        arrays=_arrays(steps, patches, settings.hidden_size, tuned=norm is not None),
        weights=files,
        config=config,
    )


_TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
    "num_frames": 8,
}


def write_videomae(folder: Path, seed: int, sizes: dict[str, Any], *, tuned: bool = True) -> None:
    """Write a VideoMAE of random weights: a classifier, or as it is before any fine-tuning."""
    need("transformers", extra="extract")
    from transformers import (
        VideoMAEConfig,
        VideoMAEForPreTraining,
        VideoMAEForVideoClassification,
    )

    config = VideoMAEConfig(**sizes, use_mean_pooling=tuned, synthetic=SYNTHETIC_WORDS)
    processor = {
        "image_processor_type": "VideoMAEImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": config.image_size},
        "resample": 2,
        "do_center_crop": True,
        "crop_size": {"height": config.image_size, "width": config.image_size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }
    kind = VideoMAEForVideoClassification if tuned else VideoMAEForPreTraining
    write_random(folder, lambda: kind(config), processor, seed)


def _published(tail: str, title: str, width: int = 768) -> Card:
    arrays = _arrays(8, 196, width, tuned="finetuned" in tail)
    return Card(tail, title, Sampling(16), arrays, repository=f"MCG-NJU/{tail}")


CARDS = (
    _published("videomae-base-finetuned-kinetics", "VideoMAE B/16x2, Kinetics-400"),
    _published("videomae-base-finetuned-ssv2", "VideoMAE B/16x2, Something-Something v2"),
    _published("videomae-large-finetuned-kinetics", "VideoMAE L/16x2, Kinetics-400", 1024),
    _published("videomae-huge-finetuned-kinetics", "VideoMAE H/16x2, Kinetics-400", 1280),
    _published("videomae-base", "VideoMAE B/16x2, pretrained on Kinetics-400 without labels"),
    _published(
        "videomae-large", "VideoMAE L/16x2, pretrained on Kinetics-400 without labels", 1024
    ),
    Card(
        "tiny-videomae",
        "a small VideoMAE of random weights",
        Sampling(8),
        _arrays(4, 16, 32, tuned=True),
        write=lambda folder, seed: write_videomae(folder, seed, _TINY),
    ),
    Card(
        "random-videomae",
        "VideoMAE B/16x2 of random weights, of the size of videomae-base-finetuned-kinetics",
        Sampling(16),
        _arrays(8, 196, 768, tuned=True),
        write=lambda folder, seed: write_videomae(folder, seed, {}),
    ),
)

FAMILY = Family("videomae", "videomae", CARDS, load)
