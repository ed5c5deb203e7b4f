"""Views of the rows of a store that are done, for pandas and PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from obygaze_features.common.package import need

if TYPE_CHECKING:
    import pandas as pd

    from obygaze_features.store.reader import Store


def to_pandas(store: Store, array: str = "native") -> pd.DataFrame:
    """Return an array as a table; see `Store.to_pandas`."""
    pandas = need("pandas", extra="models")
    ids = store.done_ids()
    values = store.read(array, missing="drop").reshape(len(ids), -1)
    index = pandas.Index(ids, name="id")
    columns = store.stored(array).spec.columns or None
    frame: pd.DataFrame = pandas.DataFrame(values, index, columns)
    return frame


class StoreDataset:
    """An array as a dataset for PyTorch's ``DataLoader``. ``dataset[i]`` is an id and its row.

    Create it with `Store.dataset`, which describes the parameters. It is pickled as the store's
    path or URL and the ids, so any number of workers may be forked or spawned.

    Examples
    --------
    ::

        store = open_store("stores/xclip.zarr")
        for ids, frames in DataLoader(store.dataset("frames"), batch_size=64, num_workers=4):
            ...
    """

    def __init__(self, store: Store, array: str, ids: Sequence[str] | None) -> None:
        store.stored(array)  # so that an unknown array raises here, not in a worker
        if ids is None:
            ids = store.done_ids()
        store.rows_of(ids)
        self.store = store
        self.array = array
        self.ids = list(ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> tuple[str, Any]:
        """Return an id and its row."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[str, Any]]:
        """Return several rows at once; data loaders call this for each batch."""
        ids = [self.ids[index] for index in indices]
        return list(zip(ids, self.store.read(self.array, ids), strict=True))
