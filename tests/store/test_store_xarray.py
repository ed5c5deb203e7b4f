"""Final stores as Zarr and xarray see them: consolidated, with coordinates, without a warning."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import zarr

from obygaze_features.store import finalise, merge, open_store, verify
from obygaze_features.store.transfer import pull
from tests.kit import store as toys
from tests.kit.servers import serve
from tests.kit.store import pack

BEFORE = Path(__file__).with_name("final-before-coordinates.zip")
"""A final store of the toys' 18 rows, as it was written before stores were consolidated."""


@pytest.fixture
def before(tmp_path):
    pull(BEFORE, tmp_path / "before.zarr")
    return tmp_path / "before.zarr"


def opened(address):
    xarray = pytest.importorskip("xarray")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xarray.open_zarr(address).load()


def test_xarray_opens_a_final_store_whole(final):
    pytest.importorskip("aiohttp")
    store, dataset = open_store(final), opened(final)
    sizes = {"item": 18, "frame": 2, "native_1": 5, "frames_2": 3, "ids_1": 7}
    assert dict(dataset.sizes) == sizes
    assert set(dataset.coords) == {"id", "film"}
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


def test_a_store_of_before_is_the_same(before, sound, tmp_path):
    assert verify(before) == []
    today = open_store(sound / "open.zarr")
    for name in today.arrays:
        rows = open_store(before).read(name, missing="nan")
        np.testing.assert_array_equal(rows, today.read(name, missing="nan"))
    assert finalise(before).is_final
    part = toys.a_store(tmp_path / "part.zarr", blocks=[])
    merged = merge([open_store(before), open_store(part)], tmp_path / "merged.zarr")
    assert len(merged.done_ids()) == 17
    again = pull(pack(before, tmp_path / "again.zip").path, tmp_path / "again.zarr").path
    assert toys.contents(again) == toys.contents(before)


def test_lost_metadata_of_the_group_is_named(final, before):
    for path in (final, before):
        (path / "zarr.json").unlink()
        [entry] = verify(path)
        assert (entry.file, entry.why) == ("zarr.json", "it is missing")
