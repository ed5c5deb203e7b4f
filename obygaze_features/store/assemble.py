"""New stores out of rows that others hold: a subset, several merged, or one that was damaged.

One mechanism serves all: a plan says for each row of the new store where it comes from, and the
rows go block by block through the same writer as extracted ones, so that the new store's files
are what an extraction would have written.
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
from obygaze_features.errors import ManifestError, StoreError, UnknownItem, UsageError
from obygaze_features.manifests import Items, Manifest
from obygaze_features.store import format as spec
from obygaze_features.store.commit import Done, Failed
from obygaze_features.store.compare import read_probe
from obygaze_features.store.format import Status
from obygaze_features.store.items import read_items
from obygaze_features.store.layout import append_to_log, lay_out
from obygaze_features.store.location import Folder
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.writer import StoreWriter, differences

__all__ = ["Assembled", "Plan", "assemble", "assembled", "merge", "subset"]

NOWHERE = -1


@dataclass(frozen=True)
class Plan:
    """Where each row of a new store comes from.

    Parameters
    ----------
    items
        What the new store has a row for.
    sources
        The stores that rows come from.
    source, row
        For each item the number of its source, `NOWHERE` if there is none, and its row there.
    """

    items: Items
    sources: Sequence[Store]
    source: NDArray[np.intp]
    row: NDArray[np.intp]


@dataclass(frozen=True)
class Assembled:
    """What became of a new store's rows.

    Parameters
    ----------
    path
        Where it lies.
    done, failed, to_do
        Numbers of rows.
    """

    path: Path
    done: int
    failed: int
    to_do: int


def subset(
    store: Store,
    output: Path,
    *,
    ids: Collection[str] | None = None,
    films: Collection[str] | None = None,
    overwrite: bool = False,
) -> Assembled:
    """Make an open store of some of a store's items, in the same order.

    Parameters
    ----------
    store
        Open or final.
    output
        The new store, ``NAME.zarr``.
    ids, films
        Keep these items, each of which must exist, or all items of these films; both together
        keep what meets both.
    overwrite
        Replace the store that lies at `output`.
    """
    if ids is None and films is None:
        raise UsageError("a subset is of ids or of films; give some")
    _check_output(output, [store])
    items = Manifest(store.attributes["manifest"], read_items(store.location, store.attributes))
    if lacking := [one for one in ids or () if one not in items.items.row_of]:
        raise UnknownItem(f"{store.where} has no item {lacking[0]!r}")
    chosen = items.select(ids=ids, films=films).items
    if not len(chosen):
        raise UsageError(f"no item of {store.where} is of these films and has one of these ids")
    row = np.array([items.items.row_of[one] for one in chosen.ids], np.intp)
    plan = Plan(chosen, [store], np.zeros(len(row), np.intp), row)
    attributes = {**store.attributes, "items_digest": chosen.digest, "n": len(chosen)}
    return _make(output, plan, attributes, "subset", overwrite=overwrite)


def merge(stores: Sequence[Store], output: Path, *, overwrite: bool = False) -> Assembled:
    """Join stores: parts of one, or stores of different films.

    Stores of the same items are parts of one store, and each row comes from the first that has it
    done. Stores without a common id become one store of all items, in the order given.

    Parameters
    ----------
    stores
        Two or more, open or final, of one backbone, preprocessing, precision and arrays.
    output
        The new store, ``NAME.zarr``.
    overwrite
        Replace the store that lies at `output`.
    """
    if len(stores) < 2:
        raise UsageError("merging takes two stores or more")
    _check_output(output, stores)
    first = stores[0]
    digest = first.attributes["items_digest"]
    are_parts = all(one.attributes["items_digest"] == digest for one in stores)
    for other in stores[1:]:
        ours = {name: first.attributes[name] for name in ("items_digest", "block_rows")}
        if found := differences(first.attributes, {**other.attributes, **ours}):
            raise StoreError(
                f"{other.where} cannot be merged with {first.where}, it was made with other "
                f"{' and other '.join(found)}"
            )
    if are_parts:
        plan = _of_parts(stores)
        return _make(output, plan, first.attributes, "merged", overwrite=overwrite)
    plan = _of_films(stores)
    attributes = {
        **first.attributes,
        **{key: _joined(stores, key) for key in ("manifest", "licence", "citation", "software")},
        "items_digest": plan.items.digest,
        "n": len(plan.items),
    }
    return _make(output, plan, attributes, "merged", overwrite=overwrite)


def assemble(
    folder: Path,
    plan: Plan,
    attributes: Mapping[str, Any],
    probe: Mapping[str, NDArray[Any]],
) -> None:
    """Fill an empty folder with an open store; what comes from nowhere stays to do."""
    arrays = plan.sources[0].specs
    lay_out(folder, {**attributes, "state": "open"}, arrays, plan.items, probe)
    writer = StoreWriter(open_store(folder))
    for block in progress(range(writer.store.blocks), "Writing", unit="block"):
        rows = writer.rows_of(block)
        outcomes = _outcomes(plan, rows)
        if outcomes:
            writer.write_block(block, [outcomes.get(row) for row in rows])


def _make(
    output: Path, plan: Plan, attributes: Mapping[str, Any], event: str, *, overwrite: bool
) -> Assembled:
    probe = next((found for one in plan.sources if (found := read_probe(one))), {})
    with (
        disk_errors(output, StoreError),
        new_folder(
            output, overwrite=overwrite, marker=spec.CHECKSUMS, allow_missing=True
        ) as folder,
    ):
        assemble(folder, plan, attributes, probe)
        append_to_log(folder, event, sources=[one.where for one in plan.sources])
    return assembled(output)


def assembled(path: Path) -> Assembled:
    """What a new store holds."""
    status = open_store(path).status
    done, to_do = (int((status == one).sum()) for one in (Status.DONE, Status.TODO))
    return Assembled(path, done, len(status) - done - to_do, to_do)


def _outcomes(plan: Plan, rows: range) -> dict[int, Done | Failed]:
    """What is known of some rows of the new store; read source by source."""
    found: dict[int, Done | Failed] = {}
    source = plan.source[rows.start : rows.stop]
    for number in np.unique(source[source != NOWHERE]).tolist():
        store = plan.sources[number]
        here = rows.start + np.flatnonzero(source == number)
        there = plan.row[here]
        done = store.status[there] == Status.DONE
        values = {name: store.take(there[done], name) for name in store.arrays}
        for place, (row, origin) in enumerate(zip(here[done], there[done], strict=True)):
            row_values = {name: value[place] for name, value in values.items()}
            found[int(row)] = Done(row_values, store.sources[store.ids[origin]])
        failed = store.status[there] > Status.DONE
        for row, origin in zip(here[failed], there[failed], strict=True):
            one = store.ids[origin]
            status = Status(store.status[origin])
            found[int(row)] = Failed(status, store.failures[one], store.sources[one])
    return found


def _of_parts(stores: Sequence[Store]) -> Plan:
    """Each row from the first part that has it done, else from the first where it failed."""
    n = len(stores[0])
    source = np.full(n, NOWHERE, np.intp)
    for done in (True, False):
        for number, store in enumerate(stores):
            wanted = (store.status == Status.DONE) if done else (store.status > Status.DONE)
            source[(source == NOWHERE) & wanted] = number
    for number, store in enumerate(stores):
        twice = np.flatnonzero((store.status == Status.DONE) & (source != number))
        _refuse_unequal(stores, store, twice, source)
    return Plan(read_items(stores[0].location, stores[0].attributes), stores, source, np.arange(n))


def _refuse_unequal(
    stores: Sequence[Store],
    other: Store,
    rows: NDArray[np.intp],
    source: NDArray[np.intp],
) -> None:
    """Refuse rows that are done in two parts, and not alike."""
    for row in progress(rows.tolist(), "Comparing", unit="row"):
        first, one = stores[source[row]], other.ids[row]
        mine, theirs = first[one], other[one]
        unlike = [name for name in mine if not np.array_equal(mine[name], theirs[name])]
        if unlike:
            raise StoreError(
                f"{one} is done in {first.where} and in {other.where}, and its {unlike[0]} is not "
                "the same in both; see how far they agree with: "
                f"obygaze stores diff {first.where} {other.where}"
            )


def _of_films(stores: Sequence[Store]) -> Plan:
    """All items of all stores, one store after the other."""
    seen: dict[str, Store] = {}
    for store in stores:
        common = [one for one in store.ids if one in seen]
        if common:
            raise StoreError(
                f"{store.where} cannot be merged with {seen[common[0]].where}: they are of other "
                f"items ({_digest(seen[common[0]])} there, {_digest(store)} here), yet "
                f"{len(common)} ids are in both, such as {common[0]}; take them out of one with: "
                "obygaze stores subset"
            )
        seen |= dict.fromkeys(store.ids, store)
    tables = [read_items(store.location, store.attributes) for store in stores]
    extra = list(dict.fromkeys(name for table in tables for name in table.extra))
    try:
        items = Items(
            ids=[one for table in tables for one in table.ids],
            kinds=[one for table in tables for one in table.kinds],
            films=[one for table in tables for one in table.films],
            media=[one for table in tables for one in table.media],
            texts=[one for table in tables for one in table.texts],
            starts=np.concatenate([table.starts for table in tables]),
            ends=np.concatenate([table.ends for table in tables]),
            extra={
                name: [one for table in tables for one in table.extra.get(name, [""] * len(table))]
                for name in extra
            },
        )
    except ManifestError as problem:
        raise StoreError(f"these stores cannot be merged: {problem}") from None
    sizes = [len(table) for table in tables]
    source = np.repeat(np.arange(len(stores)), sizes)
    return Plan(items, stores, source, np.concatenate([np.arange(size) for size in sizes]))


def _joined(stores: Sequence[Store], key: str) -> str:
    """What the stores say about something, each thing once."""
    return "; ".join(dict.fromkeys(text for one in stores if (text := one.attributes[key])))


def _digest(store: Store) -> str:
    return f"digest {str(store.attributes['items_digest'])[:12]}"


def _check_output(output: Path, stores: Sequence[Store]) -> None:
    if output.suffix != ".zarr":
        raise UsageError(f"{output}: the name of a store ends in .zarr")
    folders = [one.location.path.resolve() for one in stores if isinstance(one.location, Folder)]
    if output.resolve() in folders:
        raise UsageError(f"{output} is one of the stores to be read; choose another output")
    if any(folder in output.resolve().parents for folder in folders):
        raise UsageError(f"{output} lies inside a store; choose another output")
