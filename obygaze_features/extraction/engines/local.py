"""The way of a clip on one machine: decoded ahead of the device, forward in batches, written.

Processes decode; threads take their frames to the device and resize them for each backbone; the
caller's thread runs the backbones in turn; one more thread writes. What lies between is bounded,
whatever the number of clips.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from obygaze_features.common.progress import meter
from obygaze_features.extraction.clips import Clip, ClipReader
from obygaze_features.extraction.decoders import Decoder, Decoders, default_workers
from obygaze_features.extraction.engines.job import Job
from obygaze_features.extraction.forward import Forward
from obygaze_features.extraction.plan import Claimed, Errand
from obygaze_features.extraction.writing import Writing
from obygaze_features.store import Done, Failed

__all__ = ["work_here"]

AHEAD = 16
"""Clips, beside one a decoder, that may be decoded before they are needed."""


def work_here(job: Job) -> None:
    """Do a job in this process and its decoders."""
    run = _Run(job)
    try:
        run.work()
    finally:
        job.batches = {name: one.batch for name, one in run.forwards.items() if one.batch}


@dataclass(frozen=True)
class _Task:
    """A clip to read, for the stores that want it."""

    errand: Errand
    row: int

    @property
    def names(self) -> list[str]:
        return self.errand.names(self.row)

    @property
    def is_last(self) -> bool:
        return self.row == self.errand.rows[-1]


class _Run:
    """One run over the blocks: the reading, the backbones and what has come of a block so far."""

    def __init__(self, job: Job) -> None:
        self.job = job
        backbones = job.backbones
        self.reader = ClipReader(job.videos, backbones, job.cache)
        self.forwards = {one.name: Forward(one, job.batch) for one in backbones}
        self._errand: Errand | None = None
        self._waiting: dict[str, list[tuple[int, Clip]]] = {name: [] for name in job.lanes}
        self._outcomes: dict[str, dict[int, Done | Failed]] = {name: {} for name in job.lanes}

    def work(self) -> None:
        """Do what is to be done, as far as nobody else does and the time reaches."""
        claimed = Claimed(list(self.job.lanes.values()))
        workers = self.job.workers or default_workers()
        total = sum(len(errand.rows) for errand in self.job.todo)
        with (
            claimed.kept(),
            Writing(self.job.lanes, claimed.release) as writing,
            contextlib.closing(
                Decoders(workers, patience=self.job.patience).map(
                    self._read, self._tasks(claimed), ahead=AHEAD + workers
                )
            ) as clips,
            meter(total, "Extracting", unit="clip") as advance,
        ):
            try:
                self._compute(clips, writing, advance)
            finally:
                # What is computed of a block is kept, also where something stopped it.
                if self._errand and any(self._outcomes.values()):
                    writing.bring(self._errand, self._done())

    def _compute(
        self,
        clips: Iterator[tuple[_Task, Clip | Failed]],
        writing: Writing,
        advance: Callable[[int, str], None],
    ) -> None:
        tally, begin = self.job.tally, time.monotonic()
        for task, clip in clips:
            tally.decode += time.monotonic() - begin
            if self.job.is_over():
                return
            self._errand = task.errand
            before = self._computed()
            self._take(task, clip)
            computed = self._computed() - before
            if task.is_last:
                writing.bring(task.errand, self._done())
            tally.device = sum(one.seconds for one in self.forwards.values())
            tally.write = writing.waited
            advance(computed, self.job.words())
            begin = time.monotonic()

    def _computed(self) -> int:
        """The clips of the block in hand that are through every backbone that wants them."""
        if self._errand is None:
            return 0
        return min(len(self._outcomes[name]) for name in self._errand.wanted)

    def _tasks(self, claimed: Claimed) -> Iterator[_Task]:
        for errand in self.job.errands(claimed):
            yield from (_Task(errand, row) for row in errand.rows)

    def _read(self, decoder: Decoder, task: _Task) -> Clip | Failed:
        return self.reader.read(decoder, self.job.manifest.items[task.row], task.names)

    def _take(self, task: _Task, clip: Clip | Failed) -> None:
        """Put a clip where it is wanted, and run the backbones whose batch is full with it."""
        self.job.tally.count(clip)
        for name in task.names:
            if isinstance(clip, Failed):
                self._outcomes[name][task.row] = clip
            else:
                self._waiting[name].append((task.row, clip.of(name)))
        for name in task.errand.wanted:
            # Batches never cross blocks: a run that goes on forms the same ones.
            if len(self._waiting[name]) >= self.forwards[name].find_batch() or task.is_last:
                self._forward(name)

    def _done(self) -> dict[str, dict[int, Done | Failed]]:
        done = {name: rows for name, rows in self._outcomes.items() if rows}
        self._outcomes = {name: {} for name in self.job.lanes}
        return done

    def _forward(self, name: str) -> None:
        waiting, self._waiting[name] = self._waiting[name], []
        computed = self.forwards[name]([clip.pixels[name] for _, clip in waiting])
        for (row, clip), values in zip(waiting, computed, strict=True):
            self._outcomes[name][row] = Done({**values, **clip.sampled[name]}, clip.source)
