"""Rows by Zarr's own pipeline, for shards in a folder that cannot be mapped."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.store import format as spec
from obygaze_features.store.arrays import StoredArray
from obygaze_features.store.shards import DamagedChunk

if TYPE_CHECKING:
    import zarr

__all__ = ["ZarrShard"]

Rows = NDArray[np.intp]


class ZarrShard:
    """One shard, read by Zarr; the same to a reader as `ShardReader`.

    Parameters
    ----------
    path
        The store's folder.
    one, shard
        Which array, and which of its shards.
    """

    def __init__(self, path: Path, one: StoredArray, shard: int) -> None:
        self.path, self.one = path, one
        self.file = path / spec.shard_name(one.spec, shard)
        self.first = shard * one.layout.shard_rows

    def read(
        self, rows: Rows, *, check: bool = True, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Rows of the shard, counted from its start; Zarr holds them to their checksums anyway."""
        if out is None:
            out = np.empty((len(rows), *self.one.spec.shape), self.one.spec.dtype)
        try:
            self._read(rows, out)
            if self._all_there(out):
                return out
        except Exception:  # noqa: S110  # codecs raise what they like; what is hit is found below
            pass
        step = self.one.layout.chunk_rows
        chunks = rows // step
        for chunk in np.unique(chunks).tolist():
            hit, mine = range(chunk * step, (chunk + 1) * step), chunks == chunk
            part = out[mine]
            try:
                self._read(rows[mine], part)
            except Exception as problem:
                why = f"it cannot be decoded ({problem})"
                raise DamagedChunk(str(self.file), hit, why) from None
            if not self._all_there(part):
                raise DamagedChunk(str(self.file), hit, "a chunk is missing")
            out[mine] = part
        return out

    def forget(self) -> None:
        """Nothing is kept."""

    @cached_property
    def _array(self) -> zarr.Array[Any]:
        import zarr  # here, as it takes long to import

        return zarr.open_array(self.path / self.one.spec.name, mode="r", zarr_format=3)

    def _read(self, rows: Rows, out: NDArray[Any]) -> None:
        absolute = rows + self.first
        in_a_row = (np.diff(rows) == 1).all()
        selection = slice(absolute[0], absolute[-1] + 1) if in_a_row else absolute
        out[...] = self._array.oindex[selection]

    def _all_there(self, out: NDArray[Any]) -> bool:
        # What was lost reads as the fill value, which no row that is done is made of.
        fill = self.one.spec.is_fill(out)
        if self.one.spec.padded:
            return not fill.reshape(len(out), -1).all(axis=1).any()
        return not fill.any()
