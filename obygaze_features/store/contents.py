"""Which files a final store must have, so that a list of checksums that is not right is seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store

__all__ = ["check_list", "plain_files", "shard_files"]


def check_list(where: object, store: Store, sums: Mapping[str, str]) -> None:
    """Raise unless a final store lists the files that one like it has, and no others.

    Parameters
    ----------
    where
        What the message is to name.
    store, sums
        The store, and what its ``checksums.json`` lists.
    """
    names = plain_files(store, sums)
    if not (lost := sorted(names - sums.keys())):
        names |= shard_files(store, store.status)
        lost = sorted(names - sums.keys())
    if lost:
        raise StoreError(f"{where}: {lost[0]!r:.80} is not among its {spec.CHECKSUMS}")
    if odd := sorted(sums.keys() - names):
        raise StoreError(f"{where}: {odd[0]!r:.80} is no file of a store, though it lists it")


def plain_files(store: Store, listed: Collection[str]) -> set[str]:
    """All but shards, checksums and the log; what not all stores have, if listed."""
    names = {"zarr.json", spec.ITEMS, spec.ROWS, spec.CARD, spec.CROISSANT}
    names |= {f"{one}/zarr.json" for one in (*store.arrays, spec.IDS, spec.STATUS)}
    names |= {f"{spec.IDS}/c/0/0", f"{spec.STATUS}/c/0"}
    for name in set(spec.COORDINATES).difference(store.arrays):
        files = {f"{name}/zarr.json", f"{name}/c/0"}
        if not files.isdisjoint(listed):
            names |= files
    if any(name.startswith(f"{spec.PROBE}/") for name in listed):
        names.add(f"{spec.PROBE}/zarr.json")
        for one in store.specs:
            both = {f"{spec.PROBE}/{one.name}/zarr.json", f"{spec.PROBE}/{spec.shard_name(one, 0)}"}
            if not both.isdisjoint(listed):
                names |= both
    return names


def shard_files(store: Store, status: NDArray[np.uint8]) -> set[str]:
    """The shards: each that has a row that is done."""
    done = np.flatnonzero(status == Status.DONE)
    return {
        spec.shard_name(one.spec, shard)
        for one in store.stored.values()
        for shard in np.unique(done // one.layout.shard_rows).tolist()
    }
