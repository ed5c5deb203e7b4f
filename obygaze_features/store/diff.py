"""Compare two stores: their attributes, their probes, and the rows of the ids they share."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.metadata import StoredArray, remedy
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.rows import open_shard
from obygaze_features.store.shards import DamagedChunk

BATCH_ROWS = 64
MAX_WORST_SHOWN = 5
COMPARED = (
    "name", "manifest", "items_digest", "n", "block_rows", "backbone", "preprocessing",
    "precision", "arrays", "licence", "citation", "software",
)  # fmt: skip
"""The attributes to compare. The store's state is left out."""


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
    worst
        The (id, cosine) pairs of the unequal rows with the lowest cosines.
    """

    n: int
    equal: int
    mean: float | None
    least: float | None
    worst: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Difference:
    """The differences between two stores.

    Parameters
    ----------
    attributes
        The left and the right value of each attribute that differs, by name.
    probe
        The cosine between the stores' probes for each array, if both stores have a probe.
    probes_equal
        True if all values of the probes are equal, or if neither store has one.
    rows
        The agreement on common rows, by array.
    only_left, only_right
        The ids that are done only in the left store, or only in the right store.
    """

    attributes: Mapping[str, tuple[Any, Any]]
    probe: Mapping[str, float]
    probes_equal: bool
    rows: Mapping[str, Agreement]
    only_left: tuple[str, ...]
    only_right: tuple[str, ...]

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
    """Compare two stores; see `Store.diff`."""
    right = right if isinstance(right, Store) else open_store(right)
    left_ids, right_ids = left.done_ids(), right.done_ids()
    in_left, in_right = set(left_ids), set(right_ids)
    common = [item_id for item_id in left_ids if item_id in in_right]
    shapes = {spec.name: spec.shape for spec in right.specs}
    names = [spec.name for spec in left.specs if shapes.get(spec.name) == spec.shape]
    # Padding (NaN) counts as equal to padding.
    probes = [{n: np.nan_to_num(row) for n, row in read_probe(s).items()} for s in (left, right)]
    return Difference(
        attributes=_attribute_differences(left.attributes, right.attributes),
        probe={
            name: float(_cosines(probes[0][name][None], probes[1][name][None])[0])
            for name in names
            if name in probes[0] and name in probes[1]
        },
        probes_equal=probes[0].keys() == probes[1].keys()
        and all(np.array_equal(row, probes[1][name]) for name, row in probes[0].items()),
        rows={name: _compare_rows(left, right, common, name) for name in names},
        only_left=tuple(item_id for item_id in left_ids if item_id not in in_right),
        only_right=tuple(item_id for item_id in right_ids if item_id not in in_left),
    )


_STATED = ("name", "family", "device", *fmt.CREDITS)
"""Keys of the attribute `backbone` that may differ between stores of the same backbone."""


def _attribute_differences(
    left: Mapping[str, Any], right: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return the left and right value of each attribute that differs."""
    differences = {
        name: (left.get(name), right.get(name))
        for name in COMPARED
        if left.get(name) != right.get(name)
    }
    # Backbones with equal weights are the same, whatever their names.
    unnamed = [store["backbone"] | dict.fromkeys(_STATED, "") for store in (left, right)]
    if unnamed[0] == unnamed[1]:
        differences.pop("backbone", None)
    return differences


def read_probe(store: Store) -> dict[str, NDArray[Any]]:
    """Return the features of a store's probe by array; empty if the store has no probe."""
    probe = {}
    for spec in store.specs:
        name = f"{fmt.PROBE}/{fmt.shard_name(spec, 0)}"
        array = StoredArray(spec, fmt.shard_layout(spec, 1))
        try:
            shard = open_shard(store.location, name, array)
            probe[spec.name] = shard.read(np.zeros(1, np.intp))[0]
        except FileNotFoundError:
            continue
        except DamagedChunk as problem:
            raise StoreError(f"{problem}; {remedy(store.location)}") from None
    return probe


def _compare_rows(left: Store, right: Store, ids: Sequence[str], name: str) -> Agreement:
    equal, total, least = 0, 0.0, np.inf
    worst: list[tuple[float, str]] = []
    for start in progress(range(0, len(ids), BATCH_ROWS), f"Comparing {name}", unit="part"):
        batch = ids[start : start + BATCH_ROWS]
        a, b = left.read(name, batch), right.read(name, batch)
        if left.stored(name).spec.padded and right.stored(name).spec.padded:
            # Padding is equal if both rows have it, and a difference if only one has it.
            both_padded = np.isnan(a) & np.isnan(b)
            a, b = (np.nan_to_num(np.where(both_padded, 0, rows)) for rows in (a, b))
        is_equal = (a == b).reshape(len(batch), -1).all(1)
        cosines = _cosines(a, b)
        equal += int(is_equal.sum())
        total += float(cosines.sum())
        least = min(least, float(cosines.min()))
        unequal = [
            (float(cosines[index]), batch[index]) for index in np.flatnonzero(~is_equal).tolist()
        ]
        worst = heapq.nsmallest(MAX_WORST_SHOWN, worst + unequal)
    return Agreement(
        n=len(ids),
        equal=equal,
        mean=total / len(ids) if ids else None,
        least=least if ids else None,
        worst=tuple((item_id, cosine) for cosine, item_id in worst),
    )


def _cosines(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows: 1 if both rows are zero, 0 if only one is.

    Examples
    --------
    >>> _cosines(np.array([[0, 0], [0, 0], [3, 4]]), np.array([[0, 0], [1, 1], [6, 8]])).tolist()
    [1.0, 0.0, 1.0]
    """
    x, y = (np.asarray(rows, np.float64).reshape(len(rows), -1) for rows in (a, b))
    product = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    dots = np.einsum("ij,ij->i", x, y)
    cosines: NDArray[np.float64] = np.divide(dots, product, out=np.zeros(len(x)), where=product > 0)
    cosines[(x == y).all(1)] = 1.0
    return np.clip(cosines, -1.0, 1.0)
