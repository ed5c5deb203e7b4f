"""The rows of a store that are done, as a dataset for PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obygaze_features.store.reader import Store


@dataclass(frozen=True, eq=False, repr=False)
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

    store: Store
    array: str
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> tuple[str, Any]:
        """Return an id and its row."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[str, Any]]:
        """Return several rows at once; data loaders call this for each batch."""
        ids = [self.ids[index] for index in indices]
        return list(zip(ids, self.store.read(self.array, ids), strict=True))
