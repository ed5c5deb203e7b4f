"""Small made-up clips for tests, the demo and benchmarks. Nothing in them was ever filmed.

Each frame carries its number as a strip of black and white squares along its top edge, so
that what a decoder gave can be checked against the picture itself. Below it, the three levels
look different at a glance: Sure is warm with a large moving disc, Easy Negative cool with a
small one, Hard Negative in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

from obygaze_features.common.files import SYNTHETIC, new_folder, write_text
from obygaze_features.manifests import obygaze_scheme
from obygaze_features.manifests.moviegraphs import clip_id

__all__ = ["read_frame_number", "write_clip", "write_synthetic_dataset"]

_BITS = 16
_SQUARE = 8
_LEVELS = ("EN", "S", "HN", "S")
"""The levels of a film's scenes, in turn."""
_WARMTH = {"EN": 0.0, "HN": 0.5, "S": 1.0}
_CONCEPTS = {"EN": 0, "HN": 1, "S": 3}
"""How many concepts a scene of a level has."""


def write_synthetic_dataset(
    folder: Path, *, films: int = 3, scenes: int = 4, seconds: float = 2.0, overwrite: bool = False
) -> Path:
    """Write clips and their annotations.

    Parameters
    ----------
    folder
        Gets ``videos/FILM/FILM_scene_N.mp4`` and ``annotations.csv``.
    films, scenes
        How many films, and how many scenes in each. Of four scenes one is Easy Negative, one
        Hard Negative and two are Sure.
    seconds
        How long a clip lasts.
    overwrite
        Replace an earlier synthetic data set.

    Returns
    -------
    Path
        The annotations.
    """
    lines = ["id,film,media,level,concepts,synthetic"]
    names = obygaze_scheme().visual_concepts
    with new_folder(folder, overwrite=overwrite, marker=SYNTHETIC, discard=True) as new:
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
) -> None:
    """Write one clip; the suffix of `path` says in which container.

    Parameters
    ----------
    path
        For example ``clip.mp4``, ``clip.mkv`` or ``clip.avi``.
    level
        ``EN``, ``HN`` or ``S``: how the picture looks.
    seed
        Clips of different seeds differ in hue and movement; the same seed gives the same clip.
    seconds, width, height, rate
        Its length, its picture size (at least 128 wide) and its frames a second.
    """
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    with av.open(path, "w") as container:
        stream = container.add_stream(codec, rate=rate)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.max_b_frames = 2
        stream.codec_context.thread_count = 1
        for rgb in _frames(level, seed, round(seconds * rate), width, height):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        container.mux(stream.encode())


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
    for number in range(count):
        angle = phase + 2 * np.pi * turns * number / count
        centre_x = width / 2 + np.cos(angle) * (width / 2 - radius)
        centre_y = height / 2 + np.sin(angle) * (height / 2 - radius)
        inside = (x - centre_x) ** 2 + (y - centre_y) ** 2 < radius**2
        picture = np.where(inside[..., None], disc, background * shade)
        bits = (number >> np.arange(_BITS)) & 1
        picture[:_SQUARE, : _BITS * _SQUARE] = np.repeat(bits, _SQUARE)[:, None] * 255
        yield picture.clip(0, 255).astype(np.uint8)
