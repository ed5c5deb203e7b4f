"""Verify stores (compare files with their checksums, and name damaged rows), and repair them.

The SHA-256 of a shard is in its block's record, or in ``checksums.json`` for a final store. If a
shard does not match, the checksum of each of its chunks shows which rows are damaged.

A repair drops the damaged rows, and the next extraction computes them again. Other damaged files
(metadata, items, ids, tables) have to be restored from a copy of the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.combine import NO_SOURCE, Plan, write_plan
from obygaze_features.store.files import Location, sha256_at
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.metadata import DamagedFile, read_checksums, read_files
from obygaze_features.store.rows import Rows, group_places
from obygaze_features.store.shards import ShardLayout
from obygaze_features.store.store import Store, StoreLike, location_of, open_store
from obygaze_features.store.writer import Values

_MISSING = "it is missing"
#: The name of a file of a store: a relative path, in safe characters.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


@dataclass(frozen=True)
class Damage:
    """A damaged file of a store, and the ids of the rows that are affected."""

    file: str
    ids: tuple[str, ...]
    why: str


def verify(store: StoreLike) -> list[Damage]:
    """Read a whole store, open or final, and return a list of the damage. Nothing is changed.

    Takes a store, or its address, because a damaged store may not open. Raises `StoreError` if
    there is no store, or if its format is not supported.
    """
    if isinstance(store, Store):
        store = store.location.address
    location = location_of(store)
    try:
        reasons = compare_files(location, read_files(location))
    except DamagedFile as problem:
        reasons = {problem.file: problem.reason}
    rows = []
    try:
        opened = Store(location)
        if opened.is_final and fmt.CHECKSUMS not in reasons:
            reasons = compare_list(opened) | reasons
        rows = [*_check_records(opened), *_check_shards(opened, reasons)]
    except StoreError as problem:
        if not reasons and isinstance(problem, DamagedFile):
            reasons = {problem.file: problem.reason}
        elif not reasons or reasons.get(fmt.CHECKSUMS) == _MISSING:
            raise
    named = {entry.file for entry in rows}
    return [Damage(name, (), why) for name, why in reasons.items() if name not in named] + rows


def compare_files(location: Location, files: Mapping[str, str]) -> dict[str, str]:
    """Return the damage to files by name; `files` has their SHA-256."""
    reasons = {}
    for name in progress(files, "Verifying", unit="file"):
        reason = compare_file(location, name, files[name])
        if reason:
            reasons[name] = reason
    return reasons


def compare_file(location: Location, name: str, sha256: str) -> str | None:
    """Return what is wrong with a file, or None."""
    if not _NAME.fullmatch(name):
        return "a store cannot have a file with this name"
    try:
        actual = sha256_at(location, name)
    except FileNotFoundError:
        return _MISSING
    if actual != sha256:
        return "it was changed"
    return None


def _check_records(store: Store) -> list[Damage]:
    """Return the damage to an open store's records, and drop the damaged ones from `store`."""
    damage = []
    records: dict[int, BlockRecord] = {}
    if not store.is_final:
        for block in range(store.blocks):
            try:
                records |= store.read_records([block])
            except DamagedFile as problem:
                ids = _ids(store, store.rows_of_block(block))
                damage.append(Damage(problem.file, ids, problem.reason))
    store.records = records
    return damage


def _check_shards(store: Store, reasons: Mapping[str, str]) -> Iterator[Damage]:
    """Yield the damage to shards. For a final store, `compare_files` has found the `reasons`."""
    done = np.flatnonzero(store.status == Status.DONE)
    for array in map(store.stored, store.arrays):
        shards = group_places(done // array.shard_rows)
        for number, at in progress(shards, f"Verifying {array.spec.name}", unit="shard"):
            name = fmt.shard_name(array.spec, number)
            reason = reasons.get(name)
            if not store.is_final:
                name, reason = _compare_shard(store, array.spec, number)
            if reason:
                rows = done[at]
                damaged = _find_damaged(store, array, rows)
                if not damaged and not store.is_final:
                    # If all chunks are intact, the file is another shard. In a final store, the
                    # list may be wrong instead.
                    damaged = rows.tolist()
                yield Damage(name, _ids(store, damaged), reason)


def _compare_shard(store: Store, spec: ArraySpec, block: int) -> tuple[str, str | None]:
    """Return the name of a block's shard, and what is wrong with it, or None."""
    sha256 = store.records[block].shards[spec.name]
    assert sha256 is not None  # because rows are done
    for name in (fmt.staged_name(spec, block, sha256), fmt.shard_name(spec, block)):
        reason = compare_file(store.location, name, sha256)
        if reason != _MISSING:
            break
    return name, reason


def _find_damaged(store: Store, array: ShardLayout, rows: Rows) -> list[int]:
    """Return those rows of a shard that cannot be read."""
    damaged = []
    for _, at in group_places(rows // array.chunk_rows):
        try:
            store.read_rows(array.spec.name, rows[at])
        except StoreError:
            damaged += rows[at].tolist()
    return damaged


def _ids(store: Store, rows: Iterable[int]) -> tuple[str, ...]:
    return tuple(store.ids[row] for row in rows)


def compare_list(store: Store) -> dict[str, str]:
    """Return what is wrong with the list of a final store's files, by file name.

    The probe, the coordinates and an older store's second card are optional.
    """
    names = {"zarr.json", fmt.ITEMS, fmt.ROWS, fmt.CARD, f"{fmt.IDS}/c/0/0", f"{fmt.STATUS}/c/0"}
    names |= {f"{name}/zarr.json" for name in (*store.arrays, fmt.IDS, fmt.STATUS)}
    optional = {"croissant.json", f"{fmt.PROBE}/zarr.json"}
    for name in fmt.COORDINATES:
        optional |= {f"{name}/zarr.json", f"{name}/c/0"}

    done = np.flatnonzero(store.status == Status.DONE)
    for spec in store.specs:
        optional |= {f"{fmt.PROBE}/{spec.name}/zarr.json", f"{fmt.PROBE}/{fmt.shard_name(spec, 0)}"}
        for shard in np.unique(done // store.stored(spec.name).shard_rows).tolist():
            names.add(fmt.shard_name(spec, shard))

    wrong = names ^ (read_checksums(store.location).keys() - optional)
    return {
        name: f"{fmt.CHECKSUMS} does not list exactly this store's files: see {name!r:.80}"
        for name in sorted(wrong)
    }


def repair(
    store: StoreLike,
    damage: Sequence[Damage] | None = None,
    *,
    reopen: bool = False,
) -> list[Damage]:
    """Drop the damaged rows of a store, so that the next extraction computes them again.

    A damaged store is replaced by an open store with all intact rows. No process may be writing to
    the store. A repair that was interrupted can be repeated. Returns the damage that was repaired.

    If the system cannot read a file, raises `StoreUnreadable`. If a damaged file can be neither
    recomputed nor rewritten, raises `StoreError`. In these cases, nothing is changed.

    Parameters
    ----------
    store
        The store, or its folder.
    damage
        The result of `verify` (default: verify the store now).
    reopen
        Reopen a final store even if it is undamaged, so that missing rows can be filled.
    """
    store = open_store(store)
    if damage is None:
        damage = verify(store)
    rewritten = (fmt.CARD, fmt.PARQUET, fmt.PROBE, *fmt.COORDINATES)
    for entry in damage:
        if not entry.ids and entry.file.partition("/")[0] not in rewritten:
            raise StoreError(
                f"{store.path / entry.file} cannot be repaired ({entry.why}); pull the store "
                "again, or restore the file from a copy"
            )

    if damage or (reopen and store.is_final):
        _check_records(store)
        lost = [id_ for entry in damage for id_ in entry.ids]
        source = np.where(np.isin(store.ids, lost), NO_SOURCE, 0)
        probe: Values | None = None
        if any(entry.file.startswith(f"{fmt.PROBE}/") for entry in damage):
            probe = {}
        write_plan(
            store.path,
            Plan(store.items, [store], source, np.arange(len(store))),
            store.attributes,
            "reopened",
            probe=probe,
            overwrite=True,
        )
        store.refresh()
    return list(damage)
