"""From frames to a backbone's input, as the checkpoint's own processor does it.

In torch, so that it is batched and runs on any device; `transformers`' PIL processors, which
the published checkpoints were made with, are the oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from obygaze_features.common.files import read_json
from obygaze_features.errors import BackboneError

__all__ = ["Preprocessing", "normalise", "read_preprocessing", "resize_and_crop"]

CONFIG = "preprocessor_config.json"
_FILTERS = {2: "bilinear", 3: "bicubic"}
"""The numbers of PIL's filters, as processor configurations give them."""


@dataclass(frozen=True)
class Preprocessing:
    """How frames become a backbone's input. Recorded in the store.

    Parameters
    ----------
    shortest_edge
        Frames are scaled so that their shorter edge has this many pixels.
    filter
        ``bilinear`` or ``bicubic``, always with antialiasing.
    crop
        Height and width of the part that is kept, from the middle.
    scale
        Factor on the pixel values, which are 0 to 255.
    mean, std
        Per channel, after scaling.
    """

    shortest_edge: int
    filter: str
    crop: tuple[int, int]
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    mode: str = "standard"

    def attributes(self) -> dict[str, Any]:
        """As kept in a store's attributes."""
        return asdict(self)


def read_preprocessing(checkpoint: Path) -> Preprocessing:
    """What a checkpoint's ``preprocessor_config.json`` asks for.

    Mean and standard deviation must be in it: what a class assumes by default is not what the
    published weights were trained with.
    """
    path = checkpoint / CONFIG
    config = read_json(path, BackboneError)
    steps = ("do_resize", "do_center_crop", "do_rescale", "do_normalize")
    off = [step for step in steps if not config.get(step, True)]
    if off:
        raise BackboneError(f"{path} switches {' and '.join(off)} off, which is not supported")
    try:
        edge = _shortest_edge(config["size"])
        crop = config.get("crop_size", edge)
        height, width = (
            (crop["height"], crop["width"]) if isinstance(crop, Mapping) else (crop, crop)
        )
        if max(height, width) > edge:
            raise BackboneError(f"{path} crops to {height}x{width} after scaling down to {edge}")
        return Preprocessing(
            shortest_edge=edge,
            filter=_FILTERS[config.get("resample", 2)],
            crop=(height, width),
            scale=config.get("rescale_factor", 1 / 255),
            mean=tuple(config["image_mean"]),
            std=tuple(config["image_std"]),
        )
    except (KeyError, TypeError) as problem:
        raise BackboneError(f"{path} has no usable value for {problem}") from None


def resize_and_crop(frames: Tensor, how: Preprocessing) -> Tensor:
    """Scale and crop frames: uint8 ``[T,H,W,3]`` to uint8 ``[T,3,h,w]``."""
    _, height, width, _ = frames.shape
    short = how.shortest_edge
    long = int(short * max(height, width) / min(height, width))
    size = (short, long) if height <= width else (long, short)
    pixels = frames.permute(0, 3, 1, 2)
    if pixels.device.type != "cpu":
        pixels = pixels.float()  # only the CPU resizes bytes
    resized = interpolate(pixels, size=size, mode=how.filter, antialias=True)
    top, left = (size[0] - how.crop[0]) // 2, (size[1] - how.crop[1]) // 2
    cropped = resized[..., top : top + how.crop[0], left : left + how.crop[1]]
    return cropped.round().clamp(0, 255).to(torch.uint8).contiguous()


def normalise(pixels: Tensor, how: Preprocessing) -> Tensor:
    """Bytes of shape ``[..., 3, h, w]`` to the numbers that the backbone was trained on."""
    mean = torch.tensor(how.mean, device=pixels.device).view(-1, 1, 1)
    std = torch.tensor(how.std, device=pixels.device).view(-1, 1, 1)
    return (pixels.float() * how.scale - mean) / std


def _shortest_edge(size: int | Mapping[str, int]) -> int:
    return size["shortest_edge"] if isinstance(size, Mapping) else size
