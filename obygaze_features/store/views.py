"""Views of a store's rows for pandas and PyTorch.

Views contain only the rows that are done; `Store.status` and `Store.failures` explain the rest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.common.package import need
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store

if TYPE_CHECKING:
    import pandas as pd


def to_pandas(store: Store, array: str = "native") -> pd.DataFrame:
    """Return an array as a table; see `Store.to_pandas`."""
    pandas = need("pandas", extra="models")
    ids, values = store.done_ids(), store.read(array, missing="drop")
    *inner, width = values.shape[1:] or (1,)
    if inner:
        names = ["id", *(f"{array}_{axis}" for axis in range(len(inner)))]
        index = pandas.MultiIndex.from_product([ids, *map(range, inner)], names=names)
    else:
        index = pandas.Index(ids, name="id")
    columns = next(spec.columns for spec in store.specs if spec.name == array) or None
    frame: pd.DataFrame = pandas.DataFrame(values.reshape(-1, width), index, columns)
    return frame


class StoreDataset:
    """An array as a dataset for PyTorch's ``DataLoader``. ``dataset[i]`` is an id and its row.

    Create it with `Store.dataset`, which describes the parameters.

    A pickled dataset holds the store's path or URL, so any number of workers may be forked or
    spawned. Each worker opens the store itself, and raises `StoreUnreadable` if it was replaced.

    Examples
    --------
    ::

        store = open_store("stores/xclip.zarr")
        for ids, frames in DataLoader(store.dataset("frames"), batch_size=64, num_workers=4):
            ...
    """

    def __init__(
        self,
        store: Store | Path | str,
        array: str = "native",
        ids: Sequence[str] | None = None,
    ) -> None:
        self._opened: tuple[int, Store] | None = None
        if not isinstance(store, Store):
            store = open_store(store)
            self._opened = os.getpid(), store
        self.address, self.array = store.location.address, array
        # Choose rows now, so that all workers see the same rows even if the store is being filled.
        if ids is None:
            self._rows = np.flatnonzero(store.status == Status.DONE)
        else:
            self._rows = store.rows_of(ids)
        self._identity = store.location.identity
        self.__getitems__([])  # so that an unknown array raises here, not in a worker

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[str, Any]:
        """Return an id and its row."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[str, Any]]:
        """Return several rows at once; data loaders call this for each batch."""
        store, rows = self._store(), self._rows[np.asarray(indices, np.intp)]
        values = store.read_rows(self.array, rows)
        return [(store.ids[row], value) for row, value in zip(rows.tolist(), values, strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def ids(self) -> list[str]:
        """The ids of the rows, in order."""
        ids = self._store().ids
        return [ids[row] for row in self._rows.tolist()]

    def _store(self) -> Store:
        if self._opened is None or self._opened[0] != os.getpid():
            store = open_store(self.address)
            store.location.identity = self._identity
            store.location.refuse_if_changed()
            self._opened = os.getpid(), store
        return self._opened[1]
