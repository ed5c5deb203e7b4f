"""Broken and truncated films: one clear line each, and never a wrong frame."""

import contextlib
import struct

import av
import numpy as np
import pytest

from obygaze_features.errors import VideoError
from obygaze_features.video.index import index_file
from tests.kit.decoding import decode_frames
from tests.kit.films import copy_packets, everything, numbers, write


def test_an_interrupted_download_is_cut_short(tmp_path):
    """Its pictures come last. Of the same file, FFmpeg says it only once."""
    film = write(tmp_path / "x264.mp4", seconds=2)
    damaged = "half.mkv is damaged"
    for fact in ("half.mp4 is cut short .* of 48", damaged, damaged):
        path = tmp_path / fact[:8]
        copy_packets([film], path, options={"movflags": "faststart"})
        path.write_bytes(path.read_bytes()[: film.stat().st_size * 2 // 3])
        with pytest.raises(VideoError, match=fact):
            index_file(path)


def test_frames_without_durations_get_times_from_the_rate(tmp_path):
    path = write(tmp_path / "x264.mp4", b_frames=0)
    data = bytearray(path.read_bytes())
    offset = data.index(b"stts") + 20
    assert data[offset - 8 : offset] == struct.pack(">2I", 72, 512)
    data[offset - 4 : offset] = bytes(4)
    path.write_bytes(data)
    index = index_file(path)
    assert (np.diff(index.times) > 0).sum() == 71
    assert numbers(decode_frames(path, [5, 40], index=index).rgb) == [5, 40]


@pytest.mark.parametrize("name", ["mpeg2.mkv", "x264.ts"])
def test_a_picture_size_that_changes_midway_is_named(tmp_path, name):
    (tmp_path / "small").mkdir()
    large = write(tmp_path / name, seconds=1)
    small = write(tmp_path / "small" / name, seconds=1, width=128, height=96)
    path = tmp_path / f"joined{large.suffix}"
    copy_packets([large, small], path)
    with pytest.raises(VideoError, match=r"changes size at frame 30: 128x96"):
        decode_frames(path, [3, 30])
    assert numbers(decode_frames(path, [3, 20]).rgb) == [3, 20]


DAMAGED = ["x264.mkv", "x264.avi", "x264.mp4", "mpeg4.avi", "mpeg2.mkv", "vp9.webm"]


@pytest.mark.parametrize("name", DAMAGED)
def test_garbage_in_the_middle_costs_the_frames_that_need_it(tmp_path, name):
    """Keyframes are at 0, 12, 24 ...; the packets 26 to 32 are gone. Whichever frames are wanted,
    the first one that cannot be decoded alone is named."""
    path = write(tmp_path / name)
    oracle = everything(path)
    with av.open(path) as container:
        places = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    chance = np.random.default_rng(0)
    for offset, size in places[26:33]:  # all but their first few bytes
        data[offset + 4 : offset + size] = chance.bytes(size - 4)
    path.write_bytes(data)
    index = index_file(path)
    decoded = set()
    for number in range(72):
        with contextlib.suppress(VideoError):
            rgb = decode_frames(path, [number], index=index).rgb
            assert name == "vp9.webm" or (rgb == oracle[number]).all()
            decoded.add(number)
    assert set(range(24)) <= decoded
    if name not in ("vp9.webm", "x264.avi", "mpeg4.avi"):
        gone = (index.positions >= 26) & (index.positions <= 32)
        assert not set(np.flatnonzero(gone)) & decoded
        assert set(range(36, 72)) <= decoded
    number = next(number for number in range(72) if number not in decoded)
    message = rf"decoded at frame {number} \({number / 24:.3f} s\); it is damaged"
    for frames in ([0, 13, 30, 34, 71], range(72)):
        with pytest.raises(VideoError, match=message):
            decode_frames(path, list(frames), index=index)
    if name.endswith(".avi"):
        assert max(decoded) < number


def test_a_packet_without_a_frame_shifts_no_numbers(tmp_path):
    """The decoder skips it without a word, and AVI has no times to notice it."""
    path = write(tmp_path / "mpeg4.avi")
    with av.open(path) as container:
        places = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    offset, size = places[26]
    data[offset + 4 : offset + size] = bytes(size - 4)
    path.write_bytes(data)
    with pytest.raises(VideoError, match="some packets decode to no frame"):
        decode_frames(path, [0, 40])


KEEP_TIMES = {"avoid_negative_ts": "disabled"}


@pytest.mark.parametrize("name", ["x264.mp4", "mpeg4.mp4"])
def test_a_film_may_begin_between_keyframes(tmp_path, name):
    """An edit list hides frames that must be decoded first."""
    path = tmp_path / "cut.mp4"
    copy_packets([write(tmp_path / name)], path, key=1, zero=18, options=KEEP_TIMES)
    index = index_file(path)
    assert index.why_slow == "an edit list hides part of it"
    frames = decode_frames(path, range(len(index)), index=index)
    assert (frames.rgb == everything(path)).all()
    assert numbers(frames.rgb) == list(range(18, 72))
    np.testing.assert_allclose(frames.times, np.arange(54) / 24, atol=0.001)


@pytest.mark.parametrize(("name", "cut_name"), [("open.mp4", "cut.mkv"), ("mpeg4.mp4", "cut.avi")])
def test_frames_of_a_cut_off_part_are_not_counted(tmp_path, name, cut_name):
    path = tmp_path / cut_name
    film = write(tmp_path / name, gop=8)
    copy_packets([film], path, key=2, zero=8, options=KEEP_TIMES)
    oracle = everything(path)
    index = index_file(path)
    requested = np.arange(0, len(oracle), 5)
    frames = decode_frames(path, requested, index=index)
    assert (frames.rgb == oracle[requested]).all()
    assert len(index) == len(oracle)
    assert index.why_slow is not None
