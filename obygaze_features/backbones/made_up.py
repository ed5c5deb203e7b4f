"""Small networks of random weights, in the layouts of published ones, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from obygaze_features.backbones.checkpoint import quiet
from obygaze_features.common.files import to_json, write_text
from obygaze_features.common.package import need

__all__ = ["SMALL", "TINY", "video_processor", "write_random"]

SMALL: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
"""The sizes of a small transformer."""
TINY: Mapping[str, Any] = {**SMALL, "image_size": 32, "patch_size": 8}
"""The sizes of a small network that sees."""


def video_processor(size: int) -> dict[str, Any]:
    """The processor of X-CLIP and VideoMAE, for pictures of `size` pixels."""
    return {
        "image_processor_type": "VideoMAEImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": size},
        "resample": 2,
        "do_center_crop": True,
        "crop_size": {"height": size, "width": size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }


def write_random(
    folder: Path, make: Callable[[], Any], processor: Mapping[str, Any], seed: int
) -> None:
    """Write the transformers model that `make` makes of random numbers, and its processor."""
    torch = need("torch", extra="extract")
    with torch.random.fork_rng(devices=[]), torch.no_grad(), quiet():
        torch.manual_seed(seed)
        make().save_pretrained(folder)
    write_text(folder / "preprocessor_config.json", to_json(processor))
