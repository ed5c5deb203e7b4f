"""Writing a store, a whole block at a time.

The order of things on disk is what makes a kill harmless: shards, flushed; then the record,
under a name that only one writer can take. Shards without their record are nobody's, and are
written again.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import NDArray

from obygaze_features.common.files import (
    new_folder,
    publish_exclusively,
    sha256_of,
    sync_file,
    sync_folder,
)
from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.format import ArraySpec, BlockRecord, Recipe, Status
from obygaze_features.store.reader import FeatureStore, open_store

if TYPE_CHECKING:
    from obygaze_features.manifests import Manifest

__all__ = ["Done", "Failed", "StoreWriter"]


@dataclass(frozen=True)
class Done:
    """A computed row: its value in each array, and the SHA-256 of the file it comes from."""

    values: Mapping[str, NDArray[Any]]
    source: str | None


@dataclass(frozen=True)
class Failed:
    """A row that could not be computed, and why, in words for people."""

    status: Status
    reason: str
    source: str | None = None


class StoreWriter:
    """Fills a store. Make one with `create`, or go on with `resume`."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self._arrays = {one.name: _writable(store.path, one.name) for one in store.specs}

    @classmethod
    def create(
        cls, path: Path, manifest: Manifest, recipe: Recipe, *, block_rows: int = spec.BLOCK_ROWS
    ) -> StoreWriter:
        """Lay out an empty store for a manifest's items.

        Parameters
        ----------
        path
            Where; ends in ``.zarr``. `OutputExists` if something is there.
        manifest
            Its items fix the rows and their order for good.
        recipe
            What the rows are made with.
        block_rows
            Rows a block; the same for every store of one extraction.
        """
        if path.suffix != ".zarr":
            raise StoreError(f"{path}: the name of a store ends in .zarr")
        if not len(manifest):
            raise StoreError(f"the manifest {manifest.name!r} has no items to make a store for")
        attributes = {
            "format_version": spec.FORMAT_VERSION,
            **recipe.attributes(),
            "manifest": manifest.name,
            "items_digest": manifest.digest,
            "n": len(manifest),
            "block_rows": block_rows,
            "licence": manifest.licence,
            "citation": manifest.citation,
            "software": f"obygaze {version('obygaze')}",
        }
        with new_folder(path) as folder:
            group = zarr.create_group(folder, attributes={spec.ATTRIBUTES: attributes})
            for one in recipe.arrays:
                group.create_array(**spec.array_layout(one, len(manifest), block_rows))
            ids = spec.encode_ids(manifest.ids)
            group.create_array(**spec.ids_layout(*ids.shape))[:] = ids
            (folder / spec.ITEMS).write_bytes(manifest.items_table())
            (folder / spec.RECORDS).mkdir()
        writer = cls(open_store(path))
        writer.log("created")
        return writer

    @classmethod
    def resume(
        cls, path: Path, manifest: Manifest, recipe: Recipe, *, block_rows: int = spec.BLOCK_ROWS
    ) -> StoreWriter:
        """Open a store to fill what it lacks; `StoreError` if it was made with something else."""
        store = open_store(path)
        now = recipe.attributes() | {"items_digest": manifest.digest, "block_rows": block_rows}
        differences = [
            f"{what} ({_short(was)} there, {_short(new)} here)"
            for what, was, new in _pairs(store.attributes, now)
            if was != new
        ]
        if differences:
            raise StoreError(
                f"{path} cannot be continued, it was made with other "
                f"{' and other '.join(differences)}; give the same as then, or another output"
            )
        return cls(store)

    def missing_blocks(self) -> list[int]:
        """The blocks that have no record."""
        return [
            block
            for block in range(spec.block_count(len(self.store), self.store.block_rows))
            if not (self.store.path / spec.record_name(block)).exists()
        ]

    def rows_of(self, block: int) -> range:
        """The rows of a block."""
        return spec.rows_of_block(block, len(self.store), self.store.block_rows)

    def write_block(self, block: int, rows: Sequence[Done | Failed]) -> BlockRecord:
        """Write every array's shard of a block, then its record.

        A row with a value that its array cannot hold is recorded as failed.
        """
        ids = [self.store.ids[row] for row in self.rows_of(block)]
        if len(rows) != len(ids):
            raise StoreError(f"block {block} has {len(ids)} rows, {len(rows)} were given")
        if (self.store.path / spec.record_name(block)).exists():
            raise StoreError(f"block {block} of {self.store.path} is written already")
        rows = [self._checked(row) for row in rows]
        record = BlockRecord(
            block=block,
            status=tuple(
                int(row.status if isinstance(row, Failed) else Status.DONE) for row in rows
            ),
            sources=tuple(row.source for row in rows),
            failures={
                one: row.reason
                for one, row in zip(ids, rows, strict=True)
                if isinstance(row, Failed)
            },
            shards={one.name: self._write_shard(one, block, rows) for one in self.store.specs},
        )
        if not publish_exclusively(self.store.path / spec.record_name(block), record.to_bytes()):
            raise StoreError(
                f"another process wrote block {block} of {self.store.path} at the same time; "
                "let one process at a time fill a store"
            )
        return record

    def log(self, event: str, **fields: Any) -> None:
        """Append to the one file for all that differs between two equal stores."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "event": event,
            "host": platform.node(),
            "python": platform.python_version(),
            "zarr": version("zarr"),
            **fields,
        }
        with (self.store.path / spec.LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _checked(self, row: Done | Failed) -> Done | Failed:
        """The row in the arrays' own number formats, if these can hold it."""
        if isinstance(row, Failed):
            return row
        values = {}
        for one in self.store.specs:
            with np.errstate(over="ignore"):
                value = np.asarray(row.values[one.name]).astype(one.dtype)
            if value.shape != one.shape:
                raise StoreError(f"a row of {one.name} has shape {one.shape}, not {value.shape}")
            if not np.isfinite(value).all() or one.is_fill(value).any():
                reason = f"{one.name} has a value that {one.dtype} cannot hold"
                return Failed(Status.NOT_FINITE, reason, row.source)
            values[one.name] = value
        return Done(values, row.source)

    def _write_shard(self, one: ArraySpec, block: int, rows: Sequence[Done | Failed]) -> str | None:
        """Write one shard, once and flushed, and give its SHA-256."""
        # What a killed run left here must not leak into the new shard: Zarr would merge them.
        shutil.rmtree(self.store.path / spec.block_folder(one.name, block), ignore_errors=True)
        if not any(isinstance(row, Done) for row in rows):
            return None
        values = np.full((len(rows), *one.shape), one.fill, one.dtype)
        for target, row in zip(values, rows, strict=True):
            if isinstance(row, Done):
                target[...] = row.values[one.name]
        where = self.rows_of(block)
        self._arrays[one.name][where.start : where.stop] = values
        shard = self.store.path / spec.shard_name(one, block)
        sync_file(shard)
        folder = shard.parent
        while folder != self.store.path:
            sync_folder(folder)
            folder = folder.parent
        return sha256_of(shard)


def _writable(path: Path, name: str) -> zarr.Array[Any]:
    return zarr.open_array(path / name, mode="r+", zarr_format=3)


def _pairs(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What must be equal, by the name that a person knows it by."""
    return [
        ("items", was["items_digest"], now["items_digest"]),
        (
            "backbone weights",
            was["backbone"]["weights_sha256"],
            now["backbone"]["weights_sha256"],
        ),
        ("preprocessing", was["preprocessing"], now["preprocessing"]),
        ("precision", was["precision"], now["precision"]),
        ("arrays", was["arrays"], now["arrays"]),
        ("rows a block", was["block_rows"], now["block_rows"]),
    ]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 16 else f"{text[:12]}..."
