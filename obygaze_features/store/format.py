"""The format of a feature store: the specification in code; stores/README.md says it in words.

Nothing here touches a disk. Reader and writer take every name, code and codec from this file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

__all__ = [
    "ATTRIBUTES",
    "BLOCK_ROWS",
    "FORMAT_VERSION",
    "IDS",
    "ITEMS",
    "LOG",
    "RECORDS",
    "ArraySpec",
    "BlockRecord",
    "Recipe",
    "Status",
    "array_layout",
    "block_count",
    "block_folder",
    "decode_ids",
    "encode_ids",
    "ids_layout",
    "record_name",
    "rows_of_block",
    "shard_name",
]

FORMAT_VERSION = 1
BLOCK_ROWS = 32
ATTRIBUTES = "obygaze"
"""The key of our attributes in the Zarr group."""
IDS = "ids"
ITEMS = "items.csv"
RECORDS = "blocks"
LOG = "log.jsonl"


class Status(IntEnum):
    """What became of a row. From 2 on, why it failed."""

    TODO = 0
    DONE = 1
    MISSING = 2
    """The media file was not found, or several could be meant."""
    UNREADABLE = 3
    """The media file is there, and cannot be decoded."""
    NOT_FINITE = 4
    """The backbone gave a value that the array cannot hold."""


@dataclass(frozen=True)
class ArraySpec:
    """One array of a store.

    Parameters
    ----------
    name
        As in the table of arrays in stores/README.md, alike for every backbone.
    shape
        The shape of one row, so without the leading N.
    dtype
        ``float32``, ``float16``, ``float64`` or ``int32``.
    meaning
        One line for people.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    meaning: str

    @property
    def fill(self) -> float | int:
        """What an uncomputed row reads as: NaN, or -1 for whole numbers. Never zero."""
        return math.nan if np.issubdtype(self.dtype, np.floating) else -1

    def is_fill(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Where values are the fill value, which no computed row may hold."""
        fill: NDArray[np.bool_] = np.isnan(values) if math.isnan(self.fill) else values == self.fill
        return fill

    @property
    def bytes_a_row(self) -> int:
        """Bytes that one row takes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Recipe:
    """What the rows of a store are made with. Rows of two recipes must never share a store.

    Parameters
    ----------
    name
        The name of the store.
    backbone
        ``name``, ``revision``, ``weights_sha256`` and ``config``.
    preprocessing
        How frames become the backbone's input.
    precision
        The number format in which the backbone computed.
    arrays
        What is kept.
    """

    name: str
    backbone: Mapping[str, Any]
    preprocessing: Mapping[str, Any]
    precision: str
    arrays: tuple[ArraySpec, ...]

    def attributes(self) -> dict[str, Any]:
        """As kept in the store's attributes: plain JSON values."""
        arrays = {
            spec.name: {"shape": spec.shape, "dtype": spec.dtype, "meaning": spec.meaning}
            for spec in self.arrays
        }
        values = {
            "name": self.name,
            "backbone": dict(self.backbone),
            "preprocessing": dict(self.preprocessing),
            "precision": self.precision,
            "arrays": arrays,
        }
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return plain


@dataclass(frozen=True)
class BlockRecord:
    """A block's commit record: written last, and without it the block does not exist.

    Parameters
    ----------
    block
        Number of the block.
    status
        A `Status` for each row of the block.
    sources
        The SHA-256 of each row's media file; None where there was no file.
    failures
        Id -> reason, for the rows that failed.
    shards
        Array -> SHA-256 of its shard; None where no row was done, so that no shard was written.
    """

    block: int
    status: tuple[int, ...]
    sources: tuple[str | None, ...]
    failures: dict[str, str] = field(default_factory=dict)
    shards: dict[str, str | None] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The record's file."""
        return (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode("utf-8")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> BlockRecord:
        """From the parsed file; raises KeyError or TypeError where it is not a record."""
        return cls(
            block=int(values["block"]),
            status=tuple(values["status"]),
            sources=tuple(values["sources"]),
            failures=dict(values["failures"]),
            shards=dict(values["shards"]),
        )


def block_count(n: int, block_rows: int) -> int:
    """Number of blocks of a store of `n` rows."""
    return -(-n // block_rows)


def rows_of_block(block: int, n: int, block_rows: int) -> range:
    """The rows of a block; the last block may be short."""
    return range(block * block_rows, min((block + 1) * block_rows, n))


def record_name(block: int) -> str:
    """Where a block's commit record lies, from the store's root."""
    return f"{RECORDS}/{block:06d}.json"


def block_folder(array: str, block: int) -> str:
    """The folder that holds a block's one shard of an array, and nothing else."""
    return f"{array}/c/{block}"


def shard_name(spec: ArraySpec, block: int) -> str:
    """Where a block's shard of an array lies, by Zarr's default key encoding."""
    return "/".join([block_folder(spec.name, block), *("0" for _ in spec.shape)])


def array_layout(spec: ArraySpec, n: int, block_rows: int) -> dict[str, Any]:
    """Arguments of ``Group.create_array``: one chunk a row, one shard a block, checksums on both.

    Everything is said explicitly, so that a new default in Zarr changes no store.
    """
    checked = (BytesCodec(endian="little"), Crc32cCodec())
    return {
        "name": spec.name,
        "shape": (n, *spec.shape),
        "dtype": spec.dtype,
        "fill_value": spec.fill,
        "chunks": (block_rows, *spec.shape),
        "serializer": ShardingCodec(
            chunk_shape=(1, *spec.shape),
            codecs=checked,
            index_codecs=checked,
            index_location="end",
        ),
        "filters": None,
        "compressors": None,
        "attributes": {"meaning": spec.meaning},
    }


def ids_layout(n: int, width: int) -> dict[str, Any]:
    """Arguments of ``Group.create_array`` for `IDS`: one chunk with its checksum."""
    return {
        "name": IDS,
        "shape": (n, width),
        "dtype": "uint8",
        "fill_value": 0,
        "chunks": (n, width),
        "serializer": BytesCodec(endian=None),
        "filters": None,
        "compressors": (Crc32cCodec(),),
        "attributes": {"meaning": "ids in UTF-8, padded with zero bytes"},
    }


def encode_ids(ids: Sequence[str]) -> NDArray[np.uint8]:
    """Ids as rows of UTF-8 bytes: string types are not read by every Zarr reader."""
    encoded = np.array([one.encode("utf-8") for one in ids])
    return encoded.view(np.uint8).reshape(len(ids), -1)


def decode_ids(table: NDArray[np.uint8]) -> list[str]:
    """The ids of `encode_ids`."""
    return [bytes(row).rstrip(b"\0").decode("utf-8") for row in table]
