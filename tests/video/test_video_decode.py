"""Frames by number. Each synthetic frame carries its number: the picture itself is the oracle."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import VideoError
from obygaze_features.video.decode import count_frames, decode_frames
from obygaze_features.video.sampling import uniform_indices
from obygaze_features.video.synthetic import (
    read_frame_number,
    write_clip,
    write_synthetic_dataset,
)


@pytest.fixture(scope="module", params=["mp4", "mkv", "avi"])
def clip(request, tmp_path_factory) -> Path:
    """72 frames with B-frames; AVI has no presentation times for them."""
    path = tmp_path_factory.mktemp("clips") / f"clip.{request.param}"
    write_clip(path, "S", seconds=3)
    return path


def numbers(rgb: np.ndarray) -> list[int]:
    return [read_frame_number(picture) for picture in rgb]


def test_every_frame_is_the_one_of_its_number(clip):
    assert count_frames(clip) == 72
    frames = decode_frames(clip, range(72))
    assert numbers(frames.rgb) == frames.indices.tolist() == list(range(72))
    assert frames.rgb.shape == (72, 120, 160, 3)


@pytest.mark.parametrize("count", [1, 8, 32, 100])
def test_sampled_frames_are_the_ones_asked_for(clip, count):
    wanted = uniform_indices(72, count)
    frames = decode_frames(clip, wanted).take(wanted)
    assert numbers(frames.rgb) == frames.indices.tolist() == wanted.tolist()


def test_times_are_those_of_the_frames(clip):
    frames = decode_frames(clip, [0, 1, 2, 35, 71])
    np.testing.assert_allclose(frames.times, frames.indices / 24, atol=0.001)


@pytest.mark.parametrize(("n", "count"), [(1, 8), (5, 8), (8, 8), (3000, 32), (7, 3)])
def test_sampling_follows_the_papers_rule(n, count):
    assert uniform_indices(n, count).tolist() == [int(i * n / count) for i in range(count)]


def a_sound(path: Path) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(16000))


def cut_short(path: Path) -> None:
    write_clip(path, "EN")
    path.write_bytes(path.read_bytes()[:3000])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "is not a file"),
        (lambda path: path.touch(), "is empty"),
        (lambda path: path.write_bytes(b"not a film " * 100), "cannot be decoded: Invalid data"),
        (a_sound, "has no video, only audio"),
        (cut_short, "cannot be decoded"),
    ],
    ids=["missing", "empty", "garbage", "audio", "cut short"],
)
def test_a_file_that_is_no_clip_is_named_with_the_reason(tmp_path, make, reason):
    path = tmp_path / "clip.mp4"
    make(path)
    with pytest.raises(VideoError, match=f"clip.mp4 {reason}"):
        count_frames(path)


def test_frames_beyond_the_end_are_refused(clip):
    with pytest.raises(VideoError, match="cannot be decoded up to frame 72"):
        decode_frames(clip, [0, 72])


def test_the_same_seed_gives_the_same_clip(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_clip(tmp_path / f"{name}.mp4", "HN", seed=seed, seconds=0.5)
    a, b, c = ((tmp_path / f"{name}.mp4").read_bytes() for name in "abc")
    assert a == b != c


def test_the_levels_look_different(tmp_path):
    redness = {}
    for level in ("EN", "HN", "S"):
        write_clip(tmp_path / "clip.mp4", level, seconds=0.5)
        red, _, blue = decode_frames(tmp_path / "clip.mp4", [5]).rgb.mean((0, 1, 2))
        redness[level] = red - blue
    assert redness["EN"] < redness["HN"] < redness["S"]


def test_a_synthetic_data_set_has_clips_and_annotations(tmp_path):
    annotations = write_synthetic_dataset(tmp_path / "data", seconds=0.2)
    header, *lines = annotations.read_text().splitlines()
    assert header == "id,film,media,level,concepts,synthetic"
    rows = [line.split(",") for line in lines]
    assert [row[3] for row in rows] == ["EN", "S", "HN", "S"] * 3
    for identifier, film, video, level, concepts, synthetic in rows:
        assert synthetic == "drawn by a program"
        assert identifier.startswith(f"{film}-")
        assert bool(concepts) == (level != "EN")
        assert count_frames(tmp_path / "data/videos" / film / video) == 5
