"""Open the sources of an import: arrays in memory, files and folders.

A folder has one file per item, ``FILM/STEM.pth`` or ``FILM/STEM.npy``, which is found like the
item's media file. If no file has that stem, or if the item is a span of a film, the file is found
by the item's id. In all other sources, each row has an id.
"""

from __future__ import annotations

import itertools
import math
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import shorten
from obygaze_features.common.package import need
from obygaze_features.common.tables import read_table
from obygaze_features.errors import StoreError, UsageError, translate
from obygaze_features.items.items import Items
from obygaze_features.items.media import MediaFolder, id_of_name
from obygaze_features.store import format as fmt

Source = Any
"""A path, an array, a DataFrame with ids as its index, or a mapping of these by array name."""
CACHE_BYTES = 64 * 2**20
"""The size of each dataset's chunk cache, so that HDF5 need not decompress a chunk for each row."""
MAX_ROW_BYTES = 2**30
"""The maximum size of a row, a chunk or the ids.

HDF5 reads each of them whole, and a file may claim any size for them.
"""
MAX_VALUES = 2**30
"""The maximum number of values in a Parquet file, which is read whole."""
ABOUT_CLIPS = ["film", "start", "end"]
"""Columns of a table that are not features, as in a manifest's ``items.csv``."""


@dataclass(frozen=True)
class ArrayRows:
    """The rows of one array.

    Parameters
    ----------
    path
        The file or folder; the array's name if it is in memory.
    read
        A function that returns an item's row, by id. It raises `LookupError` if the item has none,
        and another error if the row cannot be read.
    columns
        The names along the last axis, if it has names.
    """

    path: Path
    read: Callable[[str], Array]
    columns: Sequence[str] = ()


def open_arrays(
    source: Source,
    items: Items,
    ids: Path | str | Iterable[object] | None,
) -> dict[str, ArrayRows]:
    """Open a source, or several; return the rows of each array."""
    if not isinstance(source, Mapping):
        source = {"native": source}
    films: Iterable[str] = itertools.repeat("")
    if isinstance(ids, Path | str):
        table = read_table(Path(ids), required=["id"])
        films = table.get("film")
        ids = table["id"]
    if ids is not None:
        ids = list(ids)

    sources: dict[str, ArrayRows] = {}
    for name, values in source.items():
        path = Path(name)
        if isinstance(values, Path | str):
            path = values = Path(values)
            if path.is_dir() and ids is None:
                sources[name] = _open_folder(path, name, items)
                continue
        with translate(StoreError, path, "cannot be read ({})"):
            matrices, names = _read_source(values, name, ids is None)
        names = ids or names
        if names is None:
            raise UsageError(f"{path} has no ids; pass the id of each row (ids=, --ids)")
        sources |= _find_rows(path, matrices, _match_ids(items, names, films))
    return sources


def _match_ids(items: Items, names: Iterable[object], films: Iterable[str]) -> list[str]:
    """Return ids; names that the items lack are changed as in the import of a table."""
    ids = []
    for name, film in zip(map(str, names), films, strict=False):
        if name not in items.row_of:
            name = id_of_name(name, film)
        ids.append(name)
    return ids


def _find_rows(path: Path, matrices: Mapping[str, Any], ids: Sequence[str]) -> dict[str, ArrayRows]:
    """Return the rows of the arrays that have a row per id, and leave other arrays out."""
    row_of: dict[str, int] = {}
    for row, id_ in enumerate(ids):
        if row_of.setdefault(id_, row) != row:
            raise StoreError(path, f"has several rows for {shorten(id_)}; keep one")

    sources = {}
    shape: Sequence[int] = ()
    for name, matrix in matrices.items():
        columns = [column for column in getattr(matrix, "columns", ()) if isinstance(column, str)]
        if hasattr(matrix, "to_numpy"):
            matrix = matrix.to_numpy()
        shape = getattr(matrix, "shape", (len(ids), 1))  # a list may have rows of several shapes
        if len(shape) > 1 and shape[0] == len(ids) and 0 not in shape:
            read = partial(_read_row, path, row_of, matrix)
            sources[name] = ArrayRows(path, read, columns)
    if not sources:
        raise StoreError(
            path, f"needs 2 or more axes and a row per id (ids: {len(ids):,}; shape: {shape})"
        )
    return sources


def _read_row(path: Path, row_of: Mapping[str, int], matrix: Any, id_: str) -> Array:
    if id_ not in row_of:
        raise LookupError(f"its id has no row in {path.name}")
    return np.array(matrix[row_of[id_]])


def _read_source(source: Source, name: str, by_id: bool) -> tuple[Mapping[str, Any], Any]:
    """Return arrays by name, and the id of each row or None.

    With `by_id`, the names of a safetensors file's tensors are ids.
    """
    if isinstance(source, Path):
        suffix = source.suffix.lower()
        if suffix == ".npy":
            return {name: _map_npy(source, source)}, None
        if suffix in (".h5", ".hdf5"):
            return _open_hdf5(source)
        if suffix == ".safetensors":
            tensors = need("safetensors.numpy", extra="models").load_file(source)
            if by_id:
                return {name: list(map(_drop_batch, tensors.values()))}, list(tensors)
            return tensors, None
        if suffix != ".parquet":
            raise UsageError(
                f"{source} cannot be imported; pass a .npy, .parquet, .safetensors, .h5 or .hdf5 "
                "file or, without ids, an existing folder with a file for each item"
            )
        source = _read_parquet(source)
    if hasattr(source, "select_dtypes"):
        return _read_frame(source, name)
    return {name: np.asarray(source)}, None


def _read_frame(frame: Any, name: str) -> tuple[Mapping[str, Any], Any]:
    """Return an array for each column of lists or, without lists, one of all columns of numbers."""
    if "id" in frame:
        frame = frame.set_index("id")
    frame = frame.drop(columns=ABOUT_CLIPS, errors="ignore")
    lists = {}
    for column, cells in frame.items():
        if len(cells) and isinstance(cells.iloc[0], list | np.ndarray):
            lists[str(column)] = np.stack(cells.tolist())
    return lists or {name: frame.select_dtypes("number")}, frame.index


def _read_parquet(path: Path) -> Any:
    """Read a Parquet file whole, but no more than `MAX_VALUES`, as a small file may claim more."""
    parquet = need("pyarrow.parquet", extra="remote")
    metadata = parquet.read_metadata(path)
    values = 0
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            values += metadata.row_group(group).column(column).num_values
    if values > MAX_VALUES:
        raise ValueError(f"it has {values:,} values; save them as .npy, with ids")
    return need("pandas", extra="models").read_parquet(path)


def _map_npy(path: Path, where: object) -> Array:
    """Map a NumPy file, whose length NumPy checks; files of Python objects cannot be mapped."""
    with translate(StoreError, where, "cannot be read as NumPy ({}); save it again"):
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))


def _open_folder(path: Path, name: str, items: Items) -> ArrayRows:
    """Open a folder with one file per item; a first axis of length 1 is dropped."""
    suffix = ".npy"
    if any(path.rglob("*.pth")):
        suffix = ".pth"
    files = _find_files(path, suffix, items)

    def read(id_: str) -> Array:
        if id_ not in files:
            film = items.films[items.row(id_)]
            wanted = Path(film, f"{id_}{suffix}").as_posix()
            raise LookupError(
                f"{path.name} has no file for this item alone, or has several; "
                f"name its file {wanted}"
            )
        file = files[id_]
        where = file.relative_to(path.parent).as_posix()
        if not file.is_file():
            raise StoreError(where, "is not a regular file")

        if suffix == ".pth":
            values = _load_pth(file, where, name)
        else:
            values = np.array(_map_npy(file, where))  # copied, because the file may change
        values = _drop_batch(values)
        if not values.ndim or not values.size:
            raise StoreError(where, "holds no row of numbers")
        return values

    return ArrayRows(path, read)


def _drop_batch(values: Array) -> Array:
    """Return the row of one item without a first axis of length 1."""
    if values.ndim > 1 and len(values) == 1:
        values = values[0]
    return values


def _find_files(path: Path, suffix: str, items: Items) -> dict[str, Path]:
    """Return the file of each item that matches exactly one file, by id.

    If several items match a file, only the first of them gets it.
    """
    folder = MediaFolder(path, {suffix})
    owners: dict[Path, str] = {}
    for item in items:
        matches: list[Path] = []
        if item.start is None:
            matches = folder.candidates(item)
        if not matches:
            matches = folder.candidates(replace(item, media="", start=None))
        if len(matches) == 1:
            owners.setdefault(matches[0], item.id)
    return {id_: file for file, id_ in owners.items()}


def _load_pth(path: Path, where: str, name: str) -> Array:
    """Load a tensor from a PyTorch file without running any code that the file may contain.

    Only the zip format of PyTorch 1.6 and later is read. Some PyTorch versions could not read the
    older format safely.
    """
    torch = need("torch", extra="extract")
    reason = "is not a file of PyTorch 1.6 or later ({}); save it again with torch.save"
    with translate(StoreError, where, reason), zipfile.ZipFile(path) as archive:
        if any(info.compress_type for info in archive.infolist()):
            raise ValueError("it is compressed")

    reason = "has no tensor of numbers for this array, is damaged, or has objects such as code"
    with translate(StoreError, where, reason):
        tensor = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if isinstance(tensor, dict):
            tensor = tensor[name]
        # With strides, a tensor of any size can be backed by a few bytes.
        if tensor.numel() * tensor.element_size() > path.stat().st_size:
            raise StoreError(where, "claims more numbers than it can hold")
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.float()
        values: Array = tensor.detach().numpy()
    return values


def _open_hdf5(path: Path) -> tuple[dict[str, Any], list[str] | None]:
    """Open an HDF5 file's numeric datasets, and read the ids in the dataset ``ids``, if any."""
    import h5py

    file = h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES)
    datasets = _find_datasets(path, file)
    ids = datasets.pop(fmt.IDS, None)
    if ids is not None:
        ids = ids.asstr()[:].tolist()
    return {name: data for name, data in datasets.items() if data.dtype.kind in "fiu"}, ids


def _find_datasets(path: Path, file: Any) -> dict[str, Any]:
    """Return the datasets of a file that are not in a group.

    Raises `StoreError` for a link, for rows that are absent or in other files, and for a row, a
    chunk or ids of more than `MAX_ROW_BYTES`.
    """
    import h5py

    datasets = {}
    for name in file:
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            raise StoreError(path, f": {shorten(name)} is a link; save its data instead")
        dataset = file[name]
        if not isinstance(dataset, h5py.Dataset):
            continue
        shape = dataset.shape or ()
        largest = max(math.prod(shape[1:]), math.prod(dataset.chunks or ()))
        if name == fmt.IDS:
            largest = max(largest, math.prod(shape))
        if largest * dataset.dtype.itemsize > MAX_ROW_BYTES:
            raise StoreError(
                path, f": a row or chunk of {shorten(name)} takes more than 1 GiB; use smaller ones"
            )

        is_whole = dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
        if dataset.external or dataset.is_virtual or not is_whole:
            raise StoreError(
                path, f": {shorten(name)} has rows that were never written, or are in other files"
            )
        datasets[name] = dataset
    return datasets
