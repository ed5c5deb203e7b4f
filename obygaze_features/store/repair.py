"""Repair a store: damaged blocks become missing ones, which extraction computes again.

Files that no block can replace (metadata, items, ids, tables) are restored from a copy of the
store. No intact byte is lost: replaced and dropped files stay beside the store. They are named
there before the store is changed, so that a repair may be interrupted anywhere, and repeated.
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
from obygaze_features.store.finalise import refuse_while_written
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.verify import Damage, verify
from obygaze_features.store.writer import append_to_log

ASIDE = ".before-repair"
"""The suffix of the folder beside the store for files that a repair replaced or dropped."""
KEPT = "nothing is lost: replaced and dropped files are beside the store"
ASIDE_NOTE = "kept-by-repair.txt"
"""The file in such a folder that says where it came from."""

Confirm = Callable[[Sequence[Damage], Sequence[str]], None]


@dataclass(frozen=True)
class Repair:
    """The result of a repair."""

    path: Path
    damage: tuple[Damage, ...]
    """The damage, without harmless entries."""
    to_do: tuple[str, ...]
    """The ids of rows that were dropped and that extraction has to compute again."""
    reopened: bool
    aside: Path | None = None
    """The folder of the replaced store, or of the dropped files, until somebody removes it."""


def repair(
    path: Path | str, *, reopen: bool = False, confirm: Confirm = lambda damage, ids: None
) -> Repair:
    """Turn the damaged blocks of a store into missing ones.

    No process may be writing the store. A damaged final store is reopened: an open store with all
    intact blocks replaces it; with `reopen` an undamaged one too, to fill missing rows. Replaced
    and dropped files stay beside the store. Raises `StoreUnreadable` if the system cannot read a
    file now, and then changes nothing.

    Parameters
    ----------
    path
        The store's folder.
    reopen
        Reopen a final store even if it is undamaged.
    confirm
        Called with the damage and the ids of the rows to drop, before any is dropped. It raises
        to stop.
    """
    with disk_errors(Path(path), StoreError, unchanged=KEPT):
        store = open_store(path)
        clear_unfinished(store.path)  # the store that a killed repair replaced
        if not store.is_final:
            refuse_while_written(store)
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
    """Return True if a damaged file can be computed or written again; others need a copy."""
    rewritten = (fmt.CARD, fmt.CROISSANT, fmt.PROBE, *fmt.COORDINATES) if is_final else ()
    return bool(entry.ids) or entry.file.partition("/")[0] in rewritten


def _refuse_irreparable(store: Store, damage: Sequence[Damage]) -> None:
    """Raise if a file is damaged that can neither be computed nor written again."""
    require_plain_file(store.path / fmt.LOG, StoreError)
    for entry in damage:
        if not can_repair(entry, is_final=store.is_final):
            raise StoreError(
                f"{store.path / entry.file} cannot be repaired ({entry.why}); pull the store "
                "again, or restore the file from a copy"
            )


def _find_rows_to_drop(store: Store, damage: Sequence[Damage]) -> tuple[list[int], tuple[str, ...]]:
    """Return the blocks of damaged rows, and the ids of their rows that were done or failed."""
    row_of = {item_id: row for row, item_id in enumerate(store.ids)}
    blocks = sorted({row_of[id_] // store.block_rows for entry in damage for id_ in entry.ids})
    rows = [row for block in blocks for row in store.rows_of_block(block)]
    if store.is_final:  # an open store's status comes from the record, which may be damaged
        rows = [row for row in rows if store.status[row] != Status.TODO]
    return blocks, tuple(store.ids[row] for row in rows)


def _set_aside(path: Path, names: Collection[str]) -> Path | None:
    """Give files a second name in a new folder beside the store, and return that folder.

    The store is not changed, and the names are on disk when this returns: an interrupted repair
    loses nothing.
    """
    names = [name for name in names if (path / name).exists()]
    if not names:
        return None
    numbered = (f"{path.name}{ASIDE}{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
    aside = next(f for f in map(path.with_name, numbered) if not os.path.lexists(f))
    aside.mkdir()
    note = f"What obygaze stores repair dropped or replaced in {path.name}.\n"
    write_text(aside / ASIDE_NOTE, note)
    for name in names:
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(path / name, aside / name)
    for folder in (path.parent, aside, *aside.rglob("*/")):
        sync_path(folder)
    return aside


def _drop_blocks(store: Store, blocks: Sequence[int]) -> Path | None:
    """Turn blocks of an open store into missing ones; their files stay beside the store."""
    path, shards = store.path, list[str]()
    for block in blocks:
        shards += [fmt.shard_name(spec, block) for spec in store.specs]
        staged = (path / fmt.STAGING).glob(f"{block:06d}.*")
        shards += [file.relative_to(path).as_posix() for file in staged]
    records = [fmt.record_name(block) for block in blocks]
    aside = _set_aside(path, [*records, *shards])
    # Records are dropped last: a repeated repair finds a block by its record.
    for name in (*shards, *records):
        (path / name).unlink(missing_ok=True)
    sync_path(path / "blocks")
    finish_moves(store.refresh())
    return aside


def _reopen(store: Store, damage: Sequence[Damage], blocks: Sequence[int]) -> Path | None:
    """Replace a final store by an open one without these blocks.

    A damaged store stays beside it.
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
