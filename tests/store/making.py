"""Stores for tests: an open one by our writer, a final one by Zarr's own from the format alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import zarr

from obygaze_features.common.tables import format_table
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import ArraySpec, Done, Failed, Recipe, Status, StoreWriter, open_store
from obygaze_features.store import format as spec


def a_manifest(n: int) -> Manifest:
    return Manifest(
        name="made-up",
        items=Items.of([Item(f"tt{row:03}", media=f"clip{row}.mp4") for row in range(n)]),
        licence="CC0",
    )


def a_recipe(*arrays: ArraySpec) -> Recipe:
    return Recipe(
        name="toy",
        backbone={"name": "toy", "revision": None, "weights_sha256": "ab" * 32, "config": {}},
        preprocessing={"mode": "standard", "crop": (8, 8)},
        precision="float32",
        arrays=arrays or (ArraySpec("native", (3,), "float32", "three numbers"),),
    )


def numbers(n: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 2000, (n, *shape)).astype(dtype)


def fill(
    writer: StoreWriter,
    values: Mapping[str, np.ndarray],
    failed: Collection[int] = (),
    todo: Collection[int] = (),
) -> None:
    """Write every block but those in `todo`; the rows in `failed` could not be read."""
    for block in set(writer.missing_blocks()) - set(todo):
        writer.write_block(
            block,
            [
                Failed(Status.UNREADABLE, f"row {row} is broken")
                if row in failed
                else Done({name: value[row] for name, value in values.items()}, f"{row:064x}")
                for row in writer.rows_of(block)
            ],
        )


def open_state(
    path: Path,
    values: Mapping[str, np.ndarray],
    failed: Collection[int] = (),
    todo: Collection[int] = (),
    block_rows: int = 2,
) -> Path:
    """A store that is still open, with arrays of these values."""
    specs = [ArraySpec(name, v.shape[1:], str(v.dtype), name) for name, v in values.items()]
    n = len(next(iter(values.values())))
    writer = StoreWriter.create(path, a_manifest(n), a_recipe(*specs), block_rows=block_rows)
    fill(writer, values, failed, todo)
    return path


def final_state(
    source: Path, path: Path, shard_rows: int, chunk_rows: int, *, compress: bool = False
) -> Path:
    """The same store as it is once finalised, with shards and chunks of any size."""
    store = open_store(source)
    attributes = store.attributes | {"state": "final"}
    group = zarr.create_group(path, attributes={spec.ATTRIBUTES: attributes})
    for one in store.specs:
        layout = spec.array_layout(one, len(store), shard_rows, chunk_rows, compress=compress)
        group.create_array(**layout)[:] = store.read(one.name, missing="nan")
    ids = spec.encode_ids(store.ids)
    group.create_array(**spec.ids_layout(*ids.shape))[:] = ids
    group.create_array(**spec.status_layout(len(store)))[:] = store.status
    (path / spec.ITEMS).write_bytes((source / spec.ITEMS).read_bytes())
    columns = {
        "id": store.ids,
        "status": [str(code) for code in store.status.tolist()],
        "source": [store.sources[one] or "" for one in store.ids],
        "reason": [store.failures.get(one, "") for one in store.ids],
    }
    (path / spec.ROWS).write_text(format_table(columns), encoding="utf-8")
    return path


def flip_bit(file: Path, place: int) -> None:
    """Flip the lowest bit of one byte."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)
