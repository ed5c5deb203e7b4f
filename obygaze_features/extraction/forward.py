"""Run the forward passes of backbones in batches, which are halved when memory runs out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import free_memory, is_out_of_memory
from obygaze_features.errors import BackboneError
from obygaze_features.extraction.reader import ReadItem
from obygaze_features.store import Done, Failed
from obygaze_features.store.format import BLOCK_ROWS

CLIPS_PER_BATCH = 8
FRAMES_PER_CPU_BATCH = 8
"""The maximum frames in a default batch of several clips. With more, a CPU gains at most 6%, and
needs twice the memory.
"""
FRAMES_PER_GPU_BATCH = 512
"""The same on a GPU, where more would only delay Ctrl-C."""


@dataclass(frozen=True)
class Batch:
    """The arrays of a batch, which are complete on the CPU after `end`."""

    count: int
    arrays: Mapping[str, Tensor]
    end: torch.cuda.Event | None

    def rows(self) -> list[dict[str, NDArray[Any]]]:
        """Wait for the GPU, and return the arrays of each item."""
        if self.end:
            # In a new thread, the wait alone would use memory on the first GPU.
            with torch.cuda.device(self.end.device):
                self.end.synchronize()
        rows = []
        for number in range(self.count):
            rows.append({name: values[number].numpy() for name, values in self.arrays.items()})
        return rows


class Forward:
    """A runner of a backbone over batches of clips, images or texts.

    The default batch size is 8 clips (fewer if they have many frames; on a CPU, 8 frames), or
    32 images or texts.
    """

    def __init__(self, backbone: Backbone, batch: int | None = None) -> None:
        self.backbone = backbone
        self.batch = batch or _default_batch(backbone)
        self._on_gpu = backbone.device.startswith("cuda")
        self._dtypes = {spec.name: getattr(torch, spec.dtype) for spec in backbone.arrays}

    def start(self, kind: str, inputs: Sequence[Any]) -> Batch:
        """Start computing a batch, and downloading its arrays.

        The inputs are resized clips or images, windows of sound, or texts.
        """
        arrays = {}
        for name, values in self.backbone.embed(kind, inputs).items():
            stored = values.to(self._dtypes[name])
            # Each asynchronous copy gets its own pinned memory, which its rows keep alive.
            arrays[name] = stored.to("cpu", non_blocking=self._on_gpu)
        end = None
        if self._on_gpu:
            end = torch.cuda.Event(blocking=True)
            end.record(torch.cuda.current_stream(self.backbone.device))
        return Batch(len(inputs), arrays, end)

    def make_room(self, count: int) -> None:
        """Halve the size of batches, after one with `count` items did not fit."""
        if count == 1:
            raise BackboneError(
                f"out of memory: one item does not fit on {self.backbone.device} "
                f"(backbone {self.backbone.name}); try --precision bfloat16 or another --device"
            )
        self.batch = count // 2


def _default_batch(backbone: Backbone) -> int:
    if not backbone.clip:
        return BLOCK_ROWS
    frames = FRAMES_PER_GPU_BATCH
    if backbone.device == "cpu":
        frames = FRAMES_PER_CPU_BATCH
    return max(1, min(CLIPS_PER_BATCH, frames // backbone.clip.sampling.frames))


Pending = list[tuple[int, ReadItem]]
"""The rows and items that wait for their batch, or for its result."""


@dataclass
class EmbeddedRows:
    """The outcomes of items, by store and row, and the batch that still runs."""

    outcomes: dict[str, dict[int, Done | Failed]]
    running: tuple[str, Pending, Batch] | None = None

    def collect(self) -> bool:
        """Wait for the running batch; return False if no batch is running."""
        if not self.running:
            return False
        name, started, batch = self.running
        for (row, item), values in zip(started, batch.rows(), strict=True):
            arrays = {**values, **item.sampled.get(name, {})}
            self.outcomes[name][row] = Done(arrays, item.source)
        self.running = None  # only now, because Ctrl-C during the wait must not lose the batch
        return True


class Embedder:
    """An object that embeds items in batches for each backbone, and collects their outcomes."""

    def __init__(self, backbones: Sequence[Backbone], batch: int | None) -> None:
        self._forwards = {backbone.name: Forward(backbone, batch) for backbone in backbones}
        self._pending: dict[tuple[str, str], Pending] = defaultdict(list)
        self._results = EmbeddedRows(defaultdict(dict))

    @property
    def batches(self) -> dict[str, int]:
        """The batch size of each backbone, after any halving."""
        return {name: forward.batch for name, forward in self._forwards.items()}

    def add(self, names: Sequence[str], row: int, item: ReadItem) -> None:
        """Add an item for the backbones with these names."""
        for name in names:
            if name in item.failures:
                self._results.outcomes[name][row] = item.failures[name]
                continue
            if item.kind == "text":
                tokenizer = self._forwards[name].backbone.reader("text").tokenizer
                if tokenizer.count([item.inputs[name]])[0] > tokenizer.max_tokens:
                    item.notes.add(f"text cut to {tokenizer.max_tokens} tokens")
            self._pending[name, item.kind].append((row, item))

    def run(self, *, is_last: bool) -> None:
        """Start the batches that are full.

        After the last item of a group, run all batches, so that a resumed run forms the same
        batches. A batch starts before the previous one is awaited, so that a GPU need not wait.
        """
        for (name, kind), pending in self._pending.items():
            forward = self._forwards[name]
            while len(pending) >= forward.batch or (pending and is_last):
                started = pending[: forward.batch]
                inputs = [item.inputs[name] for _, item in started]
                batch = None
                try:
                    batch = forward.start(kind, inputs)
                except (RuntimeError, MemoryError) as problem:
                    if not is_out_of_memory(problem):
                        raise
                # By now, an error's traceback is gone, and with it all tensors of the attempt.
                if batch is None:
                    if not self._results.collect():
                        forward.make_room(len(started))
                    free_memory(forward.backbone.device)
                    continue
                del pending[: len(started)]
                self._results.collect()
                for _, item in started:
                    del item.inputs[name]  # the backbone has used it
                self._results.running = (name, started, batch)

    def take(self) -> EmbeddedRows:
        """Return the results since the last call; the last batch may still run."""
        results = self._results
        self._results = EmbeddedRows(defaultdict(dict))
        return results
