"""How the arrays of a store lie in its files: read and checked from their ``zarr.json``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.format import ArraySpec
from obygaze_features.store.location import Location, read_json_at
from obygaze_features.store.metadata import is_count, remedy
from obygaze_features.store.shards import CHECKSUM_BYTES, ShardLayout, checksum

__all__ = ["StoredArray", "StoredArrays", "read_array", "read_bytes_array"]

_CHECKED = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
_KEYS = {"name": "default", "configuration": {"separator": "/"}}


@dataclass(frozen=True)
class StoredArray:
    """An array as it lies on disk.

    Parameters
    ----------
    spec
        What it is.
    layout
        How its rows lie in shards.
    coding
        How a chunk becomes bytes: ``plain``, which can be mapped; ``zstd``, compressed as
        `finalise` does it; or ``other``, which is Zarr's to read. The first two end in a checksum.
    """

    spec: ArraySpec
    layout: ShardLayout
    coding: Literal["plain", "zstd", "other"]


class StoredArrays(Mapping[str, StoredArray]):
    """The arrays of a store; what `Zarr` says of each is read when it is first asked for."""

    def __init__(self, location: Location, attributes: Mapping[str, Any]) -> None:
        self.location, self.attributes = location, attributes
        self.specs = {one.name: one for one in spec.specs_of(attributes)}
        self._known: dict[str, StoredArray] = {}

    def __getitem__(self, name: str) -> StoredArray:
        if name not in self._known:
            self._known[name] = read_array(self.location, self.specs[name], self.attributes)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self.specs

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)


def read_array(location: Location, one: ArraySpec, attributes: Mapping[str, Any]) -> StoredArray:
    """How an array of a store lies in its files."""
    name, shape = f"{one.name}/zarr.json", (attributes["n"], *one.shape)
    header, meta = location.join(name), _read_array_metadata(location, name, shape, one.dtype)
    try:
        (sharding,) = meta["codecs"]
        inner = sharding["configuration"]
        outer = _chunk_shape(meta)
        layout = ShardLayout(one.shape, np.dtype(one.dtype), outer[0], inner["chunk_shape"][0])
        whole = (
            sharding["name"] == "sharding_indexed"
            and all(is_count(rows) for rows in (layout.shard_rows, layout.chunk_rows))
            and layout.shard_rows % layout.chunk_rows == 0
            and outer == [layout.shard_rows, *one.shape]
            and inner["chunk_shape"] == [layout.chunk_rows, *one.shape]
            and meta["chunk_key_encoding"] == _KEYS
        )
        regular = (
            inner["index_codecs"] == _CHECKED
            and inner.get("index_location", "end") == "end"
            and not meta.get("storage_transformers")
        )
        coding = _coding(inner["codecs"]) if regular else "other"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        whole = False
    if not whole:
        raise StoreError(f"{header}: its chunks are not whole rows in shards")
    if attributes["state"] == "open" and (
        (layout.shard_rows, layout.chunk_rows) != (attributes["block_rows"], 1)
    ):
        raise StoreError(f"{header}: a shard is not a block of {attributes['block_rows']} rows")
    return StoredArray(one, layout, coding)


def _coding(codecs: list[Any]) -> Literal["plain", "zstd", "other"]:
    if codecs == _CHECKED:
        return "plain"
    first, *packed, last = codecs
    if [first, last] == _CHECKED and [one["name"] for one in packed] == ["zstd"]:
        return "zstd"
    return "other"


def read_bytes_array(
    location: Location, name: str, shape: Sequence[int | None]
) -> NDArray[np.uint8]:
    """An array of bytes in one chunk with its checksum: ids and status; None is any length.

    Where looking costs a request, the array's ``zarr.json`` is not asked: its one file says all.
    """
    file = "/".join([name, "c", *("0" for _ in shape)])
    if location.is_local:
        shape = _shape_of_bytes(location, name, shape)
    try:
        data = location.read(file)
    except OSError as problem:
        why = problem.strerror
        raise StoreError(
            f"{location.join(file)} cannot be read: {why}; {remedy(location)}"
        ) from None
    size = math.prod(one or 1 for one in shape)
    if None in shape:
        size *= max(1, (len(data) - CHECKSUM_BYTES) // size)
    if len(data) != size + CHECKSUM_BYTES:
        raise StoreError(f"{location.join(file)} is cut short or too long; {remedy(location)}")
    if checksum(data[:size]) != data[size:]:
        raise StoreError(f"{location.join(file)}: its checksum is wrong; {remedy(location)}")
    return np.frombuffer(data, np.uint8, size).reshape([one or -1 for one in shape])


def _shape_of_bytes(location: Location, name: str, shape: Sequence[int | None]) -> list[int]:
    header = f"{name}/zarr.json"
    meta = _read_array_metadata(location, header, shape, "uint8")
    try:
        names = [codec["name"] for codec in meta["codecs"]]
        plain = meta["chunk_key_encoding"] == _KEYS and _chunk_shape(meta) == meta["shape"]
    except (KeyError, TypeError):
        plain = False
    if not plain or names != ["bytes", "crc32c"]:
        raise StoreError(f"{location.join(header)}: {name} is not one chunk with a checksum")
    known: list[int] = meta["shape"]
    return known


def _read_array_metadata(
    location: Location, name: str, shape: Sequence[int | None], dtype: str
) -> dict[str, Any]:
    header = location.join(name)
    try:
        meta = read_json_at(location, name)
    except (FileNotFoundError, NotADirectoryError):
        array = name.removesuffix("/zarr.json")
        raise StoreError(f"{header} is missing; {array} cannot be read without it") from None
    if not isinstance(meta, dict) or (meta.get("zarr_format"), meta.get("node_type")) != (
        3,
        "array",
    ):
        raise StoreError(f"{header} does not describe a Zarr array of version 3")
    have = meta.get("shape")
    if (
        not isinstance(have, list)
        or len(have) != len(shape)
        or not all(map(is_count, have))
        or any(wanted not in (None, size) for wanted, size in zip(shape, have, strict=True))
    ):
        meant = "×".join("?" if size is None else str(size) for size in shape)
        raise StoreError(f"{header}: the shape is {have!r:.60}, {meant} is meant")
    if meta.get("data_type") != dtype:
        raise StoreError(f"{header}: the type is {meta.get('data_type')!r:.40}, {dtype} is meant")
    return meta


def _chunk_shape(meta: Mapping[str, Any]) -> Any:
    return meta["chunk_grid"]["configuration"]["chunk_shape"]
