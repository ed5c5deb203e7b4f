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
from obygaze_features.backbones.readers import ImageReader, Reader, SoundReader, TextReader
from obygaze_features.extraction.forward import Forward

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


def probe_input(reader: Reader, frames: int = PROBE_FRAMES) -> Any:
    """Return the probe as a reader takes it: up to `frames` frames, sound, an image or a text."""
    if isinstance(reader, TextReader):
        return PROBE_TEXT
    if isinstance(reader, SoundReader):
        # A rising tone, computed with integers like the frames.
        rate = reader.sampling.rate
        number = np.arange(round(1.5 * reader.sampling.window * rate), dtype=np.int64)
        tone = (number * number // rate % 256 - 128) / 256
        return reader.preprocessing.inputs(tone.astype(np.float32))
    if isinstance(reader, ImageReader):
        return resize_and_crop(torch.from_numpy(probe_frames(1)), reader.preprocessing)[0]
    pictures = torch.from_numpy(probe_frames(min(reader.sampling.frames, frames)))
    return resize_and_crop(pictures, reader.preprocessing)


def embed_probe(backbone: Backbone) -> dict[str, NDArray[Any]]:
    """Embed the probe, and return its row in each array."""
    kind, reader = next(iter(backbone.readers.items()))
    with explain_out_of_memory(f"the probe of {backbone.name}", backbone.device):
        return Forward(backbone, 1).start(kind, [probe_input(reader)]).rows()[0]
