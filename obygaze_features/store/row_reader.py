"""Rows of arrays, gathered shard by shard.

Uncompressed shards on a local disk are mapped (`ShardReader`), which is many times faster than any
other way; `zarr_reader` reads all others. Tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.arrays import StoredArray
from obygaze_features.store.format import BlockRecord
from obygaze_features.store.location import Folder, Location
from obygaze_features.store.shards import DamagedChunk, ShardReader
from obygaze_features.store.zarr_reader import RangeShard, ZarrShard

MAX_OPEN_SHARDS = 64
"""A mapped shard takes a file descriptor, and a process may have as few as 256."""

Rows = NDArray[np.intp]
Shard = ShardReader | ZarrShard | RangeShard


class RowReader:
    """Reads rows that are done, and keeps the shards that were used last open.

    Parameters
    ----------
    location
        Of the store.
    record_of
        Gives a block's commit record, if it has one: where an open store's shard may be.
    checksums
        Compare chunks with their checksums.
    """

    def __init__(
        self, location: Location, record_of: Callable[[int], BlockRecord | None], *, checksums: bool
    ) -> None:
        self.location, self.record_of, self.checksums = location, record_of, checksums
        self._shards: dict[tuple[str, int], Shard] = {}

    def gather(
        self,
        array: StoredArray,
        rows: Rows,
        into: NDArray[Any] | None = None,
        at: Rows | None = None,
    ) -> NDArray[Any]:
        """Rows of an array; row i goes to ``into[at[i]]``, or to a new array.

        `DamagedChunk` counts its rows from the store's first.
        """
        if into is None:
            into = np.empty((len(rows), *array.spec.shape), array.spec.dtype)
        if at is None:
            if len(rows) == 1:
                shard = int(rows[0]) // array.layout.shard_rows
                return self._read(array, shard, rows, into)
            at = np.arange(len(rows))
        shards = rows // array.layout.shard_rows
        if (np.diff(shards) < 0).any():
            order = np.argsort(rows, kind="stable")
            rows, at, shards = rows[order], at[order], shards[order]
        ends = [*(np.flatnonzero(np.diff(shards)) + 1).tolist(), len(rows)]
        start = 0
        for stop in ends if len(rows) else ():
            targets = at[start:stop]
            if (np.diff(targets) == 1).all():
                part = into[targets[0] : targets[-1] + 1]
                self._read(array, int(shards[start]), rows[start:stop], part)
            else:
                part = np.empty((stop - start, *array.spec.shape), array.spec.dtype)
                into[targets] = self._read(array, int(shards[start]), rows[start:stop], part)
            start = stop
        return into

    def forget(self) -> None:
        """Release the memory that shards were read into."""
        for shard in list(self._shards.values()):
            shard.forget()

    def _read(self, array: StoredArray, shard: int, rows: Rows, out: NDArray[Any]) -> NDArray[Any]:
        first = shard * array.layout.shard_rows
        try:
            self._shard(array, shard).read(rows - first, check=self.checksums, out=out)
        except DamagedChunk as problem:
            raise _count_from_store(problem, first) from None
        return out

    def read_row(self, array: StoredArray, row: int) -> NDArray[Any]:
        """One row of an array."""
        shard, within = divmod(row, array.layout.shard_rows)
        try:
            reader = self._shard(array, shard)
            if isinstance(reader, ShardReader):
                return reader.read_row(within, check=self.checksums)
        except DamagedChunk as problem:
            raise _count_from_store(problem, row - within) from None
        values: NDArray[Any] = self.gather(array, np.array([row]))[0]
        return values

    def _shard(self, array: StoredArray, shard: int) -> Shard:
        """A shard, opened; the last ones stay open.

        Nothing is locked, so that threads and forks never wait for each other; at worst a shard
        is opened twice.
        """
        key = array.spec.name, shard
        reader = self._shards.pop(key, None) or self._open(array, shard)
        self._shards[key] = reader
        if len(self._shards) > MAX_OPEN_SHARDS:
            for oldest in list(self._shards)[:-MAX_OPEN_SHARDS]:
                self._shards.pop(oldest, None)
        return reader

    def _open(self, array: StoredArray, shard: int) -> Shard:
        names = [fmt.shard_name(array.spec, shard)]
        record = self.record_of(shard)
        sha256 = record.shards[array.spec.name] if record else None
        if sha256:
            # A writer that was interrupted, or that is not ready yet, has left it there.
            names.insert(0, fmt.staged_name(array.spec, shard, sha256))
        for name in names:
            try:
                return open_shard(self.location, name, array, shard)
            except FileNotFoundError:
                reason = "it is not there"
            except OSError as problem:
                reason = f"it cannot be read ({problem.strerror})"
        raise DamagedChunk(self.location.join(names[-1]), range(array.layout.shard_rows), reason)


def _count_from_store(problem: DamagedChunk, first: int) -> DamagedChunk:
    """The same problem, its rows counted from the store's first row."""
    rows = range(first + problem.rows.start, first + problem.rows.stop)
    return DamagedChunk(problem.where, rows, problem.reason)


def open_shard(location: Location, name: str, array: StoredArray, shard: int) -> Shard:
    """A shard of an array, to read rows from."""
    if array.coding == "plain" and (file := location.map(name)):
        return ShardReader(file, array.layout)
    if array.coding != "other":
        return RangeShard(location, name, array.layout, compressed=array.coding == "zstd")
    if isinstance(location, Folder):
        return ZarrShard(location.path, array, shard)
    raise StoreError(
        f"{location.join(array.spec.name)} uses a codec that can only be read from a local folder; "
        f"download the store: obygaze stores pull {location.where} -o NAME.zarr"
    )
