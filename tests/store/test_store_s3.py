"""Stores on S3, by a server of its protocol on loopback."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import boto3
import numpy as np
import pytest

from obygaze_features.errors import MissingExtra, StoreError, UsageError
from obygaze_features.store import diff, finalise, open_store, subset, verify
from obygaze_features.store.pull import pull
from obygaze_features.store.push import push
from tests.store.making import flip_bit, numbers, open_state
from tests.store.s3 import bucket

N = 60
VALUES = {"native": numbers(N, (3,), "float32"), "frames": numbers(N, (32, 64), "float16")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("s3")
    open_state(folder / "open.zarr", VALUES, failed=[7], todo=[5], block_rows=8)
    for name in ("final", "compressed"):
        shutil.copytree(folder / "open.zarr", folder / f"{name}.zarr")
        finalise(folder / f"{name}.zarr", compress=name == "compressed", allow_incomplete=True)
    return folder


@pytest.fixture(scope="module")
def url(made: Path) -> Iterator[str]:
    with bucket("lab") as put:
        for file in made.rglob("*"):
            if file.is_file():
                put(file.relative_to(made).as_posix(), file)
        yield "s3://lab"


@pytest.mark.gate
@pytest.mark.parametrize("name", ["open.zarr", "final.zarr", "compressed.zarr"])
def test_a_store_reads_as_from_the_folder(url, made, name, tmp_path):
    here = open_store(made / name)
    there = open_store(f"{url}/{name}")
    assert there.info() == here.info()
    for array in here.arrays:
        np.testing.assert_array_equal(
            there.read(array, missing="nan"), here.read(array, missing="nan")
        )
    assert there.sources == here.sources
    assert diff(there, here).identical
    assert verify(f"{url}/{name}") == []
    assert len(subset(there, tmp_path / "some.zarr", ids=["tt050", "tt051"]).done_ids()) == 2
    assert pickle.loads(pickle.dumps(there)).ids == here.ids
    assert there.where == f"{url}/{name}"


def test_damage_is_named(url, made, tmp_path):
    own = Path(shutil.copytree(made / "final.zarr", tmp_path / "own.zarr"))
    flip_bit(own / "frames/c/0/0/0", 5)
    (own / "rows.csv").unlink()
    with bucket("spoilt") as put:
        for file in own.rglob("*"):
            if file.is_file():
                put(f"own.zarr/{file.relative_to(own).as_posix()}", file)
        assert verify("s3://spoilt/own.zarr") == verify(own)
        store = open_store("s3://spoilt/own.zarr")
        with pytest.raises(StoreError, match="its checksum is wrong; the row of tt001"):
            store.read("frames", ["tt001"])


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://lab/none.zarr", "there is nothing at s3://lab/none.zarr; check the address"),
        ("s3://nobody/none.zarr", "there is no bucket nobody, for s3://nobody/none.zarr; check"),
        ("s3://lab/final.zarr/native/c", "final.zarr/native/c is not a feature store: it has no"),
    ],
)
def test_what_is_not_there_is_said_as_what_it_is(url, address, said):
    with pytest.raises(StoreError, match=said):
        open_store(address)


def test_a_push_makes_no_bucket(url, made):
    for target in ("s3://wrong-bucket/x.zarr", "s3://wrong-bucket"):
        with pytest.raises(
            StoreError, match=f"there is no bucket wrong-bucket, for {target}.*; che"
        ):
            push(made / "final.zarr", target)
    names = [one["Name"] for one in boto3.client("s3").list_buckets()["Buckets"]]
    assert "wrong-bucket" not in names


def test_an_endpoint_where_nobody_is_is_named(url, made, monkeypatch):
    import s3fs

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{one.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", nobody)
        s3fs.S3FileSystem.clear_instance_cache()
        for ask in (open_store, partial(push, made / "final.zarr")):
            with pytest.raises(StoreError, match=f"nobody answers at {nobody}; check") as problem:
                ask(f"{url}/final.zarr")
            assert str(problem.value).endswith("AWS_ENDPOINT_URL), and run the same command again")
        s3fs.S3FileSystem.clear_instance_cache()


def test_missing_credentials_are_one_line(url, monkeypatch, tmp_path):
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match=r"no access .* AWS_ACCESS_KEY_ID") as problem:
        open_store(f"{url}/final.zarr")
    assert "\n" not in str(problem.value)
    s3fs.S3FileSystem.clear_instance_cache()


def test_client_of_google_that_is_not_installed_is_named():
    with pytest.raises(MissingExtra, match="takes a package that is not installed"):
        open_store("gs://bucket/x.zarr")


@pytest.mark.parametrize(
    "address",
    [
        "nonsense://ann:s@cret@x",
        "ftp://ann:s@cret@127.0.0.1:1/x.zarr",
        "ftp://ann:s@cret@127.0.0.1:1/x.zip",
        "github://own:name@main/x.zarr",
        "memory://x.zarr",
        "reference::http://127.0.0.1:1/x.json",
        "simplecache::http://127.0.0.1:1/x.zarr",
        "simplecache::s3://lab/final.zarr",
        "zip://x.zarr::http://127.0.0.1:1/x.zip",
    ],
)
def test_other_schemes_are_refused_by_name(made, tmp_path, address):
    """Before anybody is asked: nobody answers at port 1."""
    scheme = address.partition("://")[0]
    for use in (
        open_store,
        partial(push, made / "final.zarr"),
        partial(pull, path=tmp_path / "x.zarr"),
    ):
        if use is open_store and address.endswith(".zip"):
            continue  # of a packed store: it names the command to fetch it
        with pytest.raises(UsageError, match=f"'{scheme}' addresses; use https") as problem:
            use(address)
        assert "cret" not in str(problem.value)


@pytest.mark.parametrize("name", ["checksums.json", "native/c/0/0"])
def test_size_is_bounded_whatever_the_scheme(made, tmp_path, name):
    own = Path(shutil.copytree(made / "final.zarr", tmp_path / "own.zarr"))
    (own / name).chmod(0o644)
    os.truncate(own / name, 17 * 2**20 if name.endswith(".json") else 2**30 + 1)  # sparse
    with pytest.raises(StoreError, match=f"{name} has more than"):
        open_store(f"file://{own}").location.read(name)
    if name.endswith(".json"):
        with bucket("large") as put:
            put("own.zarr/checksums.json", own / name)
            with pytest.raises(StoreError, match=f"{name} has more than"):
                open_store("s3://large/own.zarr")


def test_url_of_a_file_will_do(made):
    store = open_store(f"file://{made}/final.zarr")
    np.testing.assert_array_equal(store["tt001"]["frames"], VALUES["frames"][1])
