"""Read and check a store's small files, so that other code can trust their content.

Zarr itself is not used, because importing it takes longer than opening a store.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import require_folder
from obygaze_features.errors import StoreError, errors_as, translate
from obygaze_features.store import format as fmt
from obygaze_features.store.files import Folder, Location, StoreFile
from obygaze_features.store.format import ArraySpec
from obygaze_features.store.shards import CHECKSUM_BYTES, ShardLayout, is_intact

if TYPE_CHECKING:
    from obygaze_features.common.tables import Table
    from obygaze_features.items.items import Items

_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_ZSTD = {"name": "zstd", "configuration": {"level": fmt.ZSTD_LEVEL, "checksum": False}}
_CRC = {"name": "crc32c"}
_CHECKED = [_BYTES, _CRC]
_COMPRESSED = [_BYTES, _ZSTD, _CRC]
UNKNOWN = "unknown"

ArrayName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?!(ids|status|blocks|probe|staging|claims|id|film)\Z)[A-Za-z0-9][A-Za-z0-9_-]*\Z"
    ),
]
Value = TypeVar("Value")


class _Backbone(msgspec.Struct):
    name: str
    weights_sha256: str
    config: dict[str, Any] = {}


class _Attributes(msgspec.Struct):
    """The attributes that every store has; a store may have more."""

    n: fmt.Count
    block_rows: fmt.Count
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
    arrays: Annotated[dict[ArrayName, dict[str, Any]], msgspec.Meta(min_length=1)]


class _Group(msgspec.Struct):
    """The store's own ``zarr.json``."""

    attributes: dict[str, Any]


def final_error(path: Path | str, reason: str) -> StoreError:
    """Return the error for a final store whose rows would have to change."""
    remedy = f"reopen it: obygaze stores repair {path} --reopen"
    return StoreError(path, f"{reason}; {remedy}")


class DamagedFile(StoreError):
    """The error for a damaged file of a store."""

    def __init__(self, where: StoreFile, reason: str) -> None:
        remedy = "run obygaze stores repair or, if it fails, restore the store from a copy"
        super().__init__(where, f": {reason}; {remedy}")
        self.file = where.name
        self.reason = reason


def _read(file: StoreFile) -> bytes:
    try:
        return file.location.read(file.name)
    except FileNotFoundError:
        raise DamagedFile(file, "it is missing") from None


def _decode(file: StoreFile, data: bytes, value_type: type[Value]) -> Value:
    """Decode a JSON file's content as a type; raise `DamagedFile` if it is not valid."""
    with translate(DamagedFile, file, "its content is not valid ({})"):
        return msgspec.json.decode(data, type=value_type)


def read_attributes(location: Location) -> dict[str, Any]:
    """Return a store's attributes; raise `StoreError` if the store is missing or unsupported."""
    file = StoreFile(location, "zarr.json")
    try:
        data = location.read(file.name)
    except FileNotFoundError:
        if isinstance(location, Folder):
            require_folder(location.path, "a feature store", StoreError)
        raise StoreError(
            location.where,
            "is not a feature store: it has no zarr.json; check the address",
        ) from None
    ours = _decode(file, data, _Group).attributes.get(fmt.ATTRIBUTES)
    if not isinstance(ours, dict) or ours.get("format_version") != fmt.FORMAT_VERSION:
        raise StoreError(
            location.where,
            f"is not in format version {fmt.FORMAT_VERSION} of obygaze; if it is newer, update "
            "obygaze",
        )
    check_attributes(file, ours)
    return ours


def unknown_parts(attributes: Mapping[str, Any]) -> list[str]:
    """Return the parts of the recipe that are unknown according to a store's attributes."""
    backbone = attributes["backbone"]
    has_weights = re.fullmatch("[0-9a-f]{64}", str(backbone["weights_sha256"]))
    origin = {
        "backbone": backbone["name"],
        "weights": None if has_weights else UNKNOWN,
        "preprocessing": attributes["preprocessing"].get("mode"),
        "precision": attributes["precision"],
    }
    return [part for part, value in origin.items() if value == UNKNOWN]


def check_attributes(where: object, ours: Mapping[str, Any]) -> None:
    """Raise `StoreError` if an attribute is missing or invalid."""
    with translate(StoreError, where, ": its attributes are not valid ({}); correct them"):
        msgspec.json.encode(ours)  # a lone surrogate cannot be written
        msgspec.convert(ours, _Attributes)
        for spec in fmt.specs_of(ours):
            names = len(set(spec.columns))
            if names and (names,) != spec.shape[-1:]:
                raise ValueError(
                    f"{names} distinct column names do not fit {spec.name} {spec.shape}"
                )


def _parse_table(file: StoreFile, data: bytes, columns: Sequence[str]) -> Table:
    """Parse the content of a store's CSV table."""
    from obygaze_features.common.tables import parse_table

    try:
        text = io.StringIO(data.decode(), newline="")
        return parse_table(Path(file.name), text, required=columns)
    except ValueError as problem:
        reason = f"the table has changed since it was written ({problem!s:.100})"
        raise DamagedFile(file, reason) from problem


def read_rows_table(
    location: Location,
    ids: Sequence[str],
    status: NDArray[np.uint8],
) -> dict[str, list[str]]:
    """Return the columns ``source`` and ``reason`` of a final store's table of rows."""
    file = StoreFile(location, fmt.ROWS)
    table = _parse_table(file, _read(file), ("id", "status", "source", "reason"))
    if table["id"] != ids or table["status"] != [str(code) for code in status.tolist()]:
        raise DamagedFile(file, "the table does not match the store's ids and status")
    return {"source": table["source"], "reason": table["reason"]}


def read_items(location: Location, attributes: Mapping[str, Any]) -> Items:
    """Return a store's items; raise `StoreError` if their table was changed.

    The digest of the items does not include films, which `subset` and `merge` use. So the file must
    match its checksum if the store lists one, and otherwise its items must match the digest.
    """
    from obygaze_features.items.items import Items

    file = StoreFile(location, fmt.ITEMS)
    data = _read(file)
    with errors_as(StoreError):
        items = Items.from_table(_parse_table(file, data, ("id",)))
    expected = attributes["items_digest"]
    with contextlib.suppress(StoreError):  # `verify` reports a damaged checksums.json
        expected = read_checksums(location).get(fmt.ITEMS, expected)
    if hashlib.sha256(data).hexdigest() != expected and items.digest != expected:
        raise DamagedFile(file, "the table has changed since it was written")
    return items


def read_checksums(location: Location) -> dict[str, str]:
    """Return the SHA-256 of each file listed in a store's ``checksums.json``."""
    file = StoreFile(location, fmt.CHECKSUMS)
    return _decode(file, _read(file), dict[str, str])


def read_files(location: Location) -> dict[str, str]:
    """Return the SHA-256 of each file of a store except the log.

    That of ``native.parquet``, if it is there, is an attribute of the group, because versions up to
    0.4 refuse its name in ``checksums.json``.
    """
    files = read_checksums(location)
    group = StoreFile(location, "zarr.json")
    sha256 = None
    with contextlib.suppress(DamagedFile):  # `verify` reports a damaged zarr.json
        sha256 = _decode(group, _read(group), _Group).attributes.get(fmt.PARQUET_DIGEST)
    if sha256 and location.read_ranges([(fmt.PARQUET, 0, 1)], missing_ok=True) != [None]:
        files[fmt.PARQUET] = sha256
    return files


def read_array(location: Location, spec: ArraySpec, attributes: Mapping[str, Any]) -> ShardLayout:
    """Read an array's layout; raise `StoreError` if it is not as obygaze writes it."""
    file = StoreFile(location, f"{spec.name}/zarr.json")
    header = _decode(file, _read(file), dict[str, Any])
    with translate(DamagedFile, file, "its content is not valid ({})"):
        shard = header["chunk_grid"]["configuration"]["chunk_shape"]
        sharding = header["codecs"][0]["configuration"]
        chunk = sharding["chunk_shape"]
        codecs = sharding["codecs"]
        shard_rows, chunk_rows = msgspec.convert([shard[0], chunk[0]], list[fmt.Count])
        found = [header["shape"], header["data_type"], shard, chunk]

    row = [*spec.shape]
    expected = [[attributes["n"], *row], spec.dtype, [shard_rows, *row], [chunk_rows, *row]]
    if found != expected or shard_rows % chunk_rows or codecs not in (_CHECKED, _COMPRESSED):
        raise DamagedFile(file, "it does not describe an array of this store in obygaze's layout")
    return ShardLayout(spec, shard_rows, chunk_rows, codecs == _COMPRESSED)


def read_bytes_array(file: StoreFile, n: int, width: int | None = None) -> NDArray[np.uint8]:
    """Read `n` rows of `width` bytes (None: any width), stored as one chunk with a checksum.

    The array's ``zarr.json`` is not needed, because the length of the file determines the width.
    """
    data = _read(file)
    if width is None:
        width = max(1, (len(data) - CHECKSUM_BYTES) // n)
    if len(data) != n * width + CHECKSUM_BYTES:
        raise DamagedFile(file, "it has the wrong length")
    if not is_intact(data):
        raise DamagedFile(file, "its checksum is wrong")
    return np.frombuffer(data, np.uint8, n * width).reshape(n, width)
