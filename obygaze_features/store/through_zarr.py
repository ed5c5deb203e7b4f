"""Rows by Zarr's own pipeline, for shards that cannot be mapped; imported when one is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.store import format as spec
from obygaze_features.store.metadata import StoredArray
from obygaze_features.store.shards import DamagedChunk

__all__ = ["read_by_zarr"]

Rows = NDArray[np.intp]


def read_by_zarr(path: Path, one: StoredArray, shard: int, within: Rows, out: NDArray[Any]) -> None:
    """The same as `ShardReader.read`, by Zarr's own pipeline."""
    import zarr

    file, first = path / spec.shard_name(one.spec, shard), shard * one.layout.shard_rows
    runs = np.split(np.arange(len(within)), np.flatnonzero(np.diff(within) != 1) + 1)

    def read(part: Rows) -> None:
        rows = within[part] + first
        selection = slice(rows[0], rows[-1] + 1) if len(runs) == 1 else rows
        out[part] = array.oindex[selection]

    def all_there(part: Rows) -> bool:
        # What was lost reads as the fill value, which no row that is done is made of.
        fill = one.spec.is_fill(out[part])
        if one.spec.padded:
            return not fill.reshape(len(part), -1).all(axis=1).any()
        return not fill.any()

    everything = np.arange(len(within))
    try:
        array = zarr.open_array(path / one.spec.name, mode="r", zarr_format=3)
        read(everything)
        if all_there(everything):
            return
    except Exception:  # noqa: S110  # codecs raise what they like; what is hit is found below
        pass
    chunks = within // one.layout.chunk_rows
    for chunk in np.unique(chunks).tolist():
        rows = range(chunk * one.layout.chunk_rows, (chunk + 1) * one.layout.chunk_rows)
        try:
            read(np.flatnonzero(chunks == chunk))
        except Exception as problem:
            raise DamagedChunk(file, rows, f"it cannot be decoded ({problem})") from None
        if not all_there(np.flatnonzero(chunks == chunk)):
            raise DamagedChunk(file, rows, "a chunk is not there")
