"""The probe: a synthetic clip or text whose features every store keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import explain_out_of_memory
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.errors import BrokenBackbone
from obygaze_features.extraction.forward import Forward

PROBE_FRAMES = 64
"""The most frames of the probe."""
PROBE_TEXT = "She looked at the street. He said: look at her, she looks tired!"
"""The probe of backbones that read only texts."""


def probe_frames(count: int) -> NDArray[np.uint8]:
    """Return the frames of the probe, a synthetic clip, ``[count, 240, 320, 3]``.

    Every store keeps its features, in the group ``probe``: two labs whose features of it agree have
    the same backbone. The frames are computed, never encoded, so no codec can make a difference.
    """
    time, y, x = np.ogrid[:count, :240, :320]
    moving = x + 7 * time
    channels = (moving * 3 + y, (moving ^ y) * 2, (x * y) // 16 + 11 * time)
    return np.stack([np.broadcast_to(c % 256, (count, 240, 320)) for c in channels], -1).astype(
        np.uint8
    )


def probe_sound(seconds: float, rate: int) -> NDArray[np.float32]:
    """Return the probe's sound: a rising tone, computed in whole numbers like its frames."""
    number = np.arange(round(seconds * rate), dtype=np.int64)
    return ((number * number // rate % 256 - 128) / 256).astype(np.float32)


def embed_probe(backbone: Backbone) -> dict[str, NDArray[Any]]:
    """Return the probe's row in each array; images use its first frame, texts its text."""
    if not backbone.for_clips and backbone.encode_images is None:
        return Forward(backbone, 1)([PROBE_TEXT])[0]
    with explain_out_of_memory(f"the probe of {backbone.name}", backbone.device):
        sampling = backbone.sampling
        if isinstance(sampling, SoundSampling):
            sound = probe_sound(1.5 * sampling.window, sampling.rate)
            (row,) = Forward(backbone, 1)([backbone.preprocessing.inputs(sound)])
        else:
            count = min(sampling.frames, PROBE_FRAMES) if backbone.for_clips else 1
            frames = torch.from_numpy(probe_frames(count)).to(backbone.device)
            pixels = resize_and_crop(frames, backbone.preprocessing)
            (row,) = Forward(backbone, 1)([pixels if backbone.for_clips else pixels[0]])
    for spec in backbone.arrays if backbone.plugin else ():
        if np.isnan(spec.without_padding(row[spec.name])).any():
            raise BrokenBackbone(f"{backbone.label}: {spec.name} of a synthetic clip has NaN")
    return row
