"""Features that others computed, into a store of a manifest: through the writer, row by row.

A format is a `Source`; here is what all formats share. An import that was interrupted goes on when
it is run again, and a row that cannot be read is a failure with a reason, as in an extraction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.common.text import shorten
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.manifests import Item, Manifest
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.exchange.provenance import Provenance, plain_json
from obygaze_features.store.format import ArraySpec, Status
from obygaze_features.store.metadata import check_attributes
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.writer import StoreWriter

__all__ = ["Source", "as_stored", "bring_in", "fit", "in_words", "index_ids", "read_exported"]


class Source(Protocol):
    """Where features come in from."""

    @property
    def words(self) -> str:
        """What it is, for the store's log."""

    @property
    def provenance(self) -> Provenance:
        """What its features were made with."""

    @property
    def probe(self) -> Mapping[str, NDArray[Any]]:
        """The features of the fixed made-up clip, by array, if it has them."""

    def look(self, manifest: Manifest) -> tuple[str, ...]:
        """Look for the manifest's items, before any row is asked for; gives the arrays' names."""

    def arrays(self, manifest: Manifest) -> tuple[ArraySpec, ...]:
        """The arrays that it has; `StoreError` if it has nothing for this manifest."""

    def row(self, item: Item, arrays: Mapping[str, ArraySpec]) -> Done | Failed | None:
        """What it has for an item; None where the row is still to do."""


def bring_in(
    source: Source, manifest: Manifest, output: Path, *, retry_failed: bool = False
) -> Store:
    """Fill a store of a manifest's items from a source.

    Parameters
    ----------
    source
        Such as `pth_folders`, `npy_folders` or `Hdf5Source`.
    manifest
        Its items get a row each; they are looked for in the source.
    output
        The store, ``NAME.zarr``; if an import was interrupted there, it goes on.
    retry_failed
        Look again for rows that failed in an earlier run.
    """
    if output.suffix != ".zarr":
        raise UsageError(f"{output}: the name of a store ends in .zarr")
    names = source.look(manifest)
    if output.exists():
        begun = open_store(output)
        if begun.is_final:
            raise UsageError(f"{output} is final; choose another output")
        # What the first file that could be read said holds, though another is the first by now.
        arrays = tuple(begun.specs)
        _check_same(names, tuple(one.name for one in arrays), output)
    else:
        arrays = source.arrays(manifest)
    recipe = source.provenance.recipe(output.stem, arrays)
    if output.exists():
        writer = StoreWriter.resume(output, manifest, recipe)
    else:
        writer = StoreWriter.create(output, manifest, recipe, probe=source.probe)
    specs = {one.name: one for one in arrays}
    with writer.claimed() as blocks:
        total = len(writer.missing_blocks())
        for block in progress(blocks, "Importing", unit="block", total=total):
            rows = [source.row(manifest.items[row], specs) for row in writer.rows_of(block)]
            writer.write_block(block, rows)
    for block, lacking in _lacking(output, failed=retry_failed).items():
        rows_again = {row: source.row(manifest.items[row], specs) for row in lacking}
        writer.rewrite(block, {row: one for row, one in rows_again.items() if one is not None})
    writer.log("imported", source=source.words)
    return open_store(output)


def as_stored(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers in a type that stores have; `StoreError` if there is none that holds them.

    Floating-point types stay as they are, whole numbers become int32.
    """
    if values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8):
        return values.astype(values.dtype.newbyteorder("<"), copy=False)
    if values.dtype.kind in "iu":
        bounds = np.iinfo(np.int32)
        if not values.size or (bounds.min <= values.min() and values.max() <= bounds.max):
            return values.astype(np.int32)
        raise StoreError("it has whole numbers that int32 cannot hold")
    raise StoreError(f"it holds values of the type {values.dtype!s:.40}, not numbers of a store")


def fit(values: NDArray[Any], one: ArraySpec) -> NDArray[Any]:
    """A row as the array wants it; `StoreError` if its shape or type is another."""
    if values.shape != one.shape or values.dtype != one.dtype:
        have, meant = in_words(values.shape, str(values.dtype)), in_words(one.shape, one.dtype)
        raise StoreError(f"it holds {have}, where {one.name} has {meant} a clip")
    return values


def index_ids(path: Path, ids: Sequence[str]) -> dict[str, int]:
    """Id -> row of a file; `StoreError` if two rows have one id."""
    row_of = {identifier: row for row, identifier in enumerate(ids)}
    if len(row_of) < len(ids):
        twice = next(identifier for row, identifier in enumerate(ids) if row_of[identifier] != row)
        raise StoreError(f"{path} has two rows for {shorten(twice)}")
    return row_of


def read_exported(path: Path, name: str, text: str) -> dict[str, Any]:
    """The attributes of a store that a file was exported from; they are `name` in the file."""
    try:
        attributes = plain_json(text)
        if not isinstance(attributes, dict):
            raise ValueError("not an object")
    except (ValueError, TypeError, RecursionError) as problem:
        raise StoreError(f"{path}: its {name} cannot be read ({problem!s:.100})") from None
    check_attributes(path, attributes)
    return attributes


def in_words(shape: tuple[int, ...], dtype: str) -> str:
    """The shape and type of a clip's numbers."""
    return f"{'×'.join(map(str, shape)) or 'one number'} {dtype}"


def _check_same(names: tuple[str, ...], stored: tuple[str, ...], output: Path) -> None:
    """Raise unless the source has the arrays that the store was begun with."""
    if set(names) != set(stored):
        raise UsageError(
            f"{output} was begun with {', '.join(stored)}, and the source has "
            f"{', '.join(map(shorten, sorted(names))):.200}; name the arrays alike, or choose "
            "another output"
        )


def _lacking(path: Path, *, failed: bool) -> dict[int, list[int]]:
    """Block -> its rows that are to do, or failed, though the block is written."""
    store = open_store(path)
    wanted = store.status == Status.TODO
    if failed:
        wanted |= store.status > Status.DONE
    blocks: dict[int, list[int]] = {}
    for row in np.flatnonzero(wanted).tolist():
        if store.record_of(row // store.block_rows) is not None:
            blocks.setdefault(row // store.block_rows, []).append(row)
    return blocks
