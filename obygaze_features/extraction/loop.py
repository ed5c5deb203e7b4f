"""The main loop of an extraction: read, embed and commit each block."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import default_workers, spare_memory
from obygaze_features.common.progress import meter
from obygaze_features.extraction.decoder import Decoder, Decoders, MemoryBudget
from obygaze_features.extraction.forward import Embedder, Forward
from obygaze_features.extraction.job import Block, Job, Options
from obygaze_features.extraction.reader import ItemReader, ReadItem, size_of
from obygaze_features.extraction.summary import Progress
from obygaze_features.extraction.uploads import no_uploads
from obygaze_features.items.items import Item
from obygaze_features.store import Done, Failed, StoreWriter

READ_AHEAD = 16
"""The number of items that may be read ahead, in addition to one per worker."""
READ_AHEAD_SHARE = 0.25
"""The share of free memory (on the device with the least) that items read ahead may take."""
MAX_WAITING_BLOCKS = 2
"""The number of blocks that may wait to be written; `BlockWriter` waits if there are more."""

Outcomes = Mapping[str, Mapping[int, Done | Failed]]
"""The outcome of each row, by store name."""


def run_local(
    job: Job,
    backbones: Sequence[Backbone],
    writers: Mapping[str, StoreWriter],
    progress: Progress,
) -> None:
    """Compute the blocks of a job on this machine."""
    workers = job.options.workers or default_workers(backbones[0].device)
    with (
        warnings.catch_warnings(),
        commit_blocks(job, writers, progress) as (pieces, writer, report),
        Decoders(workers, job.options.stall_timeout) as decoders,
    ):
        extractor = Extractor(backbones, job.media, job.options, decoders)
        # Warnings about images that can be read would clutter the progress output.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        extractor.embed(pieces, job.manifest.items.__getitem__, progress, writer.add, report)


@contextlib.contextmanager
def commit_blocks(
    job: Job, writers: Mapping[str, StoreWriter], progress: Progress
) -> Iterator[tuple[Iterator[Block], BlockWriter, Callable[[int], None]]]:
    """Commit the outcomes of blocks while the ``with`` block runs.

    Yields an iterator over the pieces of the blocks; the writer that takes the outcomes; and a
    function to report how many more items are done.
    """
    with (
        BlockWriter(writers, progress) as writer,
        meter(sum(len(block.rows) for block in job.blocks), "Extracting", unit=job.noun) as advance,
    ):
        progress.work_begin = time.monotonic()

        def pieces() -> Iterator[Block]:
            for block in blocks_to_do(job, writers, progress):
                writer.begin(block)
                yield from block.pieces()

        def report(items: int) -> None:
            advance(items, progress.note())

        yield pieces(), writer, report


def blocks_to_do(
    job: Job, writers: Mapping[str, StoreWriter], progress: Progress
) -> Iterator[Block]:
    """Yield the blocks that lack rows, one by one, as long as time allows."""
    retry_failed = job.options.retry_failed
    for block in job.blocks:
        if not progress.has_time_for(len(block.rows)):
            return

        # The rows may have been written since the job was planned.
        missing = {}
        for name, rows in block.missing.items():
            left = writers[name].missing_in_block(block.number, rows, retry_failed=retry_failed)
            if left:
                missing[name] = left

        if missing:
            left_to_do = Block(block.number, missing)
            progress.started += len(left_to_do.rows)
            yield left_to_do


class Extractor:
    """An object that reads items and embeds them with backbones on their devices.

    Processes decode clips, and threads read images. Threads also move frames to the device and
    resize them for each backbone. The calling thread embeds. The amount read ahead is bounded.
    """

    def __init__(
        self,
        backbones: Sequence[Backbone],
        media: Path | None,
        options: Options,
        decoders: Decoders,
    ) -> None:
        self._reader = ItemReader(media, backbones)
        alone = partial(no_uploads, self._reader.resizers.values())
        self._forwards = {
            backbone.name: Forward(backbone, options.batch, alone) for backbone in backbones
        }
        self._decoders = decoders
        self._embedding = threading.Lock()
        spare = min(spare_memory(device) for device in self._reader.resizers)
        self._budget = MemoryBudget(READ_AHEAD_SHARE * spare, self._reader.most_bytes)

    def embed(
        self,
        pieces: Iterable[Block],
        item_of: Callable[[int], Item],
        progress: Progress,
        deliver: Callable[[Block, Outcomes], None],
        report: Callable[[int], None] = lambda items: None,
    ) -> None:
        """Read and embed pieces of blocks, and pass the outcomes of each piece to `deliver`.

        After an error or when time is up, the finished part of a piece is delivered, too. Two
        threads may call this: while one embeds, items are read for the other.
        """

        def read(decoder: Decoder, task: tuple[Block, int]) -> ReadItem | Failed:
            piece, row = task
            return self._reader.read(decoder, item_of(row), piece.names(row))

        rows = ((piece, row) for piece in pieces for row in piece.rows)
        embedder = Embedder(self._forwards)
        progress.read_ahead_bytes = int(self._budget.limit)
        reading = self._decoders.map(
            read, rows, ahead=READ_AHEAD, size_of=size_of, budget=self._budget
        )
        with contextlib.closing(reading) as read_items, self._embedding:
            piece, begin = None, time.monotonic()
            try:
                for (piece, row), item in read_items:
                    progress.decode += time.monotonic() - begin
                    if progress.is_over():
                        break
                    progress.items += 1
                    if not isinstance(item, Failed):
                        progress.counts += item.counts
                    computed = embedder.add(piece, row, item)
                    progress.device = embedder.seconds
                    if row == piece.rows[-1]:
                        deliver(piece, embedder.take())
                    report(computed)
                    begin = time.monotonic()
            finally:
                try:
                    embedder.collect()
                finally:
                    if piece and (outcomes := embedder.take()):
                        deliver(piece, outcomes)
                    progress.batches = embedder.batches
                    for row, count in embedder.cut.items():
                        progress.counts.cut[item_of(row).id] = count


@dataclass
class _Begun:
    """A block whose rows have not all been computed yet."""

    block: Block
    left: set[int]
    outcomes: dict[str, dict[int, Done | Failed]] = field(default_factory=dict)


class BlockWriter:
    """A writer that collects outcomes and commits each complete block.

    Leaving the ``with`` block, even after an error, also commits the finished rows of incomplete
    blocks and waits for this, so no computed row is lost.
    """

    def __init__(self, writers: Mapping[str, StoreWriter], progress: Progress) -> None:
        self._writers = writers
        self._progress = progress
        self._thread = ThreadPoolExecutor(1, "write")
        self._waiting: deque[Future[None]] = deque()
        self._begun: dict[int, _Begun] = {}

    def __enter__(self) -> BlockWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for begun in self._begun.values():
                if begun.outcomes:
                    self._submit(begun)
        finally:
            self._thread.shutdown()
        if kind is None:
            for commit in self._waiting:
                commit.result()

    def begin(self, block: Block) -> None:
        """Start collecting the outcomes of a block."""
        self._begun[block.number] = _Begun(block, set(block.rows))

    def add(self, piece: Block, outcomes: Outcomes) -> None:
        """Add the outcomes of a piece of a block; raise the error of an earlier commit, if any."""
        begun = self._begun[piece.number]
        for name, rows in outcomes.items():
            begun.outcomes.setdefault(name, {}).update(rows)
        begun.left.difference_update(piece.rows)
        if not begun.left:
            self._submit(self._begun.pop(piece.number))

    def _submit(self, begun: _Begun) -> None:
        begin = time.perf_counter()
        while len(self._waiting) > MAX_WAITING_BLOCKS or (
            self._waiting and self._waiting[0].done()
        ):
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(self._commit, begun))
        self._progress.write += time.perf_counter() - begin

    def _commit(self, begun: _Begun) -> None:
        number = begun.block.number
        for name, rows in begun.outcomes.items():
            writer = self._writers[name]
            if writer.is_written(number):
                writer.rewrite(number, rows)
            else:
                writer.write_block(number, [rows.get(row) for row in writer.rows_of(number)])
