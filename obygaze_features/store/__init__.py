"""Feature stores, which labs share. stores/README.md specifies the format."""

from __future__ import annotations

from functools import partialmethod

from obygaze_features.store.combine import merge, subset
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.diff import diff
from obygaze_features.store.export import export
from obygaze_features.store.finalise import finalise, set_texts
from obygaze_features.store.format import ArraySpec, Recipe, Status
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.repair import repair
from obygaze_features.store.transfer import pack, push
from obygaze_features.store.verify import verify
from obygaze_features.store.views import StoreDataset, to_pandas, to_xarray
from obygaze_features.store.writer import StoreWriter

__all__ = [
    "ArraySpec",
    "Done",
    "Failed",
    "Recipe",
    "Status",
    "Store",
    "StoreWriter",
    "diff",
    "finalise",
    "merge",
    "open_store",
    "repair",
    "subset",
    "verify",
]

# They take a store first, and so import `reader`.
for operation in (diff, export, finalise, pack, push, subset, to_pandas, to_xarray):
    setattr(Store, operation.__name__, operation)
Store.set = set_texts
Store.dataset = partialmethod(StoreDataset)
