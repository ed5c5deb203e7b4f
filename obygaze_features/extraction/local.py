"""The extraction of items on this machine: read ahead of the device, computed in batches, written.

Processes decode clips (threads read images); threads take the frames to the device and resize them
for each backbone; the caller's thread runs the backbones; another thread writes. The items in
between are bounded, however many there are.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from obygaze_features.backbones.devices import default_workers
from obygaze_features.common.progress import Advance, meter
from obygaze_features.errors import BrokenBackbone
from obygaze_features.extraction.decode_pool import DecodePool, Decoder
from obygaze_features.extraction.forward import Forward, Rows
from obygaze_features.extraction.plan import BlockTask
from obygaze_features.extraction.readers import ItemReader, ReadItem
from obygaze_features.extraction.run import ExtractionRun
from obygaze_features.extraction.writer_thread import BlockWriterThread
from obygaze_features.store import Done, Failed
from obygaze_features.store.claims import BlockClaims

READ_AHEAD = 16
"""Items, beside one a worker, that may be read before they are needed."""


@dataclass(frozen=True)
class _ItemTask:
    """An item to read, for the stores that lack it."""

    block: BlockTask
    row: int

    @property
    def is_last(self) -> bool:
        return self.row == self.block.rows[-1]


@dataclass(frozen=True)
class _Pending:
    """A backbone's input that waits for its batch."""

    row: int
    input: Tensor | str
    item: ReadItem


def run_local(run: ExtractionRun) -> None:
    """Extract in this process and its decoders."""
    local = _LocalRun(run)
    try:
        local.work()
    finally:
        run.batches = {name: forward.batch for name, forward in local.forwards.items()}


class _LocalRun:
    def __init__(self, run: ExtractionRun) -> None:
        self.run = run
        self.forwards = {
            backbone.name: Forward(backbone, run.options.batch) for backbone in run.backbones
        }
        self._reader = ItemReader(run.media, run.backbones, run.options.cache)
        self._block: BlockTask | None = None
        self._pending: dict[tuple[str, bool], list[_Pending]] = defaultdict(list)
        self._running: tuple[str, list[_Pending], Callable[[], Rows]] | None = None
        self._outcomes: dict[str, dict[int, Done | Failed]] = {name: {} for name in run.targets}

    def work(self) -> None:
        """Compute the missing blocks, as time and other runs allow."""
        run = self.run
        claims = run.claims()
        workers = run.options.workers or default_workers(run.backbones[0].device)
        pool = DecodePool(workers, stall_timeout=run.options.stall_timeout)
        with (
            warnings.catch_warnings(),
            claims.heartbeat(),
            BlockWriterThread(run.targets, claims) as writer,
            contextlib.closing(
                pool.map(self._read, self._item_tasks(claims), ahead=READ_AHEAD + workers)
            ) as items,
            meter(run.item_count, "Extracting", unit=run.noun) as advance,
        ):
            # Oddities of images that can be read would come between lines of progress.
            warnings.filterwarnings("ignore", module=r"PIL\.")
            try:
                self._compute(items, writer, advance)
            finally:
                # What is computed of a block is kept, even after an error.
                try:
                    self._collect()
                finally:
                    if self._block and any(self._outcomes.values()):
                        writer.submit(self._block, self._take_outcomes())

    def _item_tasks(self, claims: BlockClaims) -> Iterator[_ItemTask]:
        for block in self.run.tasks(claims):
            yield from (_ItemTask(block, row) for row in block.rows)

    def _read(self, decoder: Decoder, task: _ItemTask) -> ReadItem | Failed:
        item = self.run.manifest.items[task.row]
        return self._reader.read(decoder, item, task.block.names(task.row))

    def _compute(
        self,
        items: Iterator[tuple[_ItemTask, ReadItem | Failed]],
        writer: BlockWriterThread,
        advance: Advance,
    ) -> None:
        tally, begin = self.run.tally, time.monotonic()
        for task, item in items:
            tally.decode += time.monotonic() - begin
            if self.run.is_over():
                return
            self._block = task.block
            before = self._computed()
            self._add(task, item)
            computed = self._computed() - before
            if task.is_last:
                writer.submit(task.block, self._take_outcomes())
            tally.device = sum(forward.seconds for forward in self.forwards.values())
            tally.write = writer.waited_s
            advance(computed, self.run.progress_note())
            begin = time.monotonic()

    def _computed(self) -> int:
        """The items of the current block that every backbone has computed."""
        if self._block is None:
            return 0
        names = self._block.missing.keys() - self.run.broken.reasons
        return min((len(self._outcomes[name]) for name in names), default=0)

    def _add(self, task: _ItemTask, item: ReadItem | Failed) -> None:
        """Queue an item for its backbones, and run those whose batch is full."""
        self.run.tally.count(item)
        for name in task.block.names(task.row):
            if name in self.run.broken.reasons:
                continue
            if isinstance(item, Failed):
                self._outcomes[name][task.row] = item
            else:
                # Popped, so that a backbone that is done frees its input.
                value = item.inputs.pop(name)
                self._pending[name, isinstance(value, str)].append(_Pending(task.row, value, item))
        for (name, _), pending in self._pending.items():
            # Batches never cross blocks, so a resumed run forms the same batches.
            if pending and (len(pending) >= self.forwards[name].batch or task.is_last):
                batch = list(pending)
                pending.clear()
                self._forward(name, batch)
        if task.is_last:
            self._collect()

    def _forward(self, name: str, batch: list[_Pending]) -> None:
        """Start a batch, and only then wait for the one before, so that a GPU is never idle."""
        if name in self.run.broken.reasons:
            return
        backbone = self.forwards[name].backbone
        inputs: list[Any] = [entry.input for entry in batch]
        for event in {event for entry in batch for event in entry.item.uploads}:
            torch.cuda.current_stream(backbone.device).wait_event(event)
        try:
            finish = self.forwards[name].start(inputs, self._collect)
        except BrokenBackbone as problem:
            self.run.broken.add(name, problem)
            return
        self._collect()
        self._running = name, batch, finish
        if isinstance(inputs[0], str):
            counts = backbone.tokenizer.count(inputs)
            self.run.tally.cut |= {
                self.run.manifest.ids[entry.row]: count
                for entry, count in zip(batch, counts, strict=True)
                if count > backbone.tokenizer.max_tokens
            }

    def _collect(self) -> bool:
        """Wait for the batch that is running; False if there is none."""
        if not self._running:
            return False
        name, batch, finish = self._running
        for entry, values in zip(batch, finish(), strict=True):
            sampled = entry.item.sampled.get(name, {})
            self._outcomes[name][entry.row] = Done({**values, **sampled}, entry.item.source)
        self._running = None  # only now: Ctrl-C while we wait must not lose the batch
        return True

    def _take_outcomes(self) -> dict[str, dict[int, Done | Failed]]:
        outcomes = {name: rows for name, rows in self._outcomes.items() if rows}
        self._outcomes = {name: {} for name in self.run.targets}
        return outcomes
