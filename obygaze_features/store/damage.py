"""Damaged shards and records, and the ids of the rows that they hit.

A shard is held to its block's record, in a final store to ``checksums.json``; and each of its
chunks to its own checksum, which tells the rows that are damaged from those that are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.arrays import StoredArray
from obygaze_features.store.checksums import CHANGED, compare
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.location import Location
from obygaze_features.store.metadata import read_record
from obygaze_features.store.reader import Store
from obygaze_features.store.row_reader import open_shard
from obygaze_features.store.shards import DamagedChunk

__all__ = ["Damage", "brief", "in_blocks", "in_final_shards", "record_of"]


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
        No row is affected: a file that nobody needs, or a change that says the same.
    """

    file: str
    array: str | None
    ids: tuple[str, ...]
    why: str
    harmless: bool = False


def brief(location: Location, problem: StoreError) -> str:
    """What is wrong, without the store's own address."""
    return str(problem).replace(f"{location.where}/", "")


def in_blocks(store: Store, ids: Sequence[str]) -> Iterator[Damage]:
    """Damage to records, and to the shards that they name."""
    for block in progress(range(store.blocks), "Verifying", unit="block"):
        # A writer may have moved a file between two looks; a third one shows what is damage.
        if list(_block(store, ids, block)):
            yield from _block(store, ids, block)


def _block(store: Store, ids: Sequence[str], block: int) -> Iterator[Damage]:
    name = spec.record_name(block)
    try:
        record = record_of(store, ids, block)
    except StoreError as problem:
        rows = spec.rows_of_block(block, len(ids), store.block_rows)
        why = brief(store.location, problem).removeprefix(f"{name}: ").partition(";")[0]
        yield Damage(name, None, tuple(ids[rows.start : rows.stop]), why)
        return
    if record is None:
        return
    done = np.array(record.status) == Status.DONE
    for one in store.stored.values():
        if sha256 := record.shards[one.spec.name]:
            file = _shard_name(store, one.spec, record)
            yield from _shard(store, ids, one, file, sha256, done, block)


def record_of(store: Store, ids: Sequence[str], block: int) -> BlockRecord | None:
    """A block's record as it is by now, if it has one."""
    rows = spec.rows_of_block(block, len(ids), store.block_rows)
    return read_record(store.location, block, ids[rows.start : rows.stop], store.arrays)


def _shard_name(store: Store, one: ArraySpec, record: BlockRecord) -> str:
    """Where a block's committed shard lies: perhaps still in ``staging/``."""
    staged = spec.staged_name(one, record.block, record.shards[one.name] or "")
    return staged if store.location.exists(staged) else spec.shard_name(one, record.block)


def in_final_shards(
    store: Store,
    ids: Sequence[str],
    status: NDArray[np.uint8],
    sums: Mapping[str, str],
) -> Iterator[Damage]:
    """Damage to the shards of a final store."""
    done = status == Status.DONE
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
    store: Store,
    ids: Sequence[str],
    one: StoredArray,
    name: str,
    sha256: str | None,
    done: NDArray[np.bool_],
    shard: int,
) -> Iterator[Damage]:
    """What is wrong with one shard; `done` says which of its rows must be there."""
    why = compare(store.location, name, sha256)
    rows = np.flatnonzero(done)
    # What would have to be fetched a second time is taken at its word.
    look = why == CHANGED or (why is None and (store.location.is_local or not sha256))
    by_reason = _damaged_rows(store, one, name, rows, shard) if look else {}
    if why is not None and not by_reason:
        by_reason = {why: rows.tolist()}
    first = shard * one.layout.shard_rows
    for reason, hit in by_reason.items():
        yield Damage(name, one.spec.name, tuple(ids[first + row] for row in hit), reason)


def _damaged_rows(
    store: Store, one: StoredArray, name: str, rows: NDArray[np.intp], shard: int
) -> dict[str, list[int]]:
    """Reason -> rows of a shard, counted from its start, that cannot be read."""
    found: dict[str, list[int]] = {}
    try:
        reader = open_shard(store.location, name, one, shard)
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
