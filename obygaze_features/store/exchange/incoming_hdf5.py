"""Features out of an HDF5 file: what `export_hdf5` wrote, or any with datasets of rows and ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.words import quote
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.manifests import Item, Manifest
from obygaze_features.store import format as spec
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.exchange.hdf5 import ATTRIBUTES, REASONS, SOURCES
from obygaze_features.store.exchange.incoming import as_stored, fit
from obygaze_features.store.exchange.provenance import Provenance, stated
from obygaze_features.store.format import ArraySpec, Status
from obygaze_features.store.metadata import check_attributes

__all__ = ["Hdf5Source"]

CACHE = 64 * 2**20
"""For chunks of many rows, so that none is decompressed for each of its rows anew."""
MOST_A_ROW = 2**30
"""A file can claim rows of any size, and never have been written."""


class Hdf5Source:
    """A source of features: an HDF5 file with a dataset ``ids``, and datasets of as many rows.

    Links out of the file are not followed.

    Parameters
    ----------
    path
        The file. `StoreError` if it is none, or has no ids.
    provenance
        What the features were made with; None where the file says so itself, as an exported
        store does, or where nobody knows.
    """

    def __init__(self, path: Path, provenance: Provenance | None = None) -> None:
        import h5py

        if not path.is_file():
            raise StoreError(f"{path} is not a file; an HDF5 file is meant")
        try:
            self._file = h5py.File(path, "r", rdcc_nbytes=CACHE)
        except OSError as problem:
            words = " ".join(str(problem).split())
            raise StoreError(f"{path} is no HDF5 file, or a damaged one ({words:.100})") from None
        self.path = path
        self._checked: dict[str, Any] = {}
        self._attributes = self._read_attributes()
        if self._attributes and provenance:
            raise UsageError(f"{path} is an exported store, and says itself what it was made with")
        self._row_of = self._read_ids()
        self._provenance = provenance

    @property
    def words(self) -> str:
        """What it is, for the store's log."""
        return str(self.path)

    @property
    def provenance(self) -> Provenance:
        """What its features were made with."""
        known = self._attributes
        if known:
            return Provenance(known["backbone"], known["preprocessing"], known["precision"])
        return self._provenance or stated()

    @property
    def probe(self) -> Mapping[str, NDArray[Any]]:
        """The features of the fixed made-up clip, of an exported store."""
        if not self._attributes:
            return {}
        found = {}
        for one in spec.specs_of(self._attributes):
            if f"{spec.PROBE}/{one.name}" in self._file:
                values = self._read(self._dataset(f"{spec.PROBE}/{one.name}"), ())
                found[one.name] = fit(as_stored(values), one)
        return found

    def look(self, manifest: Manifest) -> tuple[str, ...]:
        """The names of its arrays; `StoreError` if it has none of the items."""
        if not any(one in self._row_of for one in manifest.ids):
            raise StoreError(
                f"{self.path} has none of the {len(manifest)} items of {manifest.name}"
            )
        return tuple(one.name for one in self.arrays(manifest))

    def arrays(self, manifest: Manifest) -> tuple[ArraySpec, ...]:
        """The arrays of an exported store, or every dataset of numbers that has a row an id."""
        if self._attributes:
            found = spec.specs_of(self._attributes)
        else:
            names = [name for name in self._file if name not in (spec.IDS, spec.STATUS)]
            found = [one for name in names if (one := self._spec(name))]
        if not found:
            raise StoreError(f"{self.path} has no dataset of numbers with a row for each id")
        for one in found:
            self._rows_of(one)
        return tuple(found)

    def row(self, item: Item, arrays: Mapping[str, ArraySpec]) -> Done | Failed | None:
        """What the file has for an item, or why it has nothing."""
        row = self._row_of.get(item.id)
        if row is None:
            return Failed(Status.MISSING, f"it is not in {self.path.name}")
        code, source, reason = Status.DONE, None, ""
        if self._attributes:
            code = Status(self._table[spec.STATUS][row])
            source, reason = self._table[SOURCES][row] or None, self._table[REASONS][row]
        if code == Status.TODO:
            return None
        if code > Status.DONE:
            return Failed(code, reason, source)
        values = {}
        for name, one in arrays.items():
            try:
                dataset = self._rows_of(one)
                _check_written(dataset, row)
                values[name] = fit(as_stored(self._read(dataset, row)), one)
            except StoreError as problem:
                return Failed(Status.UNREADABLE, f"{self.path.name}, {name}: {problem}", source)
        return Done(values, source)

    def _read_attributes(self) -> dict[str, Any]:
        """The attributes of an exported store; nothing if it is another file."""
        if ATTRIBUTES not in self._file:
            return {}
        try:
            found = json.loads(self._texts(ATTRIBUTES))
            if not isinstance(found, dict):
                raise ValueError("no object")
        except (ValueError, TypeError, RecursionError):
            raise StoreError(f"{self.path}: its {ATTRIBUTES} cannot be read") from None
        check_attributes(self.path, found)
        return found

    def _read_ids(self) -> dict[str, int]:
        if spec.IDS not in self._file:
            raise StoreError(f"{self.path} has no dataset {spec.IDS!r}, so nobody knows whose rows")
        ids = self._texts(spec.IDS)
        if isinstance(ids, str) or not ids:
            raise StoreError(f"{self.path}: {spec.IDS} is not a list of texts")
        rows = {one: row for row, one in enumerate(ids)}
        if len(rows) < len(ids):
            twice = next(one for row, one in enumerate(ids) if rows[one] != row)
            raise StoreError(f"{self.path} has two rows for {quote(twice)}")
        return rows

    @cached_property
    def _table(self) -> dict[str, Any]:
        """What became of each row of an exported store."""
        status = self._read(self._dataset(spec.STATUS), ()).tolist()
        table = {spec.STATUS: status, SOURCES: self._texts(SOURCES), REASONS: self._texts(REASONS)}
        known = {int(one) for one in Status}
        whole = isinstance(status, list) and all(code in known for code in status)
        if not whole or any(len(column) != len(self._row_of) for column in table.values()):
            raise StoreError(f"{self.path}: its status, sources and reasons do not go with its ids")
        return table

    def _spec(self, name: str) -> ArraySpec | None:
        """The array that a dataset of another's file can become, if it can."""
        dataset = self._dataset(name)
        if (
            dataset is None
            or dataset.dtype.kind not in "fiu"
            or dataset.ndim < 2
            or dataset.shape[0] != len(self._row_of)
        ):
            return None
        dtype = as_stored(np.empty(0, dataset.dtype)).dtype
        return ArraySpec(name, dataset.shape[1:], str(dtype), "imported from HDF5")

    def _rows_of(self, one: ArraySpec) -> Any:
        """The dataset of an array, which must have a row for each id."""
        if one.name in self._checked:
            return self._checked[one.name]
        dataset = self._dataset(one.name)
        if dataset is None or dataset.shape != (len(self._row_of), *one.shape):
            raise StoreError(f"{self.path}: {one.name} is not a dataset with a row for each id")
        if one.bytes_a_row > MOST_A_ROW:
            raise StoreError(f"{self.path}: a row of {one.name} would take more than 1 GiB")
        self._checked[one.name] = dataset
        return dataset

    def _dataset(self, name: str) -> Any:
        """A dataset that lies in this very file; None if there is none."""
        import h5py

        *groups, last = name.split("/")
        place: Any = self._file
        for part in (*groups, last):
            if not isinstance(place, h5py.Group) or part not in place:
                return None
            if not isinstance(place.get(part, getlink=True), h5py.HardLink):
                raise StoreError(f"{self.path}: {name} is a link, which is not followed")
            place = place[part]
        if not isinstance(place, h5py.Dataset):
            return None
        if place.external or place.is_virtual:
            raise StoreError(f"{self.path}: {name} lies in other files, which are not read")
        return place

    def _texts(self, name: str) -> Any:
        """A dataset of texts, one or a list of them."""
        dataset = self._dataset(name)
        values = None if dataset is None else self._read(dataset, ())
        try:
            if isinstance(values, bytes):
                return values.decode()
            assert values is not None
            return [one.decode() for one in values.tolist()]
        except (AttributeError, AssertionError, TypeError, UnicodeDecodeError):
            raise StoreError(f"{self.path}: {name} is not text in UTF-8") from None

    def _read(self, dataset: Any, where: Any) -> Any:
        try:
            return dataset[where]
        except (OSError, RuntimeError, ValueError, TypeError, MemoryError) as problem:
            words = " ".join(str(problem).split())
            raise StoreError(f"it cannot be read ({words:.100})") from None


def _check_written(dataset: Any, row: int) -> None:
    """Refuse a row that was never written: HDF5 reads it as zeros."""
    if dataset.chunks is None:
        there = dataset.id.get_storage_size() > 0
    else:
        first = (row // dataset.chunks[0] * dataset.chunks[0], *(0 for _ in dataset.shape[1:]))
        there = dataset.id.get_chunk_info_by_coord(first).byte_offset is not None
    if not there:
        raise StoreError("nothing was ever written there")
