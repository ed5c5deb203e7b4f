"""Read features from HDF5 files that `export` wrote, or that have ids and one row per id.

HDF5 files may come from anybody, so links to other files are not followed, only numbers and
strings are read, and the claimed size of a dataset is checked before it is read.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from obygaze_features.common.text import shorten
from obygaze_features.errors import StoreError, translate
from obygaze_features.store import format as fmt
from obygaze_features.store.export import ATTRIBUTES, REASONS, SOURCES
from obygaze_features.store.format import Status
from obygaze_features.store.import_rows import (
    RowSource,
    check_row,
    errors_named,
    exported_recipe,
    to_storable,
)
from obygaze_features.store.writer import Failed

MAX_TEXT_BYTES = 2**28
"""The maximum size of an HDF5 dataset of strings."""
MAX_ROW_BYTES = 2**30
"""The maximum size of a row or chunk. HDF5 reads it whole, and a file can claim any size."""
CACHE_BYTES = 64 * 2**20
"""The size of the HDF5 chunk cache, so that a chunk of many rows is decompressed only once."""


def read_hdf5(path: Path) -> RowSource:
    """Open an exported store, or an HDF5 file with ``ids`` and datasets with one row per id."""
    import h5py

    with errors_named(path, "HDF5"):
        file = h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES)
        ids = _read_texts(file, fmt.IDS)
        if ATTRIBUTES in file:
            return _read_exported(path, file, ids)
        datasets = {name: _find_dataset(file, name) for name in file if name != fmt.STATUS}
        matrices = {
            name: _Hdf5Rows(dataset)
            for name, dataset in datasets.items()
            if _is_numbers(dataset) and dataset.ndim > 1 and len(dataset) == len(ids)
        }
        if not matrices:
            raise StoreError("it has no numeric dataset with one row per id")
        return RowSource(path, matrices, ids)


def _read_exported(path: Path, file: Any, ids: list[str]) -> RowSource:
    """Open a file that `export` wrote, with all rows of the store."""
    recipe = exported_recipe(ATTRIBUTES, _read_texts(file, ATTRIBUTES, ())[0])
    sources, reasons = (_read_texts(file, name, (len(ids),)) for name in (SOURCES, REASONS))
    without: dict[int, Failed | None] = {}
    for row, code in enumerate(_read_numbers(file, fmt.STATUS, (len(ids),), "iu")[()].tolist()):
        status = Status(code)
        if status != Status.DONE:
            reason = reasons[row] if reasons[row].isprintable() else shorten(reasons[row], 200)
            without[row] = Failed(status, reason, sources[row] or None) if status else None
    matrices, probe = {}, {}
    for array in recipe.arrays:
        dataset = _read_numbers(file, array.name, (len(ids), *array.shape))
        matrices[array.name] = _Hdf5Rows(dataset)
        name = f"{fmt.PROBE}/{array.name}"
        if _find_dataset(file, name) is not None:
            reference = _read_numbers(file, name, array.shape)
            probe[array.name] = check_row(to_storable(_read(reference, ())), array)
    return RowSource(path, matrices, ids, recipe, without, lambda row: sources[row] or None, probe)


class _Hdf5Rows:
    """An HDF5 dataset that is read row by row. Reading a row that was never written is an error."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.shape, self.dtype = dataset, dataset.shape, dataset.dtype

    def __getitem__(self, row: int) -> Any:
        chunks = self.dataset.chunks
        if chunks is None:
            written = self.dataset.id.get_storage_size() > 0
        else:
            first = (row // chunks[0] * chunks[0], *(0 for _ in self.shape[1:]))
            with translate(StoreError, "it", "cannot be read ({})"):
                written = self.dataset.id.get_chunk_info_by_coord(first).byte_offset is not None
        if not written:  # HDF5 would return zeros
            raise StoreError("the row was never written")
        return _read(self.dataset, row)


def _find_dataset(file: Any, name: str) -> Any:
    """Return a dataset stored in this file; None if there is no such dataset."""
    import h5py

    node: Any = file
    for part in name.split("/"):
        if not isinstance(node, h5py.Group) or part not in node:
            return None
        if not isinstance(node.get(part, getlink=True), h5py.HardLink):
            raise StoreError(f"{name} is a link, and links are not followed")
        node = node[part]
    if not isinstance(node, h5py.Dataset):
        return None
    if node.external or node.is_virtual:
        raise StoreError(f"{name} is stored in other files, which are not read")
    largest = max(math.prod((node.shape or ())[1:]), math.prod(node.chunks or ()))
    if largest * node.dtype.itemsize > MAX_ROW_BYTES:
        raise StoreError(f"a row or chunk of {name} would take more than {MAX_ROW_BYTES >> 30} GiB")
    return node


def _is_numbers(dataset: Any, kinds: str = "fiu") -> bool:
    return dataset is not None and dataset.dtype.kind in kinds


def _read_numbers(file: Any, name: str, shape: tuple[int, ...], kinds: str = "fiu") -> Any:
    """Return a numeric dataset of the expected shape, without reading its values."""
    dataset = _find_dataset(file, name)
    if not _is_numbers(dataset, kinds) or dataset.shape != shape:
        expected = " x ".join(map(str, shape))
        raise StoreError(f"{name} is not a numeric dataset of shape {expected}")
    return dataset


def _read_texts(file: Any, name: str, shape: tuple[int, ...] | None = None) -> list[str]:
    """Read a dataset of strings; a scalar dataset gives a list of one string."""
    import h5py

    dataset = _find_dataset(file, name)
    is_texts = dataset is not None and h5py.check_string_dtype(dataset.dtype) is not None
    there = dataset.shape if is_texts else None
    if there is None or (len(there) != 1 if shape is None else there != shape):
        raise StoreError(f"it has no dataset {name!r} of strings in the right shape")
    if dataset.nbytes > MAX_TEXT_BYTES:
        raise StoreError(f"{name} would take more than {MAX_TEXT_BYTES >> 20} MiB")
    texts = _read(dataset, ())
    with translate(StoreError, name, "is not valid UTF-8 ({})"):
        return [text.decode() for text in (texts.tolist() if there else [texts])]


def _read(dataset: Any, selection: Any) -> Any:
    with translate(StoreError, "it", "cannot be read ({})"):
        return dataset[selection]
