"""Search in a store, compared with FAISS, which keeps the vectors in memory and is also exact.

Both are warm: the store is open and in the page cache, and the index of FAISS is filled.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.result import Result, side_by_side
from benchmarks.store import DIM, FRAMES, MILLION, make_store
from obygaze_features import open_store, search

CLIPS, TOP, LIMIT_MB = 5000, 10, 1000
_PEAK = """
import sys
import numpy as np
from obygaze_features import open_store, search
store = open_store(sys.argv[1])
query = np.load(sys.argv[2])
for _ in range(3):
    search(store, vector=query)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def measure() -> Iterator[Result]:
    """Measure a search of a million vectors, and of the frames of 5,000 clips."""
    chance = np.random.default_rng(0)
    query = chance.standard_normal(DIM, np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        values = np.lib.format.open_memmap(folder / "v.npy", "w+", np.float32, (MILLION, DIM))
        for start in range(0, MILLION, 50_000):
            values[start : start + 50_000] = chance.standard_normal((50_000, DIM), np.float32)
        ids = [f"tt{row // 1000:07d}-{row % 1000:03d}" for row in range(MILLION)]
        path = make_store(folder / "m.zarr", ids, {"native": values}, block_rows=8192)
        store, index = open_store(path), _index(values)
        expected = [ids[row] for row in _faiss(index, query)]
        assert [match.id for match in search(store, vector=query, top=TOP)] == expected
        result = side_by_side(
            "nearest of a million x 512 (FAISS, IndexFlatIP in memory)",
            lambda: search(store, vector=query, top=TOP), lambda: _faiss(index, query),
            target=10,
        )  # fmt: skip
        yield result
        np.save(folder / "query.npy", query)
        command = [sys.executable, "-c", _PEAK, str(path), str(folder / "query.npy")]
        peak = int(subprocess.run(command, capture_output=True, check=True).stdout) / 1000
        yield Result("its memory (limit)", peak, "MB", LIMIT_MB, peak / LIMIT_MB, 1)
    with tempfile.TemporaryDirectory() as name:
        frames = chance.standard_normal((CLIPS, FRAMES, DIM), np.float32).astype(np.float16)
        path = make_store(Path(name, "f.zarr"), ids[:CLIPS], {"frames": frames})
        opened = open_store(path)
        rows = _index(frames.reshape(-1, DIM))
        yield side_by_side(
            "nearest of 160,000 frames in float16 (FAISS, float32 in memory)",
            lambda: search(opened, vector=query, frames=True, top=TOP),
            lambda: _faiss(rows, query),
            target=None,
        )


def _index(values: NDArray[np.generic]) -> faiss.IndexFlatIP:
    index = faiss.IndexFlatIP(DIM)
    for start in range(0, len(values), 50_000):
        part = np.array(values[start : start + 50_000], np.float32)
        faiss.normalize_L2(part)
        index.add(part)
    return index


def _faiss(index: faiss.IndexFlatIP, query: NDArray[np.float32]) -> list[int]:
    unit = query[None] / np.linalg.norm(query)
    rows: list[int] = index.search(unit, TOP)[1][0].tolist()
    return rows
