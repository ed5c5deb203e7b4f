"""Repairing a store: damaged blocks become missing ones, which extraction computes again.

What no block can replace (metadata, items, ids, tables) is restored from a copy of the store. No
intact byte is lost: what a repair replaces or drops stays beside the store. It gets its name there
before the store is changed, so that a repair may be interrupted anywhere, and repeated.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from obygaze_features.common.files import (
    disk_errors,
    link_or_copy,
    new_folder,
    require_plain_file,
    sync_path,
    unfinished,
    write_text,
)
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.claims import LEASE_S, Claims, file_system_time
from obygaze_features.store.combine import NO_SOURCE, Plan, write_plan
from obygaze_features.store.commit import finish_moves, retire_record
from obygaze_features.store.diff import read_probe
from obygaze_features.store.finalise import refuse_while_written
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.verify import Damage, committed_files, verify
from obygaze_features.store.writer import append_to_log

ASIDE = ".before-repair"
"""Ends the name of what a repair replaced or dropped, which stays beside the store."""
ASIDE_NOTE = "kept-by-repair.txt"
"""Says in such a folder where it is from."""

_WRITERS_FILE = re.compile(rf"{fmt.STAGING}/|(.*/)?\.")
"""What only a killed writer leaves; a shard is moved into its array after its record is there."""

Confirm = Callable[[Sequence[Damage], Sequence[str]], None]


@dataclass(frozen=True)
class Repair:
    """What a repair did."""

    path: Path
    damage: tuple[Damage, ...]
    """What was damaged, without harmless entries."""
    restored: tuple[str, ...]
    """The store's name, if it was lost while it was being replaced and was put back."""
    to_do: tuple[str, ...]
    """Ids of rows that were dropped and that extraction has to compute again."""
    cleared: tuple[str, ...]
    """Files of killed writers that were removed."""
    left: tuple[str, ...]
    """Files that may belong to a running writer."""
    reopened: bool
    aside: Path | None = None
    """Where the replaced store, or the dropped files, are until somebody removes them."""


def repair(
    path: Path | str, *, reopen: bool = False, confirm: Confirm = lambda damage, ids: None
) -> Repair:
    """Make the damaged blocks of a store missing ones, and remove what killed writers left.

    No process may be writing the store. A damaged final store is reopened: an open store with all
    intact blocks replaces it; with `reopen` an undamaged one too, to fill what it lacks. What is
    replaced or dropped stays beside the store. `StoreUnreadable` where the system cannot read a
    file now; then nothing is changed.

    Parameters
    ----------
    path
        The store's folder.
    reopen
        Reopen a final store although it is undamaged.
    confirm
        Called with the damage and the ids of the rows to drop, before any is dropped. It raises
        to stop.
    """
    path = Path(path)
    with disk_errors(path, StoreError):
        restored = _put_back(path)
        store = open_store(path)
        path = store.path
        if not store.is_final:
            refuse_while_written(store)
        entries = verify(path)
        damage = tuple(entry for entry in entries if not entry.harmless)
        _refuse_irreparable(store, damage)
        blocks, to_do = _find_rows_to_drop(store, damage)
        if to_do:
            confirm(damage, to_do)
        reopened = store.is_final and bool(damage or reopen)
        if reopened:
            aside = _reopen(store, damage, blocks)
        else:
            aside = _retire_blocks(store, blocks)
            finish_moves(store.refresh())
        harmless = [entry.file for entry in entries if entry.harmless and not reopened]
        cleared, left, aside = _clear(path, harmless, aside)
        if not store.is_final and (damage or restored or cleared):
            append_to_log(path, "repaired", to_do=len(to_do), restored=restored)
    return Repair(path, damage, restored, to_do, cleared, left, reopened, aside)


def _put_back(path: Path) -> tuple[str, ...]:
    """Put back a store whose replacement was interrupted between two renames."""
    replaced = [folder for folder in _unfinished_folders(path) if folder.suffix == ".replaced"]
    if path.exists() or len(replaced) != 1:
        return ()
    os.rename(replaced[0], path)
    return (path.name,)


def _unfinished_folders(path: Path) -> list[Path]:
    """What a killed process left beside a store that it was replacing."""
    return [folder for folder, _ in unfinished(path) if folder.is_dir()]


def can_repair(entry: Damage, *, is_final: bool) -> bool:
    """Whether a damaged file can be computed or written again; the rest needs a copy."""
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
    """The blocks of damaged rows, and the ids of their rows that are not to do already."""
    row_of = {item_id: row for row, item_id in enumerate(store.ids)}
    blocks = sorted({row_of[id_] // store.block_rows for entry in damage for id_ in entry.ids})
    rows = [row for block in blocks for row in store.rows_of_block(block)]
    if store.is_final:  # else the record, which has the status, may be damaged
        rows = [row for row in rows if store.status[row] != Status.TODO]
    return blocks, tuple(store.ids[row] for row in rows)


def _set_aside(path: Path, names: Collection[str], aside: Path | None = None) -> Path | None:
    """Give files a second name in a folder beside the store, by default a new one; which it is.

    The store is not changed, and the names are on disk when this returns: an interrupted repair
    loses nothing.
    """
    names = [name for name in names if (path / name).exists()]
    if not names:
        return aside
    if aside is None:
        numbered = (f"{path.name}{ASIDE}{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
        folders = map(path.with_name, numbered)
        aside = next(folder for folder in folders if not os.path.lexists(folder))
        aside.mkdir()
        note = f"What obygaze stores repair dropped or replaced in {path.name}.\n"
        write_text(aside / ASIDE_NOTE, note)
    for name in names:
        target = aside / name
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(path / name, target)
    for folder in {path.parent, *(parent for name in names for parent in (aside / name).parents)}:
        if folder.is_relative_to(path.parent):
            sync_path(folder)
    return aside


def _retire_blocks(store: Store, blocks: Sequence[int]) -> Path | None:
    """Make these blocks missing ones; their files stay beside the store."""
    path, shards = store.path, list[str]()
    for block in blocks:
        shards += [fmt.shard_name(spec, block) for spec in store.specs]
        staged = (path / fmt.STAGING).glob(f"{block:06d}.*")
        shards += [file.relative_to(path).as_posix() for file in staged]
    aside = _set_aside(path, [*map(fmt.record_name, blocks), *shards])
    for block in blocks:
        retire_record(store, block)
    for name in shards:
        (path / name).unlink(missing_ok=True)
    return aside


def _reopen(store: Store, damage: Sequence[Damage], blocks: Sequence[int]) -> Path | None:
    """Replace a final store by an open one that has all its blocks but these.

    A damaged one stays beside it.
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


def _clear(
    path: Path, harmless: Sequence[str], aside: Path | None
) -> tuple[tuple[str, ...], tuple[str, ...], Path | None]:
    """Remove what killed writers left; recent files may belong to a running writer.

    Other files, such as a shard that lost its record, stay beside the store, in the folder that
    is returned: `aside` if there is one already.
    """
    cleared, left, unused = list[str](), list[str](), list[str]()
    for claim in Claims(path / fmt.CLAIMS).stale_files():
        claim.unlink(missing_ok=True)
        cleared.append(claim.relative_to(path).as_posix())
    # Read again: a file that belonged to no block may have been committed in the meantime.
    store = open_store(path)
    committed = set() if store.is_final else committed_files(store)
    now = file_system_time(path)
    folders = [os.path.relpath(folder, path) for folder in _unfinished_folders(path)]
    for name in (*harmless, *folders):
        with contextlib.suppress(FileNotFoundError):
            is_old = now - _last_change(path / name) >= LEASE_S and name not in committed
            (unused if is_old else left).append(name)
    strays = [name for name in unused if not _WRITERS_FILE.match(name)]
    aside = _set_aside(path, strays, aside)
    for name in unused:
        leftover = path / name
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    cleared += [name for name in unused if name not in strays]
    return tuple(cleared), tuple(left), aside


def _last_change(path: Path) -> float:
    inside = path.rglob("*") if path.is_dir() else ()
    return max(float(file.stat().st_mtime) for file in (path, *inside))
