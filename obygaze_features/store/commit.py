"""Write blocks to disk.

Because of this order of steps, a kill at any moment does no damage:

1. write and flush each array's shard, under a name in ``staging/`` that contains its checksum;
2. write the commit record, which replaces an older record in one step. Now the block exists;
3. move the shards into the arrays. If this is interrupted, the next process that opens the store
   for writing finishes the move, because the record names the shards.

A shard that no record names belongs to no block. Each block has a single writer.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import disk_errors, sync_path, write_bytes
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.metadata import final_error, read_attributes
from obygaze_features.store.reader import Store
from obygaze_features.store.shards import write_shard

MAX_COPIED_ROW = 2**16
"""The size, in bytes, up to which rows are checked together rather than one by one."""
_STAGED = re.compile(r"[0-9]{6,}[.]")


@dataclass(frozen=True)
class Done:
    """A computed row: its value in each array, and the fingerprint of its source file."""

    values: Mapping[str, NDArray[Any]]
    source: str | None
    status = Status.DONE


@dataclass(frozen=True)
class Failed:
    """A row that could not be computed, and the reason for the failure."""

    status: Status
    reason: str
    source: str | None = None


def commit_block(
    store: Store,
    block: int,
    outcomes: Sequence[Done | Failed | None],
) -> BlockRecord:
    """Write a block's shards, then its commit record, after which the block exists.

    Parameters
    ----------
    store, block
        The store, and the number of the block to write.
    outcomes
        The outcome of each row of the block, in order; None for a row that is still to do. A row
        with a value that its array cannot hold is recorded as failed.
    """
    with disk_errors(store.path, StoreError):
        refuse_if_final(store)
        rows = store.rows_of_block(block)
        checked = _check_rows(store, outcomes)
        record = BlockRecord(
            block=block,
            status=tuple(int(outcome.status if outcome else Status.TODO) for outcome in checked),
            sources=tuple(outcome.source if outcome else None for outcome in checked),
            failures={
                store.ids[row]: outcome.reason
                for row, outcome in zip(rows, checked, strict=True)
                if isinstance(outcome, Failed)
            },
            shards={spec.name: _stage(store, block, spec, checked) for spec in store.specs},
        )
        sync_path(store.path / fmt.STAGING)
        refuse_if_final(store)
        write_bytes(store.path / fmt.record_name(block), record.to_bytes())
        move_shards(store, record)
    return record


def _stage(
    store: Store, block: int, spec: ArraySpec, outcomes: Sequence[Done | Failed | None]
) -> str | None:
    """Write and flush the shard of one array; return its SHA-256, or None if no row is done."""
    chunks = [row.values[spec.name] if isinstance(row, Done) else None for row in outcomes]
    if not any(chunk is not None for chunk in chunks):
        return None
    temporary = store.path / fmt.STAGING / f".{uuid.uuid4().hex}.partial"
    try:
        sha256 = write_shard(temporary, chunks, fmt.shard_layout(spec, store.block_rows))
        os.replace(temporary, store.path / fmt.staged_name(spec, block, sha256))
    finally:
        temporary.unlink(missing_ok=True)
    return sha256


def finish_moves(store: Store) -> None:
    """Finish commits whose writer was killed after writing the record."""
    names = [path.name for path in (store.path / fmt.STAGING).glob("*")]
    for block in sorted({int(name.split(".")[0]) for name in names if _STAGED.match(name)}):
        if record := store.read_record(block):
            move_shards(store, record)


def refuse_if_final(store: Store) -> None:
    """Raise `StoreError` if the store has been finalised since it was opened."""
    if read_attributes(store.location)["state"] != "open":
        raise final_error(store.path, "was finalised while rows were being written")


def move_shards(store: Store, record: BlockRecord) -> None:
    """Finish a commit by moving the shards that are still staged."""
    for spec in store.specs:
        sha256 = record.shards[spec.name]
        if sha256 is None:
            continue
        target = store.path / fmt.shard_name(spec, record.block)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Another process may already have moved it.
        with contextlib.suppress(FileNotFoundError):
            os.replace(store.path / fmt.staged_name(spec, record.block, sha256), target)
        folder = target.parent
        while folder != store.path:
            sync_path(folder)
            folder = folder.parent


def _check_rows(
    store: Store, outcomes: Sequence[Done | Failed | None]
) -> list[Done | Failed | None]:
    """Convert rows to the arrays' dtypes; rows that do not fit become failures."""
    done = [outcome for outcome in outcomes if isinstance(outcome, Done)]
    if all(_fit_as_they_are(store, spec, done) for spec in store.specs):
        return list(outcomes)
    return [_check_row(store, outcome) for outcome in outcomes]


def _fit_as_they_are(store: Store, spec: ArraySpec, rows: Sequence[Done]) -> bool:
    """Return True if all rows fit an array without conversion and none has padding.

    Always returns False for large rows: checking rows together copies them, which would be slower.
    """
    arrays = set(store.arrays)
    if spec.row_bytes > MAX_COPIED_ROW or any(row.values.keys() != arrays for row in rows):
        return False
    values = [row.values[spec.name] for row in rows]
    kinds = {(getattr(value, "dtype", None), np.shape(value)) for value in values}
    if kinds - {(np.dtype(spec.dtype), spec.shape)}:
        return False
    return not values or _is_storable(np.stack(values), replace(spec, padded=False))


def _check_row(store: Store, row: Done | Failed | None) -> Done | Failed | None:
    """Convert a row to the arrays' dtypes; return a failure if a value does not fit."""
    if not isinstance(row, Done):
        return row
    if row.values.keys() != set(store.arrays):
        there, arrays = ", ".join(row.values), ", ".join(store.arrays)
        raise StoreError(store.path, f": a row has the arrays {there}, but the store has {arrays}")
    values = {}
    for spec in store.specs:
        computed = np.asarray(row.values[spec.name])
        with np.errstate(over="ignore", invalid="ignore"):
            value = computed.astype(spec.dtype, copy=False)
        if value.shape != spec.shape:
            raise StoreError(
                f"a row of {spec.name} must have shape {spec.shape} (got {value.shape})"
            )
        is_exact = value.dtype.kind == "f" or np.array_equal(value, computed)
        if not is_exact or not _is_storable(value, spec):
            is_finite = (
                computed.dtype.kind != "f" or np.isfinite(spec.without_padding(computed)).all()
            )
            problem = f"a value that {spec.dtype} cannot hold" if is_finite else "NaN or infinity"
            return Failed(Status.NOT_FINITE, f"{spec.name} has {problem}", row.source)
        values[spec.name] = value
    lengths = {
        len(spec.without_padding(values[spec.name])) / spec.shape[0]
        for spec in store.specs
        if spec.padded
    }
    if len(lengths) > 1:
        return Failed(Status.NOT_FINITE, "some frames have no features", row.source)
    return replace(row, values=values)


def _is_storable(value: NDArray[Any], spec: ArraySpec) -> bool:
    """Return True if a row has no infinities, and has the fill value only as padding."""
    if spec.padded:
        value = spec.without_padding(value)
        if not value.size:
            return False
    if value.dtype == np.float16:
        # Thirty times faster than isfinite: values from 0x7C00 up mean infinity or NaN.
        return int((value.view(np.uint16) & 0x7FFF).max(initial=0)) < 0x7C00
    if value.dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return not bool(spec.is_fill(value).any())
