"""Checking a store: every byte against a checksum that was kept of it, and rows named by id."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.common.tables import read_table
from obygaze_features.errors import ManifestError, StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.checksums import (
    CHANGED,
    compare,
    read_checksums,
    without_consolidated,
)
from obygaze_features.store.contents import plain_files, shard_files
from obygaze_features.store.damage import Damage, brief, in_blocks, in_final_shards
from obygaze_features.store.leftovers import leftovers
from obygaze_features.store.location import Location, as_file, location_of, read_json_at
from obygaze_features.store.metadata import read_status_column
from obygaze_features.store.reader import Store, open_at

__all__ = ["Damage", "verify"]


def verify(address: Path | str) -> list[Damage]:
    """Read a whole store again, open or final, and list what is damaged; nothing is changed.

    Parameters
    ----------
    address
        The store, as for `open_store`. `StoreError` if it never was one.
    """
    location = location_of(address)
    try:
        sums, found = read_checksums(location), []
        listed = True
    except StoreError as problem:
        listed = False
        sums, found = {}, [Damage(spec.CHECKSUMS, None, (), brief(location, problem))]
    try:
        store = open_at(location)
    except StoreError as problem:
        if compare(location, spec.ITEMS, None) or _is_newer(location):
            raise
        changed = list(_changed(location, sums))
        return changed or [Damage("zarr.json", None, (), brief(location, problem))]
    shards = {name for name in sums if name.partition("/c/")[0] in store.arrays and "/c/" in name}
    found += _changed(location, {name: sums[name] for name in sums if name not in shards})
    found += _wrong_copies(location, [name for name in sums if name.endswith("/zarr.json")])
    try:
        ids = _known_ids(store)
        if store.is_final:
            found += in_final_shards(store, ids, _known_status(store), sums)
        else:
            found += in_blocks(store, ids)
        if store.is_final and listed:
            known = {one.file for one in found}
            found += [one for one in _wrongly_listed(store, sums) if one.file not in known]
    except StoreError as problem:
        return found or [Damage(spec.IDS, None, (), brief(location, problem))]
    known = {one.file for one in found}
    return [*found, *(one for one in leftovers(store, ids, sums) if one.file not in known)]


def _known_ids(store: Store) -> list[str]:
    """The ids, from the table of items if the array is damaged."""
    try:
        return store.ids
    except StoreError:
        return _column(store.location, spec.ITEMS, "id")


def _known_status(store: Store) -> NDArray[np.uint8]:
    """The status of a final store's rows, from the table of rows if the array is damaged."""
    try:
        return store.status
    except StoreError:
        return read_status_column(store.location, len(store))


def _column(location: Location, table: str, name: str) -> list[str]:
    try:
        with as_file(location, table) as file:
            return read_table(file, required=[name])[name]
    except ManifestError as problem:
        raise StoreError(str(problem)) from None


def _is_newer(location: Location) -> bool:
    try:
        group = json.loads(location.read("zarr.json"))
        version = group["attributes"][spec.ATTRIBUTES]["format_version"]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return isinstance(version, int) and version > spec.FORMAT_VERSION


def _changed(location: Location, sums: Mapping[str, str]) -> Iterator[Damage]:
    """The files that are lost, or not as they were."""
    for name, sha256 in progress(sums.items(), "Metadata", unit="file", total=len(sums)):
        if why := compare(location, name, sha256):
            changed = name == "zarr.json" and why == CHANGED
            if changed and without_consolidated(location.read(name), sha256):
                reason = "its metadata was consolidated after it was written"
                yield Damage(name, None, (), reason, harmless=True)
                continue
            yield Damage(name, name.partition("/")[0] if "/" in name else None, (), why)


def _wrong_copies(location: Location, headers: Sequence[str]) -> Iterator[Damage]:
    """Where consolidated metadata, which Zarr reads instead of an array's own, is not the same."""
    group = read_json_at(location, "zarr.json")
    if "consolidated_metadata" not in group:
        return
    try:
        copies = dict(group["consolidated_metadata"]["metadata"])
    except (KeyError, TypeError, ValueError):
        copies = {}
    for name in sorted({header.removesuffix("/zarr.json") for header in headers} | copies.keys()):
        try:
            own = read_json_at(location, f"{name}/zarr.json")
        except (StoreError, OSError):
            own = None
        if own is None and f"{name}/zarr.json" in headers:
            continue  # named as lost, or as damaged
        copy = copies.get(name)
        if isinstance(copy, dict) and copy.get("node_type") == "group":
            copy = {key: value for key, value in copy.items() if key != "consolidated_metadata"}
        if own != copy:
            reason = f"its consolidated metadata differs from {name}/zarr.json"
            yield Damage("zarr.json", None, (), reason)


def _wrongly_listed(store: Store, sums: Mapping[str, str]) -> Iterator[Damage]:
    """Where a final store's list of checksums is not that of its files, though all it has hold."""
    names = plain_files(store, sums) | shard_files(store, _known_status(store))
    for name in sorted(names - sums.keys()):
        why = compare(store.location, name, None)
        lost = f"{why}, and " if why else ""
        yield Damage(name, None, (), f"{lost}{spec.CHECKSUMS} does not list it")
    for name in sorted(sums.keys() - names):
        yield Damage(name, None, (), f"{spec.CHECKSUMS} lists it, and no such store has it")
