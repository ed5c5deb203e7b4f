"""The fixed made-up clip whose features every store keeps as its probe.

Two labs whose probes agree speak of the same features. The frames are computed, never encoded,
so that no codec can come between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone, Towers
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.extraction.forward import Forward

__all__ = ["probe_frames", "probe_of"]

HEIGHT, WIDTH = 240, 320


def probe_frames(count: int) -> NDArray[np.uint8]:
    """The frames of the probe, ``[count, 240, 320, 3]``: whole numbers, alike on every machine."""
    time, y, x = np.ogrid[:count, :HEIGHT, :WIDTH]
    moving = x + 7 * time
    channels = (moving * 3 + y, (moving ^ y) * 2, (x * y) // 16 + 11 * time)
    return np.stack(
        [np.broadcast_to(c % 256, (count, HEIGHT, WIDTH)) for c in channels], -1
    ).astype(np.uint8)


def probe_of(backbone: Backbone | Towers) -> dict[str, NDArray[Any]]:
    """The probe's row in each array of a backbone; towers see its first frame alone."""
    how = backbone.preprocessing
    if isinstance(backbone, Towers):
        pixels = resize_and_crop(torch.from_numpy(probe_frames(1)), how).to(backbone.device)
        return {"native": backbone.embed_images(normalise(pixels, how))[0].cpu().numpy()}
    frames = torch.from_numpy(probe_frames(backbone.sampling.frames)).to(backbone.device)
    (row,) = Forward(backbone, 1)([resize_and_crop(frames, how)])
    return row
