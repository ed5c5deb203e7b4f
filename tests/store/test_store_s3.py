"""Stores on S3, by a local server of its protocol, and addresses of other schemes."""

import hashlib
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import files, open_store, remote, subset
from obygaze_features.store.transfer import pull, push
from obygaze_features.store.verify import verify
from tests.kit.servers import bucket, s3_at, serve
from tests.kit.store import STATES, assert_alike, flip_bit, in_all_states, numbers

VALUES = {"native": numbers(60, (3,), "float32"), "frames": numbers(60, (32, 64), "float16")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The store in all states, and damaged."""
    folder = tmp_path_factory.mktemp("s3") / "lab"
    in_all_states(folder, VALUES, failed=[7], todo=[5], block_rows=8)
    damaged = Path(shutil.copytree(folder / "final.zarr", folder / "damaged.zarr"))
    flip_bit(damaged / "frames/c/0/0/0", 5)
    (damaged / "rows.csv").unlink()
    return folder


@pytest.fixture
def lab(stores):
    """A file server, which is all of S3 that a read needs."""
    with serve(stores.parent) as served, s3_at(served.url):
        yield served


@pytest.mark.night
def test_a_store_reads_as_from_the_folder(stores, tmp_path):
    with bucket("lab") as put:
        for state in STATES:
            put(f"{state}.zarr", stores / f"{state}.zarr")
            url = f"s3://lab/{state}.zarr"
            there = open_store(url)
            assert_alike(there, open_store(stores / f"{state}.zarr"))
            assert verify(url) == []
            ids = ["tt050", "tt051"]
            assert subset(there, tmp_path / f"{state}.zarr", ids=ids).done_ids() == ids
            assert there.where == url
        with pytest.raises(StoreError, match=r"nobody/x.zarr is not a feature store: .*; check"):
            open_store("s3://nobody/x.zarr")
        for target in ("s3://wrong-bucket/x.zarr", "s3://wrong-bucket"):
            with pytest.raises(StoreError, match=f"{target}.*: the bucket does not exist"):
                push(stores / "final.zarr", target)
            with pytest.raises(StoreError, match="is not a feature store"):  # it was not made
                open_store("s3://wrong-bucket/x.zarr")


def test_a_row_takes_one_request_from_the_opened_store(lab, stores):
    store, here = open_store("s3://lab/final.zarr"), open_store(stores / "final.zarr")
    store.read("frames", ["tt001"])
    lab.forget()
    for name in ("tt002", "tt003", "tt008"):
        np.testing.assert_array_equal(store.read("frames", [name]), here.read("frames", [name]))
    assert [path for path, _ in lab.requests] == ["/lab/final.zarr/frames/c/0/0/0"] * 3


@pytest.mark.night
@pytest.mark.usefixtures("lab")
def test_damaged_and_missing_files_are_named(stores):
    assert verify("s3://lab/damaged.zarr") == verify(stores / "damaged.zarr")
    with pytest.raises(StoreError, match="a checksum is wrong"):
        open_store("s3://lab/damaged.zarr").read("frames", ["tt001"])
    for name in ("lab/none.zarr", "lab/final.zarr/native/c"):
        with pytest.raises(StoreError, match=f"s3://{name} is not a feature store: .*; check"):
            open_store(f"s3://{name}")


@pytest.mark.usefixtures("lab")
def test_a_file_is_read_to_its_end(stores, monkeypatch):
    """Also if the last piece ends with the file, so that the next one begins behind its end."""
    name = "final.zarr/frames/c/0/0/0"
    data = (stores / name).read_bytes()
    monkeypatch.setattr(files, "PIECE_BYTES", len(data) // 2)
    assert len(data) % 2 == 0
    sha256 = files.sha256_at(remote.Remote("s3://lab"), name)
    assert sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.usefixtures("lab")
def test_missing_credentials_are_one_line(monkeypatch, tmp_path):
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match=r"credentials .*AWS_ACCESS_KEY_ID"):
        open_store("s3://lab/final.zarr")
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("address", [
    "file:///x.zarr", "ftp://ann:s@cret@127.0.0.1:1/x.zarr", "ftp://ann:s@cret@127.0.0.1:1/x.zip",
    "gs://lab/x.zarr", "simplecache::s3://lab/final.zarr", "zip://x.zarr::http://127.0.0.1:1/x.zip",
])  # fmt: skip
def test_other_schemes_are_refused_by_name(stores, tmp_path, address):
    scheme = address.partition("://")[0]
    send, fetch = partial(push, stores / "final.zarr"), partial(pull, output=tmp_path / "x.zarr")
    for use in (send, fetch, open_store):
        with pytest.raises(UsageError, match=f"'{scheme}' URLs; choose from https") as problem:
            use(address)
        assert "cret" not in str(problem.value)
