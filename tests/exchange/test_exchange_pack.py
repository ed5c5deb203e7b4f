"""Packed stores: reproducible bytes, read in place; archives and lists that are refused.

The list of a store's files names exactly its files, however the store is copied.
"""

import hashlib
import json
import os
import shutil
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr

import obygaze_features as of
from obygaze_features.errors import StoreError
from tests.kit.store import files_of

SHARD = "native/c/0/0"


@pytest.fixture
def archive(final_store, tmp_path):
    return of.pack(final_store, tmp_path / "toy.zip")["path"]


@pytest.fixture
def store(final_store, tmp_path):
    return Path(shutil.copytree(final_store, tmp_path / "toy.zarr"))


def test_archives_are_reproducible_and_readable_by_zip_tools(archive, store, tmp_path):
    opened = of.open_store(store)
    with zarr.storage.ZipStore(archive, mode="r") as packed:
        group = zarr.open_group(packed, mode="r")
        np.testing.assert_array_equal(group["native"][:], opened.read("native", missing="nan"))
        assert group.attrs["obygaze"] == opened.attributes
    with zipfile.ZipFile(archive) as packed:
        assert packed.testzip() is None
        for info in packed.infolist():
            assert (info.compress_type, info.create_system) == (zipfile.ZIP_STORED, 3)
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.external_attr >> 16 == stat.S_IFREG | 0o444
    (store / ".DS_Store").write_text("x")
    of.pack(store, tmp_path / "more.zip")
    assert (tmp_path / "more.zip").read_bytes() == archive.read_bytes()


def add(archive, name, content=b"x", **fields):
    info = zipfile.ZipInfo("placeholder")
    info.filename = info.orig_filename = name
    for key, value in fields.items():
        setattr(info, key, value)
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr(info, content, compress_type=info.compress_type)


def write_zip(path, files, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as opened:
        for name, data in files.items():
            opened.writestr(name, data)


def test_only_files_of_the_store_are_unpacked(archive, final_store, tmp_path):
    add(archive, "../evil")  # leads up
    add(archive, "evil-link", b"/etc", external_attr=(stat.S_IFLNK | 0o777) << 16)
    add(archive, SHARD.upper())
    add(archive, "evil-bomb", bytes(10**7), compress_type=zipfile.ZIP_DEFLATED)
    again = of.pull(archive, tmp_path / "here/again.zarr").path
    assert files_of(again) == files_of(final_store)
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "toy.zip"]


HOSTILE = {
    "compressed": "zarr.json does not match its checksum .*, or is compressed",
    "cut": "is not a zip file, or is cut short",
    "other shard": f"{SHARD} does not match its checksum",
    "lost file": "lacks files that checksums.json lists",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused_and_leave_nothing(case, archive, final_store, tmp_path):
    files = files_of(final_store)
    if case == "compressed":
        write_zip(archive, files, zipfile.ZIP_DEFLATED)
    elif case == "cut":
        os.truncate(archive, archive.stat().st_size - 9)
    elif case == "other shard":
        write_zip(archive, {**files, SHARD: files[SHARD][:-1] + b"?"})
    else:
        del files["rows.csv"]
        write_zip(archive, files)
    with pytest.raises(StoreError, match=rf"toy\.zip.*({HOSTILE[case]})") as problem:
        of.pull(archive, tmp_path / "again.zarr")
    assert "pulling" not in str(problem.value)  # and no temporary folder
    assert "\n" not in str(problem.value)
    assert [path.name for path in tmp_path.iterdir()] == ["toy.zip"]


def edit_list(store, **sums):
    path = store / "checksums.json"
    edited = json.loads(path.read_text()) | sums
    path.chmod(0o644)
    kept = {name: sha256 for name, sha256 in edited.items() if sha256}
    path.write_text(json.dumps(kept))


def refuse_to_copy(store, fact):
    output = store.parent / "output"
    write_zip(store.parent / "toy.zip", files_of(store))
    for copy in (
        lambda: of.pack(store, output / "toy.zip"),
        lambda: of.pull(store, output / "toy.zarr"),
        lambda: of.pull(store.parent / "toy.zip", output / "toy.zarr"),
    ):
        with pytest.raises(StoreError, match=rf"toy\.(zip|zarr)\S*:? .*({fact})"):
            copy()
        # Downloaded files of a pull stay hidden, for the next pull.
        assert {path.name for path in output.glob("*")} <= {".toy.zarr.pulling"}


@pytest.mark.parametrize("name", ["native/c/0/0", "rows.csv", "ids/zarr.json"])
def test_an_unlisted_file_is_refused(name, store):
    edit_list(store, **{name: None})
    [entry] = of.verify(store)
    assert entry.file == name
    assert repr(name) in entry.why
    refuse_to_copy(store, f"see '{name}'")


INSIDE = ("native/c/1/0", "probe/evil")
ELSEWHERE = ("../secret", "/tmp/secret", "a/../../secret", ".hidden", "a\\b", "a\nb", "")


@pytest.mark.parametrize("name", [*INSIDE, *ELSEWHERE])
def test_a_listed_file_that_is_none_of_the_stores_is_refused(name, store, tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    edit_list(store, **{name: hashlib.sha256(b"x").hexdigest()})
    if name in INSIDE:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(b"x")
    [reason] = [entry.why for entry in of.verify(store) if entry.file == name]
    listed = "checksums.json does not list exactly this store's files"
    assert (listed if name in INSIDE else "a store cannot have a file with this name") in reason
    refuse_to_copy(store, f"a store cannot have a file with this name|{listed}")
    assert (tmp_path / "secret").read_bytes() == b"x"


def test_a_link_instead_of_the_log_is_not_followed(store, tmp_path):
    (tmp_path / "secret").write_text("key")
    (store / "log.jsonl").unlink()
    (store / "log.jsonl").symlink_to(tmp_path / "secret")
    for send, name in ((of.pack, "toy.zip"), (of.pull, "copy.zarr")):
        with pytest.raises(StoreError, match=r"log\.jsonl .*is a link"):
            send(store, tmp_path / name)
    of.repair(store, reopen=True)  # which begins a log of its own
    assert not (store / "log.jsonl").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "toy.zarr"]
    assert (tmp_path / "secret").read_text() == "key"
