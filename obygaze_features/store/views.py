"""The rows of a store as pandas, xarray and torch know them.

A view holds the rows that are done, and no others: nothing in it stands for a missing row. What is
missing, and why, the store says (`status`, `failures`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.package import need
from obygaze_features.store import format as spec
from obygaze_features.store.format import Status
from obygaze_features.store.items import read_items
from obygaze_features.store.reader import Store, open_store

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["StoreDataset", "to_pandas", "to_xarray"]


def to_pandas(store: Store, name: str = "native") -> pd.DataFrame:
    """An array as a table: ids down, numbers across.

    An array with several axes a row, such as ``frames``, gets them into the index: one line for
    each id and frame.
    """
    pandas = need("pandas", extra="views")
    ids, values = _done(store, name)
    *inner, width = values.shape[1:] or (1,)
    if inner:
        steps = [range(size) for size in inner]
        names = ["id", *(_axis(name, place) for place in range(len(inner)))]
        index = pandas.MultiIndex.from_product([ids, *steps], names=names)
    else:
        index = pandas.Index(ids, name="id")
    frame: pd.DataFrame = pandas.DataFrame(values.reshape(-1, width), index=index)
    return frame


def to_xarray(store: Store, names: Sequence[str] | None = None) -> xr.Dataset:
    """Arrays (all of them, unless some are named) as a dataset.

    Its dimensions are ``item``, ``frame`` and others that are an array's own, its coordinates
    ``id``, by which rows are selected, and ``film``.
    """
    xarray = need("xarray", extra="views")
    variables, frames = {}, spec.frame_count(store.specs)
    for name in store.arrays if names is None else names:
        _, values = _done(store, name)
        dims = spec.dimensions(name, values.shape[1:], frames)
        meaning = store.attributes["arrays"][name]["meaning"]
        variables[name] = (dims, values, {"meaning": meaning})
    rows = np.flatnonzero(store.status == Status.DONE)
    items = read_items(store.location, store.attributes)
    columns = dict(zip(spec.COORDINATES, (items.ids, items.films), strict=True))
    coordinates = {name: ("item", np.array(column)[rows]) for name, column in columns.items()}
    about = ("name", "manifest", "items_digest", "precision", "licence", "citation", "software")
    dataset = xarray.Dataset(variables, coordinates, {key: store.attributes[key] for key in about})
    indexed: xr.Dataset = dataset.set_xindex("id")
    return indexed


class StoreDataset:
    """A store's array for ``torch.utils.data.DataLoader``: ``dataset[i]`` is a row.

    It goes to a worker as the store's path, and each process opens the store for itself, so that
    any number of workers may be forked or spawned.

    Parameters
    ----------
    path
        The store.
    name
        Which array.
    ids
        Which rows, in this order; all that are done if none are given. `StoreError` if one of
        them is not done.

    Examples
    --------
    ::

        dataset = StoreDataset(Path("stores/xclip.zarr"), "frames")
        for batch in DataLoader(dataset, batch_size=64, num_workers=4):
            ...
    """

    def __init__(self, path: Path | str, name: str, ids: Sequence[str] | None = None) -> None:
        self.path, self.name = path, name
        self._opened: tuple[int, Store] | None = None
        store = self._store()
        # Chosen once: a store that is still being filled is the same for every worker.
        if ids is None:
            self._rows = np.flatnonzero(store.status == Status.DONE)
        else:
            self._rows = store.rows_of(ids)
        self.__getitems__([])  # a wrong name is better told here than by a worker

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> NDArray[Any]:
        """One row."""
        row: NDArray[Any] = self.__getitems__([place])[0]
        return row

    def __getitems__(self, places: Sequence[int]) -> NDArray[Any]:
        """Several rows at once, which is how a data loader asks for a batch."""
        return self._store().take(self._rows[np.asarray(places, np.intp)], self.name)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def ids(self) -> list[str]:
        """The ids of the rows, in their order."""
        ids = self._store().ids
        return [ids[row] for row in self._rows.tolist()]

    def _store(self) -> Store:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), open_store(self.path)
        return self._opened[1]


def _done(store: Store, name: str) -> tuple[list[str], NDArray[Any]]:
    rows = np.flatnonzero(store.status == Status.DONE)
    return [store.ids[row] for row in rows.tolist()], store.take(rows, name)


def _axis(name: str, place: int) -> str:
    """The name of an axis of a row; each array has its own, as their lengths differ."""
    return f"{name}_{place}"
