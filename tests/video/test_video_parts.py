"""Clips whose frames exceed one answer of a decoder."""

import tempfile
import time
from functools import partial
from itertools import pairwise

import av
import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.backbones.resample import resample
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.extraction.decoder import Decoder, Decoders
from obygaze_features.extraction.reader import ItemReader
from obygaze_features.manifests import Item
from obygaze_features.video.decode import decode_frames
from obygaze_features.video.index import index_file
from obygaze_features.video.worker import PART_BYTES, Memory, Worker
from tests.kit.films import everything, numbers, write


@pytest.fixture
def decoder():
    """A worker, its memory, and a list with one entry per packet."""
    with tempfile.TemporaryFile() as file:
        memory, packets = Memory(file.fileno()), []
        yield Worker(memory, lambda: packets.append(1)), memory, packets


def ask_parts(worker, memory, path, count, **more):
    """Return all parts of a film's first frames, each with its frames."""
    request = {"task": "decode", "path": str(path), "start": None, "end": None}
    request |= {"samplings": [{"frames": count}], **more}
    done, left = more.get("skip", 0), 1
    while left:
        answer = worker.answer({**request, "skip": done})
        assert "error" not in answer, answer
        done, left = done + answer["shape"][0], answer["left"]
        yield answer, memory.array(tuple(answer["shape"])).copy()


@pytest.mark.parametrize(("name", "left"), [
    *((name, [172, 44, 0]) for name in ("open.avi", "mpeg4.avi", "mjpeg.avi", "x264.ts")),
    ("x264.mp4", [180, 60, 0]),  # a part ends before a keyframe, which is every twelfth frame
])  # fmt: skip
def test_parts_equal_the_frames_and_slow_films_decode_once(tmp_path, decoder, name, left):
    worker, memory, packets = decoder
    path = write(tmp_path / name, seconds=12.5)
    index = index_file(path)
    parts = list(ask_parts(worker, memory, path, len(index)))
    assert [answer["left"] for answer, _ in parts] == left
    sizes = [before - after for before, after in pairwise([300, *left])]
    assert parts[0][0]["skips"] == [sizes[0], sizes[0] + sizes[1]]
    frames = np.concatenate([frames for _, frames in parts])
    assert (frames == everything(path)).all()
    rows = np.concatenate([answer["rows"][0] for answer, _ in parts])
    assert rows.tolist() == [row for size in sizes for row in range(size)]
    # Indexing and decoding, each with its passes over the film's packets.
    packets.clear()
    index_file(path, tick=lambda: packets.append(1))
    decode_frames(path, range(300), index=index, tick=lambda: packets.append(1))
    once = len(packets)
    packets.clear()
    list(ask_parts(*decoder[:2], path, len(index)))  # its index is kept
    assert len(packets) <= once


def test_another_clip_in_between_and_a_new_process_get_the_same_frames(tmp_path, decoder):
    worker, memory, _ = decoder
    path, second = write(tmp_path / "mpeg4.avi", seconds=7), write(tmp_path / "x264.avi")
    parts = ask_parts(worker, memory, path, 168)
    first, _ = next(parts)
    next(ask_parts(worker, memory, second, 8))
    _, rest = next(parts)
    assert (first["left"], numbers(rest)) == (40, [*range(128, 168)])
    ((_, again),) = ask_parts(worker, memory, path, 168, skip=150)
    assert numbers(again) == [*range(150, 168)]


def test_parts_are_bounded_in_bytes(tmp_path, decoder):
    """A part of 4K pictures has ten frames."""
    worker, memory, _ = decoder
    path = tmp_path / "grey.mp4"
    picture = np.full((2160 * 3 // 2, 3840), 128, np.uint8)
    with av.open(path, "w") as container:
        stream = container.add_stream("mpeg4", rate=24, width=3840, height=2160)
        for time in range(12):
            frame = av.VideoFrame.from_ndarray(picture, "yuv420p")
            frame.pts = time
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    parts = [(answer, frames.nbytes) for answer, frames in ask_parts(worker, memory, path, 12)]
    assert [answer["shape"][0] for answer, _ in parts] == [10, 2]
    assert max(size for _, size in parts) <= PART_BYTES


@pytest.mark.parametrize("name", [
    "x264.mp4",
    *(pytest.param(name, marks=pytest.mark.gate)
      for name in ("open.mkv", "x265-open.mp4", "vp9.webm", "open.avi")),
])  # fmt: skip
def test_a_long_film_is_decoded_by_all_processes_to_the_same_frames(tmp_path, checkpoints, name):
    """An AVI is decoded by one process, from its start."""
    write(tmp_path / name, seconds=24)
    item, used = Item("film", media=name), []
    clip = of.load_backbone(f"tiny={checkpoints['tiny-clip']}", "cpu")
    seeing = resample(clip, Sampling(1600, 60))
    for workers in (1, 3):
        reader = ItemReader(tmp_path, [seeing])
        with Decoders(workers, stall_timeout=60) as decoders:
            read = partial(reader.read, names=[seeing.name])
            [(_, result)] = decoders.map(read, [item], ahead=0)
            used.append(sum(decoder._process is not None for decoder in decoders._decoders))
        parts = result.inputs[seeing.name]
        assert len(parts) > 3
        seen = torch.cat(parts), result.source, result.sampled[seeing.name]["frame_time"]
        if workers == 1:
            alone = seen
    assert torch.equal(seen[0], alone[0])
    assert seen[1] == alone[1]
    np.testing.assert_array_equal(seen[2], alone[2])
    assert used == [1, 1 if name == "open.avi" else 3]
    expected = resize_and_crop(torch.from_numpy(everything(tmp_path / name)), seeing.preprocessing)
    assert torch.equal(seen[0], expected)


def test_the_first_of_several_failing_parts_is_named():
    with Decoders(3, stall_timeout=60) as decoders:
        first, *_ = decoders._decoders
        assert first.share(lambda decoder, task: task + 1, range(9)) == [*range(1, 10)]
        with pytest.raises(ZeroDivisionError, match="at 2"):
            first.share(fail_from_2, range(9))


def fail_from_2(decoder: Decoder, task: int) -> int:
    time.sleep(0.05 * (task == 2))
    if task >= 2:
        raise ZeroDivisionError(f"at {task}")
    return task
