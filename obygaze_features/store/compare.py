"""Comparing two stores: what they were made with, their probes, and the rows of common ids."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.arrays import StoredArray
from obygaze_features.store.format import Status
from obygaze_features.store.metadata import remedy
from obygaze_features.store.reader import Store
from obygaze_features.store.row_reader import open_shard
from obygaze_features.store.shards import DamagedChunk

__all__ = ["Agreement", "Difference", "diff", "read_probe"]

BATCH = 64
WORST = 5
HOW_MADE = (
    "name",
    "manifest",
    "items_digest",
    "n",
    "block_rows",
    "backbone",
    "preprocessing",
    "precision",
    "arrays",
    "licence",
    "citation",
    "software",
)
"""Attributes that are compared; whether a store is open or final is no difference."""


@dataclass(frozen=True)
class Agreement:
    """How far the common rows of one array agree.

    Parameters
    ----------
    n
        Rows that are done in both stores.
    equal
        How many of them are equal to the last bit.
    mean, least
        Of their cosines; None where there is no common row.
    worst
        (id, cosine) of the rows that agree least, of those that are not equal.
    """

    n: int
    equal: int
    mean: float | None
    least: float | None
    worst: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Difference:
    """What two stores do not have in common, and how far they agree in what they have.

    Parameters
    ----------
    attributes
        Name -> the values on either side, where they differ.
    probe
        Array -> cosine of the probes that both have.
    probes_equal
        Whether the probes are equal to the last bit, or both stores have none.
    rows
        Array -> how far its common rows agree.
    only_left, only_right
        Ids that are done on one side only, though they may be items of both.
    """

    attributes: Mapping[str, tuple[Any, Any]]
    probe: Mapping[str, float]
    probes_equal: bool
    rows: Mapping[str, Agreement]
    only_left: tuple[str, ...]
    only_right: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether every attribute, probe and row is the same."""
        return (
            not self.attributes
            and self.probes_equal
            and not self.only_left
            and not self.only_right
            and all(one.equal == one.n for one in self.rows.values())
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"identical": self.identical, **asdict(self)}


def diff(left: Store, right: Store) -> Difference:
    """Compare two stores, whatever their items and their order.

    Parameters
    ----------
    left, right
        From `open_store`. Arrays that only one has, or that differ in shape, are not compared row
        by row; `Difference.attributes` shows them.
    """
    here, there = _done(left), _done(right)
    known = set(there)
    common = [one for one in here if one in known]
    shapes = {one.name: one.shape for one in right.specs}
    names = [one.name for one in left.specs if shapes.get(one.name) == one.shape]
    probes = read_probe(left), read_probe(right)
    known_here = set(here)
    return Difference(
        attributes=_attributes_apart(left.attributes, right.attributes),
        probe={
            name: float(_cosines(probes[0][name][None], probes[1][name][None])[0])
            for name in names
            if name in probes[0] and name in probes[1]
        },
        probes_equal=probes[0].keys() == probes[1].keys()
        and all(np.array_equal(row, probes[1][name]) for name, row in probes[0].items()),
        rows={name: _agreement(left, right, common, name) for name in names},
        only_left=tuple(one for one in here if one not in known),
        only_right=tuple(one for one in there if one not in known_here),
    )


def _attributes_apart(
    left: Mapping[str, Any], right: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Attribute -> its two values, where they differ."""
    apart = {
        name: (left.get(name), right.get(name))
        for name in HOW_MADE
        if left.get(name) != right.get(name)
    }
    if "backbone" in apart:
        # Equal weights are the same backbone, under whatever names the two were made.
        bare = [
            {key: value for key, value in backbone.items() if key not in ("name", "family")}
            for backbone in (left["backbone"], right["backbone"])
        ]
        if bare[0] == bare[1]:
            del apart["backbone"]
    return apart


def read_probe(store: Store) -> dict[str, NDArray[Any]]:
    """The features of the fixed synthetic clip, by array; empty if the store has none."""
    found = {}
    for one in store.specs:
        name = f"{spec.PROBE}/{spec.shard_name(one, 0)}"
        stored = StoredArray(one, spec.shard_layout(one, 1), "plain")
        try:
            found[one.name] = open_shard(store.location, name, stored, 0).read(
                np.zeros(1, np.intp)
            )[0]
        except FileNotFoundError:
            continue
        except DamagedChunk as problem:
            raise StoreError(f"{problem}; {remedy(store.location)}") from None
    return found


def _done(store: Store) -> list[str]:
    return [store.ids[row] for row in np.flatnonzero(store.status == Status.DONE)]


def _agreement(left: Store, right: Store, ids: list[str], name: str) -> Agreement:
    equal, total, least = 0, 0.0, np.inf
    worst: list[tuple[float, str]] = []
    for start in progress(range(0, len(ids), BATCH), f"Comparing {name}", unit="batch"):
        batch = ids[start : start + BATCH]
        a, b = left.read(batch, name)[1], right.read(batch, name)[1]
        if left.stored[name].spec.padded and right.stored[name].spec.padded:
            # Where both have padding there is nothing to compare; where one has, they differ.
            both = np.isnan(a) & np.isnan(b)
            a, b = (np.nan_to_num(np.where(both, 0, rows)) for rows in (a, b))
        same = (a == b).reshape(len(batch), -1).all(1)
        cosines = _cosines(a, b)
        equal += int(same.sum())
        total += float(cosines.sum())
        least = min(least, float(cosines.min()))
        unlike = [
            (float(cosine), one)
            for cosine, one, is_same in zip(cosines, batch, same, strict=True)
            if not is_same
        ]
        worst = heapq.nsmallest(WORST, worst + unlike)
    return Agreement(
        n=len(ids),
        equal=equal,
        mean=total / len(ids) if ids else None,
        least=least if ids else None,
        worst=tuple((one, cosine) for cosine, one in worst),
    )


def _cosines(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Cosine of each row with its counterpart; of a row of zeros 1 with another, else 0."""
    x, y = (np.asarray(rows, np.float64).reshape(len(rows), -1) for rows in (a, b))
    product = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    dots = np.einsum("ij,ij->i", x, y)
    equal = (x == y).all(1)
    values: NDArray[np.float64] = np.divide(dots, product, out=np.zeros(len(x)), where=product > 0)
    values[equal] = 1.0
    return np.clip(values, -1.0, 1.0)
