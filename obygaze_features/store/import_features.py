"""Features that others computed, as a store of a manifest: NumPy, PyTorch, Parquet, HDF5, ...

Rows go through the writer, block by block. An interrupted import is resumed when it is run again,
and a row that cannot be read is a failure with a reason, as in an extraction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from obygaze_features.common.files import describe_absent
from obygaze_features.common.progress import progress
from obygaze_features.common.text import shorten
from obygaze_features.errors import UsageError
from obygaze_features.manifests import Manifest
from obygaze_features.store.format import Recipe
from obygaze_features.store.import_clips import ClipFolders
from obygaze_features.store.import_hdf5 import read_hdf5
from obygaze_features.store.import_rows import (
    RowSource,
    read_ids,
    read_npy,
    read_parquet,
    read_safetensors,
)
from obygaze_features.store.provenance import read_recipe, stated_recipe
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.writer import StoreWriter

Source = ClipFolders | RowSource
KINDS = {
    ".npy": "npy",
    ".pth": "pth",
    ".safetensors": "safetensors",
    ".parquet": "parquet",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
}


def import_features(
    source: Path | str | Mapping[str, Path | str],
    manifest: Manifest | Path | str,
    path: Path | str,
    *,
    kind: str | None = None,
    ids: Path | str | Sequence[str] | None = None,
    in_order: bool = False,
    recipe: Path | str | None = None,
    backbone: str | None = None,
    preprocessing: str | None = None,
    precision: str | None = None,
    retry_failed: bool = False,
) -> Store:
    """Make a store of a manifest's items from features in other formats.

    Parameters
    ----------
    source
        A folder with a file a clip (``FILM/STEM.pth`` or ``.npy``), or one file with a row an item
        (``.npy``, ``.safetensors``, ``.parquet``, ``.h5``); ``{array: path}`` for several arrays.
    manifest
        Its items get a row each; a manifest, or its folder.
    path
        The store, ``NAME.zarr``; an import that was interrupted there is resumed.
    kind
        ``npy``, ``pth``, ``safetensors``, ``parquet`` or ``hdf5``; by default from the file's name.
    ids
        The item of each row, for files that do not say: ids, or a file with them. For Parquet the
        name of the column of ids.
    in_order
        Row i is item i of the manifest.
    recipe
        A TOML or JSON file that says how the features were made.
    backbone, preprocessing, precision
        The same in a few words. What is missing is recorded as unknown.
    retry_failed
        Read rows again that failed in an earlier run.
    """
    output = Path(path)
    if output.suffix != ".zarr":
        raise UsageError(f"{output}: the name of a store ends in .zarr")
    stated: Recipe | None = None
    if recipe and (backbone or preprocessing or precision):
        raise UsageError("give a recipe, or backbone, preprocessing and precision, not both")
    if recipe:
        stated = read_recipe(Path(recipe))
    elif backbone or preprocessing or precision:
        stated = stated_recipe(
            {"name": backbone} if backbone else {},
            {"mode": preprocessing} if preprocessing else {},
            precision,
        )
    if ids and in_order:
        raise UsageError("give --ids or --in-order, not both")
    if not isinstance(manifest, Manifest):
        manifest = Manifest.load(manifest)
    named = source if isinstance(source, Mapping) else {"native": source}
    paths = {name: Path(file) for name, file in named.items()}
    if not paths:
        raise UsageError("no source is given; name a file or a folder of features")
    opened = _open_source(paths, kind, manifest.ids if in_order else ids, manifest)
    if opened.recipe and stated:
        raise UsageError(
            f"{opened.description} is an exported store and says itself how it was made"
        )
    made = opened.recipe or stated or stated_recipe({}, {}, None)
    return _fill_store(opened, made, manifest, output, retry_failed=retry_failed)


def _open_source(
    paths: Mapping[str, Path],
    kind: str | None,
    ids: Path | str | Sequence[str] | None,
    manifest: Manifest,
) -> Source:
    """The source of a kind, or of what the names of the files say."""
    first = next(iter(paths.values()))
    if kind is None:
        if not first.exists():
            raise UsageError(describe_absent(first, "a folder or file of features"))
        suffix = first.suffix.lower()
        if first.is_dir():
            suffix = ".pth" if next(first.rglob("*.pth"), None) else ".npy"
        if suffix not in KINDS:
            raise UsageError(f"{first}: unknown kind of features; known are {', '.join(KINDS)}")
        kind = KINDS[suffix]
    if len(paths) > 1 and kind not in ("npy", "pth"):
        raise UsageError(
            f"{first}: one {kind} file has all arrays (got {len(paths)} files); import each into a "
            "store of its own"
        )
    if kind == "parquet":
        if ids and not isinstance(ids, str):
            raise UsageError(f"{first} has a column of ids; give its name as ids")
        return read_parquet(first, str(ids or "id"))
    if kind == "hdf5":
        if ids:
            raise UsageError(f"{first} has its own ids; leave out ids and in_order")
        return read_hdf5(first)
    if kind == "pth" or (kind == "npy" and not any(file.is_file() for file in paths.values())):
        if ids:
            raise UsageError(
                f"{first} is not a file; --ids and --in-order are for one file with all rows"
            )
        return ClipFolders(paths, f".{kind}", manifest)
    listed = read_ids(Path(ids)) if isinstance(ids, Path | str) else ids
    if kind == "npy":
        return read_npy(paths, listed)
    return read_safetensors(first, listed, manifest)


def _fill_store(
    source: Source, recipe: Recipe, manifest: Manifest, path: Path, *, retry_failed: bool
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
                f"{path} was begun with {', '.join(existing.arrays)}, and the source has "
                f"{names:.200}; name the arrays alike, or choose another output"
            )
        # Shape and type as in the first run, though most files may have others by now.
        arrays = tuple(existing.specs)
        writer = StoreWriter.resume(path, manifest, replace(recipe, name=path.stem, arrays=arrays))
    else:
        recipe = replace(recipe, name=path.stem, arrays=arrays)
        writer = StoreWriter.create(path, manifest, recipe, probe=source.probe)
    specs = {array.name: array for array in arrays}
    with writer.claimed() as blocks:
        total = len(writer.missing_blocks())
        for block in progress(blocks, "Importing", unit="block", total=total):
            rows = [source.row(manifest.items[row], specs) for row in writer.rows_of(block)]
            writer.write_block(block, rows)
    store = open_store(path)
    missing = store.missing_rows(retry_failed=retry_failed)
    for block in np.unique(missing // store.block_rows).tolist():
        if store.record_of(block) is not None:  # written by this or an earlier run
            numbers = missing[missing // store.block_rows == block].tolist()
            results = {row: source.row(manifest.items[row], specs) for row in numbers}
            writer.rewrite(block, {row: done for row, done in results.items() if done is not None})
    writer.log("imported", source=source.description)
    return store.refresh()
