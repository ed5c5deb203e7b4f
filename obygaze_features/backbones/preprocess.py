"""Turn frames into a backbone's input, as the checkpoint's own processor does.

The CPU resizes frames with torch, so that every device gets the same pixels. Tests compare them
with those of the PIL processors of transformers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from obygaze_features.backbones.network_config import read_object
from obygaze_features.errors import BackboneError, UsageError, translate

CONFIG = "preprocessor_config.json"
VIDEO_CONFIG = "video_preprocessor_config.json"
"""The file that newer video networks have instead, with the same settings."""
MODES = ("standard", "author")
AUTHOR_SQUASH = (224, 224)
"""The size to which the authors of ObyGaze12 resized every frame, ignoring aspect ratios."""
_FILTERS = {2: "bilinear", 3: "bicubic"}
"""PIL's filters by their numbers in processor configurations."""
_BICUBIC = ("CLIP", "Siglip", "Bit")
"""The processors whose default filter is bicubic."""


@dataclass(frozen=True)
class Preprocessing:
    """The steps that turn frames into a backbone's input. The store records them.

    Parameters
    ----------
    shortest_edge
        The length in pixels to which the shorter edge of a frame is scaled. If None, frames are
        resized to `crop`, ignoring their aspect ratio.
    filter
        ``bilinear`` or ``bicubic``, always with antialiasing.
    crop
        The height and width of the centre crop.
    scale, offset
        The factor for pixel values (0 to 255), and the number subtracted afterwards.
    mean, std
        The mean and standard deviation per channel, after scaling.
    squash
        The height and width to which frames are resized first, ignoring their aspect ratio and
        without antialiasing.
    middle
        The rounding of half of an odd margin: ``down``, or to the nearest ``even`` number.
    mode
        One of `MODES`.
    transform
        A function that replaces all of the above and maps a frame, uint8 ``[3,H,W]``, to the
        network's input ``[3,h,w]``.
    """

    shortest_edge: int | None
    filter: str
    crop: tuple[int, int]
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    offset: float = 0.0
    squash: tuple[int, int] | None = None
    middle: str = "down"
    mode: str = "standard"
    transform: Callable[[Tensor], Tensor] | None = None

    def attributes(self) -> dict[str, Any]:
        """Return the fields as recorded in a store's attributes, with functions by name."""
        fields = dict(vars(self))
        del fields["transform"]
        if self.transform:
            words = " ".join(repr(self.transform).split())
            fields["transform"] = re.sub(" at 0x[0-9a-f]+", "", words)
        return fields

    @property
    def geometry(self) -> Hashable:
        """The settings that affect `resize_and_crop`."""
        sizes = (self.shortest_edge, self.crop, self.squash)
        return (sizes, self.filter, self.middle, id(self.transform))

    def at(self, size: int) -> Preprocessing:
        """Return the same preprocessing for a different input size."""
        return replace(self, shortest_edge=size, crop=(size, size))

    def apply(self, frames: Tensor) -> Tensor:
        """Turn frames, uint8 ``[T,H,W,3]``, into the network's input ``[T,3,h,w]``."""
        return normalise(resize_and_crop(frames, self), self)

    def check_size(self, size: int | Sequence[int], checkpoint: Path) -> None:
        """Raise `BackboneError` unless the crop has the size that a checkpoint's network takes."""
        expected = (size, size) if isinstance(size, int) else tuple(size)
        if self.crop != expected:
            raise BackboneError(
                f"{checkpoint / CONFIG} crops to {self.crop}, but according to config.json the "
                f"network takes {expected}. Use the processor file of the same checkpoint"
            )


MAX_EDGE = 4096
MAX_SCALE = 1e6
"""Limits for a checkpoint's settings: the pixels of an edge, and values such as means."""
CLIP_TORCHVISION = Preprocessing(
    shortest_edge=224,
    filter="bicubic",
    crop=(224, 224),
    scale=1 / 255,
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    middle="even",
)
"""The preprocessing that OpenAI published with CLIP, in torchvision's terms."""


def read_preprocessing(checkpoint: Path, mode: str = "standard") -> Preprocessing:
    """Read the preprocessing from a checkpoint's ``preprocessor_config.json``.

    Newer video networks have ``video_preprocessor_config.json`` instead. The file needs a mean and
    a standard deviation (or a false ``do_normalize``), because the defaults of transformers'
    processor classes may differ from the values used in training.

    Parameters
    ----------
    checkpoint
        The checkpoint's folder.
    mode
        ``standard`` does the same as the checkpoint's own processor. ``author`` first squashes
        frames to 224 x 224, as the authors of ObyGaze12 did.
    """
    if mode not in MODES:
        raise UsageError(f"unknown preprocessing mode {mode!r}; use {' or '.join(MODES)}")
    path = checkpoint / CONFIG
    if (checkpoint / VIDEO_CONFIG).is_file() and not path.is_file():
        path = checkpoint / VIDEO_CONFIG
    config = read_object(path)
    processor = str(config.get("image_processor_type", ""))
    fields: dict[str, Any] = {"mode": mode, "scale": 1 / 255}
    if mode == "author":
        fields["squash"] = AUTHOR_SQUASH
    with translate(BackboneError, path, "has a missing or unusable setting: {}; correct it"):
        # Only this processor has an offset, which is on by default.
        if processor.startswith("Vivit"):
            fields["scale"] = 1 / 127.5
            fields["offset"] = float(config.get("offset", True))
        if "rescale_factor" in config:
            fields["scale"] = config["rescale_factor"]
        if config.get("do_normalize", True):
            fields["mean"] = tuple(config["image_mean"])
            fields["std"] = tuple(config["image_std"])
        filter_number = config.get("resample", 3 if processor.startswith(_BICUBIC) else 2)
        edge, crop = _geometry(config, path)
        preprocessing = Preprocessing(edge, _FILTERS[filter_number], crop, **fields)
        _require_numbers(preprocessing, path)
        return preprocessing


def _require_numbers(preprocessing: Preprocessing, path: Path) -> None:
    """Raise `BackboneError` if sizes, means, standard deviations or the scale are impossible."""
    edges = [*preprocessing.crop, preprocessing.shortest_edge or max(preprocessing.crop)]
    factors = (*preprocessing.std, preprocessing.scale)
    numbers = (*preprocessing.mean, *factors)
    is_usable = all(type(edge) is int and 0 < edge <= edges[-1] <= MAX_EDGE for edge in edges)
    is_usable &= all(isinstance(n, int | float) and abs(n) < MAX_SCALE for n in numbers)
    is_usable &= all(factors) and {len(preprocessing.mean), len(preprocessing.std)} <= {1, 3}
    if not is_usable:
        raise BackboneError(
            f"{path} has impossible sizes, means, standard deviations or a scale: {edges} pixels, "
            f"{numbers}; correct it"
        )


def resize_and_crop(frames: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Scale and crop frames from uint8 ``[T,H,W,3]`` to ``[T,3,h,w]``; see `resize_frame`."""
    return torch.stack([resize_frame(frame, preprocessing) for frame in frames]).contiguous()


def resize_frame(frame: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Scale and crop a frame from uint8 ``[H,W,3]`` to ``[3,h,w]``.

    The result is uint8, or float32 from a `transform`; its memory may be in any order.
    """
    if preprocessing.transform:
        pixels: Tensor = preprocessing.transform(frame.permute(2, 0, 1))
        return pixels.float()
    pixels = frame[None].permute(0, 3, 1, 2)
    if preprocessing.squash:
        pixels = interpolate(pixels, size=preprocessing.squash, mode="bilinear")
    height, width = pixels.shape[-2:]
    size = preprocessing.crop
    if preprocessing.shortest_edge:
        short = preprocessing.shortest_edge
        long = int(short * max(height, width) / min(height, width))
        size = (short, long) if height <= width else (long, short)
    if size != (height, width):
        pixels = interpolate(pixels, size=size, mode=preprocessing.filter, antialias=True)
    top = _margin(size[0] - preprocessing.crop[0], preprocessing.middle)
    left = _margin(size[1] - preprocessing.crop[1], preprocessing.middle)
    height, width = preprocessing.crop
    return pixels[0, :, top : top + height, left : left + width]


def normalise(pixels: Tensor, preprocessing: Preprocessing, out: Tensor | None = None) -> Tensor:
    """Normalise bytes of shape ``[..., 3, h, w]`` with the scale, mean and std.

    With `out`, the result is written to that tensor, on its device.
    """
    values = out
    if values is None:
        values = torch.empty(pixels.shape, device=pixels.device)
    if preprocessing.transform:
        return values.copy_(pixels)
    mean = _per_channel(tuple(preprocessing.mean), values.device)
    std = _per_channel(tuple(preprocessing.std), values.device)
    values.copy_(pixels).mul_(preprocessing.scale)
    if preprocessing.offset:  # only ViViT has one; others save a pass over the pixels
        values.sub_(preprocessing.offset)
    values.sub_(mean).div_(std)
    return values


@lru_cache(maxsize=64)
def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return a tensor with a number per channel, which is uploaded to each device only once."""
    return torch.tensor(values, device=device).view(-1, 1, 1)


def _margin(excess: int, middle: str) -> int:
    return round(excess / 2) if middle == "even" else excess // 2


def _geometry(config: Mapping[str, Any], path: Path) -> tuple[int | None, tuple[int, int]]:
    """Return the shortest edge (None if both sides are set) and the size of the crop."""
    size = config["size"]
    crops = config.get("do_center_crop", True)
    is_usual = config.get("do_resize", True) and config.get("do_rescale", True)
    edge: int | None = None
    if isinstance(size, Mapping) and "height" in size:
        crop = _sides(size)
        is_usual = is_usual and not (crops and _sides(config.get("crop_size", size)) != crop)
    else:
        edge = size["shortest_edge"] if isinstance(size, Mapping) else size
        crop = _sides(config.get("crop_size", edge))
        is_usual = is_usual and crops
    if not is_usual:
        raise BackboneError(
            f"{path} does not resize, crop and rescale frames in the usual way. Pass your own "
            "transform: Backbone.from_torch(net, transform=...)"
        )
    return edge, crop


def _sides(size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        return size["height"], size["width"]
    return size, size
