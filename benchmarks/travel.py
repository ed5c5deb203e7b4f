"""Packed stores and exports to HDF5, compared with the local store.

Everything is read from the page cache after a first reading. obygaze reads the packed store in
place; other programs read it with Zarr.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr

from benchmarks.result import Result, side_by_side
from benchmarks.store import make_store
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import open_store
from obygaze_features.store.export import export
from obygaze_features.store.imports import import_features
from obygaze_features.store.transfer import pack, pull

CLIPS, FRAMES, DIM = 2000, 32, 512
RANDOM = 200


def measure() -> Iterator[Result]:
    """Compare each form of a store with the local store; a ratio below 1 is better."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _reading(Path(folder))
        yield from _writing(Path(folder))


def _reading(folder: Path) -> Iterator[Result]:
    frames = np.random.default_rng(0).standard_normal((CLIPS, FRAMES, DIM), np.float32)
    ids = [f"tt{row // 100:07d}-{row % 100:03d}" for row in range(CLIPS)]
    path = make_store(folder / "s.zarr", ids, {"frames": frames.astype(np.float16)})
    store = open_store(path)
    pack(store, folder / "s.zip")
    export(store, folder / "s.h5")
    rows = np.random.default_rng(1).integers(0, CLIPS, RANDOM).tolist()

    def ours() -> object:
        return open_store(path).read("frames", missing="nan")

    def ours_at_random() -> object:
        opened = open_store(path)
        return [opened.read("frames", [ids[row]]) for row in rows]

    def in_place() -> object:
        return open_store(folder / "s.zip").read("frames", missing="nan")

    def in_place_at_random() -> object:
        opened = open_store(folder / "s.zip")
        return [opened.read("frames", [ids[row]]) for row in rows]

    def packed(wanted: list[Any]) -> object:
        with zarr.storage.ZipStore(folder / "s.zip", mode="r") as opened:
            array: Any = zarr.open_group(opened, mode="r")["frames"]
            return [array[one] for one in wanted]

    def hdf5(wanted: list[Any]) -> object:
        with h5py.File(folder / "s.h5") as file:
            return [file["frames"][one] for one in wanted]

    for name, zipped, local in (
        ("open packed, all frames", in_place, ours),
        ("open packed, 200 random clips one at a time", in_place_at_random, ours_at_random),
    ):
        yield side_by_side(f"{name} (local store)", zipped, local, target=2)
    everything = [slice(None)]
    for peer, read in (
        ("packed, by Zarr", partial(packed, everything)),
        ("HDF5", partial(hdf5, everything)),
    ):
        yield side_by_side(f"open, all frames ({peer})", ours, read, target=1.5, runs=3)
    for peer, read in (
        ("packed, by Zarr", partial(packed, rows)),
        ("HDF5", partial(hdf5, rows)),
    ):
        yield side_by_side(
            f"open, 200 random clips one at a time ({peer})", ours_at_random, read, target=1, runs=3
        )


def _writing(folder: Path) -> Iterator[Result]:
    """Compare with copying the folder of the store, which verifies no checksums."""
    path, store = folder / "s.zarr", open_store(folder / "s.zarr")
    manifest = Manifest("bench", Items.of([Item(one, media=f"{one}.mp4") for one in store.ids]))
    numbers = itertools.count()

    def imported() -> object:
        output = folder / f"{next(numbers)}" / "bench.zarr"
        return import_features(folder / "s.h5", manifest, output)

    for name, write in (
        ("pack", lambda: pack(open_store(path), folder / f"{next(numbers)}.zip")),
        ("unpack", lambda: pull(folder / "s.zip", folder / f"{next(numbers)}.zarr")),
        ("export to HDF5", lambda: export(store, folder / "t.h5", overwrite=True)),
        ("import from HDF5", imported),
    ):
        yield side_by_side(
            f"{name} (copy the folder)",
            write,
            lambda: shutil.copytree(path, folder / f"{next(numbers)}"),
            target=None,
            runs=3,
        )
