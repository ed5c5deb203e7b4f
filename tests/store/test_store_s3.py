"""Stores on S3, by a server of its protocol on loopback, and addresses of other schemes."""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from obygaze_features.errors import MissingExtra, StoreError, UsageError
from obygaze_features.store import open_store, subset
from obygaze_features.store.transfer import pull
from obygaze_features.store.verify import verify
from tests.kit.servers import bucket
from tests.kit.store import assert_alike, flip_bit, in_all_states, numbers, push

VALUES = {"native": numbers(60, (3,), "float32"), "frames": numbers(60, (32, 64), "float16")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The store in all states, damaged, and with a list of checksums that is too large."""
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


@pytest.mark.gate
@pytest.mark.parametrize("name", ["final.zarr", "open.zarr", "compressed.zarr"])
def test_a_store_reads_as_from_the_folder(url, stores, name, tmp_path):
    there = open_store(f"{url}/{name}")
    assert_alike(there, open_store(stores / name))
    assert verify(f"{url}/{name}") == []
    assert len(subset(there, tmp_path / "some.zarr", ids=["tt050", "tt051"]).done_ids()) == 2
    assert there.where == f"{url}/{name}"


def test_damage_and_what_is_too_large_are_named(url, stores):
    assert verify(f"{url}/damaged.zarr") == verify(stores / "damaged.zarr")
    for folder in (url, f"file://{stores}"):
        with pytest.raises(StoreError, match="its checksum is wrong; the row of tt001"):
            open_store(f"{folder}/damaged.zarr").read("frames", ["tt001"])
        with pytest.raises(StoreError, match=r"checksums.json has more than"):
            open_store(f"{folder}/large.zarr")


def test_what_is_not_there_is_named(url, stores):
    for name in ("lab/none.zarr", "nobody/none.zarr", "lab/final.zarr/native/c"):
        with pytest.raises(StoreError, match=f"there is no store at s3://{name}: .*; check"):
            open_store(f"s3://{name}")
    import boto3

    for target in ("s3://wrong-bucket/x.zarr", "s3://wrong-bucket"):
        with pytest.raises(StoreError, match=f"no bucket wrong-bucket, for {target}.*; check"):
            push(stores / "final.zarr", target)
    with pytest.raises(MissingExtra, match="takes a package that is not installed"):
        open_store("gs://bucket/x.zarr")  # its client
    names = [bucket["Name"] for bucket in boto3.client("s3").list_buckets()["Buckets"]]
    assert "wrong-bucket" not in names


def test_missing_credentials_are_one_line(url, monkeypatch, tmp_path):
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match=r"give credentials: .* AWS_ACCESS_KEY_ID"):
        open_store(f"{url}/final.zarr")
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("address", [
    "ftp://ann:s@cret@127.0.0.1:1/x.zarr", "ftp://ann:s@cret@127.0.0.1:1/x.zip",
    "simplecache::s3://lab/final.zarr", "zip://x.zarr::http://127.0.0.1:1/x.zip",
])  # fmt: skip
def test_other_schemes_are_refused_by_name(stores, tmp_path, address):
    scheme = address.partition("://")[0]
    uses = [partial(push, stores / "final.zarr"), partial(pull, path=tmp_path / "x.zarr")]
    if not address.endswith(".zip"):  # of a packed store it names the command to fetch it
        uses.append(open_store)
    for use in uses:
        with pytest.raises(UsageError, match=f"'{scheme}' addresses; use https") as problem:
            use(address)
        assert "cret" not in str(problem.value)
