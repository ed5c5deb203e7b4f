"""Stores read over HTTP: the same as on disk, in few requests, whatever the network does."""

import os
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import StoreError, StoreUnreadable

# Its limits are lowered, and its pauses are left out.
from obygaze_features.store import remote
from tests.kit import store as toys
from tests.kit.servers import serve
from tests.kit.store import flip_bit, in_all_states, open_state

N = 300
T = 17
D = 512  # of frames, a row is a chunk
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
    there = of.open_store(f"{server.url}/{state}.zarr/")
    toys.assert_alike(there, of.open_store(stores / f"{state}.zarr"))
    dataset = there.dataset("native", ["tt001", "tt040"])
    _, again = pickle.loads(pickle.dumps(dataset))[1]
    assert again.tolist() == VALUES["native"][40].tolist()
    assert repr(there).startswith(f"Store('{server.url}/{state}.zarr', ")


def test_opening_and_reading_a_clip_take_four_requests_each(server, url):
    store = of.open_store(url)
    assert len(store.ids) == len(store.status) == N
    assert len(server.requests) == 4
    np.testing.assert_array_equal(store.read("frames", ["tt123"])[0], ROWS[123])
    assert len(server.requests) == 4 + 4  # the list of checksums, as the shard is new
    np.testing.assert_array_equal(store.read("frames", ["tt222"])[0], ROWS[222])
    assert len(server.requests) == 4 + 4 + 1


def test_a_subset_fetches_only_its_chunks(server, url):
    store = of.open_store(url)
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


def test_damage_is_named_as_on_disk(url, own):
    assert of.verify(url) == []
    flip_bit(own / "frames/c/0/0/0", 5 * CHUNK + 5)
    store = of.open_store(url)
    line = f"{url}/frames/c/0/0/0: a checksum is wrong"
    with pytest.raises(StoreError, match=line):
        store.read("frames", ["tt004", "tt005", "tt006"])
    flip_bit(own / "ids/c/0/0", 30)
    with pytest.raises(StoreError, match="ids/c/0/0 does not match its checksum"):
        assert of.open_store(url).ids
    flip_bit(own / "ids/c/0/0", 30)
    flip_bit(own / "rows.csv", 100)
    (own / "README.md").unlink()
    assert of.verify(url) == of.verify(own) != []


def test_a_shard_that_is_opened_later_gives_no_row_of_a_replacing_store(url, own):
    store = of.open_store(url)
    dataset = store.dataset("frames")
    assert store.status.any()
    shutil.rmtree(own)  # by a store of the same layout and ids: each chunk is where one was
    rows = {name: np.ascontiguousarray(value[::-1]) for name, value in VALUES.items()}
    of.finalise(open_state(own, rows, block_rows=32))
    for read in (lambda: store.rows_table, lambda: dataset[5]):
        with pytest.raises(StoreUnreadable, match="has been replaced since"):
            read()
    np.testing.assert_array_equal(store.refresh()["tt005"]["frames"], ROWS[N - 6])
    shutil.rmtree(own)
    with pytest.raises(StoreUnreadable, match="has been replaced since"):
        store.read("frames", ["tt100"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_opens_its_own_connections(server, url):
    store = of.open_store(url)
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
    store = of.open_store(as_user(url, "ann:s%40cret"))
    assert store.where == url
    assert "cret" not in repr(store)
    assert {asked.get("Authorization") for asked in server.headers} == {"Basic YW5uOnNAY3JldA=="}
    assert {asked["Accept-Encoding"] for asked in server.headers} == {"identity"}
    single = of.subset(store, tmp_path / "some.zarr", ids=["tt001"]).path
    of.finalise(single)
    for file in single.rglob("*.*"):
        assert not re.search(rb"cret|hush", file.name.encode() + file.read_bytes())
    # A server that echoes the request is not quoted.
    server.refuse = lambda path: (400, {"reason line": server.headers[-1]["Authorization"]})
    with pytest.raises(StoreError, match="answered 400 Bad Request") as problem:
        of.open_store(as_user(url))
    assert "Basic" not in str(problem.value)


def test_credentials_do_not_follow_redirects(server, url, stores):
    with serve(stores) as second:
        server.refuse = lambda path: (302, {"Location": f"{second.url}{path}?key=signed"})
        store = of.open_store(as_user(url))
        np.testing.assert_array_equal(store.read("frames", ["tt010"])[0], ROWS[10])
        assert all("Authorization" in asked for asked in server.headers)
        assert not any("Authorization" in asked for asked in second.headers)
        second.refuse = lambda path: (403, {})
        with pytest.raises(StoreError, match="answered 403 Forbidden") as problem:
            store.read("frames", ["tt020"])
        assert not re.search("secret|signed|hush", str(problem.value))


@pytest.mark.parametrize(
    "address",
    [
        "http://ann:HUSH@host:abc/x?token=HUSH",
        "SERVER/x.zarr?token=HUSH x",
        "http:/user:HUSH@127.0.0.1/x.zarr",
        "s3://WHO:HU/SH@bucket/x",
        "hf://datasets/x#HUSH",
    ],
)
@pytest.mark.usefixtures("pauses")
def test_no_message_shows_a_secret(server, obygaze, address):
    for command in ("info", "verify"):
        result = obygaze("stores", command, address.replace("SERVER", server.url))
        assert result.exit_code in (1, 2)
        assert "Error: " in result.stderr
        assert not re.search("HUSH|HU[/?]|SH@|WHO", result.output)


# Whatever the network and the server do, the error is one line.


def test_a_dropped_connection_is_retried(server, url, pauses):
    chance = np.random.default_rng(3)
    cuts = {}

    def cut(path):
        cuts[path] = cuts.get(path, 0) + 1
        return int(chance.integers(1, 40)) if cuts[path] < 4 else None

    server.cut = cut
    store = of.open_store(url)
    np.testing.assert_array_equal(store.read("frames", ["tt010", "tt011"]), ROWS[10:12])
    assert min(cuts.values()) >= 4
    answers = iter([(503, {}), (429, {"Retry-After": "0"})])
    server.refuse = lambda path: next(answers, None)  # it is busy
    assert len(of.open_store(url)) == N


def test_a_lost_connection_is_one_line(stores, pauses):
    """The request is tried five times, or once if the server has never answered."""
    with serve(stores) as served:
        url = f"{served.url}/final.zarr"
        store = of.open_store(url)
        _ = store.status
        served.cut = lambda path: 0  # which closes the connection
        with pytest.raises(StoreError, match=f"^{url}/frames/zarr.json: .*the same command again"):
            store.read("frames", ["tt010"])
        asked = [path for path, _ in served.requests if path.endswith("frames/zarr.json")]
        assert (len(asked), len(pauses)) == (5, 4)
    # If the server has answered before, a missing server may be a temporary problem.
    with pytest.raises(StoreError, match="check the address"):
        store.read("frames", ["tt010"])
    with pytest.raises(StoreError, match=r"; check the address"):
        of.open_store(url)
    assert len(pauses) == 8


def test_missing_files_are_one_line(server, url):
    with pytest.raises(StoreError, match=r"/x.zarr is not a feature store"):
        of.open_store(f"{server.url}/x.zarr")
    server.refuse = lambda path: (418, {})
    with pytest.raises(StoreError, match="answered 418"):
        of.open_store(url)
    server.refuse = lambda path: None
    server.ranges = False
    with pytest.raises(StoreError, match=r"does not support range requests.*stores pull"):
        of.open_store(url).read("frames", ["tt010"])
    # Some servers have ranges, but not from a file's end, where the index of a shard is.
    server.ranges = True
    server.refuse = lambda path: "frames/c/" in path and (416, {})
    with pytest.raises(StoreError, match="answered 416"):
        of.open_store(url).read("frames", ["tt010"])


def test_a_configured_proxy_is_used(server, stores, tmp_path, monkeypatch):
    """The address may have any letters."""
    (tmp_path / "sto rés").symlink_to(stores)
    server.folder = tmp_path
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", as_user(server.url, "ann:s%40cret", ""))
    assert len(of.open_store("http://far.example/sto rés/final.zarr").ids) == N
    sent = {asked.get("Proxy-Authorization") for asked in server.headers}
    assert sent == {"Basic YW5uOnNAY3JldA=="}


@pytest.mark.parametrize("name", ["checksums.json", "rows.csv"])
def test_an_endless_answer_is_refused(url, own, monkeypatch, name):
    monkeypatch.setattr(remote, "MAX_JSON_BYTES", 100_000)
    monkeypatch.setattr(remote, "MAX_FILE_BYTES", 300_000)
    with (own / name).open("r+b") as file:
        file.truncate(2**20)
    with pytest.raises(StoreError, match=rf"{name} is larger than [13]00 kB"):
        assert of.open_store(url).rows_table


def test_an_endless_shard_is_not_fetched(url, monkeypatch, tmp_path):
    monkeypatch.setattr(remote, "MAX_SHARD_BYTES", 100)
    with pytest.raises(StoreError, match="does not match its checksum"):
        of.pull(url, tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()
