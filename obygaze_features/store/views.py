"""The rows of a store for pandas, xarray and PyTorch.

A view has only the rows that are done; `Store.status` and `Store.failures` say what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.package import need
from obygaze_features.store import format as fmt
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


def to_pandas(store: Store, array: str = "native") -> pd.DataFrame:
    """An array as a table with a row per id and a column per number.

    An array with several axes per row, such as ``frames``, has them in the index: a row per id
    and frame.
    """
    pandas = need("pandas", extra="views")
    ids, values = store.done_ids(), store.read(array, missing="drop")
    *inner, width = values.shape[1:] or (1,)
    if inner:
        names = ["id", *(f"{array}_{axis}" for axis in range(len(inner)))]
        index = pandas.MultiIndex.from_product([ids, *map(range, inner)], names=names)
    else:
        index = pandas.Index(ids, name="id")
    frame: pd.DataFrame = pandas.DataFrame(values.reshape(-1, width), index=index)
    return frame


def to_xarray(store: Store, arrays: Sequence[str] | None = None) -> xr.Dataset:
    """Arrays (all by default) as a dataset.

    Its dimensions are ``item``, ``frame`` and axes of single arrays; its coordinates are ``id``,
    by which rows are selected, and ``film``.
    """
    xarray = need("xarray", extra="views")
    variables, frames = {}, fmt.frame_count(store.specs)
    for name in store.arrays if arrays is None else arrays:
        values = store.read(name, missing="drop")
        dims = fmt.dimensions(name, values.shape[1:], frames)
        meaning = store.attributes["arrays"][name]["meaning"]
        variables[name] = (dims, values, {"meaning": meaning})
    rows, items = np.flatnonzero(store.status == Status.DONE), store.items
    columns = dict(zip(fmt.COORDINATES, (items.ids, items.films), strict=True))
    coordinates = {name: ("item", np.array(column)[rows]) for name, column in columns.items()}
    keys = ("name", "manifest", "items_digest", "precision", "licence", "citation", "software")
    dataset = xarray.Dataset(variables, coordinates, {key: store.attributes[key] for key in keys})
    indexed: xr.Dataset = dataset.set_xindex("id")
    return indexed


class StoreDataset:
    """An array for ``torch.utils.data.DataLoader``: ``dataset[i]`` is an id and its row.

    It is pickled as the store's path, and each process opens the store itself, so that any number
    of workers may be forked or spawned. `StoreUnreadable` if another store is at the path by then.

    Parameters
    ----------
    store
        The store, or its address, as for `open_store`.
    array
        Its name.
    ids
        The rows, in this order; by default all that are done. `StoreError` if a row is not done.

    Examples
    --------
    ::

        dataset = open_store("stores/xclip.zarr").dataset("frames")
        for ids, frames in DataLoader(dataset, batch_size=64, num_workers=4):
            ...
    """

    def __init__(
        self, store: Store | Path | str, array: str = "native", ids: Sequence[str] | None = None
    ) -> None:
        self._opened: tuple[int, Store] | None = None
        if not isinstance(store, Store):
            store = open_store(store)
            self._opened = os.getpid(), store
        self.address, self.array = store.location.address, array
        # Chosen now, so that every worker has the same rows of a store that is being filled.
        if ids is None:
            self._rows = np.flatnonzero(store.status == Status.DONE)
        else:
            self._rows = store.rows_of(ids)
        self._identity = store.location.identity
        self.__getitems__([])  # an unknown array raises here, not in a worker

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[str, NDArray[Any]]:
        """An id and its row."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[str, NDArray[Any]]]:
        """Several, as a data loader reads a batch."""
        store, rows = self._store(), self._rows[np.asarray(indices, np.intp)]
        values = store.read_rows(self.array, rows)
        return [(store.ids[row], value) for row, value in zip(rows.tolist(), values, strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def ids(self) -> list[str]:
        """The ids of the rows, in their order."""
        ids = self._store().ids
        return [ids[row] for row in self._rows.tolist()]

    def _store(self) -> Store:
        if self._opened is None or self._opened[0] != os.getpid():
            store = open_store(self.address)
            store.location.identity = self._identity
            store.location.refuse_if_changed()
            self._opened = os.getpid(), store
        return self._opened[1]
