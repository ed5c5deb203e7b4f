"""Reading a store: rows by id, and what is done, from the commit records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from numpy.typing import NDArray

from obygaze_features.common.files import read_json
from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.format import ArraySpec, BlockRecord, Status

__all__ = ["FeatureStore", "open_store"]


@dataclass(frozen=True)
class FeatureStore:
    """The features of one manifest's items under one backbone. Open one with `open_store`.

    `ids`, `attributes` and `path` are what they say; `status` and `failures` are as they were
    when they were first asked for. Open the store again to see what was written since.
    """

    path: Path
    attributes: dict[str, Any]
    ids: list[str]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, one: str) -> dict[str, NDArray[Any]]:
        """Every array's row of an id."""
        return {name: self.read([one], name)[1][0] for name in self.arrays}

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays."""
        return list(self.attributes["arrays"])

    @property
    def block_rows(self) -> int:
        """Rows a block."""
        return int(self.attributes["block_rows"])

    @cached_property
    def specs(self) -> list[ArraySpec]:
        """What each array is."""
        return [
            ArraySpec(name, tuple(one["shape"]), one["dtype"], one["meaning"])
            for name, one in self.attributes["arrays"].items()
        ]

    @cached_property
    def records(self) -> list[BlockRecord]:
        """The commit records of the blocks that are written, in order."""
        blocks = range(spec.block_count(len(self), self.block_rows))
        found = (self.path / spec.record_name(block) for block in blocks)
        return [self._record(path) for path in found if path.exists()]

    @cached_property
    def status(self) -> NDArray[np.uint8]:
        """A `Status` for each row."""
        status = np.full(len(self), Status.TODO, np.uint8)
        for record in self.records:
            rows = spec.rows_of_block(record.block, len(self), self.block_rows)
            status[rows.start : rows.stop] = record.status
        return status

    @cached_property
    def failures(self) -> dict[str, str]:
        """Id -> reason, for the rows that failed."""
        return {one: why for record in self.records for one, why in record.failures.items()}

    def array(self, name: str) -> NDArray[Any]:
        """A whole array, row for row as in `ids`; NaN (whole numbers: -1) where not done."""
        one = self._spec(name)
        values = np.full((len(self), *one.shape), one.fill, one.dtype)
        done = np.flatnonzero(self.status == Status.DONE)
        # Runs of rows as slices: Zarr takes far longer over single ones.
        for run in np.split(done, np.flatnonzero(np.diff(done) > 1) + 1):
            if run.size:
                rows = slice(int(run[0]), int(run[-1]) + 1)
                values[rows] = self._stored(one, rows)
        return values

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
        have = [one for one in ids if self._is_done(one)]
        if missing == "raise" and len(have) != len(ids):
            raise StoreError(f"{self.path}: {self._why_not(ids)}")
        rows = np.array([self._row_of[one] for one in have], np.intp)
        return have, self._stored(self._spec(name), rows)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {one: row for row, one in enumerate(self.ids)}

    def _is_done(self, one: str) -> bool:
        return one in self._row_of and self.status[self._row_of[one]] == Status.DONE

    def _why_not(self, ids: Sequence[str]) -> str:
        lacking = [one for one in ids if not self._is_done(one)]
        first = lacking[0]
        if first not in self._row_of:
            why = "is not an item of this store"
        else:
            why = f"failed: {self.failures[first]}" if first in self.failures else "is not done yet"
        more = f" (and {len(lacking) - 1} more that cannot be read)" if len(lacking) > 1 else ""
        return f"{first} {why}{more}"

    def _spec(self, name: str) -> ArraySpec:
        for one in self.specs:
            if one.name == name:
                return one
        raise StoreError(f"{self.path} has no array {name}; it has {', '.join(self.arrays)}")

    def _stored(self, one: ArraySpec, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        """Rows that are done, checked: their checksums, and that they are there at all."""
        array = zarr.open_array(self.path / one.name, mode="r", zarr_format=3)
        try:
            values = np.asarray(array.oindex[rows])
        except ValueError as problem:
            raise StoreError(f"{self.path}: {one.name} is damaged ({problem})") from None
        # A shard that was lost reads as the fill value, which no done row ever holds.
        lost = one.is_fill(values)
        if lost.any():
            first = self.ids[np.arange(len(self))[rows][np.argwhere(lost)[0][0]]]
            raise StoreError(f"{self.path}: {one.name} is damaged, the row of {first} is not there")
        return values

    def _record(self, path: Path) -> BlockRecord:
        try:
            record = BlockRecord.from_json(read_json(path, StoreError))
        except (KeyError, TypeError, ValueError) as problem:
            raise StoreError(f"{path} is not a commit record ({problem})") from None
        rows = spec.rows_of_block(int(path.stem), len(self), self.block_rows)
        if record.block != int(path.stem) or len(record.status) != len(rows):
            raise StoreError(f"{path} is the record of another block")
        return record


def open_store(path: Path) -> FeatureStore:
    """Open a store for reading.

    Parameters
    ----------
    path
        The folder, ``NAME.zarr``. `StoreError` if it is not a store.
    """
    header = path / "zarr.json"
    if not header.is_file():
        raise StoreError(f"{path} is not a feature store: it has no zarr.json")
    attributes = read_json(header, StoreError).get("attributes", {}).get(spec.ATTRIBUTES)
    if attributes is None:
        raise StoreError(f"{path} is a Zarr group, but not one that obygaze made")
    if attributes.get("format_version") != spec.FORMAT_VERSION:
        raise StoreError(
            f"{path} has format version {attributes.get('format_version')}, "
            f"and this obygaze reads version {spec.FORMAT_VERSION}"
        )
    ids = zarr.open_array(path / spec.IDS, mode="r", zarr_format=3)[:]
    return FeatureStore(path, attributes, spec.decode_ids(np.asarray(ids, np.uint8)))
