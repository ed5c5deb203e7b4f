"""A store as one HDF5 file: a dataset an array, row for row, in chunks of clips.

`ids`, ``status`` and the arrays are what other programs need. Names with a full stop, which no
array has, are what a store has besides: ``obygaze.json`` (its attributes), ``items.csv``,
``rows.source`` and ``rows.reason``; and ``probe`` is a group. `incoming_hdf5` reads it all back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.files import disk_errors, new_file
from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.diff import read_probe
from obygaze_features.store.exchange.outgoing import Exported, chosen, parts, refuse_inside
from obygaze_features.store.format import ArraySpec
from obygaze_features.store.reader import Store

__all__ = ["ATTRIBUTES", "ITEMS", "REASONS", "SOURCES", "export_hdf5"]

ATTRIBUTES = "obygaze.json"
ITEMS = "items.csv"
SOURCES = "rows.source"
REASONS = "rows.reason"
_ABOUT = ("name", "manifest", "items_digest", "precision", "licence", "citation", "software")


def export_hdf5(
    store: Store,
    output: Path,
    *,
    arrays: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write a store as an HDF5 file, in bounded memory.

    Rows that are not done are NaN, or -1 in whole numbers, as in the store. Each chunk has a
    checksum (HDF5's own, Fletcher-32).

    Parameters
    ----------
    store
        Open or final.
    output
        The file, ``NAME.h5``.
    arrays
        Which; all by default.
    overwrite
        Replace the file that lies at `output`.
    """
    refuse_inside(store.location.address, output)
    specs = chosen(store, store.arrays if arrays is None else arrays)
    with disk_errors(output, StoreError), new_file(output, overwrite=overwrite) as temporary:
        _write(temporary, store, specs)
    return Exported.of(output, store, specs)


def _write(path: Path, store: Store, specs: Sequence[ArraySpec]) -> None:
    import h5py

    text = h5py.string_dtype()
    with h5py.File(path, "w") as file:
        file.attrs.update({key: store.attributes[key] for key in _ABOUT})
        values = {one.name: store.attributes["arrays"][one.name] for one in specs}
        file[ATTRIBUTES] = json.dumps({**store.attributes, "arrays": values}, ensure_ascii=False)
        file[ITEMS] = store.location.read(spec.ITEMS).decode("utf-8")
        file[spec.STATUS] = store.status
        for name, column in (
            (spec.IDS, store.ids),
            (SOURCES, [store.sources[one] or "" for one in store.ids]),
            (REASONS, [store.failures.get(one, "") for one in store.ids]),
        ):
            file.create_dataset(name, data=column, dtype=text)
        for name, row in read_probe(store).items():
            if name in values:
                file[f"{spec.PROBE}/{name}"] = row
        written = {one.name: _dataset(file, one, len(store)) for one in specs}
        for rows, done, part in parts(store, specs):
            # Runs of rows, as HDF5 is slow at single ones.
            ends = np.flatnonzero(np.diff(done, prepend=False, append=False)).reshape(-1, 2)
            place = 0
            for start, stop in ends.tolist():
                for name, values_there in part.items():
                    values_here = values_there[place : place + stop - start]
                    written[name][rows.start + start : rows.start + stop] = values_here
                place += stop - start


def _dataset(file: Any, one: ArraySpec, n: int) -> Any:
    _, chunk_rows = spec.final_rows(one, n)
    dataset = file.create_dataset(
        one.name,
        shape=(n, *one.shape),
        dtype=f"<{np.dtype(one.dtype).str[1:]}",
        chunks=(min(chunk_rows, n), *one.shape),
        fillvalue=one.fill,
        fletcher32=True,
    )
    dataset.attrs["meaning"] = one.meaning
    return dataset
