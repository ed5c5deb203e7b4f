"""Make new stores from existing rows: a subset, a merge, or a reopened store.

A plan says where each row of the new store comes from. The rows are written block by block by the
regular writer, so the files are the same as after an extraction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import disk_errors, new_folder
from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.items.films import find_films, titles_in
from obygaze_features.items.items import Items
from obygaze_features.store import format as fmt
from obygaze_features.store.commit import Done, Failed, copy_block
from obygaze_features.store.diff import read_probe
from obygaze_features.store.files import require_store_name
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.writer import (
    StoreWriter,
    append_to_log,
    recipe_differences,
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
    """Make an open store from some of a store's items; see `Store.subset`."""
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
        if differences := recipe_differences(first, {**store.attributes, **ours}):
            raise StoreError(
                f"{store.where} cannot be merged with {opened[0].where}: it was made with "
                f"different {' and different '.join(differences)}"
            )
    for key in ("manifest", "licence", "citation", "software"):
        texts = (store.attributes[key] for store in opened)
        first[key] = "; ".join(dict.fromkeys(text for text in texts if text))
    if all(store.attributes["items_digest"] == first["items_digest"] for store in opened):
        return _make(output, _plan_parts(opened), first, "merged", overwrite=overwrite)
    plan = _plan_films(opened)
    attributes = {**first, "items_digest": plan.items.digest, "n": len(plan.items)}
    return _make(output, plan, attributes, "merged", overwrite=overwrite)


def write_plan(
    folder: Path, plan: Plan, attributes: Mapping[str, Any], probe: Mapping[str, NDArray[Any]]
) -> None:
    """Write an open store into an empty folder. Rows without a source remain to be computed."""
    specs = plan.stores[0].specs
    write_empty_store(folder, {**attributes, "state": "open"}, specs, plan.items, probe)
    writer = StoreWriter(open_store(folder))
    for block in progress(range(writer.store.blocks), "Writing", unit="block"):
        rows = writer.rows_of(block)
        if _copy_whole(plan, writer.store, block):
            continue
        outcomes = _read_outcomes(plan, rows)
        if outcomes:
            writer.write_block(block, [outcomes.get(row) for row in rows])


def _make(
    output: Path, plan: Plan, attributes: Mapping[str, Any], event: str, *, overwrite: bool
) -> Store:
    probe = next((probe for store in plan.stores if (probe := read_probe(store))), {})
    with (
        disk_errors(output, StoreError),
        new_folder(output, overwrite=overwrite, marker=fmt.CHECKSUMS, allow_missing=True) as folder,
    ):
        write_plan(folder, plan, attributes, probe)
        append_to_log(folder, event, sources=[store.where for store in plan.stores])
    return open_store(output)


def _copy_whole(plan: Plan, output: Store, block: int) -> bool:
    """Copy a block if it equals a whole block of an open store; otherwise return False."""
    rows = output.rows_of_block(block)
    sources, old = plan.source[rows.start : rows.stop], plan.row[rows.start : rows.stop]
    if sources[0] == NO_SOURCE or (sources != sources[0]).any():
        return False
    store = plan.stores[sources[0]]
    old_block = int(old[0]) // store.block_rows
    record = store.record_of(old_block)  # None for a final store, which has larger shards
    is_whole = np.array_equal(old, store.rows_of_block(old_block))
    if record is None or not is_whole or store.block_rows != output.block_rows:
        return False
    return any(record.status) and copy_block(output.path, block, store, record)


def _read_outcomes(plan: Plan, rows: range) -> dict[int, Done | Failed]:
    """Read the outcomes of some of the new store's rows from their source stores."""
    outcomes: dict[int, Done | Failed] = {}
    source = plan.source[rows.start : rows.stop]
    for number in np.unique(source[source != NO_SOURCE]).tolist():
        store = plan.stores[number]
        new_rows = rows.start + np.flatnonzero(source == number)
        old_rows = plan.row[new_rows]
        status = store.status[old_rows]
        done = status == Status.DONE
        values = {name: store.read_rows(name, old_rows[done]) for name in store.arrays}
        sources = store.rows_table["source"]
        for index, (new, old) in enumerate(zip(new_rows[done], old_rows[done], strict=True)):
            row_values = {name: array[index] for name, array in values.items()}
            outcomes[int(new)] = Done(row_values, sources[old] or None)
        for index in np.flatnonzero(status > Status.DONE).tolist():
            new, old = int(new_rows[index]), int(old_rows[index])
            reason = store.failures[store.ids[old]]
            outcomes[new] = Failed(Status(status[index]), reason, sources[old] or None)
    return outcomes


def _plan_parts(stores: Sequence[Store]) -> Plan:
    """Plan to take each row from the first store where it is done, or else where it failed.

    Raises `StoreError` if two stores have different values for a row.
    """
    n = len(stores[0])
    source = np.full(n, NO_SOURCE, np.intp)
    for done in (True, False):
        for number, store in enumerate(stores):
            usable = (store.status == Status.DONE) if done else (store.status > Status.DONE)
            source[(source == NO_SOURCE) & usable] = number
    for number, store in enumerate(stores):
        duplicates = np.flatnonzero((store.status == Status.DONE) & (source != number))
        _refuse_unequal(stores, store, duplicates, source)
    return Plan(stores[0].items, stores, source, np.arange(n))


def _refuse_unequal(
    stores: Sequence[Store], part: Store, rows: NDArray[np.intp], source: NDArray[np.intp]
) -> None:
    """Raise `StoreError` if a row that is done in two stores has different values in them."""
    for row in progress(rows.tolist(), "Comparing", unit="row"):
        first, item_id = stores[source[row]], part.ids[row]
        left, right = first[item_id], part[item_id]
        unequal = [name for name in left if not np.array_equal(left[name], right[name])]
        if unequal:
            raise StoreError(
                f"the {unequal[0]} row of {item_id} differs between {first.where} and "
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
    extra = list(dict.fromkeys(name for table in tables for name in table.extra))
    texts: dict[str, Any] = {
        name: _join(getattr(table, name) for table in tables)
        for name in ("ids", "kinds", "films", "media", "texts")
    }
    items = Items(
        **texts,
        starts=np.concatenate([table.starts for table in tables]),
        ends=np.concatenate([table.ends for table in tables]),
        extra={
            name: _join(table.extra.get(name, [""] * len(table)) for table in tables)
            for name in extra
        },
    )
    sizes = [len(table) for table in tables]
    source = np.repeat(np.arange(len(stores)), sizes)
    return Plan(items, stores, source, np.concatenate([np.arange(size) for size in sizes]))


def _join(columns: Iterable[Sequence[str]]) -> list[str]:
    return [cell for column in columns for cell in column]


def _check_output(output: Path | str, stores: Sequence[Store]) -> Path:
    output = require_store_name(Path(output))
    for store in stores:
        store.location.refuse_as_output(output)
    return output
