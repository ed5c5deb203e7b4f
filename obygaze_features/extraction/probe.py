"""The probe: an input that each backbone embeds, so that labs can compare their backbones.

An extracted store keeps the probe's features in the group ``probe``. If two labs have the same
probe features, they have the same backbone. The probe is a clip, sound, an image or a text; it is
computed rather than decoded, so codecs make no difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import explain_out_of_memory
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.extraction.forward import Forward
from obygaze_features.sampling import SoundSampling

PROBE_FRAMES = 64
"""The maximum number of frames in the probe."""
PROBE_TEXT = "She looked at the street. He said: look at her, she looks tired!"
"""The probe for text backbones."""


def probe_frames(count: int) -> NDArray[np.uint8]:
    """Return the frames of the probe, a synthetic clip, as ``[count, 240, 320, 3]``."""
    time, y, x = np.ogrid[:count, :240, :320]
    moving = x + 7 * time
    frames = np.empty((count, 240, 320, 3), np.uint8)
    frames[..., 0] = (moving * 3 + y) % 256
    frames[..., 1] = (moving ^ y) * 2 % 256
    frames[..., 2] = (x * y // 16 + 11 * time) % 256
    return frames


def probe_input(backbone: Backbone, frames: int = PROBE_FRAMES) -> Any:
    """Return the probe as a backbone takes it: up to `frames` frames, sound, an image or a text."""
    sampling = backbone.sampling
    if backbone.for_clips and isinstance(sampling, SoundSampling):
        # A rising tone, computed with integers like the frames.
        number = np.arange(round(1.5 * sampling.window * sampling.rate), dtype=np.int64)
        tone = (number * number // sampling.rate % 256 - 128) / 256
        return backbone.preprocessing.inputs(tone.astype(np.float32))
    if backbone.for_clips:
        pictures = torch.from_numpy(probe_frames(min(sampling.frames, frames)))
        return resize_and_crop(pictures, backbone.preprocessing)
    if backbone.encode_images:
        return resize_and_crop(torch.from_numpy(probe_frames(1)), backbone.preprocessing)[0]
    return PROBE_TEXT


def embed_probe(backbone: Backbone) -> dict[str, NDArray[Any]]:
    """Embed the probe, and return its row in each array."""
    with explain_out_of_memory(f"the probe of {backbone.name}", backbone.device):
        return Forward(backbone, 1).start([probe_input(backbone)]).rows()[0]
