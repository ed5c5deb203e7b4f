"""Gathering rows of arrays, shard by shard.

Uncompressed shards on a local disk are mapped and read through their own index; compressed ones
there are left to Zarr; of shards elsewhere the chunks are fetched. All give the same, and tests
hold them to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.arrays import StoredArray
from obygaze_features.store.fetched import FetchedShard
from obygaze_features.store.format import BlockRecord
from obygaze_features.store.location import Folder, Location
from obygaze_features.store.shards import DamagedChunk, ShardReader
from obygaze_features.store.through_zarr import ZarrShard

__all__ = ["OPEN_SHARDS", "RowReader", "Shard", "open_shard"]

OPEN_SHARDS = 64
"""Shards that are kept open. A mapped one takes a file descriptor, of which there may be 256."""

Rows = NDArray[np.intp]
Shard = ShardReader | ZarrShard | FetchedShard


class RowReader:
    """Reads rows that are done; those in shards that were used last are had soonest.

    Parameters
    ----------
    location
        Where the shards lie.
    record_of
        Gives a block's commit record, if it has one: it says where an open store's shard may lie.
    checksums
        Hold chunks to their checksums.
    """

    def __init__(
        self, location: Location, record_of: Callable[[int], BlockRecord | None], *, checksums: bool
    ) -> None:
        self.location, self.record_of, self.checksums = location, record_of, checksums
        self._shards: dict[tuple[str, int], Shard] = {}

    def gather(
        self,
        one: StoredArray,
        rows: Rows,
        into: NDArray[Any] | None = None,
        at: Rows | None = None,
    ) -> NDArray[Any]:
        """Rows of an array; row i goes to ``into[at[i]]``, or to a new array.

        `DamagedChunk` counts its rows from the store's first.
        """
        if into is None:
            into = np.empty((len(rows), *one.spec.shape), one.spec.dtype)
        if at is None:
            if len(rows) == 1:
                shard = int(rows[0]) // one.layout.shard_rows
                return self._read(one, shard, rows, into)
            at = np.arange(len(rows))
        shards = rows // one.layout.shard_rows
        if (np.diff(shards) < 0).any():
            order = np.argsort(rows, kind="stable")
            rows, at, shards = rows[order], at[order], shards[order]
        ends = [*(np.flatnonzero(np.diff(shards)) + 1).tolist(), len(rows)]
        start = 0
        for stop in ends if len(rows) else ():
            places = at[start:stop]
            if (np.diff(places) == 1).all():
                part = into[places[0] : places[-1] + 1]
                self._read(one, int(shards[start]), rows[start:stop], part)
            else:
                part = np.empty((stop - start, *one.spec.shape), one.spec.dtype)
                into[places] = self._read(one, int(shards[start]), rows[start:stop], part)
            start = stop
        return into

    def forget(self) -> None:
        """Let go of the memory that shards were read into."""
        for shard in list(self._shards.values()):
            shard.forget()

    def _read(self, one: StoredArray, shard: int, rows: Rows, out: NDArray[Any]) -> NDArray[Any]:
        first = shard * one.layout.shard_rows
        try:
            self._shard(one, shard).read(rows - first, check=self.checksums, out=out)
        except DamagedChunk as problem:
            raise _count_from_store(problem, first) from None
        return out

    def read_row(self, one: StoredArray, row: int) -> NDArray[Any]:
        """One row of an array."""
        shard, within = divmod(row, one.layout.shard_rows)
        try:
            reader = self._shard(one, shard)
            if isinstance(reader, ShardReader):
                return reader.read_row(within, check=self.checksums)
        except DamagedChunk as problem:
            raise _count_from_store(problem, row - within) from None
        values: NDArray[Any] = self.gather(one, np.array([row]))[0]
        return values

    def _shard(self, one: StoredArray, shard: int) -> Shard:
        """A shard, opened; those that were used last are kept.

        Nothing is locked, so that threads and forks cannot wait for each other for ever; at
        worst a shard is opened twice.
        """
        key = one.spec.name, shard
        reader = self._shards.pop(key, None) or self._open(one, shard)
        self._shards[key] = reader
        if len(self._shards) > OPEN_SHARDS:
            for oldest in list(self._shards)[:-OPEN_SHARDS]:
                self._shards.pop(oldest, None)
        return reader

    def _open(self, one: StoredArray, shard: int) -> Shard:
        names = [spec.shard_name(one.spec, shard)]
        record = self.record_of(shard)
        sha256 = record.shards[one.spec.name] if record else None
        if sha256:
            # A writer that was interrupted, or that is not ready yet, has left it there.
            names.insert(0, spec.staged_name(one.spec, shard, sha256))
        for name in names:
            try:
                return open_shard(self.location, name, one, shard)
            except FileNotFoundError:
                why = "it is not there"
            except OSError as problem:
                why = f"it cannot be read ({problem.strerror})"
        raise DamagedChunk(self.location.join(names[-1]), range(one.layout.shard_rows), why)


def _count_from_store(problem: DamagedChunk, first: int) -> DamagedChunk:
    """The same problem, its rows counted from the store's first row."""
    rows = range(first + problem.rows.start, first + problem.rows.stop)
    return DamagedChunk(problem.where, rows, problem.reason)


def open_shard(location: Location, name: str, one: StoredArray, shard: int) -> Shard:
    """A shard of an array, to read rows from."""
    if one.coding == "plain" and (file := location.map(name)):
        return ShardReader(file, one.layout)
    if one.coding != "plain" and isinstance(location, Folder):
        return ZarrShard(location.path, one, shard)
    if one.coding == "other":
        raise StoreError(
            f"{location.join(one.spec.name)} uses a codec that only works in a local folder; "
            f"download it: obygaze stores pull {location.where} -o NAME.zarr"
        )
    return FetchedShard(location, name, one.layout, compressed=one.coding == "zstd")
