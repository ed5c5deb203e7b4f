"""Writing blocks in a thread of its own, while the device goes on."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from obygaze_features.errors import BlockTaken
from obygaze_features.extraction.plan import Errand, Lane
from obygaze_features.store import Done, Failed

__all__ = ["Outcomes", "Writing"]

WAITING = 2
"""Blocks that wait to be written; who brings more has to wait."""

Outcomes = Mapping[str, Mapping[int, Done | Failed]]
"""For each store, by name, what became of rows."""


class Writing:
    """A thread that writes blocks, in the order in which they come.

    Leaving the ``with`` block waits for what was brought, also when an error is on its way out:
    what was computed is kept.
    """

    def __init__(self, lanes: Mapping[str, Lane], release: Callable[[Errand], None]) -> None:
        self.waited = 0.0
        self._lanes, self._release = lanes, release
        self._queue: queue.Queue[tuple[Errand, Outcomes] | None] = queue.Queue(WAITING)
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="write", daemon=True)

    def __enter__(self) -> Writing:
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
            self._complain()

    def bring(self, errand: Errand, outcomes: Outcomes) -> None:
        """Have a block written; raises what went wrong with an earlier one."""
        self._complain()
        self._put((errand, outcomes))

    def _put(self, what: tuple[Errand, Outcomes] | None) -> None:
        begin = time.perf_counter()
        self._queue.put(what)
        self.waited += time.perf_counter() - begin

    def _complain(self) -> None:
        if self._problem is not None:
            raise self._problem

    def _work(self) -> None:
        while (brought := self._queue.get()) is not None:
            if self._problem is None:
                try:
                    self._write(*brought)
                except BaseException as problem:  # it belongs to the thread that computes
                    self._problem = problem

    def _write(self, errand: Errand, outcomes: Outcomes) -> None:
        for name, rows in outcomes.items():
            writer = self._lanes[name].writer
            # One whose lease ran out may find the block done by another: its rows are kept.
            with contextlib.suppress(BlockTaken):
                if writer.is_written(errand.block):
                    writer.rewrite(errand.block, rows)
                else:
                    places = writer.rows_of(errand.block)
                    writer.write_block(errand.block, [rows.get(row) for row in places])
        self._release(errand)
