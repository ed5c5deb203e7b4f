"""Export a store to one HDF5 file, for programs that cannot read Zarr."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from obygaze_features.common.files import disk_errors, new_file, require_suffix
from obygaze_features.common.formatting import format_size
from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError, translate
from obygaze_features.store import format as fmt
from obygaze_features.store.store import PART_BYTES, StoreLike, open_store


def export(store: StoreLike, output: Path | str, *, overwrite: bool = False) -> Path:
    """Export the rows that are done to HDF5 (``NAME.h5``), using bounded memory.

    The file has a dataset ``ids``, one dataset per array, with HDF5's own checksum (Fletcher-32)
    for each chunk, and the store's attributes in ``obygaze.json``.
    """
    import h5py

    store = open_store(store)
    output = Path(output)
    require_suffix(output, ".h5", ".hdf5")
    ids = store.done_ids()
    if not ids:
        raise StoreError(store.where, "has no rows that are done; extract or import them first")

    with (
        disk_errors(output, StoreError),
        translate(StoreError, output, "cannot be written: {}", foreign=RuntimeError),  # HDF5's
        new_file(output, overwrite=overwrite) as temporary,
    ):
        # HDF5 crashes Python when the disk is full. An id takes less than 256 bytes, and the rest
        # less than a megabyte.
        row_bytes = sum(spec.row_bytes for spec in store.specs)
        size = 10**6 + len(ids) * (256 + row_bytes)
        free = shutil.disk_usage(temporary.parent).free
        if free < size:
            raise StoreError(output, f"needs {format_size(size)}; only {format_size(free)} is free")
        with h5py.File(temporary, "w") as file:
            file["obygaze.json"] = json.dumps(store.attributes, ensure_ascii=False)
            file.create_dataset(fmt.IDS, data=ids, dtype=h5py.string_dtype())
            for spec in store.specs:
                _, chunk_rows = fmt.final_rows(spec, len(store))
                dataset = file.create_dataset(
                    spec.name,
                    shape=(len(ids), *spec.shape),
                    dtype=spec.dtype,
                    chunks=(min(chunk_rows, len(ids)), *spec.shape),
                    fletcher32=True,
                )
                if spec.padded:
                    dataset.attrs["padded"] = True
            rows = max(1, PART_BYTES // row_bytes)
            for start in progress(range(0, len(ids), rows), "Exporting", unit="part"):
                batch = ids[start : start + rows]
                for name in store.arrays:
                    file[name][start : start + len(batch)] = store.read(name, batch)
                store.forget()
    return output
