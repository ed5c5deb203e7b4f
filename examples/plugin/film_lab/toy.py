"""A toy backbone to copy, which turns the mean colour of each frame into 8 numbers.

Copied to ``obygaze_features/backbones/toy.py`` and named in ``registry.py``, it works like any
other backbone. CONTRIBUTING.md lists the steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint
from obygaze_features.backbones.readers import FrameReader
from obygaze_features.backbones.weights import weight_files
from obygaze_features.common.files import read_json, to_json, write_text
from obygaze_features.errors import BackboneError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:  # torch is imported only where it is needed, so other commands start fast
    from torch import Tensor

SAMPLING = Sampling(4)
ARRAYS = (
    ArraySpec("native", (8,), "float32", "clip embedding: mean over `frames`"),
    ArraySpec("max", (8,), "float32", "maximum over `frames`"),
    ArraySpec("frames", (4, 8), "float16", "mixed mean colour of each frame"),
)


def load(path: Path, mode: str) -> Backbone:
    """Load a checkpoint; all settings are read from its folder."""
    from safetensors.torch import load_file
    from torch.nn import Linear

    from obygaze_features.backbones.preprocess import read_preprocessing

    files = weight_files(path)
    config = read_json(path / "config.json", BackboneError)
    preprocessing = read_preprocessing(path, mode)
    preprocessing.check_size(config["image_size"], path)
    mix = Linear(3, 8)
    mix.load_state_dict(load_file(files[0]))

    def encode(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        """Encode frames ``[B,4,3,h,w]``. All are present, because `SAMPLING` has no rate."""
        frames = mix(pixels.mean((-1, -2)))
        return {"native": frames.mean(1), "max": frames.amax(1), "frames": frames}

    clip = FrameReader(SAMPLING, preprocessing, ARRAYS, encode)
    return Backbone(mix, clip=clip, weights=files, config=config)


def write_toy(folder: Path, seed: int) -> None:
    """Write a checkpoint with random weights, so that tests need no download."""
    import torch
    from safetensors.torch import save_file

    random = torch.Generator().manual_seed(seed)
    weights = {"weight": torch.randn(8, 3, generator=random), "bias": torch.zeros(8)}
    save_file(weights, folder / "model.safetensors")
    write_text(folder / "config.json", to_json({"model_type": "toy", "image_size": 16}))
    processor = {"size": 16, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    write_text(folder / "preprocessor_config.json", to_json(processor))


CHECKPOINTS = (
    KnownCheckpoint("tiny-toy", "mean colours, mixed at random", SAMPLING, write=write_toy),
)

FAMILIES = [Family("toy", "toy", CHECKPOINTS, load)]
