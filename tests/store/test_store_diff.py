"""What two stores have in common, and how far they agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from obygaze_features.store import (
    Done,
    Failed,
    StoreWriter,
    diff,
    finalise,
    merge,
    open_store,
    subset,
)
from tests.store import toys


def noisy(row: int, scale: float) -> Done | Failed:
    done = toys.a_row(row)
    if isinstance(done, Failed):
        return done
    noise = np.random.default_rng([row, 1]).normal(size=5) * scale
    return replace(done, values={**done.values, "native": done.values["native"] + noise})


def test_a_store_is_identical_to_itself_open_or_final(tmp_path):
    left = toys.a_store(tmp_path / "one.zarr")
    right = toys.a_store(tmp_path / "two.zarr")
    finalise(right)
    difference = diff(open_store(left), open_store(right))
    assert difference.identical
    assert difference.attributes == {}
    assert {name: rows.n for name, rows in difference.rows.items()} == dict.fromkeys(
        ("native", "frames", "frame_index"), 17
    )
    assert all(rows.least == 1 and rows.worst == () for rows in difference.rows.values())
    assert difference.probe == {"native": 1, "frames": 1, "frame_index": 1}


def test_rows_are_compared_by_cosine_and_the_worst_named(tmp_path):
    left = open_store(toys.a_store(tmp_path / "one.zarr"))
    right = toys.a_store(tmp_path / "two.zarr", blocks=[])
    toys.fill(toys.resume(right), None, lambda row: noisy(row, 0.5 if row == 11 else 1e-6))
    difference = diff(left, open_store(right))
    assert not difference.identical
    native = difference.rows["native"]
    expected = []
    for name in left.ids:
        if name != "tt1-006":
            a, b = (
                left[name]["native"].astype(float),
                open_store(right)[name]["native"].astype(float),
            )
            expected.append(a @ b / np.sqrt((a @ a) * (b @ b)))
    assert native.mean == pytest.approx(np.mean(expected))
    assert native.least == pytest.approx(min(expected))
    assert native.worst[0] == ("tt1-011", native.least)
    assert len(native.worst) == 5
    assert difference.rows["frames"].equal == difference.rows["frames"].n == 17


def test_other_items_other_order_other_recipe(tmp_path):
    left = open_store(toys.a_store(tmp_path / "one.zarr", 8))
    subset(left, tmp_path / "some.zarr", ids=["tt1-002", "tt1-005"])
    difference = diff(left, open_store(tmp_path / "some.zarr"))
    assert set(difference.attributes) == {"items_digest", "n"}
    assert difference.rows["native"].n == 2
    assert difference.only_left == ("tt1-000", "tt1-001", "tt1-003", "tt1-004", "tt1-007")
    assert difference.only_right == ()

    recipe = replace(toys.RECIPE, arrays=toys.ARRAYS[1:], precision="float16")
    writer = StoreWriter.create(tmp_path / "other.zarr", toys.a_manifest(8), recipe, block_rows=4)
    toys.fill(writer)
    difference = diff(left, open_store(writer.store.path))
    assert set(difference.attributes) == {"arrays", "precision"}
    assert difference.attributes["precision"] == ("float32", "float16")
    assert set(difference.rows) == {"frames", "frame_index"}
    assert difference.probe == {}


def test_stores_that_share_nothing(tmp_path):
    left = open_store(toys.a_store(tmp_path / "one.zarr", 4, film="tt1"))
    right = open_store(toys.a_store(tmp_path / "two.zarr", 4, film="tt2"))
    difference = diff(left, right)
    assert difference.rows["native"].n == 0
    assert difference.rows["native"].mean is None
    assert not difference.identical
    assert difference.to_json()["rows"]["native"]["worst"] == ()


def test_a_row_of_zeros_agrees_with_itself_alone(tmp_path):
    def zeros(row: int) -> Done:
        values = {spec.name: np.zeros(spec.shape) for spec in toys.ARRAYS}
        values["native"][:] = row if row else 0
        return Done(values, None)

    paths = []
    for name, first in (("left", 0), ("right", 1)):
        manifest = toys.a_manifest(2)
        writer = StoreWriter.create(tmp_path / f"{name}.zarr", manifest, toys.RECIPE)
        toys.fill(writer, None, lambda row, first=first: zeros(row + first))
        paths.append(writer.store.path)
    rows = diff(*map(open_store, paths)).rows
    assert rows["native"].worst == (("tt1-000", 0.0), ("tt1-001", pytest.approx(1)))
    assert rows["frames"].least == 1


def test_equal_weights_decide_not_the_name(tmp_path):
    """A store of before names its backbone's family, one of today what was typed."""
    today = {**toys.RECIPE.backbone, "name": "toy-base", "family": "toy"}
    parts = [toys.a_store(tmp_path / "old.zarr", blocks=[0, 1, 2])]
    recipe = replace(toys.RECIPE, backbone=today)
    parts.append(toys.a_store(tmp_path / "new.zarr", blocks=[2, 3, 4], recipe=recipe))
    stores = [open_store(path) for path in parts]
    assert diff(*stores).attributes == {}
    merged = merge(stores, tmp_path / "all.zarr")
    assert len(merged.done_ids()) == 17
    assert merged.missing_rows().size == 0
    resumed = StoreWriter.resume(parts[0], toys.a_manifest(), recipe, block_rows=toys.BLOCK_ROWS)
    assert resumed.missing_blocks() == [3, 4]
    another = replace(recipe, backbone={**today, "weights_sha256": "cd" * 32})
    unlike = open_store(toys.a_store(tmp_path / "other.zarr", recipe=another))
    assert set(diff(stores[0], unlike).attributes) == {"backbone"}
