"""Overlapping uploads, forward passes and downloads, on a GPU made of CPU tensors."""

import itertools
import json
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.backbones import Backbone, devices
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.backbones.resample import resample
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.extraction import uploads as uploading
from obygaze_features.extraction.forward import Embedder
from obygaze_features.extraction.reader import ItemReader
from obygaze_features.extraction.uploads import FrameResizer
from obygaze_features.manifests import Item, Items, Manifest
from tests.kit.films import rows, write_clip, write_sound
from tests.kit.floats import close
from tests.kit.gpu import GPU, Event, Gpu, install


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return install(Gpu(), monkeypatch)


@pytest.fixture(scope="module")
def three(tiny, checkpoints) -> list[Backbone]:
    """Two backbones with the same sampling, and one with different sampling."""
    third = of.load_backbone(checkpoints["tiny-xclip-lsmdc"], "cpu")
    return [tiny, replace(tiny, name="second"), third]


@pytest.fixture(scope="module")
def by_cpu(three, films, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("cpu")
    of.extract(rows(40), films, three, output, device="cpu", batch=8)
    return output


def are_equal(folder: Path, reference: Path) -> bool:
    paths = sorted(folder.glob("*.zarr"))
    return all(of.diff(of.open_store(path), reference / path.name).identical for path in paths)


@pytest.mark.parametrize(
    "order", ["late", *(pytest.param(seed, marks=pytest.mark.night) for seed in range(6))]
)
def test_each_clip_is_uploaded_once_with_the_same_bits(
    films, three, by_cpu, gpu, tmp_path, monkeypatch, order
):
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1.2\n")
    monkeypatch.setattr(devices, "DRIVER", tmp_path / "version")
    monkeypatch.setattr(uploading, "STAGING_BYTES", 2**17)  # two frames and a half
    monkeypatch.setattr(torch.backends.cuda, "mem_efficient_sdp_enabled", lambda: False)
    gpu.late, manifest = order == "late", rows(40)
    gpu.random.seed(order)
    summary = of.extract(manifest, films, [gpu.on(b) for b in three], tmp_path, workers=3)
    assert (summary.done, summary.failed, summary.resized_by_cpu) == (40, {}, 0)
    assert are_equal(by_cpu, tmp_path)
    first, second = (of.open_store(tmp_path / f"{name}.zarr") for name in ("tiny", "second"))
    assert of.diff(first, second).rows["frames"].equal == 40
    # Each frame is decoded and uploaded once for all backbones. Films have 5, 12, 19 ... frames.
    expected_rows = [[b.sampling.pick(np.arange(5 + 7 * n) / 24) for b in three] for n in range(6)]
    counts = [len(set(np.concatenate(numbers))) for numbers in expected_rows]
    assert summary.frames == sum(counts[row % 6] for row in range(40))
    third = of.open_store(tmp_path / "tiny-xclip-lsmdc.zarr")["clip-05"]
    assert third["frame_index"][: len(expected_rows[5][2])].tolist() == expected_rows[5][2].tolist()
    # The store and its log name the GPU, but this does not count as a difference.
    device = of.open_store(tmp_path / "tiny.zarr").attributes["backbone"]["device"]
    assert device == json.loads((tmp_path / "log.jsonl").read_text())["devices"]["tiny"]
    assert device.startswith("cuda:0 (a model of a GPU, driver 570.1.2, CUDA ")
    assert device.endswith("attention by flash or math)")
    # The run's waiting times do not overlap.
    assert sum(summary.shares.values()) == close(1)
    aside = [entry[1:] for entry in gpu.log if entry[0] == "upload"]
    assert sum(shape[0] for _, shape in aside) == summary.frames * 120 * 160 * 3
    streams = {stream for stream, _ in aside}
    assert (len(streams) <= uploading.MAX_UPLOADS, gpu.compute in streams) == (True, False)
    assert {stream.most for stream in streams} == {1}
    pageable = [entry[1] for entry in gpu.log if entry[0] == "pageable upload"]
    assert pageable == [gpu.compute] * len(three)  # the probe of each store
    # Rows are converted before they are downloaded.
    downloads = {entry[1] for entry in gpu.log if entry[0] == "download" and entry[2][0] == 8}
    assert downloads == {torch.float32, torch.float16, torch.bool}
    # A batch waits only for its own clips.
    events = [entry[1] for entry in gpu.log if entry[0] == "uploaded"]
    assert len(set(events)) == len(manifest)
    waits: list[Event] = []
    for kind, *details in gpu.log:
        if kind == "wait":
            waits += details
        elif kind == "forward" and details[1] > 1:  # not the probe
            assert len(set(waits)) == details[1]
            waits.clear()
    assert not waits


@pytest.mark.gate
@pytest.mark.parametrize(
    "defect", ["early", "record_stream", "synchronize", "synchronize aside", "wait"]
)
def test_missing_waits_are_detected(films, three, by_cpu, gpu, tmp_path, monkeypatch, defect):
    """Defects: events that come early, memory freed early, and three missing waits."""
    monkeypatch.setattr(uploading, "STAGING_BYTES", 2**17)
    gpu.late, gpu.defect = True, defect
    of.extract(rows(40), films, [gpu.on(b) for b in three], tmp_path, workers=3)
    assert not are_equal(by_cpu, tmp_path)


@pytest.fixture(scope="module")
def in_parts(checkpoints, tmp_path_factory):
    """A backbone that sees 144 frames of six clips; a decoder returns 128 at a time.

    With a function that extracts them, and the store that a CPU fills.
    """
    folder = tmp_path_factory.mktemp("parts")
    write_clip(folder / "film.mp4", "S", seconds=8)
    spans = [Item(f"clip-{n:02}", media="film.mp4", start=n / 8, end=n / 8 + 6) for n in range(6)]
    manifest = Manifest("made-up", Items.of(spans))
    clip = of.load_backbone(f"tiny={checkpoints['tiny-clip']}", "cpu")
    backbone = resample(clip, Sampling(144, rate=24))
    extract = partial(of.extract, manifest, folder, workers=3, batch=3)
    assert extract(backbone, folder / "cpu", device="cpu").frames == 6 * 144
    return backbone, extract, folder / "cpu"


@pytest.mark.parametrize("late", [True, pytest.param(False, marks=pytest.mark.night)])
def test_clips_decoded_in_parts_give_the_same_bits(in_parts, gpu, tmp_path, late):
    backbone, extract, by_cpu = in_parts
    gpu.late = late
    extract(gpu.on(backbone), tmp_path)
    assert are_equal(by_cpu, tmp_path)


@pytest.mark.parametrize("short_of", ["a part", "a batch"])
def test_parts_of_a_clip_need_not_fit_together(in_parts, gpu, tmp_path, monkeypatch, short_of):
    """A part that does not fit stays on the CPU; such a batch is tried once more."""
    backbone, extract, by_cpu = in_parts
    shapes, refused, new = [], [], gpu.new

    def refuse(size: int) -> None:
        refused.append(size)
        raise torch.OutOfMemoryError("CUDA out of memory")

    def upload(frames: torch.Tensor) -> None:
        if gpu.stream is gpu.compute:
            return
        shapes.append(frames.shape[1:])
        is_resized = shapes[-1] != shapes[0]
        if is_resized or len(shapes) == 2:  # the second part, and that part once it is resized
            refuse(len(frames))

    def allocate(shape, dtype, strides=None):
        if len(shape) == 5 and shape[0] == 3 and not refused:
            refuse(shape[1])
        return new(shape, dtype, strides)

    if short_of == "a part":
        gpu.before_upload = upload
    else:
        monkeypatch.setattr(gpu, "new", allocate)
    summary = extract(gpu.on(backbone), tmp_path)
    assert refused
    assert (summary.done, summary.batches) == (6, {"tiny": 3})
    assert summary.resized_by_cpu == (short_of == "a part")
    assert are_equal(by_cpu, tmp_path)


def test_sound_is_uploaded_during_the_forward_pass(checkpoints, gpu, tmp_path):
    for number in range(4):
        noise = np.random.default_rng(number).normal(0, 0.1, 48_000 * (1 + number % 2))
        write_sound(tmp_path / f"clip{number}.wav", "pcm_s16le", noise)
    manifest = rows(4)
    clap = of.load_backbone(f"clap={checkpoints['tiny-clap']}", "cpu")
    extract = partial(of.extract, manifest, tmp_path, workers=2, batch=2)
    extract(clap, tmp_path / "cpu", device="cpu")
    gpu.late, masks = True, []
    on_gpu = gpu.on(clap)

    def embed(windows, present, names):
        masks.append(present.is_cuda)
        return on_gpu.encode_clips(windows, present, names)

    assert extract(replace(on_gpu, encode_clips=embed), tmp_path / "gpu").done == 4
    assert are_equal(tmp_path / "cpu", tmp_path / "gpu")
    uploads = [entry for entry in gpu.log if entry[0].endswith("upload")]
    kinds = [(kind, stream is gpu.compute) for kind, stream, _ in uploads]
    assert kinds == [("pageable upload", True), *[("upload", False)] * 4]  # first the probe
    assert masks == [False] * 3  # its counts are known without waiting for the GPU


def test_clips_read_ahead_take_a_share_of_free_memory(in_parts, gpu, tmp_path, monkeypatch):
    backbone, extract, by_cpu = in_parts
    clip = 144 * 3 * 32 * 32
    # This process may take half of the memory, and has reserved half of that.
    gpu.memory, gpu.share = 16 * 5 * clip // 2, 0.5
    waiting, peak, read = set(), [], ItemReader.read

    def read_and_note(reader, decoder, item, names):
        waiting.add(item.id)
        peak.append(len(waiting))
        return read(reader, decoder, item, names)

    monkeypatch.setattr(ItemReader, "read", read_and_note)
    add = Embedder.add

    def add_and_note(embedder, names, row, item, *, is_last):
        waiting.discard(f"clip-{row:02}")
        add(embedder, names, row, item, is_last=is_last)

    monkeypatch.setattr(Embedder, "add", add_and_note)
    summary = extract(gpu.on(backbone), tmp_path)
    assert are_equal(by_cpu, tmp_path)
    assert summary.read_ahead_bytes == 5 * clip // 2
    assert max(peak) <= 3  # two, and the one that is taken
    assert json.loads((tmp_path / "log.jsonl").read_text())["read_ahead_bytes"] == 5 * clip // 2


def test_the_next_batch_starts_before_the_last_is_awaited(films, tiny, gpu, tmp_path):
    summary = of.extract(rows(40), films, gpu.on(tiny), tmp_path)
    kinds = [entry[0] for entry in gpu.log if entry[0] in ("forward", "synchronize")]
    run = kinds[kinds.index("synchronize") + 1 :]  # after the probe
    assert "".join(kind[0] for kind in run) == "ffsfsfss" + "fs"  # a block of 32, and one of 8
    assert summary.batches == {"tiny": 8}


@pytest.mark.parametrize("size", [8, 1])
def test_a_large_batch_runs_without_uploads(films, tiny, gpu, tmp_path, size):
    """No other batch runs at the same time. The batch is not halved, and the run continues."""
    begun, uploading, refused = (threading.Event() for _ in range(3))
    on_gpu, numbers, users = gpu.on(tiny), itertools.count(1), []

    def upload(frames: torch.Tensor) -> None:
        if gpu.stream is gpu.compute or len(frames) < 6 * 120 * 160 * 3:
            return
        if next(numbers) == 1:  # of the third batch: it has all memory until the second found none
            assert begun.wait(100)
            uploading.set()
            assert refused.wait(100)
            time.sleep(0.1)
            gpu.full = False

    def compute(pixels, present, names):
        assert len(users) < 2 or uploading.wait(100)  # the probe, the first batch, the second
        users.append(sum(stream.users for stream in gpu.streams))
        gpu.full = gpu.full or len(users) == 3
        try:
            outputs = on_gpu.encode_clips(pixels, present, names)
        except torch.OutOfMemoryError:
            refused.set()
            raise
        if len(users) == 2:
            begun.set()
        return outputs

    gpu.before_upload = upload
    backbone = replace(on_gpu, encode_clips=compute)
    clips = (Item(f"clip-{row:02}", media=f"clip{5 * (row >= 2 * size)}.mp4") for row in range(24))
    manifest = Manifest("made-up", Items.of([*clips]))  # those of the third batch are longer
    summary = of.extract(manifest, films, backbone, tmp_path, workers=3, batch=size)
    assert (summary.done, summary.batches) == (24, {"tiny": size})
    assert len(users) == 1 + 24 // size + 1
    assert users[3] == 0  # while it was tried again
    steps = [entry[0] for entry in gpu.log if entry[0] in ("forward", "synchronize", "free")]
    # The probe; the first batch; the second, and the end of the first; the second again.
    assert "".join(step[1] for step in steps)[:7] == "oy" + "o" + "oyro"


FRAMES = torch.randint(0, 256, (5, 40, 60, 3), dtype=torch.uint8)


def test_shared_views_of_two_backbones_are_resized_once(tiny):
    preprocessing = tiny.preprocessing
    views = {
        "first": (preprocessing, [0, 2]),
        "scaled": (replace(preprocessing, mean=(0.0, 0.0, 0.0)), [0, 2]),
        "other rows": (preprocessing, [0, 3]),
        "sharper": (replace(preprocessing, filter="bicubic"), [0, 2]),
    }
    inputs, _, _ = FrameResizer("cpu")(FRAMES, views)
    assert len({id(pixels) for pixels in inputs.values()}) == 3
    for name, view in views.items():
        assert torch.equal(inputs[name], resize_and_crop(FRAMES, *view))


def test_a_clip_too_large_for_a_gpu_is_resized_by_the_cpu(tiny, gpu, monkeypatch):
    def small(pictures, preprocessing, rows):
        if not left:
            temporary = torch.zeros(3)
            left.extend([weakref.ref(temporary), weakref.ref(pictures)])
            raise torch.OutOfMemoryError("CUDA out of memory")
        assert [tensor() for tensor in left] == [None, None]
        return resize_and_crop(pictures, preprocessing, rows)

    left: list[weakref.ref[torch.Tensor]] = []
    monkeypatch.setattr(uploading, "resize_and_crop", small)
    view = (tiny.preprocessing, [0, 2])
    inputs, event, by_cpu = FrameResizer(GPU)(FRAMES, {"tiny": view})
    assert by_cpu
    # Frames resized on the CPU are uploaded on the same stream, before the event.
    (first, _, frames), (second, stream, resized) = (
        entry for entry in gpu.log if entry[0].endswith("upload")
    )
    assert first == second == "upload"  # from pinned memory
    assert (frames, resized) == ((5 * 40 * 60 * 3,), (inputs["tiny"].numel(),))
    assert gpu.log[-1] == ("uploaded", event, stream)
    assert torch.equal(inputs["tiny"].cpu(), resize_and_crop(FRAMES, *view))
