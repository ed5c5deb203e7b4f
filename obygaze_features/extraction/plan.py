"""The stores that an extraction fills, the blocks that they lack, and the claims on them."""

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
from obygaze_features.extraction.reference_clip import embed_reference_clip
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.media import Located, locate
from obygaze_features.store import ArraySpec, Recipe, Status, Store, StoreWriter, open_store
from obygaze_features.store.claims import Claims
from obygaze_features.store.format import CLAIMS
from obygaze_features.store.writer import open_to_resume

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class ExtractionTarget:
    """A backbone and the store that it fills."""

    backbone: Backbone | Towers
    writer: StoreWriter

    @property
    def name(self) -> str:
        """The store's name."""
        return self.backbone.name

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self.writer.store.path


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


def check_items(manifest: Manifest, kinds: Sequence[str] = ("clip",)) -> None:
    """Refuse a manifest with items of other kinds, before anything is computed."""
    for item in manifest:
        if item.kind not in kinds:
            plural = " and ".join(f"{kind}s" for kind in kinds)
            raise UsageError(f"{item.id} is of the kind {item.kind!r}; this takes {plural} only")


def check_media(manifest: Manifest, rows: Rows, media: Path) -> Located:
    """Locate the rows' files; `VideoError` if there is not a single one.

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
    return located


def recipe_of(backbone: Backbone | Towers) -> Recipe:
    """How a store's rows are made, including the sampling of frames or the cutting of texts."""
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
    """The path of each backbone's store, by name: ``output/NAME.zarr``."""
    names = [backbone.name for backbone in backbones]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"two backbones are called {duplicates[0]!r}; give them names with NAME=PATH"
        )
    return {name: output / f"{name}.zarr" for name in names}


def open_targets(
    manifest: Manifest, backbones: Sequence[Backbone | Towers], output: Path
) -> list[ExtractionTarget]:
    """Create each backbone's store, or open it to resume."""
    paths = store_paths(backbones, output)
    for backbone in backbones:
        # No store is created before all existing ones are known to fit.
        if paths[backbone.name].exists():
            open_to_resume(paths[backbone.name], manifest, recipe_of(backbone))
    targets = []
    for backbone in backbones:
        path, recipe = paths[backbone.name], recipe_of(backbone)
        if not path.exists():
            # Of several runs that start together, one creates the store and the others resume it.
            with contextlib.suppress(OutputExists):
                StoreWriter.create(path, manifest, recipe, probe=embed_reference_clip(backbone))
        targets.append(ExtractionTarget(backbone, StoreWriter.resume(path, manifest, recipe)))
    return targets


def missing_rows(store: Store, rows: Rows, *, retry_failed: bool) -> Rows:
    """The rows that a store lacks, or that failed and are to be retried."""
    if retry_failed and store.is_final and store.failures:
        raise StoreError(
            f"{store.path} is finalised and read-only; to retry its failed rows, reopen it with: "
            f"obygaze stores repair {store.path} --reopen"
        )
    return rows[_is_missing(store.status[rows], retry_failed=retry_failed)]


def _is_missing(status: NDArray[np.uint8], *, retry_failed: bool) -> NDArray[np.bool_]:
    failed: NDArray[np.bool_] = status > Status.DONE
    missing: NDArray[np.bool_] = (status == Status.TODO) | (failed & retry_failed)
    return missing


def plan_blocks(
    targets: Iterable[ExtractionTarget], rows: Rows, *, retry_failed: bool
) -> list[BlockTask]:
    """The blocks of which any store lacks rows, in order."""
    lacking: dict[int, dict[str, list[int]]] = {}
    for target in targets:
        store = open_store(target.path)
        for row in missing_rows(store, rows, retry_failed=retry_failed).tolist():
            missing = lacking.setdefault(row // store.block_rows, {})
            missing.setdefault(target.name, []).append(row)
    return [BlockTask(block, lacking[block]) for block in sorted(lacking)]


class BlockClaims:
    """The blocks that this run computes: each is claimed in every store or in none."""

    def __init__(self, targets: Iterable[ExtractionTarget]) -> None:
        # The same order for every run, so that two that share stores cannot wait for each other.
        self._targets = sorted(targets, key=lambda target: target.path)
        self._claims = {
            target.name: Claims(target.path / CLAIMS)
            for target in self._targets
            if not target.writer.store.is_final
        }

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Refresh the claims inside the block, and release what is left at its end."""
        with contextlib.ExitStack() as stack:
            for claims in self._claims.values():
                stack.enter_context(claims.heartbeat())
            yield

    def take(self, task: BlockTask, *, retry_failed: bool) -> BlockTask | None:
        """Claim a block: the rows still missing by now, or None if another run has it."""
        names = [name for name in self._claims if name in task.missing]
        for taken, name in enumerate(names):
            if not self._claims[name].take(task.block):
                self._release(names[:taken], task.block)
                return None
        # Another run may have written the block between the plan and the claim.
        missing = {
            target.name: rows
            for target in self._targets
            if target.name in names and (rows := self._still_missing(target, task, retry_failed))
        }
        self._release([name for name in names if name not in missing], task.block)
        return replace(task, missing=missing) if missing else None

    def release(self, task: BlockTask) -> None:
        """Release a block."""
        self._release(task.missing, task.block)

    def _release(self, names: Iterable[str], block: int) -> None:
        for name in names:
            self._claims[name].release(block)

    @staticmethod
    def _still_missing(target: ExtractionTarget, task: BlockTask, retry_failed: bool) -> list[int]:
        rows = task.missing[target.name]
        # This block's record alone: the status of all rows takes long to read.
        record = open_store(target.path).record_of(task.block)
        if record is None:
            return rows
        status = np.array(record.status, np.uint8)
        first = target.writer.rows_of(task.block).start
        still = _is_missing(status[np.array(rows) - first], retry_failed=retry_failed)
        return [row for row, missing in zip(rows, still.tolist(), strict=True) if missing]
