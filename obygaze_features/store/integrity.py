"""Checking a store: every byte against a checksum that was kept of it, and rows named by id.

What never changes is checked against ``checksums.json``; a shard against its block's record, in a
final store against ``checksums.json`` too; and its chunks each against their own checksum, which
tells the rows that are damaged from those that are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.common.tables import read_table
from obygaze_features.errors import ManifestError, StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.arrays import StoredArray
from obygaze_features.store.contents import plain_files, shard_files
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.metadata import read_record, read_status_column
from obygaze_features.store.places.choose import place_of
from obygaze_features.store.places.folder import Folder
from obygaze_features.store.places.place import Place, as_file, load_json, sha256_at
from obygaze_features.store.reader import FeatureStore, open_at
from obygaze_features.store.rows import open_shard
from obygaze_features.store.shards import DamagedChunk

__all__ = [
    "Damage",
    "committed",
    "known_ids",
    "read_checksums",
    "record_of",
    "verify",
]

CHANGED = "it is not as it was written"
_IN_TURN = re.compile(r"(blocks|claims)/[0-9]{6,}\.json")


@dataclass(frozen=True)
class Damage:
    """Something in a store that is not as it was written.

    Parameters
    ----------
    file
        From the store's root.
    array
        The array that the file belongs to, if it does.
    ids
        The rows that cannot be trusted any more.
    why
        In words for people.
    harmless
        A file that nobody needs, left by a writer that was killed; no row is affected.
    """

    file: str
    array: str | None
    ids: tuple[str, ...]
    why: str
    harmless: bool = False


def verify(address: Path | str) -> list[Damage]:
    """Read a whole store again, open or final, and list what is damaged; nothing is changed.

    Parameters
    ----------
    address
        The store, as for `open_store`. `StoreError` if it never was one.
    """
    place = place_of(address)
    try:
        sums, found = read_checksums(place), []
        listed = True
    except StoreError as problem:
        listed = False
        sums, found = {}, [Damage(spec.CHECKSUMS, None, (), _brief(place, problem))]
    try:
        store = open_at(place)
    except StoreError as problem:
        if _compare(place, spec.ITEMS, None) or _is_newer(place):
            raise
        changed = list(_changed(place, sums))
        return changed or [Damage("zarr.json", None, (), _brief(place, problem))]
    shards = {name for name in sums if name.partition("/c/")[0] in store.arrays and "/c/" in name}
    found += _changed(place, {name: sums[name] for name in sums if name not in shards})
    try:
        ids = known_ids(store)
        found += _final_shards(store, ids, sums) if store.is_final else _blocks(store, ids)
        if store.is_final and listed:
            known = {one.file for one in found}
            found += [one for one in _wrongly_listed(store, sums) if one.file not in known]
    except StoreError as problem:
        return found or [Damage(spec.IDS, None, (), _brief(place, problem))]
    known = {one.file for one in found}
    return [*found, *(one for one in _orphans(store, ids, sums) if one.file not in known)]


def read_checksums(place: Place) -> dict[str, str]:
    """The SHA-256 of each file that a store's ``checksums.json`` lists."""
    where = place.of(spec.CHECKSUMS)
    try:
        sums = load_json(place, spec.CHECKSUMS)
    except OSError as problem:
        raise StoreError(f"{where} cannot be read: {problem.strerror}") from None
    if not isinstance(sums, dict):
        raise StoreError(f"{where} is not a list of checksums")
    return {str(name): str(sha256) for name, sha256 in sums.items()}


def known_ids(store: FeatureStore) -> list[str]:
    """The ids, from the table of items if the array is damaged."""
    try:
        return store.ids
    except StoreError:
        return _column(store.place, spec.ITEMS, "id")


def _known_status(store: FeatureStore) -> NDArray[np.uint8]:
    """The status of a final store's rows, from the table of rows if the array is damaged."""
    try:
        return store.status
    except StoreError:
        return read_status_column(store.place, len(store))


def _column(place: Place, table: str, name: str) -> list[str]:
    try:
        with as_file(place, table) as file:
            return read_table(file, required=[name])[name]
    except ManifestError as problem:
        raise StoreError(str(problem)) from None


def _brief(place: Place, problem: StoreError) -> str:
    return str(problem).replace(f"{place.where}/", "")


def _is_newer(place: Place) -> bool:
    try:
        group = json.loads(place.read("zarr.json"))
        version = group["attributes"][spec.ATTRIBUTES]["format_version"]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return isinstance(version, int) and version > spec.FORMAT_VERSION


def _changed(place: Place, sums: Mapping[str, str]) -> Iterator[Damage]:
    """The files that are lost, or not as they were."""
    for name, sha256 in progress(sums.items(), "Metadata", unit="file", total=len(sums)):
        if why := _compare(place, name, sha256):
            yield Damage(name, name.partition("/")[0] if "/" in name else None, (), why)


def _wrongly_listed(store: FeatureStore, sums: Mapping[str, str]) -> Iterator[Damage]:
    """Where a final store's list of checksums is not that of its files, though all it has hold."""
    names = plain_files(store, sums) | shard_files(store, _known_status(store))
    for name in sorted(names - sums.keys()):
        why = _compare(store.place, name, None)
        lost = f"{why}, and " if why else ""
        yield Damage(name, None, (), f"{lost}{spec.CHECKSUMS} does not list it")
    for name in sorted(sums.keys() - names):
        yield Damage(name, None, (), f"{spec.CHECKSUMS} lists it, and no such store has it")


def _compare(place: Place, name: str, sha256: str | None) -> str | None:
    """What is wrong with a file, if anything; without a checksum only whether it can be read."""
    try:
        have = sha256_at(place, name)
    except FileNotFoundError:
        return "it is lost"
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    return CHANGED if sha256 and have != sha256 else None


def _blocks(store: FeatureStore, ids: Sequence[str]) -> Iterator[Damage]:
    """Damage to records, and to the shards that they name."""
    for block in progress(range(store.blocks), "Verifying", unit="block"):
        # A writer may have moved a file between two looks; a third one shows what is damage.
        if list(_block(store, ids, block)):
            yield from _block(store, ids, block)


def _block(store: FeatureStore, ids: Sequence[str], block: int) -> Iterator[Damage]:
    name = spec.record_name(block)
    try:
        record = record_of(store, ids, block)
    except StoreError as problem:
        rows = spec.rows_of_block(block, len(ids), store.block_rows)
        why = _brief(store.place, problem).removeprefix(f"{name}: ").partition(";")[0]
        yield Damage(name, None, tuple(ids[rows.start : rows.stop]), why)
        return
    if record is None:
        return
    done = np.array(record.status) == Status.DONE
    for one in store.stored.values():
        if sha256 := record.shards[one.spec.name]:
            file = _shard_name(store, one.spec, record)
            yield from _shard(store, ids, one, file, sha256, done, block)


def record_of(store: FeatureStore, ids: Sequence[str], block: int) -> BlockRecord | None:
    """A block's record as it is by now, if it has one."""
    rows = spec.rows_of_block(block, len(ids), store.block_rows)
    return read_record(store.place, block, ids[rows.start : rows.stop], store.arrays)


def _shard_name(store: FeatureStore, one: ArraySpec, record: BlockRecord) -> str:
    """Where a block's committed shard lies: perhaps still in ``staging/``."""
    staged = spec.staged_name(one, record.block, record.shards[one.name] or "")
    try:
        store.place.size(staged)
    except FileNotFoundError:
        return spec.shard_name(one, record.block)
    return staged


def _final_shards(
    store: FeatureStore, ids: Sequence[str], sums: Mapping[str, str]
) -> Iterator[Damage]:
    """Damage to the shards of a final store."""
    done = _known_status(store) == Status.DONE
    todo = [
        (one, shard)
        for one in store.stored.values()
        for shard in range(-(-len(store) // one.layout.shard_rows))
    ]
    for one, shard in progress(todo, "Verifying", unit="shard"):
        size = one.layout.shard_rows
        mine = done[shard * size : (shard + 1) * size]
        name = spec.shard_name(one.spec, shard)
        if mine.any():
            yield from _shard(store, ids, one, name, sums.get(name), mine, shard)


def _shard(
    store: FeatureStore,
    ids: Sequence[str],
    one: StoredArray,
    name: str,
    sha256: str | None,
    done: NDArray[np.bool_],
    shard: int,
) -> Iterator[Damage]:
    """What is wrong with one shard; `done` says which of its rows must be there."""
    why = _compare(store.place, name, sha256)
    rows = np.flatnonzero(done)
    # What would have to be fetched a second time is taken at its word.
    look = why == CHANGED or (why is None and (store.place.is_local or not sha256))
    by_reason = _damaged_rows(store, one, name, rows, shard) if look else {}
    if why is not None and not by_reason:
        by_reason = {why: rows.tolist()}
    first = shard * one.layout.shard_rows
    for reason, hit in by_reason.items():
        yield Damage(name, one.spec.name, tuple(ids[first + row] for row in hit), reason)


def _damaged_rows(
    store: FeatureStore, one: StoredArray, name: str, rows: NDArray[np.intp], shard: int
) -> dict[str, list[int]]:
    """Reason -> rows of a shard, counted from its start, that cannot be read."""
    found: dict[str, list[int]] = {}
    try:
        reader = open_shard(store.place, name, one, shard)
    except DamagedChunk as problem:
        return {problem.why: rows.tolist()}
    chunks = rows // one.layout.chunk_rows
    for chunk in np.unique(chunks).tolist():
        mine = rows[chunks == chunk]
        try:
            reader.read(mine)
        except DamagedChunk as problem:
            found.setdefault(problem.why, []).extend(mine.tolist())
    reader.forget()
    return found


def _orphans(store: FeatureStore, ids: Sequence[str], sums: Mapping[str, str]) -> Iterator[Damage]:
    """Files that no record and no list of checksums names; looked for where they can be listed."""
    if not isinstance(store.place, Folder):
        return
    every = _files(store.path.rglob("*"), store.path)
    if store.is_final:
        # A list that is damaged itself says nothing about the others.
        names = set(every) - {*sums, spec.CHECKSUMS, spec.LOG} if sums else set()
    else:
        places = (spec.STAGING, spec.RECORDS, spec.CLAIMS, *(f"{one}/c" for one in store.arrays))
        inside = tuple(f"{place}/" for place in places)
        names = {one for one in every if one.startswith((*inside, "."))} - committed(store, ids)
        names = {one for one in names if not _IN_TURN.fullmatch(one)}
    for name in sorted(names):
        array = name.partition("/c/")[0] if "/c/" in name else None
        yield Damage(name, array, (), "it belongs to no block", harmless=True)


def _files(paths: Iterable[Path], root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths if path.is_file()]


def committed(store: FeatureStore, ids: Sequence[str]) -> set[str]:
    """Where the shards may lie that a record names."""
    names: set[str] = set()
    for block in range(store.blocks):
        try:
            record = record_of(store, ids, block)
        except StoreError:
            continue
        for one in store.specs if record else ():
            assert record is not None
            if sha256 := record.shards[one.name]:
                names |= {spec.staged_name(one, block, sha256), spec.shard_name(one, block)}
    return names
