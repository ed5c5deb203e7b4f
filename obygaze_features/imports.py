"""Import features that other software computed into a store, block by block.

The first row that can be read sets the shape and number type of an array. A row that cannot be read
is recorded as failed, with the reason. An interrupted import leaves no store.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import read_toml
from obygaze_features.common.progress import progress
from obygaze_features.errors import ObygazeError, StoreError, UsageError, translate
from obygaze_features.items.items import Items
from obygaze_features.manifests import Manifest
from obygaze_features.store.files import require_store_name
from obygaze_features.store.format import ArraySpec, Recipe, Status
from obygaze_features.store.metadata import UNKNOWN
from obygaze_features.store.sources import ArrayRows, Source, open_arrays
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

MAX_ROWS_READ = 4096
"""The maximum number of rows that are imported at a time."""
MAX_REASON = 200
"""The maximum length of the reason why a row cannot be read."""


class FailedRows(UserWarning):
    """A warning that some items could not be imported, as `Store.failures` says."""


class _Recipe(msgspec.Struct, forbid_unknown_fields=True):
    backbone: dict[str, Any] = {}
    preprocessing: dict[str, Any] = {}
    precision: str = UNKNOWN


def import_features(
    source: Source,
    manifest: Manifest | str | Path,
    output: Path | str,
    *,
    ids: Path | str | Iterable[str] | None = None,
    recipe: Path | str | None = None,
    backbone: str | None = None,
    overwrite: bool = False,
) -> Store:
    """Make a store for a manifest's items from features in another format.

    Parameters
    ----------
    source
        A DataFrame with the ids as its index, an array or a ``.npy`` file (with `ids`), an HDF5 or
        Parquet file with ids, a safetensors file (with `ids`, or with a tensor for each id), or a
        folder with one file per item (``FILM/STEM.pth`` or ``.npy``). Pass ``{array: source}`` to
        import several arrays. In Parquet, each column of lists is an array; without lists, all
        columns of numbers are the array's columns.
    manifest
        The manifest or its folder. The store has a row for each item.
    output
        The store to write, ``NAME.zarr``.
    ids
        The id of each row of the source: a sequence of ids, such as a column of a table, or the
        path of a CSV table with a column ``id``. Pass ``manifest.ids`` if row i is item i.
        Names that are not allowed as ids are changed like those of `Manifest.from_csv`.
    recipe
        A TOML file that describes how the features were made.
    backbone
        The name of the backbone, if the recipe does not state it.
    overwrite
        Replace an existing store at `output`.

    Warns
    -----
    FailedRows
        If some items have no row, or one that cannot be stored.
    """
    output = require_store_name(Path(output))
    stated = read_recipe(recipe, backbone)

    manifest = Manifest.load(manifest)
    items = manifest.items
    sources = open_arrays(source, items, ids)
    specs = []
    for name, rows in sources.items():
        first = _read_first(rows, items)
        dtype = str(first.dtype)
        columns = tuple(rows.columns)
        specs.append(ArraySpec(name, first.shape, dtype, "imported", columns=columns))
    stated = replace(stated, name=output.stem, arrays=tuple(specs))

    row_bytes = sum(spec.row_bytes for spec in specs) or 1
    block_rows = min(max(1, PART_BYTES // row_bytes), MAX_ROWS_READ)
    attributes = first_attributes(items, stated, manifest.about, block_rows)
    with new_store(output, attributes, items, {}, overwrite=overwrite) as store:
        append_to_log(store.path, "imported")
        for block in progress(range(store.blocks), "Importing", unit="block"):
            outcomes = []
            for row in store.rows_of_block(block):
                outcomes.append(check_row(store, _read_item(items.ids[row], sources, specs)))
            commit_block(store, block, outcomes, sync=False)
    imported = open_store(output)
    if imported.failures:
        id_, reason = next(iter(imported.failures.items()))
        warnings.warn(
            f"{output}: {len(imported.failures):,} of {len(imported):,} rows failed, such as "
            f"{id_}: {reason}",
            FailedRows,
            stacklevel=2,
        )
    return imported


def _read_first(rows: ArrayRows, items: Items) -> NDArray[Any]:
    """Return the first row that can be read; raise `StoreError` if there is none."""
    example = ""
    for id_ in items.ids:
        try:
            return to_storable(rows.read(id_))
        except (ObygazeError, LookupError, OSError) as problem:
            example = example or str(problem)
    raise StoreError(rows.path, f": no item can be read ({len(items)} tried): {example}")


def _read_item(
    id_: str,
    sources: Mapping[str, ArrayRows],
    specs: Iterable[ArraySpec],
) -> Done | Failed:
    """Read an item's row of each array; a missing or damaged row is a failure."""
    values = {}
    for spec in specs:
        try:
            row = sources[spec.name].read(id_)
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
        values[spec.name] = row
    return Done(values, source=None)


def to_storable(values: NDArray[Any]) -> NDArray[Any]:
    """Keep 16- to 64-bit floats; convert integers to int32 if they fit; else raise `StoreError`."""
    if values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8):
        return values.astype(values.dtype.newbyteorder("<"), copy=False)
    if values.dtype.kind in "iu":
        integers = values.astype(np.int32)
        if np.array_equal(integers, values):
            return integers
    raise StoreError(
        f"stores hold float16 to float64, and integers that fit in int32 (got {values.dtype!s:.40})"
    )


def read_recipe(path: Path | str | None, backbone: str | None) -> Recipe:
    """Read a recipe from a TOML file with ``backbone``, ``preprocessing`` and ``precision``.

    Whatever is not stated is unknown. `backbone` is the backbone's name if the file has none.
    """
    stated = _Recipe()
    if path is not None:
        table = read_toml(Path(path), UsageError)
        with translate(UsageError, path, "is not a valid recipe ({}); correct it"):
            stated = msgspec.json.decode(json.dumps(table), type=_Recipe)
    name = stated.backbone.get("name", backbone or UNKNOWN)
    return Recipe(
        name="",
        backbone={
            "name": name,
            "revision": None,
            # Named after the backbone, so that unknown weights differ if the names differ.
            "weights_sha256": f"{UNKNOWN}:{name}",
            "config": {},
            **stated.backbone,
        },
        preprocessing={"mode": UNKNOWN, **stated.preprocessing},
        precision=stated.precision,
        arrays=(),
    )
