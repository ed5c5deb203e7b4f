"""How a block is written to disk.

The order of the steps makes a kill at any moment harmless, and lets one of several writers win:

1. write and flush each array's shard, under a name in ``staging/`` that contains its checksum;
2. publish the commit record, under a name that only one writer can take. Now the block exists;
3. move the shards into the arrays. If this is interrupted, the next process that opens the store
   for writing finishes it: the record names the shards.

A shard that no record names belongs to no block. A writer never removes or overwrites a file that
a record names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import disk_errors, publish_exclusively, sync_folder
from obygaze_features.errors import BlockTaken, StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.metadata import read_attributes
from obygaze_features.store.reader import Store
from obygaze_features.store.shards import write_shard

_STAGED = re.compile(r"[0-9]{6,}[.]")


@dataclass(frozen=True)
class Done:
    """A computed row: its value in each array, and the fingerprint of its source file."""

    values: Mapping[str, NDArray[Any]]
    source: str | None


@dataclass(frozen=True)
class Failed:
    """A row that could not be computed, and the reason."""

    status: Status
    reason: str
    source: str | None = None


class BlockWriter:
    """Collects the rows of a block, in any order, and commits them together."""

    def __init__(self, store: Store, block: int) -> None:
        self.store, self.block = store, block
        self.rows = fmt.rows_of_block(block, len(store), store.block_rows)
        self._outcomes: dict[int, Done | Failed | None] = {}
        if not self.rows:
            raise StoreError(f"{self.store.path} has no block {block}")

    def put(self, row: int, outcome: Done | Failed | None) -> None:
        """Set the outcome of a row; None leaves it to do. A value that its array cannot hold fails.

        Values are read when the block is committed; do not change them before.
        """
        if row not in self.rows:
            raise StoreError(f"row {row} is not in block {self.block} of {self.store.path}")
        if isinstance(outcome, Failed) and outcome.status <= Status.DONE:
            raise StoreError(f"row {row}: {outcome.status!r} is not the status of a failure")
        self._outcomes[row] = outcome

    def commit(self, *, instead_of: BlockRecord | None = None) -> BlockRecord:
        """Write every array's shard, then the record; from then on the block exists.

        `instead_of` is the record of an existing block, which this block replaces.
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
        outcomes = [_check_row(self.store, self._outcomes[row]) for row in self.rows]
        record = BlockRecord(
            block=self.block,
            status=tuple(_status(outcome) for outcome in outcomes),
            sources=tuple(outcome.source if outcome else None for outcome in outcomes),
            failures={
                self.store.ids[row]: outcome.reason
                for row, outcome in zip(self.rows, outcomes, strict=True)
                if isinstance(outcome, Failed)
            },
            shards={spec.name: self._stage(spec, outcomes) for spec in self.store.specs},
        )
        sync_folder(self.store.path / fmt.STAGING)
        refuse_if_final(self.store)
        path = self.store.path / fmt.record_name(self.block)
        retired = self.store.path / fmt.retired_name(self.block)
        if instead_of is not None and not self._retire(instead_of, path, retired):
            self._withdraw(record)
            raise BlockTaken(
                f"another process is rewriting block {self.block} of {self.store.path}"
            )
        if not publish_exclusively(path, record.to_bytes()):
            self._withdraw(record)
            raise BlockTaken(
                f"another process wrote block {self.block} of {self.store.path} at the same time; "
                "its rows stay, these are discarded"
            )
        retired.unlink(missing_ok=True)
        move_shards(self.store, record)
        self._confirm(record)
        return record

    def _retire(self, expected: BlockRecord, path: Path, retired: Path) -> bool:
        """Move a record out of the way; not if it is another one than this block replaces."""
        try:
            os.rename(path, retired)
        except FileNotFoundError:
            return False
        if BlockRecord.from_json(json.loads(retired.read_bytes())) == expected:
            return True
        with contextlib.suppress(FileExistsError):
            os.link(retired, path)
        retired.unlink(missing_ok=True)
        return False

    def _stage(self, spec: ArraySpec, outcomes: Sequence[Done | Failed | None]) -> str | None:
        """Write and flush the shard of one array; returns its SHA-256."""
        chunks = [row.values[spec.name] if isinstance(row, Done) else None for row in outcomes]
        if not any(chunk is not None for chunk in chunks):
            return None
        layout = fmt.shard_layout(spec, self.store.block_rows)
        temporary = self.store.path / fmt.STAGING / f".{uuid.uuid4().hex}.partial"
        try:
            sha256 = write_shard(temporary, chunks, layout)
            os.replace(temporary, self.store.path / fmt.staged_name(spec, self.block, sha256))
        finally:
            temporary.unlink(missing_ok=True)
        return sha256

    def _confirm(self, record: BlockRecord) -> None:
        """Retract the record if its shards are gone, as after a repair at the same time."""
        for spec in self.store.specs:
            shard = self.store.path / fmt.shard_name(spec, self.block)
            if record.shards[spec.name] and not shard.exists():
                retire_record(self.store, self.block)
                raise StoreError(
                    f"{self.store.path}: the shard of {spec.name} of block {self.block} vanished "
                    "while it was written; do not repair a store that is being filled"
                )

    def _withdraw(self, record: BlockRecord) -> None:
        """Remove the staged shards, unless the winner's shards are identical."""
        winner = self.store.read_record(self.block)
        for spec in self.store.specs:
            sha256 = record.shards[spec.name]
            if sha256 and (winner is None or winner.shards.get(spec.name) != sha256):
                staged = self.store.path / fmt.staged_name(spec, self.block, sha256)
                staged.unlink(missing_ok=True)

    def _refuse_if_written(self) -> None:
        if is_written(self.store, self.block):
            raise BlockTaken(f"block {self.block} of {self.store.path} is written already")


def finish_moves(store: Store) -> None:
    """Finish the commits that a killed writer left after publishing the record."""
    names = [path.name for path in (store.path / fmt.STAGING).glob("*")]
    for block in sorted({int(name.split(".")[0]) for name in names if _STAGED.match(name)}):
        retired = store.path / fmt.retired_name(block)
        if retired.exists():
            # Killed between two records of a block: the old one stays unless the new one is there.
            publish_exclusively(store.path / fmt.record_name(block), retired.read_bytes())
            retired.unlink(missing_ok=True)
        if record := store.read_record(block):
            move_shards(store, record)


def is_written(store: Store, block: int) -> bool:
    """Whether a block has its record on disk now, or one that `finish_moves` will restore."""
    names = (fmt.record_name(block), fmt.retired_name(block))
    return any((store.path / name).exists() for name in names)


def refuse_if_final(store: Store) -> None:
    """Raise if the store was finalised since it was opened."""
    if read_attributes(store.location)["state"] != "open":
        raise StoreError(
            f"{store.path} was finalised while it was being filled; reopen it with: "
            f"obygaze stores repair {store.path} --reopen"
        )


def retire_record(store: Store, block: int) -> None:
    """Remove a block's record, so that the block does not exist any more.

    The record is renamed first: of several processes that try, one succeeds.
    """
    path = store.path / fmt.record_name(block)
    aside = store.path / fmt.STAGING / f".{uuid.uuid4().hex}.retired"
    aside.parent.mkdir(exist_ok=True)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        raise StoreError(f"block {block} of {store.path} has no record any more") from None
    sync_folder(path.parent)
    aside.unlink()


def move_shards(store: Store, record: BlockRecord) -> None:
    """The last step of a commit: move those staged shards that were not moved yet."""
    for spec in store.specs:
        sha256 = record.shards[spec.name]
        target = store.path / fmt.shard_name(spec, record.block)
        if sha256 is None:
            # Nothing is removed here: the file may belong to another writer by now.
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # Another process may have moved it already.
        with contextlib.suppress(FileNotFoundError):
            os.replace(store.path / fmt.staged_name(spec, record.block, sha256), target)
        folder = target.parent
        while folder != store.path:
            sync_folder(folder)
            folder = folder.parent


def _status(outcome: Done | Failed | None) -> int:
    if outcome is None:
        return int(Status.TODO)
    return int(Status.DONE if isinstance(outcome, Done) else outcome.status)


def _check_row(store: Store, row: Done | Failed | None) -> Done | Failed | None:
    """The row in the arrays' own number formats; a failure if these cannot hold it."""
    if not isinstance(row, Done):
        return row
    if set(row.values) != set(store.arrays):
        unexpected = sorted(set(row.values) ^ set(store.arrays))[0]
        verb = "lacks" if unexpected in store.arrays else "has an unknown array"
        raise StoreError(
            f"{store.path}: a row {verb} {unexpected!r} (the arrays are {', '.join(store.arrays)})"
        )
    values = {}
    for spec in store.specs:
        given = np.asarray(row.values[spec.name])
        with np.errstate(over="ignore", invalid="ignore"):
            value = given.astype(spec.dtype, copy=False)
        if value.shape != spec.shape:
            raise StoreError(f"a row of {spec.name} has shape {spec.shape} (got {value.shape})")
        is_exact = value.dtype.kind == "f" or np.array_equal(value, given)
        if not is_exact or not _is_storable(value, spec):
            is_finite = given.dtype.kind != "f" or np.isfinite(spec.without_padding(given)).all()
            problem = f"a value that {spec.dtype} cannot hold" if is_finite else "NaN or infinity"
            return Failed(Status.NOT_FINITE, f"{spec.name} has {problem}", row.source)
        values[spec.name] = value
    lengths = {
        len(spec.without_padding(values[spec.name])) / spec.shape[0]
        for spec in store.specs
        if spec.padded
    }
    if len(lengths) > 1:
        return Failed(Status.NOT_FINITE, "some of its frames have no features", row.source)
    return replace(row, values=values)


def _is_storable(value: NDArray[Any], spec: ArraySpec) -> bool:
    """Whether a row has no infinity, and the array's fill value only as padding."""
    if spec.padded:
        value = spec.without_padding(value)
        if not value.size:
            return False
    if value.dtype == np.float16:
        # Thirty times faster than isfinite: from 7C00 on the bits mean infinity or NaN.
        return int((value.view(np.uint16) & 0x7FFF).max(initial=0)) < 0x7C00
    if value.dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return not bool(spec.is_fill(value).any())
