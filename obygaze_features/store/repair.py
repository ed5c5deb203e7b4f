"""Repairing a store: damaged blocks become missing ones, which extraction computes again.

What no block can replace (metadata, items, ids, tables) is restored from a copy of the store.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from obygaze_features.common.files import disk_errors, new_folder
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.claims import LEASE_S, Claims, file_system_time
from obygaze_features.store.combine import NO_SOURCE, Plan, write_plan
from obygaze_features.store.commit import finish_moves, retire_record
from obygaze_features.store.diff import read_probe
from obygaze_features.store.file_list import committed_files
from obygaze_features.store.finalise import refuse_while_written
from obygaze_features.store.format import Status
from obygaze_features.store.metadata import read_checksums
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.verify import Damage, verify
from obygaze_features.store.writer import append_to_log


@dataclass(frozen=True)
class Repair:
    """What a repair did."""

    path: Path
    damage: tuple[Damage, ...]
    """What was damaged, without harmless entries."""
    restored: tuple[str, ...]
    """The store's name, if it was lost while it was being replaced and was put back."""
    to_do: tuple[str, ...]
    """Ids of rows that were done and that extraction has to compute again."""
    cleared: tuple[str, ...]
    """Files of killed writers that were removed."""
    left: tuple[str, ...]
    """Files that may belong to a running writer."""
    reopened: bool


def repair(path: Path | str, *, reopen: bool = False) -> Repair:
    """Make the damaged blocks of a store missing ones, and remove what killed writers left.

    No process may be writing the store. A damaged final store is reopened: an open store with all
    intact blocks replaces it; with `reopen` an undamaged one too, to fill what it lacks.
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
        reopened = store.is_final and bool(damage or reopen)
        if reopened:
            to_do = _reopen(store, damage)
        else:
            to_do = _retire_blocks(store, damage)
            finish_moves(store.refresh())
        harmless = [entry.file for entry in entries if entry.harmless and not reopened]
        cleared, left = _clear(path, harmless)
        if not store.is_final and (damage or restored or cleared):
            append_to_log(path, "repaired", to_do=len(to_do), restored=restored)
    return Repair(path, damage, restored, to_do, cleared, left, reopened)


def _put_back(path: Path) -> tuple[str, ...]:
    """Put back a store whose replacement was interrupted between two renames."""
    replaced = [folder for folder in _unfinished_folders(path) if folder.suffix == ".replaced"]
    if path.exists() or len(replaced) != 1:
        return ()
    os.rename(replaced[0], path)
    return (path.name,)


def _unfinished_folders(path: Path) -> list[Path]:
    """What a killed process left beside a store that it was replacing."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]+\.(partial|replaced)")
    return [
        folder
        for folder in path.parent.glob(".*")
        if pattern.fullmatch(folder.name) and folder.is_dir()
    ]


def can_repair(entry: Damage, *, is_final: bool) -> bool:
    """Whether a damaged file can be computed or written again; the rest needs a copy."""
    rewritten = (fmt.CARD, fmt.CROISSANT, fmt.PROBE, *fmt.COORDINATES) if is_final else ()
    return bool(entry.ids) or entry.file.partition("/")[0] in rewritten


def _refuse_irreparable(store: Store, damage: Sequence[Damage]) -> None:
    """Raise if a file is damaged that can neither be computed nor written again."""
    for entry in damage:
        if not can_repair(entry, is_final=store.is_final):
            sha256 = None
            with contextlib.suppress(StoreError):
                sha256 = read_checksums(store.location).get(entry.file)
            raise StoreError(
                f"{store.path / entry.file} cannot be repaired ({entry.why}); restore it from a "
                f"copy of the store{f' (SHA-256 {sha256})' if sha256 else ''}"
            )


def _retire_blocks(store: Store, damage: Sequence[Damage]) -> tuple[str, ...]:
    """Make the blocks of damaged rows missing ones, and remove their shards."""
    row_of = {item_id: row for row, item_id in enumerate(store.ids)}
    blocks = sorted({row_of[entry.ids[0]] // store.block_rows for entry in damage})
    to_do: list[str] = []
    for block in blocks:
        rows = store.rows_of_block(block)
        to_do += store.ids[rows.start : rows.stop]
        retire_record(store, block)
        for spec in store.specs:
            (store.path / fmt.shard_name(spec, block)).unlink(missing_ok=True)
        for staged in (store.path / fmt.STAGING).glob(f"{block:06d}.*"):
            staged.unlink(missing_ok=True)
    return tuple(to_do)


def _reopen(store: Store, damage: Sequence[Damage]) -> tuple[str, ...]:
    """Replace a final store by an open one that has all its intact blocks."""
    n, path = len(store), store.path
    row_of = {item_id: row for row, item_id in enumerate(store.ids)}
    hit = np.array([row_of[item_id] for entry in damage for item_id in entry.ids], np.intp)
    source = np.zeros(n, np.intp)
    source[np.isin(np.arange(n) // store.block_rows, hit // store.block_rows)] = NO_SOURCE
    lost = np.flatnonzero((source == NO_SOURCE) & (store.status != Status.TODO))
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
    return tuple(store.ids[row] for row in lost.tolist())


def _clear(path: Path, harmless: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove what killed writers left; recent files may belong to a running writer."""
    cleared, left = [], []
    for claim in Claims(path / fmt.CLAIMS).stale_files():
        claim.unlink(missing_ok=True)
        cleared.append(claim.relative_to(path).as_posix())
    leftovers = [*(path / name for name in harmless), *_unfinished_folders(path)]
    # Read again: a file that belonged to no block may have been committed in the meantime.
    store = open_store(path)
    committed = set() if store.is_final else committed_files(store)
    now = file_system_time(path)
    for leftover in leftovers:
        name = os.path.relpath(leftover, path)
        with contextlib.suppress(FileNotFoundError):
            if now - _last_change(leftover) < LEASE_S or name in committed:
                left.append(name)
                continue
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            cleared.append(name)
    return tuple(cleared), tuple(left)


def _last_change(path: Path) -> float:
    inside = path.rglob("*") if path.is_dir() else ()
    return max(float(file.stat().st_mtime) for file in (path, *inside))
