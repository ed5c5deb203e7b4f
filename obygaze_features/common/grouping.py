"""Group values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def group_by(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Group values by key, keeping their order.

    Examples
    --------
    >>> group_by(["clip", "film", "fit"], len)
    {4: ['clip', 'film'], 3: ['fit']}
    """
    groups: dict[K, list[V]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups
