"""Feature stores, which labs can share. stores/README.md specifies the format.

Import other names from their own modules, for example `verify` from `store.verify`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from obygaze_features.common import lazy_names

if TYPE_CHECKING:
    from obygaze_features.store.combine import merge, subset
    from obygaze_features.store.format import ArraySpec, Recipe, Status
    from obygaze_features.store.reader import Store, open_store
    from obygaze_features.store.writer import Done, Failed, StoreWriter

__all__ = [
    "ArraySpec",
    "Done",
    "Failed",
    "Recipe",
    "Status",
    "Store",
    "StoreWriter",
    "merge",
    "open_store",
    "subset",
]

_NAMES = {
    "combine": ["merge", "subset"],
    "format": ["ArraySpec", "Recipe", "Status"],
    "reader": ["Store", "open_store"],
    "writer": ["Done", "Failed", "StoreWriter"],
}

__getattr__ = lazy_names(__name__, _NAMES)
