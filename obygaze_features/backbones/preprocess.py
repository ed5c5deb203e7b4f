"""From frames to a backbone's input, as the checkpoint's own processor does it.

In torch, so that it is batched and runs on any device; `transformers`' PIL processors, which
the published checkpoints were made with, are the oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from obygaze_features.common.files import read_json
from obygaze_features.errors import BackboneError, UsageError

__all__ = [
    "CLIP_TORCHVISION",
    "MODES",
    "Preprocessing",
    "normalise",
    "read_preprocessing",
    "resize_and_crop",
]

CONFIG = "preprocessor_config.json"
MODES = ("standard", "author")
SQUASHED = (224, 224)
"""The size to which the authors of ObyGaze12 brought every frame, whatever its proportions."""
BYTES_ARE_RESIZED = frozenset({"cpu"})
"""Kinds of device that resize bytes themselves, and fast."""
AT_ONCE = 8
"""Frames that are resized together where it takes four bytes a number."""
_FILTERS = {2: "bilinear", 3: "bicubic"}
"""The numbers of PIL's filters, as processor configurations give them."""
_BICUBIC = ("CLIP", "Siglip")
"""Processors whose filter is bicubic where the configuration does not say."""


@dataclass(frozen=True)
class Preprocessing:
    """How frames become a backbone's input. Recorded in the store.

    Parameters
    ----------
    shortest_edge
        Frames are scaled so that their shorter edge has this many pixels; by None they are brought
        to the size of `crop`, whatever their proportions.
    filter
        ``bilinear`` or ``bicubic``, always with antialiasing.
    crop
        Height and width of the part that is kept, from the middle.
    scale, offset
        Factor on the pixel values, which are 0 to 255, and what is then taken away.
    mean, std
        Per channel, after scaling.
    squash
        Height and width to which frames are brought first, out of proportion and without
        antialiasing.
    middle
        Where the middle lies if an odd number of pixels is cut away: half of it is rounded
        ``down``, or to the ``even`` number.
    mode
        Whose way it is: one of `MODES`.
    """

    shortest_edge: int | None
    filter: str
    crop: tuple[int, int]
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    offset: float = 0.0
    squash: tuple[int, int] | None = None
    middle: str = "down"
    mode: str = "standard"

    def attributes(self) -> dict[str, Any]:
        """As kept in a store's attributes."""
        return asdict(self)

    def at(self, size: int) -> Preprocessing:
        """The same for pictures of another size."""
        return replace(self, shortest_edge=size, crop=(size, size))

    def check_size(self, size: int | tuple[int, ...] | list[int], checkpoint: Path) -> None:
        """Refuse a checkpoint whose network takes pictures of another size."""
        wanted = (size, size) if isinstance(size, int) else tuple(size)
        if self.crop != wanted:
            raise BackboneError(
                f"{checkpoint / CONFIG} crops to {self.crop[0]}x{self.crop[1]}, "
                f"and config.json says that the network takes {wanted[0]}x{wanted[1]}"
            )


CLIP_TORCHVISION = Preprocessing(
    shortest_edge=224,
    filter="bicubic",
    crop=(224, 224),
    scale=1 / 255,
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    middle="even",
)
"""What OpenAI published with CLIP, in torchvision's terms, and works that build on it copied."""


def read_preprocessing(checkpoint: Path, mode: str = "standard") -> Preprocessing:
    """What a checkpoint's ``preprocessor_config.json`` asks for.

    Mean and standard deviation must be in it: what a class assumes by default is not what the
    published weights were trained with.

    Parameters
    ----------
    checkpoint
        The folder.
    mode
        ``standard`` is what the checkpoint's own processor does to a frame. ``author`` is what the
        authors of ObyGaze12 did: frames squashed to 224 x 224 first, then that processor.
    """
    if mode not in MODES:
        raise UsageError(f"{mode!r} is no mode of preprocessing; take {' or '.join(MODES)}")
    path = checkpoint / CONFIG
    config = read_json(path, BackboneError)
    if not isinstance(config, dict):
        raise BackboneError(f"{path} is not the configuration of a processor")
    kind = str(config.get("image_processor_type", ""))
    # Only this processor knows an offset, and it is on unless it is switched off.
    vivit = kind.startswith("Vivit")
    normalised = config.get("do_normalize", True)
    try:
        edge, crop = _geometry(config, path)
        return Preprocessing(
            shortest_edge=edge,
            filter=_FILTERS[config.get("resample", 3 if kind.startswith(_BICUBIC) else 2)],
            crop=crop,
            scale=config.get("rescale_factor", 1 / 127.5 if vivit else 1 / 255),
            mean=tuple(config["image_mean"]) if normalised else (0.0, 0.0, 0.0),
            std=tuple(config["image_std"]) if normalised else (1.0, 1.0, 1.0),
            offset=float(vivit and config.get("offset", True)),
            squash=SQUASHED if mode == "author" else None,
            mode=mode,
        )
    except (KeyError, TypeError) as problem:
        raise BackboneError(f"{path} has no usable value for {problem}") from None


def resize_and_crop(frames: Tensor, how: Preprocessing) -> Tensor:
    """Scale and crop frames: uint8 ``[T,H,W,3]`` to uint8 ``[T,3,h,w]``, on their device."""
    pixels = frames.permute(0, 3, 1, 2)
    if how.squash:
        pixels = _squash(pixels, how.squash)
    height, width = pixels.shape[-2:]
    size = how.crop
    if how.shortest_edge:
        short = how.shortest_edge
        long = int(short * max(height, width) / min(height, width))
        size = (short, long) if height <= width else (long, short)
    rows, columns = (
        slice(start := _margin(whole - kept, how.middle), start + kept)
        for whole, kept in zip(size, how.crop, strict=True)
    )
    if size == (height, width):
        return pixels[..., rows, columns].contiguous()
    if pixels.device.type in BYTES_ARE_RESIZED:
        resized = interpolate(pixels, size=size, mode=how.filter, antialias=True)
        return resized[..., rows, columns].contiguous()
    down = _weights(height, size[0], how.filter)[rows].to(pixels.device)
    across = _weights(width, size[1], how.filter)[columns].to(pixels.device)
    return torch.cat([_resize(some, down, across) for some in pixels.split(AT_ONCE)])


def normalise(pixels: Tensor, how: Preprocessing) -> Tensor:
    """Bytes of shape ``[..., 3, h, w]`` to the numbers that the backbone was trained on."""
    mean = torch.tensor(how.mean, device=pixels.device).view(-1, 1, 1)
    std = torch.tensor(how.std, device=pixels.device).view(-1, 1, 1)
    return (pixels.float() * how.scale - how.offset - mean) / std


def _squash(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    how: dict[str, Any] = {"size": size, "mode": "bilinear", "align_corners": False}
    if pixels.device.type in BYTES_ARE_RESIZED:
        return interpolate(pixels, **how)
    some = pixels.split(AT_ONCE)
    return torch.cat([_bytes(interpolate(frames.float(), **how)) for frames in some])


def _resize(pixels: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """As PIL does it: first each row, rounded to bytes, and then each column."""
    return _bytes(down @ _bytes(pixels.float() @ across.T).float())


@lru_cache(maxsize=64)
def _weights(there: int, wanted: int, kind: str) -> Tensor:
    """The weight of each of `there` pixels in each of `wanted`.

    Not every device can resize with antialiasing, but all can multiply: the weights are what the
    filter makes of single lit pixels.
    """
    lit = torch.eye(there)[None, None]
    return interpolate(lit, size=(wanted, there), mode=kind, antialias=True)[0, 0]


def _bytes(values: Tensor) -> Tensor:
    # Halves go up, as in PIL and OpenCV, and not to the even number.
    return (values + 0.5).floor().clamp(0, 255).to(torch.uint8)


def _margin(excess: int, middle: str) -> int:
    return round(excess / 2) if middle == "even" else excess // 2


def _geometry(config: Mapping[str, Any], path: Path) -> tuple[int | None, tuple[int, int]]:
    """The shortest edge, or None where both sides are given, and what is kept."""
    size = config["size"]
    whole = isinstance(size, Mapping) and "height" in size
    steps = ("do_resize", "do_rescale", *(() if whole else ("do_center_crop",)))
    if off := [step for step in steps if not config.get(step, True)]:
        raise BackboneError(f"{path} switches {' and '.join(off)} off, which is not supported")
    if whole:
        sides = _sides(size)
        if config.get("do_center_crop", True) and _sides(config.get("crop_size", size)) != sides:
            raise BackboneError(
                f"{path} scales to {sides[0]}x{sides[1]} and then crops, which is not supported"
            )
        return None, sides
    edge = size["shortest_edge"] if isinstance(size, Mapping) else size
    height, width = _sides(config.get("crop_size", edge))
    if max(height, width) > edge:
        raise BackboneError(f"{path} crops to {height}x{width} after scaling down to {edge}")
    return edge, (height, width)


def _sides(size: int | Mapping[str, int]) -> tuple[int, int]:
    return (size["height"], size["width"]) if isinstance(size, Mapping) else (size, size)
