"""Extraction on a Ray cluster: one actor per GPU or machine runs the loop on pieces of blocks.

Actors return arrays to this process, which commits them, so only the films have to be reachable
from every machine. Ray places and restarts actors. If an actor is lost, its piece goes to the next
free actor: Ray's own retry would wait for the same actor, even if its machine never comes back. If
a machine has different software or backbones, the run ends with an error, because its results would
differ.

When a cluster is lost, Ray searches for it for a minute and then ends the process without an error.
So the address is checked before Ray gets it, and the cluster's ports are checked during the run.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import platform
import secrets
import signal
import socket
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import MAX_WORKERS, describe_device, limit_gpu_share
from obygaze_features.common.package import need, usable_cores
from obygaze_features.common.text import first_line
from obygaze_features.errors import (
    BackboneError,
    ClusterError,
    ObygazeError,
    UsageError,
    VideoError,
)
from obygaze_features.extraction.decoder import Decoders
from obygaze_features.extraction.job import Block, Job, Options, recipe_of
from obygaze_features.extraction.loop import Extractor, Outcomes, commit_blocks
from obygaze_features.extraction.summary import Progress
from obygaze_features.items.items import Item
from obygaze_features.store import StoreWriter
from obygaze_features.store.writer import recipe_differences

MAX_LOSSES = 3
"""The number of lost actors at which the piece that they were computing is given up."""
MAX_RESTARTS = 10
"""The number of times that Ray restarts a lost actor."""
PIECES_PER_ACTOR = 2
"""The number of pieces that an actor has at a time: while it embeds one, it reads the next."""
ANSWER_TIMEOUT_S = 30.0

PORT_TIMEOUT_S = 5.0
_SEVERAL_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""The environment variable that lets Ray listen beyond loopback, on Linux too despite its name."""


class WorkerPlan(NamedTuple):
    """The number of actors, and each actor's decoding processes, CPUs, GPUs and device."""

    actors: int
    workers: int
    cpus: float
    gpus: float
    device: str


def plan_workers(nodes: Sequence[Mapping[str, float]], options: Options) -> WorkerPlan:
    """Choose the number and size of actors, from the options and each machine's CPUs and GPUs."""
    gpus, device = options.ray_gpus, options.device
    kind, _, number = (device or "").partition(":")
    if number not in ("", "0"):
        raise UsageError(f"--device {device}: Ray chooses the GPUs. Use --device cuda")
    if gpus is None:
        gpus = float(kind == "cuda" if device else any(node.get("GPU") for node in nodes))
    if kind == "cuda" and not gpus:
        raise UsageError(f"--device {device} and ray_gpus=0 contradict each other; use only one")
    slots = [_count_slots(node, gpus, len(nodes), options) for node in nodes]
    shares = [int(node["CPU"] / count) for node, count in zip(nodes, slots, strict=True) if count]
    cpus = options.ray_cpus or max(1, min(shares, default=1))
    workers = options.workers or max(1, min(int(cpus) - 1, MAX_WORKERS))
    actors = options.ray_forwards or max(1, sum(slots))
    return WorkerPlan(actors, workers, cpus, gpus, device or ("cuda" if gpus else "cpu"))


def _count_slots(node: Mapping[str, float], gpus: float, nodes: int, options: Options) -> int:
    """Return the number of actors for a machine.

    These are as many as its GPUs hold or, if actors use no GPUs, its share of `ray_forwards`.
    """
    cpus = node.get("CPU", 0)
    if gpus and cpus:  # An actor uses only one GPU. Rounded, so that a tenth fits ten times.
        return int(node.get("GPU", 0)) * int(1 / gpus + 1e-9)
    return math.ceil((options.ray_forwards or 1) / nodes) if cpus else 0


def check_ray(options: Options) -> WorkerPlan:
    """Return the plan for this machine; raise `UsageError` if the options do not allow a run."""
    if options.max_gpu_memory:
        raise UsageError("--max-gpu-memory does not work on Ray; use ray_gpus=0.5 for half a GPU")
    here = torch.cuda.device_count()
    plan = plan_workers([{"CPU": usable_cores(), "GPU": here}], options)
    if not options.ray_address and (needed := plan.actors * plan.gpus) > here:
        remedy = "drop ray_gpus and use --device cpu" if options.ray_gpus else "use --device cpu"
        raise UsageError(
            f"{plan.actors} actors x {plan.gpus:g} GPU need {needed:g} GPU, but this machine has "
            f"{here}; {remedy}, or pass --ray and the address of a cluster with enough GPUs"
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
    """Compute the blocks of a job on a cluster. `loads` has a function to load each backbone."""
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
            f"waiting for the Ray cluster to provide {plan.actors} x "
            f"({plan.cpus:g} CPU, {plan.gpus:g} GPU)"
        )
        with commit_blocks(job, writers, progress) as (pieces, writer, report):
            _Driver(cluster, setup, job, progress, writer.add, report).work(pieces)


@dataclass(frozen=True)
class Setup:
    """The settings that every actor needs to start; `backbones` have no networks."""

    backbones: Sequence[Backbone]
    loads: Sequence[Callable[[str | None], Backbone]]
    plan: WorkerPlan
    videos: Path
    options: Options
    folder: Path
    software: str = field(default_factory=lambda: version("obygaze"))

    def check(self) -> None:
        """Raise an error if this machine has another version of obygaze, or lacks the films."""
        if (installed := version("obygaze")) != self.software:
            raise ClusterError(
                f"the machine {platform.node()} has obygaze {installed}, but this command runs "
                f"{self.software}; install the same version on every machine of the cluster"
            )
        if not self.videos.is_dir():
            raise VideoError(
                f"the machine {platform.node()} has no folder {self.videos}; every machine of "
                "the cluster must see the films under the same path"
            )


class Computer:
    """A Ray actor, which holds the backbones on a device.

    It reads pieces with its own decoders, and embeds them.
    """

    _devices: Mapping[str, str] = {}

    def start(self, setup: Setup) -> Mapping[str, str]:
        """Load the backbones unless they are loaded already; return the device of each."""
        if not self._devices:
            self._load(setup)
        return self._devices

    def _load(self, setup: Setup) -> None:
        setup.check()
        # Paths of checkpoints may be relative to the command's folder.
        with contextlib.suppress(OSError):
            os.chdir(setup.folder)
        expected = {backbone.name: _comparable(backbone) for backbone in setup.backbones}
        backbones = [load(setup.plan.device) for load in setup.loads]
        for backbone in backbones:
            if changed := recipe_differences(expected[backbone.name], _comparable(backbone)):
                raise BackboneError(
                    f"the machine {platform.node()} has another version of {backbone.name}, with "
                    f"different {' and different '.join(changed)}; use the same one everywhere"
                )
        for device in {backbone.device for backbone in backbones}:
            if device.startswith("cuda") and setup.plan.gpus < 1:
                limit_gpu_share(device, setup.plan.gpus)
        decoders = Decoders(setup.plan.workers, setup.options.stall_timeout)
        self._extractor = Extractor(backbones, setup.videos, setup.options, decoders)
        self._devices = {b.name: describe_device(b.device) for b in backbones}

    def compute(self, piece: Block, items: Mapping[int, Item]) -> tuple[Outcomes, Progress]:
        """Read and embed a piece; return its outcomes, and the progress of reading it."""
        progress, outcomes = Progress(), dict[str, Any]()
        self._extractor.embed(
            [piece], items.__getitem__, progress, lambda _, computed: outcomes.update(computed)
        )
        return outcomes, progress


def _comparable(backbone: Backbone) -> dict[str, Any]:
    """Return the attributes of a backbone that `recipe_differences` compares."""
    return recipe_of(backbone).attributes() | {"items_digest": "", "block_rows": 0}


class _Driver:
    """A driver that gives pieces to actors, and the pieces of lost actors to other actors."""

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
        # The awaited result of each actor: a piece, or its start (None).
        self._awaited: dict[Any, tuple[Block | None, Any]] = {}
        self._free: list[Any] = []  # each actor is listed once per piece that it may still get
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
        """Compute every piece on the actors, as time allows."""
        progress, begin = self._progress, time.monotonic()
        while not progress.is_over():
            self._give_out(pieces)
            if self._free and not any(piece for piece, _ in self._awaited.values()):
                break
            # Only get answers that have arrived: `get` would wait even if the cluster is gone.
            finished, _ = self._ray.wait(list(self._awaited), timeout=1)
            self._cluster.check()
            for reference in finished:
                if reference in self._awaited:  # not lost with another piece of its actor
                    self._receive(reference)
            seconds = time.monotonic() - begin
            progress.decode = max(0.0, seconds - progress.device - progress.write)
            self._report(0)
        if self._given_up:
            self._fail()

    def _give_out(self, pieces: Iterator[Block]) -> None:
        while self._free:
            piece = self._again.popleft() if self._again else next(pieces, None)
            if piece is None:
                return
            actor = max(self._free, key=self._free.count)
            self._free.remove(actor)
            items = {row: self._job.manifest.items[row] for row in piece.rows}
            self._awaited[actor.compute.remote(piece, items)] = piece, actor

    def _start(self, actor: Any) -> None:
        # While Ray restarts an actor, each attempt to call it counts as a retry, so retries are not
        # limited. The call fails once the actor is dead.
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
        self._free_slots(actor)
        if piece:
            self._take(piece, *answer)
            return
        for name, device in answer.items():
            self._devices[name].add(device)
            self._progress.devices[name] = "; ".join(sorted(self._devices[name]))

    def _free_slots(self, actor: Any) -> None:
        """Let an actor get more pieces: one at a time after a loss, to see which piece is fatal."""
        slots = 1 if self._again else PIECES_PER_ACTOR
        busy = sum(owner is actor for _, owner in self._awaited.values())
        missing = slots - busy - self._free.count(actor)
        self._free += [actor] * missing

    def _take(self, piece: Block, outcomes: Outcomes, added: Progress) -> None:
        progress = self._progress
        progress.items += added.items
        progress.counts += added.counts
        progress.device += added.device / self._setup.plan.actors
        progress.batches.update(added.batches)
        progress.read_ahead_bytes = added.read_ahead_bytes
        self._deliver(piece, outcomes)
        self._report(len(piece.rows))

    def _lose(self, reference: Any, problem: Exception) -> None:
        """Give a lost actor's pieces to other actors; give up a piece that was lost too often."""
        reason = describe_failure(problem)
        self._progress.counts.lost[reason] += 1
        actor = self._awaited[reference][1]
        self._free = [free for free in self._free if free is not actor]
        lost = [ref for ref, (_, owner) in self._awaited.items() if owner is actor]
        pieces = [piece for ref in lost if (piece := self._awaited.pop(ref)[0])]
        if pieces:
            self._start(actor)
            self._count_loss(pieces, reason)
            self._again.extendleft(reversed(pieces))
        elif not self._free and not self._awaited:
            self._given_up.append(
                f"the processes of the cluster cannot start ({reason}); every machine needs "
                "the same obygaze: pip install 'obygaze[extract,ray]'"
            )
            self._fail()

    def _count_loss(self, pieces: list[Block], reason: str) -> None:
        """Count a loss for the oldest piece, which was being computed; drop it at `MAX_LOSSES`."""
        rows = pieces[0].rows
        self._losses[rows[0]] += 1
        if self._losses[rows[0]] < MAX_LOSSES:
            return
        del pieces[0]
        first, last = (self._job.manifest.ids[row] for row in (rows[0], rows[-1]))
        subject = f"{MAX_LOSSES} processes were lost while computing the clips {first} to {last}"
        self._given_up.append(f"{subject} ({reason})")
        if not self._progress.items:  # other pieces would probably fail, too
            self._fail()

    def _fail(self) -> None:
        raise ClusterError(
            f"{'; '.join(self._given_up)}; finished work is kept. To retry the rest, run the "
            "same command again"
        )


def describe_failure(problem: Exception) -> str:
    """Describe in one line why work was lost; raise errors that would recur on every machine."""
    cause, text = getattr(problem, "cause", None), str(problem).strip()
    if isinstance(cause, ObygazeError):
        raise cause from None
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {first_line(cause)}"
    return text.splitlines()[-1] if "creation task" in text else type(problem).__name__


@dataclass(frozen=True)
class Cluster:
    """The cluster that this process is connected to, and the ports of its head and this machine."""

    ray: ModuleType
    ports: tuple[tuple[str, int], ...]

    def check(self) -> None:
        """Raise `ClusterError` if the cluster is gone."""
        if not all(_answers(*port) for port in self.ports):
            raise ClusterError(
                f"the Ray cluster ({':'.join(map(str, self.ports[0]))}) no longer answers; "
                "finished work is kept. To resume, run the same command again"
            )


def import_ray(address: str | None) -> ModuleType:
    """Import Ray, set up to join a cluster or, without an address, to start one on loopback."""
    if address is None:
        os.environ.setdefault(_SEVERAL_MACHINES, "0")  # Ray reads it on import
    ray = need("ray", extra="ray")
    if address is not None:
        check_address(address)
    return ray


@contextlib.contextmanager
def connect(address: str | None, cpus: int, gpus: int) -> Iterator[Cluster]:
    """Connect to the cluster at an address or ``auto``; without an address, start a cluster here.

    A new cluster has `cpus` and `gpus`, and ends with the ``with`` block. It listens only on this
    machine's loopback address, unless Ray was imported before.
    """
    ray = import_ray(address)
    # Messages of Ray's own processes would clutter output that scripts read. Ray is started in a
    # thread of its own: a signal in the main thread would leave it half started. The thread stays
    # alive, because Ray's processes end with the thread that started them.
    with contextlib.redirect_stdout(io.StringIO()), ThreadPoolExecutor(1, "ray") as thread:
        started = thread.submit(_init, ray, address, cpus, gpus)
        try:
            while not started.done():
                time.sleep(0.01)
                _restore_sigterm()
            started.result()
            _restore_sigterm()
            context = ray.get_runtime_context()
            head, _, port = context.gcs_address.rpartition(":")
            here = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
            own = here["NodeManagerAddress"], here["NodeManagerPort"]
            yield Cluster(ray, ((head, int(port)), own))
        except SystemError as problem:  # Ray raises it for a signal that arrives with an answer
            if problem.__cause__ is None or isinstance(problem.__cause__, Exception):
                raise
            raise problem.__cause__ from None
        finally:
            thread.submit(ray.shutdown)


def _restore_sigterm() -> None:
    """Restore Python's SIGTERM handler, because Ray's ends the process with a traceback."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _init(ray: ModuleType, address: str | None, cpus: int, gpus: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    new: dict[str, Any] = {}
    if not address:
        # Otherwise, Ray would write its token to a file that all users can read; with the token,
        # they could run programs.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        new = {"num_cpus": cpus, "num_gpus": gpus, "include_dashboard": False}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.CRITICAL, **new)
    except Exception as problem:  # Ray raises every kind of error, even plain Exceptions
        action = f"joined at {address}" if address else "started on this machine"
        reason = first_line(problem)
        if address:
            reason += (
                "; if the cluster asks for a token, copy ~/.ray/auth_token from its head and set "
                "RAY_AUTH_MODE=token"
            )
        raise ClusterError(f"a Ray cluster cannot be {action}: {reason}") from None


def check_address(address: str) -> None:
    """Raise `ClusterError` if no cluster answers, because Ray would keep trying for ten minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "://" in address or not (host and port.isdecimal()):
        raise UsageError(
            f"--ray must be HOST:PORT of the cluster's head, such as 10.0.0.1:6379, or "
            f"auto (got {address!r})"
        )
    if not _answers(host.strip("[]"), int(port)):
        raise ClusterError(
            f"no Ray cluster answers at {address}; check the address, and that the cluster runs: "
            "ray status"
        )


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError, OverflowError):
        socket.create_connection((host, port), PORT_TIMEOUT_S).close()
        return True
    return False
