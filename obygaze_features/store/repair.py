"""Repairing a store: what is damaged becomes what is missing, so that extraction fills it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.files import (
    disk_errors,
    new_folder,
    sha256_of,
    to_json,
    write_bytes,
    write_text,
)
from obygaze_features.common.tables import format_table
from obygaze_features.errors import StoreError
from obygaze_features.manifests import Items
from obygaze_features.store import format as spec
from obygaze_features.store.arrays import read_bytes_array
from obygaze_features.store.assemble import NOWHERE, Plan, assemble
from obygaze_features.store.checksums import read_checksums, without_consolidated
from obygaze_features.store.claims import LEASE, Claims
from obygaze_features.store.commit import finish_moves, retire_record
from obygaze_features.store.compare import read_probe
from obygaze_features.store.damage import Damage
from obygaze_features.store.finalise import lay_out_final, refuse_while_at_work
from obygaze_features.store.format import Status
from obygaze_features.store.integrity import verify
from obygaze_features.store.items import read_items
from obygaze_features.store.layout import append_to_log, lay_out
from obygaze_features.store.leftovers import committed
from obygaze_features.store.location import Folder
from obygaze_features.store.metadata import read_attributes, read_status_column
from obygaze_features.store.reader import Store, open_store

__all__ = ["Repair", "repair"]

IRREPLACEABLE = ("zarr.json", spec.ITEMS)
"""Files that hold what no other file of the store does."""


@dataclass(frozen=True)
class Repair:
    """What a repair did.

    Parameters
    ----------
    path
        The store.
    damage
        What was found, harmless things apart.
    restored
        Files that were made again out of others.
    to_do
        Ids of rows that were done, or seemed so, and that extraction has to do again.
    cleared, left
        Files of writers that are gone, and those that may be of one at work.
    reopened
        Whether a final store was opened again.
    """

    path: Path
    damage: tuple[Damage, ...] = ()
    restored: tuple[str, ...] = ()
    to_do: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    reopened: bool = False


def repair(path: Path, *, reopen: bool = False) -> Repair:
    """Make the damaged blocks of a store missing ones, and clear what killed writers left.

    Parameters
    ----------
    path
        The store; nobody may be writing it. A final store with damage is opened again: it is
        replaced by an open one that has every intact block.
    reopen
        Open a final store again though it has no damage, to fill what it lacks.
    """
    with disk_errors(path, StoreError):
        restored = [*_put_back(path), *_restore(path)]
        store = open_store(path)
        if not store.is_final:
            refuse_while_at_work(store)
        found = verify(path)
        damage = tuple(one for one in found if not one.harmless)
        reopened = store.is_final and bool(damage or reopen)
        if reopened:
            to_do = _reopen(store, damage)
        else:
            to_do = _retire(store, damage)
            finish_moves(open_store(path))
        harmless = () if reopened else tuple(one.file for one in found if one.harmless)
        cleared, left = _clear(path, harmless)
        if not store.is_final and (damage or restored or cleared):
            append_to_log(path, "repaired", to_do=len(to_do), restored=restored)
    return Repair(path, damage, tuple(restored), to_do, cleared, left, reopened)


def _put_back(path: Path) -> list[str]:
    """A store that was being replaced when the machine stopped, between two renames."""
    aside = [one for one in _unfinished(path) if one.suffix == ".replaced"]
    if path.exists() or len(aside) != 1:
        return []
    os.rename(aside[0], path)
    return [path.name]


def _unfinished(path: Path) -> list[Path]:
    """What a killed process left beside a store that it was about to replace."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]+\.(partial|replaced)")
    return [one for one in path.parent.glob(".*") if pattern.fullmatch(one.name) and one.is_dir()]


def _restore(path: Path) -> list[str]:
    """Make again those small files that follow from others, where they are damaged."""
    sums: dict[str, str] = {}
    with contextlib.suppress(StoreError):
        sums = read_checksums(Folder(path))
    header, restored = path / "zarr.json", []
    now = header.read_bytes() if header.is_file() else b""
    if before := without_consolidated(now, sums.get("zarr.json")):
        mode = header.stat().st_mode
        write_bytes(header, before)
        header.chmod(mode)
        restored.append("zarr.json")
    for name in IRREPLACEABLE:
        if name in sums and not _is_sound(path, name, sums):
            raise StoreError(
                f"{path / name} is damaged and cannot be repaired, as nothing else holds what it "
                f"says; put back a copy of it, whose SHA-256 is {sums[name]}, and run the same "
                "command again"
            )
    attributes = read_attributes(Folder(path))
    items = read_items(Folder(path), attributes)
    if attributes["state"] == "final":
        return [*restored, *_restore_final(path, attributes, items, sums)]
    return [*restored, *_restore_open(path, attributes, items, sums)]


def _restore_open(
    path: Path, attributes: Mapping[str, Any], items: Items, sums: Mapping[str, str]
) -> list[str]:
    restored = _drop_damaged_probes(path, sums)
    with _beside(path) as folder:
        lay_out(folder, attributes, spec.specs_of(attributes), items, {})
        fresh = read_checksums(Folder(folder))
        for name in fresh:
            known = {**fresh, **sums}
            if not _is_sound(path, name, known):
                write_bytes(path / name, (folder / name).read_bytes())
                restored.append(name)
    if restored or not sums:
        probe = (path / spec.PROBE).rglob("*")
        kept = [file.relative_to(path).as_posix() for file in probe if file.is_file()]
        now = {name: sha256_of(path / name) for name in sorted([*fresh, *kept])}
        write_text(path / spec.CHECKSUMS, to_json(now))
    return restored if sums else [*restored, spec.CHECKSUMS]


def _drop_damaged_probes(path: Path, sums: Mapping[str, str]) -> list[str]:
    """Remove those of the probe's arrays that are damaged; nothing in the store can make them."""
    group = f"{spec.PROBE}/zarr.json"
    names = [name for name in sums if name.startswith(f"{spec.PROBE}/")]
    damaged = [name for name in names if not _is_sound(path, name, sums)]
    done = []
    for array in sorted({name.split("/")[1] for name in damaged if name != group}):
        shutil.rmtree(path / spec.PROBE / array, ignore_errors=True)
        done.append(f"{spec.PROBE}/{array} (dropped, as nothing else holds it)")
    if group in damaged and (path / spec.PROBE).is_dir():
        # A group's own file says nothing but that it is one.
        about = {"attributes": {}, "zarr_format": 3, "node_type": "group"}
        write_text(path / group, json.dumps(about, indent=2))
        done.append(group)
    return done


def _restore_final(
    path: Path, attributes: Mapping[str, Any], items: Items, sums: Mapping[str, str]
) -> list[str]:
    restored: list[str] = []
    if spec.ROWS in sums and not _is_sound(path, spec.ROWS, sums):
        sums = _remake_rows(path, items.ids, sums)
        restored.append(f"{spec.ROWS} (its reasons and sources are lost)")
    status = read_status_column(Folder(path), len(items))
    arrays = spec.specs_of(attributes)
    for compress, films in itertools.product((False, True), (items.films, None)):
        with _beside(path) as folder:
            lay_out_final(
                folder, attributes, arrays, items.ids, status, films=films, compress=compress
            )
            files = (file for file in folder.rglob("*") if file.is_file())
            names = [file.relative_to(folder).as_posix() for file in files]
            for name in names:
                made = sha256_of(folder / name)
                if sums.get(name) == made and not _is_sound(path, name, sums):
                    write_bytes(path / name, (folder / name).read_bytes())
                    (path / name).chmod(0o444)
                    restored.append(name)
    return restored


def _remake_rows(path: Path, ids: Sequence[str], sums: Mapping[str, str]) -> dict[str, str]:
    """Write ``rows.csv`` anew from the array of statuses; what only it said is lost."""
    status = read_bytes_array(Folder(path), spec.STATUS, (len(ids),)).tolist()
    failed = {int(one): one.name.lower().replace("_", " ") for one in Status if one > Status.DONE}
    columns: dict[str, Sequence[str]] = {
        "id": list(ids),
        "status": [str(one) for one in status],
        "source": [""] * len(ids),
        "reason": [
            f"{failed[one]}; the reason was lost with {spec.ROWS}" if one in failed else ""
            for one in status
        ],
    }
    now = dict(sums)
    write_text(path / spec.ROWS, format_table(columns))
    now[spec.ROWS] = sha256_of(path / spec.ROWS)
    write_text(path / spec.CHECKSUMS, to_json(now))
    for name in (spec.ROWS, spec.CHECKSUMS):
        (path / name).chmod(0o444)
    return now


def _retire(store: Store, damage: tuple[Damage, ...]) -> tuple[str, ...]:
    """Make the blocks of damaged rows missing ones; nobody needs their shards then."""
    row_of = {one: row for row, one in enumerate(store.ids)}
    blocks = sorted({row_of[one.ids[0]] // store.block_rows for one in damage if one.ids})
    to_do: list[str] = []
    for block in blocks:
        rows = spec.rows_of_block(block, len(store), store.block_rows)
        to_do += store.ids[rows.start : rows.stop]
        retire_record(store, block)
        for one in store.specs:
            (store.path / spec.shard_name(one, block)).unlink(missing_ok=True)
        for staged in (store.path / spec.STAGING).glob(f"{block:06d}.*"):
            staged.unlink(missing_ok=True)
    return tuple(to_do)


def _reopen(store: Store, damage: tuple[Damage, ...]) -> tuple[str, ...]:
    """Replace a final store by an open one that has all its intact blocks."""
    n, path = len(store), store.path
    row_of = {one: row for row, one in enumerate(store.ids)}
    hit = np.array([row_of[one] for found in damage for one in found.ids], np.intp)
    source = np.zeros(n, np.intp)
    source[np.isin(np.arange(n) // store.block_rows, hit // store.block_rows)] = NOWHERE
    known_before = np.flatnonzero((source == NOWHERE) & (store.status != Status.TODO))
    plan = Plan(read_items(store.location, store.attributes), [store], source, np.arange(n))
    try:
        probe = read_probe(store)
    except StoreError:
        probe = {}
    with new_folder(path, overwrite=True, allow_missing=True) as folder:
        assemble(folder, plan, store.attributes, probe)
        if (path / spec.LOG).exists():
            shutil.copyfile(path / spec.LOG, folder / spec.LOG)
        append_to_log(folder, "reopened", damaged=[one.file for one in damage])
    return tuple(store.ids[row] for row in known_before.tolist())


def _clear(path: Path, harmless: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove what killed writers left; what is young may be of a writer at work."""
    cleared, left = [], []
    folder = path / spec.CLAIMS
    claims = Claims(folder)
    for claim in claims.stale():
        claim.unlink(missing_ok=True)
        cleared.append(claim.relative_to(path).as_posix())
    places = [path / name for name in harmless]
    places += _unfinished(path)
    # Looked up again: what belonged to no block may have been committed in the meantime.
    store = open_store(path)
    wanted = set() if store.is_final else committed(store, store.ids)
    now = _now(path)
    for place in places:
        name = os.path.relpath(place, path)
        with contextlib.suppress(FileNotFoundError):
            if now - _last_change(place) < LEASE or name in wanted:
                left.append(name)
                continue
            shutil.rmtree(place) if place.is_dir() else place.unlink()
            cleared.append(name)
    return tuple(cleared), tuple(left)


def _last_change(place: Path) -> float:
    inside = place.rglob("*") if place.is_dir() else ()
    return max(float(one.stat().st_mtime) for one in (place, *inside))


def _now(path: Path) -> float:
    """The time by the file system's own clock."""
    with tempfile.NamedTemporaryFile(dir=path, prefix=".clock.") as file:
        return float(os.fstat(file.fileno()).st_mtime)


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A folder for a moment; not inside the store, which may be checked meanwhile."""
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        yield Path(folder)


def _is_sound(path: Path, name: str, sums: Mapping[str, str]) -> bool:
    try:
        return sha256_of(path / name) == sums[name]
    except OSError:
        return False
