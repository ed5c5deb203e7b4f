"""Verify a store: compare every file with its checksum, and name the damaged rows. Repair it.

The SHA-256 of a shard is in its block's record, or in ``checksums.json`` for a final store. If a
shard does not match, the checksum of each of its chunks shows which rows are damaged.

A repair drops the damaged rows, and the next extraction computes them again. Other damaged files
(metadata, items, ids, tables) have to be restored from a copy of the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import (
    clear_unfinished,
    disk_errors,
    require_plain_file,
    sync_path,
)
from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.combine import NO_SOURCE, Plan, write_plan
from obygaze_features.store.files import Folder, Location, is_store_name, location_of, sha256_at
from obygaze_features.store.format import Status
from obygaze_features.store.metadata import DamagedFile, NewerStore, StoredArray, read_checksums
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.rows import Shard
from obygaze_features.store.writer import StoreWriter, append_to_log

CHANGED = "it was changed"
"""The reason given for a file that does not match its SHA-256."""
_MISSING = "it is missing"


@dataclass(frozen=True)
class Damage:
    """A damaged file of a store, and the ids of the rows that are affected."""

    file: str
    ids: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Repair:
    """The result of a repair."""

    path: Path
    damage: tuple[Damage, ...]
    """The damage that was repaired."""
    to_do: tuple[str, ...]
    """The ids of the dropped rows, which an extraction has to compute again."""
    reopened: bool


def verify(store: Store | Path | str) -> list[Damage]:
    """Read a whole store, open or final, and return a list of the damage. Nothing is changed.

    Takes a store, or its address, because a damaged store may not open. Raises `StoreError` if
    there is no store, or if its format is too new.
    """
    if isinstance(store, Store):
        store = store.location.address
    location = location_of(store)
    checksums, reasons = _compare_files(location)
    rows: list[Damage] = []
    try:
        opened = Store(location)
        if not opened.is_final:
            rows = list(_check_blocks(opened))
        else:
            rows = list(_check_shards(opened, reasons))
            if checksums:  # unless the list is damaged itself
                reasons = compare_list(opened, checksums) | reasons
    except StoreError as problem:
        if isinstance(problem, NewerStore) or not location.exists(fmt.ITEMS):
            raise
        reasons = _reason(problem) | reasons
    named = {entry.file for entry in rows}
    files = [Damage(name, (), why) for name, why in reasons.items() if name not in named]
    return files + rows


def _compare_files(location: Location) -> tuple[dict[str, str], dict[str, str]]:
    """Return the checksum of each listed file, and the reason for each file that is damaged."""
    checksums: dict[str, str] = {}
    reasons = {}
    try:
        checksums = read_checksums(location)
    except DamagedFile as problem:
        reasons = _reason(problem)
    for name, sha256 in progress(checksums.items(), "Verifying", unit="file", total=len(checksums)):
        reason = compare_file(location, name, sha256)
        if reason:
            reasons[name] = reason

    if isinstance(location, Folder):
        try:
            require_plain_file(location.path / fmt.LOG, StoreError)
        except StoreError as problem:
            reasons[fmt.LOG] = str(problem)
    return checksums, reasons


def compare_file(location: Location, name: str, sha256: str) -> str | None:
    """Describe the damage to a file, if any."""
    if not is_store_name(name):
        return "a store cannot have a file with this name"
    try:
        actual = sha256_at(location, name)
    except FileNotFoundError:
        return _MISSING
    if actual != sha256:
        return CHANGED
    return None


def _reason(problem: StoreError) -> dict[str, str]:
    """Return the reason for an error, by the name of the damaged file."""
    if isinstance(problem, DamagedFile):
        return {problem.file: problem.reason}
    return {"zarr.json": str(problem)}


def _check_blocks(store: Store) -> Iterator[Damage]:
    """Yield damage to the records of an open store, and to the shards that they name."""
    for block in progress(range(store.blocks), "Verifying", unit="block"):
        rows = np.array(store.rows_of_block(block))
        try:
            record = store.read_records([block]).get(block)
        except DamagedFile as problem:
            yield Damage(problem.file, _ids(store, rows), problem.reason)
            continue
        if record is None:
            continue

        done = rows[np.array(record.status) == Status.DONE]
        for spec in store.specs:
            sha256 = record.shards[spec.name]
            if sha256 is None:
                continue
            # It is staged until it is moved.
            for name in (fmt.staged_name(spec, block, sha256), fmt.shard_name(spec, block)):
                reason = compare_file(store.location, name, sha256)
                if reason != _MISSING:
                    break
            if reason:
                damaged = _find_damaged(store, store.stored(spec.name), name, done)
                # If all chunks are intact, the whole shard is another one.
                yield Damage(name, _ids(store, damaged or done.tolist()), reason)


def _check_shards(store: Store, reasons: Mapping[str, str]) -> Iterator[Damage]:
    """Yield the damaged shards of a final store, whose files have been compared.

    If all chunks are intact, the list may be wrong, so no rows are named.
    """
    done = np.flatnonzero(store.status == Status.DONE)
    for array in map(store.stored, store.arrays):
        shards = done // array.layout.shard_rows
        for shard in np.unique(shards).tolist():
            name = fmt.shard_name(array.spec, shard)
            if name in reasons:
                damaged = _find_damaged(store, array, name, done[shards == shard])
                yield Damage(name, _ids(store, damaged), reasons[name])


def _find_damaged(store: Store, array: StoredArray, name: str, rows: NDArray[np.intp]) -> list[int]:
    """Return those rows of a shard that cannot be read."""
    layout = array.layout
    try:
        shard = Shard(store.location, name, array)
    except (StoreError, FileNotFoundError):
        return list(rows)
    damaged: list[int] = []
    chunks = rows // layout.chunk_rows
    for chunk in np.unique(chunks).tolist():
        in_chunk = rows[chunks == chunk]
        try:
            shard.read(in_chunk % layout.shard_rows)
        except StoreError:
            damaged += in_chunk.tolist()
    return damaged


def _ids(store: Store, rows: Iterable[int]) -> tuple[str, ...]:
    return tuple(store.ids[row] for row in rows)


def compare_list(store: Store, listed: Collection[str]) -> dict[str, str]:
    """Return what is wrong with the list of a final store's files, by the name of the file.

    The probe, the coordinates and an older store's second card are optional.
    """
    names = {"zarr.json", fmt.ITEMS, fmt.ROWS, fmt.CARD, f"{fmt.IDS}/c/0/0", f"{fmt.STATUS}/c/0"}
    names |= {f"{name}/zarr.json" for name in (*store.arrays, fmt.IDS, fmt.STATUS)}
    optional = {fmt.CROISSANT, f"{fmt.PROBE}/zarr.json"}
    for name in fmt.COORDINATES:
        optional |= {f"{name}/zarr.json", f"{name}/c/0"}

    done = np.flatnonzero(store.status == Status.DONE)
    for spec in store.specs:
        optional |= {f"{fmt.PROBE}/{spec.name}/zarr.json", f"{fmt.PROBE}/{fmt.shard_name(spec, 0)}"}
        for shard in np.unique(done // store.stored(spec.name).layout.shard_rows).tolist():
            names.add(fmt.shard_name(spec, shard))

    wrong = names.symmetric_difference(set(listed) - optional)
    reason = f"{fmt.CHECKSUMS} does not list this store's files, no more and no less: see "
    return {name: f"{reason}{name!r:.80}" for name in sorted(wrong)}


def check_list(store: Store, listed: Collection[str]) -> None:
    """Raise `StoreError` unless a final store lists exactly the files that it should have."""
    for reason in compare_list(store, listed).values():
        raise StoreError(f"{store.where}: {reason}")


def repair(path: Path | str, *, reopen: bool = False) -> Repair:
    """Drop the damaged rows of a store, so that the next extraction computes them again.

    No process may be writing to the store. A damaged final store is replaced by an open store with
    all intact rows. Raises `StoreUnreadable`, and changes nothing, if the system cannot read a
    file. A repair that was interrupted can be repeated.

    Parameters
    ----------
    path
        The store's folder.
    reopen
        Reopen a final store even if it is undamaged, so that missing rows can be filled.
    """
    with disk_errors(Path(path), StoreError):
        store = open_store(path)
        clear_unfinished(store.path)  # left over if an earlier repair was killed
        damage = verify(store)
        _refuse_irreparable(store, damage)
        lost_ids = {item_id for entry in damage for item_id in entry.ids}
        lost = np.flatnonzero([item_id in lost_ids for item_id in store.ids])
        to_do = _ids(store, lost)
        reopened = store.is_final and bool(damage or reopen)
        if reopened:
            _reopen(store, lost, damage)
        elif not store.is_final:
            _drop_records(store, damage)
            writer = StoreWriter(store.refresh())  # finishes what a killed writer began
            lost = lost[store.status[lost] == Status.DONE]
            for block in np.unique(lost // store.block_rows).tolist():
                rows = lost[lost // store.block_rows == block]
                writer.rewrite(block, dict.fromkeys(rows.tolist()))
            if damage:
                append_to_log(store.path, "repaired", files=[entry.file for entry in damage])
    return Repair(store.path, tuple(damage), to_do, reopened)


def _refuse_irreparable(store: Store, damage: Sequence[Damage]) -> None:
    """Raise `StoreError` if a damaged file can be neither recomputed nor rewritten."""
    require_plain_file(store.path / fmt.LOG, StoreError)
    rewritten: tuple[str, ...] = ()
    if store.is_final:
        rewritten = (fmt.CARD, fmt.CROISSANT, fmt.PROBE, *fmt.COORDINATES)
    for entry in damage:
        if not entry.ids and entry.file.partition("/")[0] not in rewritten:
            raise StoreError(
                f"{store.path / entry.file} cannot be repaired ({entry.why}); pull the store "
                "again, or restore the file from a copy"
            )


def _drop_records(store: Store, damage: Sequence[Damage]) -> None:
    """Remove the damaged records of an open store, and the shards of their blocks."""
    records = {entry.file for entry in damage}
    for block in range(store.blocks):
        name = fmt.record_name(block)
        if name in records:
            for spec in store.specs:
                (store.path / fmt.shard_name(spec, block)).unlink(missing_ok=True)
            (store.path / name).unlink()  # last, because a repeated repair finds the block by it
            sync_path(store.path / fmt.RECORDS)


def _reopen(store: Store, lost: NDArray[np.intp], damage: Sequence[Damage]) -> None:
    """Replace a final store with an open store that lacks the damaged rows."""
    source = np.zeros(len(store), np.intp)
    source[lost] = NO_SOURCE
    probe: dict[str, NDArray[Any]] | None = None
    if any(entry.file.startswith(f"{fmt.PROBE}/") for entry in damage):
        probe = {}
    write_plan(
        store.path,
        Plan(store.items, [store], source, np.arange(len(store))),
        store.attributes,
        "reopened",
        probe=probe,
        overwrite=True,
        log=store.path / fmt.LOG,
    )
