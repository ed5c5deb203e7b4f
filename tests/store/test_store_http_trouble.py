"""Stores read over HTTP, whatever the network and the server do: in the end a line says it."""

from __future__ import annotations

import shutil
import socket
from urllib.parse import unquote

import numpy as np
import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import open_store, remote
from obygaze_features.store.pull import pull
from tests.store.served_stores import ROWS, N
from tests.store.serving import serve


@pytest.mark.usefixtures("impatient")
def test_a_connection_that_is_cut_is_tried_again(server):
    chance = np.random.default_rng(3)
    cuts: dict[str, int] = {}

    def cut(path: str) -> int | None:
        cuts[path] = cuts.get(path, 0) + 1
        return int(chance.integers(1, 40)) if cuts[path] < 4 else None

    server.cut = cut
    store = open_store(f"{server.url}/final.zarr")
    np.testing.assert_array_equal(store.read("frames", ["tt010", "tt011"]), ROWS[10:12])
    assert min(cuts.values()) >= 4


@pytest.mark.usefixtures("impatient")
def test_a_connection_that_is_cut_for_good_is_one_line(server):
    store = open_store(f"{server.url}/final.zarr")
    _ = store.status
    server.cut = lambda path: 0
    with pytest.raises(StoreError) as problem:
        store.read("frames", ["tt010"])
    line = str(problem.value)
    assert line.startswith(f"{server.url}/final.zarr/frames/zarr.json: ")
    assert "run the same command again" in line
    assert len([path for path, _ in server.requests if path.endswith("frames/zarr.json")]) == 5
    assert "\n" not in line


@pytest.mark.usefixtures("impatient")
def test_no_server_at_all_is_one_line():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{one.getsockname()[1]}/x.zarr"
        with pytest.raises(StoreError, match=r"x.zarr.*; check the host and port"):
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


def test_what_is_not_there_is_one_line(server):
    with pytest.raises(
        StoreError, match=r"there is no store at .*/moved.zarr: it has no zarr.json"
    ):
        open_store(f"{server.url}/moved.zarr")
    server.refuse = lambda path: (403, {})
    with pytest.raises(StoreError, match="answers 403 Forbidden; give a user and a password"):
        open_store(f"{server.url}/final.zarr")
    server.refuse = lambda path: (418, {})
    with pytest.raises(StoreError, match="the server answers 418"):
        open_store(f"{server.url}/final.zarr")
    for address in (
        "https://", "http://host:abc/x.zarr", "http://host:99999/x", "http://a b/x.zarr",
        "http://u:p@[::1/x.zarr",
    ):  # fmt: skip
        with pytest.raises(UsageError, match="names no host"):
            open_store(address)


@pytest.mark.parametrize("name", ["sto rés", "日本", "a%20b", "50%", "a+b (1)"])
def test_a_url_with_any_letters_is_read(server, made, tmp_path, name):
    folder = tmp_path / "www" / unquote(name)
    folder.mkdir(parents=True)
    shutil.copytree(made / "final.zarr", folder / "final.zarr")
    server.folder = tmp_path / "www"
    store = open_store(f"{server.url}/{name}/final.zarr")
    np.testing.assert_array_equal(store.read("frames", ["tt010"]), ROWS[10:11])


def test_a_redirect_with_a_blank_is_followed(server, made, tmp_path):
    shutil.copytree(made / "final.zarr", tmp_path / "www/a b.zarr")
    server.folder = tmp_path / "www"
    server.refuse = lambda path: (
        (302, {"Location": path.replace("/old", "/a b")}) if path.startswith("/old") else None
    )
    assert len(open_store(f"{server.url}/old.zarr").ids) == N


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited before new tries."""
    seconds: list[float] = []
    monkeypatch.setattr("time.sleep", seconds.append)
    return seconds


def test_what_cannot_work_is_tried_once(monkeypatch, pauses):
    real = socket.getaddrinfo

    def look_up(host, *arguments, **options):
        if host == "nowhere.example":  # as a resolver says it that knows
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for host in (f"127.0.0.1:{unused.getsockname()[1]}", "nowhere.example"):
            with pytest.raises(StoreError, match=r"x.zarr.*; check the host and port"):
                open_store(f"http://{host}/x.zarr")
    assert pauses == []


def test_a_server_that_restarts_is_tried_again(made, pauses):
    """Once it has answered, nobody there is trouble that may pass."""
    with serve(made) as served:
        store = open_store(f"{served.url}/final.zarr")
        _ = store.status
        served.cut = lambda path: 0  # which closes the connection
        with pytest.raises(StoreError, match="run the same command again"):
            store.read("frames", ["tt010"])
        assert len(pauses) == 4
    with pytest.raises(StoreError, match="check the host and port"):
        store.read("frames", ["tt010"])
    assert len(pauses) == 8


def test_redirects_are_followed(server):
    server.refuse = lambda path: (
        (302, {"Location": f"{server.url}{path[4:]}?signed=1"}) if path.startswith("/old") else None
    )
    store = open_store(f"{server.url}/old/final.zarr")
    np.testing.assert_array_equal(store.read("frames", ["tt010"])[0], ROWS[10])
    for elsewhere in ("/final.zarr/zarr.json", "ftp://elsewhere/"):
        server.refuse = lambda path, to=elsewhere: (301, {"Location": to})
        with pytest.raises(
            StoreError, match=f"{server.url}/final.zarr/checksums.json: "
        ) as problem:
            open_store(f"{server.url}/final.zarr")
        assert "\n" not in str(problem.value)


def test_a_file_that_was_moved_to_nowhere_is_not_there(server, tmp_path):
    """As a server does that sends whatever it lacks to another page."""
    server.refuse = lambda path: (302, {"Location": "/gone"}) if "/gone" not in path else None
    with pytest.raises(StoreError, match=r"no store at .*final.zarr: it has no zarr.json"):
        open_store(f"{server.url}/final.zarr")
    server.refuse = lambda path: (302, {"Location": "/gone"}) if "log.jsonl" in path else None
    assert pull(f"{server.url}/final.zarr", tmp_path / "x.zarr")["files"]


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


@pytest.mark.parametrize("name", ["checksums.json", "rows.csv"])
def test_an_answer_without_end_fills_no_memory(server, own, monkeypatch, name):
    """Of whatever length it says that it is."""
    monkeypatch.setattr(remote, "MAX_JSON_BYTES", 100_000)
    monkeypatch.setattr(remote, "MAX_FILE_BYTES", 300_000)
    with (own / name).open("r+b") as file:
        file.truncate(2**20)
    with pytest.raises(StoreError, match=rf"{name} has more than [13]00 kB"):
        assert open_store(f"{server.url}/final.zarr").sources
