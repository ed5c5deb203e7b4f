"""Stores on S3, by a local server of its protocol, and addresses of other schemes."""

import hashlib
import os
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import files, open_store, remote, subset
from obygaze_features.store.transfer import pull
from obygaze_features.store.verify import verify
from tests.kit.servers import bucket
from tests.kit.store import assert_alike, flip_bit, in_all_states, numbers, push

VALUES = {"native": numbers(60, (3,), "float32"), "frames": numbers(60, (32, 64), "float16")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The store in all states, damaged, and with an oversized list of checksums."""
    folder = tmp_path_factory.mktemp("s3")
    in_all_states(folder, VALUES, failed=[7], todo=[5], block_rows=8)
    damaged = Path(shutil.copytree(folder / "final.zarr", folder / "damaged.zarr"))
    flip_bit(damaged / "frames/c/0/0/0", 5)
    (damaged / "rows.csv").unlink()
    (folder / "large.zarr").mkdir()
    with (folder / "large.zarr/checksums.json").open("wb") as file:
        os.truncate(file.fileno(), 17 * 2**20)  # sparse
    return folder


@pytest.fixture(scope="module")
def url(stores):
    with bucket("lab") as put:
        for path in stores.iterdir():
            put(path.name, path)
        yield "s3://lab"


@pytest.mark.night
@pytest.mark.parametrize("name", ["final.zarr", "open.zarr", "compressed.zarr"])
def test_a_store_reads_as_from_the_folder(url, stores, name, tmp_path):
    there = open_store(f"{url}/{name}")
    assert_alike(there, open_store(stores / name))
    assert verify(f"{url}/{name}") == []
    assert len(subset(there, tmp_path / "some.zarr", ids=["tt050", "tt051"]).done_ids()) == 2
    assert there.where == f"{url}/{name}"


@pytest.fixture
def requests(caplog):
    """Return the requests to S3 as (method, path)."""
    caplog.set_level("INFO", "werkzeug")
    asked = re.compile(r"(GET|HEAD|PUT|POST) /(\S*) HTTP")
    return lambda: [match.groups() for match in map(asked.search, caplog.messages) if match]


def test_a_row_takes_one_request_from_the_opened_store(url, requests, caplog):
    store = open_store(f"{url}/final.zarr")
    here = store.read("frames", ["tt001"])
    caplog.clear()
    for row in (2, 3, 4, 6, 8):
        assert store.read("frames", [f"tt{row:03}"]).shape == here.shape
    assert requests() == [("GET", "lab/final.zarr/frames/c/0/0/0")] * 5


def test_damage_and_oversized_files_are_named(url, stores):
    assert verify(f"{url}/damaged.zarr") == verify(stores / "damaged.zarr")
    with pytest.raises(StoreError, match="a checksum is wrong"):
        open_store(f"{url}/damaged.zarr").read("frames", ["tt001"])
    with pytest.raises(StoreError, match=r"checksums.json is larger than"):
        open_store(f"{url}/large.zarr")


def test_a_file_is_read_to_its_end(url, stores, monkeypatch):
    """Also if the last piece ends with the file, so that the next one begins behind its end."""
    name = "final.zarr/frames/c/0/0/0"
    data = (stores / name).read_bytes()
    monkeypatch.setattr(files, "PIECE_BYTES", len(data) // 2)
    assert len(data) % 2 == 0
    sha256 = files.sha256_at(remote.Remote(url), name)
    assert sha256 == hashlib.sha256(data).hexdigest()


def test_missing_buckets_and_stores_are_named(url, stores):
    for name in ("lab/none.zarr", "nobody/none.zarr", "lab/final.zarr/native/c"):
        with pytest.raises(StoreError, match=f"s3://{name} is not a feature store: .*; check"):
            open_store(f"s3://{name}")
    import boto3

    for target in ("s3://wrong-bucket/x.zarr", "s3://wrong-bucket"):
        with pytest.raises(StoreError, match=f"{target}.*: the bucket does not exist"):
            push(stores / "final.zarr", target)
    names = [bucket["Name"] for bucket in boto3.client("s3").list_buckets()["Buckets"]]
    assert "wrong-bucket" not in names


def test_missing_credentials_are_one_line(url, monkeypatch, tmp_path):
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match=r"credentials .*AWS_ACCESS_KEY_ID"):
        open_store(f"{url}/final.zarr")
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("address", [
    "file:///x.zarr", "ftp://ann:s@cret@127.0.0.1:1/x.zarr", "ftp://ann:s@cret@127.0.0.1:1/x.zip",
    "gs://lab/x.zarr", "simplecache::s3://lab/final.zarr", "zip://x.zarr::http://127.0.0.1:1/x.zip",
])  # fmt: skip
def test_other_schemes_are_refused_by_name(stores, tmp_path, address):
    scheme = address.partition("://")[0]
    send, fetch = partial(push, stores / "final.zarr"), partial(pull, path=tmp_path / "x.zarr")
    for use in (send, fetch, open_store):
        with pytest.raises(UsageError, match=f"'{scheme}' addresses; use https") as problem:
            use(address)
        assert "cret" not in str(problem.value)
