"""Rows of arrays, gathered shard by shard.

Uncompressed shards on a local disk are mapped (`ShardReader`), which is many times faster than any
other way; of others, the ranges of the chunks that are needed are read (`RangeShard`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.store import format as fmt
from obygaze_features.store.format import BlockRecord
from obygaze_features.store.location import Location, Span
from obygaze_features.store.metadata import StoredArray
from obygaze_features.store.shards import (
    CHECKSUM_BYTES,
    DamagedChunk,
    ShardLayout,
    ShardReader,
    checksum,
    read_index,
)

BATCH_BYTES = 32 * 2**20
"""Bytes of chunks that a `RangeShard` holds at a time."""
MAX_OPEN_SHARDS = 64
"""A mapped shard takes a file descriptor, and a process may have as few as 256."""

Rows = NDArray[np.intp]


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
        self._shards: dict[tuple[str, int], ShardReader | RangeShard] = {}

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
            at = np.arange(len(rows))
        shards = rows // array.layout.shard_rows
        if (np.diff(shards) < 0).any():
            order = np.argsort(rows, kind="stable")
            rows, at, shards = rows[order], at[order], shards[order]
        ends = [*(np.flatnonzero(np.diff(shards)) + 1).tolist(), len(rows)]
        start = 0
        for stop in ends if len(rows) else ():
            shard, targets = int(shards[start]), at[start:stop]
            first = shard * array.layout.shard_rows
            is_run = (np.diff(targets) == 1).all()
            out = into[targets[0] : targets[-1] + 1] if is_run else None
            try:
                reader = self._shard(array, shard)
                part = reader.read(rows[start:stop] - first, check=self.checksums, out=out)
            except DamagedChunk as problem:
                raise problem.counted_from(first) from None
            if not is_run:
                into[targets] = part
            start = stop
        return into

    def read_row(self, array: StoredArray, row: int) -> NDArray[Any]:
        """One row of an array."""
        shard, within = divmod(row, array.layout.shard_rows)
        try:
            return self._shard(array, shard).read_row(within, check=self.checksums)
        except DamagedChunk as problem:
            raise problem.counted_from(row - within) from None

    def forget(self) -> None:
        """Release the memory that shards were read into."""
        for shard in list(self._shards.values()):
            shard.forget()

    def _shard(self, array: StoredArray, shard: int) -> ShardReader | RangeShard:
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

    def _open(self, array: StoredArray, shard: int) -> ShardReader | RangeShard:
        names = [fmt.shard_name(array.spec, shard)]
        record = self.record_of(shard)
        sha256 = record.shards[array.spec.name] if record else None
        if sha256:
            # A writer that was interrupted, or that is not ready yet, has left it there.
            names.insert(0, fmt.staged_name(array.spec, shard, sha256))
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                return open_shard(self.location, name, array)
        rows = range(array.layout.shard_rows)
        raise DamagedChunk(self.location.join(names[-1]), rows, "it is missing")


def open_shard(location: Location, name: str, array: StoredArray) -> ShardReader | RangeShard:
    """A shard of an array, to read rows from."""
    if not array.compressed and (file := location.map(name)):
        return ShardReader(file, array.layout)
    return RangeShard(location, name, array.layout, compressed=array.compressed)


class RangeShard:
    """A shard whose index is read once, and then the ranges of the chunks that are needed.

    Parameters
    ----------
    location, name
        The shard's file. FileNotFoundError if there is none.
    layout
        How rows are laid out in it.
    compressed
        Whether each chunk is compressed by Zstandard, before its checksum.
    """

    def __init__(
        self, location: Location, name: str, layout: ShardLayout, *, compressed: bool
    ) -> None:
        self.location, self.name, self.layout = location, name, layout
        self.compressed, self.where = compressed, location.join(name)
        tail = location.read_part(name, -layout.index_bytes, layout.index_bytes)
        self.index, self.present = read_index(tail, layout, self.where)

    def read(
        self, rows: Rows, *, check: bool = True, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Rows of the shard, counted from its start; all of them must be there."""
        if out is None:
            out = np.empty((len(rows), *self.layout.row_shape), self.layout.dtype)
        chunks, within = np.divmod(rows, self.layout.chunk_rows)
        order = np.argsort(chunks, kind="stable")
        needed, starts = np.unique(chunks[order], return_index=True)
        targets = np.split(order, starts[1:])
        step = max(1, BATCH_BYTES // self.layout.chunk_bytes)
        for begin in range(0, len(needed), step):
            batch = needed[begin : begin + step].tolist()
            spans = [self._span(chunk) for chunk in batch]
            try:
                parts = self.location.read_parts(self.name, spans)
            except FileNotFoundError:
                all_rows = range(self.layout.shard_rows)
                raise DamagedChunk(self.where, all_rows, "it is not there any more") from None
            for chunk, data, target in zip(batch, parts, targets[begin:], strict=False):
                out[target] = self._decode(chunk, data, check=check)[within[target]]
        return out

    def read_row(self, row: int, *, check: bool = True) -> NDArray[Any]:
        """One row."""
        values: NDArray[Any] = self.read(np.array([row]), check=check)[0]
        return values

    def forget(self) -> None:
        """Nothing: no rows are held."""

    def _span(self, chunk: int) -> Span:
        if not self.present[chunk]:
            raise self._damaged(chunk, "a chunk is missing")
        offset, size = self.index[chunk].tolist()
        smallest = largest = self.layout.chunk_bytes + CHECKSUM_BYTES
        if self.compressed:  # what does not compress grows a little
            smallest, largest = CHECKSUM_BYTES, largest + largest // 128 + 1024
        if not smallest <= size <= largest or offset >= 2**62:
            raise self._damaged(chunk, "a chunk has the wrong length")
        return offset, size

    def _decode(self, chunk: int, data: bytes, *, check: bool) -> NDArray[Any]:
        """The rows of a chunk."""
        size = int(self.index[chunk, 1])
        if len(data) != size:
            raise self._damaged(chunk, "a chunk has the wrong length")
        if check and checksum(data[:-CHECKSUM_BYTES]) != data[-CHECKSUM_BYTES:]:
            raise self._damaged(chunk, "its checksum is wrong")
        content = np.frombuffer(data, np.uint8, size - CHECKSUM_BYTES)
        if self.compressed:
            from numcodecs.zstd import decompress

            # A buffer of the right size: a chunk that claims more takes no more memory.
            values = np.empty(self.layout.chunk_bytes, np.uint8)
            try:
                decompress(content, values)
            except (RuntimeError, ValueError) as problem:
                raise self._damaged(chunk, f"it cannot be decoded ({problem})") from None
            content = values
        return content.view(self.layout.dtype.newbyteorder("<")).reshape(self.layout.chunk_shape)

    def _damaged(self, chunk: int, reason: str) -> DamagedChunk:
        return DamagedChunk(self.where, self.layout.rows_of(chunk), reason)
