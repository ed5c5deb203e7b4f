"""Run the forward passes of backbones in batches, which are halved when memory runs out."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import free_memory, run_if_it_fits
from obygaze_features.backbones.preprocess import normalise
from obygaze_features.errors import BackboneError
from obygaze_features.extraction.reader import ReadItem
from obygaze_features.store import Done, Failed
from obygaze_features.store.format import BLOCK_ROWS

CLIPS_PER_BATCH = 8
FRAMES_PER_CPU_BATCH, FRAMES_PER_GPU_BATCH = 64, 512
"""The maximum frames per batch. More would not be faster, and would only delay Ctrl-C."""

Rows = list[dict[str, NDArray[Any]]]
"""The arrays of each item."""
Alone = Callable[[], AbstractContextManager[object]]
Clip: TypeAlias = Tensor | Sequence[Tensor]
"""A clip's resized frames or its windows, in one tensor or in parts that may be on two devices."""
_Pending = tuple[int, Clip | str, ReadItem]
"""The number of a row, its input, and its item, which wait for their batch."""


class Forward:
    """A function that runs a backbone over clips, images or texts, in batches of constant size.

    Because of the constant size, equal inputs give bitwise equal results, unless memory runs out.
    The default batch size is 8 clips (fewer on a CPU or with many frames), or 32 images or texts.
    Within the context `alone()`, nothing else takes the GPU's memory.
    """

    def __init__(
        self, backbone: Backbone, batch: int | None = None, alone: Alone = nullcontext
    ) -> None:
        self.backbone, self.batch = backbone, batch or _default_batch(backbone)
        self._alone = alone
        self._dtypes = {spec.name: getattr(torch, spec.dtype) for spec in backbone.arrays}

    def __call__(self, inputs: Sequence[Clip] | Sequence[str]) -> Rows:
        """Return the arrays of each item: a resized clip or image, or a text."""
        return self.start(inputs)()

    def start(
        self, inputs: Sequence[Clip] | Sequence[str], collect: Callable[[], bool] = lambda: False
    ) -> Callable[[], Rows]:
        """Start computing on a GPU, and return a function that waits for the result.

        If a batch does not fit into memory, it is tried again after waiting for uploads, for the
        running batches of this call, and for the previous call's batch. `collect` waits for that
        batch, and returns True if there was one. If the batch still does not fit, this and all
        later batches are halved.
        """
        running: dict[int, Callable[[], Rows]] = {}
        computed: dict[int, Rows] = {}

        def finish() -> Rows:
            for begin in list(running):
                computed[begin] = running[begin]()
                del running[begin]  # only now, so that the wait can be repeated after an interrupt
            return [row for begin in sorted(computed) for row in computed[begin]]

        first = 0
        while first < len(inputs):
            batch = inputs[first : first + self.batch]
            started = self._start_if_it_fits(batch)
            if not started:
                is_shared = bool(running) or self._on_gpu
                finish()
                if collect() or is_shared:
                    with self._alone():
                        free_memory(self.backbone.device)
                        started = self._start_if_it_fits(batch)
            if started:
                running[first] = started
                first += len(batch)
                continue
            if len(batch) == 1:
                noun = "clip" if self.backbone.for_clips else "item"
                raise BackboneError(
                    f"out of memory: one {noun} does not fit on {self.backbone.device} "
                    f"(backbone {self.backbone.name}); try --precision bfloat16 or another "
                    "--device"
                )
            self.batch = len(batch) // 2
        return finish

    def _start_if_it_fits(self, inputs: Sequence[Any]) -> Callable[[], Rows] | None:
        return run_if_it_fits(partial(self._start_batch, inputs))

    def _start_batch(self, inputs: Sequence[Any]) -> Callable[[], Rows]:
        """Enqueue a batch and the download of its arrays in the store's dtypes."""
        outputs = self._embed(inputs)
        stored = {name: values.to(self._dtypes[name]) for name, values in outputs.items()}
        columns = [values.isinf().flatten(1).any(1) for values in stored.values()]
        flags = torch.stack(columns, 1) if columns else torch.empty(len(inputs), 0)
        # Each asynchronous copy gets its own pinned memory, which its rows keep alive.
        download = partial(Tensor.to, device="cpu", non_blocking=self._on_gpu)
        stored, infinite = {name: download(stored[name]) for name in stored}, download(flags)
        end = torch.cuda.Event(blocking=True) if self._on_gpu else None
        if end:  # only now, so that rows are complete when they are read
            end.record(torch.cuda.current_stream(self.backbone.device))

        def finish() -> Rows:
            if end:
                end.synchronize()
            # An infinity may be a number too large for float16; then the writer gets the original.
            return [
                {
                    name: (outputs[name][i].cpu() if is_infinite else stored[name][i]).numpy()
                    for name, is_infinite in zip(stored, row, strict=True)
                }
                for i, row in enumerate(infinite.tolist())
            ]

        return finish

    def _embed(self, inputs: Sequence[Any]) -> Mapping[str, Tensor]:
        backbone = self.backbone
        if isinstance(inputs[0], str):
            return backbone.embed_text_arrays(inputs)
        clips = [[clip] if isinstance(clip, Tensor) else clip for clip in inputs]
        for part in (part for parts in clips for part in parts):
            if part.is_cuda:  # the memory belongs to the stream that uploaded the part
                part.record_stream(torch.cuda.current_stream(backbone.device))
        if not backbone.for_clips:
            images = torch.stack([pixels.to(backbone.device) for pixels in inputs])
            return {"native": backbone.embed_images(normalise(images, backbone.preprocessing))}
        shape = (len(clips), backbone.sampling.frames)
        pixels = torch.empty(*shape, *clips[0][0].shape[1:], device=backbone.device)
        # A mask on the device would cause a wait if only its counts matter.
        mask_device = "cpu" if backbone.mask_on_cpu else backbone.device
        present = torch.zeros(shape, dtype=torch.bool, device=mask_device)
        for i, parts in enumerate(clips):
            count = self._write(parts, pixels[i])
            pixels[i, count:] = 0
            present[i, :count] = True
        return backbone.embed_clips(pixels, present)

    def _write(self, parts: Sequence[Tensor], row: Tensor) -> int:
        """Write a clip's parts into its row of a batch; return the number of frames or windows.

        Parts may be on the CPU if the device had no memory for them when they were read.
        """
        count = 0
        for part in parts:
            target = row[count : count + len(part)]
            if self.backbone.hears:
                target.copy_(part)
            else:
                normalise(part, self.backbone.preprocessing, target)
            count += len(part)
        return count

    @property
    def _on_gpu(self) -> bool:
        return self.backbone.device.startswith("cuda")


def _default_batch(backbone: Backbone) -> int:
    if not backbone.for_clips:
        return BLOCK_ROWS
    on_gpu = backbone.device.startswith("cuda")
    frames = FRAMES_PER_GPU_BATCH if on_gpu else FRAMES_PER_CPU_BATCH
    return max(1, min(CLIPS_PER_BATCH, frames // backbone.sampling.frames))


class Embedder:
    """An object that embeds items in batches for each backbone, and collects their outcomes."""

    def __init__(self, forwards: Mapping[str, Forward]) -> None:
        self._forwards = forwards
        self.cut: dict[int, int] = {}
        """The token counts of texts that are too long for their backbone, by row."""
        self.seconds = 0.0
        """The seconds spent in `add`, which waits for the devices."""
        self._pending: dict[tuple[str, bool], list[_Pending]] = defaultdict(list)
        self._running: tuple[str, list[tuple[int, ReadItem]], Callable[[], Rows]] | None = None
        self._outcomes: dict[str, dict[int, Done | Failed]] = {name: {} for name in self._forwards}

    @property
    def batches(self) -> dict[str, int]:
        """The batch size of each backbone, after any halving."""
        return {name: forward.batch for name, forward in self._forwards.items()}

    def add(
        self, names: Sequence[str], row: int, item: ReadItem | Failed, *, is_last: bool
    ) -> None:
        """Add an item for the backbones with these names, and embed batches that are full.

        After the last item of a group, embed all batches, so that a resumed run forms the same.
        """
        begin = time.monotonic()
        for name in names:
            if isinstance(item, Failed) or name in item.failures:
                failed = item if isinstance(item, Failed) else item.failures[name]
                self._outcomes[name][row] = failed
            else:
                # Pop the input, so that it is freed once its backbone has used it.
                value = item.inputs.pop(name)
                self._pending[name, isinstance(value, str)].append((row, value, item))
        for (name, _), pending in self._pending.items():
            if pending and (len(pending) >= self._forwards[name].batch or is_last):
                batch = list(pending)
                pending.clear()
                self._start(name, batch)
        if is_last:
            self.collect()
        self.seconds += time.monotonic() - begin

    def collect(self) -> bool:
        """Wait for the running batch; return False if no batch is running."""
        if not self._running:
            return False
        name, batch, finish = self._running
        for (row, item), values in zip(batch, finish(), strict=True):
            self._outcomes[name][row] = Done({**values, **item.sampled.get(name, {})}, item.source)
        self._running = None  # only now, because Ctrl-C during the wait must not lose the batch
        return True

    def take(self) -> dict[str, dict[int, Done | Failed]]:
        """Return the outcomes since the last call, by store and row."""
        outcomes = {name: rows for name, rows in self._outcomes.items() if rows}
        self._outcomes = {name: {} for name in self._forwards}
        return outcomes

    def _start(self, name: str, batch: list[_Pending]) -> None:
        """Start a batch, and only then wait for the previous one, so that a GPU is never idle."""
        backbone = self._forwards[name].backbone
        inputs: list[Any] = [value for _, value, _ in batch]
        for event in {event for _, _, item in batch for event in item.uploads}:
            torch.cuda.current_stream(backbone.device).wait_event(event)
        finish = self._forwards[name].start(inputs, self.collect)
        self.collect()
        # The inputs are dropped, so that a GPU frees their memory after the batch.
        self._running = name, [(row, item) for row, _, item in batch], finish
        if isinstance(inputs[0], str):
            counts = backbone.tokenizer.count(inputs)
            self.cut |= {
                row: count
                for (row, _, _), count in zip(batch, counts, strict=True)
                if count > backbone.tokenizer.max_tokens
            }
