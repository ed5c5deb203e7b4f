"""`obygaze stores serve`: files and ranges of them, of one folder and of nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import HTTPServer
from pathlib import Path

import pytest

from obygaze_features.errors import StoreError
from obygaze_features.store import diff, finalise, open_store
from obygaze_features.store.pack import pack
from obygaze_features.store.pull import pull
from obygaze_features.store.serving import make_server
from tests.store import toys

DATA = bytes(range(256)) * 9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "offered/deep").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "offered/deep/data").write_bytes(DATA)
    (tmp_path / "offered/empty").write_bytes(b"")
    (tmp_path / "offered/.hidden").write_bytes(b"secret")
    return tmp_path / "offered"


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    with make_server(folder, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ask(port: int, path: str, span: str = "", how: str = "GET") -> tuple[int, bytes, str | None]:
    """By a plain client, which sends a path as it is."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(how, path, headers={"Range": span} if span else {})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data, answer.headers.get("Content-Range")


@pytest.mark.parametrize(
    ("span", "first", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-99", 5, 100),
        ("bytes=2000-", 2000, 2304),
        ("bytes=2000-99999", 2000, 2304),
        ("bytes=-10", 2294, 2304),
        ("bytes=-99999", 0, 2304),
    ],
)
def test_parts_of_a_file(port, span, first, stop):
    where = f"bytes {first}-{stop - 1}/2304"
    assert ask(port, "/deep/data", span) == (206, DATA[first:stop], where)
    assert ask(port, "/deep/data", span, "HEAD") == (206, b"", where)


def test_whole_files_and_parts_that_are_none(port):
    for span in ("", "bytes=-", "bytes=1-2,4-5", "lines=1-2"):
        assert ask(port, "/deep/data", span) == (200, DATA, None)
    for span in ("bytes=2304-", "bytes=9-8", "bytes=-0"):
        assert ask(port, "/deep/data", span) == (416, b"", "bytes */2304")
    assert ask(port, "/empty") == (200, b"", None)
    assert ask(port, "/deep/%64ata?x=1")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/", "/deep", "/deep/", "/none", "/.hidden", "/../secret", "/deep/../../secret",
        "/%2e%2e/secret", "/deep/..%2f..%2fsecret", "//secret", "/link", "/link_folder/secret",
        "/..%5csecret", "/link_hidden", "/deep/data%00", "/c:secret", "/deep/data/x",
    ],
)  # fmt: skip
def test_nothing_else_is_given(port, folder, path):
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "link_folder").symlink_to(folder.parent)
    (folder / "link_hidden").symlink_to(folder / ".hidden")
    assert ask(port, path) == (404, b"", None)
    assert ask(port, path, how="PUT")[0] == 501


def test_a_store_is_read_and_pulled(port, folder, tmp_path):
    finalise(toys.a_store(folder / "toy.zarr"))
    pack(folder / "toy.zarr", folder / "toy.zip")
    url = f"http://127.0.0.1:{port}/toy"
    assert diff(open_store(f"{url}.zarr"), open_store(folder / "toy.zarr")).identical
    for end in ("zarr", "zip"):
        pull(f"{url}.{end}", tmp_path / f"{end}.zarr")
        assert diff(open_store(tmp_path / f"{end}.zarr"), open_store(folder / "toy.zarr")).identical


def test_the_command_says_how_to_reach_it_and_ends_by_ctrl_c(folder):
    finalise(toys.a_store(folder / "toy.zarr"))
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "cli", "stores", "serve", str(folder), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        served, there = process.stdout.readline(), process.stdout.readline()
        assert served.startswith(f"{folder} is served at http://127.0.0.1:")
        store = open_store(there.removeprefix("there: obygaze stores info ").strip())
        assert store.where.endswith("/toy.zarr")
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=30)[1] == "ended\n"
    assert process.returncode == 0


def test_a_host_with_colons_is_an_ipv6_address(folder, monkeypatch):
    monkeypatch.setattr(HTTPServer, "server_bind", lambda server: None)  # needs no such network
    monkeypatch.setattr(HTTPServer, "server_activate", lambda server: None)
    for host, family in (("::1", socket.AF_INET6), ("127.0.0.1", socket.AF_INET)):
        with make_server(folder, host, 0) as server:
            assert server.socket.family == family


def test_what_cannot_be_served_is_one_line(folder):
    with pytest.raises(StoreError, match="data is not a folder"):
        make_server(folder / "deep/data", "127.0.0.1", 0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(StoreError, match=f"at 127.0.0.1:{number}: Address already in use"):
            make_server(folder, "127.0.0.1", number)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:8000", 200), ("127.0.0.1", 200), ("evil.example", 403), ("localhost.evil", 403)],
)
def test_a_page_cannot_read_by_a_host_name_of_its_own(port, host, status):
    with contextlib.closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/deep/data", headers={"Host": host})
        assert connection.getresponse().status == status


def test_a_range_of_thousands_of_digits_is_ignored(port):
    with contextlib.closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/deep/data", headers={"Range": f"bytes={'9' * 5000}-"})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, DATA)
