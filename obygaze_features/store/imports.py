"""Import features from NumPy, PyTorch or HDF5 files into a store, block by block.

The source of an array is `Rows`, with a function that reads an item's row. The first row that can
be read sets the shape and number type of the array. A row that cannot be read is recorded as
failed, with the reason. An interrupted import leaves no store.

A folder has one file per item, ``FILM/STEM.pth`` or ``FILM/STEM.npy``, which is found like the
item's media file. If no file has that stem, or if the item is a span of a film, the file is found
by the item's id.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import read_toml
from obygaze_features.common.formatting import shorten
from obygaze_features.common.package import need
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import read_table
from obygaze_features.errors import ObygazeError, StoreError, UsageError, translate
from obygaze_features.items.media import MediaFolder, id_of_name
from obygaze_features.store import format as fmt
from obygaze_features.store.files import require_store_name
from obygaze_features.store.format import ArraySpec, Recipe, Status
from obygaze_features.store.metadata import UNKNOWN
from obygaze_features.store.store import PART_BYTES, Store, open_store
from obygaze_features.store.writer import (
    Done,
    Failed,
    append_to_log,
    check_row,
    commit_block,
    first_attributes,
    new_store,
)

if TYPE_CHECKING:
    from obygaze_features.manifests.manifest import Manifest

HDF5_SUFFIXES = (".h5", ".hdf5")
CACHE_BYTES = 64 * 2**20
"""The size of each dataset's chunk cache, so that HDF5 need not decompress a chunk for each row."""
MAX_ROW_BYTES = 2**30
"""The maximum size of a row, a chunk or the ids.

HDF5 reads each of them whole, and a file may claim any size for them.
"""
MAX_ROWS_READ = 4096
"""The maximum number of rows that are imported at a time."""
MAX_REASON = 200
"""The maximum length of the reason why a row cannot be read."""


class FailedRows(UserWarning):
    """A warning that some items could not be imported, as `Store.failures` says."""


@dataclass(frozen=True)
class Rows:
    """The rows of one array.

    Parameters
    ----------
    path
        The file or folder.
    read
        A function that returns an item's row, by id. It raises `LookupError` if the item has none,
        and another error if the row cannot be read.
    padded
        True if rows may end in NaN (or -1), as in the export of a store with short clips.
    """

    path: Path
    read: Callable[[str], NDArray[Any]]
    padded: bool = False


class _Recipe(msgspec.Struct, forbid_unknown_fields=True):
    backbone: dict[str, Any] = {}
    preprocessing: dict[str, Any] = {}
    precision: str = UNKNOWN


def import_features(
    source: Path | str | Mapping[str, Path | str],
    manifest: Manifest,
    output: Path | str,
    *,
    ids: Path | str | Iterable[str] | None = None,
    recipe: Path | str | None = None,
    backbone: str | None = None,
    columns: Sequence[str] = (),
    overwrite: bool = False,
) -> Store:
    """Make a store for a manifest's items from features in another format.

    Parameters
    ----------
    source
        A folder with one file per item (``FILM/STEM.pth`` or ``.npy``), or a file with one row per
        item (``.npy``, ``.h5``). Pass ``{array: path}`` to import several arrays.
    manifest
        The items; the store has a row for each.
    output
        The store to write, ``NAME.zarr``.
    ids
        The id of each row of ``.npy`` files: a sequence of ids, such as a column of a table, or
        the path of a CSV table with a column ``id``. Pass ``manifest.ids`` if row i is item i.
        Names that are not allowed as ids are changed like those of `Manifest.from_csv`.
    recipe
        A TOML file that describes how the features were made.
    backbone
        The name of the backbone, if the recipe does not state it.
    columns
        The column names of every array.
    overwrite
        Replace an existing store at `output`.

    Warns
    -----
    FailedRows
        If some items have no row, or one that cannot be stored.
    """
    output = require_store_name(Path(output))
    stated = read_recipe(recipe, backbone)

    sources = _open_sources(source, manifest, ids)
    specs = []
    for name, rows in sources.items():
        first = _read_first(rows, manifest)
        dtype = str(first.dtype)
        specs.append(ArraySpec(name, first.shape, dtype, "imported", rows.padded, tuple(columns)))
    stated = replace(stated, name=output.stem, arrays=tuple(specs))

    row_bytes = sum(spec.row_bytes for spec in specs) or 1
    block_rows = min(max(1, PART_BYTES // row_bytes), MAX_ROWS_READ)
    attributes = first_attributes(manifest.items, stated, manifest.about, block_rows)
    with new_store(output, attributes, manifest.items, {}, overwrite=overwrite) as store:
        append_to_log(store.path, "imported")
        for block in progress(range(store.blocks), "Importing", unit="block"):
            outcomes = []
            for row in store.rows_of_block(block):
                outcome = _read_item(manifest.ids[row], sources, specs)
                outcomes.append(check_row(store, outcome))
            commit_block(store, block, outcomes, sync=False)
    imported = open_store(output)
    if imported.failures:
        item_id, reason = next(iter(imported.failures.items()))
        count = f"{len(imported.failures):,} of {len(imported):,} rows failed"
        warnings.warn(f"{output}: {count}, such as {item_id}: {reason}", FailedRows, stacklevel=2)
    return imported


def _read_first(rows: Rows, manifest: Manifest) -> NDArray[Any]:
    """Return the first row that can be read; raise `StoreError` if there is none."""
    example = ""
    for item_id in manifest.ids:
        try:
            return to_storable(rows.read(item_id))
        except (ObygazeError, LookupError, OSError) as problem:
            example = example or str(problem)
    raise StoreError(rows.path, f": no item can be read ({len(manifest)} tried): {example}")


def _read_item(
    item_id: str,
    sources: Mapping[str, Rows],
    specs: Iterable[ArraySpec],
) -> Done | Failed:
    """Read an item's row of each array; a missing or damaged row is a failure."""
    values = {}
    for spec in specs:
        try:
            row = sources[spec.name].read(item_id)
            if row.dtype != spec.dtype:
                row = to_storable(row)
            if row.shape != spec.shape or row.dtype != spec.dtype:
                raise StoreError(
                    f"the row has the shape {row.shape} and type {row.dtype}, but the array has "
                    f"{spec.shape} and {spec.dtype}"
                )
        except LookupError as problem:
            return Failed(Status.MISSING, str(problem))
        except (ObygazeError, OSError) as problem:
            return Failed(Status.UNREADABLE, f"{spec.name}: {problem}"[:MAX_REASON])
        if (spec.without_padding(row) == spec.fill).any():
            raise StoreError(
                sources[spec.name].path,
                f": {item_id} has the integer -1 in {spec.name}, which marks what is missing. "
                "Import floats: X.astype(np.float32)",
            )
        values[spec.name] = row
    return Done(values, source=None)


def to_storable(values: NDArray[Any]) -> NDArray[Any]:
    """Keep 16- to 64-bit floats; convert integers that fit to int32; else raise `StoreError`."""
    if values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8):
        return values.astype(values.dtype.newbyteorder("<"), copy=False)
    if values.dtype.kind in "iu":
        integers = values.astype(np.int32)
        if np.array_equal(integers, values):
            return integers
    raise StoreError(
        f"stores hold float16 to float64, and integers that fit in int32 (got {values.dtype!s:.40})"
    )


def _open_sources(
    source: Path | str | Mapping[str, Path | str],
    manifest: Manifest,
    ids: Path | str | Iterable[str] | None,
) -> dict[str, Rows]:
    """Open a source, or several; return the rows of each array."""
    if not isinstance(source, Mapping):
        source = {"native": source}
    if isinstance(ids, Path | str):
        table = read_table(Path(ids), required=["id"])
        ids = _match_ids(manifest, table["id"], table.get("film"))
    elif ids is not None:
        ids = _match_ids(manifest, ids)

    sources: dict[str, Rows] = {}
    for name, file in source.items():
        path = Path(file)
        suffix = path.suffix.lower()
        if suffix == ".npy" and ids is not None:
            sources[name] = _rows_by_id(path, _map_npy(path, path), ids)
        elif suffix in HDF5_SUFFIXES and ids is None:
            sources |= _open_hdf5(path, manifest)
        elif path.is_dir() and ids is None:
            sources[name] = _open_folder(path, name, manifest)
        else:
            raise UsageError(
                f"{path}: import .npy files with ids (--ids); or, without --ids, an existing "
                "folder with a file for each item, or HDF5 files (.h5, .hdf5)"
            )
    return sources


def _match_ids(
    manifest: Manifest,
    names: Iterable[object],
    films: Iterable[str] = itertools.repeat(""),
) -> list[str]:
    """Return ids; names that the manifest lacks are changed as in the import of a table."""
    ids = []
    for name, film in zip(map(str, names), films, strict=False):
        if name not in manifest.items.row_of:
            name = id_of_name(name, film)
        ids.append(name)
    return ids


def _map_npy(path: Path, where: object) -> NDArray[Any]:
    """Map a NumPy file, whose length NumPy checks; files of Python objects cannot be mapped."""
    with translate(StoreError, where, "cannot be read as NumPy ({})"):
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))


def _rows_by_id(path: Path, matrix: Any, ids: Sequence[str], *, padded: bool = False) -> Rows:
    """Return the rows of a matrix or an HDF5 dataset; `ids` has the id of each row."""
    if len(matrix.shape) < 2 or len(matrix) != len(ids):
        raise StoreError(
            path,
            f"needs 2 or more axes and a row per id (ids: {len(ids):,}; shape: {matrix.shape})",
        )
    row_of: dict[str, int] = {}
    for row, item_id in enumerate(ids):
        if row_of.setdefault(item_id, row) != row:
            raise StoreError(path, f"has several rows for {shorten(str(item_id))}; keep one")

    def read(item_id: str) -> NDArray[Any]:
        if item_id not in row_of:
            raise LookupError(f"its id has no row in {path.name}")
        return np.array(matrix[row_of[item_id]])

    return Rows(path, read, padded)


def _open_folder(path: Path, name: str, manifest: Manifest) -> Rows:
    """Open a folder with one file per item; a first axis of length 1 is dropped."""
    suffix = ".npy"
    if any(path.rglob("*.pth")):
        suffix = ".pth"
    files = _find_files(path, suffix, manifest)

    def read(item_id: str) -> NDArray[Any]:
        if item_id not in files:
            film = manifest.items.films[manifest.items.row(item_id)]
            wanted = Path(film, f"{item_id}{suffix}").as_posix()
            raise LookupError(
                f"{path.name} has no file for this item alone, or has several; "
                f"name its file {wanted}"
            )
        file = files[item_id]
        where = file.relative_to(path.parent).as_posix()
        if not file.is_file():
            raise StoreError(where, "is not a regular file")

        if suffix == ".pth":
            values = _load_pth(file, where, name)
        else:
            values = np.array(_map_npy(file, where))  # copied, because the file may change
        if values.ndim > 1 and len(values) == 1:
            values = values[0]
        if not values.ndim or not values.size:
            raise StoreError(where, "holds no row of numbers")
        return values

    return Rows(path, read)


def _find_files(path: Path, suffix: str, manifest: Manifest) -> dict[str, Path]:
    """Return the file of each item that matches exactly one file, by id.

    If several items match a file, only the first of them gets it.
    """
    folder = MediaFolder(path, {suffix})
    owners: dict[Path, str] = {}
    for item in manifest:
        matches: list[Path] = []
        if item.start is None:
            matches = folder.candidates(item)
        if not matches:
            matches = folder.candidates(replace(item, media="", start=None))
        if len(matches) == 1:
            owners.setdefault(matches[0], item.id)
    return {item_id: file for file, item_id in owners.items()}


def _load_pth(path: Path, where: str, name: str) -> NDArray[Any]:
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
        values: NDArray[Any] = tensor.detach().numpy()
    return values


def _open_hdf5(path: Path, manifest: Manifest) -> dict[str, Rows]:
    """Open an HDF5 file's numeric datasets that have one row for each id in the dataset ``ids``."""
    import h5py

    with translate(StoreError, path, "cannot be read as HDF5 ({})"):
        file = h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES)
        datasets = _find_datasets(path, file)
        ids = datasets.pop(fmt.IDS, None)
        if ids is None or ids.ndim != 1 or h5py.check_string_dtype(ids.dtype) is None:
            raise StoreError(path, f"has no dataset {fmt.IDS} with a string for each row")
        names = _match_ids(manifest, ids.asstr()[:].tolist())

    sources = {}
    for name, dataset in datasets.items():
        if dataset.dtype.kind in "fiu" and dataset.ndim > 1 and len(dataset) == len(names):
            padded = "padded" in dataset.attrs
            sources[name] = _rows_by_id(path, dataset, names, padded=padded)
    if not sources:
        raise StoreError(path, "has no numeric dataset with one row per id and 2 or more axes")
    return sources


def _find_datasets(path: Path, file: Any) -> dict[str, Any]:
    """Return the datasets of a file that are not in a group.

    Raises `StoreError` for a link, for rows that are absent or in other files, and for a row, a
    chunk or ids of more than `MAX_ROW_BYTES`.
    """
    import h5py

    datasets = {}
    for name in file:
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            raise StoreError(path, f": {shorten(name)} is a link, and links are not followed")
        dataset = file[name]
        if not isinstance(dataset, h5py.Dataset):
            continue
        shape = dataset.shape or ()
        largest = max(math.prod(shape[1:]), math.prod(dataset.chunks or ()))
        if name == fmt.IDS:
            largest = max(largest, math.prod(shape))
        if largest * dataset.dtype.itemsize > MAX_ROW_BYTES:
            raise StoreError(path, f": a row or chunk of {shorten(name)} takes more than 1 GiB")

        is_whole = dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
        if dataset.external or dataset.is_virtual or not is_whole:
            raise StoreError(
                path, f": {shorten(name)} has rows that were never written, or are in other files"
            )
        datasets[name] = dataset
    return datasets


def read_recipe(path: Path | str | None, backbone: str | None = None) -> Recipe:
    """Read a recipe from a TOML file with ``backbone``, ``preprocessing`` and ``precision``.

    Whatever is not stated is unknown. `backbone` is the backbone's name if the file has none.
    """
    stated = _Recipe()
    if path is not None:
        table = read_toml(Path(path), UsageError)
        with translate(UsageError, path, "is not a valid recipe ({})"):
            stated = msgspec.json.decode(json.dumps(table), type=_Recipe)
    name = stated.backbone.get("name", backbone or UNKNOWN)
    # Unknown weights are named after the backbone, so that they differ if the names differ.
    unknown = {
        "name": name,
        "revision": None,
        "weights_sha256": f"{UNKNOWN}:{name}",
        "config": {},
    }
    return Recipe(
        name="",
        backbone=unknown | stated.backbone,
        preprocessing={"mode": UNKNOWN, **stated.preprocessing},
        precision=stated.precision,
        arrays=(),
    )
