"""A store that was left half-way: what counts, and who may go on with it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import StoreError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import (
    ArraySpec,
    Done,
    Failed,
    Recipe,
    Status,
    StoreWriter,
    commit,
    open_store,
    shards,
)

MANIFEST = Manifest("made-up", Items.of([Item(f"tt{row}") for row in range(4)]))
RECIPE = Recipe(
    name="toy",
    backbone={"name": "toy", "revision": None, "weights_sha256": "ab" * 32, "config": {}},
    preprocessing={"mode": "standard", "crop": (8, 8)},
    precision="float32",
    arrays=(ArraySpec("native", (3,), "float32", "three numbers"),),
)
ONES = Done({"native": np.ones(3)}, "a")
TWOS = Done({"native": np.full(3, 2.0)}, "b")
BROKEN = Failed(Status.UNREADABLE, "broken")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    StoreWriter.create(tmp_path / "toy.zarr", MANIFEST, RECIPE, block_rows=2)
    return tmp_path / "toy.zarr"


def resume(path: Path) -> StoreWriter:
    return StoreWriter.resume(path, MANIFEST, RECIPE, block_rows=2)


def test_a_block_without_its_record_does_not_exist(path):
    writer = resume(path)
    writer.write_block(0, [ONES, ONES])
    writer.write_block(1, [TWOS, TWOS])
    (path / "blocks/000001.json").unlink()  # as if killed just before

    store = open_store(path)
    assert store.status.tolist() == [1, 1, 0, 0]
    assert np.isnan(store.read("native", missing="nan")[2:]).all()
    with pytest.raises(StoreError, match="tt2 is not done yet"):
        store.read("native", ["tt2"])
    assert resume(path).missing_blocks() == [1]


def test_shards_that_a_killed_run_left_do_not_leak_into_the_block(path):
    writer = resume(path)
    writer.write_block(0, [ONES, ONES])
    (path / "blocks/000000.json").unlink()
    (path / "staging/.1f2e.partial").write_bytes(b"half")
    (path / "staging/000000.native.0123456789abcdef").write_bytes(b"whole, and of no record")

    resume(path).write_block(0, [BROKEN, TWOS])
    assert np.isnan(open_store(path).read("native", missing="nan")[0]).all()
    fresh = StoreWriter.create(path.with_name("fresh.zarr"), MANIFEST, RECIPE, block_rows=2)
    fresh.write_block(0, [BROKEN, TWOS])
    for name in ("native/c/0", "blocks"):
        files = {file.name: file.read_bytes() for file in (path / name).iterdir()}
        expected = (path.with_name("fresh.zarr") / name).iterdir()
        assert files == {file.name: file.read_bytes() for file in expected}


def test_what_was_committed_and_not_moved_is_read_and_moved(path):
    """As after a kill between the record and the move of the shards."""
    record = resume(path).write_block(0, [ONES, TWOS])
    staged = path / f"staging/000000.native.{record.shards['native'][:16]}"
    os.replace(path / "native/c/0/0", staged)

    assert open_store(path).read("native", missing="nan")[:2].tolist() == [[1, 1, 1], [2, 2, 2]]
    resume(path)
    assert not staged.exists()
    assert open_store(path).read("native", missing="nan")[:2].tolist() == [[1, 1, 1], [2, 2, 2]]


def test_a_block_of_failures_only_has_no_shard(path):
    record = resume(path).write_block(0, [BROKEN, BROKEN])
    assert record.shards == {"native": None}
    assert not (path / "native/c/0").exists()
    assert open_store(path).status.tolist() == [3, 3, 0, 0]


def test_a_block_is_written_once(path):
    resume(path).write_block(0, [ONES, ONES])
    with pytest.raises(StoreError, match=r"block 0 .* is written already"):
        resume(path).write_block(0, [TWOS, TWOS])
    assert open_store(path).read("native", missing="nan")[0].tolist() == [1, 1, 1]


def test_of_two_writers_of_one_block_the_second_is_told(path, monkeypatch):
    first, second = resume(path), resume(path)
    write = shards.write_shard

    def overtaken(*args):
        monkeypatch.undo()
        first.write_block(0, [ONES, ONES])
        return write(*args)

    monkeypatch.setattr(commit, "write_shard", overtaken)
    with pytest.raises(StoreError, match="another process wrote block 0"):
        second.write_block(0, [TWOS, TWOS])
    assert open_store(path).status.tolist() == [1, 1, 0, 0]
    assert open_store(path).read("native", missing="nan")[:2].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert list((path / "staging").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"backbone": RECIPE.backbone | {"weights_sha256": "cd" * 32}}, "backbone weights"),
        ({"preprocessing": {"mode": "author"}}, "preprocessing"),
        ({"precision": "float16"}, r"precision \(float32 there, float16 here\)"),
        ({"arrays": (ArraySpec("native", (4,), "float32", ""),)}, "arrays"),
    ],
)
def test_only_the_same_recipe_goes_on(path, change, named):
    with pytest.raises(StoreError, match=f"made with other {named}"):
        StoreWriter.resume(path, MANIFEST, replace(RECIPE, **change), block_rows=2)


def test_only_the_same_items_go_on(path):
    other = Manifest("made-up", Items.of([Item(f"tt{row}") for row in (0, 1, 3, 2)]))
    with pytest.raises(StoreError, match="made with other items"):
        StoreWriter.resume(path, other, RECIPE, block_rows=2)


def test_a_manifest_without_items_gets_no_store(tmp_path):
    with pytest.raises(StoreError, match="'made-up' has no items"):
        StoreWriter.create(tmp_path / "toy.zarr", Manifest("made-up", Items.of([])), RECIPE)


def test_a_revision_of_equal_weights_goes_on(path):
    renamed = replace(RECIPE, backbone=RECIPE.backbone | {"revision": "main"})
    assert StoreWriter.resume(path, MANIFEST, renamed, block_rows=2).missing_blocks() == [0, 1]
