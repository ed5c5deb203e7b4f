"""Read rows of arrays, shard by shard.

Shards on this machine are memory-mapped, and read many times faster than with Zarr. Of a shard
behind a URL, only the index and the parts around the rows are fetched.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError, translate
from obygaze_features.store import format as fmt
from obygaze_features.store.files import ByteRange, Location, StoreFile
from obygaze_features.store.format import BlockRecord
from obygaze_features.store.metadata import DamagedFile
from obygaze_features.store.shards import CHECKSUM_BYTES, ShardLayout, is_intact

BATCH_BYTES = 64 * 2**20
"""The total size of the chunks that are fetched at a time."""
MAX_OPEN_SHARDS = 64
"""The number of shards kept open. Each may need a file descriptor; some systems allow only 256."""

Rows = NDArray[np.intp]


class Shard:
    """A shard file: its index, and its content if it is on this machine.

    Parameters
    ----------
    location, name
        The shard's file. Raises FileNotFoundError if it does not exist.
    array
        The array that the shard belongs to.
    tail
        The end of the file, with the index, if it has been read already.
    """

    def __init__(
        self,
        location: Location,
        name: str,
        array: ShardLayout,
        tail: bytes | None = None,
    ) -> None:
        self.file = StoreFile(location, name)
        self.layout = array
        size = self.layout.index_bytes
        if location.is_local:
            self.mapped = location.map(name)
            tail = self.mapped[-size:].tobytes()
        elif tail is None:
            [tail] = location.read_ranges([(name, -size, size)])

        if len(tail) != size or not is_intact(tail):
            raise DamagedFile(self.file, "its index is damaged or truncated")
        self._index = np.frombuffer(tail[:-CHECKSUM_BYTES], "<u8").reshape(-1, 2).tolist()

    def part(self, chunk: int) -> ByteRange:
        """Return the part of the file that holds a chunk."""
        start, length = self._index[chunk]
        if length not in self.layout.lengths:
            raise DamagedFile(self.file, "a chunk is missing or has the wrong length")
        return self.file.name, start, length

    def read(self, chunk: int) -> NDArray[np.uint8]:
        """Return the content of a chunk on this machine."""
        _, start, length = self.part(chunk)
        return self.decode(chunk, self.mapped[start : start + length])

    def decode(self, chunk: int, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Verify a chunk and return its content; `data` is the part of the file that holds it."""
        if len(data) != self._index[chunk][1] or not is_intact(data):
            raise DamagedFile(self.file, "a checksum is wrong")
        content = data[:-CHECKSUM_BYTES]
        if not self.layout.compressed:
            return content
        from numcodecs.zstd import decompress

        # The buffer has the right size, so a chunk that claims more cannot take more memory.
        values = np.empty(self.layout.chunk_bytes, np.uint8)
        with translate(DamagedFile, self.file, "it cannot be decoded ({})"):
            decompress(content, values)
        return values


class RowReader:
    """A reader of rows that are done, which keeps recently opened shards open.

    Parameters
    ----------
    location
        The store's files.
    record_of
        A function that returns a block's commit record, or None if the block has none.
    """

    def __init__(
        self,
        location: Location,
        record_of: Callable[[int], BlockRecord | None],
    ) -> None:
        self._location = location
        self._record_of = record_of
        self._shards: dict[tuple[str, int], Shard] = {}

    def read(self, array: ShardLayout, rows: Rows) -> NDArray[Any]:
        """Read rows of an array, in any order. Each chunk is read and verified once."""
        values = np.empty((len(rows), *array.spec.shape), array.dtype)
        copied = values.reshape(-1).view(np.uint8)

        # A run is a number of rows that follow each other in a chunk and among the values.
        order = np.argsort(rows, kind="stable")
        chunks, within = np.divmod(rows[order], array.chunk_rows)
        follows = (np.diff(rows[order]) == 1) & (np.diff(order) == 1) & (within[1:] > 0)
        firsts = np.flatnonzero(np.append(True, ~follows)[: len(rows)])
        chunks = chunks[firsts].tolist()
        contents = self._contents(array, list(dict.fromkeys(chunks)))

        previous = None
        targets = np.stack([order[firsts], within[firsts], np.diff(firsts, append=len(rows))])
        runs = zip(chunks, *(targets * array.spec.row_bytes).tolist(), strict=True)
        for chunk, to, start, size in runs:
            if chunk != previous:
                content = next(contents)
                previous = chunk
            copied[to : to + size] = content[start : start + size]
        return values.astype(array.spec.dtype, copy=False)

    def read_row(self, array: ShardLayout, row: int) -> NDArray[Any]:
        """Read one row of an array on this machine. This is fast enough for loops."""
        chunk, within = divmod(row, array.chunk_rows)
        [content] = self._contents(array, [chunk])
        values = np.ndarray(array.chunk_shape, array.dtype, content)
        copy: NDArray[Any] = values[within].astype(array.spec.dtype)
        return copy

    def forget(self) -> None:
        """Release the memory that holds rows, by closing the shards on this machine."""
        if self._location.is_local:
            self._shards.clear()
            self._location.forget()

    def _contents(self, array: ShardLayout, chunks: list[int]) -> Iterator[NDArray[np.uint8]]:
        """Yield the content of chunks, which are in ascending order."""
        numbered = map(divmod, chunks, itertools.repeat(array.chunks))
        if self._location.is_local:
            opened = -1
            for number, chunk in numbered:
                if number != opened:
                    shard = self._open(array, number)
                    opened = number
                yield shard.read(chunk)
            return

        step = max(1, BATCH_BYTES // array.chunk_bytes)
        while batch := list(itertools.islice(numbered, step)):
            tails = self._read_tails(array, sorted({number for number, _ in batch}))
            located = [(self._open(array, number, tails), chunk) for number, chunk in batch]
            try:
                read = self._location.read_ranges([shard.part(chunk) for shard, chunk in located])
            except FileNotFoundError as problem:
                raise StoreError(problem, "no longer exists; open the store again") from None
            for (shard, chunk), data in zip(located, read, strict=True):
                yield shard.decode(chunk, np.frombuffer(data, np.uint8))

    def _read_tails(self, array: ShardLayout, numbers: Sequence[int]) -> dict[str, bytes]:
        """Read the ends, with the indexes, of all files that these shards may have."""
        names = []
        for number in numbers:
            if (array.spec.name, number) not in self._shards:
                names += self._names(array, number)
        ranges = [(name, -array.index_bytes, array.index_bytes) for name in names]
        if not ranges:
            return {}
        tails = dict(zip(names, self._location.read_ranges(ranges, missing_ok=True), strict=True))
        self._location.refuse_if_changed()
        return tails

    def _open(
        self,
        array: ShardLayout,
        number: int,
        tails: Mapping[str, bytes | None] | None = None,
    ) -> Shard:
        """Open a shard, and keep the most recently used ones open.

        There is no lock, so threads and forked processes never wait for each other. At worst, a
        shard is opened twice.
        """
        key = (array.spec.name, number)
        shard = self._shards.pop(key, None)
        if shard is None:
            shard = self._open_first(array, number, tails or {})
        self._shards[key] = shard
        for oldest in list(self._shards)[:-MAX_OPEN_SHARDS]:
            self._shards.pop(oldest, None)
        return shard

    def _open_first(
        self,
        array: ShardLayout,
        number: int,
        tails: Mapping[str, bytes | None],
    ) -> Shard:
        location = self._location
        for name in self._names(array, number):
            tail = tails.get(name)
            if tail is not None or location.is_local:
                with contextlib.suppress(FileNotFoundError):  # it may have just been moved
                    return Shard(location, name, array, tail)
        raise DamagedFile(StoreFile(location, name), "it is missing")

    def _names(self, array: ShardLayout, number: int) -> list[str]:
        """Return the names that a shard's file may have."""
        names = [fmt.shard_name(array.spec, number)]
        record = self._record_of(number)
        sha256 = record.shards[array.spec.name] if record else None
        if sha256:
            # The shard has this name until a writer moves it.
            names.insert(0, fmt.staged_name(array.spec, number, sha256))
        return names


@dataclass(frozen=True, eq=False, repr=False)
class StoreDataset:
    """An array as a dataset for PyTorch's ``DataLoader``. ``dataset[i]`` is an id and its row.

    Create it with `Store.dataset`, which describes the parameters. The store is pickled as its path
    or URL, so any number of workers may be forked or spawned.

    Examples
    --------
    ::

        store = open_store("stores/xclip.zarr")
        for ids, frames in DataLoader(store.dataset("frames"), batch_size=64, num_workers=4):
            ...
    """

    read: Callable[[list[str]], NDArray[Any]]
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> tuple[str, Any]:
        """Return an id and its row."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[str, Any]]:
        """Return several rows at once; data loaders call this for each batch."""
        ids = [self.ids[index] for index in indices]
        return list(zip(ids, self.read(ids), strict=True))


def group_places(numbers: Rows) -> list[tuple[int, Rows]]:
    """Return each number, in ascending order, with its indices.

    Examples
    --------
    >>> group_places(np.array([7, 5, 7]))
    [(5, array([1])), (7, array([0, 2]))]
    """
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=False))
