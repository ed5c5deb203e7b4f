"""What a store holds, as plain values."""

from __future__ import annotations

from typing import Any

from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store

__all__ = ["describe"]


def describe(store: Store) -> dict[str, Any]:
    """Rows by status, arrays with shapes and bytes, failures, and the store's attributes."""
    n = len(store)
    done = int((store.status == Status.DONE).sum())
    to_do = int((store.status == Status.TODO).sum())
    return store.attributes | {
        "rows": {"all": n, "done": done, "failed": n - done - to_do, "to_do": to_do},
        "arrays": {
            one.name: {
                "shape": [n, *one.shape],
                "dtype": one.dtype,
                "bytes": n * one.bytes_a_row,
                "meaning": one.meaning,
            }
            for one in store.specs
        },
        "failures": store.failures,
    }
