"""The `Store` class, which reads rows by id and reports their state."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.names import as_list, unknown_name
from obygaze_features.errors import StoreError, UnknownItem, UsageError, translate
from obygaze_features.store import format as fmt
from obygaze_features.store.files import MAX_JSON_BYTES, Folder, Location, StoreFile, Zip, is_url
from obygaze_features.store.format import ArraySpec, BlockRecord, Status
from obygaze_features.store.metadata import (
    DamagedFile,
    final_error,
    read_array,
    read_attributes,
    read_bytes_array,
    read_items,
    read_rows_table,
)
from obygaze_features.store.rows import RowReader, Rows, StoreDataset
from obygaze_features.store.shards import ShardLayout

if TYPE_CHECKING:
    import pandas as pd

    from obygaze_features.items.items import Items

PART_BYTES = 32 * 2**20
"""The approximate number of bytes of rows to read at a time when reading a whole store."""

Missing = Literal["raise", "nan", "drop"]


class Store:
    """The features of one manifest's items from one backbone. Open a store with `open_store`.

    The state of rows is read on first use, and again after `refresh`.

    Examples
    --------
    ::

        store = open_store("stores/xclip.zarr")
        x = store.read("native", ids=["tt0108160-001", "tt0108160-002"])
        store["tt0108160-001"]["frames"]
        store.to_pandas("native"), store.dataset("frames"), store.info()
    """

    attributes: dict[str, Any]
    _stored: dict[str, ShardLayout]

    def __init__(self, location: Location) -> None:
        self.location = location
        self.refresh()

    def __len__(self) -> int:
        return int(self.attributes["n"])

    def __getitem__(self, id_: str) -> dict[str, NDArray[Any]]:
        """Return the row of an id in every array, by array name."""
        return {name: self.read(name, [id_])[0] for name in self.arrays}

    def __contains__(self, id_: object) -> bool:
        return id_ in self.row_of

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __repr__(self) -> str:
        arrays = ", ".join(self.arrays)
        return f"Store({self.where!r}, {self.attributes['state']}, {len(self)} rows, {arrays})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Memory maps cannot be pickled, so each process opens the store itself.
        return open_store, (self.location.address,)

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
        """True if the store is finalised: read-only, with large shards."""
        return bool(self.attributes["state"] == "final")

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays."""
        return list(self.attributes["arrays"])

    @cached_property
    def specs(self) -> list[ArraySpec]:
        """The name, shape, dtype and meaning of each array."""
        return fmt.specs_of(self.attributes)

    def stored(self, array: str) -> ShardLayout:
        """Return an array's layout on disk, which is read on first use."""
        if array not in self.arrays:
            raise StoreError(
                f"{self.where} has no array {array!s:.60}; choose from {', '.join(self.arrays)}"
            )
        if array not in self._stored:
            spec = next(spec for spec in self.specs if spec.name == array)
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
    def row_of(self) -> dict[str, int]:
        """The row number of each id, in the order of the rows."""
        file = StoreFile(self.location, f"{fmt.IDS}/c/0/0")
        table = read_bytes_array(file, len(self))
        with translate(DamagedFile, file):
            ids = fmt.decode_ids(table.view(f"S{table.shape[1]}").ravel())
        row_of = dict(zip(ids, range(len(self)), strict=True))
        if len(row_of) < len(self) or "" in row_of:
            raise DamagedFile(file, "it has an empty or a duplicate id")
        return row_of

    @cached_property
    def ids(self) -> list[str]:
        """The ids, in the order of the rows."""
        return list(self.row_of)

    @cached_property
    def items(self) -> Items:
        """The items that the store was made for."""
        return read_items(self.location, self.attributes)

    @cached_property
    def status(self) -> NDArray[np.uint8]:
        """The `Status` of each row."""
        if self.is_final:
            return read_bytes_array(
                StoreFile(self.location, f"{fmt.STATUS}/c/0"), len(self), 1
            ).ravel()
        status = np.zeros(len(self), np.uint8)  # Status.TODO
        for block, record in self.records.items():
            status[self.rows_of_block(block)] = record.status
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
    def rows_table(self) -> dict[str, list[str]]:
        """The columns ``source`` and ``reason`` for all rows; missing values are empty strings."""
        if self.is_final:
            return read_rows_table(self.location, self.ids, self.status)
        sources = [""] * len(self)
        reasons = [""] * len(self)
        for block, record in self.records.items():
            for row, source in zip(self.rows_of_block(block), record.sources, strict=True):
                sources[row] = source or ""
                reasons[row] = record.failures.get(self.ids[row], "")
        return {"source": sources, "reason": reasons}

    @cached_property
    def records(self) -> dict[int, BlockRecord]:
        """The commit records of the written blocks, by block; empty for a final store."""
        if self.is_final:
            return {}
        return self.read_records(range(self.blocks))

    def read_records(self, blocks: Sequence[int]) -> dict[int, BlockRecord]:
        """Return the commit records of those blocks that have one on disk now.

        Raises `StoreError` if a record is damaged or does not match the block's ids.
        """
        ranges = [(fmt.record_name(block), 0, MAX_JSON_BYTES) for block in blocks]
        read = self.location.read_ranges(ranges, missing_ok=True)
        records = {}
        for block, data in zip(blocks, read, strict=True):
            if data is not None:
                records[block] = self.parse_record(block, data)
        return records

    def parse_record(self, block: int, data: bytes) -> BlockRecord:
        """Parse a block's commit record; raise `DamagedFile` if it does not match the block.

        Writers check with it what they are about to write.
        """
        file = StoreFile(self.location, fmt.record_name(block))
        rows = self.rows_of_block(block)
        ids = self.ids[rows.start : rows.stop]
        invalid = f"it is not a valid commit record of block {block} ({{}})"
        with translate(DamagedFile, file, invalid):
            record = BlockRecord.from_json(msgspec.json.decode(data))
            has_shards = Status.DONE in record.status
            done = int(Status.DONE)  # a plain number, which is far faster to compare
            rows_of_ids = zip(ids, record.status, record.sources, strict=True)
            failed = {id_ for id_, code, _ in rows_of_ids if code > done}
            if (
                record.block != block
                or record.failures.keys() != failed
                or record.shards.keys() != set(self.arrays)
                or any((sha256 is not None) != has_shards for sha256 in record.shards.values())
            ):
                raise ValueError("it belongs to another block or store")
        return record

    def rows_of_block(self, block: int) -> range:
        """Return the row numbers of a block; the last block may be shorter than the others."""
        return range(len(self))[block * self.block_rows : (block + 1) * self.block_rows]

    def refresh(self) -> Store:
        """Reread the state of the store and of its rows, which other processes may have changed."""
        self.location.pin()
        self.__dict__ = {
            "location": self.location,
            "attributes": read_attributes(self.location),
            "_stored": {},
        }
        return self

    def info(self) -> dict[str, Any]:
        """Return a summary: rows by status, array shapes and sizes, failures, and attributes."""
        n = len(self)
        to_do, done, *failed = np.bincount(self.status, minlength=2).tolist()
        arrays = {}
        for spec in self.specs:
            arrays[spec.name] = {
                "shape": [n, *spec.shape],
                "dtype": spec.dtype,
                "bytes": n * spec.row_bytes,
                **spec.attributes,
            }
        return self.attributes | {
            "rows": {"all": n, "done": done, "failed": sum(failed), "to_do": to_do},
            "arrays": arrays,
            "failures": self.failures,
        }

    # Reading rows

    def read(
        self,
        array: str = "native",
        ids: Iterable[str] | None = None,
        *,
        missing: Missing = "raise",
    ) -> NDArray[Any]:
        """Read rows of an array, in the order of `ids`.

        Parameters
        ----------
        array
            The name of the array.
        ids
            The ids to read (default: all), such as a list or a column of a table.
        missing
            What to do about ids that are not in the store or whose rows are not done: ``raise`` an
            `UnknownItem` or a `StoreError`, fill their rows with ``nan`` (-1 in integer arrays), or
            ``drop`` them (`done_ids` returns the ids that remain).
        """
        if missing not in ("raise", "nan", "drop"):
            raise UsageError(f"missing must be 'raise', 'nan' or 'drop' (got {missing!r})")
        stored = self.stored(array)
        if ids is not None:
            ids = as_list(ids)
        if ids and len(ids) == 1 and self.location.is_local:  # fast enough for loops
            row = self.row_of.get(ids[0], -1)
            if row >= 0 and self.status.item(row) == Status.DONE:
                return self._row_reader.read_row(stored, row)[None]
        rows = self.find_rows(ids)
        if missing == "raise":
            self._require_done(rows, ids)
        done = self._are_done(rows)
        values = self._row_reader.read(stored, rows[done])
        if missing == "drop" or done.all():
            return values
        filled = np.full((len(rows), *stored.spec.shape), stored.spec.fill, stored.spec.dtype)
        filled[done] = values
        return filled

    def read_rows(self, array: str, rows: Rows) -> NDArray[Any]:
        """Read rows of an array by row number; all of them must be done."""
        self._require_done(rows)
        return self._row_reader.read(self.stored(array), rows)

    def forget(self) -> None:
        """Release the memory used for reading rows; reading more rows is still possible."""
        self._row_reader.forget()

    def find_rows(self, ids: Iterable[str] | None = None) -> Rows:
        """Return the row number of each id (default: all); -1 for ids that are not in the store."""
        if ids is None:
            return np.arange(len(self))
        return np.array([self.row_of.get(id_, -1) for id_ in as_list(ids)], np.intp)

    def done_ids(self, ids: Iterable[str] | None = None) -> list[str]:
        """Return the ids whose rows are done, in the order of `ids` (default: all ids)."""
        ids = self.ids if ids is None else as_list(ids)
        done = self._are_done(self.find_rows(ids))
        return list(itertools.compress(ids, done))

    def missing_rows(self, rows: Rows | None = None, *, retry_failed: bool = False) -> Rows:
        """Return the rows among `rows` (default: all rows) that are still to do.

        With `retry_failed`, failed rows are included. `StoreError` is then raised if the store is
        final and has failed rows, because they cannot be computed again.
        """
        if retry_failed and self.is_final and self.failures:
            raise final_error(self.path, "is final, so its failed rows cannot be retried")
        if rows is None:
            rows = np.arange(len(self))
        status = self.status[rows]
        is_missing = status == Status.TODO
        if retry_failed:
            is_missing = status != Status.DONE
        missing: Rows = rows[is_missing]
        return missing

    # Views for libraries

    def to_pandas(self, array: str = "native") -> pd.DataFrame:
        """Return an array's done rows as a table, with ids as the index and a column per feature.

        Columns have the array's column names, if it has any. If an array has several axes per row,
        such as ``frames``, they are flattened into one: `read` keeps them.
        """
        from obygaze_features.common.package import need

        pandas = need("pandas", extra="models")
        ids = self.done_ids()
        values = self.read(array, missing="drop").reshape(len(ids), -1)
        columns = self.stored(array).spec.columns or None
        frame: pd.DataFrame = pandas.DataFrame(values, pandas.Index(ids, name="id"), columns)
        return frame

    def dataset(
        self,
        array: str = "native",
        ids: Iterable[str] | None = None,
    ) -> StoreDataset:
        """Return an array as a `StoreDataset`, for ``torch.utils.data.DataLoader``.

        Parameters
        ----------
        array
            The name of the array.
        ids
            The ids to return, in this order (default: all ids whose rows are done). Raises
            `UnknownItem` if an id is not in the store, and `StoreError` if a row is not done.
        """
        self.stored(array)  # so that an unknown array raises here, not in a worker
        if ids is None:
            ids = self.done_ids()
        ids = as_list(ids)
        self._require_done(self.find_rows(ids), ids)
        return StoreDataset(partial(self.read, array), ids)

    # Internals

    @cached_property
    def _row_reader(self) -> RowReader:
        return RowReader(self.location, lambda block: self.records.get(block))

    def _are_done(self, rows: Rows) -> NDArray[np.bool_]:
        """Return a mask of the rows that are done; a negative row never is."""
        done: NDArray[np.bool_] = (self.status[rows] == Status.DONE) & (rows >= 0)
        return done

    def _require_done(self, rows: Rows, ids: Sequence[str] | None = None) -> None:
        """Raise `StoreError` with the reason if a row is not done.

        Raise `UnknownItem` if one of `ids`, the rows' ids, is not in the store.
        """
        missing = np.flatnonzero(~self._are_done(rows))
        if not missing.size:
            return
        first = missing[0]
        name = f"row {rows[first]}"
        if ids is not None:
            name = ids[first]
            if name not in self:
                raise UnknownItem(self.where, f": {unknown_name('id', name, self.ids)}")
        reason = "is not done"
        if name in self.failures:
            reason = f"failed: {self.failures[name]}"
        raise StoreError(
            self.where, f": {name} {reason} (rows that cannot be read: {missing.size})"
        )


StoreLike = Store | Path | str
"""A store, or its address for `open_store`."""


def open_store(address: StoreLike) -> Store:
    """Open a store for reading. The checksum of every row that is read is verified.

    Parameters
    ----------
    address
        A folder, ``NAME.zarr``; an archive, ``NAME.zip``; or a URL (``https://...``,
        ``s3://...``, ``hf://...``). Raises `StoreError` if there is no store. A `Store` is returned
        as it is.
    """
    if isinstance(address, Store):
        return address
    return Store(location_of(address))


def location_of(address: str | Path) -> Location:
    """Return the location of an address, without checking that it has a store."""
    # A URL that was passed as a path lost a slash.
    text = re.sub(r"^(https?|s3|hf):/+", r"\1://", str(address))
    if is_url(text):
        from obygaze_features.store.remote import Remote

        return Remote(text)
    path = Path(address)
    if path.suffix.lower() == ".zip" and path.is_file():
        return Zip(path)
    return Folder(path)
