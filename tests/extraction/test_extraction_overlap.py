"""Uploads, forward passes and downloads that overlap, shown on a GPU that is made of fakes.

Its tensors are copies on the CPU. What reaches it is logged in order: uploads, events that its
streams or the caller wait for, forward passes, and downloads.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.backbones import Backbone
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.extraction import ray_engine, readers
from obygaze_features.extraction.forward import Forward
from obygaze_features.extraction.plan import BlockTask, Options
from obygaze_features.extraction.ray_engine import Computer, Setup, WorkerPlan
from obygaze_features.extraction.readers import FrameResizer, ReadItem
from tests.kit.films import rows
from tests.kit.models import write_checkpoint

GPU = "cuda:0"


class GpuTensor(torch.Tensor):
    """A tensor on the GPU, and all that is computed from it."""

    is_cuda = True


@dataclass
class FakeGpu:
    """The log, and the stream of each thread; `upload` may raise an error for a tensor."""

    log: list[tuple[Any, ...]] = field(default_factory=list)
    upload: Callable[[torch.Tensor], object] = len
    local: threading.local = field(default_factory=threading.local)
    compute: FakeStream = None  # type: ignore[assignment]

    @property
    def stream(self) -> FakeStream:
        return getattr(self.local, "stream", self.compute)


class FakeStream:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.users, self.most = gpu, 0, 0

    def record_event(self) -> FakeEvent:
        assert self is self.gpu.stream
        event = FakeEvent(self.gpu)
        self.gpu.log.append(("uploaded", event, self))
        return event

    def wait_event(self, event: FakeEvent) -> None:
        assert self is self.gpu.compute
        self.gpu.log.append(("wait", event))


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
        before = getattr(gpu.local, "device", None)
        gpu.local.device = device
        yield
        gpu.local.device = before

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
        if kwargs.get("device") == "cpu":
            gpu.log.append(("download", tuple(tensor.shape)))
            return tensor.clone().as_subclass(torch.Tensor)
        if args != (GPU,):
            return to(tensor, *args, **kwargs)
        gpu.upload(tensor)
        gpu.log.append(("upload", gpu.stream, tuple(tensor.shape)))
        return tensor.clone().as_subclass(GpuTensor)

    def new(make: Any, *size: Any, device: Any = "cpu", **options: Any) -> torch.Tensor:
        tensor = make(*size, device="cpu" if device == GPU else device, **options)
        return tensor.as_subclass(GpuTensor) if device == GPU else tensor

    def record_stream(tensor: torch.Tensor, stream: FakeStream) -> None:
        assert stream is gpu.compute
        assert tensor.is_cuda
        gpu.log.append(("in use", tensor.data_ptr()))

    # Classes, because transformers has annotations like `torch.cuda.Stream | None`.
    class Stream(FakeStream):
        def __init__(self, device: str, priority: int) -> None:
            super().__init__(gpu)

    class Event(FakeEvent):
        def __init__(self, **options: Any) -> None:
            super().__init__(gpu)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", enter)
    monkeypatch.setattr(torch.cuda, "stream", use)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: gpu.compute)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: gpu.log.append(("free",)))
    monkeypatch.setattr(torch.Tensor, "to", copy)
    monkeypatch.setattr(torch, "zeros", partial(new, torch.zeros))
    monkeypatch.setattr(torch, "empty", partial(new, torch.empty))
    monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
    return gpu


def run_out(tensor: torch.Tensor) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def on(gpu: FakeGpu, backbone: Backbone) -> Backbone:
    def compute(pixels, present, names):
        gpu.log.append(("forward", backbone.name, len(pixels)))
        return backbone.encode_clips(pixels, present, names)

    return replace(backbone, device=GPU, encode_clips=compute)


@pytest.mark.parametrize(
    "full",
    [pytest.param(False, marks=pytest.mark.gate), pytest.param(True, marks=pytest.mark.night)],
)
def test_a_gpu_gets_each_clip_once_and_gives_the_same_bits(films, tiny, gpu, tmp_path, full):
    """Two backbones that sample otherwise; of a full GPU, a batch at a time."""

    def upload(tensor: torch.Tensor) -> None:
        if full and gpu.stream is not gpu.compute:
            run_out(tensor)

    gpu.upload, manifest = upload, rows(20)
    lsmdc = of.load_backbone("tiny-xclip-lsmdc", "cpu")
    backbones = [tiny, lsmdc]
    of.extract(manifest, films, backbones, tmp_path / "cpu", workers=2, batch=8)
    on_gpu = [on(gpu, backbone) for backbone in backbones]
    summary = of.extract(manifest, films, on_gpu, tmp_path / "gpu", workers=2)
    assert (summary.done, summary.failed) == (20, {})
    for backbone in backbones:
        stores = [
            of.open_store(tmp_path / kind / f"{backbone.name}.zarr") for kind in ("cpu", "gpu")
        ]
        for array in stores[0].arrays:
            np.testing.assert_array_equal(*(store.read(array, missing="nan") for store in stores))
    assert summary.resized_by_cpu == (20 if full else 0)
    if full:
        return
    uploads = [entry for entry in gpu.log if entry[0] == "upload" and len(entry[2]) == 4]
    aside = [stream for _, stream, _ in uploads if stream is not gpu.compute]
    assert len(aside) == len(manifest)
    assert len(uploads) - len(aside) == len(backbones)  # the probe of each store
    assert len(set(aside)) <= readers.MAX_UPLOADS
    assert {stream.most for stream in aside} == {1}
    uses = [entry[1] for entry in gpu.log if entry[0] == "in use"]
    assert len(uses) == (len(manifest) + 1) * len(backbones)
    # A batch waits for its own clips alone.
    events = [entry[1] for entry in gpu.log if entry[0] == "uploaded"]
    assert len(set(events)) == len(manifest)
    waits: list[FakeEvent] = []
    for kind, *details in gpu.log:
        if kind == "wait":
            waits += details
        elif kind == "forward" and details[1] > 1:  # not the probe
            assert len(set(waits)) == details[1]
            waits.clear()
    assert not waits


def test_a_gpu_has_the_next_batch_before_it_is_waited_for(films, tiny, gpu, tmp_path):
    summary = of.extract(rows(40), films, on(gpu, tiny), tmp_path)
    kinds = [entry[0] for entry in gpu.log if entry[0] in ("forward", "synchronize")]
    run = kinds[kinds.index("synchronize") + 1 :]  # after the probe
    assert "".join(kind[0] for kind in run) == "ffsfsfss" + "fs"  # a block of 32, and one of 8
    assert summary.batches == {"tiny": 8}
    assert summary.shares["device"] * summary.seconds == pytest.approx(2 * 5)


@pytest.mark.gate
def test_a_batch_that_does_not_fit_waits_and_is_tried_again(films, tiny, gpu, tmp_path):
    def full_once(pixels, present, names):
        gpu.log.append(("forward", len(pixels)))
        if sum(entry[0] == "forward" for entry in gpu.log) == 4:  # the probe's, two, this
            run_out(pixels)
        return tiny.encode_clips(pixels, present, names)

    backbone = replace(tiny, device=GPU, encode_clips=full_once)
    summary = of.extract(rows(32), films, backbone, tmp_path)
    steps = [entry[0] for entry in gpu.log if entry[0] in ("forward", "synchronize", "free")]
    # The probe; two batches and the end of the first; the third, which begins twice.
    assert "".join(step[1] for step in steps)[:11] == "oy" + "ooy" + "oryro" + "o"
    assert (summary.done, summary.batches) == (32, {"tiny": 8})


def test_images_that_a_full_gpu_could_not_take_are_embedded(tmp_path, gpu):
    backbone = of.load_backbone(write_checkpoint("tiny-clip", tmp_path / "clip"), "cpu")
    backbone = backbone.for_images_and_texts()
    shape = (3, *backbone.preprocessing.crop)
    images = [torch.full(shape, 9 * n, dtype=torch.uint8) for n in range(3)]
    expected = Forward(backbone)(images)
    rows = Forward(replace(backbone, device=GPU))(images)
    for row, expected_row in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(row["native"], expected_row["native"])
    assert [entry[0] for entry in gpu.log].count("upload") == len(images)


def computer_of(backbones: list[Backbone], share: float, folder: Path) -> Computer:
    """What an actor is, with a task that reads: an item is already the clip."""
    task = SimpleNamespace(remote=lambda setup, item, names: item)
    loads = [lambda device, backbone=backbone: backbone for backbone in backbones]
    blind = [backbone.without_network() for backbone in backbones]
    plan = WorkerPlan(1, 100, 1.0, share, "cuda")
    computer = Computer()
    devices = computer.start(Setup(blind, loads, plan, folder, Options(), folder), (task, None))
    assert devices == {backbone.name: backbone.device for backbone in backbones}
    return computer


@pytest.mark.parametrize("share", [1, 0.5])
def test_a_block_that_fits_on_no_gpu_is_computed_in_batches(
    tiny, gpu, tmp_path, monkeypatch, share
):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "get", list)
    shares: dict[str, float] = {}
    monkeypatch.setattr(ray_engine, "limit_gpu_share", lambda *pair: shares.update([pair]))
    monkeypatch.chdir(tmp_path)
    backbones = [replace(tiny, device=GPU), replace(tiny, name="second", device="cuda:1")]
    computer = computer_of(backbones, share, tmp_path)
    assert shares == ({GPU: 0.5, "cuda:1": 0.5} if share < 1 else {})
    clips = [torch.full((8, 3, 32, 32), row, dtype=torch.uint8) for row in range(3)]
    uploads: list[torch.Tensor] = []

    def full_once(tensor: torch.Tensor) -> None:
        uploads.append(tensor)
        if len(uploads) == 2:
            run_out(tensor)

    gpu.upload = full_once
    read = [ReadItem(None, {"tiny": clip.numpy()}) for clip in clips]
    outcomes = computer.compute(BlockTask(0, {"tiny": [0, 1, 2]}), read).outcomes["tiny"]
    assert len(uploads) == 3  # the second is uploaded with its batch
    for row, expected in zip(outcomes.values(), Forward(tiny)(clips), strict=True):
        np.testing.assert_array_equal(row.values["native"], expected["native"])


def test_an_actor_uploads_a_block_while_it_embeds_another(tiny, gpu, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "get", list)
    monkeypatch.chdir(tmp_path)
    embedding, uploaded = threading.Event(), threading.Event()

    def wait(pixels, present, names):
        embedding.set()
        assert uploaded.wait(10)
        return tiny.encode_clips(pixels, present, names)

    computer = computer_of([replace(tiny, device=GPU, encode_clips=wait)], 1, tmp_path)
    blocks = [
        [ReadItem(None, {"tiny": torch.full((8, 3, 32, 32), n, dtype=torch.uint8).numpy()})]
        for n in range(2)
    ]
    gpu.upload = lambda tensor: uploaded.set() if tensor.max() == 1 else None
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(computer.compute, BlockTask(0, {"tiny": [0]}), blocks[0])
        assert embedding.wait(10)
        second = threads.submit(computer.compute, BlockTask(1, {"tiny": [32]}), blocks[1])
        assert (list(first.result().outcomes["tiny"]), uploaded.is_set()) == ([0], True)
        assert list(second.result().outcomes["tiny"]) == [32]
    uploads = [entry for entry in gpu.log if entry[0] == "upload"]
    assert all(stream is not gpu.compute for _, stream, _ in uploads)


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
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: dead.extend(t() for t in left))
    view = (tiny.preprocessing, [0, 2])
    inputs, event, by_cpu = FrameResizer(GPU)(frames, {"tiny": view})
    assert by_cpu
    assert torch.equal(inputs["tiny"], resize_and_crop(frames, *view))
    assert dead == [None, None]
    # What the CPU resized is uploaded on the same stream, before the event.
    (_, _, first), (_, stream, second) = (entry for entry in gpu.log if entry[0] == "upload")
    assert (first, second) == ((5, 40, 60, 3), tuple(inputs["tiny"].shape))
    assert gpu.log[-1] == ("uploaded", event, stream)
