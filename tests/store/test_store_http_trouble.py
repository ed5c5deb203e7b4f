"""Stores read over HTTP, whatever the network and the server do: in the end a line says it."""

from __future__ import annotations

import shutil
import socket
from urllib.parse import unquote

import numpy as np
import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import exchange, open_store
from tests.store.served_stores import ROWS, N
from tests.store.serving import serve


def test_a_connection_that_is_cut_is_gone_on_with(server):
    chance = np.random.default_rng(3)
    cuts = iter([int(chance.integers(1, 4000)) for _ in range(12)])
    server.cut = lambda path: next(cuts, None)
    store = open_store(f"{server.url}/final.zarr")
    np.testing.assert_array_equal(store.read("frames", ["tt010", "tt011"]), ROWS[10:12])
    assert next(cuts, None) is None  # all of them happened
    spans = [headers.get("Range") for headers in server.headers]
    assert len(set(spans) - {None}) > 8  # each went on where it was


@pytest.mark.usefixtures("impatient")
def test_a_connection_that_is_cut_for_good_is_one_line(server):
    store = open_store(f"{server.url}/final.zarr")
    _ = store.status
    server.cut = lambda path: 0
    with pytest.raises(StoreError) as problem:
        store.read("frames", ["tt010"])
    line = str(problem.value)
    assert line.startswith(f"{server.url}/final.zarr/frames/zarr.json cannot be read: ")
    assert "tried 5 times" in line
    assert "\n" not in line


@pytest.mark.usefixtures("impatient")
def test_no_server_at_all_is_one_line():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{one.getsockname()[1]}/x.zarr"
        with pytest.raises(StoreError, match=r"cannot be read: Connection refused"):
            open_store(url)


def test_a_server_that_is_busy_is_asked_again(server):
    answers = iter([(503, {}), (429, {"Retry-After": "0"})])
    server.refuse = lambda path: next(answers, None)
    assert len(open_store(f"{server.url}/final.zarr")) == N


def test_a_server_without_ranges_is_one_line(server):
    server.ranges = False
    store = open_store(f"{server.url}/final.zarr")
    assert len(store.ids) == N
    with pytest.raises(StoreError, match=r"does not support range requests.*stores pull"):
        store.read("frames", ["tt010"])


def test_a_server_that_compresses_is_one_line(server):
    server.refuse = lambda path: (200, {"Content-Encoding": "gzip"})
    with pytest.raises(StoreError, match=r"the server changes files on their way \(it sends gzip"):
        open_store(f"{server.url}/final.zarr")


def test_what_is_not_there_is_one_line(server):
    with pytest.raises(
        StoreError, match=r"there is no store at .*/moved.zarr: it has no zarr.json"
    ):
        open_store(f"{server.url}/moved.zarr")
    server.refuse = lambda path: (403, {})
    with pytest.raises(StoreError, match="answers 403 Forbidden; it takes a user and a password"):
        open_store(f"{server.url}/final.zarr")
    server.refuse = lambda path: (418, {})
    with pytest.raises(StoreError, match="the server answers 418"):
        open_store(f"{server.url}/final.zarr")
    for address in (
        "https://", "http://host:abc/x.zarr", "http://host:99999/x", "http://a b/x.zarr",
        f"http://{64 * 'x'}.example/x.zarr",
    ):  # fmt: skip
        with pytest.raises(UsageError, match="names no host"):
            open_store(address)


@pytest.mark.parametrize("name", ["sto rés", "日本", "a%20b", "50%", "a+b (1)"])
def test_a_url_with_any_letters_is_read(server, made, tmp_path, name):
    folder = tmp_path / "www" / unquote(name)
    folder.mkdir(parents=True)
    shutil.copytree(made / "final.zarr", folder / "final.zarr")
    exchange.pack(made / "final.zarr", folder / "fi nal.zip")
    server.folder = tmp_path / "www"
    for file in ("final.zarr", "fi nal.zip"):
        store = open_store(f"{server.url}/{name}/{file}")
        np.testing.assert_array_equal(store.read("frames", ["tt010"]), ROWS[10:11])


def test_a_redirect_with_a_blank_is_followed(server, made, tmp_path):
    shutil.copytree(made / "final.zarr", tmp_path / "www/a b.zarr")
    server.folder = tmp_path / "www"
    server.refuse = lambda path: (
        (302, {"Location": path.replace("/old", "/a b")}) if path.startswith("/old") else None
    )
    assert len(open_store(f"{server.url}/old.zarr").ids) == N


def test_what_cannot_work_is_tried_once(monkeypatch):
    tries = []
    real = socket.getaddrinfo

    def look_up(host, *arguments, **options):
        tries.append(host)
        if host == "nowhere.example":  # as a resolver says it that knows
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{one.getsockname()[1]}"
        for host in (closed, "nowhere.example"):
            tries.clear()
            with pytest.raises(StoreError, match=r"cannot be read: .*; check the host and port"):
                open_store(f"http://{host}/x.zarr")
            assert len(tries) == 1


@pytest.mark.usefixtures("impatient")
def test_a_server_that_restarts_is_tried_again(made, tmp_path, monkeypatch):
    """Once it has answered, nobody there is trouble that may pass."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with serve(made) as served:
        store = open_store(f"{served.url}/final.zarr")
        _ = store.status
        served.cut = lambda path: 0  # which closes the connection
        with pytest.raises(StoreError, match="tried 5 times"):
            store.read("frames", ["tt010"])
    with pytest.raises(StoreError, match="Connection refused; tried 5 times"):
        store.read("frames", ["tt010"])


def test_redirects_are_followed_and_remembered(server):
    server.refuse = lambda path: (
        (302, {"Location": f"{server.url}{path[4:]}?signed=1"}) if path.startswith("/old") else None
    )
    store = open_store(f"{server.url}/old/final.zarr")
    np.testing.assert_array_equal(store.read("frames", ["tt010"])[0], ROWS[10])
    server.forget()
    np.testing.assert_array_equal(store.read("frames", ["tt020"])[0], ROWS[20])
    assert len(server.requests) == 1  # straight to where it was sent last time
    expired = iter([(403, {})])
    before = server.refuse
    server.refuse = lambda path: before(path) or next(expired, None)
    np.testing.assert_array_equal(store.read("frames", ["tt030"])[0], ROWS[30])
    assert next(expired, None) is None
    server.refuse = lambda path: (301, {"Location": path})
    with pytest.raises(StoreError, match="sends us from one place to the next"):
        open_store(f"{server.url}/final.zarr")
    server.refuse = lambda path: (301, {"Location": "ftp://elsewhere/"})
    with pytest.raises(StoreError, match="which is no page"):
        open_store(f"{server.url}/final.zarr")


def test_a_file_that_was_moved_to_nowhere_is_not_there(server, tmp_path):
    """As a server does that sends whatever it lacks to another page."""
    server.refuse = lambda path: (302, {"Location": "/gone"}) if "/gone" not in path else None
    with pytest.raises(StoreError, match=r"no store at .*final.zarr: it has no zarr.json"):
        open_store(f"{server.url}/final.zarr")
    server.refuse = lambda path: (302, {"Location": "/gone"}) if "log.jsonl" in path else None
    assert exchange.pull(f"{server.url}/final.zarr", tmp_path / "x.zarr").files


def test_a_server_that_sends_more_than_was_asked_for_is_one_line(server):
    store = open_store(f"{server.url}/final.zarr")
    _ = store.status
    server.refuse = lambda path: (206, {"Content-Range": f"bytes 0-{10**12}/{10**12 + 1}"})
    with pytest.raises(StoreError, match="the server gives another part than asked for"):
        store.location.read_part("frames/c/0/0/0", 0, 100)
    server.refuse = lambda path: (206, {"Content-Range": "bytes 0-0/9"})
    with pytest.raises(StoreError, match="the server sends more than it says"):
        store.location.read_part("frames/c/0/0/0", 0, 1)


def test_a_proxy_is_asked_where_there_is_one(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    assert len(open_store("http://far.example/final.zarr").ids) == N
    assert not any("Proxy-Authorization" in one for one in server.headers)
    server.forget()
    monkeypatch.setenv("http_proxy", server.url.replace("://", "://ann:s%40cret@"))
    assert len(open_store("http://far.example/final.zarr").ids) == N
    told = {one.get("Proxy-Authorization") for one in server.headers}
    assert told == {"Basic YW5uOnNAY3JldA=="}
    server.forget()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert len(open_store(f"{server.url}/final.zarr").ids) == N
