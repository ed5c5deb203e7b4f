"""Repair a store by dropping damaged blocks, which the next extraction computes again.

Other damaged files (metadata, items, ids, tables) have to be restored from a copy of the store.
No intact data is lost: the replaced and dropped files of a damaged store are kept in a folder next
to it. They are linked there before the store is changed, so a repair can be interrupted anywhere
and repeated.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from obygaze_features.common.files import (
    clear_unfinished,
    disk_errors,
    link_or_copy,
    new_folder,
    require_plain_file,
    sync_path,
    write_text,
)
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.combine import NO_SOURCE, Plan, write_plan
from obygaze_features.store.commit import finish_moves
from obygaze_features.store.diff import read_probe
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.verify import Damage, verify
from obygaze_features.store.writer import append_to_log

ASIDE = ".before-repair"
"""The suffix of the folder next to the store for files that a repair replaced or dropped."""
KEPT = "nothing is lost: replaced and dropped files are kept next to the store"
ASIDE_NOTE = "kept-by-repair.txt"
"""The file in the `ASIDE` folder that says where its other files came from."""

Confirm = Callable[[Sequence[Damage], Sequence[str]], None]


@dataclass(frozen=True)
class Repair:
    """The result of a repair."""

    path: Path
    damage: tuple[Damage, ...]
    """The damage that was repaired, without harmless entries."""
    to_do: tuple[str, ...]
    """The ids of the dropped rows, which an extraction has to compute again."""
    reopened: bool
    aside: Path | None = None
    """The folder that keeps the replaced store or the dropped files, if there is one."""


def repair(
    path: Path | str, *, reopen: bool = False, confirm: Confirm = lambda damage, ids: None
) -> Repair:
    """Drop the damaged blocks of a store, so that the next extraction computes them again.

    No process may be writing to the store. A damaged final store is replaced by an open store with
    all intact blocks. With `reopen`, an undamaged final store is also replaced, so that missing
    rows can be filled. Files of a damaged store that are replaced or dropped are kept next to it.
    Raises `StoreUnreadable`, and changes nothing, if the system cannot read a file.

    Parameters
    ----------
    path
        The store's folder.
    reopen
        Reopen a final store even if it is undamaged.
    confirm
        A function that is called with the damage and the ids of the rows to drop, before any row is
        dropped. It can raise an exception to stop the repair.
    """
    with disk_errors(Path(path), StoreError, unchanged=KEPT):
        store = open_store(path)
        clear_unfinished(store.path)  # left over if an earlier repair was killed
        damage = tuple(entry for entry in verify(store.path) if not entry.harmless)
        _refuse_irreparable(store, damage)
        blocks, to_do = _find_rows_to_drop(store, damage)
        if to_do:
            confirm(damage, to_do)
        reopened = store.is_final and bool(damage or reopen)
        aside = None
        if reopened:
            aside = _reopen(store, damage, blocks)
        elif not store.is_final:
            aside = _drop_blocks(store, blocks)
            if damage:
                append_to_log(store.path, "repaired", to_do=len(to_do))
    return Repair(store.path, damage, to_do, reopened, aside)


def can_repair(entry: Damage, *, is_final: bool) -> bool:
    """Return True if a damaged file can be recomputed or rewritten without another copy."""
    rewritten = (fmt.CARD, fmt.CROISSANT, fmt.PROBE, *fmt.COORDINATES) if is_final else ()
    return bool(entry.ids) or entry.file.partition("/")[0] in rewritten


def _refuse_irreparable(store: Store, damage: Sequence[Damage]) -> None:
    """Raise `StoreError` if a damaged file can be neither recomputed nor rewritten."""
    require_plain_file(store.path / fmt.LOG, StoreError)
    for entry in damage:
        if not can_repair(entry, is_final=store.is_final):
            raise StoreError(
                f"{store.path / entry.file} cannot be repaired ({entry.why}); pull the store "
                "again, or restore the file from a copy"
            )


def _find_rows_to_drop(store: Store, damage: Sequence[Damage]) -> tuple[list[int], tuple[str, ...]]:
    """Return the blocks with damaged rows, and the ids of the rows to drop with them."""
    row_of = {item_id: row for row, item_id in enumerate(store.ids)}
    blocks = sorted({row_of[id_] // store.block_rows for entry in damage for id_ in entry.ids})
    rows = [row for block in blocks for row in store.rows_of_block(block)]
    if store.is_final:  # in an open store, the status is in the record, which may be damaged
        rows = [row for row in rows if store.status[row] != Status.TODO]
    return blocks, tuple(store.ids[row] for row in rows)


def _set_aside(path: Path, names: Collection[str]) -> Path | None:
    """Link files into a new folder next to the store, and return that folder.

    The store is not changed, and the links are flushed to disk, so an interrupted repair loses
    nothing.
    """
    names = [name for name in names if (path / name).exists()]
    if not names:
        return None
    numbered = (f"{path.name}{ASIDE}{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
    aside = next(f for f in map(path.with_name, numbered) if not os.path.lexists(f))
    aside.mkdir()
    note = f"Files that `obygaze stores repair` dropped or replaced in {path.name}.\n"
    write_text(aside / ASIDE_NOTE, note)
    for name in names:
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(path / name, aside / name)
    for folder in (path.parent, aside, *aside.rglob("*/")):
        sync_path(folder)
    return aside


def _drop_blocks(store: Store, blocks: Sequence[int]) -> Path | None:
    """Drop blocks of an open store; their files are kept next to the store."""
    path, shards = store.path, list[str]()
    for block in blocks:
        shards += [fmt.shard_name(spec, block) for spec in store.specs]
        staged = (path / fmt.STAGING).glob(f"{block:06d}.*")
        shards += [file.relative_to(path).as_posix() for file in staged]
    records = [fmt.record_name(block) for block in blocks]
    aside = _set_aside(path, [*records, *shards])
    # Records are dropped last, because a repeated repair finds a block by its record.
    for name in (*shards, *records):
        (path / name).unlink(missing_ok=True)
    sync_path(path / "blocks")
    finish_moves(store.refresh())
    return aside


def _reopen(store: Store, damage: Sequence[Damage], blocks: Sequence[int]) -> Path | None:
    """Replace a final store with an open store that lacks `blocks`.

    If the final store was damaged, it is kept next to the new store.
    """
    n, path = len(store), store.path
    source = np.zeros(n, np.intp)
    source[np.isin(np.arange(n) // store.block_rows, blocks)] = NO_SOURCE
    plan = Plan(store.items, [store], source, np.arange(n))
    try:
        probe = read_probe(store)
    except StoreError:
        probe = {}
    with new_folder(path, overwrite=True, allow_missing=True) as folder:
        write_plan(folder, plan, store.attributes, probe)
        if (path / fmt.LOG).exists():
            shutil.copyfile(path / fmt.LOG, folder / fmt.LOG)
        append_to_log(folder, "reopened", damaged=[entry.file for entry in damage])
        files = [file for file in path.rglob("*") if file.is_symlink() or file.is_file()]
        names = [file.relative_to(path).as_posix() for file in files]
        return _set_aside(path, names) if damage else None
