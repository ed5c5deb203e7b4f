"""Stores on S3, served by a file server, and addresses of other schemes."""

import hashlib
from functools import partial

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import StoreError, UsageError

# The size of a piece is changed, and a shard is read in pieces.
from obygaze_features.store import files, remote
from tests.kit.servers import s3_at, serve
from tests.kit.store import STATES, assert_alike, in_all_states, numbers

VALUES = {"native": numbers(60, (3,), "float32"), "frames": numbers(60, (32, 64), "float16")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s3") / "lab"
    return in_all_states(folder, VALUES, failed=[7], todo=[5], block_rows=8)


@pytest.fixture
def lab(stores):
    """A file server, which is all of S3 that a read needs."""
    with serve(stores.parent) as served, s3_at(served.url):
        yield served


@pytest.mark.parametrize("state", STATES)
def test_a_store_reads_as_from_the_folder(lab, stores, state):
    there = of.open_store(f"s3://lab/{state}.zarr")
    assert_alike(there, of.open_store(stores / f"{state}.zarr"))
    lab.forget()
    np.testing.assert_array_equal(there["tt002"]["frames"], VALUES["frames"][2])
    paths = {path for path, _ in lab.requests}
    assert len(lab.requests) == 2
    assert all("/c/" in path for path in paths)


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
        of.open_store("s3://lab/final.zarr")
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    "address",
    ["file:///x.zarr", "ftp://ann:s@cret@127.0.0.1:1/x.zarr", "simplecache::s3://lab/final.zarr"],
)
def test_other_schemes_are_refused_by_name(tmp_path, address):
    scheme = address.partition("://")[0]
    for use in (partial(of.pull, output=tmp_path / "x.zarr"), of.open_store):
        with pytest.raises(UsageError, match=f"'{scheme}' URLs; choose from https") as problem:
            use(address)
        assert "cret" not in str(problem.value)
