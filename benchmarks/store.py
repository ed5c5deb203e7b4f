"""Stores, compared with a .pth or .npy file per clip, HDF5, Lance, safetensors and memmap.

Everything is read from the page cache after a first reading, so that code is compared, not
disks. Stores are finalised.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from timeit import repeat
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from benchmarks.result import Result, side_by_side
from obygaze_features.manifests import Item, Items
from obygaze_features.store import ArraySpec, Done, Recipe, StoreWriter, open_store
from obygaze_features.store.finalise import finalise

CLIPS, FRAMES, DIM = 2000, 32, 512
TOKENS = (3137, 768)
MILLION = 1_000_000
RANDOM = 200


def measure() -> Iterator[Result]:
    """Measure the promised speed of stores."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _million(Path(folder, "million"))
        yield from _clips(Path(folder, "clips"))
        yield from _tokens(Path(folder, "tokens"))


def _clips(folder: Path) -> Iterator[Result]:
    import lance  # only here, because other benchmarks also write stores

    folder.mkdir()
    chance = np.random.default_rng(0)
    native = chance.standard_normal((CLIPS, DIM), np.float32)
    frames = chance.standard_normal((CLIPS, FRAMES, DIM), np.float32).astype(np.float16)
    ids = [f"tt{row // 100:07d}-{row % 100:03d}" for row in range(CLIPS)]
    store = make_store(folder / "s.zarr", ids, {"native": native, "frames": frames})
    for name, values in (("native", native), ("frames", frames)):
        (folder / name).mkdir()
        for identifier, row in zip(ids, values, strict=True):
            torch.save(torch.from_numpy(row), folder / name / f"{identifier}.pth")
            np.save(folder / name / f"{identifier}.npy", row)
        np.save(folder / f"{name}.npy", values)
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=values, chunks=(1, *values.shape[1:]))

    def all_of(name: str) -> NDArray[np.generic]:
        return open_store(store).read(name, missing="nan")

    def pth(name: str, wanted: list[str]) -> list[NDArray[np.generic]]:
        return [
            torch.load(folder / name / f"{one}.pth", weights_only=True).numpy() for one in wanted
        ]

    def npy(name: str, wanted: list[str]) -> list[NDArray[np.generic]]:
        return [np.load(folder / name / f"{one}.npy") for one in wanted]

    def hdf5(name: str) -> NDArray[np.generic]:
        with h5py.File(folder / f"{name}.h5") as file:
            found: NDArray[np.generic] = file["x"][:]
            return found

    def memmap(name: str) -> NDArray[np.generic]:
        return np.array(np.load(folder / f"{name}.npy", mmap_mode="r"))

    yield side_by_side(
        "open, all of native (memmap)", partial(all_of, "native"), partial(memmap, "native"),
        target=10,
    )  # fmt: skip
    save_file({"frames": frames}, folder / "frames.safetensors")
    save_file(dict(zip(ids, native, strict=True)), folder / "native.safetensors")
    flat = pa.FixedSizeListArray.from_arrays(pa.array(frames.reshape(-1)), FRAMES * DIM)
    lance.write_dataset(pa.table({"id": ids, "frames": flat}), folder / "frames.lance")

    def from_lance() -> NDArray[np.generic]:
        column = lance.dataset(folder / "frames.lance").to_table(columns=["frames"])["frames"]
        values: NDArray[np.generic] = column.combine_chunks().flatten().to_numpy()
        return values.reshape(frames.shape)

    targets = {"one .pth file per clip": 1 / 1.5, "safetensors, which checks nothing": 1.5}
    for peer, read in (
        ("one .pth file per clip", partial(pth, "frames", ids)),
        ("one .npy file per clip", partial(npy, "frames", ids)),
        ("HDF5", partial(hdf5, "frames")),
        ("Lance", from_lance),
        ("safetensors, which checks nothing", partial(load_file, folder / "frames.safetensors")),
    ):
        target = targets.get(peer)
        yield side_by_side(
            f"open, all frames, checksums on ({peer})", partial(all_of, "frames"), read,
            target=target, runs=3,
        )  # fmt: skip
    wanted = [ids[row] for row in np.random.default_rng(1).integers(0, CLIPS, RANDOM)]
    opened = open_store(store)
    tensors: Any = safe_open(folder / "native.safetensors", "numpy")
    one_id = wanted[0]
    ours = min(repeat(lambda: opened.read("native", [one_id]), number=1000)) / 1000
    peer_s = min(repeat(lambda: tensors.get_tensor(one_id), number=1000)) / 1000
    yield Result("one clip by id (safetensors)", ours, "s", peer_s, ours / peer_s, None)


def _tokens(folder: Path) -> Iterator[Result]:
    """Compare writing two blocks of all ViViT tokens with writing the same bytes."""
    folder.mkdir()
    rows = np.random.default_rng(0).standard_normal((64, *TOKENS), np.float32).astype(np.float16)
    ids = [f"clip-{row:02d}" for row in range(64)]
    recipe = _recipe({"tokens": rows})
    items = Items.of(Item(one, media=f"{one}.mp4") for one in ids)
    done = [Done({"tokens": row}, None) for row in rows]
    numbers = iter(range(1000))
    runs = 4
    writers = iter([StoreWriter.create(folder / f"{n}.zarr", items, recipe) for n in range(runs)])

    def ours() -> None:
        writer = next(writers)
        writer.write_rows(dict(enumerate(done)))

    def raw() -> None:
        for half in (rows[:32], rows[32:]):
            with (folder / f"{next(numbers)}.raw").open("wb") as file:
                file.write(half.data)
                file.flush()
                os.fsync(file.fileno())

    yield side_by_side(
        "write 64 x [3137,768] float16 in two blocks (raw write and fsync)", ours, raw,
        target=2, runs=runs,
    )  # fmt: skip


_OURS = """
from obygaze_features.store import open_store
def work(folder, wanted):
    return open_store(folder / "m.zarr").read("native", wanted)
"""
_MEMMAP = """
def work(folder, wanted):
    values = np.load(folder / "native.npy", mmap_mode="r")
    ids = np.load(folder / "ids.npy")
    row_of = {one: row for row, one in enumerate(ids.tolist())}
    return values[[row_of[one.encode()] for one in wanted]]
"""
_FRAME = """
import json, sys, time
from pathlib import Path
import numpy as np
folder, wanted = Path(sys.argv[1]), json.loads(Path(sys.argv[1], "wanted.json").read_text())
{body}
begin = time.perf_counter()
assert work(folder, wanted).shape == (1000, 512)
seconds = time.perf_counter() - begin
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(json.dumps([seconds, int(peak) * 1024]))
"""


def _million(folder: Path) -> Iterator[Result]:
    """Read 1,000 of a million rows by id, in a new process."""
    folder.mkdir()
    ids = [f"tt{row // 1000:07d}-{row % 1000:03d}" for row in range(MILLION)]
    values = np.lib.format.open_memmap(folder / "native.npy", "w+", np.float32, (MILLION, DIM))
    chance = np.random.default_rng(0)
    for start in range(0, MILLION, 50_000):
        values[start : start + 50_000] = chance.standard_normal((50_000, DIM), np.float32)
    np.save(folder / "ids.npy", np.array([one.encode() for one in ids]))
    make_store(folder / "m.zarr", ids, {"native": values}, block_rows=8192)
    wanted = [ids[row] for row in np.random.default_rng(2).integers(0, MILLION, 1000)]
    (folder / "wanted.json").write_text(json.dumps(wanted))

    def run(body: str) -> tuple[float, int]:
        script = _FRAME.replace("{body}", body)
        command = [sys.executable, "-c", script, str(folder)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds, peak = json.loads(out)
        return seconds, peak

    run(_OURS), run(_MEMMAP)
    ours, peer = [], []
    for _ in range(5):
        ours.append(run(_OURS))
        peer.append(run(_MEMMAP))
    a, b = min(ours)[0], min(peer)[0]
    name = "open, 1,000 of a million rows by id (.npy memmap, dict of ids)"
    yield Result(name, a, "s", b, a / b, 3)
    used = max(peak for _, peak in ours)
    yield Result("its memory (limit)", used / 1e6, "MB", 500, used / 500e6, 1)


def make_store(
    path: Path,
    ids: list[str],
    arrays: dict[str, NDArray[np.generic]],
    *,
    block_rows: int = 32,
) -> Path:
    items = Items.of(Item(one, media=f"{one}.mp4") for one in ids)
    writer = StoreWriter.create(path, items, _recipe(arrays), block_rows=block_rows)
    for block in range(writer.store.blocks):
        rows = writer.store.rows_of_block(block)
        writer.write_rows(
            {
                row: Done({name: values[row] for name, values in arrays.items()}, None)
                for row in rows
            }
        )
    finalise(path)
    return path


def _recipe(arrays: dict[str, NDArray[np.generic]]) -> Recipe:
    return Recipe(
        name="bench",
        backbone={"name": "bench", "revision": None, "weights_sha256": "0" * 64, "config": {}},
        preprocessing={},
        precision="float32",
        arrays=tuple(
            ArraySpec(name, values.shape[1:], str(values.dtype), "random numbers")
            for name, values in arrays.items()
        ),
    )
