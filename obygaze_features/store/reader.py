"""The `Store` class, which reads rows by id and reports their state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError, UsageError, translate
from obygaze_features.store import format as fmt
from obygaze_features.store.files import Folder, Location, StoreFile, location_of
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.metadata import (
    DamagedFile,
    StoredArray,
    final_error,
    read_array,
    read_attributes,
    read_bytes_array,
    read_items,
    read_records,
    read_rows_table,
)
from obygaze_features.store.rows import RowReader

if TYPE_CHECKING:
    import pandas as pd

    from obygaze_features.items.items import Items
    from obygaze_features.store.views import StoreDataset

PART_BYTES = 32 * 2**20
"""The approximate number of bytes of rows to read at a time when reading a whole store."""

Rows = NDArray[np.intp]
Missing = Literal["raise", "nan", "drop"]


class Store:
    """The features of one manifest's items from one backbone. Open a store with `open_store`.

    The state of rows is read from disk on first use; `refresh` reads it again.

    Examples
    --------
    ::

        store = open_store("stores/xclip.zarr")
        x = store.read("native", ids=["tt0108160-001", "tt0108160-002"])
        store["tt0108160-001"]["frames"]
        store.to_pandas("native"), store.dataset("frames"), store.info()
    """

    attributes: dict[str, Any]

    def __init__(self, location: Location, *, checksums: bool = True) -> None:
        self.location, self.checksums = location, checksums
        self.refresh()

    def __len__(self) -> int:
        return int(self.attributes["n"])

    def __getitem__(self, item_id: str) -> dict[str, NDArray[Any]]:
        """Return the row of an id in every array, by array name."""
        if not isinstance(item_id, str) or (item_id in self.arrays and item_id not in self):
            raise UsageError(
                f"{self.where}: select a row by its id, such as store[store.ids[0]] "
                f"(got {item_id!r:.60}). To read a whole array, use store.read({self.arrays[0]!r})"
            )
        row = self._find_done(item_id)
        if row is None:
            [row] = self.rows_of([item_id])  # raises, with the reason
        return {name: self._row_reader.read_row(self.stored(name), row) for name in self.arrays}

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._row_of

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __repr__(self) -> str:
        state, rows = self.attributes["state"], len(self)
        return f"Store({self.where!r}, {state}, {rows} rows, {', '.join(self.arrays)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Memory maps cannot be pickled, so each process opens the store itself.
        return partial(open_store, checksums=self.checksums), (self.location.address,)

    # Contents of the store

    @property
    def where(self) -> str:
        """The store's path or URL, as shown in messages."""
        return self.location.where

    @property
    def path(self) -> Path:
        """The store's folder. Raises `StoreError` for a zip file or a URL, which are read-only."""
        if not isinstance(self.location, Folder):
            raise StoreError(
                f"{self.where} is read-only. To change, pack or push it, first make a copy: "
                f"obygaze stores pull {self.where} -o NAME.zarr"
            )
        return self.location.path

    @property
    def is_final(self) -> bool:
        """True if the store is finalised: read-only, with large shards and a checksum list."""
        return bool(self.attributes["state"] == "final")

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays."""
        return list(self.attributes["arrays"])

    @cached_property
    def specs(self) -> list[ArraySpec]:
        """The name, shape, dtype and meaning of each array."""
        return fmt.specs_of(self.attributes)

    def stored(self, array: str) -> StoredArray:
        """Return an array's layout on disk, which is read on first use."""
        if not isinstance(array, str):
            raise UsageError(f"{self.where}: array must be a string (got {array!r:.60})")
        if array not in self._stored:
            spec = next((spec for spec in self.specs if spec.name == array), None)
            if spec is None:
                raise StoreError(
                    f"{self.where} has no array {array}; choose from {', '.join(self.arrays)}"
                )
            self._stored[array] = read_array(self.location, spec, self.attributes)
        return self._stored[array]

    @property
    def block_rows(self) -> int:
        """The number of rows per block."""
        return int(self.attributes["block_rows"])

    @property
    def blocks(self) -> int:
        """The number of blocks, written or not."""
        return -(-len(self) // self.block_rows)

    @cached_property
    def ids(self) -> list[str]:
        """The ids, in the order of the rows."""
        return self._decode_ids(self.id_bytes)

    @cached_property
    def items(self) -> Items:
        """The items that the store was made for."""
        return read_items(self.location, self.attributes)

    @cached_property
    def status(self) -> NDArray[np.uint8]:
        """The `Status` of each row."""
        if self.is_final:
            return read_bytes_array(self.location, fmt.STATUS, len(self), 1).ravel()
        status = np.full(len(self), Status.TODO, np.uint8)
        for record in self.records:
            first = record.block * self.block_rows
            status[first : first + len(record.status)] = record.status
        return status

    @cached_property
    def failures(self) -> dict[str, str]:
        """The reason for each failure, by id."""
        failed = np.flatnonzero(self.status > Status.DONE).tolist()
        if not failed:
            return {}
        reasons = self.rows_table["reason"]
        return {self.ids[row]: reasons[row] for row in failed}

    @cached_property
    def sources(self) -> dict[str, str | None]:
        """The fingerprint of each row's source file, by id; None if it is not recorded."""
        sources = self.rows_table["source"]
        return {id_: source or None for id_, source in zip(self.ids, sources, strict=True)}

    @cached_property
    def rows_table(self) -> dict[str, list[str]]:
        """The columns ``source`` and ``reason`` for all rows; missing values are empty strings."""
        if self.is_final:
            return read_rows_table(self.location, self.ids, self.status)
        sources = [""] * len(self)
        reasons = [""] * len(self)
        for record in self.records:
            rows = self.rows_of_block(record.block)
            sources[rows.start : rows.stop] = [source or "" for source in record.sources]
            for item_id, reason in record.failures.items():
                reasons[self._row_of[item_id]] = reason
        return {"source": sources, "reason": reasons}

    @property
    def records(self) -> list[BlockRecord]:
        """The commit records of the written blocks, in order; empty for a final store."""
        return list(self._records.values())

    def record_of(self, block: int) -> BlockRecord | None:
        """Return a block's commit record; None if the block is unwritten or the store is final."""
        return self._records.get(block)

    def read_record(self, block: int) -> BlockRecord | None:
        """Return a block's commit record as it is on disk now; None if there is no record."""
        return self._read_records([block]).get(block)

    def rows_of_block(self, block: int) -> range:
        """Return the row numbers of a block; the last block may be shorter than the others."""
        return range(len(self))[block * self.block_rows : (block + 1) * self.block_rows]

    def refresh(self) -> Store:
        """Reread the state of the store and of its rows, which other processes may have changed."""
        self.location.pin()
        before = vars(self).get("attributes")
        self.attributes = read_attributes(self.location)
        self._stored: dict[str, StoredArray] = {}
        keep = ["location", "checksums", "attributes", "_stored"]
        if before and before["items_digest"] == self.attributes["items_digest"]:
            keep += ["ids", "id_bytes", "_row_of"]
        for name in set(vars(self)).difference(keep):
            del self.__dict__[name]
        return self

    def info(self) -> dict[str, Any]:
        """Return a summary: rows by status, array shapes and sizes, failures, and attributes."""
        n, done = len(self), int((self.status == Status.DONE).sum())
        to_do = int((self.status == Status.TODO).sum())
        return self.attributes | {
            "rows": {"all": n, "done": done, "failed": n - done - to_do, "to_do": to_do},
            "arrays": {
                spec.name: {
                    "shape": [n, *spec.shape],
                    "dtype": spec.dtype,
                    "bytes": n * spec.row_bytes,
                    **spec.attributes,
                }
                for spec in self.specs
            },
            "failures": self.failures,
        }

    # Reading rows

    def read(
        self, array: str = "native", ids: Sequence[str] | None = None, *, missing: Missing = "raise"
    ) -> NDArray[Any]:
        """Read rows of an array, in the order of `ids`.

        Parameters
        ----------
        array
            The name of the array.
        ids
            The ids to read (default: all).
        missing
            What to do about ids that are not in the store or whose rows are not done: ``raise`` a
            `StoreError`, fill their rows with ``nan`` (-1 in integer arrays), or ``drop`` them
            (`done_ids` returns the ids that remain).
        """
        if missing not in ("raise", "nan", "drop"):
            raise UsageError(f"missing must be 'raise', 'nan' or 'drop' (got {missing!r})")
        stored = self.stored(array)
        if ids is None:
            rows = np.arange(len(self))
        else:
            _require_ids(ids)
            if len(ids) == 1 and (row := self._find_done(ids[0])) is not None:
                return self._row_reader.read_row(stored, row)[None]
            rows = self._find_rows(ids)
        done = self._are_done(rows)
        if done.all():
            return self._row_reader.read(stored, rows)
        if missing == "raise":
            self._require_done(rows, done, self.ids if ids is None else ids)
        values = self._row_reader.read(stored, rows[done])
        if missing == "drop":
            return values
        filled = np.full((len(rows), *stored.spec.shape), stored.spec.fill, stored.spec.dtype)
        filled[done] = values
        return filled

    def read_rows(self, array: str, rows: Rows) -> NDArray[Any]:
        """Read rows of an array by row number; all of them must be done."""
        stored = self.stored(array)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise StoreError(f"{self.where} only has rows 0 to {len(self) - 1}")
        done = self._are_done(rows)
        if not done.all():
            self._require_done(rows, done, [self.ids[row] for row in rows.tolist()])
        return self._row_reader.read(stored, rows)

    def iter_blocks(
        self, arrays: Sequence[str] | None = None
    ) -> Iterator[tuple[list[str], dict[str, NDArray[Any]]]]:
        """Yield all rows that are done, in order, using bounded memory.

        Yields
        ------
        ids, rows
            A batch of ids, and their rows in each array. A batch is a block of an open store, or
            about 32 MiB of a final store.
        """
        stored = [self.stored(name) for name in (self.arrays if arrays is None else arrays)]
        step = self.block_rows
        if self.is_final and stored:  # whole chunks, so that each is read and verified once
            chunk_rows = max(array.layout.chunk_rows for array in stored)
            step = PART_BYTES // sum(array.spec.row_bytes for array in stored)
            step = max(chunk_rows, step - step % chunk_rows)
        for start in range(0, len(self), step):
            rows = np.arange(start, min(start + step, len(self)))
            rows = rows[self._are_done(rows)]
            if rows.size:
                values = {array.spec.name: self._row_reader.read(array, rows) for array in stored}
                yield [self.ids[row] for row in rows.tolist()], values
            self.forget()

    def forget(self) -> None:
        """Release the memory used for reading rows; reading more rows is still possible."""
        self._row_reader.forget()

    def done_ids(self, ids: Sequence[str] | None = None) -> list[str]:
        """Return the ids whose rows are done, in the order of `ids` (default: all ids)."""
        if ids is None:
            return [self.ids[row] for row in np.flatnonzero(self.status == Status.DONE).tolist()]
        done = self._are_done(self._find_rows(ids)).tolist()
        return list(itertools.compress(ids, done))

    def rows_of(self, ids: Sequence[str]) -> Rows:
        """Return the row numbers of ids; raise `StoreError` if a row is not done."""
        rows = self._find_rows(ids)
        self._require_done(rows, self._are_done(rows), ids)
        return rows

    def missing_rows(self, rows: Rows | None = None, *, retry_failed: bool = False) -> Rows:
        """Return the rows among `rows` (default: all rows) that are still to do.

        With `retry_failed`, failed rows are included. Raises `StoreError` if the store is final and
        has failed rows, because they cannot be computed again.
        """
        if retry_failed and self.is_final and self.failures:
            raise final_error(self.path, "is final, so its failed rows cannot be retried")
        rows = np.arange(len(self)) if rows is None else rows
        status = self.status[rows]
        missing: Rows = rows[status != Status.DONE if retry_failed else status == Status.TODO]
        return missing

    # Views for libraries

    def to_pandas(self, array: str = "native") -> pd.DataFrame:
        """Return an array as a table with one row per id and one column per feature.

        Columns have the array's column names, if it has any. If an array has several axes per row,
        such as ``frames``, the table has one row per id and frame, with both in the index.
        """
        from obygaze_features.store.views import to_pandas

        return to_pandas(self, array)

    def dataset(
        self,
        array: str = "native",
        ids: Sequence[str] | None = None,
    ) -> StoreDataset:
        """Return an array as a `StoreDataset`, for ``torch.utils.data.DataLoader``.

        Parameters
        ----------
        array
            The name of the array.
        ids
            The ids to return, in this order (default: all ids whose rows are done). Raises
            `StoreError` if a row is not done.
        """
        from obygaze_features.store.views import StoreDataset

        return StoreDataset(self, array, ids)

    # Internals

    @cached_property
    def id_bytes(self) -> NDArray[np.uint8]:
        """The ids as stored: rows of UTF-8 bytes."""
        return read_bytes_array(self.location, fmt.IDS, len(self))

    def _decode_ids(self, table: NDArray[np.uint8]) -> list[str]:
        with translate(DamagedFile, StoreFile(self.location, f"{fmt.IDS}/c/0/0")):
            return fmt.decode_ids(table)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        rows = {item_id: row for row, item_id in enumerate(self.ids)}
        if len(rows) < len(self):
            raise DamagedFile(StoreFile(self.location, f"{fmt.IDS}/c/0/0"), "duplicate id")
        return rows

    @cached_property
    def _records(self) -> dict[int, BlockRecord]:
        """The commit records by block."""
        return self._read_records(range(self.blocks))

    def _read_records(self, blocks: Sequence[int]) -> dict[int, BlockRecord]:
        if self.is_final:
            return {}
        return read_records(self.location, blocks, self.ids, self.block_rows, self.arrays)

    @cached_property
    def _row_reader(self) -> RowReader:
        return RowReader(self)

    def _find_done(self, item_id: str) -> int | None:
        """Return the row of an id if it is done. This is fast enough for loops."""
        row = self._row_of.get(item_id)
        if row is None or self.status.item(row) != Status.DONE:
            return None
        return row

    def _find_rows(self, ids: Sequence[str]) -> Rows:
        """Return the row number of each id; -1 for ids that are not in the store."""
        _require_ids(ids)
        row_of = self._row_of
        return np.array([row_of.get(item_id, -1) for item_id in ids], np.intp)

    def _are_done(self, rows: Rows) -> NDArray[np.bool_]:
        """Return a mask of the rows that are done; a negative row never is."""
        done: NDArray[np.bool_] = (self.status[rows] == Status.DONE) & (rows >= 0)
        return done

    def _require_done(self, rows: Rows, done: NDArray[np.bool_], ids: Sequence[str]) -> None:
        """Raise `StoreError` with the reason if a row is not done."""
        missing = np.flatnonzero(~done)
        if not missing.size:
            return
        first = ids[missing[0]]
        if rows[missing[0]] < 0:
            reason = "is not in this store"
        elif first in self.failures:
            reason = f"failed: {self.failures[first]}"
        else:
            reason = "is not done yet"
        more = ""
        if missing.size > 1:
            more = f" (and {missing.size - 1} more that cannot be read)"
        raise StoreError(self.where, f": {first} {reason}{more}")


def open_store(address: Path | str, *, checksums: bool = True) -> Store:
    """Open a store for reading.

    Parameters
    ----------
    address
        A folder, ``NAME.zarr``; an archive, ``NAME.zip``; or a URL (``https://...``,
        ``s3://...``, ``hf://...``). Raises `StoreError` if there is no complete store.
    checksums
        Verify the checksums of all data that is read. Without this, reading is faster, but damage
        goes unnoticed.
    """
    return open_at(location_of(address), checksums=checksums)


def open_at(location: Location, *, checksums: bool = True) -> Store:
    """Open the store at a location."""
    store = Store(location, checksums=checksums)
    if location.is_local:
        for name in store.arrays:  # so that damaged array metadata is reported here
            store.stored(name)
    return store


def _require_ids(ids: Sequence[str]) -> None:
    if isinstance(ids, str) or not isinstance(next(iter(ids), ""), str):
        raise UsageError(f"ids must be a list of strings (got {ids!r:.60})")
