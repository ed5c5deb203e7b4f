"""Writing blocks in a thread, while the device computes the next ones."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Mapping
from types import TracebackType

from obygaze_features.errors import BlockTaken
from obygaze_features.extraction.plan import BlockTask, ExtractionTarget
from obygaze_features.store import Done, Failed
from obygaze_features.store.claims import BlockClaims

MAX_WAITING_BLOCKS = 2
"""Blocks that wait to be written; `submit` waits while there are more."""

Outcomes = Mapping[str, Mapping[int, Done | Failed]]
"""For each store, by name, the outcome of each row."""


class BlockWriterThread:
    """A thread that writes blocks in the order in which they are submitted, and releases them.

    Leaving the ``with`` block waits for the submitted blocks, even after an error: what was
    computed is kept.
    """

    def __init__(self, targets: Mapping[str, ExtractionTarget], claims: BlockClaims) -> None:
        self.waited_s = 0.0
        self._targets, self._claims = targets, claims
        self._queue: queue.Queue[tuple[BlockTask, Outcomes] | None] = queue.Queue(
            MAX_WAITING_BLOCKS
        )
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="write", daemon=True)

    def __enter__(self) -> BlockWriterThread:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._put(None)
        self._thread.join()
        if problem is None:
            self._raise_pending()

    def submit(self, task: BlockTask, outcomes: Outcomes) -> None:
        """Have a block written; raises the error of an earlier block."""
        self._raise_pending()
        self._put((task, outcomes))

    def _put(self, entry: tuple[BlockTask, Outcomes] | None) -> None:
        begin = time.perf_counter()
        self._queue.put(entry)
        self.waited_s += time.perf_counter() - begin

    def _raise_pending(self) -> None:
        if self._problem is not None:
            raise self._problem

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            if self._problem is None:
                try:
                    self._write(*entry)
                except BaseException as problem:  # raised in the thread that computes
                    self._problem = problem

    def _write(self, task: BlockTask, outcomes: Outcomes) -> None:
        for name, rows in outcomes.items():
            writer = self._targets[name].writer
            # After its lease expired another run may have written the block: its rows are kept.
            with contextlib.suppress(BlockTaken):
                if writer.is_written(task.block):
                    writer.rewrite(task.block, rows)
                else:
                    writer.write_block(
                        task.block, [rows.get(row) for row in writer.rows_of(task.block)]
                    )
        self._claims.release(task.block, list(task.missing))
