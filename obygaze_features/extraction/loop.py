"""The loop that makes blocks: claim, read, embed, commit, release."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import default_workers
from obygaze_features.common.progress import meter
from obygaze_features.extraction.decoder import Decoder, Decoders
from obygaze_features.extraction.forward import Embedder, Forward
from obygaze_features.extraction.job import Block, Job, Options
from obygaze_features.extraction.progress import BrokenBackbones, Progress
from obygaze_features.extraction.reader import ItemReader, ReadItem
from obygaze_features.extraction.uploads import no_uploads
from obygaze_features.extraction.write import BlockWriter, Outcomes
from obygaze_features.items.items import Item
from obygaze_features.store import Failed, StoreWriter
from obygaze_features.store.claims import BlockClaims

READ_AHEAD = 16
"""Items, beside one per worker, that may be read before they are needed."""


def run_local(
    job: Job,
    backbones: Sequence[Backbone],
    writers: Mapping[str, StoreWriter],
    progress: Progress,
) -> None:
    """Compute the blocks of a job on this machine."""
    with (
        warnings.catch_warnings(),
        commit_blocks(job, writers, progress) as (pieces, writer, report),
        Extractor(backbones, job.media, job.options, progress.broken) as extractor,
    ):
        # Oddities of images that can be read would come between lines of progress.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        extractor.embed(pieces, job.manifest.items.__getitem__, progress, writer.add, report)


@contextlib.contextmanager
def commit_blocks(
    job: Job, writers: Mapping[str, StoreWriter], progress: Progress
) -> Iterator[tuple[Iterator[Block], BlockWriter, Callable[[int], None]]]:
    """Claim blocks while the ``with`` block runs, and commit what is computed of them.

    Yields the pieces of the blocks, each claimed when it is requested; the writer that takes their
    outcomes; and the function that reports how many more items are done.
    """
    claims = BlockClaims(writers)
    with (
        claims.heartbeat(),
        BlockWriter(writers, claims, progress) as writer,
        meter(sum(len(block.rows) for block in job.blocks), "Extracting", unit=job.noun) as advance,
    ):
        progress.start_work()

        def pieces() -> Iterator[Block]:
            for block in claim(job, claims, progress):
                writer.begin(block)
                yield from block.pieces()

        def report(items: int) -> None:
            advance(items + progress.take_passed(), progress.note())

        yield pieces(), writer, report


def claim(job: Job, claims: BlockClaims, progress: Progress) -> Iterator[Block]:
    """Yield the blocks that time allows, each claimed when it is requested.

    Blocks that other runs have are tried again at the end: these may have released them or died.
    """
    taken: list[Block] = []
    for block in job.blocks:
        if not progress.has_time_for(len(block.rows)):
            return
        if claimed := _claim(block, claims, progress, retry_failed=job.options.retry_failed):
            yield claimed
        else:
            taken.append(block)
            progress.passed += len(block.rows)
    for block in taken:
        if not progress.has_time_for(len(block.rows)):
            return
        if claimed := _claim(block, claims, progress, retry_failed=False):
            yield claimed


def _claim(
    block: Block, claims: BlockClaims, progress: Progress, *, retry_failed: bool
) -> Block | None:
    """Claim what backbones that work lack of a block; None if another run has it."""
    broken = progress.broken.reasons
    lacking = {name: rows for name, rows in block.missing.items() if name not in broken}
    missing = claims.take(block.number, lacking, retry_failed=retry_failed)
    if not missing:
        return None
    claimed = Block(block.number, missing)
    progress.started += len(claimed.rows)
    return claimed


class Extractor:
    """Backbones on their devices, and decoding processes that read for them.

    Processes decode clips (threads read images); threads take the frames to the device and resize
    them for each backbone; the calling thread embeds. What is read ahead is bounded.
    """

    def __init__(
        self,
        backbones: Sequence[Backbone],
        media: Path | None,
        options: Options,
        broken: BrokenBackbones,
    ) -> None:
        self._reader = ItemReader(media, backbones)
        alone = partial(no_uploads, self._reader.resizers.values())
        self._forwards = {
            backbone.name: Forward(backbone, options.batch, alone) for backbone in backbones
        }
        self._broken = broken
        workers = options.workers or default_workers(backbones[0].device)
        self._ahead = READ_AHEAD + workers
        self._decoders = Decoders(workers, options.stall_timeout)
        self._embedding = threading.Lock()

    def __enter__(self) -> Extractor:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoders.__exit__()

    def embed(
        self,
        pieces: Iterable[Block],
        item_of: Callable[[int], Item],
        progress: Progress,
        deliver: Callable[[Block, Outcomes], None],
        report: Callable[[int], None] = lambda items: None,
    ) -> None:
        """Read pieces of blocks and embed them; deliver the outcomes of each.

        After an error or when the time is up, what is computed of a piece is delivered, too. Two
        threads may call it: while one embeds, items are read for the other.
        """

        def read(decoder: Decoder, task: tuple[Block, int]) -> ReadItem | Failed:
            piece, row = task
            return self._reader.read(decoder, item_of(row), piece.names(row))

        rows = ((piece, row) for piece in pieces for row in piece.rows)
        embedder = Embedder(self._forwards, self._broken)
        with (
            contextlib.closing(self._decoders.map(read, rows, ahead=self._ahead)) as read_items,
            self._embedding,
        ):
            piece, begin = None, time.monotonic()
            try:
                for (piece, row), item in read_items:
                    progress.decode += time.monotonic() - begin
                    if progress.is_over():
                        break
                    progress.count(None if isinstance(item, Failed) else item.counts)
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
