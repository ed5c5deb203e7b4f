"""HDF5 files of other programs: what is read, and that no other file is."""

import h5py
import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import StoreError, UsageError
from tests.kit.store import plain_manifest

pytestmark = pytest.mark.filterwarnings("ignore::obygaze_features.imports.FailedRows")
VALUES = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
MANIFEST = plain_manifest(5)


def test_a_damaged_chunk_is_a_failed_row(tmp_path):
    values = np.random.default_rng(0).normal(size=(5, 40, 512))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["ids"] = MANIFEST.ids
        file.create_dataset("native", data=values, chunks=(1, 40, 512), fletcher32=True)
    data = bytearray((tmp_path / "x.h5").read_bytes())
    data[data.index(values[2].tobytes())] ^= 1
    (tmp_path / "x.h5").write_bytes(data)
    store = of.import_features(tmp_path / "x.h5", MANIFEST, tmp_path / "t.zarr")
    assert store.status.tolist() == [1, 1, 3, 1, 1]
    assert store.failures["tt002"].startswith("native: ")


@pytest.fixture
def path(tmp_path):
    """A file whose rows are in a different order than the manifest, with one row missing."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["ids"] = [*reversed(MANIFEST.ids[1:]), "other"]
        file["native"] = VALUES[::-1]
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
    store = of.import_features(path, MANIFEST, tmp_path / "s.zarr", backbone="theirs")
    assert store.status.tolist() == [2, 1, 1, 1, 1]
    assert store.arrays == ["frames", "native"]
    rows = store.read("native", missing="nan")
    np.testing.assert_array_equal(rows[1:], VALUES[1:])
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
FAR_IDS = unwritten(10**9, dtype=h5py.string_dtype())
LARGE_CHUNKS = unwritten(5, 2**10, chunks=(2**19, 2**10), maxshape=(None, 2**10))
#: Problems of a file, each with its fact.
INVALID = [
    ({"ids": None}, "has no ids; pass the id"),
    ({"ids": ["a", "b", "c", "d", "a"]}, "several rows for 'a'"),
    ({"ids": np.array([b"\xff"] * 5, h5py.string_dtype())}, "cannot be read"),
    ({"ids": FAR_IDS}, "ids.* takes more than 1 GiB"),
    # HDF5 reads what was never written as zeros.
    ({"native": unwritten(5, 3, chunks=(2, 3))}, "native.* never written"),
    ({"native": partly}, "native.* never written"),
    ({"native": LARGE_CHUNKS}, "native.* takes more than 1 GiB"),
    ({"ids": linked("external")}, "'ids' is a link"),
    ({"native": linked("soft")}, "'native' is a link"),
    ({"native": linked("raw")}, f"'native' {OUTSIDE}"),
    ({"native": linked("virtual")}, f"'native' {OUTSIDE}"),
]


@pytest.mark.parametrize(("datasets", "fact"), INVALID)
def test_invalid_files_make_no_store(datasets, fact, path, tmp_path):
    (tmp_path / "outside.bin").write_bytes(bytes(60))
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        file["secret"] = np.ones((5, 3), np.float32)
    change(path, datasets)
    with pytest.raises((StoreError, UsageError), match=rf"x\.h5.*{fact}") as problem:
        of.import_features(path, MANIFEST, tmp_path / "t.zarr")
    assert "\n" not in str(problem.value)
    assert not (tmp_path / "t.zarr").exists()
