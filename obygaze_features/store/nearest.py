"""Exact nearest-neighbour search by cosine in the rows of one or more stores.

Rows are read in parts, so a store need not fit into memory. Dot products are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.arrays import Array
from obygaze_features.common.progress import progress
from obygaze_features.errors import UsageError, translate
from obygaze_features.store.format import Status, frame_count, token_times
from obygaze_features.store.rows import Rows
from obygaze_features.store.store import Store

PART_BYTES = 64 * 2**20
"""The bytes of rows (as float32) that are compared at a time."""


@dataclass(frozen=True)
class Match:
    """An item that matches a query.

    Parameters
    ----------
    id, film, store
        The item's id and film, and the path or URL of its store.
    cosine
        The cosine between the item's vector and the query; 1 means the same direction.
    frame, time
        In a search by frame, the index of the nearest sampled frame, and its time in seconds in the
        media file. If a vector covers several frames, the index of the vector and the mean time of
        its frames.
    """

    id: str
    film: str
    store: str
    cosine: float
    frame: int | None = None
    time: float | None = None


def find_nearest(
    stores: Sequence[Store],
    query: Array,
    *,
    array: str,
    films: Collection[str] | None,
    exclude: str,
    top: int,
) -> list[Match]:
    """Return the rows with the highest cosine, best first; ties keep the order of stores and rows.

    Parameters
    ----------
    stores
        The stores to search. Rows that are not done, and vectors that are zero or not finite,
        never match.
    query
        A vector of the same length as the array's vectors.
    array
        An array with one vector per row or per frame. With frames, a row is ranked by its nearest
        frame.
    films
        The ids of the films to search (default: all).
    exclude
        The id of an item to leave out.
    top
        The maximum number of matches.
    """
    found = []
    for store in stores:
        direction = _direction(query, store, array)
        selected = store.status == Status.DONE
        if films is not None:
            selected &= np.isin(np.array(store.items.films), list(films))
        if exclude in store:
            selected[store.find_rows([exclude])] = False
        rows = np.flatnonzero(selected)

        cosines, frames = _score(store, array, rows, direction)
        for best in np.argsort(-cosines, kind="stable")[:top].tolist():
            if cosines[best] > -np.inf:
                found.append((store, int(rows[best]), float(cosines[best]), int(frames[best])))
    found.sort(key=lambda match: -match[2])
    return [_match(array, *match) for match in found[:top]]


def has_frames(store: Store, array: str) -> bool:
    """Return True if an array has vectors of frames, and False if it has one vector per row.

    Raises `UsageError` if it has neither.
    """
    spec = store.stored(array).spec
    if len(spec.shape) == 1 and not spec.numbers_frames:
        return False
    if len(spec.shape) == 2:
        frames = frame_count(store.specs)
        count = spec.shape[0]
        # In `frames`, a vector may cover several frames; in other arrays, it may cover a patch.
        if count == frames or (frames and spec.counts_frames and frames % count == 0):
            return True
    raise UsageError(f"{store.where}: {array} has no vector per item or frame; use another array")


def _direction(query: Array, store: Store, array: str) -> NDArray[np.float32]:
    """Scale a query to unit length; raise `UsageError` if it is misshapen or has no direction."""
    width = store.stored(array).spec.shape[-1]
    with translate(UsageError, "the query", "is not a vector ({})"):
        vector = np.asarray(query, np.float64)
    if vector.shape != (width,):
        raise UsageError(
            store.where,
            f": {array} has vectors of length {width} (got shape {vector.shape}); pass a query of "
            "that length",
        )
    length = np.linalg.norm(vector)
    if not (0 < length < math.inf):
        raise UsageError(
            "the query has no direction: its values are all zero (perhaps nothing is heard or "
            "seen in it), or not all finite. Use another query"
        )
    return (vector / length).astype(np.float32)


def _score(
    store: Store,
    array: str,
    rows: Rows,
    direction: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return each row's cosine (-inf if undefined) and its nearest frame (-1 if none)."""
    by_frame = has_frames(store, array)
    cosines = np.empty(len(rows), np.float32)
    frames = np.full(len(rows), -1)
    step = max(1, PART_BYTES // (4 * math.prod(store.stored(array).spec.shape)))
    for start in progress(range(0, len(rows), step), f"Searching {array}", unit="part"):
        part = slice(start, start + step)
        cosine = _cosines(store.read_rows(array, rows[part]), direction)
        if by_frame:
            frames[part] = cosine.argmax(1)
            cosine = cosine.max(1)
        cosines[part] = cosine
        store.forget()
    return cosines, frames


def _cosines(vectors: Array, direction: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each vector's cosine with a unit vector; -inf if a vector is zero or not finite."""
    vectors = vectors.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        # BLAS is not used, because it can give equal rows different cosines.
        cosines: NDArray[np.float32] = np.einsum("...i,i->...", vectors, direction)
        cosines /= np.sqrt(np.einsum("...i,...i->...", vectors, vectors))
    cosines[~np.isfinite(cosines)] = -np.inf
    return cosines


def _match(array: str, store: Store, row: int, cosine: float, frame: int) -> Match:
    cosine = min(1.0, max(-1.0, cosine))  # rounding can make it slightly larger than 1
    match = Match(store.ids[row], store.items.films[row], store.where, cosine)
    if frame < 0:
        return match
    time = None
    if "frame_time" in store.arrays:
        times = store.read_rows("frame_time", np.array([row]))
        count = store.stored(array).spec.shape[0]
        time = float(token_times(times, count)[0, frame])
    return replace(match, frame=frame, time=time)
