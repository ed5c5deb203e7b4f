"""The blocks of a job on their way through a Ray cluster.

Some processes read clips, others compute; here, where the command was typed, blocks are claimed and
written, and all that fails or is lost comes together. So only the films have to be reachable from
everywhere. On their way are at most two blocks for each process that computes: memory is bounded.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from obygaze_features.common.progress import meter
from obygaze_features.errors import ClusterError, ObygazeError, VideoError
from obygaze_features.extraction.clips import Clip
from obygaze_features.extraction.engines.job import Job
from obygaze_features.extraction.engines.ray_actors import (
    Computed,
    Computing,
    Load,
    Reading,
    comparable,
)
from obygaze_features.extraction.engines.ray_cluster import Cluster
from obygaze_features.extraction.engines.ray_pool import TRIES, Actor, Pool, Reference
from obygaze_features.extraction.plan import Claimed, Errand
from obygaze_features.extraction.writing import Writing
from obygaze_features.manifests.locate import MediaFolder
from obygaze_features.store import Done, Failed, Status

__all__ = ["BLOCKS", "Plan", "Run"]

BLOCKS = 2
"""Blocks on their way for each process that computes: one at work, one being read."""
LOOK = 2.0
"""Seconds after which one looks whether the cluster is still there."""
FETCH = 120.0
"""Seconds that an answer may take to come, once it is there."""
WAIT = 30.0
"""Seconds without an answer, after which it is looked whether the cluster has too little room."""


@dataclass(frozen=True)
class Plan:
    """How many processes compute, how many read, what each that computes takes, and on what."""

    forwards: int
    workers: int
    cpus: float
    gpus: float
    device: str


@dataclass(eq=False)
class _Block:
    """A block on its way: what was read of it, and references to the pixels."""

    errand: Errand
    clips: dict[int, Clip | Failed] = field(default_factory=dict)
    pixels: dict[int, Reference] = field(default_factory=dict)

    def sound(self) -> dict[str, list[int]]:
        """For each store the wanted rows that could be read."""
        found = {
            name: [row for row in rows if isinstance(self.clips[row], Clip)]
            for name, rows in self.errand.wanted.items()
        }
        return {name: rows for name, rows in found.items() if rows}


@dataclass(frozen=True)
class _Work:
    """What a process is at: what to do with its answer, and what if it is lost over it."""

    pool: Pool
    actor: Actor
    then: Callable[[Any], None]
    again: Callable[[str], None]


class Run:
    """One run: which process is at which work, and what has come of each block."""

    def __init__(self, job: Job, plan: Plan, loads: Sequence[Load], cluster: Cluster) -> None:
        self.job, self.plan, self.cluster, self.ray = job, plan, cluster, cluster.ray
        self._media = MediaFolder(job.videos.resolve())
        self._readers = Pool(self.ray, self._reader(), plan.workers)
        self._computers = Pool(self.ray, self._computer(loads), plan.forwards)
        self._running: dict[Reference, _Work] = {}
        self._blocks: list[_Block] = []
        self._to_read: deque[tuple[_Block, int]] = deque()
        self._to_compute: deque[_Block] = deque()
        self._tries: Counter[tuple[_Block, int | None]] = Counter()
        self._given_up: list[str] = []
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
            self._drive(self.job.errands(claimed))
        if self._given_up:
            self._fail("; ".join(self._given_up))

    def _reader(self) -> Callable[[], tuple[Actor, Reference]]:
        job, kind = self.job, self.ray.remote(num_cpus=1)(Reading)
        eyes = [
            replace(lane.backbone, forward=_elsewhere, device="cpu") for lane in job.lanes.values()
        ]
        cache = job.cache.absolute() if job.cache else None

        def start() -> tuple[Actor, Reference]:
            actor = kind.remote(job.videos.absolute(), eyes, job.patience, cache)
            return actor, actor.begin.remote(version("obygaze"))

        return start

    def _computer(self, loads: Sequence[Load]) -> Callable[[], tuple[Actor, Reference]]:
        plan, batch = self.plan, self.job.batch
        kind = self.ray.remote(num_cpus=plan.cpus, num_gpus=plan.gpus)(Computing)
        recipes = {name: comparable(lane.backbone) for name, lane in self.job.lanes.items()}

        def start() -> tuple[Actor, Reference]:
            actor = kind.remote(loads, plan.device, plan.gpus, batch, Path.cwd())
            return actor, actor.begin.remote(version("obygaze"), recipes)

        return start

    def _drive(self, errands: Iterator[Errand]) -> None:
        begin = looked = answered = time.monotonic()
        while not self.job.is_over():
            while len(self._blocks) < BLOCKS * self.plan.forwards and (
                errand := next(errands, None)
            ):
                self._blocks.append(_Block(errand))
                self._to_read.extend((self._blocks[-1], row) for row in errand.rows)
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
            sys.stderr.write(self._waiting())
        if not self._computers.ready:
            self._readers.make_room(math.ceil(self.plan.cpus))

    def _hand_out(self) -> None:
        while self._to_read and self._readers.idle:
            (block, row), actor = self._to_read.popleft(), self._readers.idle.pop()
            about, pixels = actor.read.options(num_returns=2).remote(
                self.job.manifest.items[row], block.errand.names(row)
            )
            then = partial(self._take, block, row, pixels)
            again = partial(self._read_again, block, row)
            self._running[about] = _Work(self._readers, actor, then, again)
        while self._to_compute and self._computers.idle:
            block, actor = self._to_compute.popleft(), self._computers.idle.pop()
            wanted = {
                name: [block.pixels[row] for row in rows] for name, rows in block.sound().items()
            }
            then, again = partial(self._finish, block), partial(self._compute_again, block)
            self._running[actor.compute.remote(wanted)] = _Work(self._computers, actor, then, again)

    def _settle(self, reference: Reference) -> None:
        """Take an answer; where a process was lost over it, another takes its place."""
        starting = next(
            (one for one in (self._computers, self._readers) if reference in one.waiting), None
        )
        work = None if starting else self._running.pop(reference)
        try:
            answer = self.ray.get(reference, timeout=FETCH)
        except self.ray.exceptions.RayError as problem:
            why = self._why(problem)
            self.job.tally.lost[why] += 1
            if starting:
                starting.lost_on_start(reference)
            if work:
                work.pool.lost(work.actor)
                work.again(why)
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

    def _why(self, problem: Exception) -> str:
        """Why a process was lost; raises what is no loss, but a reason to end."""
        cause = getattr(problem, "cause", None)
        if isinstance(cause, ObygazeError):
            raise cause from None
        self.cluster.check()
        return _in_words(problem, cause)

    def _take(self, block: _Block, row: int, pixels: Reference, about: Clip | Failed) -> None:
        if isinstance(about, Failed) and about.status == Status.MISSING:
            self._check_missing(row)
        block.clips[row], block.pixels[row] = about, pixels
        if block not in self._blocks or len(block.clips) < len(block.errand.rows):
            return
        if block.sound():
            self._to_compute.append(block)
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

    def _finish(self, block: _Block, computed: Computed) -> None:
        self._seconds += computed.seconds
        self.job.batches.update(computed.batches)
        outcomes: dict[str, dict[int, Done | Failed]] = {name: {} for name in block.errand.wanted}
        values = {name: iter(rows) for name, rows in computed.rows.items()}
        for row in block.errand.rows:
            clip = block.clips[row]
            self.job.tally.count(clip)
            for name in block.errand.names(row):
                outcomes[name][row] = (
                    clip
                    if isinstance(clip, Failed)
                    else Done({**next(values[name]), **clip.sampled[name]}, clip.source)
                )
        self._blocks.remove(block)
        self._writing.bring(block.errand, outcomes)
        self._advance(len(block.clips), self.job.words())

    def _read_again(self, block: _Block, row: int, why: str) -> None:
        if block in self._blocks and not self._gives_up(block, row, why):
            self._to_read.appendleft((block, row))

    def _compute_again(self, block: _Block, why: str) -> None:
        """From the start: the frames may have been on a machine that is lost."""
        if not self._gives_up(block, None, why):
            block.clips, block.pixels = {}, {}
            self._to_read.extendleft((block, row) for row in reversed(block.errand.rows))

    def _gives_up(self, block: _Block, row: int | None, why: str) -> bool:
        """Count a loss; after some the block is left to do, its claim kept until the end."""
        self._tries[block, row] += 1
        if self._tries[block, row] < TRIES:
            return False
        rows, ids = block.errand.rows, self.job.manifest.items
        what = f"the clips {ids[rows[0]].id} to {ids[rows[-1]].id}" if row is None else ids[row].id
        self._given_up.append(f"{TRIES} processes were lost over {what} ({why})")
        if not self.job.tally.clips:  # nothing works: others would fare no better
            self._fail(self._given_up[0])
        self._blocks.remove(block)
        self._to_read = deque(one for one in self._to_read if one[0] is not block)
        return True

    def _fail(self, what: str) -> NoReturn:
        raise ClusterError(
            f"{what}; what was computed is kept, and the same command tries the rest again"
        )

    def _waiting(self) -> str:
        plan, count = self.plan, self.cluster.count
        return (
            f"Waiting for the Ray cluster ({count('CPU'):g} CPU, {count('GPU'):g} GPU) to give "
            f"{plan.forwards} x ({plan.cpus:g} CPU, {plan.gpus:g} GPU) to compute and "
            f"{plan.workers} x 1 CPU to read\n"
        )


def _elsewhere(*arguments: Any) -> NoReturn:
    """The forward pass of a backbone whose network is in another process."""
    raise AssertionError("no backbone computes where clips are read")


def _in_words(problem: Exception, cause: Exception | None) -> str:
    """Why a process was lost, in a line."""
    if cause is not None:
        return f"{type(cause).__name__}: {(str(cause).strip().splitlines() or [''])[0]}"
    text = str(problem)
    if "node has died" in text or "node was terminated" in text:
        return "its machine is gone"
    return str(text)
