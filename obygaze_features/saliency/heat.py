"""Maps as pictures: heat alone, and heat over what it was found in."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.extras import need

__all__ = ["heat", "overlay", "png", "stretch"]

Bytes = NDArray[np.uint8]
Values = NDArray[np.float32]

_STOPS = (
    (10, 8, 46),
    (66, 16, 105),
    (132, 32, 107),
    (196, 56, 78),
    (240, 112, 32),
    (250, 182, 44),
    (252, 250, 190),
)
"""From nothing to most; each is lighter than the one before it, also in print and to the
colour-blind."""
_MOST = 0.7
"""How far the highest heat hides what is under it."""
_LIGHT = np.array((0.299, 0.587, 0.114))
"""How much of a picture's light each of its colours has."""
_DARKENED = 0.75
_NARROWEST = 224
"""Pixels that a picture has at least on a side."""


def stretch(values: Values, height: int, width: int) -> Values:
    """A map in the size of a picture, smooth between the middles of its patches."""
    need("PIL.Image", extra="extract")
    from PIL import Image

    image = Image.fromarray(np.asarray(values, np.float32))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def heat(values: Values) -> Bytes:
    """Colours ``[h,w,3]`` of values from 0 to 1."""
    at = np.clip(values, 0, 1) * (len(_STOPS) - 1)
    stops = np.array(_STOPS, dtype=float)
    channels = [np.interp(at, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    return np.round(np.stack(channels, axis=-1)).astype(np.uint8)


def overlay(picture: Bytes, values: Values) -> Bytes:
    """A picture ``[h,w,3]`` under the colours of values from 0 to 1.

    The picture is grey: skin and clothes have the colours of heat, and would be taken for it. And
    it is darkened, as the highest heat is nearly white.
    """
    grey = _DARKENED * (picture @ _LIGHT)[..., None]
    share = _MOST * np.clip(values, 0, 1)[..., None]
    shown: Bytes = np.round(grey * (1 - share) + heat(values) * share).astype(np.uint8)
    return shown


def png(picture: Bytes) -> bytes:
    """A PNG file; small pictures are made larger by whole numbers."""
    need("PIL.Image", extra="extract")
    from PIL import Image

    times = -(-_NARROWEST // min(picture.shape[:2]))
    larger = picture.repeat(times, axis=0).repeat(times, axis=1)
    file = io.BytesIO()
    Image.fromarray(larger).save(file, "PNG")
    return file.getvalue()
