"""The fixed synthetic clip whose features every store keeps, in its ``probe`` group.

Two labs whose features of it agree have the same backbone. Its frames are computed, never encoded,
so that no codec can make a difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.extraction.forward import Forward

HEIGHT, WIDTH = 240, 320


def reference_frames(count: int) -> NDArray[np.uint8]:
    """The clip's frames, ``[count, 240, 320, 3]``: integers, equal on every machine."""
    time, y, x = np.ogrid[:count, :HEIGHT, :WIDTH]
    moving = x + 7 * time
    channels = (moving * 3 + y, (moving ^ y) * 2, (x * y) // 16 + 11 * time)
    return np.stack(
        [np.broadcast_to(c % 256, (count, HEIGHT, WIDTH)) for c in channels], -1
    ).astype(np.uint8)


def embed_reference_clip(backbone: Backbone) -> dict[str, NDArray[Any]]:
    """The clip's row in each array of a backbone; of images, its first frame alone."""
    count = backbone.sampling.frames if backbone.for_clips else 1
    frames = torch.from_numpy(reference_frames(count)).to(backbone.device)
    pixels = resize_and_crop(frames, backbone.preprocessing)
    (row,) = Forward(backbone, 1)([pixels if backbone.for_clips else pixels[0]])
    return row
