"""Features that others computed, as a store of a manifest: NumPy, PyTorch, Parquet, HDF5, ...

Rows go through the writer, block by block. An interrupted import is resumed when it is run again,
and a row that cannot be read is a failure with a reason, as in an extraction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.common.progress import progress
from obygaze_features.common.text import shorten
from obygaze_features.errors import UsageError
from obygaze_features.store.import_clips import ClipFolders
from obygaze_features.store.import_hdf5 import read_hdf5
from obygaze_features.store.import_rows import (
    RowSource,
    read_ids,
    read_npy,
    read_parquet,
    read_safetensors,
)
from obygaze_features.store.provenance import Provenance, read_provenance, stated
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.writer import StoreWriter

if TYPE_CHECKING:
    from obygaze_features.manifests import Manifest

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
    manifest: Manifest,
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
        Its items get a row each.
    path
        The store, ``NAME.zarr``; an import that was interrupted there is resumed.
    kind
        ``npy``, ``pth``, ``safetensors``, ``parquet`` or ``hdf5``; by default what the name says.
    ids
        Whose each row is, for files that do not say: the ids, or a file with them. For Parquet the
        name of the column of ids.
    in_order
        Row i is item i of the manifest.
    recipe
        A TOML or JSON file that says how the features were made.
    backbone, preprocessing, precision
        The same in a few words. What nobody says is recorded as unknown.
    retry_failed
        Read rows again that failed in an earlier run.
    """
    output = Path(path)
    if output.suffix != ".zarr":
        raise UsageError(f"{output}: the name of a store ends in .zarr")
    words = {"backbone": backbone, "preprocessing": preprocessing, "precision": precision}
    if recipe and any(words.values()):
        raise UsageError("give a recipe, or backbone, preprocessing and precision, not both")
    provenance = None
    if recipe:
        provenance = read_provenance(Path(recipe))
    elif any(words.values()):
        provenance = stated(**words)
    paths = source if isinstance(source, Mapping) else {"native": source}
    opened = _open_source(
        {name: Path(file) for name, file in paths.items()},
        manifest, kind, ids, provenance, in_order=in_order,
    )  # fmt: skip
    return _fill_store(opened, manifest, output, retry_failed=retry_failed)


def _open_source(
    paths: Mapping[str, Path],
    manifest: Manifest,
    kind: str | None,
    ids: Path | str | Sequence[str] | None,
    provenance: Provenance | None,
    *,
    in_order: bool,
) -> Source:
    """The source of a kind, or of what the names of the files say."""
    first = next(iter(paths.values()))
    if kind is None:
        named = first.suffix.lower()
        if first.is_dir():
            named = ".pth" if next(first.rglob("*.pth"), None) else ".npy"
        if named not in KINDS:
            raise UsageError(f"{first}: unknown kind of features; known are {', '.join(KINDS)}")
        kind = KINDS[named]
    if ids and in_order:
        raise UsageError("give --ids or --in-order, not both")
    if kind == "parquet":
        return read_parquet(first, str(ids or "id"), provenance)
    if kind == "hdf5":
        return read_hdf5(first, provenance)
    stated_provenance = provenance or stated()
    if kind == "pth" or (kind == "npy" and not any(file.is_file() for file in paths.values())):
        if ids or in_order:
            raise UsageError(
                f"{first} is not a file; --ids and --in-order are for one file with all rows"
            )
        return ClipFolders(paths, f".{kind}", stated_provenance)
    listed = read_ids(Path(ids)) if isinstance(ids, Path | str) else ids
    if kind == "npy":
        source = read_npy(paths, listed, stated_provenance)
    else:
        source = read_safetensors(first, listed, stated_provenance, manifest)
    if source.ids is None and not in_order:
        raise UsageError(
            f"{source.path} does not say whose its rows are; give --ids FILE with an id a line, "
            "or --in-order if row i is item i of the manifest"
        )
    return source


def _fill_store(source: Source, manifest: Manifest, path: Path, *, retry_failed: bool) -> Store:
    """Write the rows that a store does not have yet."""
    names = source.match(manifest)
    if path.exists():
        existing = open_store(path)
        if existing.is_final:
            raise UsageError(f"{path} is final; choose another output")
        # As the first file that could be read said, though another may be the first by now.
        arrays = tuple(existing.specs)
        stored = [array.name for array in arrays]
        if set(names) != set(stored):
            raise UsageError(
                f"{path} was begun with {', '.join(stored)}, and the source has "
                f"{', '.join(map(shorten, sorted(names))):.200}; name the arrays alike, or choose "
                "another output"
            )
    else:
        arrays = source.arrays(manifest)
    recipe = source.provenance.recipe(path.stem, arrays)
    if path.exists():
        writer = StoreWriter.resume(path, manifest, recipe)
    else:
        writer = StoreWriter.create(path, manifest, recipe, probe=source.probe)
    specs = {array.name: array for array in arrays}
    with writer.claimed() as blocks:
        total = len(writer.missing_blocks())
        for block in progress(blocks, "Importing", unit="block", total=total):
            rows = [source.row(manifest.items[row], specs) for row in writer.rows_of(block)]
            writer.write_block(block, rows)
    store = open_store(path)
    again: dict[int, list[int]] = {}
    for row in store.missing_rows(retry_failed=retry_failed).tolist():
        again.setdefault(row // store.block_rows, []).append(row)
    for block, missing in again.items():
        if store.record_of(block) is not None:  # written by this or an earlier run
            results = {row: source.row(manifest.items[row], specs) for row in missing}
            writer.rewrite(block, {row: done for row, done in results.items() if done is not None})
    writer.log("imported", source=source.description)
    return open_store(path)
