"""Joining by id: labels with features, one lab's rows with another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Match", "match_ids"]


@dataclass(frozen=True, eq=False)
class Match:
    """The rows that pair up, in the left side's order, and what is missing on either side."""

    left: np.ndarray
    right: np.ndarray
    missing_left: list[str]
    missing_right: list[str]


def match_ids(left: Sequence[str], right: Sequence[str]) -> Match:
    """Pair rows of equal ids.

    Examples
    --------
    >>> match = match_ids(["a", "b", "c"], ["c", "a", "x"])
    >>> match.left.tolist(), match.right.tolist()
    ([0, 2], [1, 0])
    >>> match.missing_left, match.missing_right
    (['b'], ['x'])
    """
    row_of = {identifier: row for row, identifier in enumerate(right)}
    rows = [row for row, identifier in enumerate(left) if identifier in row_of]
    known = set(left)
    return Match(
        left=np.array(rows, dtype=np.intp),
        right=np.array([row_of[left[row]] for row in rows], dtype=np.intp),
        missing_left=[identifier for identifier in left if identifier not in row_of],
        missing_right=[identifier for identifier in right if identifier not in known],
    )
