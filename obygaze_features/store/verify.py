"""Verify a store: check the checksum of every file, and list damaged rows by id.

This module also defines which files belong to a store, given its arrays and rows.

The SHA-256 of a shard is in its block's record, or in ``checksums.json`` for a final store. Each
chunk of a shard also has a checksum, which shows which rows are damaged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.files import (
    Folder,
    Location,
    is_store_name,
    location_of,
    sha256_at,
)
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.metadata import DamagedFile, NewerStore, StoredArray, read_checksums
from obygaze_features.store.reader import Store, open_at
from obygaze_features.store.rows import open_shard
from obygaze_features.store.shards import DamagedChunk

CHANGED = "it was changed"
"""The reason given for a file that does not match its SHA-256."""
_PROCESS_FILE = re.compile(r"(blocks|claims)/[0-9]{6,}\.json")
"""A pattern for records and claims, which writers may publish at any time."""


@dataclass(frozen=True)
class Damage:
    """A damaged file of a store, and the ids of the rows that are affected."""

    file: str
    array: str | None
    ids: tuple[str, ...]
    why: str
    harmless: bool = False
    """True if no row is affected: the file is unused, or its change has no consequences."""


def verify(address: Path | str) -> list[Damage]:
    """Read a whole store, open or final, and return a list of the damage. Nothing is changed.

    Takes the same addresses as `open_store`. Raises `StoreError` if there is no store, or if its
    format is too new.
    """
    location = location_of(address)
    checksums, damage = {}, list[Damage]()
    try:
        checksums = read_checksums(location)
    except DamagedFile as problem:
        damage = [Damage(problem.file, None, (), problem.reason)]
    try:
        store = open_at(location)
    except StoreError as problem:
        if compare_file(location, fmt.ITEMS, None) or isinstance(problem, NewerStore):
            raise
        changed = list(_find_changed(location, checksums))
        return changed or [_as_damage(problem)]
    shards = {
        name for name in checksums if name.partition("/c/")[0] in store.arrays and "/c/" in name
    }
    others = {name: sha256 for name, sha256 in checksums.items() if name not in shards}
    damage += _find_changed(location, others)
    if isinstance(location, Folder):
        log = location.path / fmt.LOG
        if log.is_symlink() or (log.exists() and not log.is_file()):
            damage.append(Damage(fmt.LOG, None, (), "it is a link, a device or a folder"))
    checks = [_check_blocks(store)]
    if store.is_final:
        checks = [_check_final_shards(store, checksums), _check_listing(store, checksums)]
    try:
        for check in (*checks, _find_leftovers(store, checksums)):
            named = {entry.file for entry in damage}
            damage += [entry for entry in check if entry.file not in named]
    except StoreError as problem:  # the ids or statuses are unreadable
        return damage or [_as_damage(problem)]
    return damage


def compare_file(location: Location, name: str, sha256: str | None) -> str | None:
    """Describe the damage to a file, if any; without a checksum, only try to read the file."""
    if not is_store_name(name):
        return "a store cannot have a file with this name"
    try:
        actual = sha256_at(location, name)
    except FileNotFoundError:
        return "it is missing"
    return CHANGED if sha256 and actual != sha256 else None


def _as_damage(problem: StoreError) -> Damage:
    if isinstance(problem, DamagedFile):
        return Damage(problem.file, None, (), problem.reason)
    return Damage("zarr.json", None, (), str(problem))


def _find_changed(location: Location, checksums: Mapping[str, str]) -> Iterator[Damage]:
    """Yield the files that are missing or were changed."""
    files = progress(checksums.items(), "Metadata", unit="file", total=len(checksums))
    for name, sha256 in files:
        if reason := compare_file(location, name, sha256):
            yield Damage(name, name.partition("/")[0] if "/" in name else None, (), reason)


def _check_blocks(store: Store) -> Iterator[Damage]:
    """Yield damage to the records of an open store, and to the shards that they name."""
    for block in progress(range(store.blocks), "Verifying", unit="block"):
        # A writer may move a file between two reads; only real damage is found twice.
        if list(_check_block(store, block)):
            yield from _check_block(store, block)


def _check_block(store: Store, block: int) -> Iterator[Damage]:
    try:
        record = store.read_record(block)
    except DamagedFile as problem:
        rows = store.rows_of_block(block)
        yield Damage(problem.file, None, tuple(store.ids[rows.start : rows.stop]), problem.reason)
        return
    if record is None:
        return
    done = np.array(record.status) == Status.DONE
    for array in map(store.stored, store.arrays):
        if sha256 := record.shards[array.spec.name]:
            file = _find_shard(store, array.spec, record)
            yield from _check_shard(store, array, file, sha256, done, block)


def _find_shard(store: Store, spec: ArraySpec, record: BlockRecord) -> str:
    """Return the file name of a committed shard, which may still be in ``staging/``."""
    staged = fmt.staged_name(spec, record.block, record.shards[spec.name] or "")
    return staged if store.location.exists(staged) else fmt.shard_name(spec, record.block)


def _check_final_shards(store: Store, checksums: Mapping[str, str]) -> Iterator[Damage]:
    """Yield damage to the shards of a final store."""
    done = store.status == Status.DONE
    shards = [
        (array, shard)
        for array in map(store.stored, store.arrays)
        for shard in range(-(-len(store) // array.layout.shard_rows))
    ]
    for array, shard in progress(shards, "Verifying", unit="shard"):
        size = array.layout.shard_rows
        in_shard = done[shard * size : (shard + 1) * size]
        name = fmt.shard_name(array.spec, shard)
        if in_shard.any():
            yield from _check_shard(store, array, name, checksums.get(name), in_shard, shard)


def _check_shard(
    store: Store,
    array: StoredArray,
    name: str,
    sha256: str | None,
    done: NDArray[np.bool_],
    shard: int,
) -> Iterator[Damage]:
    """Yield damage to a shard; `done` is the mask of the rows that it must have."""
    reason = compare_file(store.location, name, sha256)
    rows = np.flatnonzero(done)
    # Intact remote shards are not downloaded a second time.
    read_chunks = reason == CHANGED or (reason is None and (store.location.is_local or not sha256))
    by_reason = _find_damaged_rows(store, array, name, rows) if read_chunks else {}
    if reason is not None and not by_reason:
        # If all chunks of a final shard are intact, the list may be wrong, so no rows are named.
        is_unsure = store.is_final and reason == CHANGED
        by_reason = {reason: [] if is_unsure else rows.tolist()}
    first = shard * array.layout.shard_rows
    for reason, damaged in by_reason.items():
        ids = tuple(store.ids[first + row] for row in damaged)
        yield Damage(name, array.spec.name, ids, reason)


def _find_damaged_rows(
    store: Store, array: StoredArray, name: str, rows: NDArray[np.intp]
) -> dict[str, list[int]]:
    """Return the unreadable rows of a shard by reason, counted from the shard's start."""
    damaged: dict[str, list[int]] = {}
    try:
        reader = open_shard(store.location, name, array)
    except DamagedChunk as problem:
        return {problem.reason: rows.tolist()}
    chunks = rows // array.layout.chunk_rows
    for chunk in np.unique(chunks).tolist():
        in_chunk = rows[chunks == chunk]
        try:
            reader.read(in_chunk)
        except DamagedChunk as problem:
            damaged.setdefault(problem.reason, []).extend(in_chunk.tolist())
    reader.forget()
    return damaged


def _check_listing(store: Store, checksums: Mapping[str, str]) -> Iterator[Damage]:
    """Yield files that a final store has but does not list, or lists but should not have."""
    unlisted, unknown = compare_list(store, checksums) if checksums else ([], [])
    for name in unlisted:
        reason = compare_file(store.location, name, None)
        prefix = f"{reason}, and " if reason else ""
        yield Damage(name, None, (), f"{prefix}{fmt.CHECKSUMS} does not list it")
    for name in unknown:
        yield Damage(name, None, (), f"{fmt.CHECKSUMS} lists it, but stores have no such file")


def compare_list(store: Store, listed: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the files missing from a final store's list, and the files that it should not list.

    The probe, the coordinates and an older store's second card are optional.
    """
    names = {"zarr.json", fmt.ITEMS, fmt.ROWS, fmt.CARD}
    names |= {f"{array}/zarr.json" for array in (*store.arrays, fmt.IDS, fmt.STATUS)}
    names |= {f"{fmt.IDS}/c/0/0", f"{fmt.STATUS}/c/0"}
    done = np.flatnonzero(store.status == Status.DONE)
    names |= {
        fmt.shard_name(array.spec, shard)
        for array in map(store.stored, store.arrays)
        for shard in np.unique(done // array.layout.shard_rows).tolist()
    }
    optional = {fmt.CROISSANT, f"{fmt.PROBE}/zarr.json"}
    for spec in store.specs:
        optional |= {f"{fmt.PROBE}/{spec.name}/zarr.json", f"{fmt.PROBE}/{fmt.shard_name(spec, 0)}"}
    for name in fmt.COORDINATES:
        optional |= {f"{name}/zarr.json", f"{name}/c/0"}
    return sorted(names.difference(listed)), sorted(set(listed) - names - optional)


def check_list(store: Store, checksums: Mapping[str, str]) -> None:
    """Raise `StoreError` unless a final store lists exactly the files that it should have."""
    unlisted, unknown = compare_list(store, checksums)
    if unlisted or unknown:
        reason = f"does not list {unlisted[0]!r:.80}" if unlisted else f"lists {unknown[0]!r:.80}"
        addition = "" if unlisted else ", which is not a store's file"
        raise StoreError(f"{store.where}: {fmt.CHECKSUMS} {reason}{addition}")


def committed_files(store: Store) -> set[str]:
    """Return all paths at which the shards of committed blocks may be, staged or moved."""
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


def _find_leftovers(store: Store, checksums: Mapping[str, str]) -> Iterator[Damage]:
    """Yield files in a store's folder that neither a record nor the checksum list names."""
    if not isinstance(store.location, Folder):
        return
    root = store.path
    files = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    if store.is_final:
        # A damaged checksums.json says nothing about the other files.
        names = files - {*checksums, fmt.CHECKSUMS, fmt.LOG} if checksums else set()
        reason = "it is not part of the store"
    else:
        folders = (fmt.STAGING, fmt.RECORDS, fmt.CLAIMS, *(f"{name}/c" for name in store.arrays))
        written = (".", *(f"{folder}/" for folder in folders))
        names = {name for name in files if name.startswith(written)} - committed_files(store)
        names = {name for name in names if not _PROCESS_FILE.fullmatch(name)}
        reason = "it does not belong to any block: a writer was killed, or is still writing it"
    for name in sorted(names):
        array = name.partition("/c/")[0] if "/c/" in name else None
        yield Damage(name, array, (), reason, harmless=True)
