"""Read rows of arrays, shard by shard.

Shards on this machine are memory-mapped. If they are uncompressed, they are read many times faster
than with Zarr. Of a shard behind a URL, only the index and the parts around the rows are fetched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError, translate
from obygaze_features.store import format as fmt
from obygaze_features.store.files import Location, Part, StoreFile
from obygaze_features.store.metadata import DamagedFile
from obygaze_features.store.shards import CHECKSUM_BYTES, ShardLayout, checksum

if TYPE_CHECKING:
    from obygaze_features.store.reader import Store

BATCH_BYTES = 64 * 2**20
"""The total size of the chunks that are fetched at a time."""
MAX_OPEN_SHARDS = 64
"""The number of shards kept open. Each may need a file descriptor; some systems allow only 256."""

Rows = NDArray[np.intp]


class Shard:
    """A shard file: its index, and (as `mapped`) its content if it is on this machine.

    Parameters
    ----------
    location, name
        The shard's file. Raises FileNotFoundError if it does not exist.
    array
        The array that the shard belongs to.
    tail
        The end of the file, with the index, if it has been read already.
    """

    mapped: NDArray[np.uint8]

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
            [tail] = location.read_parts([(name, -size, size)])

        table = tail[:-CHECKSUM_BYTES]
        if len(tail) != size or checksum(table) != tail[-CHECKSUM_BYTES:]:
            raise DamagedFile(self.file, "its index is damaged or truncated")
        self._index = np.frombuffer(table, "<u8").reshape(-1, 2)

    def read(self, rows: Rows, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Read rows in any order, counted from the start of the shard; verify their chunks.

        With `out`, the rows are written into this array.
        """
        if out is None:
            out = np.empty((len(rows), *self.layout.spec.shape), self.layout.dtype)
        chunks, within = np.divmod(rows, self.layout.chunk_rows)
        places = self._places[chunks]
        if (places < 0).any():
            read_chunks({0: self}, rows, out)
            return out

        self._verify(np.unique(places))
        values = self._chunks["values"]
        if self.layout.chunk_rows == 1 and _is_run(places):
            out[...] = values[places[0] : places[-1] + 1, 0]
        elif _is_run(rows):  # one memory copy per chunk, twice as fast as row by row
            starts = np.flatnonzero(np.diff(chunks, prepend=-1)).tolist()
            for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
                begin = within[start]
                out[start:end] = values[places[start], begin : begin + end - start]
        else:
            out[...] = values[places, within]
        return out

    def read_row(self, row: int) -> NDArray[Any]:
        """Read one row of a mapped shard, counted from its start. This is fast enough for loops."""
        chunk, within = divmod(row, self.layout.chunk_rows)
        _, start, length = self.part(chunk)
        data = self.mapped[start : start + length]
        copy: NDArray[Any] = self.decode(chunk, data)[within].astype(self.layout.dtype)
        return copy

    def part(self, chunk: int) -> Part:
        """Return the part of the file that holds a chunk."""
        start, length = self._index[chunk].tolist()
        smallest = largest = self.layout.chunk_bytes + CHECKSUM_BYTES
        if self.layout.compressed:  # data that cannot be compressed grows a little
            smallest = CHECKSUM_BYTES
            largest += largest // 128 + 1024
        if not smallest <= length <= largest:
            raise DamagedFile(self.file, "a chunk is missing or has the wrong length")
        return self.file.name, start, length

    def decode(self, chunk: int, data: Any) -> NDArray[Any]:
        """Return the rows of a chunk; `data` is the part of the file that holds it."""
        content = data[:-CHECKSUM_BYTES]
        if len(data) != self._index[chunk, 1] or checksum(content) != bytes(data[-CHECKSUM_BYTES:]):
            raise DamagedFile(self.file, "a checksum is wrong")
        if self.layout.compressed:
            from numcodecs.zstd import decompress

            # The buffer has the right size, so a chunk that claims more cannot take more memory.
            values = np.empty(self.layout.chunk_bytes, np.uint8)
            with translate(DamagedFile, self.file, "it cannot be decoded ({})"):
                decompress(content, values)
            content = values
        return np.ndarray(self.layout.chunk_shape, self.layout.dtype, content)

    @cached_property
    def _chunks(self) -> NDArray[Any]:
        """The file as evenly spaced chunks, each with its checksum."""
        chunk = np.dtype(
            [("values", self.layout.dtype, self.layout.chunk_shape), ("checksum", "<u4")]
        )
        return np.frombuffer(self.mapped, chunk, len(self.mapped) // chunk.itemsize)

    @cached_property
    def _places(self) -> Rows:
        """The place of each chunk in `_chunks`; -1 if it is not one of them."""
        places = np.full(self.layout.chunks, -1)
        if self.file.location.is_local and not self.layout.compressed:
            starts, lengths = self._index.T
            found, rest = np.divmod(starts, self._chunks.itemsize)
            is_even = (rest == 0) & (lengths == self._chunks.itemsize)
            is_even &= found < len(self._chunks)
            places[is_even] = found[is_even]
        return places

    def _verify(self, places: Rows) -> None:
        """Raise `DamagedFile` if any of the evenly spaced chunks was changed."""
        table = self.mapped[: self._chunks.nbytes].reshape(len(self._chunks), -1)
        stored = self._chunks["checksum"][places]
        contents = map(table[:, :-CHECKSUM_BYTES].__getitem__, places.tolist())
        computed = np.fromiter(map(google_crc32c.value, contents), np.uint32, len(places))
        if (computed != stored).any():
            raise DamagedFile(self.file, "a checksum is wrong")


def read_chunks(shards: Mapping[int, Shard], rows: Rows, out: NDArray[Any]) -> None:
    """Read rows of shards, each chunk once; rows are counted from the start of shard 0."""
    some = next(iter(shards.values()))
    layout = some.layout
    chunks, within = np.divmod(rows, layout.chunk_rows)
    groups = group_places(chunks)
    step = max(1, BATCH_BYTES // layout.chunk_bytes)
    for begin in range(0, len(groups), step):
        batch = []
        for number, at in groups[begin : begin + step]:
            batch.append((shards[number // layout.chunks], number % layout.chunks, at))
        parts = [shard.part(chunk) for shard, chunk, _ in batch]
        try:
            read = some.file.location.read_parts(parts)
        except FileNotFoundError as problem:
            raise StoreError(problem, "no longer exists") from None
        for (shard, chunk, at), data in zip(batch, read, strict=True):
            out[at] = shard.decode(chunk, data)[within[at]]


class RowReader:
    """A reader of rows that are done, which keeps recently opened shards open."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._shards: dict[tuple[str, int], Shard] = {}

    def read(self, array: ShardLayout, rows: Rows) -> NDArray[Any]:
        """Read rows of an array, in any order."""
        into = np.empty((len(rows), *array.spec.shape), array.spec.dtype)
        if not len(rows):
            return into
        numbers = rows // array.shard_rows
        if not self.store.location.is_local:
            shards = self._open(array, np.unique(numbers).tolist())
            read_chunks(shards, rows, into)
            return into

        for number, at in group_places(numbers):
            shard = self._open(array, [number])[number]
            within = rows[at] % array.shard_rows
            if _is_run(at):
                shard.read(within, into[at[0] : at[-1] + 1])
            else:
                into[at] = shard.read(within)
        return into

    def read_row(self, array: ShardLayout, row: int) -> NDArray[Any]:
        """Read one row of an array on this machine."""
        number, within = divmod(row, array.shard_rows)
        shard = self._shards.get((array.spec.name, number))
        if shard is None:
            shard = self._open(array, [number])[number]
        return shard.read_row(within)

    def forget(self) -> None:
        """Release the memory that holds rows, by closing the shards on this machine."""
        if self.store.location.is_local:
            self._shards.clear()
            self.store.location.forget()

    def _open(self, array: ShardLayout, numbers: Sequence[int]) -> dict[int, Shard]:
        """Return shards by number, and keep the most recently used ones open.

        There is no lock, so threads and forked processes never wait for each other. At worst, a
        shard is opened twice.
        """
        location = self.store.location
        shards = {}
        names = []
        for number in numbers:
            shard = self._shards.pop((array.spec.name, number), None)
            if shard is not None:
                shards[number] = shard
            elif not location.is_local:
                names += self._names(array, number)
        tails = {}
        if names:
            parts = [(name, -array.index_bytes, array.index_bytes) for name in names]
            tails = dict(zip(names, location.read_parts(parts, missing_ok=True), strict=True))
            location.refuse_if_changed()
        for number in numbers:
            if number not in shards:
                shards[number] = self._open_first(array, number, tails)
            self._shards[array.spec.name, number] = shards[number]
        for oldest in list(self._shards)[:-MAX_OPEN_SHARDS]:
            self._shards.pop(oldest, None)
        return shards

    def _open_first(
        self,
        array: ShardLayout,
        number: int,
        tails: Mapping[str, bytes | None],
    ) -> Shard:
        """Open a shard from the first of its possible files that exists."""
        location = self.store.location
        for name in self._names(array, number):
            tail = tails.get(name)
            if tail is not None or location.is_local:
                with contextlib.suppress(FileNotFoundError):  # it may have just been moved
                    return Shard(location, name, array, tail)
        raise DamagedFile(StoreFile(location, name), "it is missing")

    def _names(self, array: ShardLayout, number: int) -> list[str]:
        """Return the names that a shard's file may have."""
        names = [fmt.shard_name(array.spec, number)]
        record = self.store.records.get(number)
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

    store: Store
    array: str
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> tuple[str, Any]:
        """Return an id and its row."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[str, Any]]:
        """Return several rows at once; data loaders call this for each batch."""
        ids = [self.ids[index] for index in indices]
        return list(zip(ids, self.store.read(self.array, ids), strict=True))


def group_places(numbers: Rows) -> list[tuple[int, Rows]]:
    """Return each number, in ascending order, with the places where it is.

    Examples
    --------
    >>> group_places(np.array([7, 5, 7]))
    [(5, array([1])), (7, array([0, 2]))]
    """
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=False))


def _is_run(numbers: Rows) -> bool:
    """Return True if each number is one larger than the number before it."""
    return bool((np.diff(numbers) == 1).all())
