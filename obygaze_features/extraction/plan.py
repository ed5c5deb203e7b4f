"""What an extraction is to do: its options, the stores that it fills, and the blocks they lack."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.checkpoints import check_store_name
from obygaze_features.backbones.devices import describe_device
from obygaze_features.errors import BrokenBackbone, OutputExists, UsageError, VideoError
from obygaze_features.extraction.forward import embed_probe
from obygaze_features.extraction.summary import Tally
from obygaze_features.items.choose_films import find_films, titles_in
from obygaze_features.items.media import locate
from obygaze_features.manifests import Manifest
from obygaze_features.store import ArraySpec, Recipe, StoreWriter, open_store
from obygaze_features.store.claims import BlockClaims
from obygaze_features.store.format import BLOCK_ROWS, default_block_rows
from obygaze_features.store.writer import is_in_part, open_to_resume

logger = logging.getLogger(__name__)

STALL_TIMEOUT_S = 60.0
"""Seconds without progress after which a file is given up."""
TIME_MARGIN = 1.25
"""How much longer than the average before it a block may take when time is short."""

_COUNT = (Integral, 1, math.inf, "a whole number, at least 1")
_TIME = (Real, math.ulp(0.0), math.inf, "a number above 0")
_RANGES: Mapping[str, tuple[type[Any], float, float, str]] = {
    **dict.fromkeys(("limit", "audio_track", "workers", "ray_forwards"), _COUNT),
    **dict.fromkeys(("max_hours", "stall_timeout"), _TIME),
    "batch": (Integral, 1, BLOCK_ROWS, f"a whole number from 1 to {BLOCK_ROWS}"),
    "ray_cpus": (Real, 0.001, math.inf, "a number, at least 0.001"),
    "ray_gpus": (Real, 0, 1, "a number from 0 to 1"),
}
"""Option -> its type, the least and the greatest number, and these in words."""

Rows = NDArray[np.intp]

Load = Callable[[str | None], Backbone]
"""Loads a backbone on a device of the machine that calls it."""


@dataclass(frozen=True)
class Options:
    """How to extract; the same object from the front door to the engine.

    Parameters
    ----------
    films
        Only items of these films, by id, title or pattern (``tt01*``); all by default.
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
    sampling
        ``"2 fps"``: frames at this rate, as many as a clip's length needs, in place of each
        backbone's own. Networks of clips see them in windows.
    frames
        How many of these a clip has at most, `MAX_FRAMES` by default; in a longer clip they are
        spread evenly. Without `sampling`, how many windows of sound, if all backbones hear.
    window, stride
        Frames in a window, by default as many as the network takes; and from one window to the
        next, by default a window's.
    audio_track
        The number of the sound track to hear, from 1; by default each file's own default.
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
    sampling: str | None = None
    frames: int | None = None
    window: int | None = None
    stride: int | None = None
    audio_track: int | None = None
    device: str | None = None
    max_gpu_memory: str | None = None
    batch: int | None = None
    workers: int | None = None
    max_hours: float | None = None
    stall_timeout: float = STALL_TIMEOUT_S
    engine: str = "local"
    ray_address: str | None = None
    ray_forwards: int | None = None
    ray_cpus: float | None = None
    ray_gpus: float | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` if a number is out of its range."""
        for name, (kind, low, high, words) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, kind) and low <= value <= high):
                raise UsageError(f"{name} must be {words} (got {value!r})")

    def select(self, manifest: Manifest, block_rows: int | None = None) -> Rows:
        """The rows of the selected items, done or not; a part is of blocks of so many rows."""
        films = np.array([item.film for item in manifest])
        rows = np.arange(len(films))
        if self.films:
            wanted = find_films(self.films, titles_in(manifest.items))
            rows = np.flatnonzero(np.isin(films, wanted))
        rows = rows[: self.limit]
        blocks = rows // (block_rows or default_block_rows(len(films)))
        return rows[is_in_part(blocks, self.part)] if self.part else rows


@dataclass
class BrokenBackbones:
    """Why backbones were left out of a run of `count`, by name; it goes on while any is left."""

    count: float
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, problem: BrokenBackbone) -> None:
        """Leave out a backbone; raises the error if it is the last."""
        if name in self.reasons:
            return
        self.reasons[name] = str(problem)
        if len(self.reasons) == self.count:
            raise problem
        logger.warning(f"{str(problem).rstrip('.')}. The other backbones go on")


@dataclass(frozen=True)
class ExtractionTarget:
    """A backbone and the store that it fills."""

    backbone: Backbone
    writer: StoreWriter


@dataclass(frozen=True)
class BlockTask:
    """A block, and the rows of it that each store lacks, by the store's name."""

    block: int
    missing: dict[str, list[int]]

    @cached_property
    def rows(self) -> list[int]:
        """Every row that any store lacks, in order."""
        return sorted(set().union(*self.missing.values()))

    def names(self, row: int) -> list[str]:
        """The stores that lack a row."""
        return [name for name, rows in self.missing.items() if row in rows]

    def pieces(self) -> Iterator[BlockTask]:
        """Its rows in pieces, which bound memory; no batch crosses them, however large a block."""
        for _, group in groupby(self.rows, lambda row: row // BLOCK_ROWS):
            piece = set(group)
            both = {name: sorted(piece.intersection(rows)) for name, rows in self.missing.items()}
            yield BlockTask(self.block, {name: rows for name, rows in both.items() if rows})


def check_items(manifest: Manifest, kinds: Sequence[str] = ("clip",)) -> None:
    """Refuse a manifest with items of other kinds, before anything is computed."""
    for item in manifest:
        if item.kind not in kinds:
            plural = " and ".join(f"{kind}s" for kind in kinds)
            raise UsageError(f"{item.id} is of the kind {item.kind!r}; this takes {plural} only")


def check_media(manifest: Manifest, rows: Rows, media: Path) -> None:
    """Raise `VideoError` if not a single one of the rows' files is there.

    In a mistyped folder every clip would otherwise be recorded as missing.
    """
    items = [manifest.items[row] for row in rows.tolist()]
    located = locate(items, media)
    if located.missing and not located.found and not located.ambiguous:
        noun = "image" if items[0].kind != "clip" else "clip"
        count = len(located.missing)
        raise VideoError(
            f"{media} has none of the {count} {noun}s of {manifest.name}: {located.hint}"
        )


def recipe_of(backbone: Backbone) -> Recipe:
    """How a store's rows are made, including the sampling of clips or the cutting of texts."""
    preprocessing, arrays = backbone.preprocessing.attributes(), backbone.arrays
    about = dict(backbone.about)
    if backbone.device.startswith("cuda"):
        about["device"] = describe_device(backbone.device)
    if backbone.for_clips:
        sampling = backbone.sampling
        count, padded = (sampling.tokens,), sampling.rate is not None
        number, time = "number in its file of each frame used", "when it is shown there, in seconds"
        if sampling.window:
            number = "number in its file of the frame in the middle of each window"
            time = "the middle of the window there, in seconds"
        preprocessing = {"sampling": sampling.words, **preprocessing}
        first = ArraySpec("frame_index", count, "int32", number, padded)
        if backbone.hears:
            level = "root mean square of each window in dB, of which full scale is 0"
            first = ArraySpec("loudness", count, "float32", level, padded)
        arrays = (*arrays, first, ArraySpec("frame_time", count, "float64", time, padded))
    else:
        preprocessing["orientation"] = "upright, by the image's EXIF data"
        if not backbone.encode_images:
            preprocessing = {}
        if backbone.text_tower or not backbone.encode_images:
            preprocessing["texts"] = backbone.tokenizer.attributes()
    return Recipe(
        name=backbone.name,
        backbone=about,
        preprocessing=preprocessing,
        precision=backbone.precision,
        arrays=arrays,
    )


def store_paths(names: Sequence[str], output: Path) -> dict[str, Path]:
    """The path of each backbone's store, by name: ``output/NAME.zarr``."""
    for name in names:
        check_store_name(name)
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"two backbones are called {duplicates[0]!r}; give them names with NAME=PATH"
        )
    return {name: output / f"{name}.zarr" for name in names}


def shared_block_rows(manifest: Manifest, paths: Iterable[Path]) -> int:
    """Rows per block of all stores of an extraction: as in those that exist, which must agree."""
    sizes = {open_store(path).block_rows: path for path in paths if path.exists()}
    if len(sizes) > 1:
        described = " and ".join(f"{path} has {size}" for size, path in sizes.items())
        raise UsageError(f"{described} rows a block; extract into them one after the other")
    return next(iter(sizes), default_block_rows(len(manifest)))


def open_targets(
    manifest: Manifest,
    backbones: Sequence[Backbone],
    output: Path,
    block_rows: int,
    leave_out: Callable[[str, BrokenBackbone], None],
) -> dict[str, ExtractionTarget]:
    """Create each backbone's store, or open it to resume; broken ones are left out."""
    paths = store_paths([backbone.name for backbone in backbones], output).values()
    plans = [(b, path, recipe_of(b)) for b, path in zip(backbones, paths, strict=True)]
    for _, path, recipe in plans:
        # No store is created before all existing ones are known to fit.
        if path.exists():
            open_to_resume(path, manifest, recipe)
    targets = {}
    for backbone, path, recipe in plans:
        if not path.exists():
            # Of several runs that start together, one creates the store and the others resume it.
            try:
                probe = embed_probe(backbone)
            except BrokenBackbone as problem:
                leave_out(backbone.name, problem)
                continue
            with contextlib.suppress(OutputExists):
                StoreWriter.create(path, manifest, recipe, probe=probe, block_rows=block_rows)
        targets[backbone.name] = ExtractionTarget(
            backbone, StoreWriter.resume(path, manifest, recipe)
        )
    return targets


def plan_blocks(
    targets: Mapping[str, ExtractionTarget], rows: Rows, *, retry_failed: bool
) -> list[BlockTask]:
    """The blocks of which any store lacks rows, in order."""
    lacking: dict[int, dict[str, list[int]]] = {}
    for name, target in targets.items():
        store = open_store(target.writer.store.path)  # the writer's own may be in use by its thread
        for row in store.missing_rows(rows, retry_failed=retry_failed).tolist():
            missing = lacking.setdefault(row // store.block_rows, {})
            missing.setdefault(name, []).append(row)
    return [BlockTask(block, lacking[block]) for block in sorted(lacking)]


@dataclass
class ExtractionRun:
    """One run over the missing blocks of some stores, each with its backbone.

    `rows` are the selected rows, done or not; `blocks` those that any store lacked at `begin`, by
    the monotonic clock.
    """

    manifest: Manifest
    media: Path | None
    options: Options
    targets: dict[str, ExtractionTarget]
    rows: Rows
    blocks: list[BlockTask]
    begin: float
    broken: BrokenBackbones
    tally: Tally = field(default_factory=Tally)
    batches: dict[str, int] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    out_of_time: bool = False
    _passed: int = 0
    _started_items: int = 0
    _work_begin: float = 0.0

    def __post_init__(self) -> None:
        self.devices = {
            name: describe_device(target.backbone.device) for name, target in self.targets.items()
        }

    @property
    def end(self) -> float:
        """When its time is up."""
        hours = self.options.max_hours
        return math.inf if hours is None else self.begin + 3600 * hours

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
        rest = plan_blocks(self.targets, self.rows, retry_failed=False)
        yield from self._claim(claims, rest, retry_failed=False)

    def is_over(self) -> bool:
        """Whether the time is up."""
        over = time.monotonic() > self.end
        self.out_of_time |= over
        return over

    def take_passed(self) -> int:
        """How many items other runs have taken, since the last call: they are not left to do."""
        passed, self._passed = self._passed, 0
        return passed

    def progress_note(self) -> str:
        """Speed and bottleneck, for a progress bar."""
        return self.tally.note(time.monotonic() - self._work_begin)

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
            elif tasks is self.blocks:
                self._passed += len(task.rows)

    def _has_time_for(self, task: BlockTask) -> bool:
        """Whether a block can be done in time, at the average speed so far."""
        now = time.monotonic()
        if not self.tally.clips:
            return now < self.end
        ahead = self._started_items - self.tally.clips + len(task.rows)
        return now + TIME_MARGIN * ahead * (now - self._work_begin) / self.tally.clips < self.end
