"""Small feature stores of made-up numbers, open and final."""

import os
import pickle
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import obygaze_features as of
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

ARRAYS = (
    ArraySpec("native", (5,), "float32", "five numbers"),
    ArraySpec("frames", (2, 3), "float16", "two frames of three numbers", padded=True),
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
STATES = ("open", "final")


def a_manifest(n: int = 18, film: str = "tt1") -> Manifest:
    items = []
    for row in range(n):
        clip = f"{film}-{row:03}"
        items.append(Item(clip, film=film, media=f"{film}_{row}.mp4"))
    extra = {"note": [f"note, {row}" for row in range(n)]}
    citation = "Somebody (2026). Made-up clips."
    return Manifest("made-up", Items.of(items, extra), licence="CC0-1.0", citation=citation)


def a_row(row: int, film: str = "tt1") -> Done | Failed:
    """Return the fixed values that a made-up backbone computes for a row."""
    if row == FAILED:
        return Failed(Status.UNREADABLE, 'cannot be decoded: "moov", not found', "cd" * 32)
    random = np.random.default_rng([row, *film.encode()])
    frames = random.normal(size=(2, 3))
    frames[2 - row % 2 :] = np.nan  # every other row has one frame
    values = {"native": random.normal(size=5), "frames": frames}
    values["frame_index"] = random.integers(0, 3000, 2)
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


def flip_bit(file: Path, offset: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 1 << bit
    file.chmod(0o644)
    file.write_bytes(content)


def numbers(n: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    whole = np.random.default_rng(n).integers(0, 2000, (n, *shape))
    return whole.astype(dtype)


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
    *,
    padded: bool = False,
) -> Path:
    """Write an open store of these values, with `failed` rows and with blocks still `todo`."""
    specs = []
    for name, rows in values.items():
        dtype = str(rows.dtype)
        specs.append(ArraySpec(name, rows.shape[1:], dtype, name, padded))
    n = len(next(iter(values.values())))
    recipe = plain_recipe(*specs)
    writer = StoreWriter.create(path, plain_manifest(n).items, recipe, block_rows=block_rows)

    def compute(row: int) -> Done | Failed:
        if row in failed:
            return Failed(Status.UNREADABLE, f"row {row} is broken")
        own = {name: value[row] for name, value in values.items()}
        return Done(own, f"{row:064x}")

    blocks = [block for block in range(writer.store.blocks) if block not in todo]
    fill(writer, blocks, compute)
    return path


def in_all_states(folder: Path, values: Mapping[str, np.ndarray], **options: Any) -> Path:
    """Write ``open.zarr``, and the same store as ``final.zarr``."""
    source = open_state(folder / "open.zarr", values, **options)
    final = shutil.copytree(source, folder / "final.zarr")
    of.finalise(final, allow_incomplete=True)
    return folder


def write_hdf5(store: Path, output: Path) -> None:
    """Write the rows of a store that are done, as other programs do."""
    import h5py

    opened = open_store(store)
    with h5py.File(output, "w") as file:
        file["ids"] = opened.done_ids()
        for name in opened.arrays:
            file.create_dataset(name, data=opened.read(name, missing="drop"), fletcher32=True)


def assert_alike(there: Store, here: Store) -> None:
    """Check that two stores agree on everything; the second was written by us, in a folder."""
    assert there.info() == here.info()
    assert (there.ids, there.rows_table) == (here.ids, here.rows_table)
    assert there.items.digest == here.items.digest
    for name in here.arrays:
        rows = here.read(name, missing="nan")
        np.testing.assert_array_equal(there.read(name, missing="nan"), rows)
    assert of.diff(there, here)["identical"]
    assert pickle.loads(pickle.dumps(there)).ids == here.ids


class Malice:
    """A program disguised as data: unpickling it creates a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)
