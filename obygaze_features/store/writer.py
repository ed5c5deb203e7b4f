"""Create stores and fill them block by block. The module `commit` writes blocks to disk."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import (
    disk_errors,
    new_folder,
    require_plain_file,
    sha256_of,
    to_json,
    write_text,
)
from obygaze_features.common.package import obygaze_version
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.commit import (
    Done,
    Failed,
    commit_block,
    finish_moves,
)
from obygaze_features.store.format import ArraySpec, BlockRecord, Recipe, Status
from obygaze_features.store.location import require_store_name
from obygaze_features.store.metadata import check_attributes, final_error
from obygaze_features.store.reader import Store, open_store

if TYPE_CHECKING:
    import zarr

    from obygaze_features.items.items import Items, NamedItems


class StoreWriter:
    """A writer that fills a store. Start with `create`, or continue a store with `resume`.

    Several writers (processes, or machines on a shared file system) may fill the same store if each
    writes other blocks: see `is_in_part`.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        if not store.is_final:
            with disk_errors(store.path, StoreError):
                finish_moves(store)

    @classmethod
    def create(
        cls,
        path: Path | str,
        manifest: NamedItems,
        recipe: Recipe,
        *,
        probe: Mapping[str, NDArray[Any]] | None = None,
        block_rows: int | None = None,
    ) -> StoreWriter:
        """Create an empty store for a manifest's items.

        Parameters
        ----------
        path
            The folder to create, ``NAME.zarr``. Raises `OutputExists` if it exists.
        manifest
            The manifest whose items determine the rows and their order, which never change. Any
            object with a name, a licence, a citation and items will do.
        recipe
            The description of how the rows are computed.
        probe
            The features of the probe, a fixed synthetic clip, by array. With them, two labs can
            check that they compute the same features.
        block_rows
            The number of rows per block (default: 32, or more for many items). Must be the same
            for all stores of one extraction.
        """
        path = require_store_name(Path(path))
        if not len(manifest.items):
            raise StoreError(f"the manifest {manifest.name!r} has no items; add items first")
        attributes = {
            "format_version": fmt.FORMAT_VERSION,
            "state": "open",
            **recipe.attributes(),
            "manifest": manifest.name,
            "items_digest": manifest.items.digest,
            "n": len(manifest.items),
            "block_rows": block_rows or fmt.default_block_rows(len(manifest.items)),
            "licence": manifest.licence,
            "citation": manifest.citation,
            **recipe.texts,
            "software": f"obygaze {obygaze_version()}",
        }
        check_attributes(path, attributes)
        with disk_errors(path, StoreError), new_folder(path) as folder:
            write_empty_store(folder, attributes, recipe.arrays, manifest.items, probe or {})
        writer = cls(open_store(path))
        writer.log("created")
        return writer

    @classmethod
    def resume(
        cls,
        path: Path | str,
        manifest: NamedItems,
        recipe: Recipe,
        *,
        block_rows: int | None = None,
    ) -> StoreWriter:
        """Open a store to continue filling it; raise `StoreError` if items or recipe differ."""
        store = open_store(path)
        require_resumable(store, manifest, recipe, block_rows=block_rows)
        return cls(store)

    def missing_blocks(self) -> list[int]:
        """Return the blocks without a record."""
        blocks = range(0 if self.store.is_final else self.store.blocks)
        return [block for block in blocks if not self.is_written(block)]

    def missing_in_block(
        self, block: int, rows: Sequence[int], *, retry_failed: bool = False
    ) -> list[int]:
        """Return the rows of a block that, according to the disk, still have to be computed."""
        record = self.store.read_record(block)
        if record is None:
            return list(rows)
        codes = {code for code in Status if not code or (retry_failed and code > Status.DONE)}
        first = self.rows_of(block).start
        return [row for row in rows if record.status[row - first] in codes]

    def rows_of(self, block: int) -> range:
        """Return the row numbers of a block."""
        return self.store.rows_of_block(block)

    def write_block(self, block: int, rows: Sequence[Done | Failed | None]) -> BlockRecord:
        """Write a block from the outcomes of its rows, in order; None for rows still to do."""
        expected = self.rows_of(block)
        if not expected or len(rows) != len(expected):
            raise StoreError(
                f"{self.store.path}: block {block} has {counted(len(expected), 'row')} "
                f"(got {len(rows)})"
            )
        if self.is_written(block):
            raise StoreError(f"block {block} of {self.store.path} has already been written")
        return commit_block(self.store, block, rows)

    def is_written(self, block: int) -> bool:
        """Return True if a block has been written, by any writer."""
        return (self.store.path / fmt.record_name(block)).exists()

    def rewrite(self, block: int, rows: Mapping[int, Done | Failed]) -> BlockRecord:
        """Write a block again with new outcomes for some rows; rows that are done are kept.

        Writes nothing if no outcome changes.
        """
        # Another writer may have written the block since this one opened the store.
        store = open_store(self.store.path)
        record = store.record_of(block)
        if record is None:
            raise StoreError(f"block {block} of {store.path} has not been written yet")
        ids = [store.ids[row] for row in self.rows_of(block)]
        before = [
            Done(store[item_id], source)
            if status == Status.DONE
            else Failed(Status(status), record.failures[item_id], source)
            if status
            else None
            for item_id, status, source in zip(ids, record.status, record.sources, strict=True)
        ]
        outcomes = [
            old if isinstance(old, Done) else rows.get(row, old)
            for row, old in zip(self.rows_of(block), before, strict=True)
        ]
        # Rows that are done are kept as the same objects; arrays cannot be compared with ==.
        if all(new is old or new == old for new, old in zip(outcomes, before, strict=True)):
            return record
        return commit_block(store, block, outcomes)

    def log(self, event: str, **fields: Any) -> None:
        """Append an event to the log, the only file that may differ between equal stores."""
        with disk_errors(self.store.path, StoreError):
            append_to_log(self.store.path, event, **fields)


def require_resumable(
    store: Store, manifest: NamedItems, recipe: Recipe | None, *, block_rows: int | None = None
) -> None:
    """Raise `StoreError` unless a run with this manifest and recipe can continue a store.

    Without a recipe, only the items are compared, and `block_rows` if it is passed.
    """
    if store.is_final and not store.status.all():
        raise final_error(store.path, "is final, so its missing rows cannot be computed")
    now = {**(recipe.attributes() if recipe else store.attributes)} | {
        "items_digest": manifest.items.digest,
        "block_rows": block_rows or store.block_rows,
    }
    if differences := recipe_differences(store.attributes, now):
        raise StoreError(
            f"{store.path} cannot be continued because it was made with different "
            f"{' and different '.join(differences)}; use the same settings, or another output"
        )


def recipe_differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List how two recipes differ, as far as this makes their rows incompatible."""
    subjects: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "items": lambda recipe: recipe["items_digest"],
        "backbone weights": lambda recipe: recipe["backbone"]["weights_sha256"],
        "backbone settings": lambda recipe: recipe["backbone"]["config"],
        "preprocessing": lambda recipe: recipe["preprocessing"],
        "precision": lambda recipe: recipe["precision"],
        "arrays": lambda recipe: recipe["arrays"],
        "rows per block": lambda recipe: recipe["block_rows"],
    }
    pairs = {subject: (get(stored), get(now)) for subject, get in subjects.items()}
    different = {subject: pair for subject, pair in pairs.items() if pair[0] != pair[1]}
    if "backbone weights" in different:  # a different network also has different settings
        different.pop("backbone settings", None)
    return [f"{subject} ({_describe_pair(*pair)})" for subject, pair in different.items()]


def _describe_pair(stored: Any, now: Any) -> str:
    """Describe two different values by their texts, or mappings by the keys that differ."""
    if isinstance(stored, Mapping) and isinstance(now, Mapping):
        keys = [key for key in {**stored, **now} if stored.get(key) != now.get(key)]
        if len(keys) > 1:
            return join_some(keys, limit=3)
        return f"{keys[0]}: {_describe_pair(stored.get(keys[0]), now.get(keys[0]))}"
    texts = [value if isinstance(value, str) else json.dumps(value) for value in (stored, now)]
    # Digests are shortened, names are not.
    there, here = (re.sub("^([0-9a-f]{12})[0-9a-f]{20,}$", r"\1...", text) for text in texts)
    return f"{there} there, {here} here"


def is_in_part(blocks: NDArray[np.intp], part: str) -> NDArray[np.bool_]:
    """Return a mask of a part's blocks; ``"2/4"`` is every fourth, starting with the second."""
    first, _, step = part.partition("/")
    if not (first.isdecimal() and step.isdecimal() and 1 <= int(first) <= int(step)):
        raise UsageError(f"a part must be I/N with I from 1 to N, such as 2/4 (got {part!r})")
    selected: NDArray[np.bool_] = blocks % int(step) == int(first) - 1
    return selected


def write_empty_store(
    folder: Path,
    attributes: Mapping[str, Any],
    arrays: Sequence[ArraySpec],
    items: Items,
    probe: Mapping[str, NDArray[Any]],
) -> None:
    """Write the files of an open store that has no rows yet into an empty folder."""
    group = create_group(folder, {fmt.ATTRIBUTES: dict(attributes)})
    for spec in arrays:
        group.create_array(
            **fmt.array_layout(spec, len(items), attributes["block_rows"], beside=arrays)
        )
    ids = fmt.encode_ids(items.ids)
    group.create_array(**fmt.ids_layout(*ids.shape))[:] = ids
    (folder / fmt.ITEMS).write_bytes(items.without_spoken_words().to_csv().encode())
    if probe:
        write_probe(group, arrays, probe)
    write_checksums(folder)
    for name in (fmt.RECORDS, fmt.STAGING):
        (folder / name).mkdir()


def create_group(folder: Path, attributes: Mapping[str, Any]) -> zarr.Group:
    """Create a Zarr group in a folder that no other process writes to.

    Zarr's own local store creates some files by hard link, which not every disk supports.
    """
    import zarr.storage

    class NewFolder(zarr.storage.LocalStore):
        async def set_if_not_exists(self, key: str, value: Any) -> None:
            if not await self.exists(key):
                await self.set(key, value)

    return zarr.create_group(NewFolder(folder), attributes=dict(attributes))


def write_probe(
    group: zarr.Group, arrays: Sequence[ArraySpec], probe: Mapping[str, NDArray[Any]]
) -> None:
    """Write the features of the probe, laid out like a store with one item."""
    inner = group.create_group(fmt.PROBE)
    for spec in arrays:
        if spec.name in probe:
            array = inner.create_array(**fmt.array_layout(spec, 1, 1))
            with np.errstate(over="ignore"):
                array[:] = np.asarray(probe[spec.name])[None].astype(spec.dtype)


def write_checksums(folder: Path, computed: Mapping[str, str] | None = None) -> None:
    """Write the SHA-256 of every file except the log, which may grow, to ``checksums.json``.

    `computed` holds the checksums that are already known, by file name.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    checksums = {
        name: (computed or {}).get(name) or sha256_of(folder / name)
        for name in names
        if name not in (fmt.LOG, fmt.CHECKSUMS)
    }
    write_text(folder / fmt.CHECKSUMS, to_json(checksums))


def append_to_log(path: Path, event: str, **fields: Any) -> None:
    """Append an event, with time and host, to a store's log."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "event": event,
        "host": platform.node(),
        "python": platform.python_version(),
        "zarr": version("zarr"),
        **fields,
    }
    require_plain_file(path / fmt.LOG, StoreError)
    with (path / fmt.LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
