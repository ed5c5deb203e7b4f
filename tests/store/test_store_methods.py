"""The everyday methods of a store, with paths as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.store import StoreWriter
from tests.store import toys


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(toys.a_store(tmp_path / "toy.zarr"))


def test_a_store_is_finalised_verified_and_compared(path, tmp_path):
    before = of.open_store(path).read("native", missing="nan")
    store = of.open_store(path).finalise()
    assert store.is_final
    assert store.verify() == []
    np.testing.assert_array_equal(store.read("native", missing="nan"), before)
    part = store.subset(str(tmp_path / "part.zarr"), ids=store.ids[:4])
    assert part.ids == store.ids[:4]
    assert store.diff(str(tmp_path / "part.zarr")).rows["native"].n == 4


def test_parts_are_merged_by_their_paths(tmp_path):
    paths = [str(toys.a_store(tmp_path / f"{film}.zarr", 4, film=film)) for film in ("tt1", "tt2")]
    merged = of.merge(paths, str(tmp_path / "all.zarr"))
    assert merged.info()["rows"] == {"all": 8, "done": 8, "failed": 0, "to_do": 0}


def test_a_store_is_exported_and_pushed(path, tmp_path):
    store = of.open_store(path).finalise()
    assert store.export(str(tmp_path / "toy.h5"), arrays=["native"]) == tmp_path / "toy.h5"
    store.push(str(tmp_path / "there.zarr"))
    assert of.open_store(str(tmp_path / "there.zarr")).ids == store.ids


def test_a_dataset_has_the_rows_that_are_done(path):
    store = of.open_store(path)
    dataset = store.dataset("frames")
    assert (dataset.ids, len(dataset)) == (store.done_ids(), 17)
    item_id, frames = dataset[3]
    assert item_id == dataset.ids[3]
    np.testing.assert_array_equal(frames, store[item_id]["frames"])


def test_a_writer_takes_text(path, tmp_path):
    writer = StoreWriter.create(str(tmp_path / "new.zarr"), toys.a_manifest(4), toys.RECIPE)
    assert StoreWriter.resume(str(writer.store.path), toys.a_manifest(4), toys.RECIPE)


def test_one_row_is_read_as_several_are(path):
    """The fast way for a single id and the general way agree, in every state of a store."""
    for state in ("open", "final"):
        store = of.open_store(path) if state == "open" else of.open_store(path).finalise()
        done = store.done_ids()
        for name in store.arrays:
            rows = np.concatenate([store.read(name, [item_id]) for item_id in done])
            np.testing.assert_array_equal(rows, store.read(name, done))
            assert rows.dtype == store.read(name, done[:1]).dtype
            assert store.read(name, done[:1]).flags.writeable
