"""Filling a store: who writes which block, and what may go on with what.

How a block gets to disk is in `commit`, the files of a new store in `layout`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import disk_errors, new_folder
from obygaze_features.common.text import join_some
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as spec
from obygaze_features.store.claims import LEASE, Claims
from obygaze_features.store.commit import (
    BlockWriter,
    Done,
    Failed,
    finish_moves,
    is_written,
    move,
)
from obygaze_features.store.format import BlockRecord, Recipe, Status
from obygaze_features.store.layout import append_to_log, lay_out
from obygaze_features.store.metadata import check_attributes
from obygaze_features.store.reader import Store, open_store

if TYPE_CHECKING:
    from obygaze_features.manifests import Manifest

__all__ = ["StoreWriter", "differences", "open_to_resume", "part_of"]


class StoreWriter:
    """Fills a store. Make one with `create`, or go on with `resume`.

    Several writers, processes or machines over a shared file system, may fill one store: each
    block is written by one of them. Share the work by `missing_blocks(part="2/4")`, or by
    `claimed`, or let them race: the commit record decides.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        if not store.is_final:
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
        check_attributes(path, attributes)
        with disk_errors(path, StoreError), new_folder(path) as folder:
            lay_out(folder, attributes, recipe.arrays, manifest.items, probe or {})
        writer = cls(open_store(path))
        writer.log("created")
        return writer

    @classmethod
    def resume(
        cls, path: Path, manifest: Manifest, recipe: Recipe, *, block_rows: int | None = None
    ) -> StoreWriter:
        """Open a store to fill what it lacks; `StoreError` if it was made with something else."""
        return cls(open_to_resume(path, manifest, recipe, block_rows=block_rows))

    def missing_blocks(self, part: str | None = None) -> list[int]:
        """The blocks that have no record; with ``part="2/4"`` every fourth, from the second on."""
        if self.store.is_final:
            return []
        blocks = np.arange(self.store.blocks)
        mine = blocks[part_of(blocks, part)].tolist() if part else blocks.tolist()
        return [block for block in mine if not self.is_written(block)]

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
                if claims.take(block):
                    # Somebody may have written it between the look and the claim.
                    if not self.is_written(block):
                        found = True
                        yield block
                    claims.release(block)

    def rows_of(self, block: int) -> range:
        """The rows of a block."""
        return spec.rows_of_block(block, len(self.store), self.store.block_rows)

    def block(self, block: int) -> BlockWriter:
        """A block to be filled row by row, in any order."""
        return BlockWriter(self.store, block)

    def write_block(self, block: int, rows: Sequence[Done | Failed | None]) -> BlockRecord:
        """Write a block, given what became of its rows in order; None leaves a row to do."""
        wanted = self.rows_of(block)
        if len(rows) != len(wanted):
            raise StoreError(f"block {block} has {len(wanted)} rows, {len(rows)} were given")
        writer = self.block(block)
        for row, outcome in zip(wanted, rows, strict=True):
            writer.put(row, outcome)
        return writer.commit()

    def is_written(self, block: int) -> bool:
        """Whether a block is there by now, whoever wrote it."""
        return is_written(self.store, block)

    def rewrite(self, block: int, rows: Mapping[int, Done | Failed]) -> BlockRecord:
        """Write a block again, with what became of rows that it lacked; those done are kept.

        Where all came out as before, nothing is written.
        """
        # Read from disk, not from what this writer saw when it opened the store.
        store = open_store(self.store.path)
        record = store.record_of(block)
        if record is None:
            raise StoreError(f"block {block} of {store.path} is not written yet")
        writer, news = BlockWriter(store, block), False
        for row, status, source in zip(
            self.rows_of(block), record.status, record.sources, strict=True
        ):
            known: Done | Failed | None = None
            if status == Status.DONE:
                known = Done(store[store.ids[row]], source)
            elif status > Status.DONE:
                known = Failed(Status(status), record.failures[store.ids[row]], source)
            outcome = known if isinstance(known, Done) else rows.get(row, known)
            news |= outcome != known
            writer.put(row, outcome)
        if not news:
            return record
        move(store, record)  # so that nobody who still has this to do can undo what comes
        return writer.commit(instead_of=record)

    def log(self, event: str, **fields: Any) -> None:
        """Append to the one file for all that differs between two equal stores."""
        with disk_errors(self.store.path, StoreError):
            append_to_log(self.store.path, event, **fields)


def open_to_resume(
    path: Path, manifest: Manifest, recipe: Recipe, *, block_rows: int | None = None
) -> Store:
    """A store that may be gone on with, as it is; `StoreError` if it was made otherwise."""
    store = open_store(path)
    if store.is_final and not store.status.all():
        raise StoreError(
            f"{path} is finalised, and read-only; to fill rows that it lacks, open it again "
            f"with: obygaze stores repair {path} --reopen"
        )
    now = recipe.attributes() | {
        "items_digest": manifest.digest,
        "block_rows": block_rows or store.block_rows,
    }
    if found := differences(store.attributes, now):
        raise StoreError(
            f"{path} cannot be continued, it was made with other "
            f"{' and other '.join(found)}; give the same as then, or another output"
        )
    return store


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What keeps rows of two stores apart, for people: items, weights, preprocessing ..."""
    apart = {what: (one, two) for what, one, two in _pairs(was, now) if one != two}
    if "backbone weights" in apart:  # of another network, whose settings are others, too
        apart.pop("backbone settings", None)
    return [f"{what} ({_apart(*values)})" for what, values in apart.items()]


def part_of(blocks: NDArray[np.intp], part: str) -> NDArray[np.bool_]:
    """Which of some blocks are in a part: ``"2/4"`` is every fourth, from the second on."""
    first, _, step = part.partition("/")
    if not (first.isdecimal() and step.isdecimal() and 1 <= int(first) <= int(step)):
        raise UsageError(f"a part is I/N with I from 1 to N, for example 2/4, not {part!r}")
    mine: NDArray[np.bool_] = blocks % int(step) == int(first) - 1
    return mine


def _pairs(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What must be equal, by the name that a person knows it by."""
    return [
        ("items", was["items_digest"], now["items_digest"]),
        (
            "backbone weights",
            was["backbone"]["weights_sha256"],
            now["backbone"]["weights_sha256"],
        ),
        ("backbone settings", was["backbone"]["config"], now["backbone"]["config"]),
        ("preprocessing", was["preprocessing"], now["preprocessing"]),
        ("precision", was["precision"], now["precision"]),
        ("arrays", was["arrays"], now["arrays"]),
        ("rows a block", was["block_rows"], now["block_rows"]),
    ]


def _apart(was: Any, now: Any) -> str:
    """In what two values differ: of two mappings the keys."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        if len(keys) > 1:
            return join_some(keys, limit=3)
        return f"{keys[0]}: {_apart(was.get(keys[0]), now.get(keys[0]))}"
    return f"{_short(was)} there, {_short(now)} here"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    is_whole = len(text) <= 16 or text.startswith("unknown:")  # not a digest, but a name
    return text if is_whole else f"{text[:12]}..."
