"""The main loop of an extraction: read, embed and commit each block."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import default_workers, spare_memory
from obygaze_features.common.progress import meter
from obygaze_features.extraction.decoder import Decoder, Decoders, MemoryBudget
from obygaze_features.extraction.forward import Embedder, Forward
from obygaze_features.extraction.job import Block, Job
from obygaze_features.extraction.reader import ItemReader, ReadItem, size_of
from obygaze_features.extraction.summary import Progress
from obygaze_features.extraction.uploads import no_uploads
from obygaze_features.store import Done, Failed, StoreWriter

READ_AHEAD = 16
"""The number of items that may be read ahead, in addition to one per worker."""
READ_AHEAD_SHARE = 0.25
"""The share of free memory (on the device with the least) that items read ahead may take."""

Outcomes = Mapping[str, Mapping[int, Done | Failed]]
"""The outcome of each row, by store name."""


def run_local(
    job: Job,
    backbones: Sequence[Backbone],
    writers: Mapping[str, StoreWriter],
    progress: Progress,
) -> None:
    """Compute the blocks of a job on this machine.

    Processes decode clips, and threads read images. Threads also move frames to the device and
    resize them for each backbone. The calling thread embeds, and another thread writes the blocks.
    """
    options = job.options
    items = job.manifest.items
    reader = ItemReader(job.media, backbones)
    alone = partial(no_uploads, reader.resizers.values())
    embedder = Embedder({b.name: Forward(b, options.batch, alone) for b in backbones})
    spare = min(spare_memory(device) for device in reader.resizers)
    budget = MemoryBudget(READ_AHEAD_SHARE * spare, reader.most_bytes)
    progress.read_ahead_bytes = int(budget.limit)

    def read(decoder: Decoder, task: tuple[Block, int]) -> ReadItem | Failed:
        block, row = task
        return reader.read(decoder, items[row], block.names(row))

    workers = options.workers or default_workers(backbones[0].device)
    to_do = sum(len(block.rows) for block in job.blocks)
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(1, "write") as thread,
        meter(to_do, "Extracting", unit=job.noun) as advance,
        Decoders(workers, options.stall_timeout) as decoders,
    ):
        # Warnings about images that can be read would clutter the progress output.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        progress.work_begin = time.monotonic()
        reading = decoders.map(
            read, rows_to_do(job, progress), ahead=READ_AHEAD, size_of=size_of, budget=budget
        )
        with contextlib.closing(reading):
            try:
                embed(reading, embedder, writers, progress, thread, advance)
            finally:
                progress.batches = embedder.batches
                for row, count in embedder.cut.items():
                    progress.counts.cut[items[row].id] = count


def rows_to_do(job: Job, progress: Progress) -> Iterator[tuple[Block, int]]:
    """Yield the rows that any store lacks, block by block, as long as time allows."""
    for block in job.blocks:
        if not progress.has_time_for(len(block.rows)):
            return
        progress.started += len(block.rows)
        for row in block.rows:
            yield block, row


def embed(
    reading: Iterable[tuple[tuple[Block, int], ReadItem | Failed]],
    embedder: Embedder,
    writers: Mapping[str, StoreWriter],
    progress: Progress,
    thread: ThreadPoolExecutor,
    advance: Callable[..., None],
) -> None:
    """Embed items while they are read, and commit each block while the next one is computed.

    After an error or when time is up, the finished rows of the last block are committed, too.
    """
    commit: Future[None] = thread.submit(write, {}, {})
    begin = time.monotonic()
    try:
        for (block, row), item in reading:
            progress.decode += time.monotonic() - begin
            if progress.is_over():
                break
            progress.items += 1
            if not isinstance(item, Failed):
                progress.counts += item.counts

            embedder.add(block.names(row), row, item, is_last=row in block.last_rows)
            progress.device = embedder.seconds

            if row == block.rows[-1]:
                begin = time.monotonic()
                commit.result()
                commit = thread.submit(write, writers, embedder.take())
                progress.write += time.monotonic() - begin
            advance(1, progress.note())
            begin = time.monotonic()
    finally:
        try:
            embedder.collect()
        finally:
            last_commit = thread.submit(write, writers, embedder.take())
    commit.result()
    last_commit.result()


def write(writers: Mapping[str, StoreWriter], outcomes: Outcomes) -> None:
    """Commit the outcomes of a block to its stores."""
    for name, rows in outcomes.items():
        writer = writers[name]
        writer.rewrite(min(rows) // writer.store.block_rows, rows)
