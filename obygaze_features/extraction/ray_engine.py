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
from typing import Any, NoReturn

import torch

from obygaze_features.common.progress import meter
from obygaze_features.errors import ClusterError, UsageError, VideoError
from obygaze_features.extraction.decode_pool import default_workers
from obygaze_features.extraction.plan import BlockTask
from obygaze_features.extraction.ray_actors import (
    MAX_LOSSES,
    Actor,
    ActorPool,
    Computed,
    Reference,
    WorkerPlan,
    computer_pool,
    describe_actor_failure,
    plan_workers,
    reader_pool,
)
from obygaze_features.extraction.ray_cluster import Cluster, connect
from obygaze_features.extraction.readers import ReadItem
from obygaze_features.extraction.run import ExtractionRun, Load
from obygaze_features.extraction.writer_thread import BlockWriterThread
from obygaze_features.manifests.media import MediaFolder
from obygaze_features.store import Done, Failed, Status
from obygaze_features.store.format import BLOCK_ROWS

logger = logging.getLogger(__name__)

BLOCKS_PER_COMPUTER = 2
"""One block is computed while the next is read."""
MIN_OBJECT_STORE_BYTES = 100 * 2**20
CHECK_EVERY_S = 2.0
"""How often the cluster is checked."""
FETCH_TIMEOUT_S = 120.0
"""For a finished answer to arrive."""
STUCK_AFTER_S = 30.0
"""Without an answer for so long, the cluster may have too little room."""


def run_ray(run: ExtractionRun, *, loads: Sequence[Load]) -> None:
    """Extract on a Ray cluster.

    Parameters
    ----------
    run
        What to extract.
    loads
        For each backbone a function that loads it on a device.
    """
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
        outcomes: dict[str, dict[int, Done | Failed]] = {name: {} for name in self.task.missing}
        values = {name: iter(rows) for name, rows in computed.rows.items()}
        for row in self.task.rows:
            clip = self.clips[row]
            for name in self.task.names(row):
                outcomes[name][row] = (
                    clip
                    if isinstance(clip, Failed)
                    else Done({**next(values[name]), **clip.sampled[name]}, clip.source)
                )
        return outcomes


@dataclass(frozen=True)
class _Work:
    """A process's work: what to do with its answer, and what to do if the process is lost."""

    pool: ActorPool
    actor: Actor
    take: Callable[[Any], None]
    repeat: Callable[[str], None]


class _RayRun:
    """The work of each process, and the blocks under way."""

    def __init__(
        self, run: ExtractionRun, plan: WorkerPlan, loads: Sequence[Load], cluster: Cluster
    ) -> None:
        self.run, self.plan, self.cluster, self.ray = run, plan, cluster, cluster.ray
        assert run.media is not None
        self._media = MediaFolder(run.media.resolve())
        self._readers = reader_pool(self.ray, run, plan)
        self._computers = computer_pool(self.ray, run, plan, loads)
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
            take = partial(self._take_clip, block, row, pixels)
            repeat = partial(self._read_again, block, row)
            self._working[clip] = _Work(self._readers, actor, take, repeat)
        while self._to_compute and self._computers.idle:
            block, actor = self._to_compute.popleft(), self._computers.idle.pop()
            answer = actor.compute.remote(block.pixels_by_store())
            take, repeat = partial(self._finish, block), partial(self._compute_again, block)
            self._working[answer] = _Work(self._computers, actor, take, repeat)

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
            work.take(answer)
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
            work.repeat(reason)
        if self._given_up and not self.run.tally.clips:
            self._fail(self._given_up[0])  # other blocks would fail too
        if not self._computers.ready:
            self._readers.yield_room()
        if not (self._computers.fill() and self._readers.fill()):
            self._fail(f"processes of the cluster are lost as they start ({reason})")

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
        self._writer.submit(block.task, block.outcomes(computed))
        self._advance(len(block.clips), self.run.progress_note())

    def _remove(self, block: _Block) -> None:
        self._blocks.remove(block)
        self._to_read = deque(entry for entry in self._to_read if entry[0] is not block)

    def _read_again(self, block: _Block, row: int, reason: str) -> None:
        if block in self._blocks and not self._gives_up(block, row, reason):
            self._to_read.appendleft((block, row))

    def _compute_again(self, block: _Block, reason: str) -> None:
        """Read the block again too: its frames may have been on a machine that is lost."""
        if not self._gives_up(block, None, reason):
            block.clips, block.pixels = {}, {}
            self._to_read.extendleft((block, row) for row in reversed(block.task.rows))

    def _gives_up(self, block: _Block, row: int | None, reason: str) -> bool:
        """Count a loss; after some the block is left to do, and its claim held until the end."""
        self._losses[block, row] += 1
        if self._losses[block, row] < MAX_LOSSES:
            return False
        rows, items = block.task.rows, self.run.manifest.items
        if row is None:
            subject = f"the clips {items[rows[0]].id} to {items[rows[-1]].id}"
        else:
            subject = items[row].id
        self._given_up.append(f"{MAX_LOSSES} processes were lost over {subject} ({reason})")
        self._remove(block)
        return True

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
