"""A writer in a process of its own, that lets the test see what it is doing when it is killed."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.errors import StoreError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import ArraySpec, Done, Failed, Recipe, Status, StoreWriter, shards
from obygaze_features.store import commit as writing

PHASES = ("starting", "computing", "writing", "fsync", "commit", "finished")
ROWS, BLOCK_ROWS = 72, 3
MANIFEST = Manifest("made-up", Items.of([Item(f"tt{row:03}") for row in range(ROWS)]))
RECIPE = Recipe(
    name="toy",
    backbone={"name": "toy", "revision": None, "weights_sha256": "ab" * 32, "config": {}},
    preprocessing={},
    precision="float32",
    arrays=(
        ArraySpec("native", (512,), "float32", "small"),
        ArraySpec("tokens", (1024, 512), "float16", "large"),
    ),
)


def compute(row: int) -> Done | Failed:
    if row % 10 == 7:
        return Failed(Status.MISSING, f"clip {row} is not there")
    native = np.random.default_rng(row).normal(size=512)
    return Done({"native": native, "tokens": np.tile(native, (1024, 1))}, f"{row:064x}")


def new_store(path: Path) -> StoreWriter:
    return StoreWriter.create(path, MANIFEST, RECIPE, block_rows=BLOCK_ROWS)


def resume(path: Path) -> StoreWriter:
    return StoreWriter.resume(path, MANIFEST, RECIPE, block_rows=BLOCK_ROWS)


def write(path: Path, seen: Path) -> None:
    """Write all missing blocks, one after the other. For a process that does nothing else."""
    note = _observed(seen)
    writer = resume(path)
    for block in writer.missing_blocks():
        note("computing", f"begun {block}")
        rows = [compute(row) for row in writer.rows_of(block)]
        note("writing")
        writer.write_block(block, rows)
        note("computing", f"written {block}")
    note("finished")


def write_by_claims(path: Path, seen: Path, lease: float, pause: float) -> None:
    """Write with others, until nothing is missing any more."""
    note = _observed(seen)
    writer = resume(path)
    while writer.missing_blocks():
        with writer.claimed(lease=lease) as blocks:
            for block in blocks:
                note("computing", f"begun {block}")
                rows = [compute(row) for row in writer.rows_of(block)]
                time.sleep(pause)
                note("writing")
                try:
                    writer.write_block(block, rows)
                except StoreError as problem:
                    note("computing", f"late {block} {problem}")
                else:
                    note("computing", f"written {block}")
        time.sleep(lease / 4)
    note("finished")


def phase_of(seen: Path) -> str:
    """What a writer is doing, or was doing when it was killed."""
    return PHASES[seen.read_bytes()[0]]


def notes_of(seen: Path) -> list[str]:
    log = seen.with_suffix(".log")
    return log.read_text().splitlines() if log.exists() else []


def _observed(seen: Path) -> Callable[..., None]:
    """Keep the phase in a mapped byte, which outlives a kill, and events in a log."""
    with seen.open("r+b") as file:
        byte = mmap.mmap(file.fileno(), 1)
    log = os.open(seen.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(phase: str, event: str = "") -> None:
        byte[0] = PHASES.index(phase)
        if event:
            os.write(log, f"{event}\n".encode())

    fsync, publish, stage = os.fsync, writing.publish_exclusively, writing.write_shard

    def observed_stage(*args: Any) -> str:
        note("writing")
        shards.os.fsync = observed_fsync  # type: ignore[attr-defined]
        try:
            return stage(*args)
        finally:
            shards.os.fsync = fsync  # type: ignore[attr-defined]

    def observed_fsync(descriptor: int) -> None:
        note("fsync")
        fsync(descriptor)
        note("writing")

    def observed_publish(*args: Any) -> bool:
        note("commit")  # and what follows: the shards get their names
        return publish(*args)

    writing.write_shard = observed_stage  # type: ignore[attr-defined]
    writing.publish_exclusively = observed_publish  # type: ignore[attr-defined]
    return note
