"""Images and texts into stores: read in threads, embedded a block at a time, written."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from obygaze_features.backbones import Towers
from obygaze_features.backbones.devices import free_memory, is_out_of_memory
from obygaze_features.backbones.preprocess import normalise
from obygaze_features.common.progress import meter
from obygaze_features.errors import BackboneError
from obygaze_features.extraction.decoders import default_workers
from obygaze_features.extraction.engines.job import Job
from obygaze_features.extraction.pipeline import fill
from obygaze_features.extraction.plan import EVERYTHING, Claimed, Errand, Wanted, check_items
from obygaze_features.extraction.stills import Still, StillReader
from obygaze_features.extraction.summary import Summary
from obygaze_features.extraction.writing import Writing
from obygaze_features.manifests import Item, Manifest
from obygaze_features.store import Done, Failed, Status
from obygaze_features.store.format import BLOCK_ROWS

__all__ = ["KINDS", "embed"]

KINDS = ("image", "text")
AHEAD = 2
"""Blocks whose images are read while one is embedded."""

Read = Still | Failed | str
"""What is embedded, an image or a text; or why it cannot be."""
Thing = TypeVar("Thing")


def embed(
    manifest: Manifest,
    towers: Sequence[Towers],
    output: Path,
    *,
    images: Path = Path(),
    wanted: Wanted = EVERYTHING,
    batch: int | None = None,
    workers: int | None = None,
    max_hours: float | None = None,
) -> Summary:
    """Embed a manifest's images and texts into one store a pair of towers.

    As `extract` does it with clips: what cannot be read is recorded with the reason, stores that
    exist are gone on with, and several calls may fill them at the same time.

    Parameters
    ----------
    manifest
        Images, texts, or both.
    towers
        From `load_towers`. Each image is read once for all of them.
    output, wanted, max_hours
        As in `extract`.
    images
        The folder of the images' files; not looked at where there are only texts.
    batch
        Images, or texts, at a time; by default as many as a block has.
    workers
        Threads that read images; by default one a core, but for one.
    """
    check_items(manifest, KINDS)
    return fill(
        manifest,
        images,
        towers,
        output,
        wanted=wanted,
        batch=batch,
        workers=workers,
        max_hours=max_hours,
        engine=_embed_here,
    )


def _embed_here(job: Job) -> None:
    """Do a job in this process."""
    claimed = Claimed(list(job.lanes.values()))
    total = sum(len(errand.rows) for errand in job.todo)
    towers = {one.name: one for one in job.towers}
    embedder = _Embedder(job.batch or BLOCK_ROWS)
    with (
        warnings.catch_warnings(),
        claimed.kept(),
        Writing(job.lanes, claimed.release) as writing,
        ThreadPoolExecutor(job.workers or default_workers(), "read") as pool,
        meter(total, "Embedding", unit="item") as advance,
    ):
        # What is odd about a file that can be read is not to come between.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        begin = time.monotonic()
        for errand, read in _ahead(job, claimed, pool):
            job.tally.decode += time.monotonic() - begin
            if job.is_over():
                pool.shutdown(cancel_futures=True)
                return
            begin = time.monotonic()
            outcomes = {
                name: embedder.block(towers[name], {row: read[row] for row in rows})
                for name, rows in errand.wanted.items()
            }
            job.tally.device += time.monotonic() - begin
            _count(job, errand, read)
            writing.bring(errand, outcomes)
            job.tally.write = writing.waited
            job.batches = dict.fromkeys(towers, embedder.batch)
            advance(len(errand.rows), job.words())
            begin = time.monotonic()


def _ahead(
    job: Job, claimed: Claimed, pool: ThreadPoolExecutor
) -> Iterator[tuple[Errand, dict[int, Read]]]:
    """The blocks in turn, with what is in them; the images of those to come are being read."""
    reader = StillReader(job.videos, job.towers)

    def read(item: Item) -> Read:
        if item.kind == "image":
            return reader.read(item)
        return item.text if item.text.strip() else Failed(Status.UNREADABLE, "the text is empty")

    waiting: deque[tuple[Errand, dict[int, Future[Read]]]] = deque()
    coming = job.errands(claimed)
    while True:
        while len(waiting) <= AHEAD and (errand := next(coming, None)):
            items = {row: job.manifest.items[row] for row in errand.rows}
            waiting.append((errand, {row: pool.submit(read, one) for row, one in items.items()}))
        if not waiting:
            return
        errand, futures = waiting.popleft()
        yield errand, {row: one.result() for row, one in futures.items()}


def _count(job: Job, errand: Errand, read: Mapping[int, Read]) -> None:
    """Note a block in the tally, and which of its texts are too long."""
    job.tally.clips += len(read)
    job.tally.frames += sum(isinstance(one, Still) for one in read.values())
    for one in job.towers:
        texts = {row: read[row] for row in errand.wanted.get(one.name, ())}
        rows = [row for row, text in texts.items() if isinstance(text, str)]
        if rows:
            counts = one.count_tokens([str(texts[row]) for row in rows])
            job.tally.cut |= {
                job.manifest.ids[row]: count
                for row, count in zip(rows, counts, strict=True)
                if count > one.longest
            }


class _Embedder:
    """Embeds in batches, and in smaller ones where memory does not reach."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def block(self, towers: Towers, read: Mapping[int, Read]) -> dict[int, Done | Failed]:
        """What becomes of the rows of a block."""

        def see(stills: Sequence[Still]) -> Tensor:
            pixels = torch.stack([one.pixels[towers.name] for one in stills])
            return towers.embed_images(normalise(pixels, towers.preprocessing))

        outcomes: dict[int, Done | Failed] = {
            row: one for row, one in read.items() if isinstance(one, Failed)
        }
        stills = {row: one for row, one in read.items() if isinstance(one, Still)}
        texts = {row: one for row, one in read.items() if isinstance(one, str)}
        for row, value in self._run(towers, see, stills):
            outcomes[row] = Done({"native": value.numpy()}, stills[row].source)
        for row, value in self._run(towers, towers.embed_texts, texts):
            outcomes[row] = Done({"native": value.numpy()}, None)
        return outcomes

    def _run(
        self, towers: Towers, do: Callable[[Sequence[Thing]], Tensor], things: Mapping[int, Thing]
    ) -> Iterator[tuple[int, Tensor]]:
        rows = list(things)
        while rows:
            some = rows[: self.batch]
            try:
                values = do([things[row] for row in some]).cpu()
            except (RuntimeError, MemoryError) as problem:
                if not is_out_of_memory(problem):
                    raise
                if len(some) == 1:
                    raise BackboneError(
                        f"the memory of {towers.device} does not hold one item of {towers.name}; "
                        "try --precision bfloat16, or another --device"
                    ) from None
                self.batch = len(some) // 2
                free_memory(towers.device)
                continue
            yield from zip(some, values, strict=True)
            rows = rows[len(some) :]
