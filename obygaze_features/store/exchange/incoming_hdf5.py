"""Features out of an HDF5 file: what `export_hdf5` wrote, or any with datasets of rows and ids."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import shorten
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.manifests import Item, Manifest
from obygaze_features.store import format as spec
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.exchange.hdf5 import ATTRIBUTES, REASONS, SOURCES
from obygaze_features.store.exchange.hdf5_texts import read_texts
from obygaze_features.store.exchange.incoming import as_stored, fit, index_ids, read_exported
from obygaze_features.store.exchange.provenance import Provenance, stated
from obygaze_features.store.format import ArraySpec, Status

__all__ = ["Hdf5Source"]

CACHE = 64 * 2**20
"""For chunks of many rows, so that none is decompressed for each of its rows anew."""
MOST_AT_ONCE = 2**30
"""Bytes of a row, or of a chunk, which HDF5 reads whole: a file can claim any, and have none."""


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
            name = f"{spec.PROBE}/{one.name}"
            if (dataset := self._dataset(name)) is None:
                continue
            if dataset.shape != one.shape or dataset.dtype.kind not in "fiu":
                raise StoreError(f"{self.path}: {name} is not a row of {one.name}")
            with self._naming(name):
                found[one.name] = fit(as_stored(self._read(dataset, ())), one)
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
            if odd := [one for one in names if isinstance(one, bytes) or not one.isprintable()]:
                raise StoreError(
                    f"{self.path}: the name {odd[0]!r:.60} is not plain text in UTF-8; rename it"
                )
            found = [one for name in names if (one := self._spec(name))]
        if not found:
            raise StoreError(f"{self.path} has no dataset of numbers with a row for each id")
        for one in found:
            self._rows_of(one)
        if self._attributes:
            _ = self._table  # read now, so that a file that is not right makes no store
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
            return Failed(code, reason if reason.isprintable() else shorten(reason, 200), source)
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
        return read_exported(self.path, ATTRIBUTES, self._text(ATTRIBUTES))

    def _read_ids(self) -> dict[str, int]:
        if spec.IDS not in self._file:
            raise StoreError(f"{self.path} has no dataset {spec.IDS!r}, so nobody knows whose rows")
        ids = self._texts(spec.IDS)
        if not ids:
            raise StoreError(f"{self.path}: {spec.IDS} is not a list of texts")
        return index_ids(self.path, ids)

    @cached_property
    def _table(self) -> dict[str, Any]:
        """What became of each row of an exported store."""
        dataset = self._dataset(spec.STATUS)
        if dataset is None or dataset.dtype.kind not in "iu":
            raise StoreError(f"{self.path}: {spec.STATUS} is not a dataset of whole numbers")
        columns = {spec.STATUS: dataset} | {one: self._dataset(one) for one in (SOURCES, REASONS)}
        for name, one in columns.items():
            if one is None or one.shape != (len(self._row_of),):
                raise StoreError(f"{self.path}: {name} does not have one value for each id")
        with self._naming(spec.STATUS):
            status = self._read(dataset, ()).tolist()
        if odd := set(status) - {int(one) for one in Status}:
            raise StoreError(f"{self.path}: {spec.STATUS} has the code {odd.pop()}, which is none")
        texts = {name: self._texts(name) for name in (SOURCES, REASONS)}
        return {spec.STATUS: status, **texts}

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
        with self._naming(name):
            dtype = as_stored(np.empty(0, dataset.dtype)).dtype
        return ArraySpec(name, dataset.shape[1:], str(dtype), "imported from HDF5")

    def _rows_of(self, one: ArraySpec) -> Any:
        """The dataset of an array, which must have a row for each id."""
        if one.name in self._checked:
            return self._checked[one.name]
        dataset = self._dataset(one.name)
        shape = (len(self._row_of), *one.shape)
        if dataset is None or dataset.shape != shape or dataset.dtype.kind not in "fiu":
            raise StoreError(f"{self.path}: {one.name} is not a dataset with a row for each id")
        if one.row_bytes > MOST_AT_ONCE:
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
        if place.chunks and math.prod(place.chunks) * place.dtype.itemsize > MOST_AT_ONCE:
            raise StoreError(f"{self.path}: a chunk of {name} would take more than 1 GiB")
        return place

    def _text(self, name: str) -> str:
        """A dataset that is one text."""
        return self._strings(name, axes=0)[0]

    def _texts(self, name: str) -> list[str]:
        """A dataset that is a list of texts."""
        return self._strings(name, axes=1)

    def _strings(self, name: str, *, axes: int) -> list[str]:
        import h5py

        dataset = self._dataset(name)
        if (
            dataset is None
            or h5py.check_string_dtype(dataset.dtype) is None
            or dataset.shape is None
            or dataset.ndim != axes
        ):
            raise StoreError(
                f"{self.path}: {name} is not {'a list of texts' if axes else 'a text'}"
            )
        with self._naming(name), _reading():
            found = read_texts(self.path, dataset)
        try:
            return [one.decode() for one in found]
        except UnicodeDecodeError:
            raise StoreError(f"{self.path}: {name} is not text in UTF-8") from None

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Say of which dataset an error is."""
        try:
            yield
        except StoreError as problem:
            raise StoreError(f"{self.path}: {name}: {problem}") from None

    def _read(self, dataset: Any, where: Any) -> Any:
        with _reading():
            return dataset[where]


@contextmanager
def _reading() -> Iterator[None]:
    """What the library says of a damaged file, in one line."""
    try:
        yield
    except StoreError:
        raise
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
