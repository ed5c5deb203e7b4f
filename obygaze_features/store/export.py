"""Export a store to one HDF5 file, a few rows at a time."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import disk_errors, new_file
from obygaze_features.common.progress import meter
from obygaze_features.common.text import as_list
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.diff import read_probe
from obygaze_features.store.format import ArraySpec, Status
from obygaze_features.store.reader import PART_BYTES, Store

SUFFIXES = (".h5", ".hdf5")
ATTRIBUTES, ITEMS = "obygaze.json", "items.csv"
SOURCES, REASONS = "rows.source", "rows.reason"
"""The datasets of an exported HDF5 file with each row's source and reason for failure."""
_ABOUT = ("name", "manifest", "items_digest", "precision", "licence", "citation", "software")


class Exported(NamedTuple):
    """A file that a store was exported to."""

    path: Path
    rows: int
    done: int
    arrays: list[str]
    size: int


def export(
    store: Store,
    output: Path | str,
    *,
    arrays: Sequence[str] | str | None = None,
    overwrite: bool = False,
) -> Exported:
    """Export a store to HDF5, using bounded memory.

    The file has one dataset per array, with HDF5's own checksum (Fletcher-32) for each chunk.
    Rows that are not done are NaN, or -1 in integer arrays.

    Parameters
    ----------
    store
        The store to export.
    output
        The file to write: ``NAME.h5`` or ``NAME.hdf5``.
    arrays
        The arrays to export (default: all).
    overwrite
        Replace the file at `output`.
    """
    output = Path(output)
    if output.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{output}: the name of an export must end in {' or '.join(SUFFIXES)}")
    store.location.refuse_as_output(output)
    names = store.arrays if arrays is None else as_list(arrays)
    asked = [store.stored(name).spec for name in names]
    specs = [array for array in store.specs if array in asked]
    with disk_errors(output, StoreError), new_file(output, overwrite=overwrite) as temporary:
        _write_hdf5(temporary, store, specs)
    done = int((store.status == Status.DONE).sum())
    written = [array.name for array in specs]
    return Exported(output, len(store), done, written, output.stat().st_size)


def _iter_rows(
    store: Store, specs: Sequence[ArraySpec]
) -> Iterator[tuple[int, list[str], dict[str, NDArray[Any]]]]:
    """Yield all rows in batches: the number of the first row, the ids, and the arrays."""
    row_bytes, names = sum(spec.row_bytes for spec in specs), [spec.name for spec in specs]
    step = max(1, PART_BYTES // row_bytes // store.block_rows) * store.block_rows
    with meter(len(store), "Exporting", unit="row") as advance:
        for start in range(0, len(store), step):
            ids = store.ids[start : start + step]
            yield start, ids, {array: store.read(array, ids, missing="nan") for array in names}
            store.forget()
            advance(len(ids))


class _Hdf5Output:
    """A file object for HDF5, which crashes if a write raises. `check` raises the error later.

    Signals are also deferred to `check`, because h5py swallows exceptions raised in these methods:
    the write would be lost, and the export would continue.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("r+b", buffering=0)
        self._error: OSError | None = None
        self._signals: list[int] = []
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self.seek, self.tell = self._file.seek, self._file.tell

    def __enter__(self) -> _Hdf5Output:
        if threading.current_thread() is threading.main_thread():  # only it can handle signals
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, lambda number, _: self._signals.append(number))
        return self

    def __exit__(self, *problem: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._file.close()

    def check(self) -> None:
        """Raise the error of an earlier write, or handle a deferred signal, if there is one."""
        if self._error is not None:
            raise self._error
        if self._signals:
            number = self._signals.pop()
            self._handlers[number](number, None)

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        with self._noting():
            while rest and self._error is None:
                rest = rest[self._file.write(rest) :]
        return size

    def truncate(self, size: int) -> int:
        with self._noting():
            self._file.truncate(size)
        return size

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer) or 0

    read = readinto  # h5py recognises a file by this method

    def flush(self) -> None:
        """Do nothing, because writes are not buffered."""

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self._error = self._error or problem


def _write_hdf5(path: Path, store: Store, specs: Sequence[ArraySpec]) -> None:
    import h5py

    with _Hdf5Output(path) as output:
        try:
            with h5py.File(output, "w") as file:
                _fill_hdf5(file, output, store, specs)
        finally:
            output.check()


def _fill_hdf5(file: Any, output: _Hdf5Output, store: Store, specs: Sequence[ArraySpec]) -> None:
    import h5py

    text = h5py.string_dtype()
    file.attrs.update({key: store.attributes[key] for key in _ABOUT})
    arrays = {array.name: store.attributes["arrays"][array.name] for array in specs}
    file[ATTRIBUTES] = json.dumps({**store.attributes, "arrays": arrays}, ensure_ascii=False)
    assert store.items  # reading the items also checks their table
    file[ITEMS] = _storable([store.location.read(fmt.ITEMS).decode("utf-8")], store)[0]
    file[fmt.STATUS] = store.status
    for name, column in (
        (fmt.IDS, store.ids),
        (SOURCES, [store.sources[item] or "" for item in store.ids]),
        (REASONS, [store.failures.get(item, "") for item in store.ids]),
    ):
        file.create_dataset(name, data=_storable(column, store), dtype=text)
    for name, row in read_probe(store).items():
        if name in arrays:
            file[f"{fmt.PROBE}/{name}"] = row
    datasets = {}
    for array in specs:
        _, chunk_rows = fmt.final_rows(array, len(store))
        datasets[array.name] = file.create_dataset(
            array.name,
            shape=(len(store), *array.shape),
            dtype=f"<{np.dtype(array.dtype).str[1:]}",
            chunks=(min(chunk_rows, len(store)), *array.shape),
            fillvalue=array.fill,
            fletcher32=True,
        )
        datasets[array.name].attrs["meaning"] = array.meaning
    for start, ids, values in _iter_rows(store, specs):
        for name, rows in values.items():
            datasets[name][start : start + len(ids)] = rows
            output.check()


def _storable(texts: list[str], store: Store) -> list[str]:
    """Return the texts; raise `StoreError` if HDF5 cannot hold them."""
    if any("\0" in text for text in texts):
        raise StoreError(f"{store.where}: a text contains a zero byte, which HDF5 cannot hold")
    return texts
