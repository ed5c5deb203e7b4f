"""Export a store to one HDF5 file, for programs that cannot read Zarr."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.files import disk_errors, new_file
from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.reader import PART_BYTES, Store


class _Output(io.FileIO):
    """A file for HDF5, which crashes Python if it cannot write: the first error is raised later."""

    problem: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of the data."""
        rest = memoryview(data)
        with self._note_errors():
            while rest:
                rest = rest[super().write(rest) :]
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Set the size."""
        with self._note_errors():
            super().truncate(size)
        return 0

    def refuse_if_failed(self) -> None:
        """Raise the first error."""
        if self.problem is not None:
            raise self.problem

    @contextlib.contextmanager
    def _note_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self.problem = self.problem or problem


def export(store: Store, output: Path | str, *, overwrite: bool = False) -> Path:
    """Export the rows that are done to HDF5 (``NAME.h5``), using bounded memory.

    The file has a dataset ``ids``, one dataset per array, with HDF5's own checksum (Fletcher-32)
    for each chunk, and the store's attributes in ``obygaze.json``.
    """
    import h5py

    output = Path(output)
    store.location.refuse_as_output(output)
    ids = store.done_ids()
    if not ids:
        raise StoreError(store.where, "has no rows that are done")
    rows = max(1, PART_BYTES // sum(spec.row_bytes for spec in store.specs))
    with (
        disk_errors(output, StoreError),
        new_file(output, overwrite=overwrite) as temporary,
        _Output(temporary, "w+b") as written,
    ):
        with h5py.File(written, "w") as file:
            file["obygaze.json"] = json.dumps(store.attributes, ensure_ascii=False)
            file.create_dataset(fmt.IDS, data=ids, dtype=h5py.string_dtype())
            for spec in store.specs:
                _, chunk_rows = fmt.final_rows(spec, len(store))
                dataset = file.create_dataset(
                    spec.name,
                    shape=(len(ids), *spec.shape),
                    dtype=np.dtype(spec.dtype).newbyteorder("<"),
                    chunks=(min(chunk_rows, len(ids)), *spec.shape),
                    fletcher32=True,
                )
                if spec.padded:
                    dataset.attrs["padded"] = True

            for start in progress(range(0, len(ids), rows), "Exporting", unit="part"):
                batch = ids[start : start + rows]
                for name in store.arrays:
                    file[name][start : start + len(batch)] = store.read(name, batch)
                written.refuse_if_failed()
                store.forget()
        written.refuse_if_failed()
    return output
