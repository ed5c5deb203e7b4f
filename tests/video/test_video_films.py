"""Every kind of film: the number drawn into a picture, and plain decoding in order, are right."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from obygaze_features.backbones.sampling import uniform_indices
from obygaze_features.video.decode import decode_frames
from obygaze_features.video.index import index_file
from tests.video.films import KINDS, everything, numbers, upright, write

ROTATION = {name: kind.get("rotation", 0) for name, kind in KINDS.items()}
IN_ORDER = {name for name in KINDS if name.endswith((".avi", ".ts", ".flv", ".mpg"))}


@pytest.fixture(scope="module", params=sorted(KINDS))
def film(request, tmp_path_factory) -> tuple[Path, np.ndarray]:
    path = write(tmp_path_factory.mktemp("films") / request.param)
    return path, upright(everything(path), ROTATION[request.param])


def test_every_frame_is_the_one_of_its_number(film):
    path, oracle = film
    index = index_file(path)
    assert len(index) == 72
    frames = decode_frames(path, range(72), index=index)
    assert numbers(frames.rgb, ROTATION[path.name]) == frames.indices.tolist() == list(range(72))
    assert (frames.rgb == oracle).all()


@pytest.mark.parametrize("count", [1, 3, 8, 32, 100])
def test_sampled_frames_are_the_ones_asked_for_to_the_pixel(film, count):
    path, oracle = film
    requested = uniform_indices(72, count)
    frames = decode_frames(path, requested).take(requested)
    assert frames.indices.tolist() == requested.tolist()
    assert numbers(frames.rgb, ROTATION[path.name]) == requested.tolist()
    assert (frames.rgb == oracle[requested]).all()


def test_each_frame_can_be_decoded_by_itself(film):
    path, oracle = film
    index = index_file(path)
    for number in range(0, 72, 7):
        assert (decode_frames(path, [number], index=index).rgb == oracle[number]).all()


def test_only_files_whose_packets_tell_are_decoded_in_pieces(film):
    path, _ = film
    assert (index_file(path).why_slow is not None) == (path.name in IN_ORDER)


def test_times_are_those_of_the_frames(film):
    path, _ = film
    index = index_file(path)
    ticks = np.cumsum([0, *(1 + np.arange(71) % 3)]) if "variable" in path.name else np.arange(72)
    begin = index.times[0]
    assert begin == pytest.approx(0, abs=0.001)
    np.testing.assert_allclose(index.times, ticks / 24, atol=0.0011)
    assert index.seconds == pytest.approx(index.times[-1] + 1 / 24, abs=0.09)
    assert (decode_frames(path, [0, 35, 71], index=index).times == index.times[[0, 35, 71]]).all()


def test_pieces_are_left_out(tmp_path):
    """A film of which only a part is read needs not be whole elsewhere."""
    path = write(tmp_path / "x264.mp4", seconds=30)
    index = index_file(path)
    seen = 0

    def tick() -> None:
        nonlocal seen
        seen += 1

    decode_frames(path, [700], index=index, tick=tick)
    assert seen <= 12


def test_frames_that_are_never_shown_have_no_number(tmp_path):
    """VP8 hides frames that others refer to: here number 10, by the bit that says so."""
    path = write(tmp_path / "vp8.webm")
    with av.open(path) as container:
        packets = [(packet.pos, bytes(packet)) for packet in container.demux(video=0)]
    data = bytearray(path.read_bytes())
    offset = data.index(packets[10][1], packets[10][0])
    data[offset] &= ~0x10
    path.write_bytes(data)
    index = index_file(path)
    assert len(index) == 71
    assert numbers(decode_frames(path, [0, 9, 10, 70], index=index).rgb) == [0, 9, 11, 71]
    assert index.times[10] == pytest.approx(11 / 24, abs=0.001)


@pytest.mark.parametrize("name", ["x264.mp4", "mpeg4.avi", "vp9.webm", "x265-open.mp4"])
def test_a_film_of_one_frame(tmp_path, name):
    path = write(tmp_path / name, seconds=1 / 24)
    requested = uniform_indices(len(index_file(path)), 8)
    assert requested.tolist() == [0] * 8
    assert numbers(decode_frames(path, requested).take(requested).rgb) == [0] * 8


@pytest.mark.parametrize("name", ["x264.mp4", "x264.avi"])
def test_frames_go_into_the_allocated_array(tmp_path, name):
    path = write(tmp_path / name)
    asked = []

    def allocate(shape):
        asked.append(np.zeros(shape, np.uint8))
        return asked[-1]

    frames = decode_frames(path, [3, 50], allocate=allocate)
    assert len(asked) == 1
    assert frames.rgb is asked[0]
    assert numbers(asked[0]) == [3, 50]
