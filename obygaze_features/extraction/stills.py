"""Image files as upright RGB pictures, resized for who looks at them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Towers
from obygaze_features.common.package import need
from obygaze_features.errors import VideoError
from obygaze_features.extraction.clips import reason, resized
from obygaze_features.manifests import Item
from obygaze_features.manifests.media import IMAGE_SUFFIXES, MediaFolder
from obygaze_features.store import Failed, Status
from obygaze_features.video.index import fingerprint

__all__ = ["Still", "StillReader", "read_picture"]

NARROWEST = 100
"""How many times as long as wide a picture may be: scaled, it takes so much more memory."""


@dataclass(frozen=True)
class Still:
    """A picture, resized for each pair of towers, and the fingerprint of its file."""

    source: str
    pixels: Mapping[str, Tensor]


class StillReader:
    """Reads images for some towers; several threads may call it."""

    def __init__(self, images: Path, towers: Iterable[Towers]) -> None:
        self._media = MediaFolder(images.resolve(), IMAGE_SUFFIXES)
        self._towers = list(towers)

    def read(self, item: Item) -> Still | Failed:
        """A picture, or why there is none."""
        root, source = self._media.root, None
        try:
            path = self._media.find(item)
        except VideoError as problem:
            return Failed(Status.MISSING, reason(str(problem), item, root))
        try:
            picture = torch.from_numpy(read_picture(path))[None]
            source = fingerprint(path)
            return Still(source, {one.name: resized(picture, one)[0] for one in self._towers})
        except VideoError as problem:
            return Failed(Status.UNREADABLE, reason(str(problem), item, root), source)


def read_picture(path: Path) -> NDArray[np.uint8]:
    """The picture in a file, ``[height, width, 3]``: upright, the first one where it has several.

    What is transparent is taken for opaque, as the processors of published models do it.
    """
    need("PIL.Image", extra="extract")
    from PIL import Image, ImageOps

    if not path.is_file():
        raise VideoError(f"{path} is no plain file")
    try:
        with Image.open(path) as image:
            width, height = image.size
            # Of sixteen bits PIL would keep the lower eight.
            deep = image.mode in ("I", "F") or image.mode.startswith("I;")
            if not deep and max(width, height) <= NARROWEST * min(width, height):
                return np.array(ImageOps.exif_transpose(image).convert("RGB"))
    except Exception as problem:  # each format has its own reader, with its own errors
        words = str(problem).splitlines() or [type(problem).__name__]
        raise VideoError(
            f"{path} cannot be read as an image: {words[0].replace(str(path), path.name)}"
        ) from None
    if deep:
        raise VideoError(f"{path} has more than 8 bits a channel; save it with 8")
    raise VideoError(f"{path} is {width} x {height} pixels, too narrow for a picture")
