"""Stores in a zip archive, read in place."""

import struct
import zipfile

import numpy as np
import pytest

from obygaze_features.errors import StoreError
from obygaze_features.store import open_store, subset
from obygaze_features.store.verify import verify
from tests.kit.store import STATES, assert_alike, in_all_states, numbers

VALUES = {"native": numbers(60, (3,), "float32"), "frames": numbers(60, (32, 64), "float16")}


def pack(store, file):
    """Zip with Python's zipfile, with fields of odd lengths before the data."""
    with zipfile.ZipFile(file, "w") as archive:
        for number, path in enumerate(sorted(p for p in store.rglob("*") if p.is_file())):
            info = zipfile.ZipInfo(path.relative_to(store).as_posix())
            info.extra = struct.pack("<HH", 0xCAFE, number) + b"\0" * number
            archive.writestr(info, path.read_bytes())
    return file


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    in_all_states(folder, VALUES, failed=[7], todo=[5], block_rows=8)
    for name in STATES:
        pack(folder / f"{name}.zarr", folder / f"{name}.zip")
    return folder


@pytest.mark.parametrize("name", STATES)
def test_a_zip_file_reads_as_its_store(stores, tmp_path, name):
    here, address = open_store(stores / f"{name}.zarr"), stores / f"{name}.zip"
    store = open_store(str(address))
    assert_alike(store, here)
    np.testing.assert_array_equal(store["tt050"]["frames"], VALUES["frames"][50])
    assert verify(address) == []
    selection = subset(store, tmp_path / "some.zarr", ids=["tt001", "tt009"])
    assert selection.done_ids() == ["tt001", "tt009"]
    with pytest.raises(StoreError, match=r"is read-only\. .* stores pull"):
        _ = store.path


def test_zip64_archives_are_read(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)  # what the writer does from 2 GiB on
    file = pack(stores / "final.zarr", tmp_path / "long.zip")
    monkeypatch.undo()
    rows = open_store(file).read("frames", missing="nan")
    frames = open_store(stores / "final.zarr").read("frames", missing="nan")
    np.testing.assert_array_equal(rows, frames)


def test_a_flipped_bit_is_found(stores, tmp_path):
    content = bytearray((stores / "final.zip").read_bytes())
    at = content.index(VALUES["frames"][20].tobytes())
    content[at + 9] ^= 1
    (tmp_path / "x.zip").write_bytes(content)
    assert [entry.file for entry in verify(tmp_path / "x.zip")] == ["frames/c/0/0/0"]
    content[content.index(b'"format_version"') + 3] ^= 1
    (tmp_path / "y.zip").write_bytes(content)
    with pytest.raises(StoreError, match=r"y.zip/.* does not match its checksum in the zip file"):
        _ = open_store(tmp_path / "y.zip").ids
