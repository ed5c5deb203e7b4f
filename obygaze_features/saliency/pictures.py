"""Pictures of saliency maps: the heat map alone, and over the image."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.package import need

Bytes = NDArray[np.uint8]
Values = NDArray[np.float32]

_HEAT_COLOURS = (
    (10, 8, 46),
    (66, 16, 105),
    (132, 32, 107),
    (196, 56, 78),
    (240, 112, 32),
    (250, 182, 44),
    (252, 250, 190),
)
"""From lowest to highest, each lighter than the one before: also in print, and for the
colour-blind."""
_OVERLAY_COLOURS = ((176, 18, 32), (214, 40, 28), (240, 96, 24), (252, 170, 32), (255, 226, 74))
"""Colours over an image: no blue at either end, so that heat looks warm over any image."""
_MAX_OPACITY = 0.92
_LUMINANCE = np.array((0.299, 0.587, 0.114))
_BRIGHTNESS = 0.75
"""Factor on an image under heat."""
_MIN_SIDE = 224
"""Pixels of the shorter side of a picture, at least."""
_PAPER, _INK = (251, 250, 247), (31, 35, 40)
_TITLE_HEIGHT, _BAR_HEIGHT, _FOOTER_HEIGHT = 22, 10, 34


def upscale(values: Values, height: int, width: int) -> Values:
    """A map in the size of an image, interpolated between the centres of its patches."""
    need("PIL.Image", extra="extract")
    from PIL import Image

    image = Image.fromarray(np.asarray(values, np.float32))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def heat_map(values: Values) -> Bytes:
    """Colours ``[h,w,3]`` of values from 0 to 1."""
    return np.round(_interpolate(values, _HEAT_COLOURS)).astype(np.uint8)


def overlay(image: Bytes, values: Values) -> Bytes:
    """An image ``[h,w,3]`` under the colours of values from 0 to 1.

    The image is drawn in grey, because skin and clothes have the colours of heat, and darker,
    because the highest heat is light.
    """
    grey = _BRIGHTNESS * (image @ _LUMINANCE)[..., None]
    opacity = _MAX_OPACITY * (1 - (1 - np.clip(values, 0, 1)[..., None]) ** 2)
    colours = _interpolate(values, _OVERLAY_COLOURS)
    result: Bytes = np.round(grey * (1 - opacity) + colours * opacity).astype(np.uint8)
    return result


def encode_png(picture: Bytes, title: str, highest: float, *, is_overlay: bool) -> bytes:
    """A PNG file with a title (cut if it is too long), a picture and a colour bar to `highest`.

    Small pictures of `heat_map`, or of `overlay`, are enlarged by a whole factor.
    """
    need("PIL.Image", extra="extract")
    from PIL import Image, ImageDraw, ImageFont

    factor = -(-_MIN_SIDE // min(picture.shape[:2]))
    enlarged = picture.repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = enlarged.shape[:2]
    values = np.linspace(0, 1, width, dtype=np.float32)[None].repeat(_BAR_HEIGHT, axis=0)
    paper = np.full((_BAR_HEIGHT, width, 3), _PAPER, np.uint8)
    sheet = Image.new("RGB", (width, _TITLE_HEIGHT + height + _FOOTER_HEIGHT), _PAPER)
    sheet.paste(Image.fromarray(enlarged), (0, _TITLE_HEIGHT))
    bar = overlay(paper, values) if is_overlay else heat_map(values)
    bar_top = _TITLE_HEIGHT + height + 5
    sheet.paste(Image.fromarray(bar), (0, bar_top))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    while len(title) > 1 and font.getlength(title) > width - 6:
        title = title.removesuffix("...")[:-1] + "..."
    draw.text((3, 3), title, _INK, font)
    draw.text((3, bar_top + _BAR_HEIGHT), "0", _INK, font)
    draw.text((width - 3, bar_top + _BAR_HEIGHT), f"{highest:.2g}", _INK, font, anchor="ra")
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return file.getvalue()


def _interpolate(values: Values, colours: Sequence[tuple[int, int, int]]) -> NDArray[np.float64]:
    position = np.clip(values, 0, 1) * (len(colours) - 1)
    stops = np.array(colours, dtype=float)
    channels = [np.interp(position, np.arange(len(stops)), stops[:, c]) for c in range(3)]
    return np.stack(channels, axis=-1)
