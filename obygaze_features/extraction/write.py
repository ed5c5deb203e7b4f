"""Writing blocks in a thread, while the device computes the next ones."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from obygaze_features.errors import BlockTaken
from obygaze_features.extraction.job import Block
from obygaze_features.extraction.progress import Progress
from obygaze_features.store import Done, Failed, StoreWriter
from obygaze_features.store.claims import BlockClaims
from obygaze_features.store.commit import commit_block

MAX_WAITING_BLOCKS = 2
"""Blocks that wait to be written; `add` waits while there are more."""

Outcomes = Mapping[str, Mapping[int, Done | Failed]]
"""For each store, by name, the outcome of each row."""


@dataclass
class _Begun:
    """A block whose rows are not all computed yet."""

    block: Block
    left: set[int]
    outcomes: dict[str, dict[int, Done | Failed]] = field(default_factory=dict)


class BlockWriter:
    """Gathers the outcomes of blocks, commits each as soon as it is whole, and releases its claim.

    Leaving the ``with`` block also commits what there is of the others, even after an error, and
    waits for it: what was computed is kept.
    """

    def __init__(
        self, writers: Mapping[str, StoreWriter], claims: BlockClaims, progress: Progress
    ) -> None:
        self._writers, self._claims, self._progress = writers, claims, progress
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
        """Expect the rows of a block."""
        self._begun[block.number] = _Begun(block, set(block.rows))

    def add(self, piece: Block, outcomes: Outcomes) -> None:
        """Take the outcomes of a piece of a block; raises the error of an earlier commit."""
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
            # After its lease expired another run may have written the block: its rows are kept.
            with contextlib.suppress(BlockTaken):
                if writer.is_written(number):
                    writer.rewrite(number, rows)
                else:
                    block_rows = [rows.get(row) for row in writer.rows_of(number)]
                    commit_block(writer.store, number, block_rows)
        self._claims.release(number, list(begun.block.missing))
