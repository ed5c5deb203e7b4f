"""What the small files of a store say, read and checked, so that nothing later has to doubt it.

Zarr's own reader is not needed for this, and takes longer to import than a store to open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import require_folder
from obygaze_features.common.tables import read_table
from obygaze_features.common.text import is_folder_of
from obygaze_features.errors import ManifestError, StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.format import BlockRecord, Status
from obygaze_features.store.location import Folder, Location, as_file, read_json_at

__all__ = [
    "check_attributes",
    "is_count",
    "read_attributes",
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
_ROW_COLUMNS = ["id", "status", "source", "reason"]


def remedy(location: Location) -> str:
    """What to do about a damaged store."""
    if isinstance(location, Folder):
        return f"run: obygaze stores repair {location.where}"
    return "get it anew from where it came from, or tell whoever offers it"


def read_attributes(location: Location) -> dict[str, Any]:
    """The attributes of a store; `StoreError` if there is none, or one to come."""
    try:
        group = read_json_at(location, "zarr.json")
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(_no_store(location)) from None
    attributes = group.get("attributes") if isinstance(group, dict) else None
    ours = attributes.get(spec.ATTRIBUTES) if isinstance(attributes, dict) else None
    if not isinstance(ours, dict):
        raise StoreError(f"{location.where} is a Zarr group, but not one that obygaze made")
    if ours.get("format_version") != spec.FORMAT_VERSION:
        raise StoreError(
            f"{location.where} has format version {ours.get('format_version')!r:.20}, "
            f"and this obygaze reads version {spec.FORMAT_VERSION}"
        )
    check_attributes(location.join("zarr.json"), ours)
    return ours


def _no_store(location: Location) -> str:
    """What there is instead of a store."""
    if location.exists(spec.CHECKSUMS):
        return (
            f"{location.where} is incomplete: it has no zarr.json; if a push to it was cut off, "
            "run the push again"
        )
    if isinstance(location, Folder):
        if not location.path.exists():
            require_folder(location.path, "a feature store", StoreError)
        if inner := sorted(one.name for one in location.path.glob("*.zarr")):
            return is_folder_of(location.path, "store", location.path / inner[0])
    elif missing := location.describe_missing():
        return f"{missing}; check the address"
    return f"{location.where} is not a feature store: it has no zarr.json"


def check_attributes(header: object, ours: Mapping[str, Any]) -> None:
    """Raise on the first attribute that is missing or not what it should be."""

    def wrong(key: str, meant: str) -> NoReturn:
        have = f"{ours[key]!r:.40}" if key in ours else "missing"
        raise StoreError(f"{header}: the attribute {key} is {have}; {meant} is meant")

    for key in ("n", "block_rows"):
        if not is_count(ours.get(key)):
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
            and all(is_count(size) for size in one["shape"])
            and one.get("dtype") in _DTYPES
            and isinstance(one.get("meaning"), str)
        ):
            raise StoreError(f"{header}: the array {name} has no shape, dtype and meaning")


def read_record(
    location: Location, block: int, ids: Sequence[str], arrays: Sequence[str]
) -> BlockRecord | None:
    """A commit record, if there is one; `StoreError` if it is not that of the block's ids."""
    name = spec.record_name(block)
    where, why = (
        location.join(name),
        f"it is not the commit record of block {block} as it was written",
    )
    try:
        record = BlockRecord.from_json(read_json_at(location, name))
        if _is_right(record, block, ids, arrays):
            return record
    except (FileNotFoundError, NotADirectoryError):
        return None
    except StoreError as problem:
        why = str(problem).removeprefix(f"{where} ")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        pass
    hit = f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else ids[0]
    raise StoreError(f"{where}: {why}; the rows of {hit} cannot be read; {remedy(location)}")


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


def read_rows_table(
    location: Location, ids: Sequence[str], status: NDArray[np.uint8]
) -> dict[str, list[str]]:
    """The columns ``source`` and ``reason`` of a final store's table of rows."""
    try:
        with as_file(location, spec.ROWS) as file:
            table = read_table(file, required=_ROW_COLUMNS)
    except ManifestError as problem:
        raise StoreError(f"{problem}; {remedy(location)}") from None
    if table["id"] != ids or table["status"] != [str(code) for code in status.tolist()]:
        raise StoreError(
            f"{location.join(spec.ROWS)} does not go with ids and status; {remedy(location)}"
        )
    return {"source": table["source"], "reason": table["reason"]}


def read_status_column(location: Location, n: int) -> NDArray[np.uint8]:
    """The status of each row by ``rows.csv``, for a store whose own array of it is damaged."""
    try:
        with as_file(location, spec.ROWS) as file:
            codes = read_table(file, required=["status"])["status"]
    except ManifestError as problem:
        raise StoreError(str(problem)) from None
    known = {str(int(one)) for one in Status}
    if len(codes) != n or not known.issuperset(codes):
        raise StoreError(
            f"{location.join(spec.ROWS)} does not say the status of {n} rows; {remedy(location)}"
        )
    return np.array(codes, np.uint8)


def is_count(value: object) -> bool:
    """Whether a value is a whole number above zero, as sizes are."""
    return type(value) is int and 0 < value < 2**62
