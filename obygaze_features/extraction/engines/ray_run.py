"""The blocks of a job on their way through a Ray cluster.

Some processes read clips, others compute; here, where the command was typed, blocks are claimed and
written, and all that fails or is lost comes together. So only the films have to be reachable from
everywhere.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from obygaze_features.common.progress import meter
from obygaze_features.errors import ClusterError, VideoError
from obygaze_features.extraction.clips import Clip
from obygaze_features.extraction.engines.job import Job
from obygaze_features.extraction.engines.ray_actors import Computed, Load
from obygaze_features.extraction.engines.ray_blocks import BLOCKS, Block, Blocks
from obygaze_features.extraction.engines.ray_cluster import Cluster
from obygaze_features.extraction.engines.ray_losses import why_lost
from obygaze_features.extraction.engines.ray_plan import Plan
from obygaze_features.extraction.engines.ray_pool import Actor, Pool, Reference
from obygaze_features.extraction.engines.ray_starting import starts_computing, starts_reading
from obygaze_features.extraction.plan import Claimed, Errand
from obygaze_features.extraction.writing import Writing
from obygaze_features.manifests.media import MediaFolder
from obygaze_features.store import Failed, Status

__all__ = ["Run"]

LOOK = 2.0
"""Seconds after which one looks whether the cluster is still there."""
FETCH = 120.0
"""Seconds that an answer may take to come, once it is there."""
WAIT = 30.0
"""Seconds without an answer, after which it is looked whether the cluster has too little room."""


@dataclass(frozen=True)
class _Work:
    """What a process is at: what to do with its answer, and what if it is lost over it."""

    pool: Pool
    actor: Actor
    then: Callable[[Any], None]
    again: Callable[[str], None]


@contextlib.contextmanager
def _signals_as_they_came() -> Iterator[None]:
    """Undo what Ray makes of a signal that comes with an answer: an error of the interpreter."""
    try:
        yield
    except SystemError as problem:
        if problem.__cause__ is None or isinstance(problem.__cause__, Exception):
            raise
        raise problem.__cause__ from None


class Run:
    """One run: which process is at which work, and what has come of each block."""

    def __init__(self, job: Job, plan: Plan, loads: Sequence[Load], cluster: Cluster) -> None:
        self.job, self.plan, self.cluster, self.ray = job, plan, cluster, cluster.ray
        self._media = MediaFolder(job.videos.resolve())
        self._readers = Pool(self.ray, starts_reading(self.ray, job), plan.workers)
        computing = starts_computing(self.ray, job, plan, loads)
        self._computers = Pool(self.ray, computing, plan.forwards)
        self._running: dict[Reference, _Work] = {}
        self._blocks = Blocks(job.manifest.items, BLOCKS * plan.forwards)
        self._seconds, self._told = 0.0, False

    def work(self) -> None:
        """Do what is to be done, as far as nobody else does and the time reaches."""
        claimed = Claimed(list(self.job.lanes.values()))
        total = sum(len(errand.rows) for errand in self.job.todo)
        with (
            claimed.kept(),
            Writing(self.job.lanes, claimed.release) as self._writing,
            meter(total, "Extracting", unit="clip") as self._advance,
        ):
            self._computers.fill()
            self._readers.fill()
            with _signals_as_they_came():
                self._drive(self.job.errands(claimed))
        if self._blocks.given_up:
            self._fail("; ".join(self._blocks.given_up))

    def _drive(self, errands: Iterator[Errand]) -> None:
        begin = looked = answered = time.monotonic()
        while not self.job.is_over():
            while self._blocks.has_room and (errand := next(errands, None)):
                self._blocks.add(errand)
            if not self._blocks:
                return
            self._hand_out()
            awaited = [*self._computers.waiting, *self._readers.waiting, *self._running]
            finished, _ = self.ray.wait(awaited, num_returns=1, timeout=LOOK / 2)
            if time.monotonic() - looked > LOOK:
                self.cluster.check()
                looked = time.monotonic()
            for reference in finished:
                self._settle(reference)
            if finished:
                answered = time.monotonic()
            elif time.monotonic() - answered > WAIT:
                self._make_room()
                answered = time.monotonic()
            taken, tally = time.monotonic() - begin, self.job.tally
            tally.device, tally.write = self._seconds / self.plan.forwards, self._writing.waited
            tally.decode = max(0.0, taken - tally.device - tally.write)

    def _make_room(self) -> None:
        """Where nobody computes, those that read may have taken all that a lost machine left."""
        if self._computers.ready and self._readers.ready:
            return  # somebody is at a long piece of work
        if not self._told:
            self._told = True
            cpus, gpus = self.cluster.count("CPU"), self.cluster.count("GPU")
            sys.stderr.write(
                f"Waiting for the Ray cluster ({cpus:g} CPU, {gpus:g} GPU) to give {self.plan}\n"
            )
        if not self._computers.ready:
            self._readers.make_room(math.ceil(self.plan.cpus))

    def _hand_out(self) -> None:
        blocks = self._blocks
        while blocks.to_read and self._readers.idle:
            (block, row), actor = blocks.to_read.popleft(), self._readers.idle.pop()
            about, pixels = actor.read.options(num_returns=2).remote(
                self.job.manifest.items[row], block.errand.names(row)
            )
            then = partial(self._take, block, row, pixels)
            again = partial(blocks.read_again, block, row)
            self._running[about] = _Work(self._readers, actor, then, again)
        while blocks.to_compute and self._computers.idle:
            block, actor = blocks.to_compute.popleft(), self._computers.idle.pop()
            then, again = partial(self._finish, block), partial(blocks.compute_again, block)
            answer = actor.compute.remote(block.wanted())
            self._running[answer] = _Work(self._computers, actor, then, again)

    def _settle(self, reference: Reference) -> None:
        """Take an answer; where a process was lost over it, another takes its place."""
        starting = next(
            (one for one in (self._computers, self._readers) if reference in one.waiting), None
        )
        work = None if starting else self._running.pop(reference)
        try:
            answer = self.ray.get(reference, timeout=FETCH)
        except self.ray.exceptions.RayError as problem:
            why = why_lost(problem)
            self.cluster.check()
            self.job.tally.lost[why] += 1
            if starting:
                starting.lost_on_start(reference)
            if work:
                work.pool.lost(work.actor)
                work.again(why)
            if self._blocks.given_up and not self.job.tally.clips:
                self._fail(self._blocks.given_up[0])  # others would fare no better
            if not self._computers.ready:
                self._readers.step_back()
            if not (self._computers.fill() and self._readers.fill()):
                self._fail(f"processes of the cluster are lost as they start ({why})")
            return
        if work:
            work.pool.idle.append(work.actor)
            work.then(answer)
        if starting:
            starting.begun(reference)
        if starting is self._computers:
            self.job.devices.update(answer)
            self._readers.fill()

    def _take(self, block: Block, row: int, pixels: Reference, about: Clip | Failed) -> None:
        if isinstance(about, Failed) and about.status == Status.MISSING:
            self._check_missing(row)
        block.clips[row], block.pixels[row] = about, pixels
        if block not in self._blocks or not block.is_read:
            return
        if block.sound():
            self._blocks.to_compute.append(block)
        else:
            self._finish(block, Computed({}, {}, 0.0))

    def _check_missing(self, row: int) -> None:
        """What one machine alone does not see is no failure of the clip."""
        try:
            path = self._media.find(self.job.manifest.items[row])
        except VideoError:
            return
        raise VideoError(
            f"{path} is here, but not on every machine of the cluster; each of them has to see "
            "the films under the same path"
        )

    def _finish(self, block: Block, computed: Computed) -> None:
        self._seconds += computed.seconds
        self.job.batches.update(computed.batches)
        for clip in block.clips.values():
            self.job.tally.count(clip)
        self._blocks.remove(block)
        self._writing.bring(block.errand, block.outcomes(computed))
        self._advance(len(block.clips), self.job.words())

    def _fail(self, what: str) -> NoReturn:
        raise ClusterError(
            f"{what}; what was computed is kept, and the same command tries the rest again"
        )
