"""Writers that the disk fails, and claims: nothing is lost, nothing is wrong.

``tests/faults`` kills writers at each system call.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import BlockTaken, StoreError
from obygaze_features.store import (
    ArraySpec,
    Done,
    StoreWriter,
    finalise,
    open_store,
    repair,
    subset,
    verify,
)
from obygaze_features.store.claims import BlockClaims, Claims
from tests.kit import store as toys


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MiB, which a test can fill and make read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small tmpfs takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_full_or_read_only(small_disk, tmp_path):
    def compute(row):
        return Done({"tokens": np.full((1024, 512), row)}, f"{row:064x}")

    recipe = toys.plain_recipe(ArraySpec("tokens", (1024, 512), "float16", "large"))
    options = {"manifest": toys.plain_manifest(36), "recipe": recipe, "block_rows": 3}
    path, full = small_disk / "toy.zarr", "No space left on device"
    writer = StoreWriter.create(path, **options)
    with pytest.raises(StoreError, match=f"toy.zarr cannot be written: {full}"):
        toys.fill(writer, None, compute)
    store = open_store(path)
    assert len(store.records) in range(5, 10)
    for item_id, row in zip(store.done_ids(), store.read("tokens", missing="drop"), strict=True):
        assert (row == int(item_id[2:])).all()
    # What was on its way stays until the block is written again, or until a repair.
    assert {Path(entry.file).parent.name for entry in verify(path)} <= {"staging"}
    with pytest.raises(StoreError, match=full):
        finalise(path, allow_incomplete=True)
    with pytest.raises(StoreError, match=full):
        subset(open_store(path), small_disk / "some.zarr", ids=open_store(path).ids[:20])
    assert [file.name for file in small_disk.iterdir()] == ["toy.zarr"]
    subprocess.run(["mount", "-o", "remount,size=256m", str(small_disk)], check=True)
    toys.fill(StoreWriter.resume(path, **options), None, compute)
    toys.fill(StoreWriter.create(tmp_path / "whole.zarr", **options), None, compute)
    assert toys.contents(path) == toys.contents(tmp_path / "whole.zarr")
    # Now it may only be read.
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert verify(path) == []
    for change in (
        lambda: Claims(path / "claims").take(4),
        lambda: finalise(path),
        lambda: repair(path),
        lambda: toys.a_store(small_disk / "other.zarr"),
    ):
        with pytest.raises(StoreError, match="Read-only file system"):
            change()


def test_claims_say_who_is_at_work(tmp_path):
    ours, other = (Claims(tmp_path / "claims", lease=0.2) for _ in range(2))
    with ours.heartbeat():
        assert ours.take(3)
        time.sleep(0.5)
        assert not other.take(3)
        assert other.active_blocks() == [3]
        dead = tmp_path / "claims/000005.json"
        owner = {"owner": "x", "host": os.uname().nodename, "process": 2**22 + 1}
        dead.write_text(json.dumps(owner))
        assert other.stale_files() == [dead]
    assert other.active_blocks() == []


def test_an_owner_that_was_paused_past_its_lease_is_overtaken(tmp_path):
    path = toys.a_store(tmp_path / "toy.zarr", blocks=[])
    writers = [toys.resume(path) for _ in range(2)]
    paused, other = (BlockClaims({"": writer}) for writer in writers)
    block, rows = [toys.a_row(row) for row in range(12, 16)], {"": range(12, 16)}
    assert paused.take(3, rows)
    assert not other.take(3, rows)
    toys.age(path / "claims/000003.json")
    assert other.take(3, rows) == {"": [12, 13, 14, 15]}
    paused.release(3, [""])  # which is another's by now
    assert not paused.take(3, rows)
    writers[1].write_block(3, block)
    with pytest.raises(BlockTaken, match="block 3"):
        writers[0].write_block(3, block)
    other.release(3, [""])
    assert paused.take(3, rows) == {}
    assert list((path / "claims").iterdir()) == []
    assert verify(path) == []


def test_a_claim_that_appears_between_two_looks_is_kept(tmp_path, monkeypatch):
    """Two writers that start on a block together: the later one must not remove the claim."""
    first, late = Claims(tmp_path / "claims"), Claims(tmp_path / "claims")
    exists, taken = Path.exists, []

    def exists_just_before_the_other_takes(path):
        found = exists(path)
        if path.name == "000003.json" and not taken:
            taken.append(True)
            assert first.take(3)
        return found

    with first.heartbeat():
        monkeypatch.setattr(Path, "exists", exists_just_before_the_other_takes)
        assert not late.take(3)
