"""Extraction on a Ray cluster: tasks read clips, actors embed blocks, and this process writes.

So only the films have to be reachable from every machine. Ray places tasks and actors, repeats the
start of an actor and restarts one that is lost. A block that is lost is given out again here, as
Ray's own retries would wait for the same actor, even if its machine never comes back. `Computer`
and `read_clip` raise the errors of a machine that differs from this one: its results would, too.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import default_workers, limit_gpu_share
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
from obygaze_features.extraction.forward import Forward
from obygaze_features.extraction.plan import (
    BlockTask,
    ExtractionRun,
    Load,
    Options,
    recipe_of,
)
from obygaze_features.extraction.ray_cluster import Cluster, connect, import_ray
from obygaze_features.extraction.readers import Decoder, ItemReader, ReadItem, upload
from obygaze_features.extraction.write import BlockWriter
from obygaze_features.manifests import Item
from obygaze_features.manifests.media import MediaFolder
from obygaze_features.store import Done, Failed, Status
from obygaze_features.store.format import BLOCK_ROWS
from obygaze_features.store.writer import recipe_differences

logger = logging.getLogger(__name__)

MAX_LOSSES = 3
"""Processes that may be lost over the same block, or one after another while they start."""
BLOCKS_PER_COMPUTER = 3
"""One block is computed while the next is uploaded and another read."""
SMALLEST_SHARE = 0.001
"""The smallest share of a CPU or GPU that a process may take."""
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
"""Ray's handle of a `Computer`."""
Pixels = Mapping[str, NDArray[Any]]
"""A clip's frames, resized, for each backbone that lacks them."""


@dataclass(frozen=True)
class WorkerPlan:
    """How many processes compute and how many read, and what each that computes takes."""

    forwards: int
    workers: int
    cpus: float
    gpus: float
    device: str

    def __str__(self) -> str:
        return (
            f"{self.forwards} x ({self.cpus:g} CPU, {self.gpus:g} GPU) to compute and "
            f"{self.workers} x 1 CPU to read"
        )


def plan_workers(available: Mapping[str, float], options: Options) -> WorkerPlan:
    """Choose what the options leave open, by the available ``CPU`` and ``GPU``."""
    gpus, device, cpus = options.ray_gpus, options.device, options.ray_cpus or 1.0
    kind, _, number = (device or "").partition(":")
    if number not in ("", "0"):
        raise UsageError(f"--device {device}: Ray chooses the GPUs. Give --device cuda")
    if gpus is None:
        gpus = float(bool(available["GPU"]) if device is None else kind == "cuda")
    if gpus > 1 or 0 < gpus < SMALLEST_SHARE:
        raise UsageError(
            f"--ray-gpus must be 0, 1 or a share such as 0.5 (got {gpus:g}): a process computes "
            "on one GPU; --ray-forwards says how many processes"
        )
    if kind == "cuda" and not gpus:
        raise UsageError(
            f"--device {device} and --ray-gpus {gpus:g} contradict each other. Leave one of them "
            "out"
        )
    # No process takes shares of two GPUs. Rounded: a tenth fits ten times.
    fitting = max(1, int(available["GPU"]) * int(1 / gpus + 1e-9)) if gpus else 1
    forwards = options.ray_forwards or fitting
    workers = options.workers or max(1, int(available["CPU"] - forwards * cpus))
    return WorkerPlan(forwards, workers, cpus, gpus, device or ("cuda" if gpus else "cpu"))


def check_ray(options: Options) -> WorkerPlan:
    """The plan for this machine; `ObygazeError` if the options or Ray do not allow a run."""
    if options.max_gpu_memory:
        raise UsageError("--max-gpu-memory is not for --engine ray; give a part: --ray-gpus 0.5")
    plan = plan_workers(_resources_here(), options)
    here = torch.cuda.device_count()
    if not options.ray_address and (needed := plan.forwards * plan.gpus) > here:
        remedy = "leave out --ray-gpus" if options.ray_gpus else "give --device cpu"
        raise UsageError(
            f"{plan.forwards} workers x {plan.gpus:g} GPU need {needed:g} GPU; this machine has "
            f"{here}; {remedy}, or give the --ray-address of a cluster that has them"
        )
    import_ray(options.ray_address)
    return plan


def _resources_here() -> dict[str, float]:
    return {"CPU": default_workers() + 1, "GPU": torch.cuda.device_count()}


def run_ray(run: ExtractionRun, *, loads: Sequence[Load]) -> None:
    """Extract on a Ray cluster; each of `loads` loads a backbone on a device."""
    options, here = run.options, _resources_here()
    plan = check_ray(options)
    needed_cpus = int(plan.forwards * plan.cpus) + plan.workers
    resources = {**here, "CPU": max(needed_cpus, here["CPU"])}
    clip = sum(
        3 * backbone.sampling.frames * math.prod(backbone.preprocessing.crop)
        for backbone in run.backbones
    )
    frames = int(1.25 * clip * BLOCK_ROWS * BLOCKS_PER_COMPUTER * plan.forwards)
    memory = MIN_OBJECT_STORE_BYTES + frames
    with connect(options.ray_address, resources=resources, memory=memory) as cluster:
        if options.ray_address:
            plan = plan_workers({name: cluster.count(name) for name in here}, options)
        _RayRun(run, plan, loads, cluster).work()


@dataclass(eq=False)
class _Block:
    """A block under way: the references to its clips, as far as they were given out."""

    task: BlockTask
    clips: list[Reference] = field(default_factory=list)
    losses: int = 0


class _RayRun:
    """The blocks under way, in the order of their states, and the actors."""

    def __init__(
        self, run: ExtractionRun, plan: WorkerPlan, loads: Sequence[Load], cluster: Cluster
    ) -> None:
        self.run, self.plan, self.cluster, self.ray = run, plan, cluster, cluster.ray
        options, media = run.options, run.media
        assert media is not None
        self._media = MediaFolder(media.resolve())
        blind = [backbone.without_network() for backbone in run.backbones]
        cache = options.cache.absolute() if options.cache else None
        self._setup = self.ray.put(
            (version("obygaze"), media.absolute(), blind, options.stall_timeout, cache)
        )
        self._read = self.ray.remote(num_cpus=1, max_retries=0)(read_clip)
        computer = self.ray.remote(
            num_cpus=plan.cpus, num_gpus=plan.gpus, max_restarts=-1, max_concurrency=2
        )(Computer)
        recipes = {backbone.name: comparable(backbone) for backbone in run.backbones}
        self._to_read: deque[_Block] = deque()
        self._reading: set[Reference] = set()
        self._to_compute: deque[_Block] = deque()
        self._computing: dict[Reference, tuple[_Block, Actor]] = {}
        self._starting: dict[Reference, Actor] = {}
        self._free: list[Actor] = []
        """Each actor as often as it may get another block."""
        self._given_up: list[str] = []
        self._seconds = 0.0
        for _ in range(plan.forwards):
            self._start(computer.remote(loads, plan, recipes, options.batch, Path.cwd()))

    def work(self) -> None:
        """Compute the missing blocks, as time and other runs allow."""
        claims = self.run.claims()
        with (
            claims.heartbeat(),
            BlockWriter(self.run.targets, claims) as self._writer,
            meter(self.run.item_count, "Extracting", unit="clip") as self._advance,
        ):
            self._drive(self.run.tasks(claims))
        self._raise_given_up()

    def _drive(self, tasks: Iterator[BlockTask]) -> None:
        begin = checked = answered = time.monotonic()
        while not self.run.is_over():
            under_way = len(self._to_read) + len(self._to_compute) + len(self._computing)
            for _ in range(under_way, BLOCKS_PER_COMPUTER * self.plan.forwards):
                if task := next(tasks, None):
                    self._to_read.append(_Block(task))
                    under_way += 1
            if not under_way:
                return
            self._give_out()
            awaited = [*self._starting, *self._computing, *self._reading]
            finished, _ = self.ray.wait(awaited, timeout=CHECK_EVERY_S / 2, fetch_local=False)
            if time.monotonic() - checked > CHECK_EVERY_S:
                self.cluster.check()
                checked = time.monotonic()
            for reference in finished:
                self._receive(reference)
                answered = time.monotonic()
            if self._starting and time.monotonic() - answered > STUCK_AFTER_S:
                answered = math.inf  # said once
                cpus, gpus = self.cluster.count("CPU"), self.cluster.count("GPU")
                logger.info(
                    f"Waiting for the Ray cluster ({cpus:g} CPU, {gpus:g} GPU) to give {self.plan}"
                )
            seconds, tally = time.monotonic() - begin, self.run.tally
            tally.device, tally.write = self._seconds / self.plan.forwards, self._writer.waited_s
            tally.decode = max(0.0, seconds - tally.device - tally.write)

    def _give_out(self) -> None:
        """Have as many clips read as there are processes, and blocks computed by free actors."""
        while self._to_read and len(self._reading) < self.plan.workers:
            block = self._to_read[0]
            row = block.task.rows[len(block.clips)]
            clip = self._read.remote(
                self._setup, self.run.manifest.items[row], block.task.names(row)
            )
            block.clips.append(clip)
            self._reading.add(clip)
            if len(block.clips) == len(block.task.rows):
                self._to_compute.append(self._to_read.popleft())
        while self._to_compute and self._free:
            block, actor = self._to_compute.popleft(), max(self._free, key=self._free.count)
            self._free.remove(actor)
            # Ray waits for its clips.
            answer = actor.compute.remote(block.task, *block.clips)
            self._computing[answer] = block, actor

    def _start(self, actor: Actor) -> None:
        reference = actor.start.options(max_task_retries=MAX_LOSSES - 1).remote(version("obygaze"))
        self._starting[reference] = actor

    def _receive(self, reference: Reference) -> None:
        """Take an answer, or give lost work out again."""
        if reference in self._reading:
            self._reading.remove(reference)  # the actor that needs it gets its error, too
            return
        try:
            answer = self.ray.get(reference, timeout=FETCH_TIMEOUT_S)
        except self.ray.exceptions.RayError as problem:
            self.cluster.check()
            reason = describe_failure(problem)
            self.run.tally.lost[reason] += 1
            if self._starting.pop(reference, None):
                if not self._starting and not self._free and not self._computing:
                    self._given_up.append(
                        f"processes of the cluster are lost as they start ({reason})"
                    )
                    self._raise_given_up()
            elif isinstance(problem, self.ray.exceptions.RayActorError):
                self._lose_actor(self._computing[reference][1], reason)
            else:
                block, actor = self._computing.pop(reference)
                self._free.append(actor)
                self._repeat(block, reason)
            return
        if actor := self._starting.pop(reference, None):
            self._free += [actor, actor]
            self.run.devices.update(answer)
        else:
            block, actor = self._computing.pop(reference)
            self._free.append(actor)
            self._finish(block.task, answer)

    def _lose_actor(self, actor: Actor, reason: str) -> None:
        """Ray restarts it: until then its blocks go to others; the first of them is to blame."""
        lost = [(ref, block) for ref, (block, owner) in self._computing.items() if owner is actor]
        for reference, block in reversed(lost):
            del self._computing[reference]
            block.losses -= reference != lost[0][0]
            self._repeat(block, reason)
        self._free = [free for free in self._free if free is not actor]
        self._start(actor)

    def _repeat(self, block: _Block, reason: str) -> None:
        """Read a lost block again, as frames may be lost with it; at last it is left to do."""
        block.losses += 1
        if block.losses < MAX_LOSSES:
            block.clips = []
            self._to_read.appendleft(block)
            return
        first, last = (
            self.run.manifest.ids[row] for row in (block.task.rows[0], block.task.rows[-1])
        )
        self._given_up.append(
            f"{MAX_LOSSES} processes were lost over the clips {first} to {last} ({reason})"
        )
        if not self.run.tally.clips:
            self._raise_given_up()  # other blocks would fail too

    def _finish(self, task: BlockTask, computed: Computed) -> None:
        for row, clip in zip(task.rows, computed.clips, strict=True):
            if isinstance(clip, Failed) and clip.status == Status.MISSING:
                self._check_missing(row)
            self.run.tally.count(clip)
        self._seconds += computed.seconds
        self.run.batches.update(computed.batches)
        for name, reason in computed.broken.items():
            self.run.broken.add(name, BrokenBackbone(reason))
        self._writer.submit(task, computed.outcomes)
        self._advance(len(task.rows), self.run.progress_note())

    def _check_missing(self, row: int) -> None:
        """Raise if this machine has a file that another machine misses."""
        with contextlib.suppress(VideoError):
            path = self._media.find(self.run.manifest.items[row])
            raise ClusterError(
                f"{path} is here, but not on every machine of the cluster; each of them has to "
                "see the films under the same path"
            )

    def _raise_given_up(self) -> None:
        if self._given_up:
            raise ClusterError(
                f"{'; '.join(self._given_up)}; what was computed is kept, and the same command "
                "retries the rest"
            )


def describe_failure(problem: Exception) -> str:
    """Why work was lost, in one line; raises errors that would recur on every process."""
    cause = getattr(problem, "cause", None)
    if isinstance(cause, ObygazeError):
        raise cause from None
    text = str(problem)
    missing = re.findall(
        r"(?:(?:ModuleNotFound|Import)Error: |AttributeError: (?=Can't get attribute))(.+)", text
    )
    if missing:
        address = re.search(r"\bip=([0-9a-fA-F.:]+)", text)
        raise ClusterError(
            f"a machine of the cluster{f' ({address[1]})' if address else ''} cannot run obygaze "
            f"({missing[-1].strip()}); install the same on every machine: "
            "pip install 'obygaze[extract,ray]'"
        ) from None
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {first_line(cause)}"
    if "node has died" in text or "node was terminated" in text:
        return "its machine is gone"
    return first_line(problem)


def comparable(backbone: Backbone) -> dict[str, Any]:
    """The attributes of a backbone that `recipe_differences` compares."""
    return recipe_of(backbone).attributes() | {"items_digest": "", "block_rows": 0}


def _check_software(expected: str) -> None:
    if (installed := version("obygaze")) != expected:
        raise ClusterError(
            f"the machine {platform.node()} has obygaze {installed}, and the command runs "
            f"{expected}; install the same version on every machine of the cluster"
        )


_reader: list[tuple[ItemReader, Decoder]] = []
"""Of a process of the cluster, which Ray uses for one run only."""


def read_clip(
    setup: tuple[str, Path, Sequence[Backbone], float, Path | None],
    item: Item,
    names: Sequence[str],
) -> tuple[ReadItem | Failed, Pixels]:
    """Read a clip in a task; frames are resized on the CPU before they travel."""
    if not _reader:
        software, videos, backbones, stall_timeout, cache = setup
        _check_software(software)
        if not videos.is_dir():
            raise VideoError(
                f"the machine {platform.node()} has no folder {videos}; every machine of "
                "the cluster has to see the films under the same path"
            )
        _reader.append((ItemReader(videos, backbones, cache), Decoder(stall_timeout)))
    reader, decoder = _reader[0]
    clip = reader.read(decoder, item, names)
    if isinstance(clip, Failed):
        return clip, {}
    pixels = {
        name: frames.numpy()
        for name, frames in clip.inputs.items()
        if isinstance(frames, torch.Tensor)
    }
    return replace(clip, inputs={}), pixels


class Computed(NamedTuple):
    """A block's outcomes for each store, its clips without frames, and why backbones are broken."""

    outcomes: dict[str, dict[int, Done | Failed]]
    clips: list[ReadItem | Failed]
    batches: dict[str, int]
    seconds: float
    broken: dict[str, str]


class Computer:
    """Holds the backbones on a device; `recipes` describe those of the command.

    Two threads call `compute`: one uploads the next block while the other computes.
    """

    def __init__(
        self,
        loads: Sequence[Load],
        plan: WorkerPlan,
        recipes: Mapping[str, Mapping[str, Any]],
        batch: int | None,
        folder: Path,
    ) -> None:
        self._loads, self._plan, self._recipes = loads, plan, recipes
        self._batch, self._folder = batch, folder
        self._uploading, self._computing = threading.Lock(), threading.Lock()
        self._streams: dict[str, torch.cuda.Stream] = {}

    def start(self, software: str) -> dict[str, str]:
        """Load the backbones; return the device of each."""
        _check_software(software)
        # Checkpoints may be relative to the folder of the command.
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        loaded = [load(self._plan.device) for load in self._loads]
        backbones = [backbone for backbone in loaded if backbone.name in self._recipes]
        for device in {backbone.device for backbone in backbones}:
            if device.startswith("cuda"):
                self._streams[device] = torch.cuda.Stream(device, priority=-1)
                if self._plan.gpus < 1:
                    limit_gpu_share(device, self._plan.gpus)
        for backbone in backbones:
            if changed := recipe_differences(self._recipes[backbone.name], comparable(backbone)):
                raise BackboneError(
                    f"the machine {platform.node()} has another {backbone.name}: with other "
                    f"{' and other '.join(changed)}"
                )
        self._forwards = {backbone.name: Forward(backbone, self._batch) for backbone in backbones}
        return {backbone.name: backbone.device for backbone in backbones}

    def compute(self, task: BlockTask, *clips: tuple[ReadItem | Failed, Pixels]) -> Computed:
        """Embed a block, given its clips in order."""
        read = dict(zip(task.rows, clips, strict=True))
        with self._uploading:
            inputs = {
                name: self._upload(name, [read[row][1][name] for row in rows if read[row][1]])
                for name, rows in task.missing.items()
            }
            self._computing.acquire()  # before the next block is uploaded
        try:
            before, broken = self._seconds(), {}
            outcomes: dict[str, dict[int, Done | Failed]] = {}
            for name, rows in task.missing.items():
                try:
                    computed = iter(self._forwards[name](inputs.pop(name)))
                except BrokenBackbone as problem:
                    broken[name] = str(problem)
                    continue
                outcomes[name] = {
                    row: clip
                    if isinstance(clip, Failed)
                    else Done({**next(computed), **clip.sampled[name]}, clip.source)
                    for row, (clip, _) in ((row, read[row]) for row in rows)
                }
            batches = {name: forward.batch for name, forward in self._forwards.items()}
            seconds = self._seconds() - before
            return Computed(outcomes, [clip for clip, _ in clips], batches, seconds, broken)
        finally:
            self._computing.release()

    def _upload(self, name: str, clips: Sequence[NDArray[Any]]) -> Sequence[torch.Tensor]:
        """Take frames to the device of a backbone, on a stream beside that of the passes."""
        device = self._forwards[name].backbone.device
        pixels = [torch.tensor(clip) for clip in clips]
        if device not in self._streams:
            return upload(device, pixels)
        stream = self._streams[device]
        with torch.cuda.device(device), torch.cuda.stream(stream):
            uploaded = upload(device, pixels)
            stream.record_event().synchronize()
        return uploaded

    def _seconds(self) -> float:
        return sum(forward.seconds for forward in self._forwards.values())
