"""A store that is finalised, or replaced by another, while somebody reads it."""

from __future__ import annotations

import importlib
import os
import pickle
import shutil

import numpy as np
import pytest

from obygaze_features.errors import StoreError, StoreUnreadable
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import ArraySpec, Done, StoreWriter, finalise, open_store, verify
from tests.kit.store import STATES, plain_recipe

#: The module; the package has a function of that name.
finalising = importlib.import_module("obygaze_features.store.finalise")
IDS = [f"tt{number}" for number in range(6)]
RECIPE = plain_recipe(
    ArraySpec("native", (3,), "float32", "three numbers"),
    ArraySpec("frame_index", (2,), "int32", "two numbers"),
)


def row(number):
    return Done({"native": np.full(3, number), "frame_index": np.array([1, 2])}, "ab" * 32)


def make(path, state="open", ids=IDS, number=None):
    """A store whose rows are the numbers in their ids, or all the same number."""
    manifest = Manifest("made-up", Items.of([Item(item_id) for item_id in ids]))
    writer = StoreWriter.create(path, manifest, RECIPE, block_rows=2)
    for block in writer.missing_blocks():
        rows = [row(int(ids[n][2:]) if number is None else number) for n in writer.rows_of(block)]
        writer.write_block(block, rows)
    if state != "open":
        finalise(path, compress=state == "compressed")
    return path


def native(path):
    return open_store(path).read("native", missing="nan")[:, 0].tolist()


def test_finalise_gives_way_to_a_writer(tmp_path, monkeypatch):
    """A block is committed between finalise's look and the exchange: nothing is lost."""
    path = tmp_path / "toy.zarr"
    manifest = Manifest("made-up", Items.of([Item(item_id) for item_id in IDS[:4]]))
    writer = StoreWriter.create(path, manifest, RECIPE, block_rows=2)
    writer.write_block(0, [row(0), row(1)])
    fill = finalising._write_final

    def overtaken(*args, **options):
        fill(*args, **options)
        writer.write_block(1, [row(2), row(3)])

    with monkeypatch.context() as patch:
        patch.setattr(finalising, "_write_final", overtaken)
        with pytest.raises(StoreError, match="was written to in the meantime"):
            finalise(path, allow_incomplete=True)
    assert native(path) == [0, 1, 2, 3]
    assert verify(path) == []

    asked, unasked = open_store(path), open_store(path)
    assert asked.status.all()
    finalise(path)
    assert native(path) == [0, 1, 2, 3]
    for store in (asked, unasked):  # a reader is told
        with pytest.raises(StoreUnreadable, match=r"was replaced .*; open it again"):
            store.read("native", missing="nan")


@pytest.mark.parametrize("state", STATES)
def test_no_row_of_a_store_that_took_the_place(tmp_path, state):
    """The same ids in another order, so that a row number means another clip."""
    path = make(tmp_path / "toy.zarr", state)
    unread, asked, partly = (open_store(path) for _ in range(3))
    assert asked.ids == partly.ids == IDS
    assert partly.read("native")[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    dataset = open_store(path).dataset("native")
    pickled = pickle.dumps(dataset)
    os.rename(path, tmp_path / "old.zarr")
    make(tmp_path / "new.zarr", state, IDS[::-1])
    os.rename(tmp_path / "new.zarr", path)
    for read in (
        lambda: unread.read("native", IDS),
        lambda: unread.items,
        lambda: unread.status,
        lambda: asked["tt1"],
        lambda: list(asked.iter_blocks()),
        lambda: partly.read("frame_index"),
        lambda: asked.sources,
        lambda: dataset[1],
        lambda: pickle.loads(pickled)[0],
    ):
        with pytest.raises(StoreUnreadable, match="was replaced"):
            read()
    if state != "compressed":  # what is mapped stays the first store's
        assert partly.read("native", IDS)[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert asked.refresh().read("native", IDS)[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert open_store(path).ids == IDS[::-1]


@pytest.mark.parametrize("state", ["final", pytest.param("open", marks=pytest.mark.gate)])
def test_a_dataset_gives_no_row_of_another_store(tmp_path, state):
    """The same ids and other numbers; and inode and time, as `rm -r` and `tar x` may give."""
    path = make(tmp_path / "toy.zarr", state, number=1)
    store = open_store(path)
    dataset = store.dataset("native")
    assert store.status.all()
    assert dataset[0][1].tolist() == [1, 1, 1]
    pickled = pickle.dumps(dataset)
    header, before = path / "zarr.json", (path / "zarr.json").stat()
    other = make(tmp_path / "other.zarr", state, number=2)
    header.chmod(0o644)
    header.write_bytes((other / "zarr.json").read_bytes())
    os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.rename(header, other / "zarr.json")
    assert (other / "zarr.json").stat().st_ino == before.st_ino  # only ctime tells
    shutil.rmtree(path)
    os.rename(other, path)
    for read in (
        lambda: store.dataset("native"),
        lambda: store.dataset("native", ["tt1"]),
        lambda: store.read("frame_index"),
        lambda: pickle.loads(pickled)[0],
    ):
        with pytest.raises(StoreUnreadable, match="was replaced since"):
            read()
    assert open_store(path).dataset("native")[0][1].tolist() == [2, 2, 2]
