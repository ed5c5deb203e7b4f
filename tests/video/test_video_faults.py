"""Random films."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from obygaze_features.errors import VideoError
from obygaze_features.sampling import Sampling
from obygaze_features.video.index import index_file
from tests.kit.decoding import decode_frames
from tests.kit.films import KINDS, everything, numbers, upright, write_clip

LOOSE = (".mp4", ".mov", ".mkv")
"""Containers in which pictures may be turned, and shown for any time."""
WITH_B_FRAMES = ("libx264", "libx265", "mpeg4", "mpeg2video")
X264 = ("b-pyramid=none", "ref=5", "slices=3", "weightp=0", "scenecut=0", "cabac=0")


def any_film(dice: random.Random) -> dict[str, Any]:
    """Draw a film of some kind, length, rotation and keyframe interval."""
    name = dice.choice([*KINDS])
    film = {"codec": "libx264", "options": {}} | KINDS[name]
    codec = film["codec"]
    if codec == "libx264":
        wishes = [film["options"].get("x264-params", "open-gop=0"), *dice.sample(X264, 2)]
        film["options"] = film["options"] | {"x264-params": ":".join(wishes)}
    is_loose = name.endswith(LOOSE)
    return film | {
        "name": f"film{Path(name).suffix}",
        "gop": dice.choice([1, 2, 5, 12, 25, 60, 250]),
        "b_frames": dice.randint(0, 4) if codec in WITH_B_FRAMES else 0,
        # For fewer frames, x265 gives times that cannot be written.
        "seconds": dice.choice([7, 30, 60, 100, 150]) / 24,
        "variable_rate": is_loose and codec != "mpeg2video" and dice.random() < 0.3,
        "rotation": dice.choice([0, 90, 180, 270]) if is_loose else 0,
        "seed": dice.randrange(100),
    }


def is_right(path: Path, dice: random.Random, film: dict[str, Any]) -> bool:
    """Check a few samples to the pixel; return True if they could be decoded in pieces."""
    oracle = upright(everything(path), film["rotation"])
    index = index_file(path)
    assert len(index) == len(oracle) == round(film["seconds"] * 24)
    for _ in range(4):
        latest = index.times[-1] + 0.2
        start, end = sorted([dice.uniform(-0.1, latest), dice.uniform(-0.1, latest)])
        start = dice.choice([None, start])
        end = dice.choice([None, end])
        count = dice.choice([1, 4, 8, 32])
        sampling = Sampling(count, dice.choice([None, None, 1, 5]))
        try:
            span = index.span(path, start, end)
        except VideoError:
            assert start is not None or end is not None
            continue
        picked = sampling.pick(index.times[span.start : span.stop]) + span.start
        frames = decode_frames(path, picked, index=index)
        assert frames.indices.tolist() == sorted({*picked.tolist()})
        assert numbers(frames.rgb, film["rotation"]) == frames.indices.tolist()
        assert (frames.rgb == oracle[frames.indices]).all()
    return index.why_slow is None


@pytest.mark.faults
def test_300_films_at_random_give_their_frames(tmp_path):
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    count = 0
    for turn in range(300):
        film = any_film(dice)
        path = tmp_path / film.pop("name")
        sys.stdout.write(f"seed {seed}, film {turn}, {path.name}: {film}\n")
        write_clip(path, "S", **film)
        count += is_right(path, dice, film)
    assert 10 < count < 290
