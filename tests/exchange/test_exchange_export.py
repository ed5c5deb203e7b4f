"""Exports, read back by h5py and pyarrow alone; and a store out of its own export."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_features.errors import OutputExists, StoreError, UsageError
from obygaze_features.store import diff, finalise, open_store
from obygaze_features.store.export import export
from obygaze_features.store.import_features import import_features
from tests.kit import store as toys


@given(
    n=st.integers(1, 70),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["float16", "float32", "float64", "int32"]),
    final=st.booleans(),
    data=st.data(),
)
@settings(deadline=None, max_examples=15)
def test_a_store_through_hdf5_is_the_same_store(n, shape, dtype, final, data):
    failed = data.draw(st.frozensets(st.integers(0, n - 1)))
    todo = data.draw(st.frozensets(st.integers(0, (n - 1) // 32)))
    values = np.random.default_rng(n).integers(0, 2000, (n, *shape)).astype(dtype)
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = toys.open_state(folder / "toy.zarr", {"native": values}, failed, todo, block_rows=32)
        if final:
            finalise(path, allow_incomplete=True)
        store = open_store(path)
        export(store, folder / "toy.h5")
        with h5py.File(folder / "toy.h5") as file:
            np.testing.assert_array_equal(file["native"][:], store.read("native", missing="nan"))
            assert file["native"].dtype == dtype
        (folder / "again").mkdir()
        import_features(folder / "toy.h5", toys.plain_manifest(n), folder / "again/toy.zarr")
        again = open_store(folder / "again/toy.zarr")
        assert diff(store, again).identical
        np.testing.assert_array_equal(
            again.read("native", missing="nan"), store.read("native", missing="nan")
        )
        assert (again.status == store.status).all()
        assert (again.failures, again.sources) == (store.failures, store.sources)


def test_a_final_store_through_hdf5_has_the_same_files(final_store, tmp_path):
    """Probe, provenance and several arrays included."""
    export(open_store(final_store), tmp_path / "toy.h5")
    path = tmp_path / "toy.zarr"
    import_features(tmp_path / "toy.h5", toys.a_manifest(), path)
    finalise(path)
    ours, theirs = toys.contents(path), toys.contents(final_store)
    differ = {name for name in ours | theirs if ours.get(name) != theirs.get(name)}
    # Blocks were of four rows in the first.
    assert differ == {"zarr.json", "checksums.json", "croissant.json"}


def test_hdf5_for_other_programs(final_store, tmp_path):
    store = open_store(final_store)
    made = export(store, tmp_path / "toy.h5", arrays=["frames", "native"])
    assert (made["rows"], made["done"], made["arrays"]) == (18, 17, ["native", "frames"])
    with h5py.File(tmp_path / "toy.h5") as file:
        assert file["frames"].chunks == (18, 2, 3)  # small rows share a chunk
        assert file["frames"].fletcher32
        assert [one.decode() for one in file["ids"]] == store.ids
        assert file["status"][6] == 3
        assert np.isnan(file["native"][6]).all()
        assert "frame_index" not in file
        assert file.attrs["licence"] == "CC0-1.0"
        assert json.loads(file["obygaze.json"][()])["backbone"]["name"] == "toy"


def test_large_rows_have_a_chunk_each(tmp_path):
    values = np.zeros((3, 40, 512), np.float32)
    store = open_store(toys.open_state(tmp_path / "s.zarr", {"frames": values}))
    export(store, tmp_path / "s.h5")
    with h5py.File(tmp_path / "s.h5") as file:
        assert file["frames"].chunks == (1, 40, 512)


def test_parquet_has_a_row_a_clip(final_store, tmp_path):
    store = open_store(final_store)
    made = export(store, tmp_path / "toy.parquet")
    assert made["arrays"] == ["native"]
    table = pyarrow.parquet.read_table(tmp_path / "toy.parquet")
    assert table.column_names == ["id", "film", "status", "source", "reason", "native"]
    assert table["id"].to_pylist() == store.ids
    assert set(table["film"].to_pylist()) == {"tt1"}
    assert table["status"].to_pylist() == store.status.tolist()
    assert table["reason"].to_pylist()[5:7] == [None, 'cannot be decoded: "moov", not found']
    assert table["native"].to_pylist()[6] is None
    assert str(table.schema.field("native").type) == "fixed_size_list<element: float>[5]"
    rows = np.array([row for row in table["native"].to_pylist() if row], np.float32)
    np.testing.assert_array_equal(rows, store.read("native", missing="nan")[store.status == 1])
    about = json.loads(table.schema.metadata[b"obygaze"])
    assert about["backbone"]["weights_sha256"] == "ab" * 32


def test_parquet_of_arrays_with_several_axes(final_store, tmp_path):
    store = open_store(final_store)
    export(store, tmp_path / "t.parquet", arrays=["frames", "frame_index"])
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    shape = table.schema.field("frames").metadata[b"shape"]
    assert shape == b"2,3"
    rows = np.array([row for row in table["frames"].to_pylist() if row], np.float16)
    np.testing.assert_array_equal(
        rows.reshape(-1, 2, 3), store.read("frames", missing="nan")[store.status == 1]
    )
    assert (
        table["frame_index"].to_pylist()[0] == store.read("frame_index", missing="nan")[0].tolist()
    )


@given(n=st.integers(1, 40), failed=st.frozensets(st.integers(0, 39)))
@settings(deadline=None, max_examples=10)
def test_parquet_of_any_rows(n, failed):
    values = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
    with TemporaryDirectory() as folder:
        failed = {row for row in failed if row < n}
        store = open_store(toys.open_state(Path(folder, "s.zarr"), {"mean": values}, failed))
        export(store, Path(folder, "s.parquet"))
        found = pyarrow.parquet.read_table(Path(folder, "s.parquet"))["mean"].to_pylist()
        expected = [None if row in failed else values[row].tolist() for row in range(n)]
        assert found == expected


@pytest.mark.parametrize("end", ["h5", "parquet"])
def test_exports_are_whole_or_not_there(end, final_store, tmp_path):
    damaged = shutil.copytree(final_store, tmp_path / "toy.zarr")
    toys.flip_bit(damaged / "native/c/0/0", 3)
    output = tmp_path / "out" / f"toy.{end}"
    with pytest.raises(StoreError, match="checksum is wrong"):
        export(open_store(damaged), output)
    assert list(output.parent.iterdir()) == []
    store = open_store(final_store)
    export(store, output)
    with pytest.raises(OutputExists):
        export(store, output)
    export(store, output, overwrite=True)
    with pytest.raises(UsageError, match="has no array 'cls'; it has native, frames"):
        export(store, tmp_path / f"x.{end}", arrays=["cls"])


def test_parquet_asks_which_arrays_where_none_is_pooled(tmp_path):
    store = open_store(toys.open_state(tmp_path / "s.zarr", {"frames": np.ones((2, 2, 2))}))
    with pytest.raises(UsageError, match="no pooled array; name some of frames"):
        export(store, tmp_path / "s.parquet")
    odd = open_store(toys.open_state(tmp_path / "o.zarr", {"film": np.ones((2, 2))}))
    with pytest.raises(UsageError, match="the array film has the name of a column"):
        export(odd, tmp_path / "o.parquet", arrays=["film"])


def test_an_exported_store_needs_no_recipe_and_goes_on(final_store, tmp_path):
    """Of an interrupted import the blocks that are missing are brought in, and no others."""
    export(open_store(final_store), tmp_path / "toy.h5")
    path, manifest = tmp_path / "toy.zarr", toys.a_manifest()
    for _ in range(2):
        made = import_features(tmp_path / "toy.h5", manifest, path)
        assert (made.status == 1).sum() == 17
        assert len(made.failures) == 1
        (path / "blocks/000000.json").unlink()  # as if it had been killed before that
