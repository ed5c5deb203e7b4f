"""Packed stores: reproducible bytes, read in place; archives and lists that are refused.

The list of a store's files names exactly its files, however the store is copied.
"""

import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import zarr

import obygaze_features as of
from obygaze_features.errors import StoreError
from tests.kit.store import a_store, files_of

SHARD = "native/c/0/0"
Spoil = Callable[[Path], None]


@pytest.fixture
def archive(final_store, tmp_path):
    return of.pack(final_store, tmp_path / "toy.zip")["path"]


def test_archives_are_reproducible_and_readable_by_zip_tools(archive, final_store, tmp_path):
    store = of.open_store(final_store)
    with zarr.storage.ZipStore(archive, mode="r") as opened:
        group = zarr.open_group(opened, mode="r")
        np.testing.assert_array_equal(group["native"][:], store.read("native", missing="nan"))
        assert group.attrs["obygaze"] == store.attributes
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        for info in opened.infolist():
            assert (info.compress_type, info.create_system) == (zipfile.ZIP_STORED, 3)
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.external_attr >> 16 == stat.S_IFREG | 0o444
    more = Path(shutil.copytree(final_store, tmp_path / "toy.zarr"))
    (more / ".DS_Store").write_text("x")
    of.pack(more, tmp_path / "more.zip")
    assert (tmp_path / "more.zip").read_bytes() == archive.read_bytes()


def add(name: str, content: bytes = b"x", **fields: object) -> Spoil:
    def spoil(archive: Path) -> None:
        info = zipfile.ZipInfo("placeholder")
        info.filename = info.orig_filename = name
        for key, value in fields.items():
            setattr(info, key, value)
        with zipfile.ZipFile(archive, "a") as opened:
            opened.writestr(info, content, compress_type=info.compress_type)

    return spoil


def replace(name: str, change: Callable[[bytes], bytes | None]) -> Spoil:
    def spoil(archive: Path) -> None:
        files = read_zip(archive)
        if (content := change(files.pop(name))) is not None:
            files[name] = content
        write_zip(archive, files)

    return spoil


def read_zip(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def write_zip(
    path: Path, files: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", compression) as opened:
        for name, data in files.items():
            opened.writestr(name, data)
    return path


STRANGE = {
    "leads up": add("../evil"),
    "folder": add("evil/", b""),
    "link": add("evil", b"/etc", external_attr=(stat.S_IFLNK | 0o777) << 16),
    "twice by case": add(SHARD.upper()),
    "bomb": add("evil", bytes(10**7), compress_type=zipfile.ZIP_DEFLATED),
}


@pytest.mark.parametrize("spoil", STRANGE.values(), ids=STRANGE)
def test_only_files_of_the_store_are_unpacked(spoil, archive, final_store, tmp_path):
    spoil(archive)
    again = of.pull(archive, tmp_path / "here/again.zarr").path
    assert files_of(again) == files_of(final_store)
    assert {path.name for path in tmp_path.rglob("*") if "evil" in path.name} == set()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "toy.zip"]


HOSTILE = {
    "does not match its checksum": add(SHARD),
    "or is compressed": lambda archive: write_zip(archive, read_zip(archive), zipfile.ZIP_DEFLATED),
    "or is cut short": lambda archive: os.truncate(archive, archive.stat().st_size - 9),
    f"{SHARD} does not match": replace(SHARD, lambda data: data[:-1] + b"?"),
    "lacks files that checksums.json lists": replace("rows.csv", lambda data: None),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("fact", "spoil"), HOSTILE.items(), ids=HOSTILE)
def test_hostile_archives_are_refused_and_leave_nothing(spoil, fact, archive, tmp_path):
    spoil(archive)
    with pytest.raises(StoreError, match=rf"toy\.zip.*({fact})") as problem:
        of.pull(archive, tmp_path / "again.zarr")
    assert "pulling" not in str(problem.value)  # and no temporary folder
    assert "\n" not in str(problem.value)
    assert [path.name for path in tmp_path.iterdir()] == ["toy.zip"]


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
    output = store.parent / "output"
    calls = {
        "pack": lambda: of.pack(store, output / "toy.zip"),
        "pull": lambda: of.pull(store, output / "toy.zarr"),
        "unpack": lambda: of.pull(
            write_zip(store.parent / "toy.zip", files_of(store)), output / "toy.zarr"
        ),
    }
    for way in ways:
        with pytest.raises(StoreError, match=rf"toy\.(zip|zarr)\S*:? .*({fact})") as problem:
            calls[way]()
        assert "pulling" not in str(problem.value)
        # Downloaded files of a pull stay hidden, for the next pull.
        assert {path.name for path in output.glob("*")} <= {".toy.zarr.pulling"}, way


@pytest.mark.parametrize("name", ["native/c/0/0", "rows.csv", "ids/zarr.json"])
def test_an_unlisted_file_is_refused(name, store):
    edit_list(store, name, None)
    [entry] = of.verify(store)
    assert entry.file == name
    assert repr(name) in entry.why
    refused(f"see '{name}'", store, "pack")
    (store / name).unlink()
    assert [entry.file for entry in of.verify(store)].count(name) == 1
    refused(f"see '{name}'|it is missing", store, "unpack", "pull")


INSIDE = ("native/c/1/0", "probe/evil")
ELSEWHERE = ("../secret", "/tmp/secret", "a/../../secret", ".hidden", "a\\b", "a\0b", "")


@pytest.mark.parametrize("name", [*INSIDE, *ELSEWHERE])
def test_a_listed_but_missing_file_is_refused(name, store, tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    edit_list(store, name, hashlib.sha256(b"x").hexdigest())
    if name in INSIDE:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(b"x")
        refused(f"see '{name}'", store, "unpack")
    [reason] = [entry.why for entry in of.verify(store) if entry.file == name]
    listed = "checksums.json does not list exactly this store's files"
    assert (listed if name in INSIDE else "a store cannot have a file with this name") in reason
    fact = "a store cannot have a file with this name|does not list exactly this store's files"
    refused(fact, store, "pack", "pull")
    assert (tmp_path / "secret").read_bytes() == b"x"


def test_a_link_instead_of_the_log_is_not_followed(store, tmp_path):
    (tmp_path / "secret").write_text("key")
    (store / "log.jsonl").unlink()
    (store / "log.jsonl").symlink_to(tmp_path / "secret")
    for send in (
        lambda: of.pack(store, tmp_path / "toy.zip"),
        lambda: of.pull(store, tmp_path / "copy.zarr"),
    ):
        with pytest.raises(StoreError, match=r"log\.jsonl .*is a link"):
            send()
    of.repair(store, reopen=True)  # which begins a log of its own
    assert not (store / "log.jsonl").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "toy.zarr"]
    unfinished = a_store(tmp_path / "open.zarr")
    (unfinished / "log.jsonl").unlink()
    (unfinished / "log.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match=r"log\.jsonl is a link"):
        of.finalise(unfinished)
    assert (tmp_path / "secret").read_text() == "key"
