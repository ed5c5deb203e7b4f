"""The main loop of an extraction: read, embed and commit each block."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import default_workers
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.common.progress import meter
from obygaze_features.extraction.decoder import Decoder, Decoders
from obygaze_features.extraction.forward import Embedder
from obygaze_features.extraction.job import Block, Job
from obygaze_features.extraction.reader import ItemReader, ReadItem
from obygaze_features.extraction.summary import Progress
from obygaze_features.store import Done, Failed, StoreWriter

READ_AHEAD = 16
READ_AHEAD_BYTES = 2 * 2**30
"""The number of items that may be read ahead, in addition to one per worker, and their size."""

Outcomes = Mapping[str, Mapping[int, Done | Failed]]
"""The outcome of each row, by store name."""


def run_local(
    job: Job,
    backbones: Sequence[Backbone],
    writers: Mapping[str, StoreWriter],
    progress: Progress,
) -> None:
    """Compute the blocks of a job on this machine.

    Processes decode clips. Threads read images, and resize frames for each backbone. The calling
    thread embeds, and another thread commits each block while the next one is computed. After an
    error or when time is up, the finished rows of the last block are committed, too.
    """
    items = job.manifest.items
    reader = ItemReader(job.media, backbones)
    embedder = Embedder(backbones, job.options.batch)

    def read(decoder: Decoder, task: tuple[Block, int]) -> ReadItem | Failed:
        block, row = task
        return reader.read(decoder, items[row], block.names(row))

    workers = job.options.workers or default_workers(backbones[0].device)
    to_do = sum(len(block.rows) for block in job.blocks)
    ahead = min(READ_AHEAD, READ_AHEAD_BYTES // bytes_per_item(backbones))
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(1, "write") as thread,
        meter(to_do, "Extracting", unit=job.noun) as advance,
        Decoders(workers, job.options.stall_timeout) as decoders,
        contextlib.closing(decoders.map(read, rows_to_do(job, progress), ahead=ahead)) as reading,
    ):
        # Warnings about images that can be read would clutter the progress output.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        commit: Future[None] = thread.submit(write, {}, {})
        progress.work_begin = begin = time.monotonic()
        try:
            for (block, row), item in reading:
                progress.decode += time.monotonic() - begin
                if progress.is_over():
                    break
                progress.count(item)

                embedder.add(block.names(row), row, item)
                embedder.run(is_last=row in block.last_rows)
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
                progress.batches = embedder.batches
                progress.notes += embedder.notes
                last_commit = thread.submit(write, writers, embedder.take())
        commit.result()
        last_commit.result()


def bytes_per_item(backbones: Sequence[Backbone]) -> int:
    """Return the size of an item's frames, as bytes, and of its sound."""
    total = 1
    for backbone in backbones:
        sampling = backbone.sampling
        if isinstance(sampling, SoundSampling):
            total += 4 * sampling.frames * round(sampling.window * sampling.rate)
        else:
            height, width = backbone.preprocessing.crop
            total += sampling.frames * 3 * height * width
    return total


def rows_to_do(job: Job, progress: Progress) -> Iterator[tuple[Block, int]]:
    """Yield the rows that any store lacks, block by block, as long as time allows."""
    for block in job.blocks:
        if not progress.has_time_for(len(block.rows)):
            return
        progress.started += len(block.rows)
        for row in block.rows:
            yield block, row


def write(writers: Mapping[str, StoreWriter], outcomes: Outcomes) -> None:
    """Commit the outcomes of a block to its stores."""
    for name, rows in outcomes.items():
        writer = writers[name]
        writer.rewrite(min(rows) // writer.store.block_rows, rows)
