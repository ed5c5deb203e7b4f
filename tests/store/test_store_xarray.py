"""Final stores as Zarr and xarray see them: consolidated, with coordinates, without a warning."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import zarr

from obygaze_features.store import finalise, merge, open_store, repair, verify
from obygaze_features.store import format as spec
from obygaze_features.store.pack import pack, unpack
from obygaze_features.store.writer import write_checksums
from tests.store import toys
from tests.store.serving import serve

BEFORE = Path(__file__).with_name("final-before-coordinates.zip")
"""A final store of the toys' 18 rows, as it was written before stores were consolidated."""


@pytest.fixture
def final(tmp_path: Path) -> Path:
    path = toys.a_store(tmp_path / "toy.zarr")
    finalise(path)
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    unpack(BEFORE, tmp_path / "before.zarr")
    return tmp_path / "before.zarr"


def opened(address: Path | str):
    xarray = pytest.importorskip("xarray")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xarray.open_zarr(address).load()


def consolidate(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(path)


def test_xarray_opens_a_final_store_whole(final):
    store, dataset = open_store(final), opened(final)
    assert dict(dataset.sizes) == {
        "item": 18, "frame": 2, "native_1": 5, "frames_2": 3, "ids_1": 7
    }  # fmt: skip
    assert set(dataset.coords) == {"id", "film"}
    assert dataset["id"].values.tolist() == store.ids
    assert set(dataset["film"].values.tolist()) == {"tt1"}
    for name in store.arrays:
        np.testing.assert_array_equal(dataset[name], store.read(name, missing="nan"))
    row = dataset.set_xindex("id").sel(id="tt1-003")
    np.testing.assert_array_equal(row["frames"], store["tt1-003"]["frames"])


def test_xarray_and_zarr_see_the_same_over_http(final):
    pytest.importorskip("aiohttp")
    local = opened(final)
    with serve(final.parent) as served:
        assert opened(f"{served.url}/{final.name}").identical(local)
        group = zarr.open_group(f"{served.url}/{final.name}", mode="r")
        assert {"native", "frames", "ids", "id", "film", "probe"} <= set(group.keys())
        probe = zarr.open_array(final / "probe/native", mode="r")[:]
        np.testing.assert_array_equal(group["probe/native"][:], probe)


def test_frames_share_an_axis_only_where_they_are_as_many():
    video = [
        spec.ArraySpec(name, shape, "float32", "")
        for name, shape in (("frame_index", (32,)), ("frames", (16, 8)), ("tokens", (32, 8)))
    ]
    frames = spec.frame_count(video)
    assert [spec.dimensions(one.name, one.shape, frames) for one in video] == [
        ("item", "frame"),
        ("item", "frames_1", "frames_2"),
        ("item", "tokens_1", "tokens_2"),
    ]


def test_consolidating_once_more_changes_nothing(final):
    was = toys.contents(final)
    consolidate(final)
    assert toys.contents(final) == was
    assert verify(final) == []


def test_arrays_called_like_coordinates_stay_arrays(tmp_path):
    film = spec.ArraySpec("film", (2,), "float32", "two numbers")
    recipe = spec.Recipe("toy", toys.RECIPE.backbone, {}, "float32", (film,))
    manifest = toys.a_manifest(4)
    writer = toys.StoreWriter.create(tmp_path / "toy.zarr", manifest, recipe)
    toys.fill(writer, None, lambda row: toys.Done({"film": np.full(2, row)}, None))
    finalise(tmp_path / "toy.zarr")
    assert verify(tmp_path / "toy.zarr") == []
    dataset = opened(tmp_path / "toy.zarr")
    assert list(dataset.coords) == ["id"]
    assert dataset["film"].values[:, 1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["native", "probe/frames", "id"])
def test_verify_names_metadata_that_disagree(final, name):
    """The copy in zarr.json and the array's own file, each as its checksum says."""
    header = final / "zarr.json"
    group = json.loads(header.read_text())
    group["consolidated_metadata"]["metadata"][name]["attributes"]["meaning"] = "another"
    header.chmod(0o644)
    header.write_text(json.dumps(group, indent=2))
    (final / "checksums.json").unlink()
    write_checksums(final)
    (found,) = verify(final)
    assert (found.file, found.harmless) == ("zarr.json", False)
    assert f"differs from {name}/zarr.json" in found.why


def test_a_store_of_before_is_the_same(before, tmp_path):
    assert verify(before) == []
    today = toys.a_store(tmp_path / "today.zarr")
    for name in open_store(today).arrays:
        np.testing.assert_array_equal(
            open_store(before).read(name, missing="nan"),
            open_store(today).read(name, missing="nan"),
        )
    assert finalise(before).is_final
    part = toys.a_store(tmp_path / "part.zarr", blocks=[])
    merged = merge([open_store(before), open_store(part)], tmp_path / "merged.zarr")
    assert len(merged.done_ids()) == 17
    again = unpack(pack(before, tmp_path / "again.zip")["path"], tmp_path / "again.zarr")["path"]
    assert toys.contents(again) == toys.contents(before)


@pytest.mark.parametrize("name", ["id/c/0", "film/zarr.json"])
def test_what_xarray_reads_is_written_again_by_finalise(final, name):
    was = toys.contents(final)
    (final / name).unlink()
    assert [one.file for one in verify(final)] == [name]
    assert repair(final).reopened
    finalise(final)
    assert toys.contents(final) == was


def test_lost_metadata_of_the_group_is_named(final, before):
    for path in (final, before):
        (path / "zarr.json").unlink()
        assert [(damaged.file, damaged.why) for damaged in verify(path)] == [
            ("zarr.json", "it is missing")
        ]


def test_consolidating_a_store_of_before_harms_nothing(before, tmp_path, obygaze):
    was = toys.contents(before)
    consolidate(before)
    assert set(open_store(before).arrays) == set(opened(before)) - {"ids", "status"}
    (found,) = verify(before)
    assert (found.file, found.harmless) == ("zarr.json", True)
    result = obygaze("stores", "verify", before)
    assert result.exit_code == 0
    assert "harmless: zarr.json: its metadata was consolidated" in result.stdout
    with serve(tmp_path) as served:
        store = open_store(f"{served.url}/before.zarr")
        assert len(store.read("native", store.ids[:2])) == 2
    for file in before.rglob("*"):
        toys.age(file)
    assert not repair(before).reopened
    unchanged = toys.contents(before)
    assert {name for name in was if unchanged[name] != was[name]} == {"zarr.json"}


def test_consolidating_an_open_store_harms_nothing(tmp_path):
    path = toys.a_store(tmp_path / "toy.zarr", blocks=[0, 1])
    consolidate(path)
    assert [one.harmless for one in verify(path)] == [True]
    toys.fill(toys.resume(path))
    finalise(path)
    assert verify(path) == []
    whole = toys.a_store(tmp_path / "whole.zarr")
    finalise(whole)
    assert toys.contents(path) == toys.contents(whole)


def test_consolidated_metadata_that_lies_is_damage(before):
    consolidate(before)
    header = before / "zarr.json"
    group = json.loads(header.read_text())
    group["consolidated_metadata"]["metadata"]["frames"]["shape"] = [9, 2, 3]
    header.write_text(json.dumps(group, indent=2))
    assert [one.why for one in verify(before) if not one.harmless] == [
        "its consolidated metadata differs from frames/zarr.json"
    ]
