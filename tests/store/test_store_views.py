"""The rows of a store in pandas, xarray and torch."""

import pickle
import warnings

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.store import ArraySpec, Done, StoreWriter
from tests.kit import store as toys
from tests.kit.servers import serve

VALUES = {
    "native": np.arange(27, dtype="float32").reshape(9, 3),
    "frames": np.arange(54, dtype="float16").reshape(9, 2, 3),
}
DONE = [0, 1, 2, 4, 5, 8]


@pytest.fixture
def path(tmp_path):
    """Nine rows in blocks of two: row 3 failed, the block of rows 6 and 7 is to do."""
    return toys.open_state(tmp_path / "toy.zarr", VALUES, failed=[3], todo=[3])


def test_ids_may_be_any_column(path):
    pandas = pytest.importorskip("pandas")
    store = of.open_store(path)
    ids = ["tt008", "tt001", "tt000"]
    table = pandas.Series(ids, index=[7, 0, 1])
    for column in (table, table.to_numpy(), table.to_numpy(str), table.index.map(table)):
        rows = store.read("native", column)
        np.testing.assert_array_equal(rows, VALUES["native"][[8, 1, 0]])
        assert store.done_ids(column) == store.dataset("native", column).ids == ids
    assert store.read(ids=iter(ids)).shape == (3, 3)
    assert store.read(ids="tt008").shape == (1, 3)


def test_arrays_have_named_columns(tmp_path):
    classes = ("face", "hand", "sky")
    arrays = [
        ArraySpec("native", (3,), "float32", "", columns=classes),
        ArraySpec("other", (3,), "float32", ""),
        ArraySpec("frames", (2, 5), "float32", ""),
        ArraySpec("frame_time", (4,), "float64", "", padded=True),
    ]
    recipe = toys.plain_recipe(*arrays)
    writer = StoreWriter.create(tmp_path / "toy.zarr", toys.plain_manifest(1).items, recipe)
    row = {spec.name: np.ones(spec.shape) for spec in arrays}
    writer.write_rows({0: Done(row, None)})
    store = of.finalise(tmp_path / "toy.zarr")
    dataset = open_xarray(store.path)
    assert {*dataset} == {"native", "other", "frames"}
    assert dataset["native"].dims == ("item", "feature_native")
    assert dataset["other"].dims == ("item", "feature_3")
    assert dataset["frames"].dims == ("item", "frames_1", "feature_5")


def test_a_dataset_pickles_as_its_path_and_ids(path):
    dataset = of.open_store(path).dataset("native")
    assert len(dataset) == 6
    assert dataset.ids == [f"tt{row:03}" for row in DONE]
    letter = pickle.dumps(dataset)
    assert len(letter) < 1000
    row = {name: value[0] for name, value in VALUES.items()}
    done = Done(row, None)
    StoreWriter(of.open_store(path)).write_rows({3: done, 6: done})
    later = pickle.loads(letter)  # rows that are written later do not shift its own
    assert len(later) == 6
    np.testing.assert_array_equal(later[3][1], VALUES["native"][4])


def open_xarray(address):
    xarray = pytest.importorskip("xarray")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xarray.open_zarr(address).load()


def test_xarray_opens_every_array_of_a_final_store(final):
    pytest.importorskip("aiohttp")
    store = of.open_store(final)
    dataset = open_xarray(final)
    sizes = {"item": 18, "frame": 2, "feature_5": 5, "feature_3": 3, "ids_1": 7}
    assert dict(dataset.sizes) == sizes
    assert set(dataset.coords) == {"id", "film", "ids", "status"}
    assert dataset["id"].values.tolist() == store.ids
    assert set(dataset["film"].values.tolist()) == {"tt1"}
    for name in store.arrays:
        np.testing.assert_array_equal(dataset[name], store.read(name, missing="nan"))
    with serve(final.parent) as served:  # over HTTP as well
        assert open_xarray(f"{served.url}/{final.name}").identical(dataset)
