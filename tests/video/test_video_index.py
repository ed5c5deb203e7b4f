"""The index of a film: spans of it, its cache, its fingerprint, and what is noted about it."""

from __future__ import annotations

import hashlib
import os
from types import SimpleNamespace

import numpy as np
import pytest

from obygaze_features.backbones.sampling import Sampling, uniform_indices
from obygaze_features.errors import VideoError
from obygaze_features.video import worker
from obygaze_features.video.decode import decode_frames
from obygaze_features.video.index import fingerprint, index_file
from obygaze_features.video.worker import examine
from tests.kit.films import everything, numbers, write

SPANS = [(None, None), (0, 1), (1, 2), (0.51, 2.04), (1.5, 4.2), (1.5, None)]
BOTH = (Sampling(32), Sampling(12, rate=1))


@pytest.mark.parametrize("name", ["x264.mp4", "variable.mkv", "x265-open.mp4", "mpeg4.avi"])
def test_a_span_has_the_frames_that_are_shown_in_it(tmp_path, name):
    path = write(tmp_path / name)
    index = index_file(path)
    for start, end in SPANS:
        inside = [
            number
            for number, time in enumerate(index.times)
            if (start is None or time >= start - 1e-6) and (end is None or time < end - 1e-6)
        ]
        span = index.span(path, start, end)
        assert list(span) == inside
        requested = span.start + uniform_indices(len(span), 5)
        frames = decode_frames(path, requested, index=index).take(requested)
        assert numbers(frames.rgb) == requested.tolist()
    with pytest.raises(VideoError, match=rf"{name}: there is no frame from 7 s to 9 s; "):
        index.span(path, 7, 9)


class Ticks:
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self) -> None:
        self.seen += 1


def test_an_index_is_cached_while_the_file_stays_as_it_is(tmp_path):
    path, cache = write(tmp_path / "x264.mkv"), tmp_path / "cache"
    first = index_file(path, cache=cache)
    ticks = Ticks()
    again = index_file(path, cache=cache, tick=ticks)
    assert ticks.seen == 0
    for name in vars(first):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert (decode_frames(path, [50], index=again).rgb[0] == everything(path)[50]).all()
    write(path, seconds=2)
    assert len(index_file(path, cache=cache)) == 48
    os.utime(path, ns=(0, 0))
    assert len(index_file(path, cache=cache, tick=ticks)) == 48
    assert ticks.seen == 48
    (cached,) = cache.iterdir()

    intact = cached.read_bytes()
    half = len(intact) // 2
    flipped = intact[:half] + bytes([intact[half] ^ 255]) + intact[half + 1 :]
    for damaged in (intact[:half], flipped, b"", b"PK" + intact):
        cached.write_bytes(damaged)
        ticks = Ticks()
        assert len(index_file(path, cache=cache, tick=ticks)) == ticks.seen == 48
        assert cached.read_bytes() == intact
    (tmp_path / "file").touch()  # a cache that cannot be written
    for cache in (tmp_path / "file", tmp_path / "file" / "folder"):
        assert len(index_file(path, cache=cache)) == 48
    with pytest.raises(VideoError, match=r"nothing\.mp4 is not a file"):
        index_file(tmp_path / "nothing.mp4", cache=tmp_path)


def test_a_film_that_changed_after_it_was_indexed_is_an_error(tmp_path):
    path = write(tmp_path / "x264.mp4")
    index = index_file(path)
    write(path, rate=30)
    with pytest.raises(VideoError, match=r"x264.mp4 is not what its index says"):
        decode_frames(path, [5, 60], index=index)


def test_a_fingerprint_tells_films_apart(tmp_path):
    path = write(tmp_path / "x264.mp4")
    first = fingerprint(path, index_file(path))
    head = hashlib.sha256(path.read_bytes()[: 1 << 20]).hexdigest()
    size = path.stat().st_size
    assert first == f"bytes={size} seconds=3.000 frames=72 head={head}"
    assert fingerprint(path) == f"bytes={size} head={head}"
    write(path, gop=11)
    assert fingerprint(path, index_file(path)) != first
    long = tmp_path / "long"
    long.write_bytes(bytes(1 << 20) + b"more")
    head = hashlib.sha256(bytes(1 << 20)).hexdigest()
    assert fingerprint(long).endswith(f" head={head}")


def test_an_ordinary_clip_is_examined(tmp_path):
    path = write(tmp_path / "x264.mp4", seconds=15)
    film = SimpleNamespace(**examine(path, index_file(path), samplings=BOTH))
    assert (film.codec, film.container) == ("h264", "mov,mp4,m4a,3gp,3g2,mj2")
    assert (film.width, film.height, film.rotation) == (160, 120, 0)
    assert (film.frames, film.seconds) == (360, pytest.approx(15))
    assert film.fps == pytest.approx(24)
    assert film.decode_seconds > 0
    assert (film.variable_rate, film.why_slow, film.problems) == (False, None, [])
    film = SimpleNamespace(**examine(path, index_file(path), start=1, end=14, samplings=BOTH))
    assert (film.frames, film.seconds) == (13 * 24, pytest.approx(13))
    with pytest.raises(VideoError, match=rf"{path}: there is no frame from 40 s"):
        examine(path, index_file(path), start=40, samplings=BOTH)


@pytest.mark.parametrize(
    ("name", "seconds", "problems"),
    [
        ("x264.mp4", 1, ("short",)),
        ("x264.mp4", 5, ("short",)),  # five seconds are five frames of twelve
        ("mpeg4.avi", 12, ("decoded in order",)),
        ("variable.mkv", 12, ("variable frame rate",)),
        ("x264.ts", 1 / 24, ("short", "decoded in order")),
    ],
)
def test_what_is_unusual_about_a_film_has_a_name(tmp_path, name, seconds, problems):
    path = write(tmp_path / name, seconds=seconds)
    film = SimpleNamespace(**examine(path, index_file(path), samplings=BOTH))
    assert tuple(film.problems) == problems
    assert film.variable_rate == ("variable frame rate" in problems)
    assert bool(film.why_slow) == ("decoded in order" in problems)


def test_a_turned_or_damaged_film_is_examined(tmp_path):
    path = write(tmp_path / "upright.mp4")
    film = SimpleNamespace(**examine(path, index_file(path), samplings=BOTH))
    assert (film.width, film.height, film.rotation) == (120, 160, 90)
    path = write(tmp_path / "mpeg4.mp4")
    data = bytearray(path.read_bytes())
    offset = data.index(b"mdat") + 4000
    data[offset : offset + 3000] = bytes(3000)
    path.write_bytes(data)
    with pytest.raises(VideoError, match=rf"{path} cannot be decoded at frame"):
        examine(path, index_file(path), samplings=BOTH)


def test_spans_of_a_film_share_its_index(tmp_path, monkeypatch):
    """Also where no cache can be written."""
    path, indexed = write(tmp_path / "x264.mp4"), []
    monkeypatch.setattr(
        worker, "index_file", lambda path, **rest: indexed.append(path) or index_file(path, **rest)
    )
    request = {"task": "examine", "path": str(path), "cache": None, "samplings": [{"frames": 2}]}
    for start in (0, 1, 2):
        answer = worker._answer({**request, "start": start, "end": start + 1}, None, print)
        assert answer["examination"]["frames"] == 24
    assert indexed == [path]
