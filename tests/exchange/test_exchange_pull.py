"""Whole stores from elsewhere: resumed, verified, and never over something else."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from obygaze_features.errors import OutputExists, StoreError
from obygaze_features.store import remote, verify
from obygaze_features.store.pack import pack
from obygaze_features.store.pull import pull
from tests.exchange.conftest import files_of
from tests.store.making import flip_bit
from tests.store.serving import Served, serve


@pytest.fixture
def server(final_store: Path) -> Iterator[Served]:
    with serve(final_store.parent) as served:
        yield served


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSES_S", ())


def cut_at(name: str, *sizes: int):
    """Cut the connection when a file is sent, after each of these numbers of bytes in turn."""
    rest = list(sizes)
    return lambda path: rest.pop(0) if path.endswith(name) and rest else None


def test_what_is_pulled_is_what_was_offered(server, final_store, tmp_path):
    pack(final_store, tmp_path / "toy.zip")
    for number, address in enumerate(
        [f"{server.url}/toy.zarr", tmp_path / "toy.zip", final_store, str(final_store)]
    ):
        result = pull(address, tmp_path / f"{number}.zarr")
        assert files_of(result["path"]) == files_of(final_store)
        assert verify(result["path"]) == []
        assert (result["path"] / "zarr.json").stat().st_mode & 0o222 == 0
        assert result["files"] == len(files_of(final_store))
        assert result["size"] > result["fetched"] > 0.9 * result["size"] - 5000
    server.ranges = False  # all that takes no more than whole files, cut off or not
    server.cut = cut_at("items.csv", 100, 700)
    result = pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert files_of(result["path"]) == files_of(final_store)
    with pytest.raises(OutputExists, match=r"whole.zarr exists already"):
        pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert {path.name for path in tmp_path.iterdir()} == {
        "toy.zip", "whole.zarr", *(f"{number}.zarr" for number in range(4)),
    }  # fmt: skip


def test_an_archive_is_fetched_whole(server, final_store, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server.folder, server.ranges = tmp_path, False
    pack(final_store, tmp_path / "toy.zip")
    server.cut = cut_at("toy.zip", 100, 700)
    url = f"{server.url}/toy.zip"
    result = pull(url, tmp_path / "new/toy.zarr")
    assert files_of(result["path"]) == files_of(final_store)
    assert result["fetched"] == (tmp_path / "toy.zip").stat().st_size
    flip_bit(tmp_path / "toy.zip", 3000)
    with pytest.raises(StoreError, match=rf"^{url}.*nothing was unpacked"):
        pull(url, tmp_path / "new/other.zarr")
    assert [path.name for path in result["path"].parent.iterdir()] == ["toy.zarr"]


def test_what_an_interrupted_pull_left_is_not_believed(
    server, final_store, other_store, tmp_path, impatient
):
    url, output = f"{server.url}/toy.zarr", tmp_path / "here/x.zarr"

    def interrupt(name: str) -> None:
        shutil.rmtree(output, ignore_errors=True)
        server.cut = cut_at(name, 10)
        with pytest.raises(StoreError, match=f"{name}: the connection was cut"):
            pull(url, output)

    interrupt("items.csv")
    [begun] = output.parent.iterdir()
    next(begun.rglob(".items.csv.part")).write_bytes(b"not that")
    for file in begun.rglob("*.json"):
        if file.name != "checksums.json":
            flip_bit(file, 3)
    pull(url, output)
    assert files_of(output) == files_of(final_store)
    interrupt("rows.csv")  # files that are whole are kept
    result = pull(url, output)
    assert 0 < result["fetched"] < 0.5 * result["size"]
    interrupt("rows.csv")  # and a store that changes meanwhile is fetched from the beginning
    server.folder = tmp_path
    pull(f"{server.url}/other.zarr", output)
    assert files_of(output) == files_of(other_store)


def test_what_is_damaged_there_is_one_line(server, final_store, tmp_path):
    server.folder = tmp_path
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
    flip_bit(own / "frames/c/0/0/0", 3)
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 is not as it was written; tell whoever"):
        pull(f"{server.url}/own.zarr", tmp_path / "x.zarr")
    (own / "frames/c/0/0/0").unlink()
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 is missing, although"):
        pull(f"{server.url}/own.zarr", tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()
    with pytest.raises(StoreError, match=r"there is no store at .*none.zarr"):
        pull(f"{server.url}/none.zarr", tmp_path / "x.zarr")


def test_a_store_is_replaced_only_when_told_and_by_a_whole_one(
    server, final_store, other_store, tmp_path, impatient
):
    url, before = f"{server.url}/toy.zarr", files_of(other_store)
    server.cut = cut_at("rows.csv", 10)
    with pytest.raises(StoreError, match="the connection was cut"):
        pull(url, other_store, overwrite=True)
    assert files_of(other_store) == before
    pull(url, other_store, overwrite=True)
    assert files_of(other_store) == files_of(final_store)
    assert [path.name for path in tmp_path.iterdir()] == ["other.zarr"]
    (tmp_path / "films.zarr").mkdir()
    (tmp_path / "films.zarr/film.mkv").write_text("precious")
    server.forget()
    with pytest.raises(OutputExists, match="was not made by obygaze"):
        pull(url, tmp_path / "films.zarr", overwrite=True)
    assert files_of(tmp_path / "films.zarr") == {"film.mkv": b"precious"}
    assert len(server.requests) <= 2  # said before anything is fetched


def test_two_that_fetch_the_same_do_not_mix_their_bytes(server, final_store, tmp_path):
    refused = []
    # Under another name, as the connection that is being answered cannot be asked meanwhile.
    other_url = server.url.replace("127.0.0.1", "localhost")

    def meanwhile(path: str) -> None:
        if path.endswith("rows.csv"):
            with pytest.raises(StoreError, match=r"another process is fetching .*x\.zarr; wait"):
                pull(f"{other_url}/toy.zarr", tmp_path / "x.zarr")
            refused.append(path)

    server.then = meanwhile
    pull(f"{server.url}/toy.zarr", tmp_path / "x.zarr")
    assert refused
    assert files_of(tmp_path / "x.zarr") == files_of(final_store)
    assert [path.name for path in tmp_path.iterdir()] == ["x.zarr"]


@pytest.mark.gate
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals")
def test_an_interrupted_pull_says_how_to_resume(server, tmp_path):
    """Before a terminal there is a bar, and Ctrl-C is one line."""
    termios = pytest.importorskip("termios")
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    words = ["stores", "pull", f"{server.url}/toy.zarr", "-o", str(tmp_path / "x.zarr")]
    with (
        os.fdopen(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(
            [sys.executable, "-m", "cli", *words],
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            # What runs in a shell's background has Ctrl-C ignored, and children inherit it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process,
    ):
        os.close(theirs)
        server.then = lambda path: (
            process.send_signal(signal.SIGINT) if path.endswith("frames/c/0/0/0") else None
        )
        text = b""
        with contextlib.suppress(OSError):  # the terminal's end, once the process is gone
            while data := terminal.read(2**12):
                text += data
    assert process.returncode == 130
    assert b"Fetching: " in text
    assert text.endswith(
        b"What was fetched is kept; run the same command again to resume.\r\nInterrupted.\r\n"
    )
