"""Feature stores, which labs share. stores/README.md specifies the format."""

from __future__ import annotations

from obygaze_features.store.combine import merge, subset
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.diff import diff
from obygaze_features.store.finalise import finalise
from obygaze_features.store.format import ArraySpec, Recipe, Status
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.repair import repair
from obygaze_features.store.verify import verify
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
