"""The main loop of an extraction: read, embed and commit each block."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import default_workers, keep_freed_memory
from obygaze_features.common.progress import meter
from obygaze_features.extraction.decoder import Decoder, Decoders
from obygaze_features.extraction.forward import EmbeddedRows, Embedder
from obygaze_features.extraction.job import Job
from obygaze_features.extraction.probe import probe_input
from obygaze_features.extraction.reader import ItemReader, ReadItem
from obygaze_features.extraction.summary import Summary
from obygaze_features.store import StoreWriter
from obygaze_features.store.format import BLOCK_ROWS

READ_AHEAD = 8
READ_AHEAD_BYTES = 2 * 2**30
"""The number of items per worker that may be read ahead, besides the one it reads; their size."""


def run_local(
    job: Job,
    backbones: Sequence[Backbone],
    writers: Mapping[str, StoreWriter],
    summary: Summary,
) -> None:
    """Compute the blocks of a job on this machine.

    Processes decode clips. Threads read images, and resize frames for each backbone. The calling
    thread embeds, and another thread awaits the last batch of each block and commits it, while the
    next block is computed. After an error, the finished rows of the last block are still committed.
    """
    if backbones[0].device == "cpu":
        keep_freed_memory()
    items = job.manifest.items
    reader = ItemReader(job.media, backbones)
    embedder = Embedder(backbones, job.options.batch)

    def read(decoder: Decoder, row: int) -> ReadItem:
        return reader.read(decoder, items[row], job.to_do[row])

    workers = job.options.workers or default_workers(backbones[0].device)
    last_of_blocks = job.last_rows(job.block_rows)
    last_of_groups = job.last_rows(BLOCK_ROWS)
    ahead = min(READ_AHEAD * workers, READ_AHEAD_BYTES // bytes_per_item(backbones))
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(1, "write") as thread,
        meter(len(job.to_do), "Extracting", unit="item") as advance,
        Decoders(workers, job.options.stall_timeout) as decoders,
    ):
        # Warnings about images that can be read would clutter the progress output.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        commit = thread.submit(write, writers, embedder.take())  # nothing is pending yet
        try:
            for row, item in decoders.map(read, job.to_do, ahead=ahead):
                summary.lap("decode")

                # Batches do not span groups of rows, so that a resumed run forms the same batches.
                embedder.add(job.to_do[row], row, item)
                embedder.run(is_last=row in last_of_groups)
                summary.lap("device")

                if row in last_of_blocks:
                    commit.result()
                    commit = thread.submit(write, writers, embedder.take())
                    summary.lap("write")
                summary.clips += 1
                summary.frames += item.frames
                summary.notes.update(item.notes)
                advance(1, summary.note())
        finally:
            summary.batches = embedder.batches
            last_commit = thread.submit(write, writers, embedder.take())
        commit.result()
        last_commit.result()
        summary.lap("write")


def bytes_per_item(backbones: Sequence[Backbone]) -> int:
    """Return the size of an item's frames and windows of sound in memory."""
    total = 1
    for backbone in backbones:
        if backbone.clip:
            frame = probe_input(backbone.clip, frames=1)[0]
            total += backbone.clip.sampling.frames * frame.nbytes
    return total


def write(writers: Mapping[str, StoreWriter], results: EmbeddedRows) -> None:
    """Commit the outcomes of a block to its stores, after its last batch."""
    try:
        results.collect()
    finally:
        for name, rows in results.outcomes.items():
            writers[name].write_rows(rows)
