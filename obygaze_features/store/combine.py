"""Make new stores from existing rows: a subset, a merge, or a reopened store.

A plan says where each row of the new store comes from. The rows are written block by block by the
regular writer, so the files are the same as after an extraction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import disk_errors, new_folder
from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.items.films import find_films, titles_in
from obygaze_features.items.items import Item, Items
from obygaze_features.store import format as fmt
from obygaze_features.store.diff import read_probe
from obygaze_features.store.files import require_store_name
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.writer import (
    Outcome,
    append_to_log,
    commit_block,
    read_outcomes,
    require_same_recipe,
    write_empty_store,
)

NO_SOURCE = -1


@dataclass(frozen=True)
class Plan:
    """The source of each row of a new store."""

    items: Items
    stores: Sequence[Store]
    source: NDArray[np.intp]
    """The index in `stores` of each item's store; `NO_SOURCE` if no store has the item."""
    row: NDArray[np.intp]
    """The number of each item's row in its store."""


def subset(
    store: Store,
    output: Path | str,
    *,
    ids: Collection[str] | str | None = None,
    films: Collection[str] | str | None = None,
    overwrite: bool = False,
) -> Store:
    """Make an open store from some of a store's items, in that store's order.

    Parameters
    ----------
    store
        The store to take rows from.
    output
        The path of the new store, ``NAME.zarr``.
    ids, films
        The ids to include (each must exist), or films whose items are all included. With both,
        only items that match both are included.
    overwrite
        Replace an existing store at `output`.
    """
    if ids is None and films is None:
        raise UsageError("a subset needs ids or films; pass either or both")
    output = _check_output(output, [store])
    row_of = store.items.row_of
    films = films and find_films(films, titles_in(store.items))
    items = store.items.select(ids=ids, films=films)
    if not len(items):
        raise UsageError(f"no item of {store.where} is selected; choose other films or ids")
    rows = np.array([row_of[item_id] for item_id in items.ids], np.intp)
    plan = Plan(items, [store], np.zeros(len(rows), np.intp), rows)
    attributes = {**store.attributes, "items_digest": items.digest, "n": len(items)}
    return _make(output, plan, attributes, "subset", overwrite=overwrite)


def merge(
    stores: Sequence[Store | Path | str], output: Path | str, *, overwrite: bool = False
) -> Store:
    """Merge partial copies of one store, or stores of different films.

    If all stores have the same items, each row is taken from the first store in which it is done.
    If the stores have no ids in common, the new store has all their items, store by store.

    Parameters
    ----------
    stores
        Two or more stores, open or final, with the same backbone, preprocessing, precision and
        arrays.
    output
        The path of the new store, ``NAME.zarr``.
    overwrite
        Replace an existing store at `output`.
    """
    if isinstance(stores, str | Path | Store):
        raise UsageError(f"stores must be a list of two or more stores (got {stores!r:.200})")
    opened = [store if isinstance(store, Store) else open_store(store) for store in stores]
    if len(opened) < 2:
        raise UsageError(f"merging needs two or more stores (got {len(opened)})")
    output = _check_output(output, opened)
    first = dict(opened[0].attributes)
    for store in opened[1:]:
        # Only items and block size may differ.
        ours = {name: first[name] for name in ("items_digest", "block_rows")}
        message = f"{store.where} cannot be merged with {opened[0].where}"
        require_same_recipe(first, {**store.attributes, **ours}, message)

    for key in ("manifest", "licence", "citation", "software"):
        texts = dict.fromkeys(store.attributes[key] for store in opened)
        first[key] = "; ".join(filter(None, texts))
    if all(store.attributes["items_digest"] == first["items_digest"] for store in opened):
        plan = _plan_parts(opened)
    else:
        plan = _plan_films(opened)
        first |= {"items_digest": plan.items.digest, "n": len(plan.items)}
    return _make(output, plan, first, "merged", overwrite=overwrite)


def write_plan(
    folder: Path, plan: Plan, attributes: Mapping[str, Any], probe: Mapping[str, NDArray[Any]]
) -> None:
    """Write an open store into an empty folder. Rows without a source remain to be computed."""
    specs = plan.stores[0].specs
    write_empty_store(folder, {**attributes, "state": "open"}, specs, plan.items, probe)
    store = open_store(folder)
    for block in progress(range(store.blocks), "Writing", unit="block"):
        outcomes = _read_planned(plan, store.rows_of_block(block))
        if any(outcomes):
            commit_block(store, block, outcomes)


def _make(
    output: Path, plan: Plan, attributes: Mapping[str, Any], event: str, *, overwrite: bool
) -> Store:
    probe: dict[str, NDArray[Any]] = {}
    for store in plan.stores:
        probe = probe or read_probe(store)
    with (
        disk_errors(output, StoreError),
        new_folder(output, overwrite=overwrite, marker=fmt.CHECKSUMS, allow_missing=True) as folder,
    ):
        write_plan(folder, plan, attributes, probe)
        append_to_log(folder, event, sources=[store.where for store in plan.stores])
    return open_store(output)


def _read_planned(plan: Plan, rows: range) -> list[Outcome]:
    """Read the outcomes of some of the new store's rows from their source stores."""
    outcomes: list[Outcome] = [None] * len(rows)
    source = plan.source[rows.start : rows.stop]
    for number in np.unique(source[source != NO_SOURCE]).tolist():
        store = plan.stores[number]
        at = np.flatnonzero(source == number)
        old_rows = plan.row[rows.start + at]
        stated = store.rows_table["source"]
        sources = [stated[row] or None for row in old_rows.tolist()]
        old = read_outcomes(store, old_rows, store.status[old_rows], sources, store.failures)
        for index, outcome in zip(at.tolist(), old, strict=True):
            outcomes[index] = outcome
    return outcomes


def _plan_parts(stores: Sequence[Store]) -> Plan:
    """Plan to take each row from the first store where it is done, or else where it failed.

    Raises `StoreError` if two stores have different values for a row.
    """
    n = len(stores[0])
    source = np.full(n, NO_SOURCE, np.intp)
    for number, store in enumerate(stores):
        source[(source == NO_SOURCE) & (store.status == Status.DONE)] = number
    for number, store in enumerate(stores):
        source[(source == NO_SOURCE) & (store.status > Status.DONE)] = number
    for number, store in enumerate(stores):
        duplicates = np.flatnonzero((store.status == Status.DONE) & (source != number))
        _refuse_unequal(stores, store, duplicates, source)
    return Plan(stores[0].items, stores, source, np.arange(n))


def _refuse_unequal(
    stores: Sequence[Store], part: Store, rows: NDArray[np.intp], source: NDArray[np.intp]
) -> None:
    """Raise `StoreError` if a row that is done in two stores has different values in them."""
    for row in progress(rows.tolist(), "Comparing", unit="row"):
        first = stores[source[row]]
        item_id = part.ids[row]
        there = first[item_id]
        here = part[item_id]
        for name in part.arrays:
            if not np.array_equal(there[name], here[name], equal_nan=True):  # padding
                raise StoreError(
                    f"the {name} row of {item_id} differs between {first.where} and "
                    f"{part.where}. Compare the stores with: "
                    f"obygaze stores diff {first.where} {part.where}"
                )


def _plan_films(stores: Sequence[Store]) -> Plan:
    """Plan to take all items of all stores, one store after another."""
    store_of: dict[str, Store] = {}
    for store in stores:
        common = [item_id for item_id in store.ids if item_id in store_of]
        if common:
            first = store_of[common[0]]
            raise StoreError(
                f"{store.where} cannot be merged with {first.where}: their items differ, "
                f"but they share ids ({len(common)}, such as {common[0]}). Make a subset of one "
                "store without these ids: obygaze stores subset"
            )
        store_of |= dict.fromkeys(store.ids, store)
    tables = [store.items for store in stores]
    rows = [np.arange(len(store)) for store in stores]
    source = np.repeat(np.arange(len(stores)), [len(store) for store in stores])
    return Plan(_join_items(tables), stores, source, np.concatenate(rows))


def _join_items(tables: Sequence[Items]) -> Items:
    """Return the items of several tables, one table after another."""
    items: list[Item] = []
    extra: dict[str, list[str]] = {}
    for table in tables:
        for name in {**extra, **table.extra}:
            column = extra.setdefault(name, [""] * len(items))
            column += table.extra.get(name, [""] * len(table))
        items += list(table)
    return Items.of(items, extra)


def _check_output(output: Path | str, stores: Sequence[Store]) -> Path:
    output = require_store_name(Path(output))
    for store in stores:
        store.location.refuse_as_output(output)
    return output
