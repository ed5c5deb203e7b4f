"""Which files a store consists of, by its arrays and rows, and whether its list names these."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from obygaze_features.common.files import require_plain_file
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.format import Status
from obygaze_features.store.location import Folder, Location, read_json_at
from obygaze_features.store.metadata import read_checksums
from obygaze_features.store.reader import Store, open_store


def list_final_files(path: Path, action: str) -> tuple[dict[str, str], dict[str, int]]:
    """The checksums of a final store in a folder, and the bytes of all its files.

    `StoreError` if it is open, or if its list is not that of its files; `action` says what is not
    done then ("packed").
    """
    store = open_store(path)
    if not isinstance(store.location, Folder):
        raise StoreError(
            f"{path} is not a folder and cannot be {action}; unpack it first: "
            f"obygaze stores unpack {path} -o NAME.zarr"
        )
    if not store.is_final:
        raise StoreError(
            f"{path} is still open and cannot be {action}; run: obygaze stores finalise {path}"
        )
    checksums = read_checksums(store.location)
    check_listed_files(store.where, store, checksums)
    require_plain_file(path / fmt.LOG, StoreError)  # the only file without a checksum
    sizes = {}
    for name in (*checksums, fmt.CHECKSUMS, fmt.LOG):
        try:
            sizes[name] = (path / name).stat().st_size
        except OSError as problem:
            if name != fmt.LOG:
                reason = f"cannot be read ({problem.strerror})"
                raise damaged_file(path, name, reason, action) from None
    return checksums, sizes


def damaged_file(path: Path, name: str, reason: str, action: str) -> StoreError:
    """The error for a file that is not right, so that the store is not packed or pushed."""
    return StoreError(
        f"{path / name} {reason}, so the store is not {action}; run: obygaze stores verify {path}"
    )


def unrelated_files(path: Path, names: Collection[str]) -> list[str]:
    """What is in a store's folder and is none of its files."""
    files = (file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir())
    return sorted(set(files).difference(names))


def check_listed_files(where: object, store: Store, checksums: Mapping[str, str]) -> None:
    """Raise unless a final store, at `where`, lists exactly the files that one like it has."""
    expected = _metadata_files(store, checksums)
    if expected <= checksums.keys():  # else its status may be missing
        expected |= _shard_files(store)
    if missing := sorted(expected - checksums.keys()):
        raise StoreError(f"{where}: {fmt.CHECKSUMS} does not list {missing[0]!r:.80}")
    if unknown := sorted(checksums.keys() - expected):
        raise StoreError(f"{where}: {fmt.CHECKSUMS} lists {unknown[0]!r:.80}, not a store's file")


def expected_files(store: Store, listed: Collection[str]) -> set[str]:
    """All files of a final store but checksums and log; optional ones only if they are listed."""
    return _metadata_files(store, listed) | _shard_files(store)


def _metadata_files(store: Store, listed: Collection[str]) -> set[str]:
    names = {"zarr.json", fmt.ITEMS, fmt.ROWS, fmt.CARD, fmt.CROISSANT}
    names |= {f"{array}/zarr.json" for array in (*store.arrays, fmt.IDS, fmt.STATUS)}
    names |= {f"{fmt.IDS}/c/0/0", f"{fmt.STATUS}/c/0"}
    for name in set(fmt.COORDINATES).difference(store.arrays):
        files = {f"{name}/zarr.json", f"{name}/c/0"}
        if not files.isdisjoint(listed):
            names |= files
    if any(name.startswith(f"{fmt.PROBE}/") for name in listed):
        names.add(f"{fmt.PROBE}/zarr.json")
        for spec in store.specs:
            files = {
                f"{fmt.PROBE}/{spec.name}/zarr.json",
                f"{fmt.PROBE}/{fmt.shard_name(spec, 0)}",
            }
            if not files.isdisjoint(listed):
                names |= files
    return names


def _shard_files(store: Store) -> set[str]:
    """The shards with a row that is done."""
    done = np.flatnonzero(store.status == Status.DONE)
    return {
        fmt.shard_name(array.spec, shard)
        for array in store.stored.values()
        for shard in np.unique(done // array.layout.shard_rows).tolist()
    }


def described_files(location: Location) -> dict[str, str]:
    """The SHA-256 of each file that ``croissant.json`` describes; none if it is damaged."""
    try:
        files = read_json_at(location, fmt.CROISSANT)["distribution"]
        return {str(file["@id"]): str(file["sha256"]) for file in files}
    except (FileNotFoundError, StoreError, LookupError, TypeError):
        return {}


def committed_files(store: Store) -> set[str]:
    """The paths that the shards of all committed blocks may have."""
    names: set[str] = set()
    for block in range(store.blocks):
        try:
            record = store.read_record(block)
        except StoreError:
            continue
        for spec in store.specs:
            if record and (sha256 := record.shards[spec.name]):
                names |= {fmt.staged_name(spec, block, sha256), fmt.shard_name(spec, block)}
    return names
