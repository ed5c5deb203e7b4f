"""A store as a Parquet table: a row a clip, an array a column of lists of fixed size.

An array with several axes a row is laid flat, and its shape is kept in the column's metadata. A row
that is not done has no lists: null, never zeros.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import disk_errors, new_file
from obygaze_features.common.package import need
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as spec
from obygaze_features.store.exchange.outgoing import Exported, chosen, parts, refuse_inside
from obygaze_features.store.format import ArraySpec
from obygaze_features.store.reader import Store

__all__ = ["POOLED", "export_parquet"]

POOLED = ("native", "cls", "max", "mean")
"""The arrays with one vector a clip: what tables are for."""
_COLUMNS = ("id", "film", "status", "source", "reason")


def export_parquet(
    store: Store,
    output: Path,
    *,
    arrays: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write a store as a Parquet table, in bounded memory.

    Parameters
    ----------
    store
        Open or final.
    output
        The file, ``NAME.parquet``.
    arrays
        Which; by default those with one vector a clip (`POOLED`).
    overwrite
        Replace the file that lies at `output`.
    """
    refuse_inside(store.location.address, output)
    names = [name for name in POOLED if name in store.arrays] if arrays is None else arrays
    if not names:
        raise UsageError(
            f"{store.where} has no pooled array; name some of {', '.join(store.arrays)}"
        )
    specs = chosen(store, names)
    if clash := [one.name for one in specs if one.name in _COLUMNS]:
        raise UsageError(f"the array {clash[0]} has the name of a column; leave it out")
    pa, parquet = (need(name, extra="views") for name in ("pyarrow", "pyarrow.parquet"))
    with disk_errors(output, StoreError), new_file(output, overwrite=overwrite) as temporary:
        _write(temporary, store, specs, pa, parquet)
    return Exported.of(output, store, specs)


def _write(
    path: Path,
    store: Store,
    specs: Sequence[ArraySpec],
    pa: ModuleType,
    parquet: ModuleType,
) -> None:
    films = store.items.films
    fields = [
        pa.field("id", pa.string()),
        pa.field("film", pa.string()),
        pa.field("status", pa.uint8(), metadata={"meaning": "1 done, 2 and up: why it failed"}),
        pa.field("source", pa.string()),
        pa.field("reason", pa.string()),
        *(_field(one, pa) for one in specs),
    ]
    about = json.dumps(store.attributes, ensure_ascii=False)
    schema = pa.schema(fields, metadata={spec.ATTRIBUTES: about})
    with parquet.ParquetWriter(
        path, schema, compression="none", use_dictionary=False, write_page_checksum=True
    ) as writer:
        for rows, done, values in parts(store, specs):
            ids = store.ids[rows.start : rows.stop]
            columns = [
                ids,
                films[rows.start : rows.stop],
                store.status[rows.start : rows.stop],
                [store.sources[one] for one in ids],
                [store.failures.get(one) for one in ids],
                *(_lists(values[one.name], done, one, pa) for one in specs),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def _field(one: ArraySpec, pa: ModuleType) -> Any:
    lists = pa.list_(pa.from_numpy_dtype(np.dtype(one.dtype)), math.prod(one.shape))
    shape = ",".join(map(str, one.shape))
    return pa.field(one.name, lists, metadata={"shape": shape, "meaning": one.meaning})


def _lists(values: NDArray[Any], done: NDArray[np.bool_], one: ArraySpec, pa: ModuleType) -> Any:
    """A list for each row, null where it is not done."""
    every = np.zeros((len(done), *one.shape), one.dtype)
    every[done] = values
    flat = pa.array(every.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, math.prod(one.shape), mask=pa.array(~done))
