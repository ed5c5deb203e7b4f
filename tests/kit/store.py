"""Small feature stores of made-up numbers, open, final and compressed."""

import os
import pickle
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec

from obygaze_features.common.tables import format_table
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import (
    ArraySpec,
    Done,
    Failed,
    Recipe,
    Status,
    Store,
    StoreWriter,
    open_store,
)
from obygaze_features.store import format as fmt
from obygaze_features.store.diff import diff
from obygaze_features.store.finalise import _consolidate, finalise
from obygaze_features.store.writer import write_checksums

ARRAYS = (
    ArraySpec("native", (5,), "float32", "five numbers"),
    ArraySpec("frames", (2, 3), "float16", "two frames of three numbers"),
    ArraySpec("frame_index", (2,), "int32", "numbers of the frames"),
)
RECIPE = Recipe(
    name="toy",
    backbone={"name": "toy", "revision": None, "weights_sha256": "ab" * 32, "config": {"d": 5}},
    preprocessing={"mode": "standard", "crop": [8, 8]},
    precision="float32",
    arrays=ARRAYS,
)
BLOCK_ROWS = 4
FAILED = 6
"""The row that fails in every toy store that has it."""
STATES = ("open", "final", "compressed")


def a_manifest(n: int = 18, film: str = "tt1", **fields: Any) -> Manifest:
    items = [Item(f"{film}-{row:03}", film=film, media=f"{film}_{row}.mp4") for row in range(n)]
    extra = {"note": [f"note, {row}" for row in range(n)]}
    about: dict[str, Any] = {"licence": "CC0-1.0", "citation": "Somebody (2026). Made-up clips."}
    return Manifest("made-up", Items.of(items, extra), **{**about, **fields})


def a_row(row: int, film: str = "tt1") -> Done | Failed:
    """Return the fixed values that a made-up backbone computes for a row."""
    if row == FAILED:
        return Failed(Status.UNREADABLE, 'cannot be decoded: "moov", not found', "cd" * 32)
    random = np.random.default_rng([row, *film.encode()])
    values = {
        "native": random.normal(size=5),
        "frames": random.normal(size=(2, 3)),
        "frame_index": random.integers(0, 3000, 2),
    }
    return Done(values, f"{row:064x}")


def probe() -> dict[str, np.ndarray]:
    done = a_row(1, "probe")
    assert isinstance(done, Done)
    return {name: np.asarray(value) for name, value in done.values.items()}


def fill(
    writer: StoreWriter,
    blocks: Iterable[int] | None = None,
    compute: Callable[[int], Done | Failed] = a_row,
) -> None:
    """Write the missing blocks and rows in order, like an extraction."""

    def computed(row: int) -> Done | Failed:
        outcome = compute(row)
        if isinstance(outcome, Failed):
            return outcome
        return Done({name: outcome.values[name] for name in writer.store.arrays}, outcome.source)

    for block in range(writer.store.blocks) if blocks is None else blocks:
        rows = np.array(writer.store.rows_of_block(block))
        missing = writer.store.missing_rows(rows)
        writer.write_rows({row: computed(row) for row in missing.tolist()})


def a_store(
    path: Path,
    n: int = 18,
    *,
    blocks: Iterable[int] | None = None,
    film: str = "tt1",
    recipe: Recipe = RECIPE,
    manifest: Manifest | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Path:
    """Write an open store of `n` rows in blocks of four, all of them unless `blocks` is given."""
    manifest = manifest or a_manifest(n, film)
    writer = StoreWriter.create(
        path, manifest.items, recipe, manifest.about, probe=probe(), block_rows=block_rows
    )
    fill(writer, blocks, lambda row: a_row(row, film))
    return path


def resume(path: Path, n: int = 18) -> StoreWriter:
    return StoreWriter.resume(path, a_manifest(n).items, RECIPE, block_rows=BLOCK_ROWS)


def files_of(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def contents(path: Path) -> dict[str, bytes]:
    """Return every file of a store except its log, which differs between equal stores."""
    return {name: data for name, data in files_of(path).items() if name != "log.jsonl"}


def age(path: Path, seconds: float = 3600) -> None:
    """Make a file look unchanged for an hour."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def flip_bit(file: Path, offset: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 1 << bit
    file.chmod(0o644)
    file.write_bytes(content)


def numbers(n: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 2000, (n, *shape)).astype(dtype)


def plain_manifest(n: int) -> Manifest:
    items = [Item(f"tt{row:03}", media=f"clip{row}.mp4") for row in range(n)]
    return Manifest("made-up", Items.of(items), licence="CC0")


def plain_recipe(*arrays: ArraySpec) -> Recipe:
    arrays = arrays or (ArraySpec("native", (3,), "float32", "three numbers"),)
    return replace(RECIPE, backbone={**RECIPE.backbone, "config": {}}, arrays=arrays)


def open_state(
    path: Path,
    values: Mapping[str, np.ndarray],
    failed: Collection[int] = (),
    todo: Collection[int] = (),
    block_rows: int = 2,
) -> Path:
    """Write an open store of these values, with `failed` rows and with blocks still `todo`."""
    specs = [ArraySpec(name, v.shape[1:], str(v.dtype), name) for name, v in values.items()]
    n = len(next(iter(values.values())))
    recipe = plain_recipe(*specs)
    writer = StoreWriter.create(path, plain_manifest(n).items, recipe, block_rows=block_rows)

    def compute(row: int) -> Done | Failed:
        if row in failed:
            return Failed(Status.UNREADABLE, f"row {row} is broken")
        return Done({name: value[row] for name, value in values.items()}, f"{row:064x}")

    fill(writer, sorted(set(range(writer.store.blocks)) - set(todo)), compute)
    return path


def final_state(
    source: Path, path: Path, shard_rows: int, chunk_rows: int, *, compress: bool = False
) -> Path:
    """Write the finalised store with Zarr alone, with shards and chunks of any size."""
    store = open_store(source)
    attributes = store.attributes | {"state": "final"}
    group = zarr.create_group(path, attributes={fmt.ATTRIBUTES: attributes})
    for spec in store.specs:
        layout = fmt.array_layout(spec, len(store), shard_rows, chunk_rows)
        if compress:
            layout = compressed(layout)
        group.create_array(**layout)[:] = store.read(spec.name, missing="nan")
    ids = np.array(store.ids, np.bytes_).view(np.uint8).reshape(len(store), -1)
    group.create_array(**fmt.small_layout(fmt.IDS, ids.shape))[:] = ids
    group.create_array(**fmt.small_layout(fmt.STATUS, (len(store),)))[:] = store.status
    (path / fmt.ITEMS).write_bytes((source / fmt.ITEMS).read_bytes())
    columns = {
        "id": store.ids,
        "status": [str(code) for code in store.status.tolist()],
        "source": store.rows_table["source"],
        "reason": [store.failures.get(item_id, "") for item_id in store.ids],
    }
    (path / fmt.ROWS).write_text(format_table(columns), encoding="utf-8")
    return path


def compressed(layout: dict[str, Any]) -> dict[str, Any]:
    """Return the layout of an array with compressed chunks, as versions up to 0.3 wrote it."""
    codecs = (BytesCodec(endian="little"), ZstdCodec(level=3), Crc32cCodec())
    return layout | {"serializer": replace(layout["serializer"], codecs=codecs)}


def compress(path: Path) -> None:
    """Compress the chunks of a final store."""
    store = open_store(path)
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    for spec in store.specs:
        values = store.read(spec.name, missing="nan")
        layout = fmt.array_layout(
            spec, len(store), *fmt.final_rows(spec, len(store)), beside=store.specs
        )
        group.create_array(**compressed(layout), overwrite=True)[:] = values
    _consolidate(path)
    write_checksums(path, {})


def in_all_states(folder: Path, values: Mapping[str, np.ndarray], **options: Any) -> Path:
    """Write ``open.zarr``, and the same store as ``final.zarr`` and ``compressed.zarr``."""
    open_state(folder / "open.zarr", values, **options)
    for state in STATES[1:]:
        path = shutil.copytree(folder / "open.zarr", folder / f"{state}.zarr")
        finalise(path, allow_incomplete=True)
        if state == "compressed":
            compress(path)
    return folder


def assert_alike(there: Store, here: Store) -> None:
    """Check that two stores agree on everything; the second was written by us, in a folder."""
    assert there.info() == here.info()
    assert (there.ids, there.rows_table) == (here.ids, here.rows_table)
    assert there.items.digest == here.items.digest
    for name in here.arrays:
        rows = here.read(name, missing="nan")
        np.testing.assert_array_equal(there.read(name, missing="nan"), rows)
    assert diff(there, here)["identical"]
    assert pickle.loads(pickle.dumps(there)).ids == here.ids


class Malice:
    """A program disguised as data: unpickling it creates a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)
