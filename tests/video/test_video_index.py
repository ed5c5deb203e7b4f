"""The index of a film: spans of it, its fingerprint, and what is noted about it."""

import hashlib
from types import SimpleNamespace

import pytest

from obygaze_features.backbones.sampling import Sampling, uniform_indices
from obygaze_features.errors import VideoError
from obygaze_features.video import worker
from obygaze_features.video.decode import decode_frames
from obygaze_features.video.index import fingerprint, index_file
from obygaze_features.video.worker import examine
from tests.kit.films import numbers, write

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


def test_a_span_is_examined_and_damage_named(tmp_path):
    path = write(tmp_path / "upright.mp4", seconds=15)
    film = SimpleNamespace(**examine(path, index_file(path), start=1, end=14, samplings=BOTH))
    assert (film.width, film.height, film.rotation) == (120, 160, 90)
    assert (film.frames, film.seconds, film.problems) == (13 * 24, pytest.approx(13), [])
    rounded = examine(path, index_file(path), start=1, end=15.9, samplings=BOTH)
    assert rounded["problems"] == ["ends early"]
    for span, reason in (
        ({"start": 40.0}, "there is no frame from 40 s"),
        ({"end": 99.0}, r"\(0 s to 99 s\) is after the film's end: the film is 15.000 s long"),
    ):
        with pytest.raises(VideoError, match=reason):
            examine(path, index_file(path), **span, samplings=BOTH)


@pytest.mark.parametrize(
    ("name", "seconds", "problems"),
    [
        ("x264.mp4", 1, ["short"]),
        ("x264.mp4", 5, ["short"]),  # five seconds are five frames of twelve
        ("mpeg4.avi", 12, ["decoded in order"]),
        ("variable.mkv", 12, ["variable frame rate"]),
    ],
)
def test_what_is_unusual_about_a_film_has_a_name(tmp_path, name, seconds, problems):
    path = write(tmp_path / name, seconds=seconds)
    film = SimpleNamespace(**examine(path, index_file(path), samplings=BOTH))
    assert (film.problems, bool(film.why_slow)) == (problems, "decoded in order" in problems)


def test_spans_of_a_film_share_its_index(tmp_path, monkeypatch):
    path, indexed = write(tmp_path / "x264.mp4"), []
    monkeypatch.setattr(
        worker, "index_file", lambda path, **rest: indexed.append(path) or index_file(path, **rest)
    )
    request = {"task": "examine", "path": str(path), "samplings": [{"frames": 2}]}
    for start in (0, 1, 2):
        answer = worker._answer({**request, "start": start, "end": start + 1}, None, print)
        assert answer["examination"]["frames"] == 24
    assert indexed == [path]
