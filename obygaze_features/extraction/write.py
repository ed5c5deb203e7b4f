"""Writing blocks in a thread, while the device computes the next ones."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from obygaze_features.errors import BlockTaken
from obygaze_features.extraction.plan import BlockTask, ExtractionTarget
from obygaze_features.store import Done, Failed
from obygaze_features.store.claims import BlockClaims
from obygaze_features.store.commit import commit_block

MAX_WAITING_BLOCKS = 2
"""Blocks that wait to be written; `submit` waits while there are more."""

Outcomes = Mapping[str, Mapping[int, Done | Failed]]
"""For each store, by name, the outcome of each row."""


class BlockWriter:
    """Writes blocks in the order in which they are submitted, and releases their claims.

    Leaving the ``with`` block waits for the submitted blocks, even after an error: what was
    computed is kept.
    """

    def __init__(self, targets: Mapping[str, ExtractionTarget], claims: BlockClaims) -> None:
        self.waited_s = 0.0
        self._targets, self._claims = targets, claims
        self._thread = ThreadPoolExecutor(1, "write")
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> BlockWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        if kind is None:
            for block in self._waiting:
                block.result()

    def submit(self, task: BlockTask, outcomes: Outcomes) -> None:
        """Have a block written; raises the error of an earlier block."""
        begin = time.perf_counter()
        while len(self._waiting) > MAX_WAITING_BLOCKS or (
            self._waiting and self._waiting[0].done()
        ):
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(self._write, task, outcomes))
        self.waited_s += time.perf_counter() - begin

    def _write(self, task: BlockTask, outcomes: Outcomes) -> None:
        for name, rows in outcomes.items():
            writer = self._targets[name].writer
            # After its lease expired another run may have written the block: its rows are kept.
            with contextlib.suppress(BlockTaken):
                if writer.is_written(task.block):
                    writer.rewrite(task.block, rows)
                else:
                    block_rows = [rows.get(row) for row in writer.rows_of(task.block)]
                    commit_block(writer.store, task.block, block_rows)
        self._claims.release(task.block, list(task.missing))
