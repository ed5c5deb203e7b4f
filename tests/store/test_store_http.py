"""Stores read over HTTP: the same as on disk, in few requests, whatever the network does."""

import os
import pickle
import re
import shutil
import socket
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import unquote

import numpy as np
import pytest

from obygaze_features.errors import StoreError, StoreUnreadable
from obygaze_features.store import open_store, remote, subset
from obygaze_features.store.finalise import finalise
from obygaze_features.store.transfer import pull
from obygaze_features.store.verify import verify
from tests.kit import store as toys
from tests.kit.servers import at_a_time, serve
from tests.kit.store import final_state, flip_bit, in_all_states, open_state

N, T, D = 300, 17, 512  # of frames, a row is a chunk
ROWS = np.random.default_rng(0).standard_normal((N, T, D), np.float32).astype(np.float16)
VALUES = {"native": ROWS[:, 0].astype(np.float32), "frames": ROWS}
CHUNK = T * D * 2 + 4


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    return in_all_states(folder, VALUES, failed=[7], todo=[9], block_rows=32)


@pytest.fixture
def server(stores):
    with serve(stores) as served:
        yield served


@pytest.fixture
def url(server):
    return f"{server.url}/final.zarr"


@pytest.fixture
def own(tmp_path, server, stores):
    server.folder = tmp_path / "www"
    return Path(shutil.copytree(stores / "final.zarr", tmp_path / "www/final.zarr"))


@pytest.fixture
def pauses(monkeypatch):
    seconds = []

    async def sleep(pause):
        seconds.append(pause)

    monkeypatch.setattr(remote.asyncio, "sleep", sleep)
    return seconds


def as_user(url, user="ann:secret", query="?token=hush"):
    return f"{url.replace('://', f'://{user}@')}{query}"


@pytest.mark.parametrize("state", toys.STATES)
def test_a_store_reads_as_from_its_folder(server, stores, state):
    here, there = open_store(stores / f"{state}.zarr"), open_store(f"{server.url}/{state}.zarr/")
    toys.assert_alike(there, here)
    item_ids = ["tt005", "tt200", "tt005", "tt033"]
    np.testing.assert_array_equal(there.read("frames", item_ids), ROWS[[5, 200, 5, 33]])
    with pytest.raises(StoreError, match="tt007 failed: row 7 is broken"):
        there["tt007"]
    with pytest.raises(StoreError, match="tt288 is not done"):
        there["tt288"]
    dataset = there.dataset("native", ["tt001", "tt040"])
    assert pickle.loads(pickle.dumps(dataset))[1][1].tolist() == VALUES["native"][40].tolist()
    assert repr(there).startswith(f"Store('{server.url}/{state}.zarr', ")


@pytest.mark.parametrize("name", ["final", "compressed"])
def test_opening_and_reading_a_clip_take_four_requests_each(server, name):
    store = open_store(f"{server.url}/{name}.zarr")
    assert len(store.ids) == len(store.status) == N
    assert len(server.requests) == 4
    np.testing.assert_array_equal(store.read("frames", ["tt123"])[0], ROWS[123])
    assert len(server.requests) == 4 + 4  # the list of checksums, as the shard is new
    np.testing.assert_array_equal(store.read("frames", ["tt222"])[0], ROWS[222])
    assert len(server.requests) == 4 + 4 + 1
    first, _, last = server.headers[-1]["Range"].removeprefix("bytes=").partition("-")
    assert int(last) + 1 - int(first) <= CHUNK


def test_a_subset_fetches_only_its_chunks(server, stores, url, tmp_path):
    store = open_store(url)
    store.read("frames", ["tt000"])
    server.forget()
    rows = [*range(40, 50), 100, *range(60, 70)]
    values = store.read("frames", [f"tt{row:03}" for row in rows])
    np.testing.assert_array_equal(values, ROWS[rows])
    sizes = [size for path, size in server.requests if "frames" in path]
    assert sorted(sizes) == [CHUNK, 10 * CHUNK, 10 * CHUNK]
    server.forget()  # what is between two that are near is read, too
    np.testing.assert_array_equal(store.read("frames", ["tt200", "tt203"]), ROWS[[200, 203]])
    assert [size for path, size in server.requests if "frames" in path] == [4 * CHUNK]
    server.forget()
    selection = subset(store, tmp_path / "some.zarr", ids=["tt003", "tt004", "tt041"])
    np.testing.assert_array_equal(selection.read("frames", missing="nan"), ROWS[[3, 4, 41]])
    sizes = [size for path, size in server.requests if path.endswith("frames/c/0/0/0")]
    assert sum(sizes) == 3 * CHUNK
    server.forget()  # an open store's records are read once, together
    store = open_store(f"{server.url}/open.zarr")
    store.read("frames", ["tt040"])
    paths = [path.partition("zarr/")[2] for path, _ in server.requests]
    records = [path for path in paths if path.startswith("blocks/")]
    assert sorted(records) == [f"blocks/{block:06}.json" for block in range(10)]
    server.forget()
    assert (store.status == open_store(stores / "open.zarr").status).all()
    assert server.requests == []


def test_shards_are_read_in_parallel(server, stores):
    """Each block of the open store is a shard."""
    store = open_store(f"{server.url}/open.zarr")
    _ = store.status
    with at_a_time(server) as peak:
        values = store.read("frames", missing="nan")
    done = [row for row in range(N) if row not in (7, 9)][: 9 * 32]
    np.testing.assert_array_equal(values[done[:200]], ROWS[done[:200]])
    assert 1 < max(peak) <= 8


def test_damage_is_named_as_on_disk(url, own):
    assert verify(url) == []
    flip_bit(own / "frames/c/0/0/0", 5 * CHUNK + 5)
    store = open_store(url)
    line = f"{url}/frames/c/0/0/0: a checksum is wrong"
    with pytest.raises(StoreError, match=line):
        store.read("frames", ["tt004", "tt005", "tt006"])
    for name in ("ids/c/0/0", "frames/zarr.json", "rows.csv", "items.csv"):
        flip_bit(own / name, 30)
        with pytest.raises(StoreError, match=f"{name} does not match its checksum"):
            _ = [(s.ids, s["tt001"], s.rows_table, s.items) for s in [open_store(url)]]
        flip_bit(own / name, 30)
    flip_bit(own / "rows.csv", 100)
    (own / "README.md").unlink()
    assert verify(url) == verify(own) != []


def test_a_shard_that_is_opened_later_gives_no_row_of_a_replacing_store(url, own):
    store = open_store(url)
    dataset = store.dataset("frames")
    assert store.status.any()
    shutil.rmtree(own)  # by a store of the same layout and ids: each chunk is where one was
    rows = {name: np.ascontiguousarray(value[::-1]) for name, value in VALUES.items()}
    finalise(open_state(own, rows, block_rows=32))
    for read in (
        lambda: store.read("frames", ["tt005"]),
        lambda: store["tt006"],
        lambda: store.rows_table,
        lambda: dataset[5],
    ):
        with pytest.raises(StoreUnreadable, match="has been replaced since"):
            read()
    np.testing.assert_array_equal(store.refresh()["tt005"]["frames"], ROWS[N - 6])
    shutil.rmtree(own)
    with pytest.raises(StoreUnreadable, match="has been replaced since"):
        store.read("frames", ["tt100"])


def test_a_store_without_a_list_of_checksums_is_read(url, own):
    nine = {name: values[:9] for name, values in VALUES.items()}
    source = open_state(own.parent / "open.zarr", nine, todo=[4])
    (source / "checksums.json").unlink()
    there = open_store(url.replace("final", "open"))
    assert (there.status == open_store(source).status).all()
    assert there.done_ids(["tt000", "tt008"]) == ["tt000"]
    shutil.rmtree(own)
    final_state(source, own, 6, 2)
    np.testing.assert_array_equal(open_store(url).read("frames", missing="drop"), ROWS[:8])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_opens_its_own_connections(server, url):
    store = open_store(url)
    _ = store.status
    before = server.connections
    child = os.fork()
    if not child:
        good = np.array_equal(store.read("frames", ["tt010"])[0], ROWS[10])
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(store.read("frames", ["tt011"])[0], ROWS[11])
    assert server.connections == before + 1


# Credentials are sent only to their own server.


def test_credentials_are_sent_and_never_shown(server, url, tmp_path):
    store = open_store(as_user(url, "ann:s%40cret"))
    assert store.where == url
    assert "cret" not in repr(store)
    assert {asked.get("Authorization") for asked in server.headers} == {"Basic YW5uOnNAY3JldA=="}
    assert {asked["Accept-Encoding"] for asked in server.headers} == {"identity"}
    single = subset(store, tmp_path / "some.zarr", ids=["tt001"]).path
    finalise(single)
    for file in single.rglob("*.*"):
        assert not re.search(rb"cret|hush", file.name.encode() + file.read_bytes())
    # A server that echoes the request is not quoted.
    server.refuse = lambda path: (400, {"reason line": server.headers[-1]["Authorization"]})
    with pytest.raises(StoreError, match="answered 400 Bad Request") as problem:
        open_store(as_user(url))
    assert "Basic" not in str(problem.value)


def test_credentials_do_not_follow_redirects(server, url, stores):
    with serve(stores) as second:
        server.refuse = lambda path: (302, {"Location": f"{second.url}{path}?key=signed"})
        store = open_store(as_user(url))
        np.testing.assert_array_equal(store.read("frames", ["tt010"])[0], ROWS[10])
        assert all("Authorization" in asked for asked in server.headers)
        assert not any("Authorization" in asked for asked in second.headers)
        assert store.where == url
        second.refuse = lambda path: (403, {})
        with pytest.raises(StoreError, match="answered 403 Forbidden") as problem:
            store.read("frames", ["tt020"])
        assert not re.search("secret|signed|hush", str(problem.value))
        server.refuse = lambda path: (302, {"Location": "gopher://bob:secret@x/?key=signed"})
        with pytest.raises(StoreError) as problem:
            open_store(f"{server.url}/other.zarr")
        assert not re.search("secret|signed", str(problem.value))


@pytest.mark.parametrize("address", [
    "http://ann:HUSH@host:abc/x?token=HUSH", "SERVER/x.zarr?token=HUSH x",
    "http:/user:HUSH@127.0.0.1/x.zarr", "s3://WHO:HU/SH@bucket/x", "s3://WHO:HUSH@bucket/x.zarr",
    "hf://datasets/x#HUSH",
])  # fmt: skip
@pytest.mark.usefixtures("pauses")
def test_no_message_shows_a_secret(server, obygaze, address):
    for command in ("info", "verify"):
        result = obygaze("stores", command, address.replace("SERVER", server.url))
        assert result.exit_code in (1, 2)
        assert "Error: " in result.stderr
        assert not re.search("HUSH|HU[/?]|SH@|WHO", result.output)


# Whatever the network and the server do, the error is one line.


def test_a_dropped_connection_is_retried(server, url, pauses):
    chance, cuts = np.random.default_rng(3), {}

    def cut(path):
        cuts[path] = cuts.get(path, 0) + 1
        return int(chance.integers(1, 40)) if cuts[path] < 4 else None

    server.cut = cut
    store = open_store(url)
    np.testing.assert_array_equal(store.read("frames", ["tt010", "tt011"]), ROWS[10:12])
    assert min(cuts.values()) >= 4
    answers = iter([(503, {}), (429, {"Retry-After": "0"})])
    server.refuse = lambda path: next(answers, None)  # it is busy
    assert len(open_store(url)) == N


def test_a_lost_connection_is_one_line(stores, pauses, monkeypatch):
    """The request is tried five times, or once if the server has never answered."""
    with serve(stores) as served:
        url = f"{served.url}/final.zarr"
        store = open_store(url)
        _ = store.status
        served.cut = lambda path: 0  # which closes the connection
        with pytest.raises(StoreError, match=f"^{url}/frames/zarr.json: .*the same command again"):
            store.read("frames", ["tt010"])
        asked = [path for path, _ in served.requests if path.endswith("frames/zarr.json")]
        assert (len(asked), len(pauses)) == (5, 4)
    # If the server has answered before, a missing server may be a temporary problem.
    with pytest.raises(StoreError, match="check the address"):
        store.read("frames", ["tt010"])
    unknown = Mock(side_effect=socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for host in (f"127.0.0.1:{unused.getsockname()[1]}", "nowhere.example"):
            with pytest.raises(StoreError, match=r"x.zarr.*; check the address"):
                open_store(f"http://{host}/x.zarr")
            monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert len(pauses) == 8


def test_missing_files_are_one_line(server, url):
    with pytest.raises(StoreError, match=r"/x.zarr is not a feature store"):
        open_store(f"{server.url}/x.zarr")
    for status, line in [(403, "403 Forbidden; check .* credentials"), (418, "418")]:
        server.refuse = lambda path, status=status: (status, {})
        with pytest.raises(StoreError, match=f"answered {line}"):
            open_store(url)
    server.refuse, server.ranges = (lambda path: None), False
    with pytest.raises(StoreError, match=r"does not support range requests.*stores pull"):
        open_store(url).read("frames", ["tt010"])
    # Some servers have ranges, but not from a file's end, where the index of a shard is.
    server.refuse, server.ranges = (lambda path: "frames/c/" in path and (416, {})), True
    with pytest.raises(StoreError, match="answered 416"):
        open_store(url).read("frames", ["tt010"])
    for address in ("https://", "http://host:99999/x", "http://a b/x.zarr", "http://u:p@[::1/x"):
        with pytest.raises(StoreError, match="check the address"):
            open_store(address)


@pytest.mark.parametrize("name", ["sto rés", "日本", "a%20b", "a+b (1)"])
def test_a_url_with_any_letters_is_read(server, stores, tmp_path, name):
    (tmp_path / unquote(name)).symlink_to(stores)
    server.folder = tmp_path
    store = open_store(f"{server.url}/{name}/final.zarr")
    np.testing.assert_array_equal(store.read("frames", ["tt010"]), ROWS[10:11])


def test_a_configured_proxy_is_used(server, url, monkeypatch):
    monkeypatch.setenv("no_proxy", "")
    for proxy, sent in [
        (server.url, None), (as_user(server.url, "ann:s%40cret", ""), "Basic YW5uOnNAY3JldA=="),
    ]:  # fmt: skip
        server.forget()
        monkeypatch.setenv("http_proxy", proxy)
        assert len(open_store("http://far.example/final.zarr").ids) == N
        assert {asked.get("Proxy-Authorization") for asked in server.headers} == {sent}
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert len(open_store(url).ids) == N


@pytest.mark.parametrize("name", ["checksums.json", "rows.csv"])
def test_an_endless_answer_is_refused(url, own, monkeypatch, name):
    monkeypatch.setattr(remote, "MAX_JSON_BYTES", 100_000)
    monkeypatch.setattr(remote, "MAX_FILE_BYTES", 300_000)
    with (own / name).open("r+b") as file:
        file.truncate(2**20)
    with pytest.raises(StoreError, match=rf"{name} is larger than [13]00 kB"):
        assert open_store(url).rows_table


def test_an_endless_shard_is_not_fetched(url, monkeypatch, tmp_path):
    monkeypatch.setattr(remote, "MAX_SHARD_BYTES", 100)
    with pytest.raises(StoreError, match="does not match its checksum"):
        pull(url, tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()
