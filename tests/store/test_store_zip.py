"""Stores in a zip archive, read in place: from this machine and from elsewhere."""

from __future__ import annotations

import shutil
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import StoreError
from obygaze_features.store import diff, finalise, open_store, subset, verify
from tests.store.making import numbers, open_state
from tests.store.serving import Served, serve

N = 60
VALUES = {"native": numbers(N, (3,), "float32"), "frames": numbers(N, (32, 64), "float16")}


def pack(store: Path, file: Path) -> Path:
    """By Python's own zipfile, with fields of odd lengths before the data."""
    with zipfile.ZipFile(file, "w") as archive:
        for number, one in enumerate(sorted(p for p in store.rglob("*") if p.is_file())):
            info = zipfile.ZipInfo(one.relative_to(store).as_posix())
            info.extra = struct.pack("<HH", 0xCAFE, number) + b"\0" * number
            archive.writestr(info, one.read_bytes())
    return file


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    open_state(folder / "open.zarr", VALUES, failed=[7], todo=[5], block_rows=8)
    for name in ("final", "compressed"):
        shutil.copytree(folder / "open.zarr", folder / f"{name}.zarr")
        finalise(folder / f"{name}.zarr", compress=name == "compressed", allow_incomplete=True)
    for name in ("open", "final", "compressed"):
        pack(folder / f"{name}.zarr", folder / f"{name}.zip")
    return folder


@pytest.fixture
def server(made: Path) -> Iterator[Served]:
    with serve(made) as served:
        yield served


@pytest.mark.parametrize("name", ["open", "final", "compressed"])
def test_a_zip_file_reads_as_its_store(made, tmp_path, name):
    here = open_store(made / f"{name}.zarr")
    for address in (made / f"{name}.zip", str(made / f"{name}.zip")):
        store = open_store(address)
        assert store.info() == here.info()
        assert store.sources == here.sources
        for array in here.arrays:
            np.testing.assert_array_equal(
                store.read(array, missing="nan"), here.read(array, missing="nan")
            )
        np.testing.assert_array_equal(store["tt050"]["frames"], VALUES["frames"][50])
        assert diff(store, here).identical
        assert verify(address) == []
        some = tmp_path / f"{type(address).__name__}.zarr"
        assert subset(store, some, ids=["tt001", "tt009"]).done_ids() == ["tt001", "tt009"]
        with pytest.raises(StoreError, match=r"can only be read; .* stores pull"):
            _ = store.path


def test_a_zip_file_elsewhere_is_to_be_pulled_first(server):
    url = f"{server.url}/final.zip"
    for read in (open_store, verify):
        with pytest.raises(StoreError, match=f"stores pull {url} -o NAME.zarr"):
            read(f"{url}?token=hush")
    assert server.requests == []


def test_large_archives_are_read_by_their_longer_numbers(made, tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)  # what the writer does from 2 GiB on
    file = pack(made / "final.zarr", tmp_path / "long.zip")
    monkeypatch.undo()
    np.testing.assert_array_equal(
        open_store(file).read("frames", missing="nan"),
        open_store(made / "final.zarr").read("frames", missing="nan"),
    )


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_an_archive_that_is_cut_short_is_one_line(made, tmp_path, keep):
    whole = (made / "final.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(StoreError, match=r"cut.zip is not a zip file, or is cut short"):
        open_store(tmp_path / "cut.zip")


def test_a_bit_that_flips_is_found(made, tmp_path):
    content = bytearray((made / "final.zip").read_bytes())
    at = content.index(VALUES["frames"][20].tobytes())
    content[at + 9] ^= 1
    (tmp_path / "x.zip").write_bytes(content)
    store = open_store(tmp_path / "x.zip")
    with pytest.raises(StoreError, match=r"x.zip/frames/c/0/0/0: its checksum is wrong.*tt020"):
        store.read("frames", ["tt020"])
    assert [one.file for one in verify(tmp_path / "x.zip")] == ["frames/c/0/0/0"]
    content[content.index(b'"format_version"') + 3] ^= 1
    (tmp_path / "y.zip").write_bytes(content)
    with pytest.raises(StoreError, match=r"y.zip/.*: its checksum in the zip file is wrong"):
        _ = open_store(tmp_path / "y.zip").ids


def linked(archive: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(info, "/etc/passwd")


@pytest.mark.parametrize(
    ("add", "why"),
    [
        (lambda archive: archive.writestr("../x", "x"), "is not a file name"),
        (lambda archive: archive.writestr("a/../../x", "x"), "is not a file name"),
        (lambda archive: archive.writestr("/etc/x", "x"), "is not a file name"),
        (lambda archive: archive.writestr("C:/x", "x"), "is not a file name"),
        (lambda archive: archive.writestr("a\\x", "x"), "is not a file name"),
        (lambda archive: archive.writestr("Items.csv", "x"), "is there twice"),
        (linked, "is a link"),
        (lambda archive: archive.writestr("z", "x" * 999, zipfile.ZIP_DEFLATED), "is compressed"),
    ],
)
def test_what_no_stores_archive_has_is_refused(made, tmp_path, add: Callable, why):
    shutil.copy(made / "final.zip", tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "x.zip", "a") as archive:
        add(archive)
    with pytest.raises(StoreError, match=f"x.zip: '.*' {why}") as problem:
        open_store(tmp_path / "x.zip")
    assert "\n" not in str(problem.value)


def test_encrypted_entries_are_refused(made, tmp_path):
    content = bytearray((made / "final.zip").read_bytes())
    at = content.index(b"PK\x01\x02")
    content[at + 8] |= 1
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(StoreError, match="is encrypted"):
        open_store(tmp_path / "x.zip")


def test_an_archive_of_something_else_is_refused(tmp_path, made):
    with zipfile.ZipFile(tmp_path / "films.zip", "w") as archive:
        archive.writestr("film.mkv", "x")
    with pytest.raises(StoreError, match=r"films.zip is not a feature store"):
        open_store(tmp_path / "films.zip")
    (tmp_path / "text.zip").write_text("no archive at all")
    with pytest.raises(StoreError, match="is not a zip file"):
        open_store(tmp_path / "text.zip")
    with pytest.raises(StoreError, match=r"none.zip does not exist"):
        open_store(tmp_path / "none.zip")
