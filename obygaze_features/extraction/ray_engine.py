"""Extraction on a Ray cluster: actors have tasks read clips and embed them, this process writes.

So only the films have to be reachable from every machine. Ray places tasks and actors, repeats a
task and restarts an actor that is lost. A lost piece of a block goes to another actor: Ray's own
retry would wait for the same one, even if its machine never comes back. A machine that differs
from this one raises an error that ends the run, as its results would differ, too.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import default_workers, describe_device, limit_gpu_share
from obygaze_features.common.progress import meter
from obygaze_features.common.text import first_line
from obygaze_features.errors import (
    BackboneError,
    BrokenBackbone,
    ClusterError,
    ObygazeError,
    UsageError,
    VideoError,
)
from obygaze_features.extraction.forward import Embedder, Forward
from obygaze_features.extraction.plan import (
    BlockTask,
    BrokenBackbones,
    ExtractionRun,
    Load,
    Options,
    recipe_of,
)
from obygaze_features.extraction.ray_cluster import Cluster, connect, import_ray
from obygaze_features.extraction.readers import Decoder, ItemReader, ReadItem
from obygaze_features.extraction.summary import Counts
from obygaze_features.extraction.uploads import FrameResizer, no_uploads, upload
from obygaze_features.extraction.write import BlockWriter
from obygaze_features.manifests import Item
from obygaze_features.store import Done, Failed
from obygaze_features.store.writer import recipe_differences

MAX_LOSSES = 3
"""Processes that may be lost over the same piece of a block."""
MAX_RESTARTS = 10
"""How often Ray restarts an actor that is lost."""
PIECES_PER_COMPUTER = 3
"""One piece of a block is computed while the next is uploaded and another read."""
ANSWER_TIMEOUT_S = 30.0

Reference = Any
"""Ray's reference to a result that may still be computed."""
Actor = Any
"""Ray's handle of a `Computer`."""


class WorkerPlan(NamedTuple):
    """How many processes compute and how many read, and what each that computes takes."""

    forwards: int
    workers: int
    cpus: float
    gpus: float
    device: str


def plan_workers(available: Mapping[str, float], options: Options) -> WorkerPlan:
    """Choose what the options leave open, by the available ``CPU`` and ``GPU``."""
    gpus, device, cpus = options.ray_gpus, options.device, options.ray_cpus or 1.0
    kind, _, number = (device or "").partition(":")
    if number not in ("", "0"):
        raise UsageError(f"--device {device}: Ray chooses the GPUs. Give --device cuda")
    if gpus is None:
        gpus = float(bool(available["GPU"]) if device is None else kind == "cuda")
    if kind == "cuda" and not gpus:
        raise UsageError(f"--device {device} and --ray-gpus 0 contradict each other. Leave one out")
    # No process takes shares of two GPUs. Rounded: a tenth fits ten times.
    fitting = max(1, int(available["GPU"]) * int(1 / gpus + 1e-9)) if gpus else 1
    forwards = options.ray_forwards or fitting
    workers = options.workers or max(1, int(available["CPU"] - forwards * cpus))
    return WorkerPlan(forwards, workers, cpus, gpus, device or ("cuda" if gpus else "cpu"))


def check_ray(options: Options) -> WorkerPlan:
    """The plan for this machine; `ObygazeError` if the options or Ray do not allow a run."""
    if options.max_gpu_memory:
        raise UsageError("--max-gpu-memory is not for --engine ray; give a part: --ray-gpus 0.5")
    here = torch.cuda.device_count()
    plan = plan_workers({"CPU": default_workers() + 1, "GPU": here}, options)
    if not options.ray_address and (needed := plan.forwards * plan.gpus) > here:
        remedy = "leave out --ray-gpus" if options.ray_gpus else "give --device cpu"
        raise UsageError(
            f"{plan.forwards} workers x {plan.gpus:g} GPU need {needed:g} GPU; this machine has "
            f"{here}; {remedy}, or give the --ray-address of a cluster that has them"
        )
    import_ray(options.ray_address)
    return plan


def run_ray(run: ExtractionRun, *, loads: Sequence[Load]) -> None:
    """Extract on a Ray cluster; each of `loads` loads a backbone on a device."""
    plan = check_ray(run.options)
    cpus = math.ceil(plan.forwards * plan.cpus) + plan.workers
    with connect(run.options.ray_address, cpus, torch.cuda.device_count()) as cluster:
        if run.options.ray_address:
            plan = plan_workers({"CPU": 0, "GPU": 0} | cluster.ray.cluster_resources(), run.options)
        _RayRun(run, plan, loads, cluster).work()


@dataclass(frozen=True)
class Setup:
    """What every process of the cluster needs; `backbones` are without their networks."""

    backbones: Sequence[Backbone]
    loads: Sequence[Load]
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


class _RayRun:
    """What is awaited from which actor: its start (no piece), or a piece of a block."""

    def __init__(
        self, run: ExtractionRun, plan: WorkerPlan, loads: Sequence[Load], cluster: Cluster
    ) -> None:
        self.run, self.plan, self.cluster, self.ray = run, plan, cluster, cluster.ray
        options, media = run.options, run.media
        assert media is not None
        blind = [backbone.without_network() for backbone in run.backbones]
        self._setup = Setup(blind, loads, plan, media.absolute(), options, Path.cwd())
        # The reference is within a tuple, where Ray does not resolve it.
        read = self.ray.remote(num_cpus=1, max_retries=MAX_LOSSES - 1)(read_clip)
        self._reading = read, self.ray.put(self._setup)
        computer = self.ray.remote(
            num_cpus=plan.cpus,
            num_gpus=plan.gpus,
            max_restarts=MAX_RESTARTS,
            max_concurrency=PIECES_PER_COMPUTER,
        )(Computer)
        self._awaited: dict[Reference, tuple[BlockTask | None, Actor]] = {}
        self._begun: dict[int, tuple[BlockTask, dict[str, Any], set[int]]] = {}  # and rows to do
        self._free: list[Actor] = []  # each as often as it may get another piece
        self._again: deque[BlockTask] = deque()
        self._losses: Counter[int] = Counter()
        self._devices: dict[str, set[str]] = defaultdict(set)
        self._given_up: list[str] = []
        for _ in range(plan.forwards):
            self._start(computer.remote())

    def work(self) -> None:
        """Compute the missing blocks, as time and other runs allow."""
        claims = self.run.claims()
        with (
            claims.heartbeat(),
            BlockWriter(self.run.targets, claims) as self._writer,
            meter(self.run.item_count, "Extracting", unit="clip") as self._advance,
        ):
            try:
                self._drive(self._divide(self.run.tasks(claims)))
            finally:  # what is computed of a block is kept
                for block, outcomes, _ in self._begun.values():
                    self._writer.submit(block, outcomes)
        if self._given_up:
            self._fail()

    def _divide(self, blocks: Iterator[BlockTask]) -> Iterator[BlockTask]:
        for block in blocks:
            self._begun[block.block] = block, {}, set(block.rows)
            yield from block.pieces()

    def _drive(self, pieces: Iterator[BlockTask]) -> None:
        tally, begin = self.run.tally, time.monotonic()
        count, workers, cpus, gpus, _ = self.plan
        waiting = (
            f"waiting for the Ray cluster to give {count} x ({cpus:g} CPU, {gpus:g} GPU) to "
            f"compute and {workers} x 1 CPU to read"
        )
        while not self.run.is_over():
            while self._free:
                piece = self._again.popleft() if self._again else next(pieces, None)
                if piece is None:
                    break
                actor = max(self._free, key=self._free.count)
                self._free.remove(actor)
                items = [self.run.manifest.items[row] for row in piece.rows]
                self._awaited[actor.compute.remote(piece, items)] = piece, actor
            if self._free and not any(piece for piece, _ in self._awaited.values()):
                return
            # An answer has arrived then: `get` would wait for one even if the cluster is gone.
            finished, _ = self.ray.wait(list(self._awaited), timeout=1)
            self.cluster.check()
            for reference in finished:
                self._receive(reference)
            tally.write = self._writer.waited_s
            seconds = time.monotonic() - begin
            tally.decode = max(0.0, seconds - tally.device - tally.write)
            note = self.run.progress_note() if tally.clips else waiting
            self._advance(self.run.take_passed(), note)

    def _start(self, actor: Actor) -> None:
        # Ray counts each attempt while it restarts an actor: only one that is dead fails.
        start = actor.start.options(max_task_retries=-1)
        self._awaited[start.remote(self._setup, self._reading)] = None, actor

    def _receive(self, reference: Reference) -> None:
        """Take an answer; a piece whose actor was lost is awaited no more."""
        if reference not in self._awaited:
            return
        piece, actor = self._awaited.pop(reference)
        try:
            answer = self.ray.get(reference, timeout=ANSWER_TIMEOUT_S)
        except self.ray.exceptions.RayError as problem:
            self.cluster.check()
            self._lose(piece, actor, problem)
            return
        if piece:
            self._free.append(actor)
            self._finish(piece, answer)
        else:
            self._free += [actor] * PIECES_PER_COMPUTER
            for name, device in answer.items():
                self._devices[name].add(device)
                self.run.devices[name] = "; ".join(sorted(self._devices[name]))

    def _lose(self, piece: BlockTask | None, actor: Actor, problem: Exception) -> None:
        """Give lost pieces out again; one that is lost too often is left to do."""
        reason = describe_failure(problem)
        self.run.tally.counts.lost[reason] += 1
        if not piece:
            if not self._free and not self._awaited:
                self._given_up.append(
                    f"the processes of the cluster cannot start ({reason}); every machine needs "
                    "the same obygaze: pip install 'obygaze[extract,ray]'"
                )
                self._fail()
            return
        pieces = [piece]
        if isinstance(problem, self.ray.exceptions.RayActorError):
            others = [ref for ref, (_, owner) in self._awaited.items() if owner is actor]
            pieces += [other for ref in others if (other := self._awaited.pop(ref)[0])]
            self._free = [free for free in self._free if free is not actor]
            self._start(actor)
        else:
            self._free.append(actor)
        self._losses[piece.rows[0]] += 1  # the oldest, which was computed
        if self._losses[piece.rows[0]] == MAX_LOSSES:
            first, last = (self.run.manifest.ids[piece.rows[i]] for i in (0, -1))
            subject = f"{MAX_LOSSES} processes were lost over the clips {first} to {last}"
            self._given_up.append(f"{subject} ({reason})")
            if not self.run.tally.clips:  # other pieces would fail too
                self._fail()
            pieces.remove(piece)
        self._again.extendleft(reversed(pieces))

    def _finish(self, piece: BlockTask, computed: Computed) -> None:
        tally = self.run.tally
        tally.clips += len(piece.rows)
        tally.counts += computed.counts
        tally.device += computed.seconds / self.plan.forwards
        self.run.batches.update(computed.batches)
        for name, reason in computed.broken.items():
            self.run.broken.add(name, BrokenBackbone(reason))
        _, outcomes, to_do = self._begun[piece.block]
        for name, rows in computed.outcomes.items():
            outcomes.setdefault(name, {}).update(rows)
        to_do.difference_update(piece.rows)
        if not to_do:
            self._writer.submit(*self._begun.pop(piece.block)[:2])
        self._advance(len(piece.rows), self.run.progress_note())

    def _fail(self) -> None:
        raise ClusterError(
            f"{'; '.join(self._given_up)}; what was computed is kept, and the same command "
            "retries the rest"
        )


def describe_failure(problem: Exception) -> str:
    """Why work was lost, in one line; raises errors that would recur on every process."""
    cause, text = getattr(problem, "cause", None), str(problem).strip()
    if isinstance(cause, ObygazeError):
        raise cause from None
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {first_line(cause)}"
    return text.splitlines()[-1] if "creation task" in text else type(problem).__name__


def comparable(backbone: Backbone) -> dict[str, Any]:
    """The attributes of a backbone that `recipe_differences` compares."""
    return recipe_of(backbone).attributes() | {"items_digest": "", "block_rows": 0}


_reader: list[tuple[ItemReader, Decoder]] = []
"""Of a process of the cluster, which Ray uses for one run only."""


def read_clip(setup: Setup, item: Item, names: Sequence[str]) -> ReadItem | Failed:
    """Read a clip in a task; frames are resized on the CPU before they travel, as arrays."""
    if not _reader:
        setup.check()
        reader = ItemReader(setup.videos, setup.backbones)
        _reader.append((reader, Decoder(setup.options.stall_timeout)))
    reader, decoder = _reader[0]
    clip = reader.read(decoder, item, names)
    if isinstance(clip, Failed):
        return clip
    return replace(clip, inputs={name: frames.numpy() for name, frames in clip.inputs.items()})


class Computed(NamedTuple):
    """A piece's outcomes for each store, what its clips told, and why backbones broke."""

    outcomes: dict[str, dict[int, Done | Failed]]
    counts: Counts
    batches: dict[str, int]
    seconds: float
    broken: dict[str, str]


class Computer:
    """Holds the backbones on a device, and embeds pieces of blocks that tasks read for it.

    While one thread embeds a piece, another uploads the next, and a third has one read.
    """

    def __init__(self) -> None:
        self._reading, self._uploading, self._embedding = (threading.Lock() for _ in range(3))
        self._unread: list[Reference] = []

    def start(self, setup: Setup, reading: tuple[Any, Any]) -> dict[str, str]:
        """Load the backbones; return the device of each. `reading` is a task and its setup."""
        setup.check()
        self._reading_task = reading
        self._window = max(1, setup.plan.workers // setup.plan.forwards)
        # Checkpoints may be relative to the folder of the command.
        with contextlib.suppress(OSError):
            os.chdir(setup.folder)
        expected = {backbone.name: comparable(backbone) for backbone in setup.backbones}
        loaded = [load(setup.plan.device) for load in setup.loads]
        backbones = [backbone for backbone in loaded if backbone.name in expected]
        for backbone in backbones:
            if changed := recipe_differences(expected[backbone.name], comparable(backbone)):
                raise BackboneError(
                    f"the machine {platform.node()} has another {backbone.name}: with other "
                    f"{' and other '.join(changed)}"
                )
        devices = {backbone.device for backbone in backbones}
        self._resizers = {device: FrameResizer(device) for device in devices}
        for device in devices:
            if device.startswith("cuda") and setup.plan.gpus < 1:
                limit_gpu_share(device, setup.plan.gpus)
        alone = partial(no_uploads, self._resizers.values())
        self._forwards = {
            backbone.name: Forward(backbone, setup.options.batch, alone) for backbone in backbones
        }
        self._broken = BrokenBackbones(math.inf)  # if all are, the command ends
        return {backbone.name: describe_device(backbone.device) for backbone in backbones}

    def compute(self, task: BlockTask, items: Sequence[Item]) -> Computed:
        """Have a piece read by tasks, on any machine, and embed it."""
        import ray

        (read, setup), clips = self._reading_task, []
        with self._reading:
            for row, item in zip(task.rows, items, strict=True):
                if len(self._unread) == self._window:
                    _, self._unread = ray.wait(self._unread, fetch_local=False)
                clips.append(read.remote(setup, item, task.names(row)))
                self._unread.append(clips[-1])
        with self._uploading:
            uploaded = [self.upload(clip) for clip in ray.get(clips)]
            self._embedding.acquire()  # in the order of the pieces
        try:
            return self.embed(task, uploaded)
        finally:
            self._embedding.release()

    def embed(self, task: BlockTask, items: Sequence[ReadItem | Failed]) -> Computed:
        """Embed a piece, given its clips in order, uploaded."""
        embedder = Embedder(self._forwards, self._broken)
        for row, item in zip(task.rows, items, strict=True):
            embedder.add(task, row, item)
        broken = dict(self._broken.reasons)
        return Computed(
            {name: rows for name, rows in embedder.take().items() if name not in broken},
            sum((item.counts for item in items if not isinstance(item, Failed)), Counts()),
            embedder.batches,
            embedder.seconds,
            broken,
        )

    def upload(self, clip: ReadItem | Failed) -> ReadItem | Failed:
        """Take a clip's frames to the devices, on streams beside those of the forward passes."""
        if isinstance(clip, Failed):
            return clip
        inputs, uploads = {}, []
        for name, frames in clip.inputs.items():
            device = self._forwards[name].backbone.device
            with self._resizers[device].aside() as uploader:
                (inputs[name],) = upload(device, [torch.tensor(frames)], uploader)
                uploads += [uploader.stream.record_event()] if uploader else []
        return replace(clip, inputs=inputs, uploads=uploads)
