"""The list of a store's files, whichever way the store goes: it names all of them and no others."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from obygaze_features.errors import StoreError
from obygaze_features.store import finalise, repair, verify
from obygaze_features.store.pack import pack, unpack
from obygaze_features.store.pull import pull
from obygaze_features.store.push import push
from tests.exchange.conftest import files_of
from tests.exchange.test_exchange_pack import write_zip
from tests.store.toys import a_store, resume


@pytest.fixture
def store(final_store, tmp_path):
    return Path(shutil.copytree(final_store, tmp_path / "toy.zarr"))


def edit_list(store: Path, name: str, digest: str | None) -> None:
    path = store / "checksums.json"
    sums = {name: digest, **json.loads(path.read_text())}
    if digest is None:
        sums.pop(name)
    path.chmod(0o644)
    path.write_text(json.dumps(sums))


def refused(fact: str, store: Path, *ways: str) -> None:
    """Each way refuses a store, and leaves nothing."""
    output = store.parent / "output"
    calls = {
        "pack": lambda: pack(store, output / "toy.zip"),
        "push": lambda: push(store, output / "toy.zarr"),
        "pull": lambda: pull(store, output / "toy.zarr"),
        "unpack": lambda: unpack(
            write_zip(store.parent / "toy.zip", files_of(store)), output / "toy.zarr"
        ),
    }
    for way in ways:
        with pytest.raises(StoreError, match=rf"toy\.(zip|zarr)\S*:? .*({fact})") as problem:
            calls[way]()
        assert "pulling" not in str(problem.value)
        # What a pull has fetched stays hidden, for the next one.
        assert {path.name for path in output.glob("*")} <= {".toy.zarr.pulling"}, way


@pytest.mark.parametrize(
    "name", ["native/c/0/0", "rows.csv", "README.md", "status/c/0", "ids/zarr.json"]
)
def test_a_list_that_leaves_a_file_out_is_refused(name, store):
    """Lost from the files and from the list, so that all that is listed is right."""
    edit_list(store, name, None)
    [entry] = verify(store)
    assert (entry.file, entry.harmless) == (name, False)
    assert "does not list it" in entry.why
    refused(f"does not list '{name}'", store, "pack", "push")
    (store / name).unlink()
    assert [entry.file for entry in verify(store) if not entry.harmless].count(name) == 1
    refused(f"does not list '{name}'", store, "unpack", "pull")


@pytest.mark.parametrize("name", ["evil", "native/c/1/0", "native/evil", "probe/evil"])
def test_a_file_that_only_the_list_has_is_refused(name, store):
    (store / name).parent.mkdir(parents=True, exist_ok=True)
    (store / name).write_bytes(b"x")
    edit_list(store, name, hashlib.sha256(b"x").hexdigest())
    reasons = {entry.file: entry.why for entry in verify(store)}
    assert reasons[name] == "checksums.json lists it, but a store has no such file"
    fact = rf"lists '{name}', not a store's file|does not list 'probe/zarr\.json'"
    refused(fact, store, "pack", "push", "unpack", "pull")


@pytest.mark.parametrize(
    "name", ["../secret", "/tmp/secret", "a/../../secret", ".hidden", "a\\b", ""]
)
def test_a_list_that_leads_elsewhere_is_refused(name, store, tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    edit_list(store, name, hashlib.sha256(b"x").hexdigest())
    refused("not a file name of a store|not a store's file", store, "pull", "pack", "push")
    assert (tmp_path / "secret").read_bytes() == b"x"


def test_a_link_in_the_place_of_the_log_is_not_followed(store, tmp_path):
    """Of all files of a store the log alone has no checksum."""
    (tmp_path / "secret").write_text("key")
    (store / "log.jsonl").unlink()
    (store / "log.jsonl").symlink_to(tmp_path / "secret")
    for send in (
        lambda: push(store, tmp_path / "there.zarr"),
        lambda: pack(store, tmp_path / "toy.zip"),
        lambda: repair(store, reopen=True),
    ):
        with pytest.raises(StoreError, match=r"log\.jsonl is a link"):
            send()
    assert [entry.file for entry in verify(store) if not entry.harmless] == ["log.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "toy.zarr"]
    unfinished = a_store(tmp_path / "open.zarr")
    (unfinished / "log.jsonl").unlink()
    (unfinished / "log.jsonl").symlink_to(tmp_path / "secret")
    for write in (lambda: finalise(unfinished), lambda: resume(unfinished).log("extracted")):
        with pytest.raises(StoreError, match=r"log\.jsonl is a link"):
            write()
    (unfinished / "log.jsonl").unlink()
    shutil.rmtree(unfinished / "probe")
    (unfinished / "probe").symlink_to(tmp_path)
    with pytest.raises(StoreError, match=r"probe is a link"):
        finalise(unfinished)
    assert (tmp_path / "secret").read_text() == "key"
