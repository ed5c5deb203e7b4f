"""Import existing features from NumPy, PyTorch or HDF5 files into a store.

Rows are written block by block. Running an interrupted import again resumes it. As in an
extraction, a row that cannot be read is recorded as failed, with a reason.

Folders have one file per clip, ``FILM/STEM.pth`` or ``FILM/STEM.npy``. A clip's file is looked up
like its media file: in the film's folder or in the top folder, by the stem of the media file. For
spans of a longer film, and if no file has that stem, the file is looked up by the item's id.
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
from obygaze_features.common.text import counted, shorten
from obygaze_features.errors import BlockTaken, StoreError, UsageError, translate
from obygaze_features.items.items import Item, NamedItems
from obygaze_features.items.media import MediaFolder, expected_stem
from obygaze_features.store.commit import Failed
from obygaze_features.store.files import require_store_name
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
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.writer import StoreWriter

MAX_SAMPLED = 51
"""The maximum number of files that are sampled to find the most common shape."""
_HEAD_BYTES = 1 << 20
BLOCK_BYTES, FEWEST_BLOCKS = 1 << 20, 128
"""The maximum size in bytes of enlarged blocks, and the minimum number of blocks."""
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
    recipe: Path | str | None = None,
    backbone: str | None = None,
    columns: Sequence[str] = (),
) -> Store:
    """Make a store for a manifest's items from features in another format.

    Parameters
    ----------
    source
        A folder with one file per clip (``FILM/STEM.pth`` or ``.npy``), or a file with one row per
        item (``.npy``, ``.h5``). Pass ``{array: path}`` to import several arrays.
    manifest
        The manifest, or its folder. The store has a row for each of its items.
    path
        The store to write, ``NAME.zarr``. An interrupted import is resumed.
    kind
        ``npy``, ``pth`` or ``hdf5`` (default: inferred from the names of the files).
    ids
        The id of each row, if the file has no ids: a sequence of ids, such as a column of a table,
        or the path of a file that lists them. Pass ``manifest.ids`` if row i is item i.
    recipe
        A TOML or JSON file that describes how the features were made.
    backbone
        The name of the backbone, in place of a recipe. Everything else is recorded as unknown.
    columns
        The column names, for every array with as many columns as there are names.
    """
    output = require_store_name(Path(path))
    if not isinstance(ids, Path | str | None):
        ids = _require_texts(ids)
    named = source if isinstance(source, Mapping) else {"native": source}
    for name, file in named.items():
        if not isinstance(file, str | os.PathLike):
            raise UsageError(
                f"{name}: features must be in a file (got {type(file).__name__}). "
                'Save them first: numpy.save("X.npy", X)'
            )
    paths = {name: Path(file) for name, file in named.items()}
    if recipe and backbone:
        raise UsageError("pass either a recipe or a backbone")
    if not paths:
        raise UsageError("no source; pass a file or a folder of features")
    stated = stated_recipe({"name": backbone} if backbone else {}, {}, None)
    if recipe:
        stated = read_recipe(Path(recipe))
    if isinstance(manifest, Path | str):
        from obygaze_features.manifests.manifest import Manifest

        manifest = Manifest.load(manifest)
    opened = _open_source(paths, kind, ids, manifest)
    if opened.recipe and (recipe or backbone or columns):
        raise UsageError(f"{opened.path} is an exported store; leave out recipe and column options")
    if columns:
        opened = replace(opened, columns=columns)
    features_recipe = opened.recipe or stated
    return _fill_store(opened, features_recipe, manifest, output)


def _require_texts(ids: Iterable[object]) -> list[str]:
    """Return ids as a list; raise `UsageError` if an id is not a string."""
    texts: list[str] = []
    for row, value in enumerate(ids):
        if not isinstance(value, str):
            raise UsageError(
                f"ids: the id of row {row} is not a string (got {shorten(repr(value))}). "
                "Pass the manifest's ids as strings"
            )
        texts.append(str(value))
    return texts


def _open_source(
    paths: Mapping[str, Path],
    kind: str | None,
    ids: Path | str | Sequence[str] | None,
    manifest: NamedItems,
) -> RowSource:
    """Open a source of features; without `kind`, infer the kind from the files' names."""
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
        "does not exist; pass a folder or file of features": not first.exists(),
        f"must end in one of {', '.join(KINDS)} (pass .pth files as a folder)": kind is None,
        f"must be imported alone (got {len(paths)} files); import each file into its own store": (
            len(paths) > 1 and kind not in ("npy", "pth")
        ),
        "needs no ids; use --ids only for .npy files with one row per item": (
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


def _fill_store(source: RowSource, recipe: Recipe, manifest: NamedItems, path: Path) -> Store:
    """Create the store if needed, and write the rows that it lacks."""
    arrays = source.arrays(manifest)
    if path.exists():
        existing = open_store(path)
        if existing.is_final:
            raise UsageError(f"{path} is final; choose another output")
        if {array.name for array in arrays} != set(existing.arrays):
            names = ", ".join(shorten(array.name) for array in arrays)
            raise UsageError(
                f"{path} was started with the arrays {', '.join(existing.arrays)}, but the source "
                f"has {names:.200}; use the same names, or choose another output"
            )
        # Keep the shape and dtype of the first run, even if most files have changed since.
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
        with contextlib.suppress(BlockTaken):  # another import wrote it at the same time
            writer.write_block(block, rows)
    store = open_store(path)
    missing = store.missing_rows()
    for block in np.unique(missing // store.block_rows).tolist():
        if store.record_of(block) is not None:  # written by this or an earlier run
            numbers = missing[missing // store.block_rows == block].tolist()
            results = {row: source.row(manifest.items[row], specs) for row in numbers}
            writer.rewrite(block, {row: done for row, done in results.items() if done is not None})
    writer.log("imported", source=str(source.path))
    return store.refresh()


def _block_rows(arrays: Sequence[ArraySpec], items: int) -> int:
    """Return an import's number of rows per block, which is larger than usual for small rows.

    Each block costs several flushes to disk, and importing a lost block again is cheap.
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
    """The files of one array. A file that matches several items belongs to the first of them.

    The shape and dtype of a row are the most common ones in a sample of the files.
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
                self.missing[row] = f"several files match: {' and '.join(map(self.short, files))}"
            elif (owner := owners.setdefault(files[0], item)) is not item:
                remedy = f"name the files after their items: {owner.id}{suffix}, {item.id}{suffix}"
                if item.film and item.film.casefold() != owner.film.casefold():
                    remedy = f"move it to {item.film}/"
                conflict = f"{self.short(files[0])} also matches {owner.id}; {remedy}"
                self.missing[row] = conflict
            else:
                self.files[row] = files[0]
        if not self.files:
            raise StoreError(
                f"no file matches any of the {len(manifest.items)} items of {manifest.name}: "
                f"{self.missing[0]}"
            )
        shape, self.dtype = self._most_common()
        self.shape = (len(manifest.items), *shape)

    def _most_common(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the most common shape and dtype in a sample of the files."""
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
            tried = counted(len(sample), "file")
            raise StoreError(f"{self.path}: none of {tried} could be read, such as: {problem}")
        return kinds.most_common(1)[0][0]

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.read(self.files[row])

    def read(self, file: Path) -> NDArray[Any]:
        """Read a clip's features, dropping a batch axis of length 1."""
        with errors_named(file.relative_to(self.path).as_posix(), f"a {self.suffix} file"):
            if not file.is_file():
                raise StoreError("it is not a regular file")
            values = _load_pth(file, self.name) if self.suffix == ".pth" else map_npy(file)
            if values.ndim > 1 and values.shape[0] == 1:
                values = values[0]
            if not values.ndim or not values.size:
                raise StoreError("it holds no numbers")
            return np.array(to_storable(values))  # copied, because the file may change

    def short(self, file: Path) -> str:
        """Return a file's path relative to the folder's parent."""
        return file.relative_to(self.path.parent).as_posix()


def _load_pth(path: Path, name: str) -> NDArray[Any]:
    """Load a tensor from a PyTorch file without running any code that the file may contain.

    Only the zip format of PyTorch 1.6 and later is read. Some PyTorch versions could not read the
    older format safely.
    """
    import torch

    reason = "not a PyTorch file, or its format is older than PyTorch 1.6 ({}); if you trust it, "
    with translate(StoreError, "it is", f"{reason}save it again"), zipfile.ZipFile(path) as archive:
        is_compressed = any(info.compress_type for info in archive.infolist())
    if is_compressed:
        raise StoreError("it is compressed, which PyTorch files never are")
    try:
        tensor = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as problem:  # any error that a damaged file causes in PyTorch
        raise StoreError(
            "it was not read because it is damaged, or holds more than tensors, such as code "
            f"({type(problem).__name__})"
        ) from None
    if isinstance(tensor, dict) and name in tensor:
        tensor = tensor[name]
    if isinstance(tensor, dict):
        keys = ", ".join(shorten(str(key)) for key in list(tensor)[:3])
        raise StoreError(f"it is a dictionary without the key {name} (got {keys or 'no keys'})")
    if not isinstance(tensor, torch.Tensor):
        raise StoreError(f"it must hold a plain tensor (got {type(tensor).__name__})")
    # With strides, a tensor of any size can be backed by a few bytes.
    if tensor.numel() * tensor.element_size() > path.stat().st_size:
        raise StoreError("it claims more numbers than the file can hold")
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    with translate(StoreError, "it holds", f"a tensor of an unsupported type ({tensor.dtype})"):
        values: NDArray[Any] = tensor.detach().numpy()
    return values
