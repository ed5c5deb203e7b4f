"""Make new stores from existing rows: a subset, a merge, or a reopened store.

A plan says where each row of the new store comes from. The rows are written block by block by the
regular writer, so the store has the same layout as after an extraction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError, UsageError, errors_as
from obygaze_features.items.films import select_rows
from obygaze_features.items.items import Item, Items
from obygaze_features.store.diff import BATCH_ROWS, read_probe, require_same
from obygaze_features.store.files import require_store_name
from obygaze_features.store.format import Status
from obygaze_features.store.rows import Rows, group_places
from obygaze_features.store.store import Store, StoreLike, open_store
from obygaze_features.store.writer import (
    Outcome,
    Values,
    append_to_log,
    commit_block,
    new_store,
    read_outcomes,
)

NO_SOURCE = -1


@dataclass(frozen=True)
class Plan:
    """The source of each row of a new store."""

    items: Items
    stores: Sequence[Store]
    source: Rows
    """The index in `stores` of each item's store; `NO_SOURCE` for rows to compute again."""
    row: Rows
    """The number of each item's row in its store."""


def subset(
    store: StoreLike,
    output: Path | str,
    *,
    ids: Iterable[str] | None = None,
    films: Iterable[str] | None = None,
    overwrite: bool = False,
) -> Store:
    """Make an open store from some of a store's items, in that store's order.

    Parameters
    ----------
    store
        The store to take rows from, or its address.
    output
        The path of the new store, ``NAME.zarr``.
    ids, films
        The ids, or the films (by id, title or pattern), to include (default: all). Each must exist.
        With both, only items that match both are included.
    overwrite
        Replace an existing store at `output`.
    """
    output = require_store_name(Path(output))
    store = open_store(store)
    rows = select_rows(store.items, ids=ids, films=films)
    if not len(rows):
        raise UsageError(f"no item of {store.where} is selected; choose other films or ids")
    plan = Plan(store.items.take(rows), [store], np.zeros_like(rows), rows)
    return write_plan(output, plan, store.attributes, "subset", overwrite=overwrite)


def merge(stores: Sequence[StoreLike], output: Path | str, *, overwrite: bool = False) -> Store:
    """Merge partial copies of one store, or stores without common ids.

    If all stores have the same items, each row is taken from the first store in which it is done.
    If the stores have no ids in common, the new store has all their items, store by store. A single
    store is copied.

    Parameters
    ----------
    stores
        Stores, open or final, or their addresses. The backbone, preprocessing, precision and arrays
        must be the same.
    output
        The path of the new store, ``NAME.zarr``.
    overwrite
        Replace an existing store at `output`.
    """
    output = require_store_name(Path(output))
    if not stores:
        raise UsageError("no stores to merge; pass at least one")
    opened = [open_store(store) for store in stores]
    first = opened[0]
    for store in opened[1:]:
        require_same(
            store.attributes,
            first.attributes,
            f"{store.where} cannot be merged with {first.where}",
        )

    attributes = dict(first.attributes)
    for key in ("manifest", "licence", "citation", "software"):
        texts = dict.fromkeys(store.attributes[key] for store in opened)
        attributes[key] = "; ".join(filter(None, texts))
    if len({store.attributes["items_digest"] for store in opened}) == 1:
        plan = _plan_parts(opened)
    else:
        plan = _plan_films(opened)
    return write_plan(output, plan, attributes, "merged", overwrite=overwrite)


def write_plan(
    output: Path,
    plan: Plan,
    attributes: Mapping[str, Any],
    event: str,
    *,
    probe: Values | None = None,
    overwrite: bool,
) -> Store:
    """Write a planned store. Rows without a source remain to be computed.

    Parameters
    ----------
    output, plan
        The store to write, and its rows.
    attributes
        The attributes of the new store, except its items and state.
    event
        The event that is appended to the log.
    probe
        The probe (default: that of the first store that has one).
    overwrite
        Replace an existing store at `output`.
    """
    if probe is None:
        probe = next(filter(None, map(read_probe, plan.stores)), {})
    attributes = {
        **attributes,
        "state": "open",
        "items_digest": plan.items.digest,
        "n": len(plan.items),
    }
    with new_store(output, attributes, plan.items, probe, overwrite=overwrite) as store:
        append_to_log(store.path, event, sources=[store.where for store in plan.stores])
        for block in progress(range(store.blocks), "Writing", unit="block"):
            outcomes = _read_planned(plan, store.rows_of_block(block))
            if any(outcomes):
                commit_block(store, block, outcomes, sync=False)
    return open_store(output)


def _read_planned(plan: Plan, rows: range) -> list[Outcome]:
    """Read the outcomes of some of the new store's rows from their source stores."""
    outcomes: list[Outcome] = [None] * len(rows)
    for number, at in group_places(plan.source[rows.start : rows.stop]):
        if number == NO_SOURCE:
            continue
        read = read_outcomes(plan.stores[number], plan.row[rows.start + at])
        for index, outcome in zip(at.tolist(), read, strict=True):
            outcomes[index] = outcome
    return outcomes


def _plan_parts(stores: Sequence[Store]) -> Plan:
    """Plan to take each row from the first store where it is done, or else where it failed.

    Raises `StoreError` if two stores have different values for a row.
    """
    status = np.array([store.status for store in stores])
    is_done = status == Status.DONE
    is_known = status != Status.TODO
    rank = is_done.astype(int) + is_known  # 2: done, 1: failed, 0: to do
    source = rank.argmax(axis=0)

    for number, part in enumerate(stores):
        for first, store in enumerate(stores[:number]):
            repeated = np.flatnonzero(is_done[number] & (source == first))
            starts = range(0, len(repeated), BATCH_ROWS)
            for start in progress(starts, "Comparing", unit="part"):
                rows = repeated[start : start + BATCH_ROWS]
                for name in part.arrays:
                    _require_equal(store, part, name, rows)
    return Plan(stores[0].items, stores, source, np.arange(len(source)))


def _require_equal(left: Store, right: Store, name: str, rows: Rows) -> None:
    """Raise `StoreError` if a row of an array differs between two stores of the same items."""
    ours = left.read_rows(name, rows)
    theirs = right.read_rows(name, rows)
    is_equal = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))  # padding
    row_equal = is_equal.reshape(len(rows), -1).all(axis=1)
    if not row_equal.all():
        id_ = left.ids[rows[row_equal.argmin()]]
        raise StoreError(
            f"the {name} row of {id_} differs between {left.where} and "
            f"{right.where}. Compare the stores with: "
            f"obygaze stores diff {left.where} {right.where}"
        )


def _plan_films(stores: Sequence[Store]) -> Plan:
    """Plan to take all items of all stores, one store after another."""
    items: list[Item] = []
    extra: dict[str, list[str]] = {name: [] for store in stores for name in store.items.extra}
    sources = []
    rows: list[int] = []
    for number, store in enumerate(stores):
        items += store.items
        sources += [number] * len(store)
        rows += range(len(store))
        for name, column in extra.items():
            column += store.items.extra.get(name, [""] * len(store))
    remedy = "stores of different items share ids; keep each id in only one (obygaze stores subset)"
    with errors_as(StoreError, remedy):
        return Plan(Items.of(items, extra), stores, np.array(sources), np.array(rows))
