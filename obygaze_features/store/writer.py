"""Create stores, and fill them block by block.

Because of the order of a commit's steps, a kill at any moment does no damage:

1. write and flush each array's shard, under a name in ``staging/`` that contains its checksum;
2. write the commit record, which replaces an older record in one step. Now the block exists;
3. move the shards into the arrays. If this is interrupted, the next process that opens the store
   for writing finishes the move, because the record names the shards.

A shard that no record names belongs to no block. Each block has a single writer.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    sync_path,
    to_json,
    write_bytes,
    write_text,
)
from obygaze_features.common.package import obygaze_version
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.files import Folder, require_store_name
from obygaze_features.store.format import ArraySpec, BlockRecord, Recipe, Status
from obygaze_features.store.metadata import check_attributes, final_error, read_attributes
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.shards import write_shard

if TYPE_CHECKING:
    import zarr

    from obygaze_features.items.items import Items, NamedItems

_RECIPE = ("items_digest", "backbone", "preprocessing", "precision", "arrays", "block_rows")
"""The attributes that must be equal for rows to belong to the same store."""


@dataclass(frozen=True)
class Done:
    """A computed row: its value in each array, and the fingerprint of its source file."""

    values: Mapping[str, NDArray[Any]]
    source: str | None
    status = Status.DONE


@dataclass(frozen=True)
class Failed:
    """A row that could not be computed, and the reason for the failure."""

    status: Status
    reason: str
    source: str | None = None


Outcome = Done | Failed | None
"""The outcome of a row; None for a row that is still to do."""


class StoreWriter:
    """A writer that fills a store. Start with `create`, or continue a store with `resume`.

    Several writers (processes, or machines on a shared file system) may fill the same store if each
    writes other blocks: see `is_in_part`.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._specs = {spec.name: spec for spec in store.specs}
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
        n = len(manifest.items)
        if not n:
            raise StoreError(f"the manifest {manifest.name!r} has no items; add items first")

        attributes = {
            "format_version": fmt.FORMAT_VERSION,
            "state": "open",
            **recipe.attributes(),
            "manifest": manifest.name,
            "items_digest": manifest.items.digest,
            "n": n,
            "block_rows": block_rows or fmt.default_block_rows(n),
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
        if self.store.is_final:
            return []
        return [block for block in range(self.store.blocks) if not self.is_written(block)]

    def rows_of(self, block: int) -> range:
        """Return the row numbers of a block."""
        return self.store.rows_of_block(block)

    def is_written(self, block: int) -> bool:
        """Return True if a block has a record on disk."""
        return (self.store.path / fmt.record_name(block)).exists()

    def write_block(self, block: int, rows: Sequence[Outcome]) -> BlockRecord:
        """Write a block from the outcomes of its rows, in order.

        A row with a value that its array cannot hold is recorded as failed. Raises `StoreError` if
        the block has been written: only `rewrite` replaces a block.
        """
        if self.is_written(block):
            raise StoreError(f"block {block} of {self.store.path} has already been written")
        return commit_block(self.store, block, [self._check(row) for row in rows])

    def rewrite(self, block: int, rows: Mapping[int, Done | Failed]) -> BlockRecord:
        """Write a block again with new outcomes for some rows; rows that are done are kept.

        Writes nothing if no outcome changes.
        """
        record, before = self._read_block(block)
        after = list(before)
        first = self.rows_of(block).start
        for row, outcome in rows.items():
            if record.status[row - first] != Status.DONE:
                after[row - first] = self._check(outcome)

        # Rows that are done are the same objects, so their arrays are not compared.
        if after == before:
            return record
        return commit_block(self.store, block, after)

    def drop(self, block: int, rows: Sequence[int]) -> BlockRecord:
        """Write a block again without some of its rows, which are then to do; they are not read."""
        _, outcomes = self._read_block(block, without=rows)
        return commit_block(self.store, block, outcomes)

    def log(self, event: str, **fields: Any) -> None:
        """Append an event to the log, the only file that may differ between equal stores."""
        with disk_errors(self.store.path, StoreError):
            append_to_log(self.store.path, event, **fields)

    def _check(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Done):
            return check_row(self._specs, outcome)
        return outcome

    def _read_block(
        self, block: int, without: Sequence[int] = ()
    ) -> tuple[BlockRecord, list[Outcome]]:
        """Return a block's record, and the outcomes of its rows as they are on disk now."""
        store = self.store
        record = store.read_records([block]).get(block)
        if record is None:
            raise StoreError(f"block {block} of {store.path} has not been written yet")
        if record != store.records.get(block):  # it was written after the store was opened
            store.refresh()

        rows = np.array(self.rows_of(block))
        status = np.array(record.status)
        status[np.isin(rows, without)] = Status.TODO
        return record, read_outcomes(store, rows, status, record.sources, record.failures)


def commit_block(store: Store, block: int, outcomes: Sequence[Outcome]) -> BlockRecord:
    """Write a block's shards, then its commit record, after which the block exists.

    The rows must fit the arrays: see `check_row`.
    """
    rows = store.rows_of_block(block)
    if not rows or len(outcomes) != len(rows):
        raise StoreError(
            f"{store.path}: block {block} has {counted(len(rows), 'row')} (got {len(outcomes)})"
        )

    status = []
    sources = []
    failures = {}
    for row, outcome in zip(rows, outcomes, strict=True):
        status.append(int(outcome.status) if outcome else int(Status.TODO))
        sources.append(outcome.source if outcome else None)
        if isinstance(outcome, Failed):
            failures[store.ids[row]] = outcome.reason

    with disk_errors(store.path, StoreError):
        _refuse_if_final(store)
        shards = {spec.name: _stage(store, block, spec, outcomes) for spec in store.specs}
        record = BlockRecord(block, tuple(status), tuple(sources), failures, shards)
        sync_path(store.path / fmt.STAGING)
        _refuse_if_final(store)
        write_bytes(store.path / fmt.record_name(block), record.to_bytes())
        move_shards(store, record)
        for spec in store.specs:
            if shards[spec.name] is None:
                (store.path / fmt.shard_name(spec, block)).unlink(missing_ok=True)
    return record


def read_outcomes(
    store: Store,
    rows: NDArray[np.intp],
    status: NDArray[Any],
    sources: Sequence[str | None],
    reasons: Mapping[str, str],
) -> list[Outcome]:
    """Read the values of the rows that are done, and return the outcome of each row.

    Parameters
    ----------
    store, rows
        The store, and the numbers of the rows.
    status, sources
        The status and the source of each of these rows.
    reasons
        The reason why rows failed, by id.
    """
    done = rows[status == Status.DONE]
    values = {name: store.read_rows(name, done) for name in store.arrays}

    outcomes: list[Outcome] = []
    number = 0
    for row, code, source in zip(rows.tolist(), status.tolist(), sources, strict=True):
        if code == Status.TODO:
            outcomes.append(None)
        elif code == Status.DONE:
            outcomes.append(Done({name: values[name][number] for name in values}, source))
            number += 1
        else:
            outcomes.append(Failed(Status(code), reasons[store.ids[row]], source))
    return outcomes


def check_row(specs: Mapping[str, ArraySpec], row: Done) -> Done | Failed:
    """Convert a row to the arrays' dtypes; return a failure if an array cannot hold a value."""
    if row.values.keys() != specs.keys():
        raise StoreError(
            f"a row has the arrays {', '.join(row.values)}, but the store has {', '.join(specs)}"
        )

    values = {}
    filled = set()
    for name, spec in specs.items():
        computed = np.asarray(row.values[name])
        if computed.shape != spec.shape:
            raise StoreError(f"a row of {name} must have shape {spec.shape} (got {computed.shape})")
        value = computed
        if computed.dtype != spec.dtype:
            with np.errstate(over="ignore", invalid="ignore"):
                value = computed.astype(spec.dtype)
        values[name] = value

        content = spec.without_padding(value)
        is_exact = value.dtype.kind == "f" or np.array_equal(value, computed)
        if not is_exact or not content.size or not _is_storable(content, spec):
            problem = "NaN or infinity"
            if computed.dtype.kind != "f" or np.isfinite(spec.without_padding(computed)).all():
                problem = f"a value that {spec.dtype} cannot hold"
            return Failed(Status.NOT_FINITE, f"{name} has {problem}", row.source)
        if spec.padded:
            filled.add(len(content) / spec.shape[0])

    if len(filled) > 1:
        return Failed(Status.NOT_FINITE, "some frames have no features", row.source)
    return Done(values, row.source)


def _is_storable(content: NDArray[Any], spec: ArraySpec) -> bool:
    """Return True if the content of a row has no infinities and no fill values."""
    if content.dtype == np.float16:
        # Thirty times faster than isfinite: values from 0x7C00 up mean infinity or NaN.
        return int((content.view(np.uint16) & 0x7FFF).max()) < 0x7C00
    if content.dtype.kind == "f":
        return bool(np.isfinite(content).all())
    return not bool(spec.is_fill(content).any())


def _stage(store: Store, block: int, spec: ArraySpec, outcomes: Sequence[Outcome]) -> str | None:
    """Write and flush the shard of one array; return its SHA-256, or None if no row is done."""
    chunks = [row.values[spec.name] if isinstance(row, Done) else None for row in outcomes]
    if all(chunk is None for chunk in chunks):
        return None
    temporary = store.path / fmt.STAGING / f".{uuid.uuid4().hex}.partial"
    try:
        sha256 = write_shard(temporary, chunks, fmt.shard_layout(spec, store.block_rows))
        os.replace(temporary, store.path / fmt.staged_name(spec, block, sha256))
    finally:
        temporary.unlink(missing_ok=True)
    return sha256


def _refuse_if_final(store: Store) -> None:
    """Raise `StoreError` if the store has been finalised since it was opened."""
    if read_attributes(Folder(store.path))["state"] != "open":
        raise final_error(store.path, "was finalised while rows were being written")


def finish_moves(store: Store) -> None:
    """Finish commits whose writer was killed after writing the record."""
    blocks = set()
    for path in (store.path / fmt.STAGING).glob("*"):
        number = path.name.partition(".")[0]
        if number.isdecimal():
            blocks.add(int(number))
    for block in sorted(blocks):
        record = store.read_records([block]).get(block)
        if record is not None:
            move_shards(store, record)


def move_shards(store: Store, record: BlockRecord) -> None:
    """Finish a commit by moving the shards that are still staged.

    Nothing is removed, because another part may have written the block again meanwhile.
    """
    for spec in store.specs:
        sha256 = record.shards[spec.name]
        if sha256 is None:
            continue

        target = store.path / fmt.shard_name(spec, record.block)
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it may have been moved already
            os.replace(store.path / fmt.staged_name(spec, record.block, sha256), target)
        folder = target.parent
        while folder != store.path:
            sync_path(folder)
            folder = folder.parent


def require_resumable(
    store: Store, manifest: NamedItems, recipe: Recipe | None, *, block_rows: int | None = None
) -> None:
    """Raise `StoreError` unless a run with this manifest and recipe can continue a store.

    Without a recipe, only the items are compared, and `block_rows` if it is passed.
    """
    if store.is_final and not store.status.all():
        raise final_error(store.path, "is final, so its missing rows cannot be computed")

    now = dict(store.attributes)
    if recipe:
        now |= recipe.attributes()
    now["items_digest"] = manifest.items.digest
    now["block_rows"] = block_rows or store.block_rows
    require_same_recipe(store.attributes, now, f"{store.path} cannot be continued")


def recipe_differences(
    left: Mapping[str, Any], right: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return how two stores' attributes differ, as far as their rows do not belong together.

    Backbones with equal weights and settings are the same, whatever their names.
    """
    recipes = []
    for attributes in (left, right):
        recipe = {name: attributes[name] for name in _RECIPE}
        backbone = recipe["backbone"]
        recipe["backbone"] = {key: backbone.get(key) for key in ("weights_sha256", "config")}
        recipes.append(recipe)
    return differences(*recipes)


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the left and the right value of each key that differs; dots join keys of keys.

    Examples
    --------
    >>> differences({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2}})
    {'b.d': (3, None)}
    """
    found = {}
    for key in {**left, **right}:
        there = left.get(key)
        here = right.get(key)
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            for inner, pair in differences(there, here).items():
                found[f"{key}.{inner}"] = pair
        elif there != here:
            found[key] = (there, here)
    return found


def require_same_recipe(left: Mapping[str, Any], right: Mapping[str, Any], message: str) -> None:
    """Raise `StoreError`, which says what differs, if two stores' rows do not belong together."""
    parts = []
    for name, (there, here) in recipe_differences(left, right).items():
        parts.append(f"{name} ({there!s:.200} there, {here!s:.200} here)")
    if parts:
        raise StoreError(f"{message}: it was made with different {join_some(parts, 3)}")


def is_in_part(blocks: NDArray[np.intp], part: str) -> NDArray[np.bool_]:
    """Return a mask of a part's blocks; ``"2/4"`` is every fourth, starting with the second."""
    first, _, step = part.partition("/")
    is_number = first.isdecimal() and step.isdecimal() and len(first) <= len(step) < 7
    if not (is_number and 1 <= int(first) <= int(step)):
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
