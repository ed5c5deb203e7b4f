"""Writing a store, a whole block at a time.

The order of things on disk is what makes a kill harmless, and of several writers lets one win:

1. each array's shard, flushed, under a name in ``staging/`` that holds its checksum;
2. the commit record, under a name that only one writer can take. From here on the block exists;
3. the shards get their names in the arrays. Whoever opens the store next finishes this, as the
   record says which they are.

A shard that no record names is nobody's. Nothing that a record names is ever removed or
overwritten by a writer.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import (
    disk_errors,
    new_folder,
    publish_exclusively,
    sha256_of,
    sync_folder,
    to_json,
    write_text,
)
from obygaze_features.errors import BlockTaken, StoreError, UsageError
from obygaze_features.store import format as spec
from obygaze_features.store.claims import LEASE, Claims
from obygaze_features.store.format import ArraySpec, BlockRecord, Recipe, Status
from obygaze_features.store.reader import FeatureStore, open_store
from obygaze_features.store.shards import write_shard

if TYPE_CHECKING:
    import zarr

    from obygaze_features.manifests import Items, Manifest

__all__ = ["BlockWriter", "Done", "Failed", "StoreWriter", "differences"]

_STAGED = re.compile(r"[0-9]{6}[.]")


@dataclass(frozen=True)
class Done:
    """A computed row: its value in each array, and the SHA-256 of the file it comes from."""

    values: Mapping[str, NDArray[Any]]
    source: str | None


@dataclass(frozen=True)
class Failed:
    """A row that could not be computed, and why, in words for people."""

    status: Status
    reason: str
    source: str | None = None


class StoreWriter:
    """Fills a store. Make one with `create`, or go on with `resume`.

    Several writers, processes or machines over a shared file system, may fill one store: each
    block is written by one of them. Share the work by `missing_blocks(part="2/4")`, or by
    `claimed`, or let them race: the commit record decides.
    """

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        with disk_errors(store.path, StoreError):
            finish_moves(store)

    @classmethod
    def create(
        cls,
        path: Path,
        manifest: Manifest,
        recipe: Recipe,
        *,
        probe: Mapping[str, NDArray[Any]] | None = None,
        block_rows: int = spec.BLOCK_ROWS,
    ) -> StoreWriter:
        """Lay out an empty store for a manifest's items.

        Parameters
        ----------
        path
            Where; ends in ``.zarr``. `OutputExists` if something is there.
        manifest
            Its items fix the rows and their order for good.
        recipe
            What the rows are made with.
        probe
            For each array the row of the fixed synthetic clip, by which two labs can tell whether
            they speak of the same features.
        block_rows
            Rows a block; the same for every store of one extraction.
        """
        if path.suffix != ".zarr":
            raise StoreError(f"{path}: the name of a store ends in .zarr")
        if not len(manifest):
            raise StoreError(f"the manifest {manifest.name!r} has no items to make a store for")
        attributes = {
            "format_version": spec.FORMAT_VERSION,
            "state": "open",
            **recipe.attributes(),
            "manifest": manifest.name,
            "items_digest": manifest.digest,
            "n": len(manifest),
            "block_rows": block_rows,
            "licence": manifest.licence,
            "citation": manifest.citation,
            "software": f"obygaze {version('obygaze')}",
        }
        with disk_errors(path, StoreError), new_folder(path) as folder:
            lay_out(folder, attributes, recipe.arrays, manifest.items, probe or {})
        writer = cls(open_store(path))
        writer.log("created")
        return writer

    @classmethod
    def resume(
        cls, path: Path, manifest: Manifest, recipe: Recipe, *, block_rows: int = spec.BLOCK_ROWS
    ) -> StoreWriter:
        """Open a store to fill what it lacks; `StoreError` if it was made with something else."""
        store = open_store(path)
        if store.is_final:
            raise StoreError(
                f"{path} is finalised, and read-only; to fill rows that it lacks, open it again "
                f"with: obygaze stores repair {path} --reopen"
            )
        now = recipe.attributes() | {"items_digest": manifest.digest, "block_rows": block_rows}
        found = differences(store.attributes, now)
        if found:
            raise StoreError(
                f"{path} cannot be continued, it was made with other "
                f"{' and other '.join(found)}; give the same as then, or another output"
            )
        return cls(store)

    def missing_blocks(self, part: str | None = None) -> list[int]:
        """The blocks that have no record; with ``part="2/4"`` every fourth, from the second on."""
        first, step = _part(part) if part else (1, 1)
        return [
            block
            for block in range(first - 1, self.store.blocks, step)
            if not (self.store.path / spec.record_name(block)).exists()
        ]

    @contextlib.contextmanager
    def claimed(self, part: str | None = None, *, lease: float = LEASE) -> Iterator[Iterator[int]]:
        """Go through the missing blocks that nobody else is at work on, each claimed in turn.

        Examples
        --------
        ::

            with writer.claimed() as blocks:
                for block in blocks:
                    writer.write_block(block, compute(writer.rows_of(block)))
        """
        claims = Claims(self.store.path / spec.CLAIMS, lease=lease)
        with claims.heartbeat():
            yield self._claim_in_turn(claims, part)

    def _claim_in_turn(self, claims: Claims, part: str | None) -> Iterator[int]:
        # Once more as long as a pass found something: others may have given blocks back.
        found = True
        while found:
            found = False
            for block in self.missing_blocks(part):
                with disk_errors(self.store.path, StoreError):
                    taken = claims.take(block)
                if taken:
                    # Somebody may have written it between the look and the claim.
                    if not (self.store.path / spec.record_name(block)).exists():
                        found = True
                        yield block
                    claims.release(block)

    def rows_of(self, block: int) -> range:
        """The rows of a block."""
        return spec.rows_of_block(block, len(self.store), self.store.block_rows)

    def block(self, block: int) -> BlockWriter:
        """A block to be filled row by row, in any order."""
        return BlockWriter(self, block)

    def write_block(self, block: int, rows: Sequence[Done | Failed]) -> BlockRecord:
        """Write a block whose rows are all at hand, in order."""
        wanted = self.rows_of(block)
        if len(rows) != len(wanted):
            raise StoreError(f"block {block} has {len(wanted)} rows, {len(rows)} were given")
        writer = self.block(block)
        for row, outcome in zip(wanted, rows, strict=True):
            writer.put(row, outcome)
        return writer.commit()

    def rewrite_failed(self, block: int, rows: Mapping[int, Done | Failed]) -> BlockRecord:
        """Write a block again whose failed rows have been tried once more; the others are kept."""
        # Read from disk, not from what this writer saw when it opened the store.
        store = open_store(self.store.path)
        record = store.record_of(block)
        if record is None:
            raise StoreError(f"block {block} of {store.path} is not written yet")
        outcomes: list[Done | Failed] = []
        for row, status, source in zip(
            self.rows_of(block), record.status, record.sources, strict=True
        ):
            if row in rows:
                outcomes.append(rows[row])
            elif status == Status.DONE:
                outcomes.append(Done(store[store.ids[row]], source))
            else:
                reason = record.failures[store.ids[row]]
                outcomes.append(Failed(Status(status), reason, source))
        _move(store, record)  # so that nobody who still has this to do can undo what comes
        retire_record(store, block)
        return self.write_block(block, outcomes)

    def log(self, event: str, **fields: Any) -> None:
        """Append to the one file for all that differs between two equal stores."""
        with disk_errors(self.store.path, StoreError):
            append_to_log(self.store.path, event, **fields)


class BlockWriter:
    """One block on its way: rows are put in any order, and committed together."""

    def __init__(self, writer: StoreWriter, block: int) -> None:
        self.store, self.block = writer.store, block
        self.rows = writer.rows_of(block)
        self._outcomes: dict[int, Done | Failed] = {}
        if not self.rows:
            raise StoreError(f"{self.store.path} has no block {block}")
        self._refuse_if_written()

    def put(self, row: int, outcome: Done | Failed) -> None:
        """Say what became of a row. A value that its array cannot hold makes it a failure."""
        if row not in self.rows:
            raise StoreError(f"row {row} is not in block {self.block} of {self.store.path}")
        self._outcomes[row] = _checked(self.store, outcome)

    def commit(self) -> BlockRecord:
        """Write every array's shard, then the record; the block exists from then on."""
        with disk_errors(self.store.path, StoreError):
            return self._commit()

    def _commit(self) -> BlockRecord:
        missing = [row for row in self.rows if row not in self._outcomes]
        if missing:
            raise StoreError(
                f"block {self.block} of {self.store.path} lacks {len(missing)} rows, "
                f"such as {self.store.ids[missing[0]]}"
            )
        self._refuse_if_written()
        outcomes = [self._outcomes[row] for row in self.rows]
        record = BlockRecord(
            block=self.block,
            status=tuple(
                int(Status.DONE if isinstance(one, Done) else one.status) for one in outcomes
            ),
            sources=tuple(one.source for one in outcomes),
            failures={
                self.store.ids[row]: one.reason
                for row, one in zip(self.rows, outcomes, strict=True)
                if isinstance(one, Failed)
            },
            shards={one.name: self._stage(one, outcomes) for one in self.store.specs},
        )
        sync_folder(self.store.path / spec.STAGING)
        path = self.store.path / spec.record_name(self.block)
        if not publish_exclusively(path, record.to_bytes()):
            self._withdraw(record)
            raise BlockTaken(
                f"another process wrote block {self.block} of {self.store.path} at the same time; "
                "its rows are kept, these are not needed"
            )
        _move(self.store, record)
        self._confirm(record)
        return record

    def _stage(self, one: ArraySpec, outcomes: Sequence[Done | Failed]) -> str | None:
        """Write one shard, once and flushed, and give its SHA-256."""
        chunks = [row.values[one.name] if isinstance(row, Done) else None for row in outcomes]
        if not any(chunk is not None for chunk in chunks):
            return None
        layout = spec.shard_layout(one, self.store.block_rows)
        folder = self.store.path / spec.STAGING
        folder.mkdir(exist_ok=True)
        temporary = folder / f".{uuid.uuid4().hex}.partial"
        try:
            sha256 = write_shard(temporary, chunks, layout)
            os.replace(temporary, self.store.path / spec.staged_name(one, self.block, sha256))
        finally:
            temporary.unlink(missing_ok=True)
        return sha256

    def _confirm(self, record: BlockRecord) -> None:
        """Take the record back if its shards are gone, as a repair in between might have it."""
        for one in self.store.specs:
            shard = self.store.path / spec.shard_name(one, self.block)
            if record.shards[one.name] and not shard.exists():
                retire_record(self.store, self.block)
                raise StoreError(
                    f"the shard of {one.name} of block {self.block} vanished from {self.store.path} "
                    "while it was written; let nobody repair a store that is being filled"
                )

    def _withdraw(self, record: BlockRecord) -> None:
        """Remove what was staged in vain, unless the winner's shards are the very same."""
        winner = open_store(self.store.path).record_of(self.block)
        for one in self.store.specs:
            sha256 = record.shards[one.name]
            if sha256 and (winner is None or winner.shards.get(one.name) != sha256):
                staged = self.store.path / spec.staged_name(one, self.block, sha256)
                staged.unlink(missing_ok=True)

    def _refuse_if_written(self) -> None:
        if (self.store.path / spec.record_name(self.block)).exists():
            raise BlockTaken(f"block {self.block} of {self.store.path} is written already")


def lay_out(
    folder: Path,
    attributes: Mapping[str, Any],
    arrays: Sequence[ArraySpec],
    items: Items,
    probe: Mapping[str, NDArray[Any]],
) -> None:
    """Make of an empty folder an open store that has no rows yet."""
    import zarr

    group = zarr.create_group(folder, attributes={spec.ATTRIBUTES: dict(attributes)})
    for one in arrays:
        group.create_array(**spec.array_layout(one, len(items), attributes["block_rows"]))
    ids = spec.encode_ids(items.ids)
    group.create_array(**spec.ids_layout(*ids.shape))[:] = ids
    (folder / spec.ITEMS).write_bytes(items.to_csv().encode())
    if probe:
        _write_probe(group, arrays, probe)
    write_checksums(folder)
    for name in (spec.RECORDS, spec.STAGING, spec.CLAIMS):
        (folder / name).mkdir()


def write_checksums(folder: Path, known: Mapping[str, str] | None = None) -> None:
    """List the SHA-256 of every file there is, but of the log, which goes on.

    Those that are `known` already are not computed again.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    sums = {
        name: (known or {}).get(name) or sha256_of(folder / name)
        for name in names
        if name not in (spec.LOG, spec.CHECKSUMS)
    }
    write_text(folder / spec.CHECKSUMS, to_json(sums))


def append_to_log(path: Path, event: str, **fields: Any) -> None:
    """Note in a store's log what was done to it, when and where."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "event": event,
        "host": platform.node(),
        "python": platform.python_version(),
        "zarr": version("zarr"),
        **fields,
    }
    with (path / spec.LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def finish_moves(store: FeatureStore) -> None:
    """Give committed shards that still lie in ``staging/`` their names in the arrays."""
    staged = (path.name for path in (store.path / spec.STAGING).glob("*"))
    for block in sorted({int(name[:6]) for name in staged if _STAGED.match(name)}):
        if record := store.record_of(block):
            _move(store, record)


def retire_record(store: FeatureStore, block: int) -> None:
    """Make a block one that does not exist; its shards are nobody's from then on.

    The record is renamed away first: of several who try, one succeeds.
    """
    path = store.path / spec.record_name(block)
    aside = store.path / spec.STAGING / f".{uuid.uuid4().hex}.retired"
    aside.parent.mkdir(exist_ok=True)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        raise StoreError(f"block {block} of {store.path} has no record any more") from None
    sync_folder(path.parent)
    aside.unlink()


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What keeps rows of two stores apart, for people: items, weights, preprocessing ..."""
    return [
        f"{what} ({_short(before)} there, {_short(after)} here)"
        for what, before, after in _pairs(was, now)
        if before != after
    ]


def _move(store: FeatureStore, record: BlockRecord) -> None:
    for one in store.specs:
        sha256 = record.shards[one.name]
        target = store.path / spec.shard_name(one, record.block)
        if sha256 is None:
            # Nothing is removed here: what lies there may be another writer's by now.
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # Somebody else may have moved it: then there is nothing left to do.
        with contextlib.suppress(FileNotFoundError):
            os.replace(store.path / spec.staged_name(one, record.block, sha256), target)
        folder = target.parent
        while folder != store.path:
            sync_folder(folder)
            folder = folder.parent


def _checked(store: FeatureStore, row: Done | Failed) -> Done | Failed:
    """The row in the arrays' own number formats, if these can hold it."""
    if isinstance(row, Failed):
        return row
    values = {}
    for one in store.specs:
        with np.errstate(over="ignore"):
            value = np.asarray(row.values[one.name]).astype(one.dtype, copy=False)
        if value.shape != one.shape:
            raise StoreError(f"a row of {one.name} has shape {one.shape}, not {value.shape}")
        if not _can_be_held(value, one):
            reason = f"{one.name} has a value that {one.dtype} cannot hold"
            return Failed(Status.NOT_FINITE, reason, row.source)
        values[one.name] = value
    return replace(row, values=values)


def _can_be_held(value: NDArray[Any], one: ArraySpec) -> bool:
    """Whether a row has neither infinities nor the array's fill value."""
    if value.dtype == np.float16:
        # Thirty times faster than isfinite: infinities and NaN are the bit patterns from 7C00 on.
        return int((value.view(np.uint16) & 0x7FFF).max(initial=0)) < 0x7C00
    if value.dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return not bool(one.is_fill(value).any())


def _write_probe(
    group: zarr.Group, arrays: Sequence[ArraySpec], probe: Mapping[str, NDArray[Any]]
) -> None:
    """The probe's rows, each array as if its store had one item."""
    inner = group.create_group(spec.PROBE)
    for one in arrays:
        if one.name in probe:
            array = inner.create_array(**spec.array_layout(one, 1, 1))
            array[:] = np.asarray(probe[one.name])[None].astype(one.dtype)


def _part(text: str) -> tuple[int, int]:
    first, _, step = text.partition("/")
    if first.isdecimal() and step.isdecimal() and 1 <= int(first) <= int(step):
        return int(first), int(step)
    raise UsageError(f"a part is I/N with I from 1 to N, for example 2/4, not {text!r}")


def _pairs(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What must be equal, by the name that a person knows it by."""
    return [
        ("items", was["items_digest"], now["items_digest"]),
        (
            "backbone weights",
            was["backbone"]["weights_sha256"],
            now["backbone"]["weights_sha256"],
        ),
        ("preprocessing", was["preprocessing"], now["preprocessing"]),
        ("precision", was["precision"], now["precision"]),
        ("arrays", was["arrays"], now["arrays"]),
        ("rows a block", was["block_rows"], now["block_rows"]),
    ]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 16 else f"{text[:12]}..."
