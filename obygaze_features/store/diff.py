"""Compare two stores: their attributes, their probes, and the rows of the ids they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import join_some
from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.rows import Shard
from obygaze_features.store.shards import ShardLayout
from obygaze_features.store.store import Store, StoreLike, open_store

SAME_RECIPE = ("backbone", "preprocessing", "precision", "arrays")
"""The attributes that must be equal for rows to belong together."""
SAME_STORE = (*SAME_RECIPE, "block_rows")
"""The attributes that must be equal for runs to fill the same store, besides the items."""
BATCH_ROWS = 64
_NAMES = ("items_digest", *SAME_STORE, "name", "manifest", "n", "licence", "citation", "software")
"""The attributes to compare."""


def diff(left: StoreLike, right: StoreLike) -> dict[str, Any]:
    """Compare the attributes, the probes and the common rows of two stores, or of their addresses.

    Returns
    -------
    dict
        ``identical``: whether the compared attributes, the probes and the done rows are equal.

        ``attributes``: each attribute that differs, with its ``left`` and ``right`` values; a dot
        joins the name of an attribute and a key in it. Arrays that only one store has, or whose
        shapes differ, are listed here, and their rows are not compared.

        ``probe``: the cosine between the probes, by array. ``probes_equal`` is True if all their
        values are equal, or if neither store has a probe.

        ``rows``, by array: the number ``n`` of rows that are done in both stores, how many of them
        are ``equal``, and the ``mean`` and ``least`` cosine (None if there are no common rows).
    """
    left = open_store(left)
    right = open_store(right)
    attributes = []
    for name, (value, other) in differences(left.attributes, right.attributes, _NAMES).items():
        attributes.append({"attribute": name, "left": value, "right": other})

    shapes = {spec.name: spec.shape for spec in right.specs}
    names = [spec.name for spec in left.specs if shapes.get(spec.name) == spec.shape]
    ours = read_probe(left)
    theirs = read_probe(right)
    probe = {}
    probes_equal = ours.keys() == theirs.keys()
    for name in names:
        if name in ours and name in theirs:
            equal, cosines = _compare(ours[name][None], theirs[name][None])
            probes_equal &= bool(equal[0])
            probe[name] = float(cosines[0])

    left_ids = left.done_ids()
    common = right.done_ids(left_ids)
    is_equal = probes_equal and not attributes and set(left_ids) == set(right.done_ids())
    rows = {}
    for name in names:
        rows[name] = _compare_rows(left, right, common, name)
        is_equal &= rows[name]["equal"] == len(common)
    return {
        "identical": is_equal,
        "attributes": attributes,
        "probe": probe,
        "probes_equal": probes_equal,
        "rows": rows,
    }


def require_same(
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    message: str,
    names: Sequence[str] = SAME_RECIPE,
) -> None:
    """Raise `StoreError`, which says what differs, if any of the named attributes differ."""
    texts = []
    for name, (ours, wanted) in differences(left, right, names).items():
        texts.append(f"{name} ({ours!s:.200}, not {wanted!s:.200})")
    if texts:
        raise StoreError(f"{message}: it differs in {join_some(texts, 3)}")


def differences(
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    names: Iterable[str] = SAME_RECIPE,
) -> dict[str, tuple[Any, Any]]:
    """Return the left and the right value of each named attribute that differs.

    A dot joins the name of an attribute and a key in it. Backbones with equal weights and settings
    are the same, whatever their names.

    Examples
    --------
    >>> differences({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2}}, ["a", "b"])
    {'b.d': (3, None)}
    """
    found = {}
    for name in names:
        there = left.get(name)
        here = right.get(name)
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            keys: Iterable[str] = {**there, **here}
            if name == "backbone":
                keys = ("weights_sha256", "config")
            for key, pair in differences(there, here, keys).items():
                found[f"{name}.{key}"] = pair
        elif there != here:
            found[name] = (there, here)
    return found


def read_probe(store: Store) -> dict[str, Array]:
    """Return the features of a store's probe by array; empty if the store has no probe."""
    probe = {}
    for spec in store.specs:
        name = f"{fmt.PROBE}/{fmt.shard_name(spec, 0)}"
        try:
            shard = Shard(store.location, name, ShardLayout(spec, 1))
            [data] = store.location.read_ranges([shard.part(0)])
        except FileNotFoundError:
            continue
        content = shard.decode(0, np.frombuffer(data, np.uint8))
        probe[spec.name] = content.view(spec.dtype).reshape(spec.shape)
    return probe


def _compare_rows(left: Store, right: Store, ids: Sequence[str], name: str) -> dict[str, Any]:
    count = 0
    total = 0.0
    least = 1.0
    for start in progress(range(0, len(ids), BATCH_ROWS), f"Comparing {name}", unit="part"):
        batch = ids[start : start + BATCH_ROWS]
        equal, cosines = _compare(left.read(name, batch), right.read(name, batch))
        count += int(equal.sum())
        total += float(cosines.sum())
        least = min(least, float(cosines.min()))
    if not ids:
        return {"n": 0, "equal": 0, "mean": None, "least": None}
    return {"n": len(ids), "equal": count, "mean": total / len(ids), "least": least}


def _compare(
    left: Array,
    right: Array,
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which pairs of rows are equal, and the cosine of each pair.

    NaN counts as zero. Two zero rows have the cosine 1; a zero row and another row have 0.

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
