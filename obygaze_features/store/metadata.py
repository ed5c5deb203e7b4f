"""Reads and checks the small files of a store, so that later code can trust what they say.

Zarr's own reader takes longer to import than a store takes to open, and is not needed for this.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import describe_other_kind, require_folder, sha256_of
from obygaze_features.common.tables import read_table
from obygaze_features.common.text import is_folder_of
from obygaze_features.errors import ManifestError, StoreError
from obygaze_features.manifests import Items
from obygaze_features.store import format as fmt
from obygaze_features.store.format import BlockRecord, Status
from obygaze_features.store.location import Folder, Location, as_file, read_json_at
from obygaze_features.store.remote import Remote

_TEXTS = ("name", "manifest", "items_digest", "precision", "licence", "citation", "software")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SHA256 = re.compile("[0-9a-f]{64}")
_RESERVED = {fmt.IDS, fmt.STATUS, fmt.RECORDS, fmt.PROBE, fmt.STAGING, fmt.CLAIMS}
_DTYPES = ("float32", "float16", "float64", "int32")
_ROW_COLUMNS = ["id", "status", "source", "reason"]


def remedy(location: Location) -> str:
    """What to do about a damaged store."""
    if isinstance(location, Folder):
        return f"run: obygaze stores repair {location.where}"
    return "download it again, or tell its owner"


def read_attributes(location: Location) -> dict[str, Any]:
    """The attributes of a store; `StoreError` if there is no store, or one of a newer format."""
    try:
        group = read_json_at(location, "zarr.json")
    except FileNotFoundError:
        raise StoreError(_describe_no_store(location)) from None
    attributes = group.get("attributes") if isinstance(group, dict) else None
    ours = attributes.get(fmt.ATTRIBUTES) if isinstance(attributes, dict) else None
    if not isinstance(ours, dict):
        raise StoreError(f"{location.where} is a Zarr group, but not one that obygaze made")
    if ours.get("format_version") != fmt.FORMAT_VERSION:
        raise StoreError(
            f"{location.where} has format version {ours.get('format_version')!r:.20}, "
            f"and this obygaze reads version {fmt.FORMAT_VERSION}"
        )
    check_attributes(location.join("zarr.json"), ours)
    return ours


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
    elif isinstance(location, Remote) and (missing := location.describe_missing()):
        return f"{missing}; check the address"
    return f"{location.where} is not a feature store: it has no zarr.json"


def check_attributes(header: object, ours: Mapping[str, Any]) -> None:
    """Raise on the first attribute that is missing or wrong."""

    def refuse(key: str, expected: str) -> NoReturn:
        value = f"{ours[key]!r:.40}" if key in ours else "missing"
        raise StoreError(f"{header}: the attribute {key} is {value}; expected {expected}")

    for key in ("n", "block_rows"):
        if not is_count(ours.get(key)):
            refuse(key, "a whole number above zero")
    if ours.get("state") not in ("open", "final"):
        refuse("state", "'open' or 'final'")
    for key in _TEXTS:
        if not isinstance(ours.get(key), str):
            refuse(key, "text")
    for key in ("backbone", "preprocessing"):
        if not isinstance(ours.get(key), dict):
            refuse(key, "an object")
    backbone = {"config": {}, **ours["backbone"]}
    types = {"name": str, "weights_sha256": str, "config": dict}
    if not all(isinstance(backbone.get(key), kind) for key, kind in types.items()):
        refuse("backbone", "an object with the texts name and weights_sha256, and config an object")
    arrays = ours.get("arrays")
    if not isinstance(arrays, dict) or not arrays:
        refuse("arrays", "an object with a key for each array")
    for name, array in arrays.items():
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise StoreError(f"{header}: {name!r:.40} is not a valid array name")
        if not (
            isinstance(array, dict)
            and isinstance(array.get("shape"), list)
            and all(is_count(size) for size in array["shape"])
            and array.get("dtype") in _DTYPES
            and isinstance(array.get("meaning"), str)
        ):
            raise StoreError(f"{header}: the array {name} has no valid shape, dtype and meaning")


def read_record(
    location: Location, block: int, ids: Sequence[str], arrays: Sequence[str]
) -> BlockRecord | None:
    """A commit record, if there is one; `StoreError` if it does not match the block's ids."""
    name = fmt.record_name(block)
    where, reason = location.join(name), f"it is not the commit record of block {block}"
    try:
        record = BlockRecord.from_json(read_json_at(location, name))
        if _is_valid(record, block, ids, arrays):
            return record
    except FileNotFoundError:
        return None
    except StoreError as problem:
        reason = str(problem).removeprefix(f"{where} ")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        pass
    affected = f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else ids[0]
    raise StoreError(
        f"{where}: {reason}; the rows of {affected} cannot be read; {remedy(location)}"
    )


def _is_valid(record: BlockRecord, block: int, ids: Sequence[str], arrays: Sequence[str]) -> bool:
    """Whether an undamaged record belongs to this store and this block."""
    has_shards = Status.DONE in record.status
    failed = {id_ for id_, code in zip(ids, record.status, strict=False) if code > Status.DONE}
    return (
        record.block == block
        and len(record.status) == len(record.sources) == len(ids)
        and all(type(code) is int for code in record.status)
        and 0 <= min(record.status) <= max(record.status) <= max(Status)
        and all(source is None or isinstance(source, str) for source in record.sources)
        and record.failures.keys() == failed
        and all(isinstance(reason, str) for reason in record.failures.values())
        and record.shards.keys() == set(arrays)
        and all(
            isinstance(sha256, str) and _SHA256.fullmatch(sha256) if has_shards else sha256 is None
            for sha256 in record.shards.values()
        )
    )


def read_rows_table(
    location: Location, ids: Sequence[str], status: NDArray[np.uint8]
) -> dict[str, list[str]]:
    """The columns ``source`` and ``reason`` of a final store's table of rows."""
    try:
        with as_file(location, fmt.ROWS) as file:
            table = read_table(file, required=_ROW_COLUMNS)
    except ManifestError as problem:
        raise StoreError(f"{problem}; {remedy(location)}") from None
    if table["id"] != ids or table["status"] != [str(code) for code in status.tolist()]:
        where = location.join(fmt.ROWS)
        raise StoreError(f"{where} does not match the store's ids and status; {remedy(location)}")
    return {"source": table["source"], "reason": table["reason"]}


def read_items(location: Location, attributes: Mapping[str, Any]) -> Items:
    """The items of a store; `StoreError` if the table was changed since it was written.

    The items' digest does not include films, which subset and merge use; so the file must also
    match its checksum, where the store has one.
    """
    where = location.join(fmt.ITEMS)
    try:
        with as_file(location, fmt.ITEMS) as file:
            items = Items.from_table(read_table(file, required=["id"]))
            sha256 = sha256_of(file)
    except ManifestError as problem:
        raise StoreError(f"{where}: {problem}") from None
    checksums: dict[str, str] = {}
    with contextlib.suppress(StoreError):  # `verify` reports a damaged checksums.json
        checksums = read_checksums(location)
    if checksums.get(fmt.ITEMS) not in (None, sha256) or items.digest != attributes["items_digest"]:
        raise StoreError(
            f"{where} is not the table that the store was made for; restore it from the manifest "
            "or from another copy of the store"
        )
    return items


def read_checksums(location: Location) -> dict[str, str]:
    """The SHA-256 of each file that a store's ``checksums.json`` lists."""
    where = location.join(fmt.CHECKSUMS)
    try:
        checksums = read_json_at(location, fmt.CHECKSUMS)
    except FileNotFoundError:
        raise StoreError(f"{where} is missing") from None
    if not isinstance(checksums, dict):
        raise StoreError(f"{where} is not a list of checksums")
    return {str(name): str(sha256) for name, sha256 in checksums.items()}


def is_count(value: object) -> bool:
    """Whether a value is a whole number above zero, as sizes are."""
    return type(value) is int and 0 < value < 2**62
