"""The feature store format in code; stores/README.md is its specification.

Nothing here touches the disk. Other modules take names, status codes and layouts from here.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.store.arrays import ARRAYS, FRAME_NUMBERS, StoredArray

Count = Annotated[int, msgspec.Meta(gt=0, lt=2**62)]
"""A whole number above zero, such as a size."""
FORMAT_VERSION = 1
ZSTD_LEVEL = 3
"""The level at which padded arrays are compressed."""
BLOCK_ROWS = 32
MAX_BLOCK_ROWS = 512
"""The largest default number of rows per block. A kill may lose a block (170 s at 3 clips/s)."""
BLOCKS = 500
"""The default maximum number of blocks, if `MAX_BLOCK_ROWS` allows it.

A block has one file per array and a commit record.
"""
ATTRIBUTES = "obygaze"
"""The key of obygaze's attributes in the Zarr group."""
IDS = "ids"
ITEMS = "items.csv"
RECORDS = "blocks"
LOG = "log.jsonl"
STAGING = "staging"
PROBE = "probe"
CHECKSUMS = "checksums.json"
"""The SHA-256 of the files that are not filled row by row (in a final store, all but the log)."""
STATUS = "status"
ROWS = "rows.csv"
CARD = "README.md"
PARQUET = "native.parquet"
"""The items and vectors of a final store, if pyarrow was there to write them."""
PARQUET_DIGEST = "parquet_sha256"
"""The key of the Parquet file's SHA-256 in the Zarr group."""
COORDINATES = ("id", "film")
"""Text arrays that xarray reads in a final store; obygaze itself reads `IDS` and `ITEMS`."""
MEANINGS = {
    IDS: "ids in UTF-8, padded with zero bytes",
    STATUS: "0 to do, 1 done, 2 and up: why it failed",
    "id": f"id of each item, as in {ITEMS}",
    "film": f"film of each item, as in {ITEMS}",
}
"""The meanings of the arrays that are not features."""
SHARD_BYTES = 256 * 2**20
"""The approximate maximum size of a shard in a final store."""
CHUNK_BYTES = 64 * 2**10
"""The maximum size of a chunk of several rows.

A row that is larger than a quarter of this size has its own chunk.
"""


def default_block_rows(items: int) -> int:
    """Return the number of rows per block of a new store. Larger blocks mean fewer files.

    Examples
    --------
    >>> [default_block_rows(items) for items in (16_000, 16_001, 100_000, 1_000_000)]
    [32, 64, 224, 512]
    """
    return min(BLOCK_ROWS * max(1, -(-items // (BLOCKS * BLOCK_ROWS))), MAX_BLOCK_ROWS)


class Status(IntEnum):
    """The state of a row. Values from 2 up say why the row failed."""

    TODO = 0
    DONE = 1
    MISSING = 2
    """The item's file (or its row, in an import) was not found, or several files match."""
    UNREADABLE = 3
    """The file exists but cannot be decoded or imported, or the text is empty."""
    NOT_FINITE = 4
    """The row has a value that the array cannot store, or no features for some frames."""


@dataclass(frozen=True)
class ArraySpec:
    """One array of a store.

    Parameters
    ----------
    name
        The name: a key of `ARRAYS`, or a name that a backbone or an import defines.
    shape
        The shape of one row, without the leading N.
    dtype
        ``float32``, ``float16``, ``float64`` or ``int32``.
    meaning
        A one-line description.
    padded
        True if rows may be padded. If a clip has fewer frames than the backbone takes, the rest of
        its row holds the fill value.
    columns
        The column names along the last axis; empty if there are none.
    """

    name: str
    shape: tuple[Count, ...]
    dtype: Annotated[str, msgspec.Meta(pattern=r"^(float32|float16|float64|int32)\Z")]
    meaning: str
    padded: bool = False
    columns: tuple[str, ...] = ()

    @classmethod
    def named(
        cls,
        name: str,
        shape: tuple[int, ...],
        meaning: str = "",
        *,
        padded: bool = False,
    ) -> ArraySpec:
        """Return the spec of an array in `ARRAYS`, with its dtype and default meaning."""
        entry = ARRAYS[name]
        return cls(name, shape, entry.dtype, meaning or entry.title, padded)

    @property
    def entry(self) -> StoredArray | None:
        """The array's entry in `ARRAYS`; None for arrays that a backbone or an import defines."""
        return ARRAYS.get(self.name)

    @property
    def fill(self) -> float | int:
        """The value that fills a row that was not computed: NaN, or -1 for integers. Never zero."""
        return math.nan if np.issubdtype(self.dtype, np.floating) else -1

    def without_padding(self, row: NDArray[Any]) -> NDArray[Any]:
        """Return a row without its padding, which has the fill value."""
        if not self.padded:
            return row
        is_fill = np.isnan(row) if math.isnan(self.fill) else row == self.fill
        filled = np.flatnonzero(~is_fill.reshape(len(row), -1).all(axis=1))
        return row[: filled[-1] + 1 if filled.size else 0]

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def counts_frames(self) -> bool:
        """True if the first axis of a row counts frames, or groups of a few frames."""
        return self.entry is not None and self.entry.axes[0] == "frame"

    @property
    def numbers_frames(self) -> bool:
        """True if a row has one number per frame rather than features."""
        return self.entry is not None and self.entry.axes == FRAME_NUMBERS

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the Zarr array."""
        return {"meaning": self.meaning} | ({"columns": [*self.columns]} if self.columns else {})


@dataclass(frozen=True)
class Recipe:
    """A description of how rows are computed. All rows of a store have the same recipe.

    Parameters
    ----------
    name
        The name of the store.
    backbone
        ``name``, ``family``, ``revision``, ``weights_sha256`` and ``config``.
    preprocessing
        The steps that turn frames, sound or texts into the backbone's input.
    precision
        The number format in which the backbone computes, such as ``float32``.
    arrays
        The arrays to store.
    """

    name: str
    backbone: Mapping[str, Any]
    preprocessing: Mapping[str, Any]
    precision: str
    arrays: tuple[ArraySpec, ...]

    def attributes(self) -> dict[str, Any]:
        """Return the recipe as it is written in the store's attributes, in plain JSON values."""
        arrays = {}
        for spec in self.arrays:
            arrays[spec.name] = {"shape": spec.shape, "dtype": spec.dtype, **spec.attributes}
            if spec.padded:
                arrays[spec.name]["padded"] = True
        values = {**vars(self), "arrays": arrays}
        plain: dict[str, Any] = json.loads(json.dumps(values, default=dict))
        return plain


@dataclass(frozen=True)
class BlockRecord:
    """A block's commit record, without which the block does not exist.

    Parameters
    ----------
    block
        The number of the block.
    status
        The `Status` of each row in the block.
    sources
        The fingerprint of the file that each row was computed from, or None.
    failures
        The reason for each failed row, by id.
    shards
        The SHA-256 of each array's shard; None if no row is done.
    """

    block: int
    status: tuple[Annotated[int, msgspec.Meta(ge=0, le=int(max(Status)))], ...]
    sources: tuple[str | None, ...]
    failures: dict[str, str]
    shards: dict[str, Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")] | None]

    def to_bytes(self) -> bytes:
        """Return the content of the record's file, which ends with a checksum of the rest."""
        values = {**vars(self), "sha256": self._seal()}
        return json.dumps(values, ensure_ascii=False, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, values: Any) -> BlockRecord:
        """Read a record from parsed JSON; raise ValueError if it is not a valid record."""
        record = msgspec.convert(values, cls)
        if values.get("sha256") != record._seal():
            raise ValueError("its checksum is wrong")
        return record

    def _seal(self) -> str:
        """Return the SHA-256 of the record as compact ASCII JSON with sorted keys."""
        line = json.dumps(vars(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(line.encode("ascii")).hexdigest()


def specs_of(attributes: Mapping[str, Any]) -> list[ArraySpec]:
    """Return the specs of a store's arrays from its attributes."""
    specs = []
    for name, values in attributes["arrays"].items():
        specs.append(msgspec.convert({**values, "name": name}, ArraySpec))
    return specs


def record_name(block: int) -> str:
    """Return the path of a block's commit record, relative to the store's root."""
    return f"{RECORDS}/{block:06d}.json"


def shard_name(spec: ArraySpec, shard: int) -> str:
    """Return the path of an array's shard in Zarr's default key encoding."""
    return "/".join([spec.name, "c", str(shard), *("0" for _ in spec.shape)])


def staged_name(spec: ArraySpec, block: int, sha256: str) -> str:
    """Return the path at which a block's shard is kept until it is moved into the array.

    The name follows from the record, so the next writer of the store can finish the move.
    """
    return f"{STAGING}/{block:06d}.{spec.name}.{sha256[:16]}"


def array_layout(
    spec: ArraySpec,
    n: int,
    shard_rows: int,
    chunk_rows: int = 1,
    *,
    beside: Sequence[ArraySpec] = (),
    compressed: bool = False,
) -> dict[str, Any]:
    """Return arguments for ``Group.create_array``: chunks in shards, each with a checksum.

    Codecs and fill values are explicit, so a new default in Zarr does not change them. `beside`
    lists all arrays of the store, because the names of the axes depend on all of them.
    """
    # Imported here because zarr is slow to import, and reading a store does not need it.
    from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

    checked: tuple[Any, ...] = (BytesCodec(endian="little"), Crc32cCodec())
    codecs = checked
    if compressed:
        codecs = (checked[0], ZstdCodec(level=ZSTD_LEVEL), checked[1])
    sharding = ShardingCodec(
        chunk_shape=(chunk_rows, *spec.shape),
        codecs=codecs,
        index_codecs=checked,
        index_location="end",
    )
    return {
        "name": spec.name,
        "shape": (n, *spec.shape),
        "dtype": spec.dtype,
        "fill_value": spec.fill,
        "chunks": (shard_rows, *spec.shape),
        "serializer": sharding,
        "filters": None,
        "compressors": None,
        "dimension_names": dimensions(beside or [spec])[spec.name],
        "attributes": spec.attributes,
    }


def dimensions(arrays: Sequence[ArraySpec]) -> dict[str, tuple[str, ...]]:
    """Name the axes of a store's arrays, so that xarray can open the store as one dataset.

    All arrays share the item axis. Arrays with `frame_count` frames share the frame axis. Arrays
    whose vectors have the same length and columns share the feature axis.

    Examples
    --------
    >>> native, frames = (8,), (16, 8)
    >>> dimensions([ArraySpec("native", native, "f4", ""), ArraySpec("frames", frames, "f2", "")])
    {'native': ('item', 'feature'), 'frames': ('item', 'frame', 'feature')}
    """
    frames = frame_count(arrays)
    vectors = [spec for spec in arrays if not spec.numbers_frames]
    kinds: dict[tuple[int, tuple[str, ...]], str] = {}
    for spec in vectors:
        kinds.setdefault((spec.shape[-1], spec.columns), spec.name)
    widths = [width for width, _ in kinds]

    names = {}
    for spec in arrays:
        axes = ["item"]
        for axis in range(1, len(spec.shape) + 1):
            axes.append(f"{spec.name}_{axis}")
        if spec.counts_frames and spec.shape[0] == frames:
            axes[1] = "frame"
        if spec in vectors:
            width = spec.shape[-1]
            if len(kinds) == 1:
                axes[-1] = "feature"
            elif spec.columns and widths.count(width) > 1:
                axes[-1] = f"feature_{kinds[width, spec.columns]}"
            else:
                axes[-1] = f"feature_{width}"
        names[spec.name] = tuple(axes)
    return names


def token_times(frame_times: NDArray[Any], count: int) -> NDArray[np.float64]:
    """Return token times as [N, count]: the mean time of the frames that each token covers."""
    times: NDArray[np.float64] = frame_times.reshape(len(frame_times), count, -1).mean(axis=2)
    return times


def frame_count(arrays: Sequence[ArraySpec]) -> int | None:
    """Return the number of frames in the arrays, or None if they have no frames.

    If the numbers differ, the first array in the order of `ARRAYS` counts.
    """
    lengths = {array.name: array.shape[0] for array in arrays if array.counts_frames}
    return next((lengths[name] for name in ARRAYS if name in lengths), None)


def small_layout(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the ``Group.create_array`` arguments for `IDS`, `STATUS` or one of `COORDINATES`.

    The array is stored as one chunk with a checksum.
    """
    from zarr.codecs import BytesCodec, Crc32cCodec, VLenUTF8Codec

    encoding = {
        "dtype": "uint8",
        "fill_value": 0,
        "serializer": BytesCodec(endian=None),
    }
    if name in COORDINATES:
        encoding = {"dtype": "string", "fill_value": "", "serializer": VLenUTF8Codec()}
    return {
        "name": name,
        "shape": shape,
        "chunks": shape,
        **encoding,
        "filters": None,
        "compressors": (Crc32cCodec(),),
        "dimension_names": ("item", *(f"{name}_{axis}" for axis in range(1, len(shape)))),
        "attributes": {"meaning": MEANINGS[name]},
        # Without this, Zarr omits a chunk of zeros, which would look like a lost chunk.
        "config": {"write_empty_chunks": True},
    }


def final_rows(spec: ArraySpec, n: int) -> tuple[int, int]:
    """Return the numbers of rows per shard and per chunk in a final store.

    Shards are large, so there are few files. Chunks are small, so reading one clip is cheap.
    """
    chunk = 1
    largest = CHUNK_BYTES // spec.row_bytes
    while largest >= 4 and chunk < n and 2 * chunk <= largest:
        chunk *= 2
    max_chunks = max(1, SHARD_BYTES // (chunk * spec.row_bytes))
    return min(max_chunks, -(-n // chunk)) * chunk, chunk


def decode_ids(encoded: NDArray[np.bytes_]) -> list[str]:
    """Decode ids; raise ValueError if one is not UTF-8 or holds a zero byte."""
    ids = b"\0".join(encoded.tolist()).decode("utf-8").split("\0")
    if len(ids) != len(encoded):
        raise ValueError("a row has more than one id")
    return ids
