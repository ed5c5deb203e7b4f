"""From ids to rows. A dictionary of a million ids takes longer to build than it is of use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from obygaze_features.store.format import decode_ids

__all__ = ["Lookup"]

MANY = 50_000
"""Ids from which on sorted fingerprints are faster than a dictionary and its building."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Lookup:
    """The rows of the ids in a table of `encode_ids`; ValueError where one is there twice."""

    def __init__(self, table: NDArray[np.uint8]) -> None:
        self.table = table
        self._sorted: NDArray[np.uint64] | None = None
        if len(table) >= MANY:
            prints = _fingerprints(table)
            self._order = np.argsort(prints)
            in_order = prints[self._order]
            # Two ids of one fingerprint, most likely the same: the dictionary tells.
            if (in_order[1:] != in_order[:-1]).all():
                self._sorted = in_order
        if self._sorted is None and len(self._rows) < len(table):
            raise ValueError("an id is there twice")

    def rows(self, ids: Sequence[str]) -> NDArray[np.intp]:
        """The row of each id; -1 where there is none."""
        if self._sorted is None or not len(ids):
            return np.array([self._rows.get(one, -1) for one in ids], np.intp)
        wanted = [one.encode("utf-8", "surrogatepass") for one in ids]
        width = self.table.shape[1]
        padded = b"".join(one[:width].ljust(width, b"\0") for one in wanted)
        queries = np.frombuffer(padded, np.uint8).reshape(len(ids), width)
        places = np.searchsorted(self._sorted, _fingerprints(queries))
        rows = self._order[np.minimum(places, len(self._order) - 1)]
        fits = (self.table[rows] == queries).all(axis=1)
        # What was padded or cut is no id of this table, and looks like one only by chance.
        fits &= [len(one) <= width and not one.endswith(b"\0") for one in wanted]
        return np.where(fits, rows, -1)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {one: row for row, one in enumerate(decode_ids(self.table))}


def _fingerprints(table: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """64 bits for each row, in which all of its bytes have a part."""
    words = np.zeros((len(table), -(-table.shape[1] // 8) * 8), np.uint8)
    words[:, : table.shape[1]] = table
    prints = np.zeros(len(table), np.uint64)
    for column in words.view(np.uint64).T:
        prints ^= column
        prints *= _MIX
        prints ^= prints >> np.uint64(29)
    return prints
