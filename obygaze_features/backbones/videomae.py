"""VideoMAE (Tong et al., 2022) in Hugging Face's form: tubelets of 2 x 16 x 16, no class token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import SYNTHETIC_WORDS, Card, Family, Network
from obygaze_features.backbones.checkpoint import load_model, tensor_names, weight_files
from obygaze_features.backbones.made_up import TINY, video_processor, write_random
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.tubelets import arrays_of, moments, steps_of
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FAMILY", "load", "write_videomae"]


def _arrays(steps: int, patches: int, width: int, *, tuned: bool) -> tuple[ArraySpec, ...]:
    """What can be kept, of `patches` tubelets in each of `steps` moments."""
    native = "`mean`, after the classifier's layer norm" if tuned else "the same as `mean`"
    first = (ArraySpec("native", (width,), "float32", f"clip embedding: {native}"),)
    return arrays_of(steps, patches, width, first, "moment by moment")


def load(path: Path, mode: str) -> Network:
    """Load a VideoMAE, pretrained or fine-tuned, from a folder with ``config.json`` and its kin."""
    need("transformers", extra="extract")
    from torch.nn import Identity, ModuleList
    from transformers import VideoMAEForVideoClassification, VideoMAEModel

    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    preprocessing = read_preprocessing(path, mode)
    config = read_json(path / "config.json", BackboneError)
    # What it is, its weights say: config.json may lack the words, or have those of its origin.
    names = tensor_names(path, files)
    # A last layer norm of its own stands where no mean is taken before the classifier.
    normed = any(name.removeprefix("videomae.") == "layernorm.weight" for name in names)
    pooling = {"use_mean_pooling": False} if normed else {}
    norm = None
    if any(name.startswith(("classifier.", "fc_norm.")) for name in names):
        classifier = load_model(VideoMAEForVideoClassification, path, files, **pooling)
        model, norm = classifier.videomae, classifier.fc_norm
    else:
        model = load_model(VideoMAEModel, path, files, **pooling)
    settings = model.config
    preprocessing.check_size(settings.image_size, path)
    steps = steps_of(settings.num_frames, settings.tubelet_size, path)
    patches = model.embeddings.num_patches // steps
    finish = norm or Identity()

    def compute(pixels: Tensor, present: Tensor, wanted: frozenset[str]) -> dict[str, Tensor]:
        tokens = model(pixels).last_hidden_state.float()
        mean = tokens.mean(1)
        return {
            "native": finish(mean),
            "max": tokens.amax(1),
            "mean": mean,
            "frames": moments(tokens, steps),
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


_TINY = {**TINY, "num_frames": 8}


def write_videomae(folder: Path, seed: int, sizes: dict[str, Any], *, tuned: bool = True) -> None:
    """Write a VideoMAE of random weights: a classifier, or as it is before any fine-tuning."""
    need("transformers", extra="extract")
    from transformers import (
        VideoMAEConfig,
        VideoMAEForPreTraining,
        VideoMAEForVideoClassification,
    )

    config = VideoMAEConfig(**sizes, use_mean_pooling=tuned, synthetic=SYNTHETIC_WORDS)
    processor = video_processor(config.image_size)
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
