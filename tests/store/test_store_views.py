"""The rows of a store in pandas, xarray, plain Zarr and torch."""

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import zarr

from obygaze_features.errors import StoreError
from obygaze_features.store import ArraySpec, Done, StoreWriter, merge, open_store
from obygaze_features.store.diff import diff
from obygaze_features.store.finalise import finalise
from obygaze_features.store.transfer import pack, pull
from obygaze_features.store.verify import verify
from tests.kit import store as toys
from tests.kit.servers import serve
from tests.kit.store import open_state
from tests.store.test_store_damage import VALUES

DONE = [0, 1, 2, 4, 5, 8]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Nine rows in blocks of two: row 3 failed, the block of rows 6 and 7 is to do."""
    folder = tmp_path_factory.mktemp("views")
    return toys.in_all_states(folder, VALUES, failed=[3], todo=[3])


@pytest.fixture(params=toys.STATES)
def path(stores, request):
    return stores / f"{request.param}.zarr"


def test_a_table_has_a_line_per_finished_row(path):
    pytest.importorskip("pandas")
    table = open_store(path).to_pandas()
    assert table.index.name == "id"
    assert table.index.tolist() == [f"tt{row:03}" for row in DONE]
    np.testing.assert_array_equal(table.to_numpy(), VALUES["native"][DONE])
    assert table.to_numpy().dtype == "float32"
    frames = open_store(path).to_pandas("frames")
    np.testing.assert_array_equal(frames.loc["tt004"], VALUES["frames"][4].ravel())
    assert len(frames) == len(DONE)


def test_ids_may_be_any_column(path):
    pandas = pytest.importorskip("pandas")
    store = open_store(path)
    ids = ["tt008", "tt001", "tt000"]
    table = pandas.Series(ids, index=[7, 0, 1])
    for own in (ids, [], ids[:1]):
        some = table[: len(own)]
        columns = (some, some.to_numpy(), some.to_numpy(str), some.index.map(table), iter(own))
        for column in columns:
            rows = store.read("native", column)
            np.testing.assert_array_equal(rows, VALUES["native"][[8, 1, 0][: len(own)]])
        for column in columns[:-1]:
            assert store.done_ids(column) == store.dataset("native", column).ids == own
    assert store.read(ids="tt008").shape == (1, 3)


def test_arrays_have_named_columns(tmp_path):
    classes, times = ("face", "hand", "sky"), ([0, 1, 2, 3], [0, 2, 4, np.nan])
    arrays = [ArraySpec("native", (3,), "float32", "", columns=classes),
              ArraySpec("other", (3,), "float32", ""), ArraySpec("frames", (2, 5), "float32", ""),
              ArraySpec("frame_time", (4,), "float64", "", padded=True)]  # fmt: skip
    recipe, items = toys.plain_recipe(*arrays), toys.plain_manifest(2).items
    writer = StoreWriter.create(tmp_path / "toy.zarr", items, recipe)
    rows = [{spec.name: np.ones(spec.shape) for spec in arrays[:3]} for _ in range(2)]
    rows[1]["native"] = np.array([1, 2, 3])
    outcomes = [Done({**row, "frame_time": t}, None) for row, t in zip(rows, times, strict=True)]
    writer.write_rows(dict(enumerate(outcomes)))
    store = open_store(tmp_path / "toy.zarr")
    for _ in ("open", "final"):
        assert store.info()["arrays"]["native"]["columns"] == list(classes)
        assert store.to_pandas().columns.tolist() == list(classes)
        finalise(store)
    shapes = {"native": ("item", "feature_native"), "other": ("item", "feature_3"),
              "frames": ("item", "frames_1", "feature_5")}  # fmt: skip
    assert {name: array.dims for name, array in opened(store.path).items()} == shapes


def test_a_dataset_gives_the_rows_asked_for(path):
    dataset = open_store(path).dataset("frames")
    assert (len(dataset), dataset.ids) == (6, [f"tt{row:03}" for row in DONE])
    item_id, frames = dataset[3]
    assert item_id == dataset.ids[3]
    np.testing.assert_array_equal(frames, VALUES["frames"][4])
    store = open_store(path)
    subset = store.dataset("native", ["tt008", "tt000"])
    assert subset.ids == ["tt008", "tt000"]
    rows = np.stack([subset[0][1], subset[1][1]])
    np.testing.assert_array_equal(rows, VALUES["native"][[8, 0]])
    with pytest.raises(IndexError):
        subset[2]
    with pytest.raises(StoreError, match="tt003 failed: row 3 is broken"):
        store.dataset("native", ["tt000", "tt003"])
    with pytest.raises(StoreError, match="no array nonsense"):
        store.dataset("nonsense")


def test_a_data_loader_reads_a_dataset_in_its_workers(path):
    torch = pytest.importorskip("torch")
    dataset = open_store(path).dataset("frames")
    dataset[0]  # the parent has it open, mapped or through Zarr's threads, before it forks
    [(ids, rows)] = torch.utils.data.DataLoader(dataset, batch_size=6, num_workers=1)
    assert list(ids) == dataset.ids
    np.testing.assert_array_equal(rows.numpy(), VALUES["frames"][DONE])


def test_a_dataset_pickles_as_its_path_and_ids(tmp_path):
    path = open_state(tmp_path / "toy.zarr", VALUES, failed=[3], todo=[0])
    dataset = open_store(path).dataset("native")
    dataset[0]
    letter = pickle.dumps(dataset)
    assert len(letter) < 1000
    row = {name: value[0] for name, value in VALUES.items()}
    StoreWriter(open_store(path)).write_rows({0: Done(row, None), 1: Done(row, None)})
    later = pickle.loads(letter)  # rows that are written later do not shift its own
    assert len(later) == 6
    np.testing.assert_array_equal(later[0][1], VALUES["native"][2])
    path.rename(path.with_name("elsewhere.zarr"))
    with pytest.raises(StoreError, match="does not exist"):
        pickle.loads(letter)


def opened(address):
    xarray = pytest.importorskip("xarray")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xarray.open_zarr(address).load()


def test_xarray_opens_every_array_of_a_final_store(final):
    pytest.importorskip("aiohttp")
    store, dataset = open_store(final), opened(final)
    sizes = {"item": 18, "frame": 2, "feature_5": 5, "feature_3": 3, "ids_1": 7}
    assert dict(dataset.sizes) == sizes
    assert set(dataset.coords) == {"id", "film", "ids", "status"}
    assert dataset["id"].values.tolist() == store.ids
    assert set(dataset["film"].values.tolist()) == {"tt1"}
    for name in store.arrays:
        np.testing.assert_array_equal(dataset[name], store.read(name, missing="nan"))
    row = dataset.set_xindex("id").sel(id="tt1-003")
    np.testing.assert_array_equal(row["frames"], store["tt1-003"]["frames"])
    with serve(final.parent) as served:  # over HTTP as well
        assert opened(f"{served.url}/{final.name}").identical(dataset)
        group = zarr.open_group(f"{served.url}/{final.name}", mode="r")
        assert {"native", "frames", "ids", "id", "film", "probe"} <= set(group.keys())
        probe = zarr.open_array(final / "probe/native", mode="r")[:]
        np.testing.assert_array_equal(group["probe/native"][:], probe)


def test_an_older_final_store_is_joined_and_packed_unchanged(tmp_path):
    """Older final stores lack coordinates and axes; tests/golden reads them."""
    golden = Path(__file__).parents[1] / "golden/data"
    before, part = open_store(golden / "final.zarr"), open_store(golden / "open.zarr")
    merged = finalise(merge([part, before], tmp_path / "merged.zarr"))
    assert (merged.done_ids(), verify(merged.path)) == (before.done_ids(), [])
    assert diff(merged, before)["rows"]["frames"]["equal"] == len(before.done_ids())
    packed = pack(before.path, tmp_path / "again.zip")["path"]
    again = pull(packed, tmp_path / "again.zarr").path
    assert toys.contents(again) == toys.contents(before.path)
