"""The index of a film: spans of it, what is kept of it, and what it is known by."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest

from obygaze_features.backbones.sampling import uniform_indices
from obygaze_features.errors import VideoError
from obygaze_features.video.decode import decode_frames
from obygaze_features.video.index import fingerprint, index_file
from tests.video.films import KINDS, everything, numbers, write


@pytest.mark.parametrize(
    "span", [(None, None), (0, 1), (1, 2), (0.51, 2.04), (1.5, 4.2), (1.5, None)]
)
@pytest.mark.parametrize("name", ["x264.mp4", "variable.mkv", "x265-open.mp4", "mpeg4.avi"])
def test_a_span_has_the_frames_that_are_shown_in_it(tmp_path, name, span):
    path = write(tmp_path / name)
    index = index_file(path)
    start, end = span
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


def test_a_span_without_frames_is_an_error(tmp_path):
    path = write(tmp_path / "x264.mp4")
    index = index_file(path)
    with pytest.raises(
        VideoError, match=r"x264\.mp4: there is no frame from 7 s to 9 s; the film is 3"
    ):
        index.span(path, 7, 9)


class Ticks:
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self) -> None:
        self.seen += 1


def test_an_index_is_kept_for_as_long_as_the_file_stays_as_it_is(tmp_path):
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
    assert len(list(cache.iterdir())) == 1


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]


@pytest.mark.parametrize("damage", [halved, flipped, lambda data: b"", lambda data: b"PK" + data])
def test_a_damaged_kept_index_is_made_anew(tmp_path, damage):
    path, cache = write(tmp_path / "x264.mkv"), tmp_path / "cache"
    index_file(path, cache=cache)
    (cached,) = cache.iterdir()
    intact = cached.read_bytes()
    cached.write_bytes(damage(intact))
    ticks = Ticks()
    assert len(index_file(path, cache=cache, tick=ticks)) == 72
    assert ticks.seen == 72
    assert cached.read_bytes() == intact


def test_a_cache_that_cannot_be_written_is_gone_without(tmp_path):
    path = write(tmp_path / "x264.mkv")
    (tmp_path / "file").touch()
    assert len(index_file(path, cache=tmp_path / "file")) == 72
    assert len(index_file(path, cache=tmp_path / "file" / "folder")) == 72


def test_a_missing_film_is_named_with_a_cache_too(tmp_path):
    with pytest.raises(VideoError, match=r"nothing\.mp4 is not a file"):
        index_file(tmp_path / "nothing.mp4", cache=tmp_path)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_packet_is_a_sign_of_life(tmp_path, name):
    path, ticks = write(tmp_path / name, seconds=0.5), Ticks()
    index_file(path, tick=ticks)
    assert ticks.seen >= 12


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
