"""Packed stores: the same bytes again, read in place, and archives that are refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_features.errors import OutputExists, StoreError, UsageError
from obygaze_features.store import finalise, open_store, verify
from obygaze_features.store.pack import pack, unpack
from tests.kit import store as toys


def files(path: Path) -> dict[str, bytes]:
    every = (file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in every}


@pytest.fixture
def archive(final_store, tmp_path):
    return pack(final_store, tmp_path / "toy.zip")["path"]


@given(n=st.integers(1, 9), width=st.integers(1, 40), compress=st.booleans())
@settings(deadline=None, max_examples=8)
def test_packed_and_unpacked_it_is_the_same_to_the_last_byte(n, width, compress):
    values = np.random.default_rng(n).normal(size=(n, width)).astype("float32")
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = toys.open_state(folder / "s.zarr", {"native": values}, failed={0} if n > 1 else ())
        finalise(store, compress=compress)
        packed = pack(store, folder / "s.zip")
        unpacked = unpack(packed["path"], folder / "t.zarr")["path"]
        assert files(unpacked) == files(store)
        assert verify(unpacked) == []
        assert pack(unpacked, folder / "t.zip")["path"].read_bytes() == packed["path"].read_bytes()
        assert packed["files"] == len(files(store))


@pytest.mark.parametrize("more", [b"\0", b"more" * 20])
def test_bytes_after_the_end_of_an_archive_are_refused(archive, more):
    archive.chmod(0o644)
    archive.write_bytes(archive.read_bytes() + more)
    with pytest.raises(StoreError, match=r"toy\.zip has a comment or bytes after its end"):
        open_store(archive)


def test_what_is_in_the_store_beside_its_own_files_stays_there(final_store, tmp_path):
    store = shutil.copytree(final_store, tmp_path / "toy.zarr")
    (store / ".DS_Store").write_text("x")
    assert pack(store, tmp_path / "toy.zip")["left_out"] == [".DS_Store"]
    assert pack(final_store, tmp_path / "same.zip")["left_out"] == []
    assert (tmp_path / "toy.zip").read_bytes() == (tmp_path / "same.zip").read_bytes()


def test_what_is_wrong_with_the_store_inside_names_the_archive(final_store, tmp_path):
    """Not the folder of a moment into which it is unpacked."""
    for name, change, why in (
        ("zarr.json", lambda data: data.replace(b'"final"', b'"other"'), "the attribute state is"),
        (
            "zarr.json",
            lambda data: data.replace(b'"final"', b'"open"'),
            "frames/zarr.json|native/zarr.json",
        ),
        ("frames/zarr.json", lambda data: b"{", "frames/zarr.json"),
    ):
        held = files(final_store)
        held[name] = change(held[name])
        sums = json.loads(held["checksums.json"]) | {name: hashlib.sha256(held[name]).hexdigest()}
        held["checksums.json"] = json.dumps(sums).encode()
        with zipfile.ZipFile(tmp_path / "toy.zip", "w") as opened:
            for one, data in held.items():
                opened.writestr(one, data)
        with pytest.raises(
            StoreError, match=rf"toy\.zip.*({why}).*nothing was unpacked"
        ) as problem:
            unpack(tmp_path / "toy.zip", tmp_path / "again.zarr")
        assert "again.zarr" not in str(problem.value)
        assert "\n" not in str(problem.value)
        assert [one.name for one in tmp_path.iterdir()] == ["toy.zip"]
    store = toys.a_store(tmp_path / "toy.zarr")
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as opened:
        for one, data in files(store).items():
            opened.writestr(one, data)
    with pytest.raises(StoreError, match=r"'blocks/000000.json' is no file of this store"):
        unpack(tmp_path / "toy.zip", tmp_path / "again.zarr")


def test_others_read_it_in_place(archive, final_store):
    store = open_store(final_store)
    with zarr.storage.ZipStore(archive, mode="r") as opened:
        group = zarr.open_group(opened, mode="r")
        np.testing.assert_array_equal(group["native"][:], store.read("native", missing="nan"))
        assert group.attrs["obygaze"] == store.attributes
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-t", archive], capture_output=True, text=True, check=True
    )
    assert "Done testing" in listed.stdout


def test_the_same_store_gives_the_same_zip_file_everywhere(archive):
    infos = zipfile.ZipFile(archive).infolist()
    for info in infos:
        assert (info.compress_type, info.date_time) == (zipfile.ZIP_STORED, (1980, 1, 1, 0, 0, 0))
        assert (info.external_attr >> 16, info.create_system) == (stat.S_IFREG | 0o444, 3)


def test_open_and_damaged_stores_are_not_packed(final_store, tmp_path):
    path = toys.a_store(tmp_path / "toy.zarr")
    with pytest.raises(StoreError, match=f"still open.*stores finalise {path}"):
        pack(path, tmp_path / "toy.zip")
    damaged = shutil.copytree(final_store, tmp_path / "damaged.zarr")
    toys.flip_bit(damaged / "native/c/0/0", 3)
    with pytest.raises(StoreError, match="native/c/0/0 is not as it was written"):
        pack(damaged, tmp_path / "toy.zip")
    (damaged / "rows.csv").unlink()
    with pytest.raises(StoreError, match=r"rows\.csv cannot be read"):
        pack(damaged, tmp_path / "toy.zip")
    assert not list(tmp_path.glob("*toy.zip*"))


def test_a_store_that_lists_files_elsewhere_is_not_packed(final_store, tmp_path):
    store = shutil.copytree(final_store, tmp_path / "toy.zarr")
    (tmp_path / "secret").write_text("secret")
    change_sums(store, {"../secret": hashlib.sha256(b"secret").hexdigest()})
    with pytest.raises(StoreError, match=r"lists '\.\./secret', not a store's file"):
        pack(store, tmp_path / "toy.zip")


def test_nothing_is_replaced_unasked(archive, final_store, tmp_path):
    before = archive.read_bytes()
    with pytest.raises(OutputExists):
        pack(final_store, archive)
    target = tmp_path / "toy.zarr"
    target.mkdir()
    (target / "film.mkv").write_text("precious")
    with pytest.raises(OutputExists):
        unpack(archive, target)
    with pytest.raises(OutputExists, match=r"it has no checksums.json"):
        unpack(archive, target, overwrite=True)
    assert (archive.read_bytes(), files(target)) == (before, {"film.mkv": b"precious"})
    with pytest.raises(UsageError, match=r"ends in \.zip"):
        pack(final_store, tmp_path / "toy.tar")
    with pytest.raises(UsageError, match="is inside the store"):
        pack(final_store, final_store / "toy.zip")
    with pytest.raises(UsageError, match=r"ends in \.zarr"):
        unpack(archive, tmp_path / "toy")


def change_sums(store: Path, more: dict[str, str], without: str = "") -> None:
    path = store / "checksums.json"
    sums = json.loads(path.read_text()) | more
    sums.pop(without, None)
    path.chmod(0o644)
    path.write_text(json.dumps(sums))


def named(name: str, **fields: object) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("placeholder")
    info.filename = info.orig_filename = name
    for key, value in fields.items():
        setattr(info, key, value)
    return info


SHARD = "native/c/0/0"
HOSTILE = {
    "leads up": (named("../evil"), b"x", "is not a file name"),
    "leads up inside": (named("native/../../evil"), b"x", "is not a file name"),
    "absolute": (named("/tmp/evil"), b"x", "is not a file name"),
    "absolute on Windows": (named("C:evil"), b"x", "is not a file name"),
    "backslashes": (named("..\\evil"), b"x", "is not a file name"),
    "hidden": (named(".evil"), b"x", "is not a file name"),
    "empty part": (named("native//evil"), b"x", "is not a file name"),
    "folder": (named("evil/"), b"", "is a folder"),
    "link": (
        named("evil", external_attr=(stat.S_IFLNK | 0o777) << 16),
        b"/etc",
        "is a link or",
    ),
    "pipe": (
        named("evil", external_attr=(stat.S_IFIFO | 0o666) << 16),
        b"",
        "is a link or",
    ),
    "twice": (named(SHARD), b"x", "is there twice"),
    "twice by case": (named(SHARD.upper()), b"x", "is there twice"),
    "below a file": (named(f"{SHARD}/evil"), b"x", "is a file and a folder"),
    "of no store": (named("evil"), b"x", "is no file of this store"),
    "bomb": (named("evil", compress_type=zipfile.ZIP_DEFLATED), bytes(10**7), "is compressed"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused_before_a_byte_is_written(case, archive, tmp_path):
    info, content, why = HOSTILE[case]
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr(info, content, compress_type=info.compress_type)
    (tmp_path / "in").mkdir()
    with pytest.raises(StoreError, match=f"{why}.*; nothing was unpacked"):
        unpack(archive, tmp_path / "in/toy.zarr")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "toy.zip"]


def patched(archive: Path, change: Callable[[bytearray, int], None]) -> None:
    """Change the entry of a shard in the table of contents, where `change` is told it begins."""
    data = bytearray(archive.read_bytes())
    place = data.rindex(b"PK\x01\x02", 0, data.rindex(SHARD.encode()))
    change(data, place)
    archive.write_bytes(data)


def say_larger(data: bytearray, place: int) -> None:
    struct.pack_into("<II", data, place + 20, 2**31, 2**31)


def say_other_size(data: bytearray, place: int) -> None:
    struct.pack_into("<I", data, place + 24, 2**31)


def say_encrypted(data: bytearray, place: int) -> None:
    data[place + 8] |= 1


def say_other_place(data: bytearray, place: int) -> None:
    struct.pack_into("<I", data, place + 42, 7)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (say_larger, "claims? more bytes than the zip file has"),
        (say_other_size, "is compressed"),
        (say_encrypted, "is encrypted"),
        (say_other_place, "is damaged: .* is not where it says"),
    ],
)
def test_archives_that_lie_are_refused(change, why, archive, tmp_path):
    patched(archive, change)
    with pytest.raises(StoreError, match=why):
        unpack(archive, tmp_path / "toy.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["toy.zip"]


@pytest.mark.parametrize("share", [0, 0.3, 0.9, 0.999])
def test_an_archive_that_is_cut_short_is_refused(share, archive, tmp_path):
    data = archive.read_bytes()
    archive.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(StoreError, match="is not a zip file, or is cut short"):
        unpack(archive, tmp_path / "toy.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["toy.zip"]


def test_a_flipped_bit_is_found_or_harms_nothing(archive, final_store, tmp_path):
    data, refused = archive.read_bytes(), 0
    for place in np.random.default_rng(0).integers(0, len(data), 40).tolist():
        changed = bytearray(data)
        changed[place] ^= 1
        archive.write_bytes(changed)
        try:
            whole = unpack(archive, tmp_path / "toy.zarr", overwrite=True)["path"]
        except StoreError:
            refused += 1
        else:  # padding between files, or the time of one
            assert files(whole) == files(final_store)
    assert refused > 10


@pytest.mark.parametrize("changed", ["rows.csv", SHARD])
def test_files_are_held_to_the_list_of_checksums(changed, final_store, tmp_path):
    """An archive whose own checksums are right, though the store's are not."""
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as opened:
        for name, data in files(final_store).items():
            opened.writestr(name, data[:-1] + b"?" if name == changed else data)
    with pytest.raises(StoreError, match=f"{changed}' is not as it was written"):
        unpack(tmp_path / "toy.zip", tmp_path / "toy.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["toy.zip"]


@pytest.mark.parametrize(
    "name",
    [
        SHARD, "frames/c/0/0/0", "rows.csv", "items.csv", "README.md", "croissant.json",
        "status/c/0", "ids/c/0/0", "ids/zarr.json",
    ],
)  # fmt: skip
def test_a_store_whose_list_leaves_a_file_out_is_not_whole(name, final_store, tmp_path):
    """Lost from the files and from the list, so that all that is listed holds."""
    store = shutil.copytree(final_store, tmp_path / "toy.zarr")
    change_sums(store, {}, without=name)
    kept = verify(store)
    assert [(one.file, one.harmless) for one in kept] == [(name, False)]
    assert "does not list it" in kept[0].why
    (store / name).unlink()
    assert [one.file for one in verify(store) if not one.harmless].count(name) == 1
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as opened:
        for one, data in files(store).items():
            opened.writestr(one, data)
    with pytest.raises(StoreError, match=rf"/toy\.zip: .* does not list '{name}'.*; nothing was"):
        unpack(tmp_path / "toy.zip", tmp_path / "again.zarr")
    assert not (tmp_path / "again.zarr").exists()
    shutil.copyfile(final_store / name, store / name)
    with pytest.raises(StoreError, match=f"toy.zarr: checksums.json does not list '{name}'"):
        pack(store, tmp_path / "again.zip")


@pytest.mark.parametrize("name", ["evil", "native/c/1/0", "native/evil", "probe/evil"])
def test_a_file_that_only_the_list_knows_is_no_file_of_a_store(name, final_store, tmp_path):
    store = shutil.copytree(final_store, tmp_path / "toy.zarr")
    (store / name).parent.mkdir(parents=True, exist_ok=True)
    (store / name).write_bytes(b"x")
    change_sums(store, {name: hashlib.sha256(b"x").hexdigest()})
    found = {one.file: one.why for one in verify(store)}
    assert found[name] == "checksums.json lists it, but a store has no such file"
    why = r"not a store's file|does not list 'probe/zarr\.json'"
    with pytest.raises(StoreError, match=why):
        pack(store, tmp_path / "toy.zip")
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as opened:
        for one, data in files(store).items():
            opened.writestr(one, data)
    with pytest.raises(StoreError, match=why):
        unpack(tmp_path / "toy.zip", tmp_path / "again.zarr")
    assert {one.name for one in tmp_path.iterdir()} == {"toy.zarr", "toy.zip"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "it has no checksums.json"),
        ({"checksums.json": b"[]"}, "is not a list of checksums"),
        ({"checksums.json": b"{"}, "checksums.json is not valid JSON"),
        ({"checksums.json": b'{"zarr.json": "ab"}'}, "'zarr.json' is not in it"),
        ({"checksums.json": b"{}"}, "it has no zarr.json"),
    ],
)
def test_other_archives_are_refused(content, why, tmp_path):
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as opened:
        for name, data in content.items():
            opened.writestr(name, data)
    with pytest.raises(StoreError, match=why):
        unpack(tmp_path / "toy.zip", tmp_path / "toy.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["toy.zip"]


@pytest.mark.faults
def test_files_beyond_four_gigabytes(final_store, tmp_path):
    store = shutil.copytree(final_store, tmp_path / "toy.zarr")
    large = store / "log.jsonl"  # the one file that may have any size
    large.chmod(0o644)
    with large.open("wb") as file:
        file.truncate(2**32 + 1)
    archive = pack(store, tmp_path / "toy.zip")["path"]
    shutil.rmtree(store)
    unpacked = unpack(archive, tmp_path / "again.zarr")["path"]
    assert (unpacked / "log.jsonl").stat().st_size == 2**32 + 1
    assert open_store(unpacked)["tt1-001"].keys() == {"native", "frames", "frame_index"}
