"""Reads and checks the small files of a store, so that later code can trust what they say.

Zarr's own reader takes longer to import than a store takes to open, and is not needed for this.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import describe_other_kind, require_folder
from obygaze_features.common.tables import Table
from obygaze_features.common.text import is_folder_of
from obygaze_features.errors import ManifestError, StoreError
from obygaze_features.manifests import Items
from obygaze_features.store import format as fmt
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.location import Folder, Location
from obygaze_features.store.remote import Remote
from obygaze_features.store.shards import CHECKSUM_BYTES, ShardLayout, checksum

_CHECKED = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
_KEYS = {"name": "default", "configuration": {"separator": "/"}}
UNKNOWN = "unknown"
_ROW_COLUMNS = ("id", "status", "source", "reason")

Count = Annotated[int, msgspec.Meta(gt=0, lt=2**62)]
"""A whole number above zero, as sizes are."""
ArrayName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?!(ids|status|blocks|probe|staging|claims)\Z)[A-Za-z0-9][A-Za-z0-9_-]*\Z"
    ),
]
Value = TypeVar("Value")


class _Array(msgspec.Struct):
    shape: list[Count]
    dtype: Literal["float32", "float16", "float64", "int32"]
    meaning: str


class _Backbone(msgspec.Struct):
    name: str
    weights_sha256: str
    config: dict[str, Any] = {}


class _Attributes(msgspec.Struct):
    """What a store's attributes must have; they may have more."""

    n: Count
    block_rows: Count
    state: Literal["open", "final"]
    name: str
    manifest: str
    items_digest: str
    precision: str
    licence: str
    citation: str
    software: str
    backbone: _Backbone
    preprocessing: dict[str, Any]
    arrays: Annotated[dict[ArrayName, _Array], msgspec.Meta(min_length=1)]


class _Group(msgspec.Struct):
    """The store's own ``zarr.json``."""

    attributes: dict[str, Any]


class _Chunks(msgspec.Struct):
    chunk_shape: Annotated[list[Count], msgspec.Meta(min_length=1)]


class _Grid(msgspec.Struct):
    configuration: _Chunks


class _Codec(msgspec.Struct):
    name: str
    configuration: dict[str, Any] = {}


class _Header(msgspec.Struct):
    """An array's ``zarr.json``."""

    zarr_format: Literal[3]
    node_type: Literal["array"]
    shape: list[Count]
    data_type: str
    chunk_grid: _Grid
    chunk_key_encoding: dict[str, Any]
    codecs: list[_Codec]
    storage_transformers: list[Any] = []


class _Sharding(msgspec.Struct):
    """The configuration of the codec ``sharding_indexed``."""

    chunk_shape: Annotated[list[Count], msgspec.Meta(min_length=1)]
    codecs: list[dict[str, Any]]
    index_codecs: list[dict[str, Any]]
    index_location: Literal["end"] = "end"


def remedy(location: Location) -> str:
    """What to do about a damaged store."""
    if isinstance(location, Folder) and location.where == str(location.path):
        return f"run: obygaze stores repair {location.where}"
    return "download it again, or tell its owner"


class DamagedFile(StoreError):
    """A file of a store that is not as it was written, and how."""

    def __init__(self, location: Location, file: str, reason: str, consequence: str = "") -> None:
        what = f"{location.join(file)}: {reason}{consequence and f'; {consequence}'}"
        super().__init__(f"{what}; {remedy(location)}")
        self.file, self.reason = file, reason


class NewerStore(StoreError):
    """A store of a later version of the format than this obygaze reads."""


def _read_as(location: Location, name: str, kind: type[Value]) -> Value:
    """A JSON file as a type; FileNotFoundError where there is none."""
    data = location.read(name)
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as problem:
        raise DamagedFile(location, name, f"it is not valid ({problem!s:.200})") from None


def read_attributes(location: Location) -> dict[str, Any]:
    """The attributes of a store; `StoreError` if there is no store, or one of a newer format."""
    try:
        ours = _read_as(location, "zarr.json", _Group).attributes.get(fmt.ATTRIBUTES)
    except FileNotFoundError:
        raise StoreError(_describe_no_store(location)) from None
    if not isinstance(ours, dict):
        raise StoreError(f"{location.where} is a Zarr group, but not one that obygaze made")
    if (version := ours.get("format_version")) != fmt.FORMAT_VERSION:
        is_newer = isinstance(version, int) and version > fmt.FORMAT_VERSION
        raise (NewerStore if is_newer else StoreError)(
            f"{location.where} has format version {version!r:.20}, and this obygaze reads version "
            f"{fmt.FORMAT_VERSION}"
        )
    check_attributes(location.join("zarr.json"), ours)
    return ours


def unknown_parts(attributes: Mapping[str, Any]) -> list[str]:
    """What a store's attributes do not say of how its features were made."""
    backbone = attributes["backbone"]
    has_weights = re.fullmatch("[0-9a-f]{64}", str(backbone["weights_sha256"]))
    parts = {
        "backbone": backbone["name"],
        "weights": None if has_weights else UNKNOWN,
        "preprocessing": attributes["preprocessing"].get("mode"),
        "precision": attributes["precision"],
    }
    return [part for part, value in parts.items() if value == UNKNOWN]


def _describe_no_store(location: Location) -> str:
    """What is there instead of a store."""
    if location.exists(fmt.CHECKSUMS):
        return (
            f"{location.where} is incomplete: it has no zarr.json; if a push to it was cut off, "
            "run the push again"
        )
    if isinstance(location, Folder):
        if not location.path.exists():
            require_folder(location.path, "a feature store", StoreError)
        if other := describe_other_kind(location.path, "a feature store"):
            return other
        if stores := sorted(path.name for path in location.path.glob("*.zarr")):
            return is_folder_of(location.path, "store", location.path / stores[0])
    elif isinstance(location, Remote):
        return f"there is no store at {location.where}: it has no zarr.json; check the address"
    return f"{location.where} is not a feature store: it has no zarr.json"


def check_attributes(where: object, ours: Mapping[str, Any]) -> None:
    """Raise `StoreError` on the first attribute that is missing or wrong."""
    try:
        msgspec.convert(ours, _Attributes)
    except msgspec.ValidationError as problem:
        raise StoreError(f"{where}: its attributes are not valid ({problem})") from None


def read_record(
    location: Location, block: int, ids: Sequence[str], arrays: Sequence[str]
) -> BlockRecord | None:
    """A commit record, if there is one; `StoreError` if it does not match the block's ids."""
    name, reason = fmt.record_name(block), f"it is not the commit record of block {block}"
    try:
        data = location.read(name)
    except FileNotFoundError:
        return None
    try:
        record = BlockRecord.from_json(msgspec.json.decode(data))
        if _is_valid(record, block, ids, arrays):
            return record
    except (ValueError, RecursionError) as problem:
        reason = f"{reason} ({problem!s:.100})"
    affected = f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else ids[0]
    raise DamagedFile(location, name, reason, f"the rows of {affected} cannot be read")


def _is_valid(record: BlockRecord, block: int, ids: Sequence[str], arrays: Sequence[str]) -> bool:
    """Whether an undamaged record belongs to this store and this block."""
    has_shards = Status.DONE in record.status
    failed = {id_ for id_, code in zip(ids, record.status, strict=False) if code > Status.DONE}
    return (
        record.block == block
        and len(record.status) == len(record.sources) == len(ids)
        and record.failures.keys() == failed
        and record.shards.keys() == set(arrays)
        and all((sha256 is not None) == has_shards for sha256 in record.shards.values())
    )


def _read_table(location: Location, name: str, columns: Sequence[str]) -> tuple[Table, str]:
    """A CSV table that obygaze wrote, which has these columns, and the SHA-256 of its file."""
    try:
        data = location.read(name)
    except FileNotFoundError:
        raise DamagedFile(location, name, "it is missing") from None
    try:
        header, *rows = csv.reader(io.StringIO(data.decode(), newline=""), strict=True)
        cells = map(list, zip(*rows, strict=True)) if rows else ([] for _ in header)
        table = dict(zip(header, cells, strict=True))
        if not table.keys() >= set(columns):
            raise ValueError(f"its columns are {', '.join(table):.100}")
    except (ValueError, csv.Error) as problem:
        reason = f"it is not the table that was written ({problem!s:.150})"
        raise DamagedFile(location, name, reason) from None
    lines = range(2, len(rows) + 2)
    sha256 = hashlib.sha256(data).hexdigest()
    return Table(Path(location.join(name)), ",", table, lines), sha256


def read_rows_table(
    location: Location, ids: Sequence[str], status: NDArray[np.uint8]
) -> dict[str, list[str]]:
    """The columns ``source`` and ``reason`` of a final store's table of rows."""
    table, _ = _read_table(location, fmt.ROWS, _ROW_COLUMNS)
    if table["id"] != ids or table["status"] != [str(code) for code in status.tolist()]:
        raise DamagedFile(location, fmt.ROWS, "it does not match the store's ids and status")
    return {"source": table["source"], "reason": table["reason"]}


def read_items(location: Location, attributes: Mapping[str, Any]) -> Items:
    """The items of a store; `StoreError` if the table was changed since it was written.

    The items' digest does not include films, which subset and merge use; so the file must also
    match its checksum, where the store has one.
    """
    table, sha256 = _read_table(location, fmt.ITEMS, ("id",))
    try:
        items = Items.from_table(table)
    except ManifestError as problem:
        raise StoreError(str(problem)) from None
    checksums: dict[str, str] = {}
    with contextlib.suppress(StoreError):  # `verify` reports a damaged checksums.json
        checksums = read_checksums(location)
    if checksums.get(fmt.ITEMS) not in (None, sha256) or items.digest != attributes["items_digest"]:
        raise StoreError(
            f"{location.join(fmt.ITEMS)} is not the table that the store was made for; restore it "
            "from the manifest or from another copy of the store"
        )
    return items


def read_checksums(location: Location) -> dict[str, str]:
    """The SHA-256 of each file that a store's ``checksums.json`` lists."""
    try:
        return _read_as(location, fmt.CHECKSUMS, dict[str, str])
    except FileNotFoundError:
        raise DamagedFile(location, fmt.CHECKSUMS, "it is missing") from None


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


def read_array(location: Location, spec: ArraySpec, attributes: Mapping[str, Any]) -> StoredArray:
    """Read how an array is stored; `StoreError` if its chunks are not whole rows in shards."""
    name = f"{spec.name}/zarr.json"
    header = _read_header(location, spec.name, (attributes["n"], *spec.shape), spec.dtype)
    outer = header.chunk_grid.configuration.chunk_shape
    try:
        [sharding] = header.codecs
        inner = msgspec.convert(sharding.configuration, _Sharding)
    except ValueError as problem:
        raise DamagedFile(location, name, f"its rows are not in shards ({problem})") from None
    (shard_rows, *row), (chunk_rows, *inner_row) = outer, inner.chunk_shape
    if (
        sharding.name != "sharding_indexed"
        or shard_rows % chunk_rows
        or not (row == inner_row == [*spec.shape])
    ):
        raise DamagedFile(location, name, "its chunks are not whole rows in shards")
    compressors = inner.codecs[1:-1]
    compressed = [codec.get("name") for codec in compressors] == ["zstd"]
    if (
        not [*inner.codecs[:1], *inner.codecs[-1:]] == inner.index_codecs == _CHECKED
        or (compressors and not compressed)
        or header.chunk_key_encoding != _KEYS
        or header.storage_transformers
    ):
        raise StoreError(
            f"{location.join(name)}: its codecs are not those that obygaze writes; read the array "
            "with zarr"
        )
    if attributes["state"] == "open" and (shard_rows, chunk_rows) != (attributes["block_rows"], 1):
        reason = f"a shard is not a block of {attributes['block_rows']} rows"
        raise DamagedFile(location, name, reason)
    layout = ShardLayout(spec.shape, np.dtype(spec.dtype), shard_rows, chunk_rows)
    return StoredArray(spec, layout, compressed)


def read_bytes_array(
    location: Location, name: str, shape: Sequence[int | None]
) -> NDArray[np.uint8]:
    """Read an array of bytes in one chunk with a checksum (ids, status); None is any length.

    In a remote store its ``zarr.json`` is not requested: the length of the file is enough.
    """
    file = "/".join([name, "c", *("0" for _ in shape)])
    if location.is_local:
        header = _read_header(location, name, shape, "uint8")
        shape = header.shape
        if (
            [codec.name for codec in header.codecs] != ["bytes", "crc32c"]
            or header.chunk_grid.configuration.chunk_shape != shape
            or header.chunk_key_encoding != _KEYS
        ):
            raise DamagedFile(location, f"{name}/zarr.json", "it is not one chunk with a checksum")
    try:
        data = location.read(file)
    except FileNotFoundError:
        raise DamagedFile(location, file, "it is missing") from None
    size = math.prod(length or 1 for length in shape)
    if None in shape:
        size *= max(1, (len(data) - CHECKSUM_BYTES) // size)
    if len(data) != size + CHECKSUM_BYTES:
        raise DamagedFile(location, file, "it has the wrong length")
    if checksum(data[:size]) != data[size:]:
        raise DamagedFile(location, file, "its checksum is wrong")
    return np.frombuffer(data, np.uint8, size).reshape([length or -1 for length in shape])


def _read_header(
    location: Location, array: str, shape: Sequence[int | None], dtype: str
) -> _Header:
    """An array's ``zarr.json``; `StoreError` unless it has this shape and type."""
    name = f"{array}/zarr.json"
    try:
        header = _read_as(location, name, _Header)
    except FileNotFoundError:
        raise DamagedFile(location, name, "it is missing") from None
    sizes = header.shape
    fits = len(sizes) == len(shape) and all(
        length in (None, size) for length, size in zip(shape, sizes, strict=True)
    )
    if not fits or header.data_type != dtype:
        axes = "×".join("?" if length is None else str(length) for length in shape)
        reason = f"it is an array of {sizes!s:.60} {header.data_type:.40}; expected {axes} {dtype}"
        raise DamagedFile(location, name, reason)
    return header
