"""Compare two stores: their attributes, their probes, and the rows of the ids they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.store import format as fmt
from obygaze_features.store.metadata import StoredArray
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.rows import Shard
from obygaze_features.store.writer import SAME_STORE, differences

BATCH_ROWS = 64
_NAMES = (*SAME_STORE, "name", "manifest", "n", "licence", "citation", "software")
"""The attributes to compare."""


@dataclass(frozen=True)
class Agreement:
    """The agreement of two stores on the rows of one array.

    Parameters
    ----------
    n
        The number of rows that are done in both stores.
    equal
        The number of rows whose values are all equal in both stores.
    mean, least
        The mean and the lowest cosine between the two stores' rows; None if there are no common
        rows.
    """

    n: int
    equal: int
    mean: float | None
    least: float | None


@dataclass(frozen=True)
class Difference:
    """The differences between two stores.

    Parameters
    ----------
    attributes
        The left and the right value of each attribute that differs, by name; a dot joins the name
        of an attribute and a key in it.
    probe
        The cosine between the stores' probes for each array, if both stores have a probe.
    probes_equal
        True if all values of the probes are equal, or if neither store has one.
    rows
        The agreement on common rows, by array.
    only_left, only_right
        The number of ids that are done only in the left store, or only in the right store.
    """

    attributes: Mapping[str, tuple[Any, Any]]
    probe: Mapping[str, float]
    probes_equal: bool
    rows: Mapping[str, Agreement]
    only_left: int
    only_right: int

    @property
    def identical(self) -> bool:
        """True if all attributes, probes and rows are equal."""
        return (
            not self.attributes
            and self.probes_equal
            and not self.only_left
            and not self.only_right
            and all(agreement.equal == agreement.n for agreement in self.rows.values())
        )


def diff(left: Store, right: Store | Path | str) -> Difference:
    """Compare attributes, probes and common rows of two stores, which may have any items.

    Arrays that only one store has, or whose shapes differ, are listed in `Difference.attributes`,
    and their rows are not compared.
    """
    if not isinstance(right, Store):
        right = open_store(right)

    shapes = {spec.name: spec.shape for spec in right.specs}
    names = [spec.name for spec in left.specs if shapes.get(spec.name) == spec.shape]

    ours = read_probe(left)
    theirs = read_probe(right)
    probe = {}
    probes_equal = ours.keys() == theirs.keys()
    for name in names:
        if name in ours and name in theirs:
            equal, cosines = _compare(ours[name][None], theirs[name][None])
            probes_equal = probes_equal and bool(equal[0])
            probe[name] = float(cosines[0])

    left_ids = left.done_ids()
    in_right = set(right.done_ids())
    common = [item_id for item_id in left_ids if item_id in in_right]
    return Difference(
        attributes=differences(left.attributes, right.attributes, _NAMES),
        probe=probe,
        probes_equal=probes_equal,
        rows={name: _compare_rows(left, right, common, name) for name in names},
        only_left=len(left_ids) - len(common),
        only_right=len(in_right) - len(common),
    )


def read_probe(store: Store) -> dict[str, NDArray[Any]]:
    """Return the features of a store's probe by array; empty if the store has no probe."""
    probe = {}
    for spec in store.specs:
        name = f"{fmt.PROBE}/{fmt.shard_name(spec, 0)}"
        array = StoredArray(spec, fmt.shard_layout(spec, 1))
        try:
            shard = Shard(store.location, name, array)
            probe[spec.name] = shard.read(np.zeros(1, np.intp))[0]
        except FileNotFoundError:
            continue
    return probe


def _compare_rows(left: Store, right: Store, ids: Sequence[str], name: str) -> Agreement:
    if not ids:
        return Agreement(0, 0, None, None)
    count = 0
    total = 0.0
    least = np.inf
    for start in progress(range(0, len(ids), BATCH_ROWS), f"Comparing {name}", unit="part"):
        batch = ids[start : start + BATCH_ROWS]
        equal, cosines = _compare(left.read(name, batch), right.read(name, batch))
        count += int(equal.sum())
        total += float(cosines.sum())
        least = min(least, float(cosines.min()))
    return Agreement(len(ids), count, total / len(ids), least)


def _compare(
    left: NDArray[Any], right: NDArray[Any]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which pairs of rows are equal, and the cosine of each pair.

    Padding counts as zeros. A pair of zeros has the cosine 1, and a zero and another row 0.

    Examples
    --------
    >>> _compare(np.array([[0, 0], [0, 0], [3, 4]]), np.array([[0, 0], [1, 1], [6, 8]]))
    (array([ True, False, False]), array([1., 0., 1.]))
    """
    rows = []
    for side in (left, right):
        rows.append(np.nan_to_num(np.array(side, np.float64), copy=False).reshape(len(side), -1))
    a, b = rows
    equal = (a == b).all(axis=1)
    product = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    dots = np.einsum("ij,ij->i", a, b)
    cosines = np.divide(dots, product, out=equal.astype(np.float64), where=product > 0)
    cosines[equal] = 1.0
    return equal, np.clip(cosines, -1.0, 1.0)
