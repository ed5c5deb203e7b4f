"""Features in an HDF5 file: one that `export` wrote, or any with ids and datasets of as many rows.

Links out of the file are not followed, nothing but numbers and texts is read, and a size that a
file claims is checked before anything is read.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.export import ATTRIBUTES, REASONS, SOURCES
from obygaze_features.store.format import Status
from obygaze_features.store.import_rows import (
    RowSource,
    check_row,
    exported_attributes,
    exported_provenance,
    to_storable,
)
from obygaze_features.store.provenance import Provenance, stated

MAX_TEXT_BYTES = 2**28
"""Bytes that the texts of an HDF5 dataset may take."""
MAX_ROW_BYTES = 2**30
"""Bytes of a row or a chunk, which HDF5 reads whole: a small file can claim any number."""
CACHE_BYTES = 64 * 2**20
"""For HDF5's chunks of many rows, so that none is decompressed for each of its rows again."""


def read_hdf5(path: Path, provenance: Provenance | None) -> RowSource:
    """An HDF5 file with a dataset ``ids`` and datasets of as many rows, or an exported store.

    Links out of the file are not followed, and nothing but numbers and texts is read.
    """
    import h5py

    if not path.is_file():
        raise StoreError(f"{path} is not a file; give an HDF5 file")
    try:
        file = h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES)
    except OSError as problem:
        words = " ".join(str(problem).split())
        raise StoreError(f"{path} is not an HDF5 file, or a damaged one ({words:.100})") from None
    if fmt.IDS not in file:
        raise StoreError(f"{path} has no dataset {fmt.IDS!r}, which says whose each row is")
    try:
        if ATTRIBUTES in file:
            text = _hdf5_texts(file, ATTRIBUTES, axes=0)[0]
            return _exported_hdf5(
                path, file, exported_attributes(path, ATTRIBUTES, text), provenance
            )
        ids = _hdf5_texts(file, fmt.IDS)
        odd = [name for name in file if isinstance(name, bytes) or not name.isprintable()]
        if odd:
            raise StoreError(f"the name {odd[0]!r:.60} is not plain text in UTF-8; rename it")
        matrices = {}
        for name in file:
            dataset = _hdf5_dataset(file, name) if name not in (fmt.IDS, fmt.STATUS) else None
            if (
                dataset is not None
                and dataset.dtype.kind in "fiu"
                and dataset.ndim > 1
                and dataset.shape[0] == len(ids)
            ):
                matrices[name] = _Hdf5Rows(dataset, name)
        if not matrices:
            raise StoreError("it has no dataset of numbers with a row for each id")
    except StoreError as problem:
        raise _naming(path, problem) from None
    return RowSource(path, matrices, ids, provenance or stated())


def _exported_hdf5(
    path: Path, file: Any, attributes: dict[str, Any], provenance: Provenance | None
) -> RowSource:
    """What `export` wrote: all that makes a store."""
    ids, specs = _hdf5_texts(file, fmt.IDS), fmt.specs_of(attributes)
    texts = {name: _hdf5_texts(file, name) for name in (SOURCES, REASONS)}
    status = _hdf5_dataset(file, fmt.STATUS)
    if status is None or status.dtype.kind not in "iu":
        raise StoreError(f"{fmt.STATUS} is not a dataset of whole numbers")
    for name, shape in [(fmt.STATUS, status.shape)] + [(n, (len(t),)) for n, t in texts.items()]:
        if shape != (len(ids),):
            raise StoreError(f"{name} does not have one value for each id")
    codes = status[()].tolist()
    if odd := set(codes) - {int(code) for code in Status}:
        raise StoreError(f"{fmt.STATUS} has the unknown code {odd.pop()}")
    matrices, probe = {}, {}
    for array in specs:
        dataset = _hdf5_dataset(file, array.name)
        if (
            dataset is None
            or dataset.dtype.kind not in "fiu"
            or dataset.shape != (len(ids), *array.shape)
        ):
            raise StoreError(f"{array.name} is not a dataset with a row for each id")
        matrices[array.name] = _Hdf5Rows(dataset, array.name)
        name = f"{fmt.PROBE}/{array.name}"
        if (reference := _hdf5_dataset(file, name)) is not None:
            if reference.shape != array.shape or reference.dtype.kind not in "fiu":
                raise StoreError(f"{name} is not a row of {array.name}")
            probe[array.name] = check_row(to_storable(_read_hdf5(reference, ())), array)
    return RowSource(
        path, matrices, ids, exported_provenance(path, attributes, provenance), {}, codes,
        texts[SOURCES], texts[REASONS], probe, specs,
    )  # fmt: skip


class _Hdf5Rows:
    """A dataset of an HDF5 file, read row by row; rows that were never written are refused."""

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset, self.shape, self.dtype = dataset, dataset.shape, dataset.dtype
        if math.prod(dataset.shape[1:]) * dataset.dtype.itemsize > MAX_ROW_BYTES:
            raise StoreError(f"a row of {name} would take more than {MAX_ROW_BYTES >> 30} GiB")

    def __getitem__(self, row: int) -> NDArray[Any]:
        chunks = self.dataset.chunks
        if chunks is None:
            written = self.dataset.id.get_storage_size() > 0
        else:
            first = (row // chunks[0] * chunks[0], *(0 for _ in self.shape[1:]))
            written = self.dataset.id.get_chunk_info_by_coord(first).byte_offset is not None
        if not written:  # HDF5 reads it as zeros
            raise StoreError("nothing was ever written there")
        values: NDArray[Any] = _read_hdf5(self.dataset, row)
        return values


def _hdf5_dataset(file: Any, name: str) -> Any:
    """A dataset in this very file; None if there is none."""
    import h5py

    node: Any = file
    for part in name.split("/"):
        if not isinstance(node, h5py.Group) or part not in node:
            return None
        if not isinstance(node.get(part, getlink=True), h5py.HardLink):
            raise StoreError(f"{name} is a link, which is not followed")
        node = node[part]
    if not isinstance(node, h5py.Dataset):
        return None
    if node.external or node.is_virtual:
        raise StoreError(f"{name} is in other files, which are not read")
    if node.chunks and math.prod(node.chunks) * node.dtype.itemsize > MAX_ROW_BYTES:
        raise StoreError(f"a chunk of {name} would take more than {MAX_ROW_BYTES >> 30} GiB")
    return node


def _hdf5_texts(file: Any, name: str, *, axes: int = 1) -> list[str]:
    """A dataset of texts: a list of them, or a single one (no axes)."""
    import h5py

    dataset = _hdf5_dataset(file, name)
    if (
        dataset is None
        or h5py.check_string_dtype(dataset.dtype) is None
        or dataset.shape is None
        or dataset.ndim != axes
    ):
        raise StoreError(f"{name} is not {'a list of texts' if axes else 'a text'}")
    if dataset.nbytes > MAX_TEXT_BYTES:
        raise StoreError(f"{name}: it would take more than {MAX_TEXT_BYTES >> 20} MiB")
    texts = _read_hdf5(dataset, ())
    try:
        return [text.decode() for text in (texts.tolist() if axes else [texts])]
    except UnicodeDecodeError:
        raise StoreError(f"{name} is not text in UTF-8") from None


def _read_hdf5(dataset: Any, selection: Any) -> Any:
    try:
        return dataset[selection]
    except (OSError, RuntimeError, ValueError, TypeError, MemoryError) as problem:
        words = " ".join(str(problem).split())
        raise StoreError(f"it cannot be read ({words:.100})") from None


def _naming(path: Path, problem: StoreError) -> StoreError:
    """An error with the file that it is about."""
    return problem if str(problem).startswith(f"{path}") else StoreError(f"{path}: {problem}")
