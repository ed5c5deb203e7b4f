"""What two stores have in common, and how far they agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from obygaze_features.store import StoreWriter, diff, merge, open_store, subset
from tests.kit import store as toys


def of_rows(path, compute):
    """A store of the toys' 18 items with other rows."""
    toys.fill(toys.resume(toys.a_store(path, blocks=[])), None, compute)
    return open_store(path)


def test_rows_are_compared_by_cosine_and_the_worst_named(sound, tmp_path):
    def noisy(row):
        done = toys.a_row(row)
        if row == toys.FAILED:
            return done
        scale = 0.5 if row == 11 else 1e-6
        noise = np.random.default_rng([row, 1]).normal(size=5) * scale
        return replace(done, values={**done.values, "native": done.values["native"] + noise})

    left, right = open_store(sound / "open.zarr"), of_rows(tmp_path / "two.zarr", noisy)
    difference = diff(left, right)
    assert not difference.identical
    a, b = (store.read("native", missing="drop").astype(float) for store in (left, right))
    cosines = (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))
    native = difference.rows["native"]
    assert native.mean == pytest.approx(cosines.mean())
    assert native.least == pytest.approx(cosines.min())
    assert native.worst[0] == ("tt1-011", native.least)
    assert len(native.worst) == 5
    assert difference.rows["frames"].equal == difference.rows["frames"].n == 17


def test_other_items_other_order_other_recipe(tmp_path):
    left = open_store(toys.a_store(tmp_path / "one.zarr", 8))
    some = subset(left, tmp_path / "some.zarr", ids=["tt1-002", "tt1-005"])
    difference = left.diff(str(some.path))
    assert set(difference.attributes) == {"items_digest", "n"}
    assert difference.rows["native"].n == 2
    assert difference.only_left == ("tt1-000", "tt1-001", "tt1-003", "tt1-004", "tt1-007")

    recipe = replace(toys.RECIPE, arrays=toys.ARRAYS[1:], precision="float16")
    writer = StoreWriter.create(tmp_path / "other.zarr", toys.a_manifest(8), recipe, block_rows=4)
    toys.fill(writer)
    difference = diff(left, open_store(writer.store.path))
    assert set(difference.attributes) == {"arrays", "precision"}
    assert difference.attributes["precision"] == ("float32", "float16")
    assert set(difference.rows) == {"frames", "frame_index"}

    difference = diff(left, open_store(toys.a_store(tmp_path / "two.zarr", 4, film="tt2")))
    assert (difference.rows["native"].n, difference.rows["native"].mean) == (0, None)
    assert not difference.identical
    assert difference.to_json()["rows"]["native"]["worst"] == ()


def test_equal_weights_decide_not_the_name(tmp_path):
    """A store of before names its backbone's family, one of today what was typed."""
    today = {**toys.RECIPE.backbone, "name": "toy-base", "family": "toy"}
    recipe = replace(toys.RECIPE, backbone=today)
    before = open_store(toys.a_store(tmp_path / "old.zarr", blocks=[0, 1, 2]))
    after = open_store(toys.a_store(tmp_path / "new.zarr", blocks=[2, 3, 4], recipe=recipe))
    assert diff(before, after).attributes == {}
    assert len(merge([before, after], tmp_path / "all.zarr").done_ids()) == 17
    resumed = StoreWriter.resume(before.path, toys.a_manifest(), recipe, block_rows=4)
    assert resumed.missing_blocks() == [3, 4]
    another = replace(recipe, backbone={**today, "weights_sha256": "cd" * 32})
    unlike = open_store(toys.a_store(tmp_path / "other.zarr", blocks=[], recipe=another))
    assert set(diff(before, unlike).attributes) == {"backbone"}
