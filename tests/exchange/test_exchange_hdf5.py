"""HDF5: our exports, read by h5py and by us; foreign files; no access to other files."""

import json
import shutil

import h5py
import numpy as np
import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import open_store
from obygaze_features.store.export_hdf5 import export
from obygaze_features.store.finalise import finalise
from obygaze_features.store.imports import import_features
from tests.kit.store import numbers, open_state, plain_manifest

VALUES = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
pytestmark = pytest.mark.filterwarnings("ignore::obygaze_features.store.imports.FailedRows")
MANIFEST = plain_manifest(5)


KINDS = {"native": ("float32", 3), "half": ("float16", 2, 2), "double": ("float64", 4),
         "whole": ("int32", 1, 2, 3)}  # fmt: skip


@pytest.mark.parametrize("final", [False, True])
def test_rows_go_through_hdf5_unchanged(tmp_path, final):
    values = {name: numbers(70, tuple(shape), dtype) for name, (dtype, *shape) in KINDS.items()}
    path = open_state(tmp_path / "toy.zarr", values, failed={3, 69}, todo={1}, block_rows=32)
    if final:
        finalise(path, allow_incomplete=True)
    store = open_store(path)
    export(store, tmp_path / "toy.h5")
    with h5py.File(tmp_path / "toy.h5") as file:
        assert file["ids"].asstr()[:].tolist() == store.done_ids()
        for name, rows in values.items():
            np.testing.assert_array_equal(file[name][:], store.read(name, missing="drop"))
            assert (file[name].dtype, file[name].fletcher32) == (rows.dtype, True)
        assert json.loads(file["obygaze.json"][()]) == store.attributes
    again = import_features(tmp_path / "toy.h5", plain_manifest(70), tmp_path / "again/toy.zarr")
    assert again.done_ids() == store.done_ids()
    for name in values:
        assert (
            again.read(name, missing="drop").tobytes() == store.read(name, missing="drop").tobytes()
        )


def test_an_export_that_does_not_fit_on_the_disk_is_not_begun(tmp_path, monkeypatch):
    """HDF5 ends Python without a word when the disk is full."""
    store = open_store(open_state(tmp_path / "s.zarr", {"native": VALUES}))
    usage = shutil.disk_usage(tmp_path)
    for free, fits in ((10**6, False), (2 * 10**6, True)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        if fits:
            assert export(store, tmp_path / "x.h5").is_file()
            continue
        with pytest.raises(StoreError, match=r"x\.h5 needs 1\.\d+ MB; only 1\.0 MB is free"):
            export(store, tmp_path / "x.h5")
        assert [path.name for path in tmp_path.iterdir()] == ["s.zarr"]


def test_a_damaged_chunk_is_a_failed_row(tmp_path):
    values = np.random.default_rng(0).normal(size=(5, 40, 512))
    store = open_store(open_state(tmp_path / "s.zarr", {"native": values}))
    export(store, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["native"].chunks == (1, 40, 512)
    data = bytearray((tmp_path / "x.h5").read_bytes())
    data[data.index(values[2].tobytes())] ^= 1
    (tmp_path / "x.h5").write_bytes(data)
    again = import_features(tmp_path / "x.h5", MANIFEST, tmp_path / "t.zarr")
    assert again.status.tolist() == [1, 1, 3, 1, 1]
    assert again.failures["tt002"].startswith("native: ")


@pytest.fixture
def path(tmp_path):
    """A file whose rows are in a different order than the manifest, with one row missing."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["ids"] = [*reversed(MANIFEST.ids[1:]), "other"]
        file["native"] = np.concatenate([VALUES[:0:-1], VALUES[:1]])
        file["frames"] = np.ones((5, 2, 3), np.float16)
        file["counts"] = np.arange(5)  # a number a clip is not a row
        file["few"] = np.ones((4, 3))
        file["words"] = ["a"] * 5
        file["group/native"] = np.ones((5, 3))
    return tmp_path / "x.h5"


def change(path, datasets):
    """Changed datasets: values, None to delete, or a function of the file and the name."""
    with h5py.File(path, "a") as file:
        for name, values in datasets.items():
            if callable(values):
                values(file, name)
                continue
            if name in file:
                del file[name]
            if values is not None:
                file[name] = values


def test_rows_are_found_by_id(path, tmp_path):
    with h5py.File(path, "a") as file:
        ids = file["ids"].asstr()[:].tolist()
        del file["ids"]
        file["ids"] = np.array([name.encode() for name in ids])  # of a fixed length
    store = import_features(path, MANIFEST, tmp_path / "s.zarr", backbone="theirs")
    assert store.status.tolist() == [2, 1, 1, 1, 1]
    assert store.arrays == ["frames", "native"]
    np.testing.assert_array_equal(store.read("native", missing="nan")[1:], VALUES[1:])
    assert store.failures == {"tt000": "its id has no row in x.h5"}
    assert store.attributes["backbone"]["name"] == "theirs"


def unwritten(*shape, dtype="f4", **options):
    """Return a dataset of any size that takes only a few bytes in the file until it is written."""

    def claim(file, name):
        file.pop(name, None)
        file.create_dataset(name, shape, dtype, **{"chunks": tuple(1 for _ in shape), **options})

    return claim


def partly(file, name):
    del file[name]
    file.create_dataset(name, (5, 3), "f4", chunks=(2, 3), fletcher32=True)[2] = 1


def linked(kind):
    """Replace a dataset with a link to another file, or to another place in this file."""

    def link(file, name):
        del file[name]
        if kind == "external":
            file[name] = h5py.ExternalLink("outside.h5", "secret")
        elif kind == "soft":
            file[name] = h5py.SoftLink("/frames")
        elif kind == "raw":
            file.create_dataset(name, (5, 3), "f4", external=[("outside.bin", 0, 60)])
        else:
            layout = h5py.VirtualLayout((5, 3), "f4")
            layout[:] = h5py.VirtualSource("outside.h5", "secret", (5, 3))
            file.create_virtual_dataset(name, layout)

    return link


OUTSIDE = "has rows that .* are in other files"
#: Problems of a file, each with its fact.
INVALID = [
    ({"ids": None}, "has no ids; pass the id"),
    *(({"ids": ids}, "cannot be read") for ids in (np.arange(5), "tt000")),
    ({"ids": ["a", "b", "c", "d", "a"]}, "several rows for 'a'"),
    ({"ids": ["a", "b", "c", "d", "e"]}, r"can be read \(5 tried\): its id has no row in x.h5"),
    ({"ids": np.array([b"\xff"] * 5, h5py.string_dtype())}, "cannot be read"),
    ({"ids": unwritten(10**9, dtype=h5py.string_dtype())}, "ids.* takes more than 1 GiB"),
    # HDF5 reads them as zeros.
    *(({"native": unwritten(5, 3, chunks=chunks)}, "native.* never written")
      for chunks in (None, (2, 3))),
    ({"native": partly}, "native.* never written"),
    ({"native": None, "frames": None}, "2 or more axes and a row per id"),
    ({"native": unwritten(5, 2**40, chunks=(1, 1024))}, "native.* takes more than 1 GiB"),
    ({"native": unwritten(5, 2**10, chunks=(2**19, 2**10), maxshape=(None, 2**10))},
     "native.* takes more than 1 GiB"),
    *(({name: linked(kind)}, f"'{name}' {fact}") for name in ("native", "ids")
      for kind, fact in (("external", "is a link"), ("soft", "is a link"),
                         ("raw", OUTSIDE), ("virtual", OUTSIDE))),
]  # fmt: skip


@pytest.mark.parametrize(("datasets", "fact"), INVALID)
def test_invalid_files_make_no_store(datasets, fact, path, tmp_path):
    (tmp_path / "outside.bin").write_bytes(bytes(60))
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        file["secret"] = np.ones((5, 3), np.float32)
    change(path, datasets)
    with pytest.raises((StoreError, UsageError), match=rf"x\.h5.*{fact}") as problem:
        import_features(path, MANIFEST, tmp_path / "t.zarr")
    assert "\n" not in str(problem.value)
    assert not (tmp_path / "t.zarr").exists()
