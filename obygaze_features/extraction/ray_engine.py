"""Extraction on a Ray cluster: its processes read and compute, this one claims and writes.

So only the films have to be reachable from every machine, and every failure is handled here. A
block whose process is lost starts again; at most two blocks for each process that computes are
under way, so memory is bounded.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import torch

from obygaze_features.backbones.devices import default_workers
from obygaze_features.common.progress import meter
from obygaze_features.errors import BrokenBackbone, ClusterError, UsageError, VideoError
from obygaze_features.extraction.plan import BlockTask
from obygaze_features.extraction.ray_actors import (
    Computed,
    Computer,
    Reader,
    WorkerPlan,
    comparable,
    describe_actor_failure,
    plan_workers,
)
from obygaze_features.extraction.ray_cluster import Cluster, connect
from obygaze_features.extraction.readers import ReadItem
from obygaze_features.extraction.run import ExtractionRun, Load
from obygaze_features.extraction.writer_thread import BlockWriterThread
from obygaze_features.manifests.media import MediaFolder
from obygaze_features.store import Done, Failed, Status
from obygaze_features.store.format import BLOCK_ROWS

logger = logging.getLogger(__name__)

MAX_LOSSES = 3
"""Processes that may be lost over the same work, or one after another while they start."""
BLOCKS_PER_COMPUTER = 2
"""One block is computed while the next is read."""
MIN_OBJECT_STORE_BYTES = 100 * 2**20
CHECK_EVERY_S = 2.0
"""How often the cluster is checked."""
FETCH_TIMEOUT_S = 120.0
"""For a finished answer to arrive."""
STUCK_AFTER_S = 30.0
"""Without an answer for so long, the cluster may have too little room."""

Reference = Any
"""Ray's reference to a result that may still be computed."""
Actor = Any
"""Ray's handle of a process."""


def run_ray(run: ExtractionRun, *, loads: Sequence[Load]) -> None:
    """Extract on a Ray cluster; each of `loads` loads a backbone on a device."""
    options = run.options
    here = {"CPU": default_workers() + 1, "GPU": torch.cuda.device_count()}
    plan = plan_workers(here, options)
    if not options.ray_address and (needed := plan.forwards * plan.gpus) > here["GPU"]:
        remedy = "leave out --ray-gpus" if options.ray_gpus else "give --device cpu"
        raise UsageError(
            f"{plan.forwards} workers x {plan.gpus:g} GPU need {needed:g} GPU; this machine has "
            f"{here['GPU']}; {remedy}, or give the --ray-address of a cluster that has them"
        )
    needed_cpus = int(plan.forwards * plan.cpus) + plan.workers
    resources = {**here, "CPU": max(needed_cpus, here["CPU"])}
    memory = _object_store_bytes(run, plan)
    with connect(options.ray_address, resources=resources, memory=memory) as cluster:
        if options.ray_address:
            plan = plan_workers({name: cluster.count(name) for name in here}, options)
        _RayRun(run, plan, loads, cluster).work()


def _object_store_bytes(run: ExtractionRun, plan: WorkerPlan) -> int:
    """What the frames under way take in a new cluster's memory."""
    clip = sum(
        3 * backbone.sampling.frames * math.prod(backbone.preprocessing.crop)
        for backbone in run.backbones
    )
    blocks = BLOCKS_PER_COMPUTER * plan.forwards
    return MIN_OBJECT_STORE_BYTES + int(1.25 * clip * BLOCK_ROWS * blocks)


@dataclass(eq=False)
class _Block:
    """A block under way: its clips as far as they are read, and references to their pixels."""

    task: BlockTask
    clips: dict[int, ReadItem | Failed] = field(default_factory=dict)
    pixels: dict[int, Reference] = field(default_factory=dict)

    @property
    def is_read(self) -> bool:
        return len(self.clips) == len(self.task.rows)

    def pixels_by_store(self) -> dict[str, list[Reference]]:
        """For each store the pixels of the clips that could be read, in order."""
        readable = {
            name: [self.pixels[row] for row in rows if isinstance(self.clips[row], ReadItem)]
            for name, rows in self.task.missing.items()
        }
        return {name: references for name, references in readable.items() if references}

    def outcomes(self, computed: Computed) -> dict[str, dict[int, Done | Failed]]:
        """For each store the outcome of each of its rows."""
        names = self.task.missing.keys() - computed.broken
        outcomes: dict[str, dict[int, Done | Failed]] = {name: {} for name in names}
        values = {name: iter(rows) for name, rows in computed.rows.items()}
        for row in self.task.rows:
            clip = self.clips[row]
            for name in names.intersection(self.task.names(row)):
                outcomes[name][row] = (
                    clip
                    if isinstance(clip, Failed)
                    else Done({**next(values[name]), **clip.sampled[name]}, clip.source)
                )
        return outcomes


class _Work(NamedTuple):
    """What a process has to do: read a row of a block, or compute the block."""

    pool: ActorPool
    actor: Actor
    block: _Block
    row: int | None = None
    pixels: Reference = None


class ActorPool:
    """The processes of one class on a cluster; there should be `count`.

    `make` makes one, and its method `start` prepares it. In `starting` are those that are not
    ready yet, perhaps for lack of room, by the reference of `start`; in `idle` those without work.
    """

    def __init__(self, ray: ModuleType, make: Callable[[], Actor], count: int) -> None:
        self._ray, self._make, self._count = ray, make, count
        self.idle: list[Actor] = []
        self.starting: dict[Reference, Actor] = {}
        self.ready = 0
        self._lost_while_starting = 0

    def fill(self) -> bool:
        """Start the missing processes; False if none is left, as all are lost while they start."""
        while self.ready + len(self.starting) < self._count:
            if self._lost_while_starting >= MAX_LOSSES:
                break
            actor = self._make()
            self.starting[actor.start.remote(version("obygaze"))] = actor
        return bool(self.ready or self.starting)

    def mark_ready(self, reference: Reference) -> None:
        """A process has started."""
        self.idle.append(self.starting.pop(reference))
        self.ready += 1
        self._lost_while_starting = 0

    def discard(self, actor: Actor) -> None:
        """Remove a process that was lost over its work."""
        self._ray.kill(actor)
        self.ready -= 1

    def discard_starting(self, reference: Reference) -> None:
        """Remove a process that was lost before it was ready."""
        self._ray.kill(self.starting.pop(reference))
        self._lost_while_starting += 1

    def yield_room(self) -> None:
        """Cancel the processes that wait for room, so that others are placed first."""
        if self.ready:
            for actor in self.starting.values():
                self._ray.kill(actor)
            self.starting.clear()

    def free_cpus(self, cpus: int) -> None:
        """Stop some idle processes, but keep one."""
        self.yield_room()
        while self.idle and cpus > 0 and self.ready > 1:
            self._ray.kill(self.idle.pop())
            self.ready, cpus = self.ready - 1, cpus - 1


class _RayRun:
    """The work of each process, and the blocks under way."""

    def __init__(
        self, run: ExtractionRun, plan: WorkerPlan, loads: Sequence[Load], cluster: Cluster
    ) -> None:
        self.run, self.plan, self.cluster, self.ray = run, plan, cluster, cluster.ray
        options = run.options
        assert run.media is not None
        self._media = MediaFolder(run.media.resolve())
        reader = self.ray.remote(num_cpus=1)(Reader)
        blind = [backbone.without_network() for backbone in run.backbones]
        cache = options.cache.absolute() if options.cache else None
        read = partial(reader.remote, run.media.absolute(), blind, options.stall_timeout, cache)
        self._readers = ActorPool(self.ray, read, plan.workers)
        computer = self.ray.remote(num_cpus=plan.cpus, num_gpus=plan.gpus)(Computer)
        recipes = {backbone.name: comparable(backbone) for backbone in run.backbones}
        compute = partial(computer.remote, loads, plan, recipes, options.batch, Path.cwd())
        self._computers = ActorPool(self.ray, compute, plan.forwards)
        self._working: dict[Reference, _Work] = {}
        self._blocks: list[_Block] = []
        self._to_read: deque[tuple[_Block, int]] = deque()
        self._to_compute: deque[_Block] = deque()
        self._losses: Counter[tuple[_Block, int | None]] = Counter()
        self._given_up: list[str] = []
        self._seconds, self._announced = 0.0, False

    def work(self) -> None:
        """Compute the missing blocks, as time and other runs allow."""
        claims = self.run.claims()
        with (
            claims.heartbeat(),
            BlockWriterThread(self.run.targets, claims) as self._writer,
            meter(self.run.item_count, "Extracting", unit="clip") as self._advance,
        ):
            self._computers.fill()
            self._readers.fill()
            with _signals_as_raised():
                self._drive(self.run.tasks(claims))
        if self._given_up:
            self._fail("; ".join(self._given_up))

    def _drive(self, tasks: Iterator[BlockTask]) -> None:
        begin = checked = answered = time.monotonic()
        max_blocks = BLOCKS_PER_COMPUTER * self.plan.forwards
        while not self.run.is_over():
            while len(self._blocks) < max_blocks and (task := next(tasks, None)):
                block = _Block(task)
                self._blocks.append(block)
                self._to_read.extend((block, row) for row in task.rows)
            if not self._blocks:
                return
            self._hand_out()
            awaited = [*self._computers.starting, *self._readers.starting, *self._working]
            finished, _ = self.ray.wait(awaited, num_returns=1, timeout=CHECK_EVERY_S / 2)
            if time.monotonic() - checked > CHECK_EVERY_S:
                self.cluster.check()
                checked = time.monotonic()
            for reference in finished:
                self._receive(reference)
            if finished:
                answered = time.monotonic()
            elif time.monotonic() - answered > STUCK_AFTER_S:
                self._make_room()
                answered = time.monotonic()
            seconds, tally = time.monotonic() - begin, self.run.tally
            tally.device, tally.write = self._seconds / self.plan.forwards, self._writer.waited_s
            tally.decode = max(0.0, seconds - tally.device - tally.write)

    def _make_room(self) -> None:
        """If nothing computes, the readers may have taken the room that a lost machine left."""
        if self._computers.ready and self._readers.ready:
            return  # a process has long work
        if not self._announced:
            self._announced = True
            cpus, gpus = self.cluster.count("CPU"), self.cluster.count("GPU")
            logger.info(
                f"Waiting for the Ray cluster ({cpus:g} CPU, {gpus:g} GPU) to give {self.plan}"
            )
        if not self._computers.ready:
            self._readers.free_cpus(math.ceil(self.plan.cpus))

    def _hand_out(self) -> None:
        """Give work to idle processes."""
        while self._to_read and self._readers.idle:
            (block, row), actor = self._to_read.popleft(), self._readers.idle.pop()
            clip, pixels = actor.read.options(num_returns=2).remote(
                self.run.manifest.items[row], block.task.names(row)
            )
            self._working[clip] = _Work(self._readers, actor, block, row, pixels)
        while self._to_compute and self._computers.idle:
            block, actor = self._to_compute.popleft(), self._computers.idle.pop()
            answer = actor.compute.remote(block.pixels_by_store())
            self._working[answer] = _Work(self._computers, actor, block)

    def _receive(self, reference: Reference) -> None:
        """Take an answer; a lost process is replaced and its work repeated."""
        pools = (self._computers, self._readers)
        starting = next((pool for pool in pools if reference in pool.starting), None)
        work = None if starting else self._working.pop(reference)
        try:
            answer = self.ray.get(reference, timeout=FETCH_TIMEOUT_S)
        except self.ray.exceptions.RayError as problem:
            self._replace(reference, starting, work, describe_actor_failure(problem))
            return
        if work:
            work.pool.idle.append(work.actor)
            if work.row is None:
                self._finish(work.block, answer)
            else:
                self._take_clip(work.block, work.row, work.pixels, answer)
        if starting:
            starting.mark_ready(reference)
        if starting is self._computers:
            self.run.devices.update(answer)
            self._readers.fill()

    def _replace(
        self, reference: Reference, starting: ActorPool | None, work: _Work | None, reason: str
    ) -> None:
        self.cluster.check()
        self.run.tally.lost[reason] += 1
        if starting:
            starting.discard_starting(reference)
        if work:
            work.pool.discard(work.actor)
            self._repeat(work.block, work.row, reason)
        if self._given_up and not self.run.tally.clips:
            self._fail(self._given_up[0])  # other blocks would fail too
        if not self._computers.ready:
            self._readers.yield_room()
        if not (self._computers.fill() and self._readers.fill()):
            self._fail(f"processes of the cluster are lost as they start ({reason})")

    def _repeat(self, block: _Block, row: int | None, reason: str) -> None:
        """Repeat lost work; after some losses the block is left to do, claimed until the end."""
        if block not in self._blocks:
            return
        self._losses[block, row] += 1
        if self._losses[block, row] >= MAX_LOSSES:
            rows, items = block.task.rows, self.run.manifest.items
            if row is None:
                subject = f"the clips {items[rows[0]].id} to {items[rows[-1]].id}"
            else:
                subject = items[row].id
            self._given_up.append(f"{MAX_LOSSES} processes were lost over {subject} ({reason})")
            self._remove(block)
        elif row is None:
            # Read it again too: its frames may have been on a machine that is lost.
            block.clips, block.pixels = {}, {}
            self._to_read.extendleft((block, row) for row in reversed(block.task.rows))
        else:
            self._to_read.appendleft((block, row))

    def _take_clip(
        self, block: _Block, row: int, pixels: Reference, clip: ReadItem | Failed
    ) -> None:
        if isinstance(clip, Failed) and clip.status == Status.MISSING:
            self._check_missing(row)
        block.clips[row], block.pixels[row] = clip, pixels
        if block not in self._blocks or not block.is_read:
            return
        if block.pixels_by_store():
            self._to_compute.append(block)
        else:
            self._finish(block, Computed({}, {}, 0.0))

    def _check_missing(self, row: int) -> None:
        """Raise if this machine has a file that another machine misses."""
        try:
            path = self._media.find(self.run.manifest.items[row])
        except VideoError:
            return
        raise VideoError(
            f"{path} is here, but not on every machine of the cluster; each of them has to see "
            "the films under the same path"
        )

    def _finish(self, block: _Block, computed: Computed) -> None:
        self._seconds += computed.seconds
        self.run.batches.update(computed.batches)
        for clip in block.clips.values():
            self.run.tally.count(clip)
        self._remove(block)
        for name, reason in computed.broken.items():
            self.run.broken.add(name, BrokenBackbone(reason))
        self._writer.submit(block.task, block.outcomes(computed))
        self._advance(len(block.clips), self.run.progress_note())

    def _remove(self, block: _Block) -> None:
        self._blocks.remove(block)
        self._to_read = deque(entry for entry in self._to_read if entry[0] is not block)

    def _fail(self, problem: str) -> NoReturn:
        raise ClusterError(
            f"{problem}; what was computed is kept, and the same command retries the rest"
        )


@contextlib.contextmanager
def _signals_as_raised() -> Iterator[None]:
    """Unwrap a signal's exception that arrives with an answer: Ray makes it a `SystemError`."""
    try:
        yield
    except SystemError as problem:
        if problem.__cause__ is None or isinstance(problem.__cause__, Exception):
            raise
        raise problem.__cause__ from None
