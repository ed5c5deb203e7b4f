"""Read rows of arrays, shard by shard.

Uncompressed shards on a local disk are memory-mapped (`ShardReader`), which is many times faster
than reading them with Zarr. From other shards, only the chunks needed are read (`RangeShard`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.format import Status
from obygaze_features.store.location import Location, Span, in_parallel
from obygaze_features.store.metadata import StoredArray, remedy
from obygaze_features.store.shards import (
    CHECKSUM_BYTES,
    DamagedChunk,
    ShardLayout,
    ShardReader,
    checksum,
    read_index,
)

if TYPE_CHECKING:
    from obygaze_features.store.reader import Store

BATCH_BYTES = 16 * 2**20
"""The total size of the chunks that a `RangeShard` holds at a time."""
MAX_OPEN_SHARDS = 64
"""The maximum number of open shards. Each needs a file descriptor; some systems allow only 256."""

Rows = NDArray[np.intp]


class RowReader:
    """A reader of rows that are done, which keeps the most recently used shards open."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._shards: dict[tuple[str, int], ShardReader | RangeShard] = {}

    def is_done(self, row: int) -> bool:
        """Return True if a row is done; a negative row never is. This is fast enough for loops."""
        if row < 0 or self.store.is_final:
            return row >= 0 and bool(self.store.status.item(row) == Status.DONE)
        block, within = divmod(row, self.store.block_rows)
        record = self.store.record_of(block)
        return record is not None and record.status[within] == Status.DONE

    def are_done(self, rows: Rows) -> NDArray[np.bool_]:
        """Return a mask of the rows that are done; a negative row never is."""
        done: NDArray[np.bool_] = (self.status_of(rows) == Status.DONE) & (rows >= 0)
        return done

    def status_of(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the `Status` of some rows; in an open store, read only their blocks' records."""
        if self.store.is_final or "status" in vars(self.store):
            return self.store.status[rows]
        status = np.full(len(rows), Status.TODO, np.uint8)
        blocks, within = np.divmod(rows, self.store.block_rows)
        for block in np.unique(blocks).tolist():
            record = self.store.record_of(block)
            if record is not None:
                in_block = np.flatnonzero(blocks == block)
                status[in_block] = np.array(record.status, np.uint8)[within[in_block]]
        return status

    def require_done(self, ids: Sequence[str], rows: Rows, done: NDArray[np.bool_]) -> None:
        """Raise `StoreError` with the reason if a row is not done."""
        missing = np.flatnonzero(~done)
        if not missing.size:
            return
        first, row = ids[missing[0]], rows[missing[0]]
        if row < 0:
            reason = "is not in this store"
        elif first in self.store.failures:
            reason = f"failed: {self.store.failures[first]}"
        else:
            reason = "is not done yet"
        more = f" (and {missing.size - 1} more that cannot be read)" if missing.size > 1 else ""
        raise StoreError(self.store.where, f": {first} {reason}{more}")

    def gather(
        self,
        array: StoredArray,
        rows: Rows,
        into: NDArray[Any] | None = None,
        at: Rows | None = None,
    ) -> NDArray[Any]:
        """Read rows of an array; with `into`, ``rows[i]`` is written to ``into[at[i]]``."""
        if into is None:
            into = np.empty((len(rows), *array.spec.shape), array.spec.dtype)
        if at is None:
            at = np.arange(len(rows))
        shards = rows // array.layout.shard_rows
        if (np.diff(shards) < 0).any():
            order = np.argsort(rows, kind="stable")
            rows, at, shards = rows[order], at[order], shards[order]
        ends = [*(np.flatnonzero(np.diff(shards)) + 1).tolist(), len(rows)]
        starts = [0, *ends[:-1]]

        def read(span: tuple[int, int]) -> None:
            part = slice(*span)
            self._gather_shard(array, int(shards[span[0]]), rows[part], into, at[part])

        spans = list(zip(starts, ends, strict=True)) if len(rows) else []
        for _ in in_parallel(read, spans, at_once=self.store.location.at_once):
            pass
        return into

    def _gather_shard(
        self, array: StoredArray, shard: int, rows: Rows, into: NDArray[Any], at: Rows
    ) -> None:
        """Read rows of one shard; ``rows[i]`` is written to ``into[at[i]]``."""
        first = shard * array.layout.shard_rows
        is_run = (np.diff(at) == 1).all()
        out = into[at[0] : at[-1] + 1] if is_run else None
        try:
            reader = self._shard(array, shard)
            part = reader.read(rows - first, check=self.store.checksums, out=out)
        except DamagedChunk as problem:
            raise self._name_rows(problem, rows - first, first) from None
        if not is_run:
            into[at] = part

    def read_row(self, array: StoredArray, row: int) -> NDArray[Any]:
        """Read one row of an array."""
        shard, within = divmod(row, array.layout.shard_rows)
        try:
            return self._shard(array, shard).read_row(within, check=self.store.checksums)
        except DamagedChunk as problem:
            raise self._name_rows(problem, np.array([within]), row - within) from None

    def forget(self) -> None:
        """Release the memory that holds rows of the open shards."""
        for shard in list(self._shards.values()):
            shard.forget()

    def _shard(self, array: StoredArray, shard: int) -> ShardReader | RangeShard:
        """Return an open shard; the most recently used shards stay open.

        There is no lock, so threads and forked processes never wait for each other. At worst, a
        shard is opened twice.
        """
        key = array.spec.name, shard
        reader = self._shards.pop(key, None) or self._open(array, shard)
        self._shards[key] = reader
        if len(self._shards) > MAX_OPEN_SHARDS:
            for oldest in list(self._shards)[:-MAX_OPEN_SHARDS]:
                self._shards.pop(oldest, None)
        return reader

    def _name_rows(self, problem: DamagedChunk, rows: Rows, first: int) -> StoreError:
        """Return an error that names the damaged rows; `rows` are counted from row `first`."""
        hit = np.unique(rows[(rows >= problem.rows.start) & (rows < problem.rows.stop)])
        ids = [self.store.ids[first + row] for row in hit.tolist()]
        more = f" and of {len(ids) - 3} more" if len(ids) > 3 else ""
        return StoreError(
            problem.where,
            f": {problem.reason}; the row of {', '.join(ids[:3])}{more} cannot be read; "
            f"{remedy(self.store.location)}",
        )

    def _open(self, array: StoredArray, shard: int) -> ShardReader | RangeShard:
        names = [fmt.shard_name(array.spec, shard)]
        record = self.store.record_of(shard)
        sha256 = record.shards[array.spec.name] if record else None
        if sha256:
            # A writer was interrupted, or has not moved the shard yet.
            names.insert(0, fmt.staged_name(array.spec, shard, sha256))
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                return open_shard(self.store.location, name, array)
        rows = range(array.layout.shard_rows)
        raise DamagedChunk(self.store.location.join(names[-1]), rows, "it is missing")


def open_shard(location: Location, name: str, array: StoredArray) -> ShardReader | RangeShard:
    """Open a shard of an array for reading rows."""
    if not array.compressed and (file := location.map(name)):
        return ShardReader(file, array.layout)
    return RangeShard(location, name, array.layout, compressed=array.compressed)


class RangeShard:
    """A shard that is read in byte ranges: the index once, and chunks when they are needed.

    Parameters
    ----------
    location, name
        The shard's file. Raises FileNotFoundError if it does not exist.
    layout
        The division of the rows into chunks.
    compressed
        True if chunks are compressed with Zstandard. Checksums then cover the compressed data.
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
        """Read rows of the shard, counted from its start; all of them must be present."""
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
                raise DamagedChunk(self.where, all_rows, "it no longer exists") from None
            for chunk, data, target in zip(batch, parts, targets[begin:], strict=False):
                out[target] = self._decode(chunk, data, check=check)[within[target]]
        return out

    def read_row(self, row: int, *, check: bool = True) -> NDArray[Any]:
        """Read one row."""
        values: NDArray[Any] = self.read(np.array([row]), check=check)[0]
        return values

    def forget(self) -> None:
        """Do nothing, because no rows are kept in memory."""

    def _span(self, chunk: int) -> Span:
        if not self.present[chunk]:
            raise self._damaged(chunk, "a chunk is missing")
        offset, size = self.index[chunk].tolist()
        smallest = largest = self.layout.chunk_bytes + CHECKSUM_BYTES
        if self.compressed:  # data that cannot be compressed grows a little
            smallest, largest = CHECKSUM_BYTES, largest + largest // 128 + 1024
        if not smallest <= size <= largest or offset >= 2**62:
            raise self._damaged(chunk, "a chunk has the wrong length")
        return offset, size

    def _decode(self, chunk: int, data: bytes, *, check: bool) -> NDArray[Any]:
        """Return the rows of a chunk."""
        size = int(self.index[chunk, 1])
        if len(data) != size:
            raise self._damaged(chunk, "a chunk has the wrong length")
        if check and checksum(data[:-CHECKSUM_BYTES]) != data[-CHECKSUM_BYTES:]:
            raise self._damaged(chunk, "its checksum is wrong")
        content = np.frombuffer(data, np.uint8, size - CHECKSUM_BYTES)
        if self.compressed:
            from numcodecs.zstd import decompress

            # The buffer has the right size, so a chunk that claims more cannot take more memory.
            values = np.empty(self.layout.chunk_bytes, np.uint8)
            try:
                decompress(content, values)
            except (RuntimeError, ValueError) as problem:
                raise self._damaged(chunk, f"it cannot be decoded ({problem})") from None
            content = values
        return content.view(self.layout.dtype.newbyteorder("<")).reshape(self.layout.chunk_shape)

    def _damaged(self, chunk: int, reason: str) -> DamagedChunk:
        return DamagedChunk(self.where, self.layout.rows_of(chunk), reason)
