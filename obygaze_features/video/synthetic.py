"""Small synthetic clips for tests, the demo and benchmarks. Nothing in them was ever filmed.

Each frame carries its number as a strip of black and white squares along its top edge, so that a
decoder's output can be checked against the picture itself. Below it, the three levels look
different: Sure is warm with a large moving disc, Easy Negative cool with a small disc, Hard
Negative in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

from obygaze_features.common.files import SYNTHETIC, new_folder, write_text
from obygaze_features.manifests import obygaze_scheme
from obygaze_features.manifests.media import clip_id

_BITS = 16
_SQUARE = 8
_LEVELS = ("EN", "S", "HN", "S")
"""The levels of a film's scenes, repeated."""
_WARMTH = {"EN": 0.0, "HN": 0.5, "S": 1.0}
_CONCEPTS = {"EN": 0, "HN": 1, "S": 3}
"""How many concepts a scene of a level has."""


def write_synthetic_dataset(
    folder: Path, *, films: int = 3, scenes: int = 4, seconds: float = 2.0, overwrite: bool = False
) -> Path:
    """Write clips, ``videos/FILM/FILM_scene_N.mp4``, and ``annotations.csv``; returns its path.

    Of four scenes of a film two are Sure, the others Easy Negative and Hard Negative. With
    `overwrite` an earlier synthetic data set is replaced.
    """
    lines = ["id,film,media,level,concepts,synthetic"]
    names = obygaze_scheme().visual_concepts
    with new_folder(folder, overwrite=overwrite, marker=SYNTHETIC, allow_missing=True) as new:
        write_text(new / SYNTHETIC, "Drawn by obygaze features make-clips; nothing was filmed.\n")
        for number in range(films * scenes):
            film, scene = f"tt{number // scenes + 1:07d}", number % scenes + 1
            level = _LEVELS[(scene - 1) % len(_LEVELS)]
            video = f"{film}_scene_{scene}.mp4"
            (new / "videos" / film).mkdir(parents=True, exist_ok=True)
            write_clip(new / "videos" / film / video, level, seed=number, seconds=seconds)
            concepts = "|".join(
                names[(number + step) % len(names)] for step in range(_CONCEPTS[level])
            )
            identifier = clip_id(film, scene)
            lines.append(f"{identifier},{film},{video},{level},{concepts},drawn by a program")
        (new / "annotations.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "annotations.csv"


def write_clip(
    path: Path,
    level: str,
    *,
    seed: int = 0,
    seconds: float = 2.0,
    width: int = 160,
    height: int = 120,
    rate: int = 24,
    **settings: Any,
) -> None:
    """Write one clip that looks like a level, ``EN``, ``HN`` or ``S``.

    Clips with different seeds differ in hue and movement. A picture must be at least 128 wide. The
    suffix of `path` chooses the container, and `settings` are as in `write_pictures`.
    """
    pictures = _frames(level, seed, round(seconds * rate), width, height)
    write_pictures(path, pictures, rate=rate, **settings)


def write_pictures(
    path: Path,
    pictures: Iterable[NDArray[np.uint8]],
    *,
    rate: int = 24,
    variable_rate: bool = False,
    rotation: int = 0,
    codec: str | None = None,
    gop: int = 12,
    b_frames: int = 2,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write RGB pictures of one size as a film; the suffix of `path` chooses the container.

    Parameters
    ----------
    path, pictures, rate
        The file, its frames, and frames per second.
    variable_rate
        Show frames for one, two or three times as long, alternately.
    rotation
        By how many degrees a player has to rotate the pictures counter-clockwise.
    codec, options
        An FFmpeg encoder (by default x264 where FFmpeg has it, or else mpeg4), and its options.
    gop, b_frames
        Frames from one keyframe to the next, and B-frames in a row.
    """
    codec = codec or ("libx264" if "libx264" in av.codecs_available else "mpeg4")
    with av.open(path, "w") as container:
        stream = container.add_stream(codec, rate=rate, options=dict(options or {}))
        assert isinstance(stream, VideoStream)
        pictures = iter(pictures)
        first = next(pictures)
        stream.height, stream.width = first.shape[:2]
        odd = stream.height % 2 or stream.width % 2
        # x264 halves the colours of even sizes only.
        stream.pix_fmt = "yuv444p" if odd and codec == "libx264" else "yuv420p"
        stream.gop_size, stream.max_b_frames = gop, b_frames
        stream.codec_context.thread_count = 1
        if variable_rate:
            stream.codec_context.time_base = Fraction(1, 1000)
        if rotation:
            stream.set_display_rotation(rotation)
        tick = 0
        for number, rgb in enumerate(chain([first], pictures)):
            frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            if variable_rate:
                frame.pts, frame.time_base = tick * 1000 // rate, Fraction(1, 1000)
                tick += 1 + number % 3
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def draw_frame_number(rgb: NDArray[np.uint8], number: int) -> None:
    """Put the strip that `read_frame_number` reads into a picture."""
    bits = (number >> np.arange(_BITS)) & 1
    rgb[:_SQUARE, : _BITS * _SQUARE] = np.repeat(bits, _SQUARE)[:, None] * 255


def read_frame_number(rgb: NDArray[np.uint8]) -> int:
    """The number that a synthetic frame carries in its strip."""
    strip = rgb[:_SQUARE, : _BITS * _SQUARE].mean(axis=(0, 2)).reshape(_BITS, _SQUARE)
    bits = strip[:, 2:-2].mean(axis=1) > 127
    return int((bits << np.arange(_BITS)).sum())


def _frames(
    level: str, seed: int, count: int, width: int, height: int
) -> Iterator[NDArray[np.uint8]]:
    random = np.random.default_rng(seed)
    warmth = np.clip(_WARMTH[level] + random.normal(0, 0.08), 0, 1)
    cool, warm = np.array([40, 70, 150]), np.array([200, 90, 50])
    background = cool + warmth * (warm - cool) + random.normal(0, 8, 3)
    disc = np.array([140, 190, 220]) + warmth * np.array([100, 10, -60])
    radius = height * (0.1 + 0.2 * warmth)
    phase, turns = random.uniform(0, 2 * np.pi), random.uniform(0.5, 1.5)
    y, x = np.mgrid[:height, :width]
    shade = (0.8 + 0.4 * y / height)[..., None]
    empty = (background * shade).clip(0, 255).astype(np.uint8)
    for number in range(count):
        angle = phase + 2 * np.pi * turns * number / count
        centre_x = width / 2 + np.cos(angle) * (width / 2 - radius)
        centre_y = height / 2 + np.sin(angle) * (height / 2 - radius)
        picture = empty.copy()
        picture[(x - centre_x) ** 2 + (y - centre_y) ** 2 < radius**2] = disc.clip(0, 255)
        draw_frame_number(picture, number)
        yield picture
