"""The main loop of an extraction: read, embed and commit each block."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import default_workers
from obygaze_features.backbones.preprocess import resize_and_crop
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
    error, the finished rows of the last block are committed, too.
    """
    items = job.manifest.items
    reader = ItemReader(job.media, backbones)
    embedder = Embedder(backbones, job.options.batch)

    def read(decoder: Decoder, task: tuple[Block, int]) -> ReadItem:
        block, row = task
        return reader.read(decoder, items[row], block.names(row))

    workers = job.options.workers or default_workers(backbones[0].device)
    to_do = [(block, row) for block in job.blocks for row in block.rows]
    ahead = min(READ_AHEAD, READ_AHEAD_BYTES // bytes_per_item(backbones))
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(1, "write") as thread,
        meter(len(to_do), "Extracting", unit="item") as advance,
        Decoders(workers, job.options.stall_timeout) as decoders,
        contextlib.closing(decoders.map(read, to_do, ahead=ahead)) as reading,
    ):
        # Warnings about images that can be read would clutter the progress output.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        commit: Future[None] = thread.submit(write, {}, {})
        progress.work_begin = begin = time.monotonic()
        try:
            for (block, row), item in reading:
                progress.decode += time.monotonic() - begin
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
    """Return the size of an item's frames and windows of sound in memory."""
    total = 1
    for backbone in backbones:
        total += backbone.sampling.frames * one_input(backbone).nbytes
    return total


def one_input(backbone: Backbone) -> Tensor:
    """Return a black frame or a silent window of sound, as the backbone takes it."""
    sampling = backbone.sampling
    if isinstance(sampling, SoundSampling):
        silence = np.zeros(round(sampling.window * sampling.rate), np.float32)
        windows: Tensor = backbone.preprocessing.inputs(silence)
        return windows
    frame = torch.zeros(1, 240, 320, 3, dtype=torch.uint8)
    return resize_and_crop(frame, backbone.preprocessing)


def write(writers: Mapping[str, StoreWriter], outcomes: Outcomes) -> None:
    """Commit the outcomes of a block to its stores."""
    for name, rows in outcomes.items():
        writer = writers[name]
        blocks: dict[int, dict[int, Done | Failed]] = defaultdict(dict)
        for row, outcome in rows.items():
            blocks[row // writer.store.block_rows][row] = outcome
        for number, block in blocks.items():
            writer.rewrite(number, block)
