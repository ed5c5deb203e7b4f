"""Rows of shards that cannot be mapped: compressed ones, those behind a URL, and foreign codecs."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.store import format as fmt
from obygaze_features.store.arrays import StoredArray
from obygaze_features.store.location import Location
from obygaze_features.store.remote import Span
from obygaze_features.store.shards import (
    CHECKSUM_BYTES,
    DamagedChunk,
    ShardLayout,
    checksum,
    read_index,
)

if TYPE_CHECKING:
    import zarr

BATCH_BYTES = 32 * 2**20
"""Bytes of chunks that are held at a time."""

Rows = NDArray[np.intp]


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
        step = self.layout.chunk_rows
        return DamagedChunk(self.where, range(chunk * step, (chunk + 1) * step), reason)


class ZarrShard:
    """A shard in a folder with codecs that are not ours, read by Zarr, which checks what it can."""

    def __init__(self, folder: Path, array: StoredArray, shard: int) -> None:
        self.folder, self.array = folder, array
        self.where = str(folder / fmt.shard_name(array.spec, shard))
        self.first_row = shard * array.layout.shard_rows

    def read(
        self, rows: Rows, *, check: bool = True, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Rows of the shard, counted from its start; Zarr compares all with its checksums."""
        if out is None:
            out = np.empty((len(rows), *self.array.spec.shape), self.array.spec.dtype)
        step = self.array.layout.chunk_rows
        chunks = rows // step
        for chunk in np.unique(chunks).tolist():
            selected, hit = chunks == chunk, range(chunk * step, (chunk + 1) * step)
            try:
                values = np.asarray(self._zarr.oindex[rows[selected] + self.first_row])
            except Exception as problem:  # codecs raise what they like
                raise DamagedChunk(self.where, hit, f"it cannot be decoded ({problem})") from None
            # What is lost reads as the fill value, which no row that is done consists of.
            fill = self.array.spec.is_fill(values)
            lost = fill.reshape(len(values), -1)
            if (lost.all(axis=1) if self.array.spec.padded else lost).any():
                raise DamagedChunk(self.where, hit, "a chunk is missing")
            out[selected] = values
        return out

    def forget(self) -> None:
        """Nothing: no rows are held."""

    @cached_property
    def _zarr(self) -> zarr.Array[Any]:
        import zarr  # here, as it takes long to import

        return zarr.open_array(self.folder / self.array.spec.name, mode="r", zarr_format=3)
