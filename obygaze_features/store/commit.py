"""How a block gets to disk.

The order of things on disk is what makes a kill harmless, and of several writers lets one win:

1. each array's shard, flushed, under a name in ``staging/`` that holds its checksum;
2. the commit record, under a name that only one writer can take. From here on the block exists;
3. the shards get their names in the arrays. Whoever opens the store next finishes this, as the
   record says which they are.

A shard that no record names is nobody's. Nothing that a record names is ever removed or
overwritten by a writer.
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

from obygaze_features.common.files import disk_errors, publish_exclusively, sync_folder
from obygaze_features.errors import BlockTaken, StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.metadata import read_attributes
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.shards import write_shard

__all__ = [
    "BlockWriter",
    "Done",
    "Failed",
    "finish_moves",
    "is_written",
    "move",
    "refuse_if_final",
    "retire_record",
]

_STAGED = re.compile(r"[0-9]{6,}[.]")


@dataclass(frozen=True)
class Done:
    """A computed row: its value in each array, and the fingerprint of what it comes from."""

    values: Mapping[str, NDArray[Any]]
    source: str | None


@dataclass(frozen=True)
class Failed:
    """A row that could not be computed, and why, in words for people."""

    status: Status
    reason: str
    source: str | None = None


class BlockWriter:
    """One block on its way: rows are put in any order, and committed together."""

    def __init__(self, store: Store, block: int) -> None:
        self.store, self.block = store, block
        self.rows = spec.rows_of_block(block, len(store), store.block_rows)
        self._outcomes: dict[int, Done | Failed | None] = {}
        if not self.rows:
            raise StoreError(f"{self.store.path} has no block {block}")

    def put(self, row: int, outcome: Done | Failed | None) -> None:
        """Say what became of a row; None leaves it to do. What an array cannot hold is a failure.

        The values are looked at when the block is committed; do not change them before.
        """
        if row not in self.rows:
            raise StoreError(f"row {row} is not in block {self.block} of {self.store.path}")
        if isinstance(outcome, Failed) and outcome.status <= Status.DONE:
            raise StoreError(f"{outcome.status!r} is not the status of a failure")
        self._outcomes[row] = outcome

    def commit(self, *, instead_of: BlockRecord | None = None) -> BlockRecord:
        """Write every array's shard, then the record; the block exists from then on.

        With `instead_of` the block is there already, and this takes its place.
        """
        with disk_errors(self.store.path, StoreError):
            return self._commit(instead_of)

    def _commit(self, instead_of: BlockRecord | None) -> BlockRecord:
        missing = [row for row in self.rows if row not in self._outcomes]
        if missing:
            raise StoreError(
                f"block {self.block} of {self.store.path} lacks {len(missing)} rows, "
                f"such as {self.store.ids[missing[0]]}"
            )
        refuse_if_final(self.store)
        if instead_of is None:
            self._refuse_if_written()
        outcomes = [_checked(self.store, self._outcomes[row]) for row in self.rows]
        record = BlockRecord(
            block=self.block,
            status=tuple(_status(one) for one in outcomes),
            sources=tuple(one.source if one else None for one in outcomes),
            failures={
                self.store.ids[row]: one.reason
                for row, one in zip(self.rows, outcomes, strict=True)
                if isinstance(one, Failed)
            },
            shards={one.name: self._stage(one, outcomes) for one in self.store.specs},
        )
        sync_folder(self.store.path / spec.STAGING)
        refuse_if_final(self.store)
        path = self.store.path / spec.record_name(self.block)
        retired = self.store.path / spec.retired_name(self.block)
        if instead_of is not None:
            try:
                os.rename(path, retired)
            except FileNotFoundError:
                self._withdraw(record)
                raise BlockTaken(
                    f"another process writes block {self.block} of {self.store.path} anew"
                ) from None
        if not publish_exclusively(path, record.to_bytes()):
            self._withdraw(record)
            raise BlockTaken(
                f"another process wrote block {self.block} of {self.store.path} at the same time; "
                "its rows are kept, these are not needed"
            )
        retired.unlink(missing_ok=True)
        move(self.store, record)
        self._confirm(record)
        return record

    def _stage(self, one: ArraySpec, outcomes: Sequence[Done | Failed | None]) -> str | None:
        """Write one shard, once and flushed, and give its SHA-256."""
        chunks = [row.values[one.name] if isinstance(row, Done) else None for row in outcomes]
        if not any(chunk is not None for chunk in chunks):
            return None
        layout = spec.shard_layout(one, self.store.block_rows)
        temporary = self.store.path / spec.STAGING / f".{uuid.uuid4().hex}.partial"
        try:
            sha256 = write_shard(temporary, chunks, layout)
            os.replace(temporary, self.store.path / spec.staged_name(one, self.block, sha256))
        finally:
            temporary.unlink(missing_ok=True)
        return sha256

    def _confirm(self, record: BlockRecord) -> None:
        """Take the record back if its shards are gone, as a repair in between might have it."""
        for one in self.store.specs:
            shard = self.store.path / spec.shard_name(one, self.block)
            if record.shards[one.name] and not shard.exists():
                retire_record(self.store, self.block)
                raise StoreError(
                    f"{self.store.path}: the shard of {one.name} of block {self.block} vanished "
                    "while it was written; let nobody repair a store that is being filled"
                )

    def _withdraw(self, record: BlockRecord) -> None:
        """Remove what was staged in vain, unless the winner's shards are the very same."""
        winner = open_store(self.store.path).record_of(self.block)
        for one in self.store.specs:
            sha256 = record.shards[one.name]
            if sha256 and (winner is None or winner.shards.get(one.name) != sha256):
                staged = self.store.path / spec.staged_name(one, self.block, sha256)
                staged.unlink(missing_ok=True)

    def _refuse_if_written(self) -> None:
        if is_written(self.store, self.block):
            raise BlockTaken(f"block {self.block} of {self.store.path} is written already")


def finish_moves(store: Store) -> None:
    """Take the steps that a killed writer left: nothing that was committed is lost by them."""
    names = [path.name for path in (store.path / spec.STAGING).glob("*")]
    for block in sorted({int(name.split(".")[0]) for name in names if _STAGED.match(name)}):
        retired = store.path / spec.retired_name(block)
        if retired.exists():
            # Killed between two records of a block: unless the new one is there, the old one holds.
            publish_exclusively(store.path / spec.record_name(block), retired.read_bytes())
            retired.unlink(missing_ok=True)
        if record := open_store(store.path).record_of(block):
            move(store, record)


def is_written(store: Store, block: int) -> bool:
    """Whether a block has its record by now, or one that `finish_moves` will put back."""
    names = (spec.record_name(block), spec.retired_name(block))
    return any((store.path / name).exists() for name in names)


def refuse_if_final(store: Store) -> None:
    """Raise if somebody finalised the store since it was opened."""
    if read_attributes(store.location)["state"] != "open":
        raise StoreError(
            f"{store.path} was finalised while it was being filled; open it again with: "
            f"obygaze stores repair {store.path} --reopen"
        )


def retire_record(store: Store, block: int) -> None:
    """Make a block one that does not exist; its shards are nobody's from then on.

    The record is renamed away first: of several who try, one succeeds.
    """
    path = store.path / spec.record_name(block)
    aside = store.path / spec.STAGING / f".{uuid.uuid4().hex}.retired"
    aside.parent.mkdir(exist_ok=True)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        raise StoreError(f"block {block} of {store.path} has no record any more") from None
    sync_folder(path.parent)
    aside.unlink()


def move(store: Store, record: BlockRecord) -> None:
    """Take the last step of a commit, as far as nobody has."""
    for one in store.specs:
        sha256 = record.shards[one.name]
        target = store.path / spec.shard_name(one, record.block)
        if sha256 is None:
            # Nothing is removed here: what lies there may be another writer's by now.
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # Somebody else may have moved it: then there is nothing left to do.
        with contextlib.suppress(FileNotFoundError):
            os.replace(store.path / spec.staged_name(one, record.block, sha256), target)
        folder = target.parent
        while folder != store.path:
            sync_folder(folder)
            folder = folder.parent


def _status(outcome: Done | Failed | None) -> int:
    if outcome is None:
        return int(Status.TODO)
    return int(Status.DONE if isinstance(outcome, Done) else outcome.status)


def _checked(store: Store, row: Done | Failed | None) -> Done | Failed | None:
    """The row in the arrays' own number formats, if these can hold it."""
    if not isinstance(row, Done):
        return row
    if set(row.values) != set(store.arrays):
        odd = sorted(set(row.values) ^ set(store.arrays))
        raise StoreError(f"a row has the arrays {', '.join(store.arrays)}; see to {odd[0]!r}")
    values = {}
    for one in store.specs:
        given = np.asarray(row.values[one.name])
        with np.errstate(over="ignore", invalid="ignore"):
            value = given.astype(one.dtype, copy=False)
        if value.shape != one.shape:
            raise StoreError(f"a row of {one.name} has shape {one.shape}, not {value.shape}")
        exact = value.dtype.kind == "f" or np.array_equal(value, given)
        if not exact or not _can_be_held(value, one):
            finite = given.dtype.kind != "f" or np.isfinite(one.without_padding(given)).all()
            why = f"a value that {one.dtype} cannot hold" if finite else "NaN or infinity"
            reason = f"{one.name} has {why}"
            return Failed(Status.NOT_FINITE, reason, row.source)
        values[one.name] = value
    kept = {
        len(one.without_padding(values[one.name])) / one.shape[0]
        for one in store.specs
        if one.padded
    }
    if len(kept) > 1:
        return Failed(Status.NOT_FINITE, "some of its frames have no features", row.source)
    return replace(row, values=values)


def _can_be_held(value: NDArray[Any], one: ArraySpec) -> bool:
    """Whether a row has neither infinities nor the array's fill value, but as padding."""
    if one.padded:
        value = one.without_padding(value)
        if not value.size:
            return False
    if value.dtype == np.float16:
        # Thirty times faster than isfinite: infinities and NaN are the bit patterns from 7C00 on.
        return int((value.view(np.uint16) & 0x7FFF).max(initial=0)) < 0x7C00
    if value.dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return not bool(one.is_fill(value).any())
