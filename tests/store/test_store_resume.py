"""Writers that were killed, overtaken or failed by the disk: what counts, who may resume.
``tests/faults`` kills writers at each system call."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import StoreError, StoreUnreadable
from obygaze_features.manifests import Item, Items
from obygaze_features.store import Done, Failed, Status, StoreWriter
from tests.kit.store import plain_recipe

ITEMS = Items.of([Item(f"tt{row}") for row in range(4)])
RECIPE = plain_recipe()
BROKEN = Failed(Status.UNREADABLE, "broken")


def row(number: float) -> Done:
    return Done({"native": np.full(3, number)}, "ab" * 32)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """An empty store, on a disk without hard links."""
    refused = PermissionError(errno.EPERM, "Operation not permitted")
    monkeypatch.setattr(os, "link", Mock(side_effect=refused))
    StoreWriter.create(tmp_path / "toy.zarr", ITEMS, RECIPE, block_rows=2)
    return tmp_path / "toy.zarr"


def resume(path) -> StoreWriter:
    return StoreWriter.resume(str(path), ITEMS, RECIPE, block_rows=2)


def native(path) -> list[float]:
    return of.open_store(path).read("native", missing="nan")[:, 0].tolist()


def test_writers_of_one_block_keep_each_others_rows(tmp_path):
    items = Items.of([Item(f"tt{row}") for row in range(16)])
    for number in range(3):
        path = tmp_path / f"{number}.zarr"
        StoreWriter.create(path, items, RECIPE, block_rows=16)
        writers = [StoreWriter(of.open_store(path)) for _ in range(16)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda r, w=writers: w[r].write_rows({r: row(r)}), range(16)))
        assert native(path) == [*range(16)]
        assert of.verify(path) == []


def test_a_writer_sees_the_rows_of_another_before_it_writes(path):
    first = resume(path)
    second = resume(path)
    first.write_rows({0: row(1)})
    second.write_rows({1: row(2)})
    first.write_rows({0: BROKEN, 1: BROKEN})
    assert native(path)[:2] == [1, 2]


@pytest.mark.parametrize("link", ["staging", "blocks", "native/c/0"])
def test_a_store_with_links_is_not_written(path, tmp_path, link):
    resume(path).write_rows({2: row(3)})
    private = tmp_path / "private"
    private.mkdir()
    folder = path / link
    if folder.exists():
        folder.rename(tmp_path / "moved")
    folder.symlink_to(private)
    for change in (resume, lambda path: of.finalise(path, allow_incomplete=True)):
        with pytest.raises(StoreError, match=f"{link} is a link"):
            change(path).write_rows({0: row(1)})
    assert not list(private.iterdir())


def test_committed_shards_are_read_and_moved_from_staging(path):
    """As after a writer that was killed between a new record and the move of its shards."""
    shard = path / "native/c/0/0"
    resume(path).write_rows({0: row(1)})
    before = shard.read_bytes()
    resume(path).write_rows({1: row(2)})
    sha256 = of.open_store(path).records[0].shards["native"]
    staged = path / f"staging/000000.native.{sha256[:16]}"
    os.replace(shard, staged)
    shard.write_bytes(before)
    assert native(path)[:2] == [1, 2]
    assert of.verify(path) == []
    resume(path)
    assert not staged.exists()
    assert native(path)[:2] == [1, 2]


def test_a_finalised_store_refuses_its_writer(path):
    resume(path).write_rows({0: row(1), 1: row(2)})
    writer = resume(path)
    of.finalise(path, allow_incomplete=True)
    with pytest.raises(StoreUnreadable, match="has been replaced since it was opened"):
        writer.write_rows({2: row(3), 3: row(4)})
    assert of.open_store(path).status.tolist() == [1, 1, 0, 0]
    assert native(path)[:2] == [1, 2]
    assert of.verify(path) == []
