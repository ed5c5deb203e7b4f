"""The arrays of a store as they are on disk, read and checked from their ``zarr.json``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.format import ArraySpec
from obygaze_features.store.location import Location, read_json_at
from obygaze_features.store.metadata import is_count, remedy
from obygaze_features.store.shards import CHECKSUM_BYTES, ShardLayout, checksum

_CHECKED = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
_KEYS = {"name": "default", "configuration": {"separator": "/"}}


@dataclass(frozen=True)
class StoredArray:
    """An array on disk.

    Parameters
    ----------
    spec
        Its name, shape and type.
    layout
        How its rows are divided into shards and chunks.
    compressed
        Whether `finalise` compressed its chunks; others can be mapped.
    """

    spec: ArraySpec
    layout: ShardLayout
    compressed: bool = False


class StoredArrays(Mapping[str, StoredArray]):
    """The arrays of a store by name; the metadata of each is read on first use."""

    def __init__(self, location: Location, attributes: Mapping[str, Any]) -> None:
        self.location, self.attributes = location, attributes
        self.specs = {spec.name: spec for spec in fmt.specs_of(attributes)}
        self._arrays: dict[str, StoredArray] = {}

    def __getitem__(self, name: str) -> StoredArray:
        if name not in self._arrays:
            self._arrays[name] = read_array(self.location, self.specs[name], self.attributes)
        return self._arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self.specs

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)


def read_array(location: Location, spec: ArraySpec, attributes: Mapping[str, Any]) -> StoredArray:
    """Read how an array is stored; `StoreError` if its chunks are not whole rows in shards."""
    name, shape = f"{spec.name}/zarr.json", (attributes["n"], *spec.shape)
    header = location.join(name)
    metadata = _read_array_metadata(location, name, shape, spec.dtype)
    try:
        (sharding,) = metadata["codecs"]
        inner = sharding["configuration"]
        outer = _chunk_shape(metadata)
        layout = ShardLayout(spec.shape, np.dtype(spec.dtype), outer[0], inner["chunk_shape"][0])
        is_valid = (
            sharding["name"] == "sharding_indexed"
            and all(is_count(rows) for rows in (layout.shard_rows, layout.chunk_rows))
            and layout.shard_rows % layout.chunk_rows == 0
            and outer == [layout.shard_rows, *spec.shape]
            and inner["chunk_shape"] == [layout.chunk_rows, *spec.shape]
            and metadata["chunk_key_encoding"] == _KEYS
        )
        first, *compressors, last = inner["codecs"]
        compressed = [codec["name"] for codec in compressors] == ["zstd"]
        is_ours = (
            [first, last] == inner["index_codecs"] == _CHECKED
            and (compressed or not compressors)
            and inner.get("index_location", "end") == "end"
            and not metadata.get("storage_transformers")
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        is_valid = False
    if not is_valid:
        raise StoreError(f"{header}: its chunks are not whole rows in shards")
    if not is_ours:
        raise StoreError(
            f"{header}: its codecs are not those that obygaze writes; read the array with zarr"
        )
    if attributes["state"] == "open" and (
        (layout.shard_rows, layout.chunk_rows) != (attributes["block_rows"], 1)
    ):
        raise StoreError(f"{header}: a shard is not a block of {attributes['block_rows']} rows")
    return StoredArray(spec, layout, compressed)


def read_bytes_array(
    location: Location, name: str, shape: Sequence[int | None]
) -> NDArray[np.uint8]:
    """Read an array of bytes in one chunk with a checksum (ids, status); None is any length.

    In a remote store its ``zarr.json`` is not requested: the length of the file is enough.
    """
    file = "/".join([name, "c", *("0" for _ in shape)])
    if location.is_local:
        shape = _read_bytes_shape(location, name, shape)
    try:
        data = location.read(file)
    except FileNotFoundError:
        raise StoreError(f"{location.join(file)} is missing; {remedy(location)}") from None
    size = math.prod(length or 1 for length in shape)
    if None in shape:
        size *= max(1, (len(data) - CHECKSUM_BYTES) // size)
    if len(data) != size + CHECKSUM_BYTES:
        raise StoreError(f"{location.join(file)} has the wrong length; {remedy(location)}")
    if checksum(data[:size]) != data[size:]:
        raise StoreError(f"{location.join(file)}: its checksum is wrong; {remedy(location)}")
    return np.frombuffer(data, np.uint8, size).reshape([length or -1 for length in shape])


def _read_bytes_shape(location: Location, name: str, shape: Sequence[int | None]) -> list[int]:
    header = f"{name}/zarr.json"
    metadata = _read_array_metadata(location, header, shape, "uint8")
    try:
        names = [codec["name"] for codec in metadata["codecs"]]
        is_one_chunk = _chunk_shape(metadata) == metadata["shape"]
        is_plain = metadata["chunk_key_encoding"] == _KEYS and is_one_chunk
    except (KeyError, TypeError):
        is_plain = False
    if not is_plain or names != ["bytes", "crc32c"]:
        raise StoreError(f"{location.join(header)}: {name} is not one chunk with a checksum")
    stored_shape: list[int] = metadata["shape"]
    return stored_shape


def _read_array_metadata(
    location: Location, name: str, shape: Sequence[int | None], dtype: str
) -> dict[str, Any]:
    header = location.join(name)
    try:
        metadata = read_json_at(location, name)
    except FileNotFoundError:
        array = name.removesuffix("/zarr.json")
        raise StoreError(f"{header} is missing; {array} cannot be read without it") from None
    if not isinstance(metadata, dict) or (
        (metadata.get("zarr_format"), metadata.get("node_type")) != (3, "array")
    ):
        raise StoreError(f"{header} does not describe a Zarr array of version 3")
    stored = metadata.get("shape")
    if (
        not isinstance(stored, list)
        or len(stored) != len(shape)
        or not all(map(is_count, stored))
        or any(length not in (None, size) for length, size in zip(shape, stored, strict=True))
    ):
        expected = "×".join("?" if length is None else str(length) for length in shape)
        raise StoreError(f"{header}: the shape is {stored!r:.60}; expected {expected}")
    if metadata.get("data_type") != dtype:
        raise StoreError(
            f"{header}: the type is {metadata.get('data_type')!r:.40}; expected {dtype}"
        )
    return metadata


def _chunk_shape(metadata: Mapping[str, Any]) -> Any:
    return metadata["chunk_grid"]["configuration"]["chunk_shape"]
