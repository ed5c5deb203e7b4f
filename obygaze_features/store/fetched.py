"""Shards that cannot be mapped: their index is read once, then the chunks asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.store.location import Location, Span
from obygaze_features.store.shards import (
    CHECKSUM_BYTES,
    DamagedChunk,
    ShardLayout,
    checksum,
    read_index,
)

__all__ = ["FetchedShard"]

AT_ONCE = 32 * 2**20
"""Bytes of chunks that are held at a time."""


class FetchedShard:
    """One shard file, read by parts; the same to a reader as `ShardReader`.

    Parameters
    ----------
    location, name
        Where it lies. FileNotFoundError if it does not.
    layout
        How rows lie in it.
    compressed
        Whether each chunk is compressed by Zstandard, before its checksum.
    """

    def __init__(
        self, location: Location, name: str, layout: ShardLayout, *, compressed: bool
    ) -> None:
        self.location, self.name, self.layout, self.compressed = location, name, layout, compressed
        self.where = location.join(name)
        tail = location.read_part(name, -layout.index_bytes, layout.index_bytes)
        self.index, self.present = read_index(tail, layout, self.where)

    def read(
        self, rows: NDArray[np.intp], *, check: bool = True, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Rows of the shard, counted from its start; all of them must be there."""
        if out is None:
            out = np.empty((len(rows), *self.layout.row_shape), self.layout.dtype)
        chunks, within = np.divmod(rows, self.layout.chunk_rows)
        order = np.argsort(chunks, kind="stable")
        needed, starts = np.unique(chunks[order], return_index=True)
        wanted = np.split(order, starts[1:])
        for begin, end in self._batches(needed):
            spans = [self._span(chunk) for chunk in needed[begin:end].tolist()]
            try:
                parts = self.location.read_parts(self.name, spans)
            except FileNotFoundError:
                rows_in_all = range(self.layout.shard_rows)
                raise DamagedChunk(self.where, rows_in_all, "it is not there any more") from None
            for number, data in enumerate(parts, begin):
                values = self._values(int(needed[number]), data, check=check)
                out[wanted[number]] = values[within[wanted[number]]]
        return out

    def forget(self) -> None:
        """Nothing is kept but the index."""

    def _batches(self, chunks: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
        """Stretches of chunks that are fetched together."""
        step = max(1, AT_ONCE // self.layout.chunk_bytes)
        for begin in range(0, len(chunks), step):
            yield begin, min(begin + step, len(chunks))

    def _span(self, chunk: int) -> Span:
        if not self.present[chunk]:
            raise self._damaged(chunk, "a chunk is missing")
        offset, size = self.index[chunk].tolist()
        least = most = self.layout.chunk_bytes + CHECKSUM_BYTES
        if self.compressed:
            # What does not get smaller gets larger by little.
            least, most = CHECKSUM_BYTES, most + most // 128 + 1024
        if not least <= size <= most or offset >= 2**62:
            raise self._damaged(chunk, "a chunk has the wrong length")
        return offset, size

    def _values(self, chunk: int, data: bytes, *, check: bool) -> NDArray[Any]:
        """A chunk's rows."""
        size = int(self.index[chunk, 1])
        if len(data) != size:
            raise self._damaged(chunk, "a chunk has the wrong length")
        if check and checksum(data[:-CHECKSUM_BYTES]) != data[-CHECKSUM_BYTES:]:
            raise self._damaged(chunk, "its checksum is wrong")
        content = np.frombuffer(data, np.uint8, size - CHECKSUM_BYTES)
        if self.compressed:
            content = self._unpacked(chunk, content)
        return content.view(self.layout.dtype.newbyteorder("<")).reshape(self.layout.chunk_shape)

    def _unpacked(self, chunk: int, content: NDArray[np.uint8]) -> NDArray[np.uint8]:
        from numcodecs.zstd import decompress

        values = np.empty(self.layout.chunk_bytes, np.uint8)
        try:
            # Into what it must fill: a chunk that says it is larger takes no more memory.
            decompress(content, values)
        except (RuntimeError, ValueError) as problem:
            why = f"it cannot be decoded ({problem})"
            raise self._damaged(chunk, why) from None
        return values

    def _damaged(self, chunk: int, why: str) -> DamagedChunk:
        step = self.layout.chunk_rows
        return DamagedChunk(self.where, range(chunk * step, (chunk + 1) * step), why)
