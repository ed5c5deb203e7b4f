"""HDF5 files of others: by their ids, and nothing from outside the file."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import open_store
from obygaze_features.store.export import export
from obygaze_features.store.import_features import import_features
from tests.exchange.malice import Malice
from tests.kit import store as toys

VALUES = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
MANIFEST = toys.plain_manifest(5)


@pytest.fixture
def path(tmp_path):
    """Rows in another order than the manifest's, one of which it does not know."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["ids"] = [*reversed(MANIFEST.ids[1:]), "other"]
        file["native"] = np.concatenate([VALUES[:0:-1], VALUES[:1]])
        file["frames"] = np.ones((5, 2, 3), np.float16)
        file["counts"] = np.arange(5)  # a number a clip is no row
        file["few"] = np.ones((4, 3))
        file["words"] = ["a"] * 5
        file["group/native"] = np.ones((5, 3))
    return tmp_path / "x.h5"


def test_rows_are_found_by_id(path, tmp_path):
    made = import_features(path, MANIFEST, tmp_path / "s.zarr", backbone="theirs")
    assert ((made.status == 1).sum(), len(made.failures)) == (4, 1)
    store = open_store(tmp_path / "s.zarr")
    assert store.arrays == ["frames", "native"]
    np.testing.assert_array_equal(store.read("native", missing="nan")[1:], VALUES[1:])
    assert store.failures == {"tt000": "it is not in x.h5"}
    assert store.attributes["backbone"]["name"] == "theirs"


@pytest.mark.parametrize("kind", ["external", "soft", "raw", "virtual"])
@pytest.mark.parametrize("name", ["native", "ids"])
def test_nothing_is_read_from_outside(kind, name, path, tmp_path):
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        file["secret"] = np.ones((5, 3), np.float32)
    (tmp_path / "outside.bin").write_bytes(bytes(60))
    with h5py.File(path, "a") as file:
        del file[name]
        if kind == "external":
            file[name] = h5py.ExternalLink(str(tmp_path / "outside.h5"), "secret")
        elif kind == "soft":
            file[name] = h5py.SoftLink("/frames")
        elif kind == "raw":
            where = [(str(tmp_path / "outside.bin"), 0, 60)]
            file.create_dataset(name, (5, 3), "f4", external=where)
        else:
            layout = h5py.VirtualLayout((5, 3), "f4")
            layout[:] = h5py.VirtualSource(tmp_path / "outside.h5", "secret", (5, 3))
            file.create_virtual_dataset(name, layout)
    with pytest.raises(StoreError, match=f"{name} (is a link|is in other files)"):
        import_features(path, MANIFEST, tmp_path / "s.zarr")


def test_rows_that_were_never_written_are_failures(path, tmp_path):
    """HDF5 reads them as zeros."""
    with h5py.File(path, "a") as file:
        del file["native"], file["frames"]
        file.create_dataset("native", (5, 3), "f4", chunks=(1, 3))[1] = 1
    import_features(path, MANIFEST, tmp_path / "s.zarr")
    store = open_store(tmp_path / "s.zarr")
    assert store.status.tolist() == [2, 3, 3, 1, 3]
    assert store.failures["tt001"] == "x.h5, native: nothing was ever written there"
    with h5py.File(path, "a") as file:
        del file["native"]
        file.create_dataset("native", (5, 3), "f4")
    import_features(path, MANIFEST, tmp_path / "t.zarr")
    assert open_store(tmp_path / "t.zarr").status.tolist() == [2, 3, 3, 3, 3]


def test_a_damaged_chunk_is_a_failure(tmp_path):
    values = np.random.default_rng(0).normal(size=(5, 40, 512))
    store = open_store(toys.open_state(tmp_path / "s.zarr", {"native": values}))
    export(store, tmp_path / "x.h5")
    data = bytearray((tmp_path / "x.h5").read_bytes())
    data[data.index(values[2].tobytes())] ^= 1
    (tmp_path / "x.h5").write_bytes(data)
    import_features(tmp_path / "x.h5", MANIFEST, tmp_path / "t.zarr")
    again = open_store(tmp_path / "t.zarr")
    assert again.status.tolist() == [1, 1, 3, 1, 1]
    assert again.failures["tt002"].startswith("x.h5, native: it cannot be read")


def change(path, **datasets):
    with h5py.File(path, "a") as file:
        for name, values in datasets.items():
            if name in file:
                del file[name]
            if values is not None:
                file[name] = values


@pytest.mark.parametrize(
    ("datasets", "why"),
    [
        ({"ids": None}, "no dataset 'ids'"),
        ({"ids": np.arange(5)}, "ids is not a list of texts"),
        ({"ids": "tt000"}, "not a list of texts"),
        ({"ids": ["a", "b", "c", "d", "a"]}, "two rows for 'a'"),
        ({"ids": ["a", "b", "c", "d", "e"]}, "none of the 5 items of made-up"),
        ({"native": None, "frames": None}, "no dataset of numbers with a row for each id"),
        ({"obygaze.json": "{"}, r"obygaze\.json cannot be read"),
        ({"obygaze.json": "{}"}, "the attribute n is missing"),
    ],
)
def test_files_that_are_not_right(datasets, why, path, tmp_path):
    change(path, **datasets)
    with pytest.raises(StoreError, match=why):
        import_features(path, MANIFEST, tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()


def test_rows_of_any_size_are_not_believed(path, tmp_path):
    with h5py.File(path, "a") as file:
        del file["native"]
        file.create_dataset("native", (5, 2**40), "f4", chunks=(1, 1024))
    with pytest.raises(StoreError, match="a row of native would take more than 1 GiB"):
        import_features(path, MANIFEST, tmp_path / "s.zarr")


@pytest.mark.parametrize("change_it", ["status", "rows.reason", "native"])
def test_an_export_that_was_tampered_with(change_it, tmp_path):
    store = open_store(toys.open_state(tmp_path / "s.zarr", {"native": VALUES}))
    export(store, tmp_path / "x.h5")
    change(tmp_path / "x.h5", **{change_it: np.full(5, 9) if change_it == "status" else ["x"]})
    with pytest.raises(StoreError, match=r"code 9|one value for each id|dataset with a row"):
        import_features(tmp_path / "x.h5", MANIFEST, tmp_path / "t.zarr")


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("status", np.ones((5, 2), np.uint8), "status does not have one value for each id"),
        ("status", ["1"] * 5, "status is not a dataset of whole numbers"),
        ("status", np.ones(5), "status is not a dataset of whole numbers"),
        ("status", h5py.Empty("u1"), "status does not have one value for each id"),
        ("status", None, "status is not a dataset of whole numbers"),
        ("rows.source", np.ones(5), r"rows\.source is not a list of texts"),
        ("rows.reason", [b"\xff"] * 5, r"rows\.reason is not text in UTF-8"),
        ("rows.reason", [["x"]] * 5, r"rows\.reason is not a list of texts"),
        ("native", [["x"] * 3] * 5, "native is not a dataset with a row for each id"),
        ("probe/native", np.ones(4), "probe/native is not a row of native"),
    ],
)
def test_an_export_whose_datasets_are_of_another_kind_makes_no_store(name, values, why, tmp_path):
    store = open_store(toys.open_state(tmp_path / "s.zarr", {"native": VALUES}))
    export(store, tmp_path / "x.h5")
    change(tmp_path / "x.h5", **{name: values})
    with pytest.raises(StoreError, match=rf"x\.h5: {why}"):
        import_features(tmp_path / "x.h5", MANIFEST, tmp_path / "t.zarr")
    assert not (tmp_path / "t.zarr").exists()


@pytest.mark.parametrize("name", ["native", "ids", "status", "rows.reason", "probe/native"])
def test_sizes_that_are_only_claimed_are_not_believed(name, tmp_path):
    """A dataset of any size takes a few bytes of a file while nothing is written to it."""
    store = open_store(toys.open_state(tmp_path / "s.zarr", {"native": VALUES}))
    export(store, tmp_path / "x.h5")
    text = h5py.string_dtype()
    claims = {
        "native": (5, 2**30, "f4"),
        "ids": (10**9, text),
        "status": (2**32, "u1"),
        "rows.reason": (10**9, text),
        "probe/native": (2**32, "f4"),
    }
    *shape, dtype = claims[name]
    with h5py.File(tmp_path / "x.h5", "a") as file:
        file.pop(name, None)
        file.create_dataset(name, shape, dtype, chunks=tuple(1 for _ in shape))
    with pytest.raises(StoreError, match=rf"x\.h5: {name}:? "):
        import_features(tmp_path / "x.h5", MANIFEST, tmp_path / "t.zarr")


def test_chunks_are_bounded_as_they_are_read_whole(path, tmp_path):
    with h5py.File(path, "a") as file:
        del file["native"]
        chunks = (2**19, 2**10)  # 2 GiB, of which 5 rows are there
        made = file.create_dataset(
            "native", (5, 2**10), "f4", chunks=chunks, maxshape=(None, 2**10), compression="gzip"
        )
        assert made.chunks == chunks
    with pytest.raises(StoreError, match="a chunk of native would take more than 1 GiB"):
        import_features(path, MANIFEST, tmp_path / "s.zarr")


def test_reasons_of_others_stay_in_one_line(tmp_path):
    store = open_store(toys.open_state(tmp_path / "s.zarr", {"native": VALUES}, failed={0, 1}))
    export(store, tmp_path / "x.h5")
    change(tmp_path / "x.h5", **{"rows.reason": ["a\nb\x1b[2J", "no file", "", "", ""]})
    import_features(tmp_path / "x.h5", MANIFEST, tmp_path / "t.zarr")
    assert open_store(tmp_path / "t.zarr").failures == {
        "tt000": r"'a\nb\x1b[2J'",
        "tt001": "no file",
    }


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (2,)}, {"compression": 4}, {"chunks": (2,), "shuffle": True}]
)
def test_texts_however_they_lie(options, path, tmp_path):
    with h5py.File(path, "a") as file:
        ids = file["ids"].asstr()[:].tolist()
        del file["ids"]
        file.create_dataset("ids", data=ids, dtype=h5py.string_dtype(), **options)
    first = import_features(path, MANIFEST, tmp_path / "s.zarr")
    change(path, ids=np.array([one.encode() for one in ids]))  # of a fixed length
    again = import_features(path, MANIFEST, tmp_path / "t.zarr")
    assert again.status.tolist() == first.status.tolist() == [2, 1, 1, 1, 1]


@pytest.mark.parametrize("odd", ["NaN", "-Infinity", "1e999", '"\\ud800"'])
def test_attributes_that_are_no_json_make_no_store(odd, tmp_path):
    store = open_store(toys.open_state(tmp_path / "s.zarr", {"native": VALUES}))
    path = export(store, tmp_path / "x.h5")["path"]
    with h5py.File(path) as file:
        about = file["obygaze.json"].asstr()[()]
    change(path, **{"obygaze.json": about.replace('"config": {}', f'"config": {{"a": {odd}}}')})
    with pytest.raises(StoreError, match=r"x\.h5: its obygaze\.json cannot be read") as problem:
        import_features(path, MANIFEST, tmp_path / "t.zarr")
    assert "\n" not in str(problem.value)
    assert not (tmp_path / "t.zarr").exists()


def test_a_malicious_pickle_is_never_run(path, tmp_path):
    """Where others keep objects in HDF5: as bytes of a type of their own, or of any length."""
    trace = tmp_path / "trace"
    evil = pickle.dumps(Malice(trace))
    pickle.loads(evil)
    trace.rmdir()  # it would, if it were unpickled
    with h5py.File(path, "a") as file:
        opaque = file.create_dataset("opaque", data=np.array([np.void(evil)] * 5))
        opaque.attrs["CLASS"] = "PYTHON:OBJECT"
        opaque.attrs["evil"] = np.void(evil)
        bytes_ = file.create_dataset("vlen", (5,), h5py.vlen_dtype(np.uint8))
        for row in range(5):
            bytes_[row] = np.frombuffer(evil, np.uint8)
        file["fixed"] = np.array([evil.hex().encode()] * 5)
    import_features(path, MANIFEST, tmp_path / "s.zarr")
    assert not trace.exists()
    for name in ("opaque", "vlen", "fixed"):
        assert name not in open_store(tmp_path / "s.zarr").arrays
        with h5py.File(path, "a") as file:
            del file["ids"]
            file["ids"] = file[name]
        with pytest.raises(StoreError, match=r"ids is not a list of texts|two rows for"):
            import_features(path, MANIFEST, tmp_path / "none.zarr")
        assert not trace.exists()


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\nb"])
def test_a_name_that_is_not_text(name, path, tmp_path):
    with h5py.File(path, "a") as file:
        file[name] = VALUES
    with pytest.raises(StoreError, match=r"the name b?'(\\xff\\xfe|a\\nb)' is not plain text"):
        import_features(path, MANIFEST, tmp_path / "s.zarr")


def test_what_is_no_hdf5_file(tmp_path):
    (tmp_path / "x.h5").write_text("x")
    with pytest.raises(StoreError, match="cannot be read as HDF5"):
        import_features(tmp_path / "x.h5", MANIFEST, tmp_path / "none.zarr")
    with pytest.raises(UsageError, match="does not exist"):
        import_features(tmp_path / "nowhere.h5", MANIFEST, tmp_path / "none.zarr")
    store = open_store(toys.open_state(tmp_path / "s.zarr", {"native": VALUES}))
    export(store, tmp_path / "y.h5")
    with pytest.raises(UsageError, match="says itself how it was made"):
        import_features(tmp_path / "y.h5", MANIFEST, tmp_path / "n.zarr", backbone="mine")
