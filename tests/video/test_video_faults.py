"""Films at random, whole and damaged."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.errors import VideoError
from obygaze_features.video.decode import decode_frames
from obygaze_features.video.index import index_file
from tests.kit.films import ALTREF, QUIET, VP9, everything, numbers, upright, write_clip

#: container -> the codecs that are written into it.
CODECS = {
    "mp4": ("libx264", "libx264", "mpeg4", "libx265", "mpeg2video", "libvpx-vp9", "libsvtav1"),
    "mov": ("libx264", "mpeg4", "mjpeg"),
    "mkv": ("libx264", "libx264", "mpeg4", "libx265", "mpeg2video", "libvpx", "libvpx-vp9"),
    "webm": ("libvpx", "libvpx-vp9", "libsvtav1"),
    "avi": ("libx264", "mpeg4", "mpeg4", "mjpeg"),
    "ts": ("libx264", "mpeg2video", "libx265"),
    "flv": ("libx264",),
}
TURNABLE = ("mp4", "mov", "mkv")
LOOSE = ("mp4", "mov", "mkv")
"""Containers in which frames may be shown for any time."""


def any_film(dice: random.Random) -> dict:
    container = dice.choice([*CODECS, "mp4", "mkv", "avi"])
    codec = dice.choice(CODECS[container])
    options: dict[str, str] = {}
    odd = False
    if codec == "libx264":
        # No look-ahead of many frames: most of these films are short.
        wishes = [dice.choice(["open-gop=0", "open-gop=1", "open-gop=1", "intra-refresh=1"])]
        wishes += dice.sample(
            ["b-pyramid=none", "b-pyramid=strict", "ref=1", "ref=5", "slices=3", "b-adapt=0",
             "weightp=0", "scenecut=0", "bframes=5", "rc-lookahead=5", "cabac=0", "tff=1"],
            dice.randint(0, 3),
        )  # fmt: skip
        options = {"x264-params": ":".join(wishes)}
        odd = "tff=1" not in wishes and dice.random() < 0.15
    elif codec == "libx265":
        options = {"x265-params": f"{QUIET}:open-gop={dice.randint(0, 1)}:rc-lookahead=10"}
    elif codec in ("mpeg4", "mpeg2video"):
        options = {"flags": "+cgop", "sc_threshold": "1000000000"} if dice.random() < 0.4 else {}
        odd = codec == "mpeg4" and dice.random() < 0.3
    elif codec == "libvpx":
        options = ALTREF | {"cpu-used": "8"}
    elif codec == "libvpx-vp9":
        options, odd = dice.choice([VP9, ALTREF]), dice.random() < 0.3
    elif codec == "libsvtav1":
        options = {
            "preset": "13",
            "crf": "20",
            "svtav1-params": f"irefresh-type={dice.randint(1, 2)}",
        }
    elif codec == "mjpeg":
        options = {"strict": "unofficial"}
    seconds = dice.choice([1, 2, 3, 7, 30, 60, 100, 150]) / 24
    has_b_frames = codec in ("libx264", "libx265", "mpeg4", "mpeg2video")
    if codec == "libx265" and seconds < 0.2:
        has_b_frames = False  # its times for so few are not ones that can be written
    return {
        "name": f"film.{container}",
        "codec": codec,
        "options": options,
        "gop": dice.choice([1, 2, 5, 12, 25, 60, 250]),
        "b_frames": dice.randint(0, 4) if has_b_frames else 0,
        "seconds": seconds,
        "variable_rate": container in LOOSE and codec != "mpeg2video" and dice.random() < 0.3,
        "rotation": dice.choice([0, 90, 180, 270]) if container in TURNABLE else 0,
        "width": 161 if odd else dice.choice([160, 176]),
        "height": 121 if odd else 120,
        "seed": dice.randrange(100),
    }


def any_wish(dice: random.Random, times: np.ndarray) -> tuple[float | None, float | None, Sampling]:
    start, end = sorted(dice.uniform(-0.1, times[-1] + 0.2) for _ in range(2))
    sampling = Sampling(dice.choice([1, 4, 8, 32]), dice.choice([None, None, 1, 5]))
    return dice.choice([None, start]), dice.choice([None, end]), sampling


@pytest.mark.faults
def test_300_films_at_random_are_right_to_the_pixel(tmp_path, capsys):
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    fast = 0
    for turn in range(300):
        film = any_film(dice)
        try:
            fast += is_right(tmp_path, dice, **film)
        except Exception as problem:
            problem.add_note(f"seed {seed}, film {turn}: {film}")
            raise
    with capsys.disabled():
        sys.stdout.write(f"\n  seed {seed}: {fast} of 300 films decoded in pieces\n")


def is_right(folder: Path, dice: random.Random, name: str, rotation: int, **film) -> bool:
    """Check a few samples of a film; say whether they could be decoded in pieces."""
    path = folder / name
    write_clip(path, "S", rotation=rotation, **film)
    oracle = upright(everything(path), rotation)
    index = index_file(path)
    assert len(index) == len(oracle) == round(film["seconds"] * 24)
    for _ in range(4):
        start, end, sampling = any_wish(dice, index.times)
        try:
            span = index.span(path, start, end)
        except VideoError:
            assert start is not None or end is not None
            continue
        picked = sampling.pick(index.times[span.start : span.stop]) + span.start
        frames = decode_frames(path, picked, index=index).take(picked)
        assert numbers(frames.rgb, rotation) == picked.tolist()
        assert (frames.rgb == oracle[picked]).all()
    return index.why_slow is None


def damage(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(dice.randint(1, 4)):
        offset, size = dice.randrange(len(data)), dice.choice([1, 20, 400, 3000])
        piece = data[offset : offset + size]
        kind = dice.choice(["random", "zeros", "cut", "twice"])
        new = {"random": dice.randbytes(len(piece)), "zeros": bytes(len(piece)), "cut": b""}
        data[offset : offset + size] = new.get(kind, bytes(piece) * 2)
    path.write_bytes(data)


@pytest.mark.faults
def test_300_damaged_films_give_frames_or_an_error(tmp_path, capsys):
    """Whether the frames given are right nobody can tell: not all damage is noticed."""
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    decoded = 0
    for turn in range(300):
        film = any_film(dice)
        path = tmp_path / film.pop("name")
        write_clip(path, "S", **film)
        damage(path, dice)
        try:
            index = index_file(path)
            decode_frames(path, Sampling(8).pick(index.times), index=index)
            decoded += 1
        except VideoError:
            continue
        except Exception as problem:
            problem.add_note(f"seed {seed}, film {turn}: {film}")
            raise
    with capsys.disabled():
        sys.stdout.write(f"\n  seed {seed}: {decoded} of 300 damaged films gave frames\n")
    assert 30 < decoded < 270
