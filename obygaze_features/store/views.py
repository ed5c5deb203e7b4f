"""Views of a store's rows for pandas, xarray and PyTorch.

Views contain only the rows that are done; `Store.status` and `Store.failures` explain the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.common.package import need
from obygaze_features.common.text import as_list
from obygaze_features.errors import StoreError
from obygaze_features.items.items import require_same_clips
from obygaze_features.store import format as fmt
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from obygaze_features.manifests import LabelScheme, LabelSet, Manifest

TIMES = "frame_time"
RUN_ROWS = 32
"""The number of neighbouring rows that a stream reads together (one request behind a URL)."""


def to_pandas(store: Store, array: str = "native") -> pd.DataFrame:
    """Return an array as a table; see `Store.to_pandas`."""
    pandas = need("pandas", extra="views")
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


def to_xarray(
    store: Store,
    arrays: Sequence[str] | str | None = None,
    *,
    manifest: Manifest | Path | str | None = None,
    labels: str | None = None,
) -> xr.Dataset:
    """Return arrays as a dataset; see `Store.to_xarray`."""
    xarray = need("xarray", extra="views")
    dimensions, specs = fmt.dimensions(store.specs), {spec.name: spec for spec in store.specs}
    rows, items = np.flatnonzero(store.status == Status.DONE), store.items
    coordinates: dict[str, Any] = {
        name: ("item", np.array(column)[rows])
        for name, column in zip(fmt.COORDINATES, (items.ids, items.films), strict=True)
    }
    variables, times = {}, None
    if TIMES in store.arrays:
        times = store.read(TIMES, missing="drop")
    for name in store.arrays if arrays is None else as_list(arrays):
        values, spec, dims = store.read(name, missing="drop"), specs[name], dimensions[name]
        if spec.columns:
            coordinates[dims[-1]] = list(spec.columns)
        if times is not None and spec.counts_frames and times.shape[1] % values.shape[1] == 0:
            time = "time" if dims[1] == "frame" else f"{name}_time"
            coordinates[time] = dims[:2], fmt.token_times(times, values.shape[1])
        if name != TIMES:
            variables[name] = (dims, values, {"meaning": spec.meaning})
    if manifest is not None:
        _, truth, scheme = _read_labels(store, manifest, labels)
        done, names = store.done_ids(), scheme.concept_names
        coordinates["level"] = "item", [truth.level_of.get(item_id, "") for item_id in done]
        marks = [[name in truth.concepts_of.get(i, ()) for name in names] for i in done]
        table = np.array(marks, bool).reshape(len(done), len(names))
        coordinates |= {"concept": list(names), "concepts": (("item", "concept"), table)}
    keys = ("name", "manifest", "items_digest", "precision", "licence", "citation", "software")
    dataset = xarray.Dataset(variables, coordinates, {key: store.attributes[key] for key in keys})
    indexed: xr.Dataset = dataset.set_xindex("id")
    return indexed


def _read_labels(
    store: Store, manifest: Manifest | Path | str, labels: str | None
) -> tuple[Manifest, LabelSet, LabelScheme]:
    """Return a manifest, one of its label sets, and the scheme of that label set."""
    if isinstance(manifest, Path | str):
        from obygaze_features.manifests.manifest import Manifest

        manifest = Manifest.load(manifest)
    require_same_clips(store.items, manifest.items)
    return manifest, manifest.labels(labels), manifest.label_scheme(labels)


class StoreDataset:
    """An array as a dataset for PyTorch's ``DataLoader``. ``dataset[i]`` is an id and its row.

    Create it with `Store.dataset`, which describes the parameters.

    With a manifest, ``dataset[i]`` is a dictionary with ``id``, ``film``, ``features`` (the row),
    ``level`` (the code of its level) and ``label`` (the index of this level in `classes`).

    A pickled dataset holds the store's path or URL, so any number of workers may be forked or
    spawned. Each worker opens the store itself, and raises `StoreUnreadable` if it was replaced.

    Examples
    --------
    ::

        store = open_store("stores/xclip.zarr")
        for ids, frames in DataLoader(store.dataset("frames"), batch_size=64, num_workers=4):
            ...
        for batch in DataLoader(store.dataset("native", manifest="manifests/mine"), 64):
            loss = cross_entropy(network(batch["features"]), batch["label"])
    """

    classes: tuple[str, ...] = ()
    """The codes of the levels, in the order of their labels; empty if there is no manifest."""

    def __init__(
        self,
        store: Store | Path | str,
        array: str = "native",
        ids: Sequence[str] | None = None,
        *,
        manifest: Manifest | Path | str | None = None,
        labels: str | None = None,
    ) -> None:
        self._opened: tuple[int, Store] | None = None
        if not isinstance(store, Store):
            store = open_store(store)
            self._opened = os.getpid(), store
        self.address, self.array = store.location.address, array
        self._facts: list[dict[str, Any]] = []
        if manifest is not None:
            items, truth, scheme = _read_labels(store, manifest, labels)
            if ids is None:
                ids = [i for i in items.ids if i in truth.level_of and i in store]
                if not (ids := store.done_ids(ids)):
                    raise StoreError(
                        store.where, f"has no finished rows for the clips that {items.name} labels"
                    )
            number = {code: label for label, code in enumerate(scheme.codes)}
            for i, level in ((i, truth.level_of.get(i, "")) for i in ids):
                facts = {"id": i, "film": items[i].film, "level": level}
                self._facts.append({**facts, "label": number.get(level, -1)})
            self.classes = tuple(number)
        # Choose rows now, so that all workers see the same rows even if the store is being filled.
        if ids is None:
            self._rows = np.flatnonzero(store.status == Status.DONE)
        else:
            self._rows = store.rows_of(ids)
        self._identity = store.location.identity
        self.__getitems__([])  # so that an unknown array raises here, not in a worker

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        """Return an id and its row; with a manifest, return a dictionary."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several rows at once; data loaders call this for each batch."""
        store, rows = self._store(), self._rows[np.asarray(indices, np.intp)]
        values = store.read_rows(self.array, rows)
        if self._facts:
            facts = [self._facts[index] for index in indices]
            return [{**entry, "features": row} for entry, row in zip(facts, values, strict=True)]
        return [(store.ids[row], value) for row, value in zip(rows.tolist(), values, strict=True)]

    def stream(
        self,
        *others: StoreDataset,
        batch: int = 64,
        seed: int = 0,
        window: int = 1024,
        part: tuple[int, int] = (0, 1),
    ) -> Iterator[list[Any]]:
        """Yield shuffled batches of rows from this dataset and from `others`, in bounded memory.

        First, the order of runs of 32 neighbouring rows is shuffled. Then the rows within each
        window of runs are shuffled. Each window is read as a whole, so a store behind a URL needs
        few requests.

        Parameters
        ----------
        others
            Datasets made from other stores, whose rows are mixed in.
        batch
            The number of rows per batch; the last batch may have fewer. A batch is a list, which
            PyTorch's `default_collate` turns into tensors.
        seed
            The same seed gives the same order. Use a different seed for each epoch.
        window
            The number of rows to read together. Up to two windows are held in memory.
        part
            The share of the rows to yield in distributed training, as ``(rank, processes)``.
        """
        datasets, chance = (self, *others), np.random.default_rng(seed)
        runs = [
            (number, first)
            for number, dataset in enumerate(datasets)
            for first in range(0, len(dataset), RUN_ROWS)
        ]
        mine = chance.permutation(len(runs))[part[0] :: part[1]].tolist()
        step, waiting = max(1, window // RUN_ROWS), list[Any]()
        for start in range(0, len(mine), step):
            chosen, rows = [runs[run] for run in mine[start : start + step]], list[Any]()
            for number, dataset in enumerate(datasets):
                firsts = [first for own, first in chosen if own == number]
                ends = [min(first + RUN_ROWS, len(dataset)) for first in firsts]
                spans = map(range, firsts, ends)
                rows += dataset.__getitems__([row for span in spans for row in span])
            waiting += [rows[row] for row in chance.permutation(len(rows)).tolist()]
            while len(waiting) >= batch:
                yield waiting[:batch]
                del waiting[:batch]
        if waiting:
            yield waiting

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
