"""Read rows of arrays, shard by shard.

Uncompressed shards on this machine are memory-mapped, which is many times faster than reading them
with Zarr. Of other shards, only the index and the chunks that are needed are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import join_some
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.files import Location, MappedFile, Part
from obygaze_features.store.metadata import StoredArray, remedy
from obygaze_features.store.shards import (
    ABSENT,
    CHECKSUM_BYTES,
    DamagedChunk,
    checksum,
)

if TYPE_CHECKING:
    from obygaze_features.store.reader import Store

BATCH_BYTES = 64 * 2**20
"""The total size of the chunks that are fetched at a time."""
MAX_OPEN_SHARDS = 64
"""The maximum number of open shards. Each needs a file descriptor; some systems allow only 256."""

Rows = NDArray[np.intp]


class Shard:
    """A shard file: its index, and its bytes if it is mapped into memory.

    Parameters
    ----------
    location, name
        The shard's file. Raises FileNotFoundError if it does not exist.
    array
        The array that the shard belongs to.
    first
        The number of the shard's first row, which errors add to the rows that they name.
    tail
        The end of the file, with the index, if it has been read already.
    """

    def __init__(
        self,
        location: Location,
        name: str,
        array: StoredArray,
        *,
        first: int = 0,
        tail: bytes | None = None,
    ) -> None:
        self.location = location
        self.name = name
        self.layout = array.layout
        self.compressed = array.compressed
        self.first = first
        self._dtype = self.layout.dtype.newbyteorder("<")

        self._file: MappedFile | None = None
        size = self.layout.index_bytes
        if location.is_local:
            file = location.map(name)
            tail = file.bytes[-size:].tobytes()
            if not array.compressed:
                self._file = file
        elif tail is None:
            [tail] = location.read_parts([(name, -size, size)])

        table = tail[:-CHECKSUM_BYTES]
        if len(tail) != size or checksum(table) != tail[-CHECKSUM_BYTES:]:
            raise self._damaged(None, "its index is damaged or truncated")
        self._index = np.frombuffer(table, "<u8").reshape(-1, 2)
        self._present = self._index[:, 0] != ABSENT
        self._table = self._find_even_chunks()

    def read(
        self, rows: Rows, *, check: bool = True, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Read rows in any order, counted from the start of the shard.

        With `check`, the checksum of each chunk is verified. With `out`, the rows are written into
        this array.
        """
        if out is None:
            out = np.empty((len(rows), *self.layout.row_shape), self.layout.dtype)
        chunks, within = np.divmod(rows, self.layout.chunk_rows)
        if self._table is None or not self._present[chunks].all():
            read_chunks({0: self}, rows, out, check=check)
            return out

        if check:
            self._verify(np.unique(chunks))
        places = self._places[chunks]
        if self.layout.chunk_rows == 1 and _is_run(places):
            out[...] = self._chunks[places[0] : places[-1] + 1, 0]
        elif _is_run(rows):  # one memory copy per chunk, twice as fast as row by row
            starts = np.flatnonzero(np.diff(chunks, prepend=-1)).tolist()
            for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
                begin = within[start]
                out[start:end] = self._chunks[places[start], begin : begin + end - start]
        else:
            out[...] = self._chunks[places, within]
        return out

    def read_row(self, row: int, *, check: bool) -> NDArray[Any]:
        """Read one row, counted from the start of the shard. This is fast enough for loops."""
        if self._file is None:
            values: NDArray[Any] = self.read(np.array([row]), check=check)[0]
            return values
        chunk, within = divmod(row, self.layout.chunk_rows)
        _, start, length = self.part(chunk)
        data = self._file.bytes[start : start + length]
        copy: NDArray[Any] = self.decode(chunk, data, check=check)[within].astype(self.layout.dtype)
        return copy

    def part(self, chunk: int) -> Part:
        """Return the part of the file that holds a chunk."""
        start, length = self._index[chunk].tolist()
        smallest = largest = self.layout.chunk_bytes + CHECKSUM_BYTES
        if self.compressed:  # data that cannot be compressed grows a little
            smallest = CHECKSUM_BYTES
            largest += largest // 128 + 1024
        if not smallest <= length <= largest or start >= 2**62:
            raise self._damaged(chunk, "a chunk is missing or has the wrong length")
        return self.name, start, length

    def decode(self, chunk: int, data: Any, *, check: bool) -> NDArray[Any]:
        """Return the rows of a chunk; `data` is the part of the file that holds it."""
        if len(data) != self._index[chunk, 1]:
            raise self._damaged(chunk, "a chunk is missing or has the wrong length")
        content = data[:-CHECKSUM_BYTES]
        if check and checksum(content) != bytes(data[-CHECKSUM_BYTES:]):
            raise self._damaged(chunk, "its checksum is wrong")
        if self.compressed:
            from numcodecs.zstd import decompress

            # The buffer has the right size, so a chunk that claims more cannot take more memory.
            values = np.empty(self.layout.chunk_bytes, np.uint8)
            try:
                decompress(content, values)
            except (RuntimeError, ValueError) as problem:
                raise self._damaged(chunk, f"it cannot be decoded ({problem})") from None
            content = values
        return np.ndarray(self.layout.chunk_shape, self._dtype, content)

    def forget(self) -> None:
        """Release the memory of pages that were read."""
        if self._file is not None:
            self._file.forget()

    def _find_even_chunks(self) -> NDArray[np.uint8] | None:
        """Return the file's chunks as rows of bytes; None unless they are evenly spaced."""
        if self._file is None:
            return None
        step = self.layout.chunk_bytes + CHECKSUM_BYTES
        count = len(self._file.bytes) // step
        starts, lengths = self._index[self._present].T
        if (starts % step).any() or (starts >= count * step).any() or (lengths != step).any():
            return None

        table = self._file.bytes[: count * step].reshape(count, step)
        inner = np.ndarray(self.layout.chunk_shape, self._dtype).strides
        shape = (count, *self.layout.chunk_shape)
        self._chunks: NDArray[Any] = np.ndarray(shape, self._dtype, table.data, 0, (step, *inner))
        self._places: Rows = (self._index[:, 0] // step).astype(np.intp)
        return table

    def _verify(self, chunks: Rows) -> None:
        """Raise `DamagedChunk` if any of the evenly spaced chunks was changed."""
        assert self._table is not None
        places = self._places[chunks]
        size = self.layout.chunk_bytes
        stored = np.ascontiguousarray(self._table[places, size:]).view("<u4").ravel()
        contents = map(self._table[:, :size].__getitem__, places.tolist())
        computed = np.fromiter(map(google_crc32c.value, contents), np.uint32, len(chunks))
        for chunk in chunks[computed != stored].tolist():
            raise self._damaged(chunk, "its checksum is wrong")

    def _damaged(self, chunk: int | None, reason: str) -> DamagedChunk:
        """Return the error for a chunk, or for the whole shard."""
        rows = range(self.layout.shard_rows)
        if chunk is not None:
            rows = self.layout.rows_of(chunk)
        rows = range(self.first + rows.start, self.first + rows.stop)
        return DamagedChunk(self.location.join(self.name), rows, reason)


def read_chunks(shards: Mapping[int, Shard], rows: Rows, out: NDArray[Any], *, check: bool) -> None:
    """Read rows of shards, each chunk once; rows are counted from the start of shard 0."""
    some = next(iter(shards.values()))
    layout = some.layout
    chunks, within = np.divmod(rows, layout.chunk_rows)
    order = np.argsort(chunks, kind="stable")
    numbers, starts = np.unique(chunks[order], return_index=True)
    targets = np.split(order, starts[1:])
    step = max(1, BATCH_BYTES // layout.chunk_bytes)
    for begin in range(0, len(numbers), step):
        batch = [
            (shards[number // layout.chunks], number % layout.chunks)
            for number in numbers[begin : begin + step].tolist()
        ]
        parts = [shard.part(chunk) for shard, chunk in batch]
        try:
            read = some.location.read_parts(parts)
        except FileNotFoundError as problem:
            raise StoreError(problem, "no longer exists") from None
        for (shard, chunk), data, target in zip(batch, read, targets[begin:], strict=False):
            out[target] = shard.decode(chunk, data, check=check)[within[target]]


class RowReader:
    """A reader of rows that are done, which keeps the most recently used shards open."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._shards: dict[tuple[str, int], Shard] = {}

    def read(self, array: StoredArray, rows: Rows) -> NDArray[Any]:
        """Read rows of an array, in any order."""
        into = np.empty((len(rows), *array.spec.shape), array.spec.dtype)
        if not len(rows):
            return into
        numbers = rows // array.layout.shard_rows
        try:
            if self.store.location.is_local:
                self._read_local(array, rows, numbers, into)
            else:
                shards = self._open(array, np.unique(numbers).tolist())
                read_chunks(shards, rows, into, check=self.store.checksums)
        except DamagedChunk as problem:
            raise self._name_rows(problem, rows) from None
        return into

    def read_row(self, array: StoredArray, row: int) -> NDArray[Any]:
        """Read one row of an array."""
        number, within = divmod(row, array.layout.shard_rows)
        shard = self._shards.get((array.spec.name, number))
        if shard is None:
            values: NDArray[Any] = self.read(array, np.array([row]))[0]
            return values
        try:
            return shard.read_row(within, check=self.store.checksums)
        except DamagedChunk as problem:
            raise self._name_rows(problem, np.array([row])) from None

    def forget(self) -> None:
        """Release the memory that holds rows of the open shards."""
        for shard in list(self._shards.values()):
            shard.forget()

    def _read_local(
        self, array: StoredArray, rows: Rows, numbers: Rows, into: NDArray[Any]
    ) -> None:
        order = np.argsort(numbers, kind="stable")
        needed, starts = np.unique(numbers[order], return_index=True)
        for number, at in zip(needed.tolist(), np.split(order, starts[1:]), strict=True):
            shard = self._open(array, [number])[number]
            within = rows[at] - shard.first
            if _is_run(at):
                shard.read(within, check=self.store.checksums, out=into[at[0] : at[-1] + 1])
            else:
                into[at] = shard.read(within, check=self.store.checksums)

    def _open(self, array: StoredArray, numbers: Sequence[int]) -> dict[int, Shard]:
        """Return shards by number, and keep the most recently used ones open.

        There is no lock, so threads and forked processes never wait for each other. At worst, a
        shard is opened twice.
        """
        location = self.store.location
        size = array.layout.index_bytes
        shards = {}
        parts = []
        for number in numbers:
            shard = self._shards.pop((array.spec.name, number), None)
            if shard is not None:
                shards[number] = shard
            elif not location.is_local:
                parts += [(name, -size, size) for name in self._names(array, number)]
        tails = dict(zip(parts, location.read_parts(parts, missing_ok=True), strict=True))
        for number in numbers:
            if number not in shards:
                shards[number] = self._open_first(array, number, tails)
            self._shards[array.spec.name, number] = shards[number]
        for oldest in list(self._shards)[:-MAX_OPEN_SHARDS]:
            self._shards.pop(oldest, None)
        return shards

    def _open_first(
        self, array: StoredArray, number: int, tails: Mapping[Part, bytes | None]
    ) -> Shard:
        """Open the first file that exists of those that a shard may have."""
        size = array.layout.index_bytes
        first = number * array.layout.shard_rows
        for name in self._names(array, number):
            tail = tails.get((name, -size, size))
            if tail is not None or self.store.location.is_local:
                with contextlib.suppress(FileNotFoundError):  # or it has just been moved
                    return Shard(self.store.location, name, array, first=first, tail=tail)
        where = self.store.location.join(fmt.shard_name(array.spec, number))
        raise DamagedChunk(where, range(first, first + array.layout.shard_rows), "it is missing")

    def _names(self, array: StoredArray, number: int) -> list[str]:
        """Return the names that a shard's file may have."""
        names = [fmt.shard_name(array.spec, number)]
        record = self.store.records.get(number)
        sha256 = record.shards[array.spec.name] if record else None
        if sha256:
            # A writer was interrupted, or has not moved the shard yet.
            names.insert(0, fmt.staged_name(array.spec, number, sha256))
        return names

    def _name_rows(self, problem: DamagedChunk, rows: Rows) -> StoreError:
        """Return an error that names the damaged rows among those that were to be read."""
        ids = [self.store.ids[row] for row in np.unique(rows).tolist() if row in problem.rows]
        return StoreError(
            problem.where,
            f": {problem.reason}; the row of {join_some(ids, 3)} cannot be read; "
            f"{remedy(self.store.location)}",
        )


def _is_run(numbers: Rows) -> bool:
    """Return True if each number is one larger than the number before it."""
    return bool((np.diff(numbers) == 1).all())
