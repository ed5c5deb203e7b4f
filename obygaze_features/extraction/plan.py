"""What is to be done: which stores, and which of their rows are missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone, Towers
from obygaze_features.errors import OutputExists, StoreError, UsageError, VideoError
from obygaze_features.extraction.fixed_clip import probe_of
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.media import Located, locate
from obygaze_features.store import (
    ArraySpec,
    Recipe,
    Status,
    Store,
    StoreWriter,
    open_store,
)
from obygaze_features.store.claims import Claims
from obygaze_features.store.format import BLOCK_ROWS, CLAIMS
from obygaze_features.store.writer import open_to_resume, part_of

__all__ = [
    "EVERYTHING",
    "Claimed",
    "Errand",
    "Lane",
    "Wanted",
    "check_items",
    "check_media",
    "errands",
    "open_lanes",
    "recipe_of",
    "store_paths",
]

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Wanted:
    """Which rows of a manifest a run is to work on.

    Parameters
    ----------
    films
        Only clips of these; by default of all.
    limit
        Only the first so many of them.
    part
        ``"2/4"``: only those in every fourth block, from the second on.
    failed
        Those too that failed in an earlier run.
    """

    films: tuple[str, ...] = ()
    limit: int | None = None
    part: str | None = None
    failed: bool = False

    def rows(self, manifest: Manifest) -> Rows:
        """The numbers of these rows, done or not."""
        films = np.array([item.film for item in manifest])
        if unknown := sorted(set(self.films) - set(films.tolist())):
            raise UsageError(f"{manifest.name} has no clip of the film {unknown[0]!r}")
        rows = np.flatnonzero(np.isin(films, self.films)) if self.films else np.arange(len(films))
        rows = rows[: self.limit]
        return rows[part_of(rows // BLOCK_ROWS, self.part)] if self.part else rows

    def of(self, store: Store, rows: Rows) -> Rows:
        """Those of some rows that a store lacks."""
        if self.failed and store.is_final and store.failures:
            raise StoreError(
                f"{store.path} is finalised, and read-only; to try its failed rows again, open it "
                f"with: obygaze stores repair {store.path} --reopen"
            )
        status = store.status[rows]
        lacking: Rows = rows[(status == Status.TODO) | ((status > Status.DONE) & self.failed)]
        return lacking


EVERYTHING = Wanted()


@dataclass(frozen=True)
class Lane:
    """A backbone, or a pair of towers, and the store that it fills."""

    backbone: Backbone | Towers
    writer: StoreWriter

    @property
    def name(self) -> str:
        """The store's name."""
        return self.backbone.name

    @property
    def path(self) -> Path:
        """Where the store lies."""
        return self.writer.store.path


@dataclass(frozen=True)
class Errand:
    """A block, and for each store, by name, the rows of it that are wanted."""

    block: int
    wanted: dict[str, list[int]]

    @cached_property
    def rows(self) -> list[int]:
        """Every row that some store wants, in order."""
        return sorted(set().union(*self.wanted.values()))

    def names(self, row: int) -> list[str]:
        """The stores that want a row."""
        return [name for name, rows in self.wanted.items() if row in rows]


def check_items(manifest: Manifest, kinds: Sequence[str] = ("clip",)) -> None:
    """Refuse, before anything is computed, a manifest that holds more than these kinds."""
    for item in manifest:
        if item.kind not in kinds:
            meant = " and ".join(f"{kind}s" for kind in kinds)
            raise UsageError(f"{item.id} is of the kind {item.kind!r}, and only {meant} go here")


def recipe_of(backbone: Backbone | Towers) -> Recipe:
    """What a store is made with, the sampling of frames or the cutting of texts included."""
    if isinstance(backbone, Towers):
        return Recipe(
            name=backbone.name,
            backbone=backbone.about,
            preprocessing={
                **backbone.preprocessing.attributes(),
                "orientation": "upright, by the image's EXIF data",
                "texts": dict(backbone.texts),
            },
            precision=backbone.precision,
            arrays=backbone.arrays,
        )
    sampling = backbone.sampling
    count, padded = (sampling.frames,), sampling.rate is not None
    number, time = "number in its file of each frame used", "when it is shown there, in seconds"
    return Recipe(
        name=backbone.name,
        backbone=backbone.about,
        preprocessing={"sampling": sampling.words, **backbone.preprocessing.attributes()},
        precision=backbone.precision,
        arrays=(
            *backbone.arrays,
            ArraySpec("frame_index", count, "int32", number, padded),
            ArraySpec("frame_time", count, "float64", time, padded),
        ),
    )


def store_paths(backbones: Sequence[Backbone | Towers], output: Path) -> dict[str, Path]:
    """Where each backbone's store is to lie, by its name: ``output/NAME.zarr``."""
    names = [backbone.name for backbone in backbones]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two backbones are called {twice[0]!r}; give them names with NAME=PATH")
    return {name: output / f"{name}.zarr" for name in names}


def check_media(manifest: Manifest, rows: Rows, videos: Path) -> Located:
    """Which of the rows' files are there; `VideoError` if none is.

    With a mistyped folder every clip would be recorded as missing, for good.
    """
    items = [manifest.items[row] for row in rows.tolist()]
    located = locate(items, videos)
    if located.missing and not located.found and not located.ambiguous:
        noun = "image" if items[0].kind != "clip" else "clip"
        count = len(located.missing)
        raise VideoError(
            f"{videos} has none of the {count} {noun}s of {manifest.name}: {located.hint}"
        )
    return located


def open_lanes(
    manifest: Manifest, backbones: Sequence[Backbone | Towers], output: Path
) -> list[Lane]:
    """Each backbone's store, made or gone on with."""
    paths = store_paths(backbones, output)
    for backbone in backbones:
        # None is made before it is clear that all can be filled.
        if paths[backbone.name].exists():
            open_to_resume(paths[backbone.name], manifest, recipe_of(backbone))
    lanes = []
    for backbone in backbones:
        path, recipe = paths[backbone.name], recipe_of(backbone)
        if not path.exists():
            # Of several that start at once, one makes the store, and the others go on with it.
            with contextlib.suppress(OutputExists):
                StoreWriter.create(path, manifest, recipe, probe=probe_of(backbone))
        lanes.append(Lane(backbone, StoreWriter.resume(path, manifest, recipe)))
    return lanes


def errands(lanes: Sequence[Lane], rows: Rows, wanted: Wanted) -> list[Errand]:
    """The blocks of which any store lacks rows, in order."""
    lacking: dict[int, dict[str, list[int]]] = {}
    for lane in lanes:
        for row in wanted.of(open_store(lane.path), rows).tolist():
            block = row // lane.writer.store.block_rows
            lacking.setdefault(block, {}).setdefault(lane.name, []).append(row)
    return [Errand(block, lacking[block]) for block in sorted(lacking)]


class Claimed:
    """The blocks that this run is at work on: each is claimed in every store or in none."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        # In one order for everybody, so that two that share stores cannot wait for each other.
        self._lanes = sorted(lanes, key=lambda lane: lane.path)
        self._claims = {
            lane.name: Claims(lane.path / CLAIMS)
            for lane in self._lanes
            if not lane.writer.store.is_final
        }

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the claims fresh, and give back at the end what is still claimed."""
        with contextlib.ExitStack() as stack:
            for one in self._claims.values():
                stack.enter_context(one.heartbeat())
            yield

    def take(self, errand: Errand, wanted: Wanted) -> Errand | None:
        """Claim a block: what is still wanted of it by now, or None if it is another's."""
        names = [name for name in self._claims if name in errand.wanted]
        for place, name in enumerate(names):
            if not self._claims[name].take(errand.block):
                self._release(names[:place], errand.block)
                return None
        # Somebody may have written it between the plan and the claim.
        left = {
            lane.name: rows
            for lane in self._lanes
            if lane.name in names
            and (rows := _still(lane, errand.block, errand.wanted[lane.name], wanted))
        }
        self._release([name for name in names if name not in left], errand.block)
        return replace(errand, wanted=left) if left else None

    def release(self, errand: Errand) -> None:
        """Give a block back."""
        self._release(errand.wanted, errand.block)

    def _release(self, names: Iterable[str], block: int) -> None:
        for name in names:
            self._claims[name].release(block)


def _still(lane: Lane, block: int, rows: list[int], wanted: Wanted) -> list[int]:
    record = open_store(lane.path).record_of(block)
    if record is None:
        return rows
    first = lane.writer.rows_of(block).start
    codes = [(row, record.status[row - first]) for row in rows]
    return [
        row for row, code in codes if code == Status.TODO or (wanted.failed and code > Status.DONE)
    ]
