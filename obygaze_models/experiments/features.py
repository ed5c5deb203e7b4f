"""Features as one vector a clip: read by id, and pooled over tokens once.

Pooling goes through the store a part at a time, so that ViViT's 3,137 tokens a clip (5 GB for
a thousand clips) take the memory of a few clips. What it gives is kept in the user's cache,
under a name that follows from what the store holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import write_bytes
from obygaze_features.common.package import cache_folder
from obygaze_features.common.progress import progress
from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.store import Store
from obygaze_features.store.format import CHECKSUMS

__all__ = ["POOLINGS", "read_features", "store_fingerprint"]

Array = NDArray[Any]


POOLINGS: dict[str, Callable[[Array], Any]] = {
    "max": lambda tokens: tokens.max(axis=0),
    "mean": lambda tokens: tokens.mean(axis=0, dtype=np.float64),
    "first": lambda tokens: tokens[0],
}
"""What makes one vector of a clip's tokens [T, D]."""


def read_features(
    store: Store, ids: Sequence[str], array: str, pooling: str | None = None
) -> tuple[list[str], Array]:
    """Which of the ids the store has, and a float32 vector for each of them.

    Parameters
    ----------
    store
        Where to read.
    ids
        Which, in the order wanted; those that the store lacks are left out.
    array
        An array of the store, with a vector a clip; or with several, to be pooled.
    pooling
        One of `POOLINGS`, over all axes but the last. The places of a clip that ends early
        (padding) are left out.
    """
    spec = next((one for one in store.specs if one.name == array), None)
    if spec is None:
        names = [one.name for one in store.specs]
        raise ExperimentError(f"{store.where}: {unknown_name('array', array, names)}")
    axes = len(spec.shape)
    if axes != 1 and pooling is None:
        raise ExperimentError(
            f"array {array!r} has {axes} axes a clip; take one with a vector a clip, such as "
            f"native, or a pooling ({', '.join(POOLINGS)})"
        )
    if axes == 1 and pooling is not None:
        raise ExperimentError(
            f"array {array!r} has one vector a clip: there is nothing to pool; leave pooling out"
        )
    if pooling is None:
        features = store.read(array, ids, missing="drop")
        return store.done_ids(ids), features.astype(np.float32, copy=False)
    pooled_ids, pooled = _pooled(store, array, pooling)
    row_of = {one: row for row, one in enumerate(pooled_ids)}
    have = [one for one in ids if one in row_of]
    return have, pooled[[row_of[one] for one in have]]


def store_fingerprint(store: Store) -> str:
    """A SHA-256 of what a store holds: of its attributes and its list of checksums."""
    digest = hashlib.sha256(json.dumps(store.attributes, sort_keys=True).encode())
    if store.is_final:
        digest.update(store.location.read(CHECKSUMS))
    for record in store.records:
        digest.update(record.to_bytes())
    return digest.hexdigest()


def _pooled(store: Store, array: str, pooling: str) -> tuple[list[str], Array]:
    """The pooled vectors of all rows that are done, from the cache or into it."""
    name = f"{store_fingerprint(store)[:32]}-{array}-{pooling}.npz"
    path = cache_folder("pooled") / name
    if (kept := _read(path)) is not None:
        return kept
    spec = next(one for one in store.specs if one.name == array)
    pool = POOLINGS[pooling]
    ids: list[str] = []
    rows: list[Array] = []
    blocks = progress(store.iter_blocks([array]), f"pool {array}", unit="block")
    for some, values in blocks:
        ids += some
        # Clip by clip: the float32 copy is of one clip, not of the block.
        for clip in values[array]:
            tokens = clip.reshape(-1, spec.shape[-1]).astype(np.float32)
            if spec.padded:
                tokens = tokens[~np.isnan(tokens).all(axis=1)]
            empty = np.full(spec.shape[-1], np.nan)
            rows.append((pool(tokens) if len(tokens) else empty).astype(np.float32))
    pooled = np.array(rows, np.float32).reshape(len(ids), spec.shape[-1])
    # Without a cache the next run is slower, and that is all.
    with contextlib.suppress(OSError):
        buffer = io.BytesIO()
        np.savez(buffer, ids=np.array(ids, dtype=np.str_), features=pooled)
        write_bytes(path, buffer.getvalue())
    return ids, pooled


def _read(path: Path) -> tuple[list[str], Array] | None:
    """What is in the cache; None where there is nothing, or it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            return kept["ids"].tolist(), kept["features"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
