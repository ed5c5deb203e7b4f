"""What is said of a film before its features are extracted."""

from __future__ import annotations

import pytest

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.errors import VideoError
from obygaze_features.video import worker
from obygaze_features.video.examine import examine
from obygaze_features.video.index import index_file
from tests.video.films import write

BOTH = (Sampling(32), Sampling(12, rate=1))


def test_an_ordinary_clip(tmp_path):
    path = write(tmp_path / "x264.mp4", seconds=15)
    film = examine(path, index_file(path), samplings=BOTH)
    assert (film.codec, film.container) == ("h264", "mov,mp4,m4a,3gp,3g2,mj2")
    assert (film.width, film.height, film.rotation) == (160, 120, 0)
    assert (film.frames, film.seconds) == (360, pytest.approx(15))
    assert film.fps == pytest.approx(24)
    assert film.decode_seconds > 0
    assert (film.variable_rate, film.why_slow, film.problems) == (False, None, ())


@pytest.mark.parametrize(
    ("name", "seconds", "problems"),
    [
        ("x264.mp4", 1, ("short",)),
        ("x264.mp4", 5, ("short",)),  # five seconds are five frames of twelve
        ("mpeg4.avi", 15, ("decoded in order",)),
        ("x264.mkv", 15, ()),
        ("variable.mkv", 15, ("variable frame rate",)),
        ("x264.ts", 1 / 24, ("short", "decoded in order")),
    ],
)
def test_what_is_unusual_has_a_name(tmp_path, name, seconds, problems):
    path = write(tmp_path / name, seconds=seconds)
    film = examine(path, index_file(path), samplings=BOTH)
    assert film.problems == problems
    assert film.variable_rate == ("variable frame rate" in problems)
    assert bool(film.why_slow) == ("decoded in order" in problems)


def test_a_turned_clip_is_measured_upright(tmp_path):
    path = write(tmp_path / "upright.mp4")
    film = examine(path, index_file(path), samplings=BOTH)
    assert (film.width, film.height, film.rotation) == (120, 160, 90)


def test_a_span(tmp_path):
    path = write(tmp_path / "x264.mp4", seconds=20)
    film = examine(path, index_file(path), start=5, end=18, samplings=BOTH)
    assert (film.frames, film.seconds) == (13 * 24, pytest.approx(13))
    with pytest.raises(VideoError, match=rf"{path}: there is no frame from 40 s"):
        examine(path, index_file(path), start=40, samplings=BOTH)


def test_what_cannot_be_decoded_is_an_error(tmp_path):
    path = write(tmp_path / "mpeg4.mp4")
    data = bytearray(path.read_bytes())
    offset = data.index(b"mdat") + 4000
    data[offset : offset + 3000] = bytes(3000)
    path.write_bytes(data)
    with pytest.raises(VideoError, match=rf"{path} cannot be decoded at frame"):
        examine(path, index_file(path), samplings=BOTH)


def test_spans_of_a_film_share_its_index(tmp_path, monkeypatch):
    """Also where no cache can be written."""
    path, indexed = write(tmp_path / "x264.mp4", seconds=3), []
    monkeypatch.setattr(
        worker, "index_file", lambda path, **rest: indexed.append(path) or index_file(path, **rest)
    )
    request = {"task": "examine", "path": str(path), "cache": None, "samplings": [{"frames": 2}]}
    for start in (0, 1, 2):
        answer = worker._answer({**request, "start": start, "end": start + 1}, None, print)
        assert answer["examination"]["frames"] == 24
    assert indexed == [path]
