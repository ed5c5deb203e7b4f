"""Which files a final store must have, so that a list of checksums that lacks some is seen."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from obygaze_features.store import format as spec
from obygaze_features.store.format import Status
from obygaze_features.store.reader import FeatureStore

__all__ = ["plain_files", "shard_files"]


def plain_files(store: FeatureStore, listed: Collection[str]) -> set[str]:
    """All but shards, checksums and the log; the probe, which not all have, as far as listed."""
    names = {"zarr.json", spec.ITEMS, spec.ROWS, spec.CARD, spec.CROISSANT}
    names |= {f"{one}/zarr.json" for one in (*store.arrays, spec.IDS, spec.STATUS)}
    names |= {f"{spec.IDS}/c/0/0", f"{spec.STATUS}/c/0"}
    if any(name.startswith(f"{spec.PROBE}/") for name in listed):
        names.add(f"{spec.PROBE}/zarr.json")
        for one in store.specs:
            both = {f"{spec.PROBE}/{one.name}/zarr.json", f"{spec.PROBE}/{spec.shard_name(one, 0)}"}
            if not both.isdisjoint(listed):
                names |= both
    return names


def shard_files(store: FeatureStore, status: NDArray[np.uint8]) -> set[str]:
    """The shards: each that has a row that is done."""
    done = np.flatnonzero(status == Status.DONE)
    return {
        spec.shard_name(one.spec, shard)
        for one in store.stored.values()
        for shard in np.unique(done // one.layout.shard_rows).tolist()
    }
