"""Small stores of made-up numbers for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import ArraySpec, Done, Failed, Recipe, Status, StoreWriter

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


def a_manifest(n: int = 18, film: str = "tt1", **fields: str) -> Manifest:
    items = [Item(f"{film}-{row:03}", film=film, media=f"{film}_{row}.mp4") for row in range(n)]
    extra = {"note": [f"note, {row}" for row in range(n)]}
    about = {"licence": "CC0-1.0", "citation": "Somebody (2026). Made-up clips."}
    return Manifest("made-up", Items.of(items, extra), **{**about, **fields})


def a_row(row: int, film: str = "tt1") -> Done | Failed:
    """What a made-up backbone computes for a row, alike wherever it is asked for."""
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
    """Do what an extraction does: the missing blocks, in order."""
    for block in writer.missing_blocks() if blocks is None else blocks:
        rows = [compute(row) for row in writer.rows_of(block)]
        writer.write_block(block, [_kept(row, writer.store.arrays) for row in rows])


def _kept(row: Done | Failed, arrays: list[str]) -> Done | Failed:
    if isinstance(row, Failed):
        return row
    return Done({name: row.values[name] for name in arrays}, row.source)


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
    """An open store; of `n` rows in blocks of four, all of them written unless `blocks` says."""
    manifest = manifest or a_manifest(n, film)
    writer = StoreWriter.create(path, manifest, recipe, probe=probe(), block_rows=block_rows)
    fill(writer, blocks, lambda row: a_row(row, film))
    return path


def resume(path: Path, n: int = 18) -> StoreWriter:
    return StoreWriter.resume(path, a_manifest(n), RECIPE, block_rows=BLOCK_ROWS)


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a store but its log, which is all that equal stores differ in."""
    files = (file for file in path.rglob("*") if file.is_file())
    every = {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
    return {name: data for name, data in every.items() if name != "log.jsonl"}


def age(path: Path, seconds: float = 3600) -> None:
    """Make a file look as if nobody had touched it for an hour."""
    import os

    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
