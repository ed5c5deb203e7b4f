"""Uploads, forward passes and downloads that overlap, shown on a GPU that is made of fakes.

Its tensors are copies on the CPU. What reaches it is logged in order: uploads, streams that wait
for each other, forward passes, and events that the caller waits for.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.errors import BackboneError
from obygaze_features.extraction import extract, readers
from obygaze_features.extraction.forward import Forward
from obygaze_features.extraction.readers import FrameResizer
from obygaze_features.store import open_store
from tests.extraction.test_extraction_device import MANIFEST

GPU = "cuda:0"


@dataclass
class FakeGpu:
    """The log, and the stream of each thread."""

    log: list[tuple[Any, ...]] = field(default_factory=list)
    local: threading.local = field(default_factory=threading.local)
    compute: FakeStream = None  # type: ignore[assignment]

    @property
    def stream(self) -> FakeStream:
        return getattr(self.local, "stream", self.compute)


class FakeStream:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.users, self.most = gpu, 0, 0

    def wait_stream(self, other: FakeStream) -> None:
        self.gpu.log.append(("wait", self, other))


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def record(self, stream: FakeStream) -> None:
        assert stream is self.gpu.compute
        self.gpu.log.append(("record", self))

    def synchronize(self) -> None:
        self.gpu.log.append(("synchronize", self))

    def elapsed_time(self, end: FakeEvent) -> float:
        return 2000.0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu, to = FakeGpu(), torch.Tensor.to
    gpu.compute = FakeStream(gpu)

    @contextlib.contextmanager
    def enter(device: str):
        gpu.local.device = device
        yield
        del gpu.local.device

    @contextlib.contextmanager
    def use(stream: FakeStream):
        assert gpu.local.device == GPU  # else leaving it opens a context on the first GPU
        gpu.local.stream = stream
        stream.users += 1
        stream.most = max(stream.most, stream.users)
        try:
            yield
        finally:
            stream.users -= 1
            del gpu.local.stream

    def copy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args != (GPU,):
            return to(tensor, *args, **kwargs)
        gpu.log.append(("upload", gpu.stream, tuple(tensor.shape)))
        return tensor.clone()

    def record_stream(tensor: torch.Tensor, stream: FakeStream) -> None:
        assert stream is gpu.compute
        gpu.log.append(("in use", tensor.data_ptr()))

    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority: FakeStream(gpu))
    monkeypatch.setattr(torch.cuda, "Event", lambda **options: FakeEvent(gpu))
    monkeypatch.setattr(torch.cuda, "device", enter)
    monkeypatch.setattr(torch.cuda, "stream", use)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: gpu.compute)
    monkeypatch.setattr(torch.Tensor, "to", copy)
    monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
    monkeypatch.setattr(readers, "free_memory", lambda device: gpu.log.append(("free",)))
    return gpu


@pytest.fixture(scope="module")
def three(tiny: Backbone) -> list[Backbone]:
    """Three backbones, one of which samples otherwise than the others."""
    lsmdc = load_backbone("tiny-xclip-lsmdc", "cpu")
    return [tiny, replace(tiny, name="second"), lsmdc]


def on(gpu: FakeGpu, backbone: Backbone) -> Backbone:
    def compute(pixels, present, names):
        gpu.log.append(("forward", backbone.name, len(pixels)))
        return backbone.encode_clips(pixels, present, names)

    return replace(backbone, device=GPU, encode_clips=compute)


def test_a_gpu_gets_each_clip_once_and_the_stores_the_same_bits(films, three, gpu, tmp_path):
    extract(MANIFEST, films, three, tmp_path / "cpu", workers=3, batch=8)
    summary = extract(MANIFEST, films, [on(gpu, one) for one in three], tmp_path / "gpu", workers=3)
    assert (summary.done, summary.failed) == (40, {})
    for backbone in three:
        here, there = (open_store(tmp_path / w / f"{backbone.name}.zarr") for w in ("cpu", "gpu"))
        for array in here.arrays:
            np.testing.assert_array_equal(
                here.read(array, missing="nan"), there.read(array, missing="nan")
            )
    uploads = [entry for entry in gpu.log if entry[0] == "upload" and len(entry[2]) == 4]
    aside = [stream for _, stream, _ in uploads if stream is not gpu.compute]
    assert len(aside) == len(MANIFEST)
    assert len(uploads) - len(aside) == len(three)  # the probe of each store
    assert len(set(aside)) <= readers.MAX_UPLOADS
    assert {stream.most for stream in aside} == {1}
    waits = [entry[2] for entry in gpu.log if entry[0] == "wait"]
    assert Counter(waits) == Counter(aside)
    assert sum(entry[0] == "in use" for entry in gpu.log) == len(MANIFEST) * len(three)


def test_a_gpu_has_the_next_batch_before_the_former_is_waited_for(films, tiny, gpu, tmp_path):
    summary = extract(MANIFEST, films, [on(gpu, tiny)], tmp_path)
    kinds = [entry[0] for entry in gpu.log if entry[0] in ("forward", "synchronize")]
    run = kinds[kinds.index("synchronize") + 1 :]  # after the probe
    assert "".join(kind[0] for kind in run) == "ffsfsfss" + "fs"  # a block of 32, and one of 8
    assert summary.batches == {"tiny": 8}
    assert summary.shares["device"] * summary.seconds == pytest.approx(2 * 5)


def test_a_batch_that_runs_is_kept_when_the_next_is_interrupted(films, tiny, tmp_path):
    def interrupted(pixels, present, names):
        sizes.append(len(pixels))
        if len(sizes) == 4:
            raise KeyboardInterrupt
        return tiny.embed_clips(pixels, present)

    sizes: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        extract(MANIFEST, films, [replace(tiny, encode_clips=interrupted)], tmp_path)
    assert (open_store(tmp_path / "tiny.zarr").status == 1).sum() == 16


def test_a_batch_is_kept_when_waiting_for_it_is_interrupted(films, tiny, tmp_path, monkeypatch):
    def start(forward, inputs):
        def wait():
            waits.append(len(inputs))
            if len(waits) == 3:  # the probe, the first batch, the second
                raise KeyboardInterrupt
            return finish()

        finish = original(forward, inputs)
        return wait

    waits: list[int] = []
    original = Forward.start
    monkeypatch.setattr(Forward, "start", start)
    with pytest.raises(KeyboardInterrupt):
        extract(MANIFEST, films, [tiny], tmp_path)
    assert (open_store(tmp_path / "tiny.zarr").status == 1).sum() == 16


def test_a_batch_that_does_not_fit_leaves_nothing_in_memory(films, tiny, tmp_path):
    def large(pixels, present, names):
        assert [tensor for tensor in left if tensor() is not None] == []
        if len(pixels) > 2:
            activations = torch.zeros(len(pixels))
            left.extend([weakref.ref(activations), weakref.ref(pixels)])
            raise torch.OutOfMemoryError("CUDA out of memory")
        return tiny.embed_clips(pixels, present)

    left: list[weakref.ref[torch.Tensor]] = []
    extract(MANIFEST, films, [replace(tiny, encode_clips=large)], tmp_path)
    assert len(left) == 4


def test_what_was_computed_before_a_gpu_failed_is_kept(films, tiny, gpu, tmp_path, monkeypatch):
    def fails(event):
        waited.append(event)
        if len(waited) > 3:  # the probe's, and two batches'
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    waited: list[FakeEvent] = []
    monkeypatch.setattr(FakeEvent, "synchronize", fails)
    with pytest.raises(BackboneError, match="illegal memory access"):
        extract(MANIFEST, films, [on(gpu, tiny)], tmp_path)
    assert (open_store(tmp_path / "tiny.zarr").status == 1).sum() == 16


@pytest.fixture
def frames() -> torch.Tensor:
    return torch.randint(0, 256, (5, 40, 60, 3), dtype=torch.uint8)


def test_a_clip_too_large_for_a_gpu_is_resized_by_the_cpu(frames, tiny, gpu, monkeypatch):
    def small(pictures, preprocessing, rows):
        if not left:
            temporary = torch.zeros(3)
            left.extend([weakref.ref(temporary), weakref.ref(pictures)])
            raise torch.OutOfMemoryError("CUDA out of memory")
        assert [tensor() for tensor in left] == [None, None]
        return resize_and_crop(pictures, preprocessing, rows)

    left: list[weakref.ref[torch.Tensor]] = []
    monkeypatch.setattr(readers, "resize_and_crop", small)
    dead: list[torch.Tensor | None] = []
    monkeypatch.setattr(readers, "free_memory", lambda device: dead.extend(t() for t in left))
    view = (tiny.preprocessing, [0, 2])
    inputs = FrameResizer(GPU)(frames, {"tiny": view})
    assert torch.equal(inputs["tiny"], resize_and_crop(frames, *view))
    assert dead == [None, None]
    # What the CPU resized is uploaded on the same stream, which is waited for.
    (_, _, first), (_, stream, second) = (entry for entry in gpu.log if entry[0] == "upload")
    assert (first, second) == ((5, 40, 60, 3), tuple(inputs["tiny"].shape))
    assert ("wait", gpu.compute, stream) in gpu.log


def test_a_clip_that_fits_neither_way_is_one_line(frames, tiny, gpu, monkeypatch):
    def never(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(readers, "resize_and_crop", never)
    with pytest.raises(BackboneError, match=r"out of memory: .* cuda:0\.") as caught:
        FrameResizer(GPU)(frames, {"tiny": (tiny.preprocessing, [0])})
    assert "\n" not in str(caught.value)
    assert gpu.log[-1] == ("free",)


def test_cpu_threads_resize_at_the_same_time(frames, tiny, monkeypatch):
    def meet(*arguments):
        both.wait(10)
        return resize_and_crop(*arguments)

    both = threading.Barrier(2)
    monkeypatch.setattr(readers, "resize_and_crop", meet)
    resize = FrameResizer("cpu")
    threads = [
        threading.Thread(target=resize, args=(frames, {"tiny": (tiny.preprocessing, [0])}))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not both.broken
