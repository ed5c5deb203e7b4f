"""Extraction on a Ray cluster: an actor per GPU, or per machine, runs the loop on pieces of blocks.

Its arrays return to this process, which commits them, so only the films have to be reachable from
every machine. Ray places and restarts actors. A piece whose actor is lost goes to whichever is
free: Ray's own retry would wait for the same actor, even if its machine never comes back. A
machine that differs from this one raises an error that ends the run, as its results would differ.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import MAX_WORKERS, describe_device, limit_gpu_share
from obygaze_features.common.package import usable_cores
from obygaze_features.common.text import first_line
from obygaze_features.errors import (
    BackboneError,
    BrokenBackbone,
    ClusterError,
    ObygazeError,
    UsageError,
    VideoError,
)
from obygaze_features.extraction.job import Block, Job, Options, recipe_of
from obygaze_features.extraction.loop import Extractor, commit_blocks
from obygaze_features.extraction.progress import BrokenBackbones, Progress
from obygaze_features.extraction.ray_cluster import Cluster, connect, import_ray
from obygaze_features.extraction.write import Outcomes
from obygaze_features.items.items import Item
from obygaze_features.store import StoreWriter
from obygaze_features.store.writer import recipe_differences

MAX_LOSSES = 3
"""Actors that may be lost over the same piece of a block."""
MAX_RESTARTS = 10
"""How often Ray restarts an actor that is lost."""
PIECES_PER_ACTOR = 2
"""Pieces that an actor has at a time: while it embeds one, it reads the next."""
ANSWER_TIMEOUT_S = 30.0

Actor = Any
"""Ray's handle of a `Computer`."""


class WorkerPlan(NamedTuple):
    """How many actors compute, and what each takes: decoding processes, CPUs and GPUs."""

    actors: int
    workers: int
    cpus: float
    gpus: float
    device: str


def plan_workers(nodes: Sequence[Mapping[str, float]], options: Options) -> WorkerPlan:
    """Choose what the options leave open, by the ``CPU`` and ``GPU`` of each machine."""
    gpus, device = options.ray_gpus, options.device
    kind, _, number = (device or "").partition(":")
    if number not in ("", "0"):
        raise UsageError(f"--device {device}: Ray chooses the GPUs. Give --device cuda")
    if gpus is None:
        has_gpu = any(node.get("GPU") for node in nodes)
        gpus = float(has_gpu if device is None else kind == "cuda")
    if kind == "cuda" and not gpus:
        raise UsageError(f"--device {device} and --ray-gpus 0 contradict each other. Leave one out")
    slots = [_count_slots(node, gpus, len(nodes), options) for node in nodes]
    shares = [int(node["CPU"] / count) for node, count in zip(nodes, slots, strict=True) if count]
    cpus = options.ray_cpus or max(1, min(shares, default=1))
    workers = options.workers or max(1, min(int(cpus) - 1, MAX_WORKERS))
    actors = options.ray_forwards or max(1, sum(slots))
    return WorkerPlan(actors, workers, cpus, gpus, device or ("cuda" if gpus else "cpu"))


def _count_slots(node: Mapping[str, float], gpus: float, nodes: int, options: Options) -> int:
    """Return how many actors a machine has room for."""
    cpus = node.get("CPU", 0)
    if gpus and cpus:  # No actor takes shares of two GPUs. Rounded: a tenth fits ten times.
        return int(node.get("GPU", 0)) * int(1 / gpus + 1e-9)
    if options.ray_cpus:
        return int(cpus / options.ray_cpus)
    return math.ceil((options.ray_forwards or 1) / nodes) if cpus else 0


def check_ray(options: Options) -> WorkerPlan:
    """The plan for this machine; `ObygazeError` if the options or Ray do not allow a run."""
    if options.max_gpu_memory:
        raise UsageError("--max-gpu-memory is not for --engine ray; give a part: --ray-gpus 0.5")
    here = torch.cuda.device_count()
    plan = plan_workers([{"CPU": usable_cores(), "GPU": here}], options)
    if not options.ray_address and (needed := plan.actors * plan.gpus) > here:
        remedy = "leave out --ray-gpus" if options.ray_gpus else "give --device cpu"
        raise UsageError(
            f"{plan.actors} workers x {plan.gpus:g} GPU need {needed:g} GPU; this machine has "
            f"{here}; {remedy}, or give the --ray-address of a cluster that has them"
        )
    import_ray(options.ray_address)
    return plan


def run_ray(
    loads: Sequence[Callable[[str | None], Backbone]],
    job: Job,
    backbones: Sequence[Backbone],
    writers: Mapping[str, StoreWriter],
    progress: Progress,
) -> None:
    """Compute the blocks of a job on a cluster; each of `loads` loads a backbone on a device."""
    options, media = job.options, job.media
    assert media is not None
    plan = check_ray(options)
    cpus = math.ceil(plan.actors * plan.cpus)
    with connect(options.ray_address, cpus, torch.cuda.device_count()) as cluster:
        if options.ray_address:
            nodes = [node["Resources"] for node in cluster.ray.nodes() if node["Alive"]]
            plan = plan_workers(nodes, options)
        blind = [backbone.without_network() for backbone in backbones]
        setup = Setup(blind, loads, plan, media.absolute(), options, Path.cwd())
        progress.waiting_for = (
            f"waiting for the Ray cluster to give {plan.actors} x "
            f"({plan.cpus:g} CPU, {plan.gpus:g} GPU)"
        )
        with commit_blocks(job, writers, progress) as (pieces, writer, report):
            driver = _Driver(cluster, setup, job, progress, writer.add, report)
            driver.work(pieces)
        driver.fail_if_given_up()


@dataclass(frozen=True)
class Setup:
    """What every actor needs; `backbones` are without their networks."""

    backbones: Sequence[Backbone]
    loads: Sequence[Callable[[str | None], Backbone]]
    plan: WorkerPlan
    videos: Path
    options: Options
    folder: Path
    software: str = field(default_factory=lambda: version("obygaze"))

    def check(self) -> None:
        """Raise if this machine has other software, or does not see the films."""
        if (installed := version("obygaze")) != self.software:
            raise ClusterError(
                f"the machine {platform.node()} has obygaze {installed}, and the command runs "
                f"{self.software}; install the same version on every machine of the cluster"
            )
        if not self.videos.is_dir():
            raise VideoError(
                f"the machine {platform.node()} has no folder {self.videos}; every machine of "
                "the cluster has to see the films under the same path"
            )


class Computer:
    """An actor: it holds the backbones on a device, and runs the loop with its own decoders."""

    def start(self, setup: Setup) -> dict[str, str]:
        """Load the backbones; return the device of each."""
        setup.check()
        # Checkpoints may be relative to the folder of the command.
        with contextlib.suppress(OSError):
            os.chdir(setup.folder)
        expected = {backbone.name: _comparable(backbone) for backbone in setup.backbones}
        loaded = [load(setup.plan.device) for load in setup.loads]
        backbones = [backbone for backbone in loaded if backbone.name in expected]
        for backbone in backbones:
            if changed := recipe_differences(expected[backbone.name], _comparable(backbone)):
                raise BackboneError(
                    f"the machine {platform.node()} has another {backbone.name}: with other "
                    f"{' and other '.join(changed)}"
                )
        for device in {backbone.device for backbone in backbones}:
            if device.startswith("cuda") and setup.plan.gpus < 1:
                limit_gpu_share(device, setup.plan.gpus)
        options = replace(setup.options, workers=setup.plan.workers)
        self._broken = BrokenBackbones(math.inf)  # if all are, the command ends
        self._extractor = Extractor(backbones, setup.videos, options, self._broken)
        return {backbone.name: describe_device(backbone.device) for backbone in backbones}

    def compute(self, piece: Block, items: Mapping[int, Item]) -> tuple[Outcomes, Progress]:
        """Read and embed a piece; return its outcomes, and what reading it told."""
        progress, outcomes = Progress(self._broken), dict[str, Any]()
        self._extractor.embed(
            [piece], items.__getitem__, progress, lambda _, computed: outcomes.update(computed)
        )
        broken = dict(self._broken.reasons)  # of now: another thread may add to it
        computed = {name: rows for name, rows in outcomes.items() if name not in broken}
        return computed, replace(progress, broken=BrokenBackbones(math.inf, broken))


def _comparable(backbone: Backbone) -> dict[str, Any]:
    """The attributes of a backbone that `recipe_differences` compares."""
    return recipe_of(backbone).attributes() | {"items_digest": "", "block_rows": 0}


class _Driver:
    """Gives pieces to actors, and again to others if an actor is lost."""

    def __init__(
        self,
        cluster: Cluster,
        setup: Setup,
        job: Job,
        progress: Progress,
        deliver: Callable[[Block, Outcomes], None],
        report: Callable[[int], None],
    ) -> None:
        self._cluster, self._ray, self._setup = cluster, cluster.ray, setup
        self._job, self._progress, self._deliver, self._report = job, progress, deliver, report
        # What is awaited of an actor: a piece, or its start (None).
        self._awaited: dict[Any, tuple[Block | None, Actor]] = {}
        self._free: list[Actor] = []  # each as often as it may get another piece
        self._again: deque[Block] = deque()
        self._losses: Counter[int] = Counter()
        self._devices: dict[str, set[str]] = defaultdict(set)
        self._given_up: list[str] = []
        computer = self._ray.remote(
            num_cpus=setup.plan.cpus,
            num_gpus=setup.plan.gpus,
            max_restarts=MAX_RESTARTS,
            max_concurrency=PIECES_PER_ACTOR,
        )(Computer)
        for _ in range(setup.plan.actors):
            self._start(computer.remote())

    def work(self, pieces: Iterator[Block]) -> None:
        """Have every piece computed, as time allows."""
        progress, begin = self._progress, time.monotonic()
        while not progress.is_over():
            self._give_out(pieces)
            if self._free and not any(piece for piece, _ in self._awaited.values()):
                return
            # An answer has arrived then: `get` would wait for one even if the cluster is gone.
            finished, _ = self._ray.wait(list(self._awaited), timeout=1)
            self._cluster.check()
            for reference in finished:
                if reference in self._awaited:  # not lost with another piece of its actor
                    self._receive(reference)
            seconds = time.monotonic() - begin
            progress.decode = max(0.0, seconds - progress.device - progress.write)
            self._report(0)

    def fail_if_given_up(self) -> None:
        """Raise `ClusterError` if pieces are left, over which too many actors were lost."""
        if self._given_up:
            raise ClusterError(
                f"{'; '.join(self._given_up)}; what was computed is kept, and the same command "
                "retries the rest"
            )

    def _give_out(self, pieces: Iterator[Block]) -> None:
        while self._free:
            piece = self._again.popleft() if self._again else next(pieces, None)
            if piece is None:
                return
            actor = max(self._free, key=self._free.count)
            self._free.remove(actor)
            items = {row: self._job.manifest.items[row] for row in piece.rows}
            self._awaited[actor.compute.remote(piece, items)] = piece, actor

    def _start(self, actor: Actor) -> None:
        # Ray counts each attempt while it restarts an actor: only one that is dead fails.
        start = actor.start.options(max_task_retries=-1)
        self._awaited[start.remote(self._setup)] = None, actor

    def _receive(self, reference: Any) -> None:
        piece, actor = self._awaited[reference]
        try:
            answer = self._ray.get(reference, timeout=ANSWER_TIMEOUT_S)
        except self._ray.exceptions.RayError as problem:
            self._cluster.check()
            self._lose(reference, problem)
            return
        del self._awaited[reference]
        if piece:
            self._free.append(actor)
            self._take(piece, *answer)
            return
        self._free += [actor] * PIECES_PER_ACTOR
        for name, device in answer.items():
            self._devices[name].add(device)
            self._progress.devices[name] = "; ".join(sorted(self._devices[name]))

    def _take(self, piece: Block, outcomes: Outcomes, told: Progress) -> None:
        progress = self._progress
        progress.items += told.items
        progress.counts += told.counts
        progress.device += told.device / self._setup.plan.actors
        progress.batches.update(told.batches)
        for name, reason in told.broken.reasons.items():
            progress.broken.add(name, BrokenBackbone(reason))
        self._deliver(piece, outcomes)
        self._report(len(piece.rows))

    def _lose(self, reference: Any, problem: Exception) -> None:
        """Give lost pieces out again; one that is lost too often is left to do."""
        reason = describe_failure(problem)
        self._progress.counts.lost[reason] += 1
        actor, lost = self._awaited[reference][1], [reference]
        is_dead = isinstance(problem, self._ray.exceptions.RayActorError)
        if is_dead:
            self._free = [free for free in self._free if free is not actor]
            lost = [ref for ref, (_, owner) in self._awaited.items() if owner is actor]
        pieces = [piece for ref in lost if (piece := self._awaited.pop(ref)[0])]
        if not pieces:
            if not self._free and not self._awaited:
                self._given_up.append(
                    f"the processes of the cluster cannot start ({reason}); every machine needs "
                    "the same obygaze: pip install 'obygaze[extract,ray]'"
                )
                self.fail_if_given_up()
            return
        if is_dead:
            self._start(actor)
        else:
            self._free.append(actor)
        oldest = pieces[0]  # which was computed
        self._losses[oldest.rows[0]] += 1
        if self._losses[oldest.rows[0]] == MAX_LOSSES:
            del pieces[0]
            self._give_up(oldest, reason)
        self._again.extendleft(reversed(pieces))

    def _give_up(self, piece: Block, reason: str) -> None:
        first, last = (self._job.manifest.ids[piece.rows[i]] for i in (0, -1))
        subject = f"{MAX_LOSSES} processes were lost over the clips {first} to {last}"
        self._given_up.append(f"{subject} ({reason})")
        if not self._progress.items:  # other pieces would fail too
            self.fail_if_given_up()


def describe_failure(problem: Exception) -> str:
    """Why work was lost, in one line; raises errors that would recur on every machine."""
    cause, text = getattr(problem, "cause", None), str(problem).strip()
    if isinstance(cause, ObygazeError):
        raise cause from None
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {first_line(cause)}"
    return text.splitlines()[-1] if "creation task" in text else type(problem).__name__
