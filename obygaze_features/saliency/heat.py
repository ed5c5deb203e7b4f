"""Maps as pictures: heat alone, and heat over what it was found in."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.package import need

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
_WARM = ((176, 18, 32), (214, 40, 28), (240, 96, 24), (252, 170, 32), (255, 226, 74))
"""Over a picture: no blue at either end, that what is hot stays warm whatever lies under it."""
_MOST = 0.92
"""How far the highest heat hides what is under it."""
_LIGHT = np.array((0.299, 0.587, 0.114))
"""How much of a picture's light each of its colours has."""
_DARKENED = 0.75
_NARROWEST = 224
"""Pixels that a picture has at least on a side."""
_PAPER, _INK = (251, 250, 247), (31, 35, 40)
_TITLE, _BAR, _BELOW = 22, 10, 34
"""How tall a title is, the bar of colours, and what it stands in."""


def stretch(values: Values, height: int, width: int) -> Values:
    """A map in the size of a picture, smooth between the middles of its patches."""
    need("PIL.Image", extra="extract")
    from PIL import Image

    image = Image.fromarray(np.asarray(values, np.float32))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def heat(values: Values) -> Bytes:
    """Colours ``[h,w,3]`` of values from 0 to 1."""
    return np.round(_colours(values, _STOPS)).astype(np.uint8)


def _colours(values: Values, of: Sequence[tuple[int, int, int]]) -> NDArray[np.float64]:
    at = np.clip(values, 0, 1) * (len(of) - 1)
    stops = np.array(of, dtype=float)
    channels = [np.interp(at, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1)


def overlay(picture: Bytes, values: Values) -> Bytes:
    """A picture ``[h,w,3]`` under the colours of values from 0 to 1.

    The picture is grey: skin and clothes have the colours of heat, and would be taken for it. And
    it is darkened, as the highest heat is light.
    """
    grey = _DARKENED * (picture @ _LIGHT)[..., None]
    share = _MOST * (1 - (1 - np.clip(values, 0, 1)[..., None]) ** 2)
    shown: Bytes = np.round(grey * (1 - share) + _colours(values, _WARM) * share).astype(np.uint8)
    return shown


def png(picture: Bytes, title: str, highest: float, *, over: bool) -> bytes:
    """A PNG file: a title, the picture, and what its colours mean.

    Parameters
    ----------
    picture
        Of `heat` or `overlay`; small ones are made larger by whole numbers.
    title
        What stands above; cut where it is too long.
    highest
        The value that has the last of the colours; the first has 0.
    over
        The heat lies over a picture.
    """
    need("PIL.Image", extra="extract")
    from PIL import Image, ImageDraw, ImageFont

    times = -(-_NARROWEST // min(picture.shape[:2]))
    larger = picture.repeat(times, axis=0).repeat(times, axis=1)
    height, width = larger.shape[:2]
    values = np.linspace(0, 1, width, dtype=np.float32)[None].repeat(_BAR, axis=0)
    paper = np.full((_BAR, width, 3), _PAPER, np.uint8)
    sheet = Image.new("RGB", (width, _TITLE + height + _BELOW), _PAPER)
    sheet.paste(Image.fromarray(larger), (0, _TITLE))
    bar = overlay(paper, values) if over else heat(values)
    sheet.paste(Image.fromarray(bar), (0, _TITLE + height + 5))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    said = title
    while len(said) > 1 and font.getlength(said) > width - 6:
        said = said.removesuffix("...")[:-1] + "..."
    below = _TITLE + height + 5 + _BAR
    draw.text((3, 3), said, _INK, font)
    draw.text((3, below), "0", _INK, font)
    draw.text((width - 3, below), f"{highest:.2g}", _INK, font, anchor="ra")
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return file.getvalue()
