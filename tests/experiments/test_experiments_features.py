"""Pooled features are numpy's on the whole array, whatever the store looks like."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import ArraySpec, Done, Recipe, StoreWriter, finalise, open_store
from obygaze_models import stores as features
from obygaze_models.stores import read_features

IDS = [f"clip-{row:02}" for row in range(23)]
RECIPE = Recipe(
    name="tokens",
    backbone={"name": "tiny", "revision": "1", "weights_sha256": "0" * 64, "config": {}},
    preprocessing={"mode": "standard"},
    precision="float32",
    arrays=(
        ArraySpec("native", (3,), "float32", "one vector a clip"),
        ArraySpec("frames", (5, 3), "float16", "one vector a frame", padded=True),
        ArraySpec("tokens", (2, 4, 3), "float16", "patches of frames"),
    ),
)
WHOLE = {
    "max": np.nanmax,
    "mean": lambda values, axis: np.nanmean(values, axis=axis, dtype=np.float64),
    "first": lambda values, axis: values[:, 0],
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/obygaze/pooled"


def values(seed=0):
    """Frames that end early in every third clip; tokens that never do."""
    chance = np.random.default_rng(seed)
    frames = chance.normal(size=(len(IDS), 5, 3)).astype(np.float16)
    frames[::3, 3:] = np.nan
    tokens = chance.normal(size=(len(IDS), 2, 4, 3)).astype(np.float16)
    return {"native": frames[:, 0].astype(np.float32), "frames": frames, "tokens": tokens}


def write(path, arrays, *, final=False):
    manifest = Manifest("toy", Items.of([Item(one, media=f"{one}.mp4") for one in IDS]))
    writer = StoreWriter.create(path, manifest, RECIPE, block_rows=4)
    for block, start in enumerate(range(0, len(IDS), 4)):
        rows = range(start, min(start + 4, len(IDS)))
        writer.write_block(
            block, [Done({name: of[row] for name, of in arrays.items()}, None) for row in rows]
        )
    if final:
        finalise(path)
    return open_store(path)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("pooling", ["max", "mean", "first"])
@pytest.mark.parametrize("array", ["frames", "tokens"])
def test_pooled_as_numpy_pools_the_whole_array(tmp_path, array, pooling, final):
    arrays = values()
    store = write(tmp_path / "a.zarr", arrays, final=final)
    wanted = [*IDS[::-2], "of-another-film"]
    whole = arrays[array].reshape(len(IDS), -1, 3).astype(np.float32)
    expected = WHOLE[pooling](whole, axis=1)[[IDS.index(one) for one in wanted[:-1]]]
    for _ in range(2):  # once computed, once from the cache
        ids, found = read_features(store, wanted, array, pooling)
        assert ids == wanted[:-1]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_the_cache_is_of_what_the_store_holds(tmp_path, cache):
    first = write(tmp_path / "a.zarr", values(1))
    read_features(first, IDS, "frames", "max")
    read_features(open_store(first.path), IDS, "frames", "max")
    assert len(list(cache.iterdir())) == 1
    _, other = read_features(write(tmp_path / "b.zarr", values(2)), IDS, "frames", "max")
    assert len(list(cache.iterdir())) == 2
    np.testing.assert_allclose(other, np.nanmax(values(2)["frames"].astype(np.float32), axis=1))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_store_with_a_copied_list_of_checksums_changes_no_other(tmp_path, in_place):
    """Nor the one that takes its path: the list is not compared with the files when they are read.

    The forged store has other frames, which are sound by themselves.
    """
    path, forged = tmp_path / "a.zarr", tmp_path / "forged.zarr"
    write(path, values(1), final=True)
    shutil.copytree(path, forged)
    write(tmp_path / "b.zarr", values(2), final=True)
    shutil.rmtree(forged / "frames")
    shutil.copytree(tmp_path / "b.zarr/frames", forged / "frames")
    if in_place:
        path.rename(tmp_path / "sound.zarr")
        forged.rename(path)
        forged, path = path, tmp_path / "sound.zarr"
    means = [np.nanmean(values(seed)["frames"], axis=1, dtype=np.float64) for seed in (2, 1)]
    read = read_features(open_store(forged), IDS, "frames", "mean")[1]
    np.testing.assert_allclose(read, means[0], rtol=1e-6)
    if in_place:
        shutil.rmtree(forged)
        path.rename(forged)
        path = forged
    read = read_features(open_store(path), IDS, "frames", "mean")[1]
    np.testing.assert_allclose(read, means[1], rtol=1e-6)


def test_what_is_cached_is_not_read_again(tmp_path, monkeypatch):
    store = write(tmp_path / "a.zarr", values())
    _, first = read_features(store, IDS, "tokens", "mean")
    monkeypatch.setitem(features.POOLINGS, "mean", None)
    _, again = read_features(open_store(store.path), IDS, "tokens", "mean")
    assert (first == again).all()


def test_a_damaged_or_missing_cache_costs_time_only(tmp_path, cache, monkeypatch):
    store = write(tmp_path / "a.zarr", values())
    _, first = read_features(store, IDS, "frames", "max")
    (kept,) = cache.iterdir()
    for damage in (b"", kept.read_bytes()[:200], b"PK" + bytes(300)):
        kept.write_bytes(damage)
        assert (read_features(store, IDS, "frames", "max")[1] == first).all()
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "file"))
    assert (read_features(store, IDS, "frames", "max")[1] == first).all()


def test_a_number_missing_within_a_frame_is_no_padding(tmp_path):
    """The store has no such row: it failed, and is left out like any other that has."""
    arrays = values()
    arrays["frames"][4, 2, 1] = np.nan
    have, found = read_features(write(tmp_path / "a.zarr", arrays), IDS, "frames", "mean")
    assert "clip-04" in IDS
    assert "clip-04" not in have
    assert np.isfinite(found).all()


def test_says_when_there_is_nothing_or_too_much_to_pool(tmp_path):
    store = write(tmp_path / "a.zarr", values())
    with pytest.raises(ExperimentError, match=r"'frames' has 2 axes a clip; .* pooling .max, mean"):
        read_features(store, IDS, "frames")
    with pytest.raises(ExperimentError, match="one vector a clip: there is nothing to pool"):
        read_features(store, IDS, "native", "max")


def test_memory_is_that_of_a_part(tmp_path, monkeypatch):
    """What is held at a time is a block, however many there are."""
    import tracemalloc

    spec = ArraySpec("tokens", (256, 64), "float16", "many")
    manifest = Manifest("toy", Items.of([Item(f"c{row:03}", media="a.mp4") for row in range(128)]))
    recipe = Recipe("big", RECIPE.backbone, {}, "float32", (spec,))
    writer = StoreWriter.create(tmp_path / "big.zarr", manifest, recipe, block_rows=8)
    row = np.ones((256, 64), np.float16)
    for block in range(16):
        writer.write_block(block, [Done({"tokens": row}, None)] * 8)
    store = open_store(tmp_path / "big.zarr")
    tracemalloc.start()
    read_features(store, manifest.ids, "tokens", "max")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 128 * row.nbytes / 4
