"""What the small files of a store say, read and checked, so that nothing later has to doubt it.

Zarr's own reader is not needed for this, and takes longer to import than a store to open.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import read_json
from obygaze_features.common.tables import read_table
from obygaze_features.common.words import holds
from obygaze_features.errors import ManifestError, StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.shards import CHECKSUM_BYTES, ShardLayout, checksum

__all__ = [
    "StoredArray",
    "check_attributes",
    "is_there",
    "read_array",
    "read_attributes",
    "read_bytes_array",
    "read_record",
    "read_rows_table",
    "read_status_column",
    "remedy",
]

_TEXTS = ("name", "manifest", "items_digest", "precision", "licence", "citation", "software")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SHA256 = re.compile("[0-9a-f]{64}")
_RESERVED = {spec.IDS, spec.STATUS, spec.RECORDS, spec.PROBE, spec.STAGING, spec.CLAIMS}
_DTYPES = ("float32", "float16", "float64", "int32")
_CHECKED = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
_KEYS = {"name": "default", "configuration": {"separator": "/"}}
_ROW_COLUMNS = ["id", "status", "source", "reason"]


@dataclass(frozen=True)
class StoredArray:
    """An array as it lies on disk.

    Parameters
    ----------
    spec
        What it is.
    layout
        How its rows lie in shards.
    mapped
        Whether the shards can be mapped: chunks that are neither compressed nor transposed, and
        that end in a checksum. Zarr reads the others.
    """

    spec: ArraySpec
    layout: ShardLayout
    mapped: bool


def remedy(path: Path) -> str:
    """What to do about a damaged store."""
    return f"run: obygaze stores repair {path}"


def read_attributes(path: Path) -> dict[str, Any]:
    """The attributes of the store at `path`; `StoreError` if it is none, or one to come."""
    header = path / "zarr.json"
    if not is_there(path):
        raise StoreError(f"{path} does not exist")
    if not is_there(header):
        inner = sorted(one.name for one in path.glob("*.zarr")) if path.is_dir() else []
        if inner:
            raise StoreError(holds(path, "store", path / inner[0]))
        raise StoreError(f"{path} is not a feature store: it has no zarr.json")
    group = read_json(header, StoreError)
    attributes = group.get("attributes") if isinstance(group, dict) else None
    ours = attributes.get(spec.ATTRIBUTES) if isinstance(attributes, dict) else None
    if not isinstance(ours, dict):
        raise StoreError(f"{path} is a Zarr group, but not one that obygaze made")
    if ours.get("format_version") != spec.FORMAT_VERSION:
        raise StoreError(
            f"{path} has format version {ours.get('format_version')!r:.20}, "
            f"and this obygaze reads version {spec.FORMAT_VERSION}"
        )
    check_attributes(header, ours)
    return ours


def check_attributes(header: Path, ours: Mapping[str, Any]) -> None:
    """Raise on the first attribute that is missing or not what it should be."""

    def wrong(key: str, meant: str) -> NoReturn:
        have = f"{ours[key]!r:.40}" if key in ours else "missing"
        raise StoreError(f"{header}: the attribute {key} is {have}; {meant} is meant")

    for key in ("n", "block_rows"):
        if not _is_count(ours.get(key)):
            wrong(key, "a whole number above zero")
    if ours.get("state") not in ("open", "final"):
        wrong("state", "'open' or 'final'")
    for key in _TEXTS:
        if not isinstance(ours.get(key), str):
            wrong(key, "text")
    for key in ("backbone", "preprocessing"):
        if not isinstance(ours.get(key), dict):
            wrong(key, "an object")
    if not {"name", "weights_sha256"} <= ours["backbone"].keys():
        wrong("backbone", "an object with name and weights_sha256")
    arrays = ours.get("arrays")
    if not isinstance(arrays, dict) or not arrays:
        wrong("arrays", "an object that names arrays")
    for name, one in arrays.items():
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise StoreError(f"{header}: {name!r:.40} is no name for an array")
        if not (
            isinstance(one, dict)
            and isinstance(one.get("shape"), list)
            and all(_is_count(size) for size in one["shape"])
            and one.get("dtype") in _DTYPES
            and isinstance(one.get("meaning"), str)
        ):
            raise StoreError(f"{header}: the array {name} has no shape, dtype and meaning")


def read_array(path: Path, one: ArraySpec, attributes: Mapping[str, Any]) -> StoredArray:
    """How an array of the store at `path` lies on disk."""
    header, shape = path / one.name / "zarr.json", (attributes["n"], *one.shape)
    meta = _read_array_metadata(header, shape, one.dtype)
    try:
        (sharding,) = meta["codecs"]
        inner = sharding["configuration"]
        outer = _chunk_shape(meta)
        layout = ShardLayout(one.shape, np.dtype(one.dtype), outer[0], inner["chunk_shape"][0])
        whole = (
            sharding["name"] == "sharding_indexed"
            and all(_is_count(rows) for rows in (layout.shard_rows, layout.chunk_rows))
            and layout.shard_rows % layout.chunk_rows == 0
            and outer == [layout.shard_rows, *one.shape]
            and inner["chunk_shape"] == [layout.chunk_rows, *one.shape]
            and meta["chunk_key_encoding"] == _KEYS
        )
        mapped = (
            inner["codecs"] == _CHECKED
            and inner["index_codecs"] == _CHECKED
            and inner.get("index_location", "end") == "end"
            and not meta.get("storage_transformers")
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        whole = False
    if not whole:
        raise StoreError(f"{header}: its chunks are not whole rows in shards")
    if attributes["state"] == "open" and (
        (layout.shard_rows, layout.chunk_rows) != (attributes["block_rows"], 1)
    ):
        raise StoreError(f"{header}: a shard is not a block of {attributes['block_rows']} rows")
    return StoredArray(one, layout, mapped)


def read_bytes_array(path: Path, name: str, shape: Sequence[int | None]) -> NDArray[np.uint8]:
    """An array of bytes in one chunk with its checksum: ids and status; None is any length."""
    header = path / name / "zarr.json"
    meta = _read_array_metadata(header, shape, "uint8")
    file = path.joinpath(name, "c", *("0" for _ in shape))
    try:
        names = [codec["name"] for codec in meta["codecs"]]
        plain = meta["chunk_key_encoding"] == _KEYS and _chunk_shape(meta) == meta["shape"]
    except (KeyError, TypeError):
        plain = False
    if not plain or names != ["bytes", "crc32c"]:
        raise StoreError(f"{header}: {name} is not one chunk with a checksum")
    try:
        data = file.read_bytes()
    except OSError as problem:
        raise StoreError(f"{file} cannot be read: {problem.strerror}; {remedy(path)}") from None
    size = math.prod(meta["shape"])
    if len(data) != size + CHECKSUM_BYTES:
        raise StoreError(f"{file} is cut short or too long; {remedy(path)}")
    if checksum(data[:size]) != data[size:]:
        raise StoreError(f"{file}: its checksum is wrong; {remedy(path)}")
    return np.frombuffer(data, np.uint8, size).reshape(meta["shape"])


def read_record(path: Path, block: int, ids: Sequence[str], arrays: Sequence[str]) -> BlockRecord:
    """A commit record; `StoreError` if it is not that of the block with these ids."""
    why = f"it is not the commit record of block {block} as it was written"
    try:
        record = BlockRecord.from_json(read_json(path, StoreError))
        if _is_right(record, block, ids, arrays):
            return record
    except StoreError as problem:
        why = str(problem).removeprefix(f"{path} ")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        pass
    hit = f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else ids[0]
    raise StoreError(
        f"{path}: {why}; the rows of {hit} cannot be read; {remedy(path.parent.parent)}"
    )


def _is_right(record: BlockRecord, block: int, ids: Sequence[str], arrays: Sequence[str]) -> bool:
    """Whether a record, whole as it may be, is one of this store and of this block."""
    done = Status.DONE in record.status
    failed = {one for one, code in zip(ids, record.status, strict=False) if code > Status.DONE}
    return (
        record.block == block
        and len(record.status) == len(record.sources) == len(ids)
        and all(type(code) is int for code in record.status)
        and 0 <= min(record.status) <= max(record.status) <= max(Status)
        and all(one is None or isinstance(one, str) for one in record.sources)
        and record.failures.keys() == failed
        and all(isinstance(why, str) for why in record.failures.values())
        and record.shards.keys() == set(arrays)
        and all(
            isinstance(one, str) and _SHA256.fullmatch(one) if done else one is None
            for one in record.shards.values()
        )
    )


def read_rows_table(path: Path, ids: Sequence[str], status: NDArray[np.uint8]) -> dict[str, Any]:
    """The columns ``source`` and ``reason`` of a final store's table of rows."""
    file = path / spec.ROWS
    try:
        table = read_table(file, required=_ROW_COLUMNS)
    except ManifestError as problem:
        raise StoreError(f"{problem}; {remedy(path)}") from None
    if table["id"] != ids or table["status"] != [str(code) for code in status.tolist()]:
        raise StoreError(f"{file} does not go with ids and status; {remedy(path)}")
    return {"source": table["source"], "reason": table["reason"]}


def _read_array_metadata(header: Path, shape: Sequence[int | None], dtype: str) -> dict[str, Any]:
    if not is_there(header):
        raise StoreError(f"{header} is missing; {header.parent.name} cannot be read without it")
    meta = read_json(header, StoreError)
    if not isinstance(meta, dict) or (meta.get("zarr_format"), meta.get("node_type")) != (
        3,
        "array",
    ):
        raise StoreError(f"{header} does not describe a Zarr array of version 3")
    have = meta.get("shape")
    if (
        not isinstance(have, list)
        or len(have) != len(shape)
        or not all(map(_is_count, have))
        or any(wanted not in (None, size) for wanted, size in zip(shape, have, strict=True))
    ):
        meant = "×".join("?" if size is None else str(size) for size in shape)
        raise StoreError(f"{header}: the shape is {have!r:.60}, {meant} is meant")
    if meta.get("data_type") != dtype:
        raise StoreError(f"{header}: the type is {meta.get('data_type')!r:.40}, {dtype} is meant")
    return meta


def _chunk_shape(meta: Mapping[str, Any]) -> Any:
    return meta["chunk_grid"]["configuration"]["chunk_shape"]


def _is_count(value: object) -> bool:
    return type(value) is int and 0 < value < 2**62


def is_there(path: Path) -> bool:
    """Whether there is anything; what there is may still refuse to be read."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read_status_column(path: Path, n: int) -> NDArray[np.uint8]:
    """The status of each row by ``rows.csv``, for a store whose own array of it is damaged."""
    try:
        codes = read_table(path / spec.ROWS, required=["status"])["status"]
    except ManifestError as problem:
        raise StoreError(str(problem)) from None
    known = {str(int(one)) for one in Status}
    if len(codes) != n or not known.issuperset(codes):
        raise StoreError(f"{path / spec.ROWS} does not say the status of {n} rows; {remedy(path)}")
    return np.array(codes, np.uint8)
