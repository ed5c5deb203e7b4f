"""Import features that others computed as a store: NumPy, PyTorch and HDF5.

Rows go through the writer, block by block. An interrupted import is resumed when it is run again,
and a row that cannot be read is a failure with a reason, as in an extraction.

Folders have one file per clip, ``FILM/STEM.pth`` or ``FILM/STEM.npy``. Files are found like media:
in the film's folder or beside it, by the stem of the clip's media; for spans of a longer film, and
where no file matches, by the id.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.common.text import shorten
from obygaze_features.errors import BlockTaken, StoreError, UsageError, translate
from obygaze_features.items.items import Item, NamedItems
from obygaze_features.items.media import MediaFolder, expected_stem
from obygaze_features.store.commit import Failed
from obygaze_features.store.format import ArraySpec, Recipe, Status, default_block_rows
from obygaze_features.store.import_hdf5 import read_hdf5
from obygaze_features.store.import_rows import (
    RowSource,
    errors_named,
    map_npy,
    read_ids,
    read_npy,
    read_recipe,
    stated_recipe,
    to_storable,
)
from obygaze_features.store.location import require_store_name
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.writer import StoreWriter

MAX_SAMPLED = 51
"""The number of files, from all over the manifest, sampled for the most common shape."""
_HEAD_BYTES = 1 << 20
BLOCK_BYTES, FEWEST_BLOCKS = 1 << 20, 128
"""The size up to which blocks of an import are joined, and the fewest blocks it has."""
KINDS = {
    ".npy": "npy",
    ".pth": "pth",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
}


def import_features(
    source: Path | str | Mapping[str, Path | str],
    manifest: NamedItems | Path | str,
    path: Path | str,
    *,
    kind: str | None = None,
    ids: Path | str | Iterable[str] | None = None,
    in_order: bool = False,
    recipe: Path | str | None = None,
    backbone: str | None = None,
    preprocessing: str | None = None,
    precision: str | None = None,
    columns: Sequence[str] = (),
    retry_failed: bool = False,
) -> Store:
    """Make a store of a manifest's items from features in other formats.

    Parameters
    ----------
    source
        A folder with one file per clip (``FILM/STEM.pth`` or ``.npy``), or one file with a row per
        item (``.npy``, ``.h5``); ``{array: path}`` for several arrays.
    manifest
        The manifest, or its folder, whose items get a row each.
    path
        The store, ``NAME.zarr``; an interrupted import is resumed.
    kind
        ``npy``, ``pth`` or ``hdf5`` (default: from the file's name).
    ids
        The item of each row, for files without ids: a sequence of ids, such as a column of a
        table, or a file with them.
    in_order
        Row i is item i of the manifest.
    recipe
        A TOML or JSON file that describes how the features were made.
    backbone, preprocessing, precision
        The same facts in a few words. Missing facts are recorded as unknown.
    columns
        The names of the columns of arrays of this width.
    retry_failed
        Retry rows that failed in an earlier run.
    """
    output = require_store_name(Path(path))
    if not isinstance(ids, Path | str | None):
        ids = _require_texts(ids)
    named = source if isinstance(source, Mapping) else {"native": source}
    for name, file in named.items():
        if not isinstance(file, str | os.PathLike):
            raise UsageError(
                f"{name}: features are read from a file (got a {type(file).__name__}). "
                'Save them first: numpy.save("X.npy", X)'
            )
    paths = {name: Path(file) for name, file in named.items()}
    is_stated = bool(backbone or preprocessing or precision)
    slips = {
        "pass a recipe, or backbone, preprocessing and precision, not both": recipe and is_stated,
        "pass --ids or --in-order, not both": ids is not None and in_order,
        "no source; name a file or a folder of features": not paths,
    }
    for slip, is_made in slips.items():
        if is_made:
            raise UsageError(slip)
    stated = stated_recipe(
        {"name": backbone} if backbone else {},
        {"mode": preprocessing} if preprocessing else {},
        precision,
    )
    if recipe:
        stated = read_recipe(Path(recipe))
    if isinstance(manifest, Path | str):
        from obygaze_features.manifests.manifest import Manifest

        manifest = Manifest.load(manifest)
    opened = _open_source(paths, kind, manifest.items.ids if in_order else ids, manifest)
    if opened.recipe and (recipe or is_stated or columns):
        raise UsageError(f"{opened.path} is an exported store, which has its own recipe")
    if columns:
        opened = replace(opened, columns=columns)
    features_recipe = opened.recipe or stated
    return _fill_store(opened, features_recipe, manifest, output, retry_failed=retry_failed)


def _require_texts(ids: Iterable[object]) -> list[str]:
    """Return ids of any sequence as a list; raise `UsageError` if one is not a text."""
    texts: list[str] = []
    for row, value in enumerate(ids):
        if not isinstance(value, str):
            raise UsageError(
                f"ids: the id of row {row} is not a text (got {shorten(repr(value))}). "
                "Pass the manifest's ids as texts"
            )
        texts.append(str(value))
    return texts


def _open_source(
    paths: Mapping[str, Path],
    kind: str | None,
    ids: Path | str | Sequence[str] | None,
    manifest: NamedItems,
) -> RowSource:
    """Open a source of features of `kind`, or of the kind that the files' names indicate."""
    first = next(iter(paths.values()))
    if kind is None:
        suffix = first.suffix.lower()
        if first.is_dir():
            suffix = ".pth" if any(first.rglob("*.pth")) else ".npy"
        kind = KINDS.get(suffix)
    is_folder = kind == "pth" or (
        kind == "npy" and not any(file.is_file() for file in paths.values())
    )
    has_ids = is_folder or kind == "hdf5"
    slips = {
        "is not a folder or file of features": not first.exists(),
        f"is not a kind of features that can be imported ({', '.join(KINDS)})": kind is None,
        f"has all arrays (got {len(paths)} files); import each into a separate store": (
            len(paths) > 1 and kind not in ("npy", "pth")
        ),
        "already has ids; use --ids and --in-order only with a single matrix": (
            ids is not None and has_ids
        ),
    }
    for slip, is_made in slips.items():
        if is_made:
            raise UsageError(first, slip)
    if kind == "hdf5":
        return read_hdf5(first)
    if is_folder:
        return read_folders(paths, f".{kind}", manifest)
    return read_npy(paths, read_ids(Path(ids)) if isinstance(ids, Path | str) else ids)


def _fill_store(
    source: RowSource, recipe: Recipe, manifest: NamedItems, path: Path, *, retry_failed: bool
) -> Store:
    """Write the rows that a store does not have yet."""
    arrays = source.arrays(manifest)
    if path.exists():
        existing = open_store(path)
        if existing.is_final:
            raise UsageError(f"{path} is final; choose another output")
        if {array.name for array in arrays} != set(existing.arrays):
            names = ", ".join(shorten(array.name) for array in arrays)
            raise UsageError(
                f"{path} was started with {', '.join(existing.arrays)}, but the source has "
                f"{names:.200}; use the same names, or choose another output"
            )
        # Shape and type as in the first run, even if most files have changed since.
        arrays = tuple(existing.specs)
        writer = StoreWriter.resume(path, manifest, replace(recipe, name=path.stem, arrays=arrays))
    else:
        recipe = replace(recipe, name=path.stem, arrays=arrays)
        writer = StoreWriter.create(
            path,
            manifest,
            recipe,
            probe=source.probe,
            block_rows=_block_rows(arrays, len(manifest.items)),
        )
    specs = {array.name: array for array in arrays}
    for block in progress(writer.missing_blocks(), "Importing", unit="block"):
        rows = source.rows(manifest.items, writer.rows_of(block), specs)
        with contextlib.suppress(BlockTaken):  # by another import at the same time
            writer.write_block(block, rows)
    store = open_store(path)
    missing = store.missing_rows(retry_failed=retry_failed)
    for block in np.unique(missing // store.block_rows).tolist():
        if store.record_of(block) is not None:  # written by this or an earlier run
            numbers = missing[missing // store.block_rows == block].tolist()
            results = {row: source.row(manifest.items[row], specs) for row in numbers}
            writer.rewrite(block, {row: done for row, done in results.items() if done is not None})
    writer.log("imported", source=str(source.path))
    return store.refresh()


def _block_rows(arrays: Sequence[ArraySpec], items: int) -> int:
    """Return the rows per block of an import; small rows get larger blocks than usual.

    Each block is flushed to disk several times, and reading it again is cheap.
    """
    small = BLOCK_BYTES // sum(array.row_bytes for array in arrays)
    return max(default_block_rows(items), min(small, items // FEWEST_BLOCKS))


def read_folders(paths: Mapping[str, Path], suffix: str, manifest: NamedItems) -> RowSource:
    """Open folders with one file per clip, one folder for each array."""
    folders = {name: ClipFolder(name, path, suffix, manifest) for name, path in paths.items()}
    without = {
        row: Failed(Status.MISSING, reason)
        for folder in reversed(folders.values())
        for row, reason in folder.missing.items()
    }

    def source_of(row: int) -> str:
        sources = []
        for file in (folder.files[row] for folder in folders.values()):
            with file.open("rb") as opened:
                head = hashlib.sha256(opened.read(_HEAD_BYTES)).hexdigest()
            sources.append(f"bytes={file.stat().st_size} head={head}")
        return "; ".join(sources)

    path, kind = next(iter(paths.values())), f"{suffix} files"
    return RowSource(path, folders, manifest.items.ids, None, without, source_of, kind=kind)


class ClipFolder:
    """The files of one array; a file that matches several items belongs to the first.

    Shape and type of a row are those of most files in a sample.
    """

    def __init__(self, name: str, path: Path, suffix: str, manifest: NamedItems) -> None:
        if not path.is_dir():
            raise UsageError(f"{path} is not a folder of {suffix} files")
        self.name, self.path, self.suffix = name, path, suffix
        self.files: dict[int, Path] = {}
        self.missing: dict[int, str] = {}
        there, owners = MediaFolder(path, {suffix}), dict[Path, Item]()
        for row, item in enumerate(manifest.items):
            by_id = replace(item, media=f"{item.id}{suffix}")
            files = [] if item.start is not None else there.candidates(item)
            files = files or there.candidates(by_id)
            if not files:
                stem = (expected_stem(item) if item.start is None else "") or item.id
                film = f"{item.film}/" if item.film else ""
                self.missing[row] = f"no {film}{stem}{suffix} in {path.name}"
            elif len(files) > 1:
                self.missing[row] = f"both {' and '.join(map(self.short, files))} match"
            elif (owner := owners.setdefault(files[0], item)) is not item:
                remedy = f"name each file by its item's id: {owner.id}{suffix}, {item.id}{suffix}"
                if item.film and item.film.casefold() != owner.film.casefold():
                    remedy = f"put it in {item.film}/"
                conflict = f"{self.short(files[0])} also matches {owner.id}; {remedy}"
                self.missing[row] = conflict
            else:
                self.files[row] = files[0]
        if not self.files:
            raise StoreError(
                f"no file was found for any of the {len(manifest.items)} items of {manifest.name}: "
                f"{self.missing[0]}"
            )
        shape, self.dtype = self._most_common()
        self.shape = (len(manifest.items), *shape)

    def _most_common(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the shape and type of most files."""
        kinds, problem = Counter[tuple[tuple[int, ...], np.dtype[Any]]](), None
        sample = list(self.files.values())
        sample = sample[:: -(-len(sample) // MAX_SAMPLED)]
        for file in sample:
            try:
                values = self.read(file)
            except StoreError as error:
                problem = problem or error
            else:
                kinds[values.shape, values.dtype] += 1
        if not kinds:
            raise StoreError(f"{self.path}: none of {len(sample)} files can be read; {problem}")
        return kinds.most_common(1)[0][0]

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.read(self.files[row])

    def read(self, file: Path) -> NDArray[Any]:
        """Read the numbers of a clip, without a batch axis of length 1."""
        with errors_named(file.relative_to(self.path).as_posix(), f"a {self.suffix} file"):
            if not file.is_file():
                raise StoreError("it is not a plain file")
            values = _load_pth(file, self.name) if self.suffix == ".pth" else map_npy(file)
            if values.ndim > 1 and values.shape[0] == 1:
                values = values[0]
            if not values.ndim or not values.size:
                raise StoreError("it has no row of numbers")
            return np.array(to_storable(values))  # copied, because the file may change

    def short(self, file: Path) -> str:
        """Return a file's path from beside the folder."""
        return file.relative_to(self.path.parent).as_posix()


def _load_pth(path: Path, name: str) -> NDArray[Any]:
    """Load the tensor of a PyTorch file, which could hold any program, as tensors only.

    Only the zip format of PyTorch 1.6 and later is read: for the format before, reading only
    tensors was not safe in every version.
    """
    import torch

    reason = "not a PyTorch file, or from before version 1.6 ({}); load it, if you trust it, and "
    with translate(StoreError, "it is", f"{reason}save it again"), zipfile.ZipFile(path) as archive:
        is_compressed = any(info.compress_type for info in archive.infolist())
    if is_compressed:
        raise StoreError("it is compressed, unlike files that PyTorch writes")
    try:
        tensor = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as problem:  # any error that a damaged file causes in PyTorch
        raise StoreError(
            "it is damaged, or holds more than tensors, perhaps a program, so it was not read "
            f"({type(problem).__name__})"
        ) from None
    if isinstance(tensor, dict) and name in tensor:
        tensor = tensor[name]
    if isinstance(tensor, dict):
        keys = ", ".join(shorten(str(key)) for key in list(tensor)[:3])
        raise StoreError(f"it is a dictionary without {name}; it has {keys or 'nothing'}")
    if not isinstance(tensor, torch.Tensor):
        raise StoreError(f"it holds a {type(tensor).__name__}, not a plain tensor")
    # With strides, a few bytes can pass for any number of rows.
    if tensor.numel() * tensor.element_size() > path.stat().st_size:
        raise StoreError("it claims more numbers than the file has")
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    with translate(StoreError, "it holds", f"a tensor of an unsupported type ({tensor.dtype})"):
        values: NDArray[Any] = tensor.detach().numpy()
    return values
