"""A CUDA device made of CPU tensors, on which extraction runs.

Work waits in streams, and is done only when somebody waits for it: as late as events allow, or in
any order that they allow. Freed memory is reused immediately by its own stream, and by other
streams when the streams named by `record_stream` have finished. A missing wait therefore gives
wrong numbers. The arithmetic of kernels, the driver and speed are not modelled.
"""

import contextlib
import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from obygaze_features.backbones import Backbone

GPU = "cuda:0"
Mark = tuple["Stream", int]
"""A stream, and how much of its work must be done."""


class Gpu:
    """The device, with a log of the work that reached it.

    If `late` is True, work is done as late as possible; otherwise, in a random order. If the device
    is `full`, it has no free memory. It reports `memory`, of which this process has reserved a
    quarter. The process may be limited to a `share`. `defect` breaks a rule, which the tests must
    notice. `before_upload` may raise an error.
    """

    def __init__(self, seed: int = 0, *, late: bool = False, defect: str = "") -> None:
        self.random, self.late, self.defect = random.Random(seed), late, defect
        self.full = False
        self.memory, self.share = 2**30, 1.0
        self.log: list[tuple[Any, ...]] = []
        self.before_upload: Callable[[torch.Tensor], object] = len
        self.lock, self.local = threading.RLock(), threading.local()
        self.streams: list[Stream] = []
        self.free: dict[Any, list[torch.Tensor]] = defaultdict(list)
        self.in_use: list[tuple[Any, torch.Tensor, list[Mark]]] = []
        self.pinned: dict[int, torch.Tensor] = {}  # by their addresses
        self.compute = Stream(self)

    @property
    def stream(self) -> "Stream":
        return getattr(self.local, "stream", self.compute)

    def enqueue(self, work: Callable[[], object]) -> Mark:
        with self.lock:
            mark = self.stream.push(work)
            for _ in range(0 if self.late else self.random.choice((0, 0, 0, 1, 3))):
                if ready := [stream for stream in self.streams if stream.is_ready]:
                    self.random.choice(ready).step()
        return mark

    def wait(self, mark: Mark) -> None:
        with self.lock:
            while mark[0].done < mark[1]:
                ready = [stream for stream in self.streams if stream.is_ready]
                (mark[0].needed if self.late else self.random.choice(ready)).step()

    def new(self, shape: Any, dtype: torch.dtype, strides: Any = None) -> "GpuTensor":
        """Return a tensor that contains the previous content of its memory."""
        size = prod(shape) * dtype.itemsize
        with self.lock:
            self.give_out()
            if self.full:
                raise torch.OutOfMemoryError("CUDA out of memory")
            pool = self.free[self.stream, size]
            memory = pool.pop() if pool else torch.randint(256, (size,), dtype=torch.uint8)
        flat, block = memory.view(dtype), Block(self, self.stream, memory)
        return GpuTensor(flat.as_strided(shape, strides) if strides else flat.view(shape), block)

    def give_out(self) -> None:
        """Give memory out again once its users are done."""
        waiting, self.in_use = self.in_use, []
        for key, memory, marks in waiting:
            if all(stream.done >= count for stream, count in marks):
                self.free[key].append(memory)
            else:
                self.in_use.append((key, memory, marks))

    def move(self, tensor: torch.Tensor, *, non_blocking: bool = False) -> "GpuTensor":
        """Upload a tensor; without a wait, the source is read late."""
        target = self.new(tensor.shape, tensor.dtype)
        self.upload(target.values, tensor.detach(), non_blocking)
        return target

    def upload(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
        """Copy to the device. The driver reads unpinned memory immediately, and slowly."""
        self.before_upload(source)
        pinned = source.untyped_storage().data_ptr() in self.pinned
        kind = "upload" if pinned else "pageable upload"
        self.log.append((kind, self.stream, tuple(source.shape)))
        self.copy(target, source if pinned else source.clone(), non_blocking)

    def pin(self, memory: torch.Tensor) -> torch.Tensor:
        return self.pinned.setdefault(memory.data_ptr(), memory)

    def fetch(self, tensor: "GpuTensor", *, non_blocking: bool = False) -> torch.Tensor:
        self.log.append(("download", tensor.dtype, tuple(tensor.shape)))
        empty = 0 if tensor.dtype is torch.bool else 55  # until it is there
        target = torch.full(tensor.shape, empty, dtype=tensor.dtype)
        self.copy(target, tensor.values, non_blocking)
        return target

    def copy(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
        mark = self.enqueue(lambda: target.copy_(source))
        if not non_blocking:
            self.wait(mark)

    def on(self, backbone: Backbone) -> Backbone:
        """Return the backbone on this device, with its network as one operation."""

        def compute(pixels: Any, present: Any, names: frozenset[str]) -> dict[str, Any]:
            self.log.append(("forward", backbone.name, len(pixels)))
            shapes = {spec.name: (len(pixels), *spec.shape) for spec in backbone.arrays}
            outputs = {name: self.new(shapes[name], torch.float32) for name in names}
            inputs = pixels.values, present.values if present.is_cuda else present
            targets = {name: output.values for name, output in outputs.items()}

            def run() -> None:
                with torch.no_grad():
                    values = backbone.encode_clips(*(part.clone() for part in inputs), names)
                for name, target in targets.items():
                    target.copy_(values[name])

            self.enqueue(run)
            return outputs

        return replace(backbone, device=GPU, encode_clips=compute)


class Block:
    """Memory that is returned when its last tensor is gone."""

    def __init__(self, gpu: Gpu, home: "Stream", memory: torch.Tensor) -> None:
        self.gpu, self.home, self.memory = gpu, home, memory
        self.users: set[Stream] = set()

    def __del__(self) -> None:
        with self.gpu.lock:
            marks = [(stream, stream.pushed) for stream in self.users - {self.home}]
            self.gpu.in_use.append(((self.home, len(self.memory)), self.memory, marks))


class Stream:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.queue = gpu, deque[Any]()
        self.pushed = self.done = self.users = self.most = 0
        gpu.streams.append(self)

    def push(self, work: Any) -> Mark:
        self.queue.append(work)
        self.pushed += 1
        return self, self.pushed

    @property
    def is_ready(self) -> bool:
        if not self.queue or not isinstance(self.queue[0], tuple):
            return bool(self.queue)
        before, count = self.queue[0]
        return before.done >= count

    @property
    def needed(self) -> "Stream":
        """Return this stream, or the stream that it waits for."""
        return self if self.is_ready else self.queue[0][0].needed

    def step(self) -> None:
        work = self.queue.popleft()
        if callable(work):
            work()
        self.done += 1

    def record_event(self) -> "Event":
        event = Event(self.gpu)
        event.record(self)
        self.gpu.log.append(("uploaded", event, self))
        return event

    def wait_event(self, event: "Event") -> None:
        self.gpu.log.append(("wait", event))
        with self.gpu.lock:
            if event.mark and self.gpu.defect != "wait":
                self.push(event.mark)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.mark: Mark | None = None

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or self.gpu.stream
        with self.gpu.lock:
            self.mark = stream.push(None)
            if self.gpu.defect == "early":
                self.mark = stream, max(0, stream.pushed - 3)

    def synchronize(self) -> None:
        if self.mark:
            kind = "synchronize" if self.mark[0] is self.gpu.compute else "synchronize aside"
            self.gpu.log.append((kind, self))
            if self.gpu.defect != kind:
                self.gpu.wait(self.mark)


class GpuTensor(torch.Tensor):
    """A tensor on the device; `values` are its values once the work is done."""

    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values: torch.Tensor, block: Block) -> "GpuTensor":
        return torch.Tensor._make_wrapper_subclass(
            cls, values.shape, strides=values.stride(), dtype=values.dtype,
            storage_offset=values.storage_offset(), device="cpu",
        )  # fmt: skip

    def __init__(self, values: torch.Tensor, block: Block) -> None:
        self.values, self.block = values, block

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None):
        first = next(arg for arg in tree_leaves(args) if isinstance(arg, GpuTensor))
        gpu, schema = first.block.gpu, operation._schema
        unwrap = lambda arg: arg.values if isinstance(arg, GpuTensor) else arg  # noqa: E731
        inputs, options = tree_map(unwrap, args), tree_map(unwrap, kwargs or {})
        run = partial(operation, *inputs, **options)
        if schema.name == "aten::cat" and not all(isinstance(part, GpuTensor) for part in args[0]):
            raise RuntimeError("Expected all tensors to be on the same device")
        if schema.is_mutable:
            if schema.name == "aten::copy_" and not isinstance(args[1], GpuTensor):
                gpu.upload(*inputs[:2], *inputs[2:] or [False])
            else:
                gpu.enqueue(run)
            return args[0]
        if any(result.alias_info for result in schema.returns):
            view = lambda x: GpuTensor(x, first.block) if isinstance(x, torch.Tensor) else x  # noqa: E731
            return tree_map(view, run())

        def sketch(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")

        options.pop("device", None)
        like = operation(*tree_map(sketch, inputs), **tree_map(sketch, options))
        result = gpu.new(like.shape, like.dtype, like.stride())
        values = result.values
        if "empty" not in schema.name:
            gpu.enqueue(lambda: values.copy_(run()))
        return result


def install(gpu: Gpu, patch: pytest.MonkeyPatch) -> Gpu:
    """Make torch use the device."""
    to, fetch, empty, zeros = torch.Tensor.to, torch.Tensor.cpu, torch.empty, torch.zeros

    def move(tensor: Any, *args: Any, **options: Any) -> Any:
        target = options.pop("device", None) or (args[0] if args else None)
        if target == GPU:
            return tensor if tensor.is_cuda else gpu.move(tensor, **options)
        if target == "cpu" and tensor.is_cuda:
            return gpu.fetch(tensor, **options)
        return to(tensor, target, *args[1:], **options)

    def make(real: Any, *size: Any, device: Any = "cpu", pin_memory: bool = False, **options: Any):
        if device != GPU:
            memory = real(*size, device=device, **options)
            return gpu.pin(memory) if pin_memory else memory
        shape = size if isinstance(size[0], int) else size[0]
        tensor = gpu.new(shape, options.get("dtype", torch.float32))
        return tensor.zero_() if real is zeros else tensor

    @contextlib.contextmanager
    def enter(device: str):
        before = getattr(gpu.local, "device", None)
        gpu.local.device = device
        yield
        gpu.local.device = before

    @contextlib.contextmanager
    def use(stream: Stream):
        assert gpu.local.device == GPU  # or leaving it opens a context on the first GPU
        gpu.local.stream = stream
        stream.users += 1
        stream.most = max(stream.most, stream.users)
        try:
            yield
        finally:
            stream.users -= 1
            del gpu.local.stream

    def record_stream(tensor: GpuTensor, stream: Stream) -> None:
        if gpu.defect != "record_stream":
            tensor.block.users.add(stream)

    # Classes, because transformers has annotations like `torch.cuda.Stream | None`.
    class AStream(Stream):
        def __init__(self, device: str, priority: int) -> None:
            super().__init__(gpu)

    class AnEvent(Event):
        def __init__(self, **options: Any) -> None:
            super().__init__(gpu)

    patch.setattr(torch.cuda, "Stream", AStream)
    patch.setattr(torch.cuda, "Event", AnEvent)
    patch.setattr(torch.cuda, "device", enter)
    patch.setattr(torch.cuda, "stream", use)
    patch.setattr(torch.cuda, "current_stream", lambda device=None: gpu.stream)
    patch.setattr(torch.cuda, "get_device_name", lambda device: "a model of a GPU")
    patch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * gpu.memory // 4, gpu.memory))
    patch.setattr(torch.cuda, "memory_reserved", lambda device: gpu.memory // 4)
    patch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: gpu.share)
    patch.setattr(torch.cuda, "empty_cache", lambda: gpu.log.append(("free",)))
    patch.setattr(torch.Tensor, "to", move)
    patch.setattr(torch.Tensor, "cpu", lambda t: gpu.fetch(t) if t.is_cuda else fetch(t))
    patch.setattr(torch, "empty", partial(make, empty))
    patch.setattr(torch, "zeros", partial(make, zeros))
    patch.setattr(torch, "inference_mode", torch.no_grad)
    patch.setattr(torch.Tensor, "record_stream", record_stream)
    return gpu
