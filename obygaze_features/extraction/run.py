"""The options of an extraction, and the state of a run: shared by `extract` and the engines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.common.package import cache_folder
from obygaze_features.common.text import as_list, did_you_mean
from obygaze_features.errors import BrokenBackbone, UsageError
from obygaze_features.extraction.plan import BlockTask, ExtractionTarget, plan_blocks
from obygaze_features.extraction.summary import Summary, Tally
from obygaze_features.manifests import Manifest
from obygaze_features.store import Status
from obygaze_features.store.claims import BlockClaims
from obygaze_features.store.format import BLOCK_ROWS
from obygaze_features.store.writer import is_in_part

logger = logging.getLogger(__name__)

STALL_TIMEOUT_S = 60.0
"""Seconds without progress after which a file is given up."""
TIME_MARGIN = 1.25
"""How much longer than the average before it a block may take when time is short."""

Load = Callable[[str | None], Backbone]
"""Loads a backbone on a device of the machine that calls it."""


@dataclass(frozen=True)
class Options:
    """How to extract; the same object from the front door to the engine.

    Parameters
    ----------
    films
        Only items of these films; all by default.
    limit
        Only the first items, this many.
    part
        ``"2/4"``: only every fourth block, from the second on.
    retry_failed
        Try items again that failed before.
    preprocessing
        ``standard``, as the checkpoint's processor does it, or ``author``, as the paper's authors.
    precision
        ``float32``, ``tf32``, ``bfloat16`` or ``float16``: see docs/how-to/scale.md.
    arrays
        Which arrays to store; all but ``tokens`` by default. ``vivit:cls`` is for the store
        ``vivit`` alone.
    device
        ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; a GPU by default, if there is one.
    max_gpu_memory
        How much of a shared GPU to use, such as ``20GB``.
    batch
        Items in one forward pass; halved when memory runs out.
    workers
        Processes that decode, or threads that read images; by default all cores but one, or a
        GPU's share of them.
    max_hours
        Stop cleanly after this time; starts no block that would take longer.
    stall_timeout
        Seconds without progress after which a file is given up.
    cache
        The folder that keeps the frame indexes of long films.
    engine
        ``local``, or ``ray`` for a Ray cluster.
    ray_address
        ``HOST:PORT`` of the cluster's head, or ``auto``; a cluster on this machine by default.
    ray_forwards
        Processes that compute on the cluster; one a GPU by default.
    ray_cpus, ray_gpus
        What each of these takes; of a GPU all or a part.
    """

    films: Sequence[str] | str = ()
    limit: int | None = None
    part: str | None = None
    retry_failed: bool = False
    preprocessing: str = "standard"
    precision: str = "float32"
    arrays: Sequence[str] | None = None
    device: str | None = None
    max_gpu_memory: str | None = None
    batch: int | None = None
    workers: int | None = None
    max_hours: float | None = None
    stall_timeout: float = STALL_TIMEOUT_S
    cache: Path | None = field(default_factory=lambda: cache_folder("index"))
    engine: str = "local"
    ray_address: str | None = None
    ray_forwards: int | None = None
    ray_cpus: float | None = None
    ray_gpus: float | None = None

    def select(self, manifest: Manifest) -> NDArray[np.intp]:
        """The rows of the selected items, done or not."""
        films = np.array([item.film for item in manifest])
        wanted = as_list(self.films)
        if unknown := sorted(set(wanted) - set(films.tolist())):
            near = did_you_mean(unknown[:1], films.tolist())
            raise UsageError(f"{manifest.name} has no clip of the film {unknown[0]!r}{near}")
        rows = np.arange(len(films))
        if wanted:
            rows = np.flatnonzero(np.isin(films, list(wanted)))
        rows = rows[: self.limit]
        return rows[is_in_part(rows // BLOCK_ROWS, self.part)] if self.part else rows


@dataclass
class BrokenBackbones:
    """Why backbones were left out of a run of `count`, by name; it goes on while any is left."""

    count: int
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, problem: BrokenBackbone) -> None:
        """Leave out a backbone; raises the error if it is the last."""
        if name in self.reasons:
            return
        self.reasons[name] = str(problem)
        if len(self.reasons) == self.count:
            raise problem
        logger.warning(f"{problem}. The other backbones go on")


@dataclass
class ExtractionRun:
    """One run over the missing blocks of some stores, each with its backbone.

    `rows` are the selected rows, done or not; `blocks` those that any store lacked at `begin`. Time
    is up at `end`, by the monotonic clock.
    """

    manifest: Manifest
    media: Path | None
    options: Options
    targets: dict[str, ExtractionTarget]
    rows: NDArray[np.intp]
    blocks: list[BlockTask]
    begin: float
    end: float
    broken: BrokenBackbones
    tally: Tally = field(default_factory=Tally)
    batches: dict[str, int] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    out_of_time: bool = False
    _started_items: int = 0
    _work_begin: float = 0.0

    def __post_init__(self) -> None:
        self.devices = {name: target.backbone.device for name, target in self.targets.items()}

    @property
    def noun(self) -> str:
        """What its items are called in messages."""
        return "clip" if set(self.manifest.items.kinds) == {"clip"} else "item"

    @property
    def backbones(self) -> list[Backbone]:
        """The backbones, in the order of the targets."""
        return [target.backbone for target in self.targets.values()]

    def claims(self) -> BlockClaims:
        """The run's claims on blocks of its stores."""
        return BlockClaims({name: target.writer for name, target in self.targets.items()})

    @property
    def item_count(self) -> int:
        """Items that any store lacked when the run began."""
        return sum(len(task.rows) for task in self.blocks)

    def tasks(self, claims: BlockClaims) -> Iterator[BlockTask]:
        """The blocks that time allows, each claimed when it is requested."""
        self._work_begin = time.monotonic()
        yield from self._claim(claims, self.blocks, retry_failed=self.options.retry_failed)
        # Blocks that others had claimed, and released or left when they died.
        rest = plan_blocks(self.targets.values(), self.rows, retry_failed=False)
        yield from self._claim(claims, rest, retry_failed=False)

    def is_over(self) -> bool:
        """Whether the time is up."""
        over = time.monotonic() > self.end
        self.out_of_time |= over
        return over

    def progress_note(self) -> str:
        """Speed and bottleneck, for a progress bar."""
        return self.tally.note(time.monotonic() - self._work_begin)

    def summary(self, ended: str) -> Summary:
        """Summarise the run, from what its stores hold now."""
        rows, tally, seconds = self.rows, self.tally, time.monotonic() - self.begin
        names = [name for name in self.targets if name not in self.broken.reasons]
        names = names or list(self.targets)
        stores = {name: self.targets[name].writer.store.refresh() for name in names}
        failed: dict[str, dict[str, str]] = {}
        for name, store in stores.items():
            for row in rows[store.status[rows] > Status.DONE].tolist():
                kind = Status(store.status[row]).name.lower()
                reason = store.failures[store.ids[row]]
                if self.targets[name].backbone.plugin and kind == "not_finite":
                    reason = f"{self.targets[name].backbone.label}: {reason}"
                failed.setdefault(kind, {})[store.ids[row]] = reason
        status = np.array([store.status[rows] for store in stores.values()])
        left = int((status == Status.TODO).any(axis=0).sum())
        return Summary(
            stores=[store.path for store in stores.values()],
            wanted=len(rows),
            clips=tally.clips,
            frames=tally.frames,
            done=int((status == Status.DONE).all(axis=0).sum()),
            left=left,
            failed=failed,
            slow=dict(tally.slow),
            lost=dict(tally.lost),
            resized_by_cpu=tally.resized_by_cpu,
            cut=dict(tally.cut),
            seconds=seconds,
            shares=tally.shares(seconds),
            batches=self.batches,
            bytes={
                name: int((store.status == Status.DONE).sum())
                * sum(spec.row_bytes for spec in store.specs)
                for name, store in stores.items()
            },
            ended="done" if ended == "time" and not left else ended,
            broken=self.broken.reasons,
        )

    def _claim(
        self, claims: BlockClaims, tasks: list[BlockTask], *, retry_failed: bool
    ) -> Iterator[BlockTask]:
        for task in tasks:
            if not self._has_time_for(task):
                self.out_of_time = True
                return
            lacking = {n: rows for n, rows in task.missing.items() if n not in self.broken.reasons}
            if missing := claims.take(task.block, lacking, retry_failed=retry_failed):
                claimed = BlockTask(task.block, missing)
                self._started_items += len(claimed.rows)
                yield claimed

    def _has_time_for(self, task: BlockTask) -> bool:
        """Whether a block can be done in time, at the average speed so far."""
        now = time.monotonic()
        if not self.tally.clips:
            return now < self.end
        ahead = self._started_items - self.tally.clips + len(task.rows)
        return now + TIME_MARGIN * ahead * (now - self._work_begin) / self.tally.clips < self.end
