"""Reading a store: rows by id, and what is done, from the commit records or the status array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as spec
from obygaze_features.store.arrays import StoredArray, StoredArrays, read_bytes_array
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.location import Folder, Location, location_of
from obygaze_features.store.lookup import Lookup
from obygaze_features.store.metadata import read_attributes, read_record, read_rows_table, remedy
from obygaze_features.store.remote import Remote
from obygaze_features.store.row_reader import RowReader
from obygaze_features.store.shards import DamagedChunk

__all__ = ["Store", "open_at", "open_store"]

PART_BYTES = 32 * 2**20
"""What `Store.iter_blocks` reads at a time from a final store."""

Rows = NDArray[np.intp]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Store:
    """The features of one manifest's items under one backbone. Open one with `open_store`.

    What is done, and why the rest is not, is as it was when it was first asked for. Open the
    store again to see what was written since.

    Examples
    --------
    ::

        store = open_store(Path("stores/xclip.zarr"))
        store["tt0108160-001"]["native"]
        ids, rows = store.read(wanted, "frames", missing="skip")
    """

    location: Location
    attributes: dict[str, Any]
    checksums: bool = True
    _records: dict[int, BlockRecord | None] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return int(self.attributes["n"])

    def __getitem__(self, one: str) -> dict[str, NDArray[Any]]:
        """Every array's row of an id."""
        if not isinstance(one, str):
            raise UsageError(
                f"rows of a store are asked for by id (got {one!r:.60}); for example "
                f"store[store.ids[0]], or all rows of an array: store.array({self.arrays[0]!r})"
            )
        if one in self.stored and one not in self:
            raise UsageError(f"{one!r} is an array, not an id; type store.array({one!r})")
        row = self.rows_of([one])
        return {name: self._gather(array, row)[0] for name, array in self.stored.items()}

    def __contains__(self, one: object) -> bool:
        return one in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __repr__(self) -> str:
        state, rows = self.attributes["state"], len(self)
        return f"Store({self.where!r}, {state}, {rows} rows, {', '.join(self.arrays)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # MappedFile files do not travel to another process; each opens the store for itself.
        return partial(open_store, checksums=self.checksums), (self.location.address,)

    @property
    def where(self) -> str:
        """Where the store lies, for people to read."""
        return self.location.where

    @property
    def path(self) -> Path:
        """The store's folder; `StoreError` if it is not in one, and so can only be read."""
        if not isinstance(self.location, Folder):
            raise StoreError(
                f"{self.where} can only be read; to change it, fetch it with: "
                f"obygaze stores pull {self.where} -o NAME.zarr"
            )
        return self.location.path

    @property
    def is_final(self) -> bool:
        """Whether the store is finalised: complete as far as it goes, and read-only."""
        return bool(self.attributes["state"] == "final")

    @cached_property
    def stored(self) -> StoredArrays:
        """How each array lies in its files."""
        return StoredArrays(self.location, self.attributes)

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays."""
        return list(self.stored)

    @property
    def specs(self) -> list[ArraySpec]:
        """What each array is."""
        return list(self.stored.specs.values())

    @property
    def block_rows(self) -> int:
        """Rows a block."""
        return int(self.attributes["block_rows"])

    @property
    def blocks(self) -> int:
        """Number of blocks, written or not."""
        return spec.block_count(len(self), self.block_rows)

    @cached_property
    def ids(self) -> list[str]:
        """The ids, in the order of the rows."""
        return self._of_ids(spec.decode_ids)

    @cached_property
    def records(self) -> list[BlockRecord]:
        """The commit records of the blocks that are written, in order; none in a final store."""
        found = map(self.record_of, range(self.blocks))
        return [record for record in found if record is not None]

    def record_of(self, block: int) -> BlockRecord | None:
        """A block's commit record; None where it is not written, or the store is final."""
        if block not in self._records:
            record = None
            if not self.is_final and 0 <= block < self.blocks:
                rows = spec.rows_of_block(block, len(self), self.block_rows)
                ids = self._of_ids(lambda table: spec.decode_ids(table[rows.start : rows.stop]))
                record = read_record(self.location, block, ids, self.arrays)
            self._records[block] = record  # only now: a record that cannot be read stays an error
        return self._records[block]

    @cached_property
    def status(self) -> NDArray[np.uint8]:
        """A `Status` for each row."""
        if self.is_final:
            status = read_bytes_array(self.location, spec.STATUS, (len(self),))
            if status.max() > max(Status):
                where = self.location.join(spec.STATUS)
                raise StoreError(f"{where}: no row has a status {status.max()}")
            return status
        status = np.full(len(self), Status.TODO, np.uint8)
        for record in self.records:
            first = record.block * self.block_rows
            status[first : first + len(record.status)] = record.status
        if not status.all():
            self._refuse_if_replaced()
        return status

    @cached_property
    def failures(self) -> dict[str, str]:
        """Id -> reason, for the rows that failed."""
        if not self.is_final:
            return {one: why for record in self.records for one, why in record.failures.items()}
        reasons = self._table["reason"]
        return {self.ids[row]: reasons[row] for row in np.flatnonzero(self.status > Status.DONE)}

    @cached_property
    def sources(self) -> dict[str, str | None]:
        """Id -> the fingerprint of its source; None where there was none, or nothing is done."""
        if self.is_final:
            return {
                one: source or None
                for one, source in zip(self.ids, self._table["source"], strict=True)
            }
        sources: dict[str, str | None] = dict.fromkeys(self.ids)
        for record in self.records:
            first = record.block * self.block_rows
            sources.update(zip(self.ids[first:], record.sources, strict=False))
        return sources

    def array(self, name: str) -> NDArray[Any]:
        """A whole array, row for row as in `ids`; NaN (whole numbers: -1) where not done."""
        one = self._array(name)
        done = self.status == Status.DONE
        values = np.empty((len(self), *one.spec.shape), one.spec.dtype)
        values[~done] = one.spec.fill
        rows = np.flatnonzero(done)
        return self._gather(one, rows, into=values, at=rows)

    def read(
        self, ids: Sequence[str], name: str, missing: Literal["raise", "skip"] = "raise"
    ) -> tuple[list[str], NDArray[Any]]:
        """Rows of an array by id.

        Parameters
        ----------
        ids
            Which, in the order wanted.
        name
            Which array.
        missing
            What to do about an id that the store does not have or that is not done.

        Returns
        -------
        ids, rows
            The ids that were read (all, unless some were skipped) and their rows.
        """
        if missing not in ("raise", "skip"):
            raise UsageError(f"missing is 'raise' or 'skip', not {missing!r}")
        one = self._array(name)
        if missing == "raise":
            return list(ids), self._gather(one, self.rows_of(ids))
        rows = self._lookup.rows(ids)
        have = np.flatnonzero(self._are_done(rows))
        return [ids[place] for place in have.tolist()], self._gather(one, rows[have])

    def take(self, rows: Rows, name: str) -> NDArray[Any]:
        """Rows of an array by their number; all of them must be done."""
        one = self._array(name)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise StoreError(f"{self.where} has the rows 0 to {len(self) - 1}")
        if not self._are_done(rows).all():
            self._require_done([self.ids[row] for row in rows.tolist()], rows)
        return self._gather(one, rows)

    def iter_blocks(
        self, names: Sequence[str] | None = None
    ) -> Iterator[tuple[list[str], dict[str, NDArray[Any]]]]:
        """Go through the rows that are done, in order, a part at a time.

        Yields
        ------
        ids, rows
            Some ids, and for each array their rows. An open store gives a block at a time, a
            final one what takes about 32 MiB.
        """
        arrays = [self._array(name) for name in (self.arrays if names is None else names)]
        step = self.block_rows
        if self.is_final:
            step = max(1, PART_BYTES // max(1, sum(one.spec.bytes_a_row for one in arrays)))
            # Whole chunks, so that none is read and checked twice.
            unit = max((one.layout.chunk_rows for one in arrays), default=1)
            step = max(unit, step - step % unit)
        for start in range(0, len(self), step):
            rows = np.arange(start, min(start + step, len(self)))
            rows = rows[self._are_done(rows)]
            if rows.size:
                values = {one.spec.name: self._gather(one, rows) for one in arrays}
                yield [self.ids[row] for row in rows.tolist()], values
            self._rows.forget()

    @cached_property
    def _id_bytes(self) -> NDArray[np.uint8]:
        return read_bytes_array(self.location, spec.IDS, (len(self), None))

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.ids)

    @cached_property
    def _lookup(self) -> Lookup:
        return self._of_ids(Lookup)

    def _of_ids(self, make: Callable[[NDArray[np.uint8]], T]) -> T:
        try:
            return make(self._id_bytes)
        except StoreError:
            raise
        except ValueError as problem:
            where = self.location.join(spec.IDS)
            raise StoreError(f"{where}: {problem}; {remedy(self.location)}") from None

    @cached_property
    def _table(self) -> dict[str, list[str]]:
        return read_rows_table(self.location, self.ids, self.status)

    def rows_of(self, ids: Sequence[str]) -> Rows:
        """The row numbers of ids; `StoreError` if one of them is not done."""
        if isinstance(ids, str):
            raise UsageError(f"a list of ids is meant, not {ids!r} alone")
        rows = self._lookup.rows(ids)
        self._require_done(ids, rows)
        return rows

    def _refuse_if_replaced(self) -> None:
        """Raise if what was opened is not what lies there now: finalised, or opened again."""
        if isinstance(self.location, Remote) and self.location.refuse_if_changed():
            return
        if read_attributes(self.location)["state"] != self.attributes["state"]:
            raise StoreError(f"{self.where} was finalised or repaired meanwhile; open it again")

    def _are_done(self, rows: Rows) -> NDArray[np.bool_]:
        """Which rows are done; those below zero are none."""
        done: NDArray[np.bool_]
        if self.is_final or "status" in self.__dict__:
            done = self.status[rows] == Status.DONE
            return done & (rows >= 0)
        # The records of a million rows take a second to read; a few rows need few of them.
        done = np.zeros(len(rows), np.bool_)
        blocks, within = np.divmod(rows, self.block_rows)
        for block in np.unique(blocks).tolist():
            record = self.record_of(block)
            if record is not None:
                mine = np.flatnonzero(blocks == block)
                done[mine] = np.array(record.status)[within[mine]] == Status.DONE
        return done

    def _require_done(self, ids: Sequence[str], rows: Rows) -> None:
        lacking = np.flatnonzero(~self._are_done(rows))
        if not lacking.size:
            return
        first, row = ids[lacking[0]], rows[lacking[0]]
        if row < 0:
            why = "is not an item of this store"
        else:
            why = f"failed: {self.failures[first]}" if first in self.failures else "is not done yet"
        more = f" (and {lacking.size - 1} more that cannot be read)" if lacking.size > 1 else ""
        raise StoreError(f"{self.where}: {first} {why}{more}")

    def _array(self, name: str) -> StoredArray:
        if name not in self.stored:
            raise StoreError(f"{self.where} has no array {name}; it has {', '.join(self.arrays)}")
        return self.stored[name]

    @cached_property
    def _rows(self) -> RowReader:
        return RowReader(self.location, self.record_of, checksums=self.checksums)

    def _gather(
        self,
        one: StoredArray,
        rows: Rows,
        into: NDArray[Any] | None = None,
        at: Rows | None = None,
    ) -> NDArray[Any]:
        try:
            return self._rows.gather(one, rows, into, at)
        except DamagedChunk as problem:
            self._refuse_if_replaced()
            hit = np.unique(rows[(rows >= problem.rows.start) & (rows < problem.rows.stop)])
            ids = [self.ids[row] for row in hit.tolist()]
            more = f" and of {len(ids) - 3} more" if len(ids) > 3 else ""
            raise StoreError(
                f"{problem.where}: {problem.why}; the row of {', '.join(ids[:3])}{more} "
                f"cannot be read; {remedy(self.location)}"
            ) from None


def open_store(address: Path | str, *, checksums: bool = True) -> Store:
    """Open a store for reading.

    Parameters
    ----------
    address
        A folder, ``NAME.zarr``; an archive, ``NAME.zip``; or the URL of either
        (``https://...``, ``s3://...``). `StoreError` if it is not a store, or not a whole one.
    checksums
        Hold what is read to its checksums. Without, reading is several times faster, and bits
        that flipped on the disk pass unseen.
    """
    location = location_of(address)
    if isinstance(location, Remote):
        location.load_checksums()
    return open_at(location, checksums=checksums)


def open_at(location: Location, *, checksums: bool = True) -> Store:
    """Open the store at a location."""
    store = Store(location, read_attributes(location), checksums)
    if location.is_local:
        list(store.stored.values())  # what is wrong with one is better said at once
    return store
