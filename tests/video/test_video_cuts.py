"""Films cut from others without encoding them anew, as editing programs do."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from obygaze_features.video.decode import decode_frames
from obygaze_features.video.index import index_file
from tests.video.films import everything, numbers, write


def cut(film: Path, path: Path, key: int, zero: int) -> None:
    """The packets from the n-th keyframe on; the clock says 0 at a frame's time."""
    options = {"avoid_negative_ts": "disabled"}
    with av.open(film) as source, av.open(path, "w", options=options) as target:
        stream = source.streams.video[0]
        copy = target.add_stream_from_template(stream)
        keys, shift = -1, round(zero / 24 / stream.time_base)
        for packet in source.demux(stream):
            keys += packet.is_keyframe
            if packet.dts is not None and keys >= key:
                packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
                packet.stream = copy
                target.mux(packet)


@pytest.mark.parametrize("name", ["x264.mp4", "mpeg4.mp4"])
def test_a_film_that_begins_between_keyframes(tmp_path, name):
    """An edit list hides what has to be decoded first."""
    path = tmp_path / "cut.mp4"
    cut(write(tmp_path / name), path, 1, 18)
    index = index_file(path)
    assert index.why_slow == "an edit list hides a part of it"
    frames = decode_frames(path, range(len(index)), index=index)
    assert (frames.rgb == everything(path)).all()
    assert numbers(frames.rgb) == list(range(18, 72))
    np.testing.assert_allclose(frames.times, (np.arange(18, 72) - 18) / 24, atol=0.001)


@pytest.mark.parametrize(
    ("name", "cut_name"),
    [
        ("open.mp4", "cut.mkv"),
        ("x265-open.mp4", "cut.mkv"),
        ("mpeg4.mp4", "cut.mkv"),
        ("mpeg4.mp4", "cut.avi"),
    ],
)
def test_a_film_that_begins_with_frames_of_a_cut_off_part(tmp_path, name, cut_name):
    """The decoder leaves them out, so that they are no frames."""
    path = tmp_path / cut_name
    cut(write(tmp_path / name, gop=8), path, 2, 8)
    oracle = everything(path)
    index = index_file(path)
    requested = np.arange(0, len(oracle), 5)
    frames = decode_frames(path, requested, index=index)
    assert (frames.rgb == oracle[requested]).all()
    assert len(index) == len(oracle)
    assert index.why_slow is not None
