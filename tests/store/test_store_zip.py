"""Stores in a zip archive, read in place."""

import struct
import zipfile

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import StoreError
from tests.kit.store import STATES, assert_alike, in_all_states, numbers

VALUES = {"native": numbers(60, (3,), "float32"), "frames": numbers(60, (32, 64), "float16")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Zipped by Python's zipfile, with fields of odd lengths before the data.

    The final store is a zip64 archive, which writers make from 2 GiB on.
    """
    folder = in_all_states(tmp_path_factory.mktemp("packed"), VALUES, failed=[7], todo=[5])
    for name in STATES:
        files = [path for path in (folder / f"{name}.zarr").rglob("*") if path.is_file()]
        with (
            pytest.MonkeyPatch.context() as patch,
            zipfile.ZipFile(folder / f"{name}.zip", "w") as archive,
        ):
            if name == "final":
                patch.setattr(zipfile, "ZIP64_LIMIT", 100)
            for number, path in enumerate(sorted(files)):
                info = zipfile.ZipInfo(path.relative_to(folder / f"{name}.zarr").as_posix())
                info.extra = struct.pack("<HH", 0xCAFE, number) + b"\0" * number
                archive.writestr(info, path.read_bytes())
    return folder


@pytest.mark.parametrize("name", STATES)
def test_a_zip_file_reads_as_its_store(stores, name):
    address = stores / f"{name}.zip"
    store = of.open_store(str(address))
    assert_alike(store, of.open_store(stores / f"{name}.zarr"))
    np.testing.assert_array_equal(store["tt050"]["frames"], VALUES["frames"][50])
    assert of.verify(address) == []
    with pytest.raises(StoreError, match=r"is read-only\. .* stores pull"):
        _ = store.path


def test_a_flipped_bit_is_found(stores, tmp_path):
    content = bytearray((stores / "final.zip").read_bytes())
    at = content.index(VALUES["frames"][20].tobytes())
    content[at + 9] ^= 1
    (tmp_path / "x.zip").write_bytes(content)
    assert [entry.file for entry in of.verify(tmp_path / "x.zip")] == ["frames/c/0/0/0"]
    content[content.index(b'"format_version"') + 3] ^= 1
    (tmp_path / "y.zip").write_bytes(content)
    with pytest.raises(StoreError, match=r"y.zip/.* does not match its checksum in the zip file"):
        _ = of.open_store(tmp_path / "y.zip").ids
