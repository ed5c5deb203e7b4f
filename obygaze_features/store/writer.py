"""Create stores, and fill them block by block.

Because of the order of a commit's steps, a kill at any moment does no damage:

1. write and flush each array's shard, under a name in ``staging/`` with 16 digits of its SHA-256;
2. write the commit record, which replaces an older record in one step. Now the block exists;
3. move the shards into the arrays. If this is interrupted, the next process that opens the store
   for writing finishes the move, because the record names the shards.

A shard that no record names belongs to no block. Writers on one machine take turns. Machines that
share a file system must write different blocks: see `is_in_part`.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import (
    alone_in,
    beside,
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
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.diff import SAME_STORE, require_same
from obygaze_features.store.files import require_store_name
from obygaze_features.store.format import ArraySpec, BlockRecord, Recipe, Status
from obygaze_features.store.metadata import check_attributes, final_error
from obygaze_features.store.rows import Rows
from obygaze_features.store.shards import write_shard
from obygaze_features.store.store import Store, open_store

if TYPE_CHECKING:
    import zarr

    from obygaze_features.items.items import Items

Values = Mapping[str, NDArray[Any]]
"""A row: its value in each array."""


@dataclass(frozen=True)
class Done:
    """A computed row: its value in each array, and the fingerprint of its source file."""

    values: Values
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
    """A writer that fills a store. Start with `create`, or continue a store with `resume`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        if not store.is_final:
            with disk_errors(store.path, StoreError), alone_in(store.path):
                finish_moves(store)

    @classmethod
    def create(
        cls,
        path: Path | str,
        items: Items,
        recipe: Recipe,
        about: Mapping[str, str] = MappingProxyType({}),
        *,
        probe: Values | None = None,
        block_rows: int | None = None,
    ) -> StoreWriter:
        """Create an empty store.

        Parameters
        ----------
        path
            The folder to create, ``NAME.zarr``. Raises `OutputExists` if it exists.
        items
            The items, which determine the rows and their order. They never change.
        recipe
            The description of how the rows are computed.
        about
            The name of the ``manifest``, the ``licence`` and the ``citation``: see
            `Manifest.about`.
        probe
            The features of the probe (a fixed synthetic clip, image, sound or text), by array. With
            them, two labs can check that they compute the same features.
        block_rows
            The number of rows per block (default: 32, or more for many items).
        """
        path = require_store_name(Path(path))
        attributes = first_attributes(items, recipe, about, block_rows)
        with new_store(path, attributes, items, probe or {}) as store:
            append_to_log(store.path, "created")
        return cls(open_store(path))

    @classmethod
    def resume(
        cls,
        path: Path | str,
        items: Items,
        recipe: Recipe,
        *,
        block_rows: int | None = None,
    ) -> StoreWriter:
        """Open a store to continue filling it; raise `StoreError` if items or recipe differ."""
        store = open_store(path)
        require_resumable(store, items, recipe, block_rows=block_rows)
        return cls(store)

    def write_rows(self, rows: Mapping[int, Outcome]) -> None:
        """Write rows by row number; rows that are done are kept.

        A row with a value that its array cannot hold is recorded as failed. Each block is committed
        as a whole, so write the rows of a block together.
        """
        store = self.store
        blocks: dict[int, dict[int, Outcome]] = defaultdict(dict)
        for row, outcome in rows.items():
            if row not in range(len(store)):
                raise StoreError(store.path, f"has no row {row} (rows: {len(store):,})")
            blocks[row // store.block_rows][row] = outcome

        for block, part in blocks.items():
            with disk_errors(store.path, StoreError), alone_in(store.path):
                record = store.read_records([block]).get(block)
                if record != store.records.get(block):  # written since the store was opened
                    store.refresh()

                in_block = store.rows_of_block(block)
                outcomes = read_outcomes(store, np.array(in_block))
                for number, row in enumerate(in_block):
                    if row in part and not isinstance(outcomes[number], Done):
                        outcomes[number] = check_row(store, part[row])
                commit_block(store, block, outcomes)


@contextlib.contextmanager
def new_store(
    path: Path,
    attributes: Mapping[str, Any],
    items: Items,
    probe: Values,
    *,
    overwrite: bool = False,
) -> Iterator[Store]:
    """Yield an empty store to fill, which gets its path if the ``with`` block succeeds."""
    check_attributes(path, attributes)
    with (
        disk_errors(path, StoreError),
        new_folder(path, overwrite=overwrite, marker=fmt.CHECKSUMS, allow_missing=True) as folder,
    ):
        write_arrays(folder, attributes, items.ids, probe)
        (folder / fmt.ITEMS).write_bytes(items.without_spoken_words().to_csv().encode())
        write_checksums(folder, {})
        for name in (fmt.RECORDS, fmt.STAGING):
            (folder / name).mkdir()
        yield open_store(folder)


def first_attributes(
    items: Items,
    recipe: Recipe,
    about: Mapping[str, str],
    block_rows: int | None,
) -> dict[str, Any]:
    """Return the attributes of a new store."""
    n = len(items)
    return {
        "format_version": fmt.FORMAT_VERSION,
        "state": "open",
        **recipe.attributes(),
        "manifest": "",
        "items_digest": items.digest,
        "n": n,
        "block_rows": block_rows or fmt.default_block_rows(n),
        "licence": "",
        "citation": "",
        "software": f"obygaze {obygaze_version()}",
        **about,
    }


def commit_block(
    store: Store,
    block: int,
    outcomes: Sequence[Outcome],
    *,
    sync: bool = True,
) -> None:
    """Write a block's shards, then its commit record, after which the block exists.

    The rows must fit the arrays: see `check_row`. Without `sync`, the caller has to flush the
    store to disk before other processes use it.
    """
    status = []
    sources = []
    failures = {}
    for row, outcome in zip(store.rows_of_block(block), outcomes, strict=True):
        status.append(outcome.status if outcome else Status.TODO)
        sources.append(outcome.source if outcome else None)
        if isinstance(outcome, Failed):
            failures[store.ids[row]] = outcome.reason

    shards: dict[str, str | None] = dict.fromkeys(store.arrays)
    if Status.DONE in status:
        for spec in store.specs:
            shards[spec.name] = _stage(store, block, spec, outcomes, sync)
    data = BlockRecord(block, tuple(status), tuple(sources), failures, shards).to_bytes()
    record = store.parse_record(block, data)
    path = store.path / fmt.record_name(block)
    if sync:
        sync_path(store.path / fmt.STAGING)
        store.location.refuse_if_changed()
        write_bytes(path, data)
    else:
        path.write_bytes(data)
    move_shards(store, record, sync=sync)


def read_outcomes(store: Store, rows: Rows) -> list[Outcome]:
    """Return the outcome of each of these rows, with the values of those that are done."""
    status = store.status[rows]
    done = rows[status == Status.DONE]
    names = store.arrays
    done_rows = zip(*[store.read_rows(name, done) for name in names], strict=True)
    sources = store.rows_table["source"]
    reasons = store.rows_table["reason"]

    outcomes: list[Outcome] = []
    for row, code in zip(rows.tolist(), status.tolist(), strict=True):
        source = sources[row] or None
        if code == Status.TODO:
            outcomes.append(None)
        elif code == Status.DONE:
            values = dict(zip(names, next(done_rows), strict=True))
            outcomes.append(Done(values, source))
        else:
            outcomes.append(Failed(Status(code), reasons[row], source))
    return outcomes


def check_row(store: Store, row: Outcome) -> Outcome:
    """Convert a row to the arrays' dtypes; return a failure if a value cannot be stored.

    A row also fails if some of its frames lack features. Raises `StoreError` if an array is
    missing or has a wrong shape.
    """
    if not isinstance(row, Done):
        return row
    if row.values.keys() != set(store.arrays):
        raise StoreError(f"a row must have the arrays {store.arrays} (got {list(row.values)})")

    values = {}
    filled = set()
    for spec in store.specs:
        computed = np.asarray(row.values[spec.name])
        if computed.shape != spec.shape:
            raise StoreError(f"{spec.name} needs the shape {spec.shape} (got {computed.shape})")

        with np.errstate(over="ignore", invalid="ignore"):
            value = computed.astype(spec.dtype, copy=False)
        values[spec.name] = value

        content = spec.without_padding(value)
        is_exact = value.dtype.kind == "f" or np.array_equal(value, computed)
        is_storable = np.isfinite(content) & (content != spec.fill)
        if not is_exact or not content.size or not is_storable.all():
            return Failed(
                Status.NOT_FINITE,
                f"{spec.name} has a value that cannot be stored as {spec.dtype}",
                row.source,
            )
        if spec.padded:
            filled.add(len(content) / spec.shape[0])

    if len(filled) > 1:
        return Failed(Status.NOT_FINITE, "some frames have no features", row.source)
    return Done(values, row.source)


def _stage(
    store: Store,
    block: int,
    spec: ArraySpec,
    outcomes: Sequence[Outcome],
    sync: bool,
) -> str:
    """Write the shard of one array; return its SHA-256."""
    chunks = [row.values[spec.name] if isinstance(row, Done) else None for row in outcomes]
    with beside(store.path / fmt.STAGING / spec.name) as temporary:
        sha256 = write_shard(temporary, chunks, store.stored(spec.name))
        if sync:
            sync_path(temporary)
        os.replace(temporary, store.path / fmt.staged_name(spec, block, sha256))
    return sha256


def finish_moves(store: Store) -> None:
    """Finish commits whose writer was killed after writing the record.

    Raises `StoreError` if the store has a link, which writing might follow.
    """
    for path in store.path.rglob("*"):
        if path.is_symlink():
            raise StoreError(path, "is a link; replace it with a copy of its target")
    staged = (store.path / fmt.STAGING).glob("[0-9]*.*.*")
    blocks = sorted({int(path.name.partition(".")[0]) for path in staged})
    for record in store.read_records(blocks).values():
        move_shards(store, record)


def move_shards(store: Store, record: BlockRecord, *, sync: bool = True) -> None:
    """Finish a commit by moving the shards that are still staged.

    Nothing is removed, because another process may have written the block again meanwhile.
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
        while sync and folder != store.path:
            sync_path(folder)
            folder = folder.parent


def require_resumable(
    store: Store,
    items: Items,
    recipe: Recipe,
    *,
    block_rows: int | None = None,
) -> None:
    """Raise `StoreError` unless a run with these items and recipe can continue a store."""
    if store.is_final and not store.status.all():
        raise final_error(store.path, "is final, so its missing rows cannot be computed")

    if store.attributes["items_digest"] != items.digest:
        raise StoreError(
            f"{store.path} has other items; choose another output, and copy the rows of unchanged "
            f"items: --reuse {store.path}"
        )
    now = {**recipe.attributes(), "block_rows": block_rows or store.block_rows}
    require_same(store.attributes, now, f"{store.path} cannot be continued", SAME_STORE)


def is_in_part(blocks: Rows, part: str) -> NDArray[np.bool_]:
    """Return a mask of a part's blocks; ``"2/4"`` is every fourth, starting with the second."""
    numbers = re.fullmatch(r"(\d{1,6})/(\d{1,6})", part)
    if not (numbers and 1 <= int(numbers[1]) <= int(numbers[2])):
        raise UsageError(f"a part must be I/N with I from 1 to N, such as 2/4 (got {part!r})")
    selected: NDArray[np.bool_] = blocks % int(numbers[2]) == int(numbers[1]) - 1
    return selected


def write_arrays(
    folder: Path,
    attributes: Mapping[str, Any],
    ids: Sequence[str],
    probe: Values,
    **others: Any,
) -> zarr.Group:
    """Write the Zarr metadata of a store, the ids and the probe; return the group.

    `others` are attributes for other software. Only this process may write to the folder, because
    files are created without Zarr's hard links, which not every disk supports.
    """
    import zarr.abc.store
    import zarr.storage

    class NewFolder(zarr.storage.LocalStore):
        set_if_not_exists = zarr.abc.store.Store.set_if_not_exists

    group = zarr.create_group(
        NewFolder(folder),
        attributes={fmt.ATTRIBUTES: dict(attributes), **others},
    )
    specs = fmt.specs_of(attributes)
    for spec in specs:
        rows = (attributes["block_rows"], 1)
        if attributes["state"] == "final":
            rows = fmt.final_rows(spec, len(ids))
        layout = fmt.array_layout(spec, len(ids), *rows, beside=specs, compressed=spec.padded)
        group.create_array(**layout)
    # Not every Zarr reader supports strings. Ids are ASCII.
    table = np.array(ids, np.bytes_).view(np.uint8).reshape(len(ids), -1)
    group.create_array(**fmt.small_layout(fmt.IDS, table.shape))[:] = table

    if probe:
        # It is laid out like a store with one item.
        inner = group.create_group(fmt.PROBE)
        for spec in specs:
            if spec.name in probe:
                with np.errstate(over="ignore"):
                    row = np.array([probe[spec.name]]).astype(spec.dtype)
                inner.create_array(**fmt.array_layout(spec, 1, 1))[:] = row
    return group


def write_checksums(folder: Path, computed: Mapping[str, str]) -> None:
    """Write the SHA-256 of the files to ``checksums.json``, except the log and the Parquet file.

    `computed` holds the checksums that are already known, by file name.
    """
    checksums = dict(computed)
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in (fmt.LOG, fmt.CHECKSUMS, fmt.PARQUET, *checksums):
            checksums[name] = sha256_of(path)
    write_text(folder / fmt.CHECKSUMS, to_json(dict(sorted(checksums.items()))))


def append_to_log(folder: Path, event: str, **fields: Any) -> None:
    """Append an event, with time and host, to a log.

    A store's log is its only file that may differ between equal stores.
    """
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "event": event,
        "host": platform.node(),
        **fields,
    }
    path = folder / fmt.LOG
    require_plain_file(path, StoreError)
    with disk_errors(folder, StoreError), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
