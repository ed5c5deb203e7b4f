"""What is kept of stores elsewhere: as much as there is room for, and never anything wrong."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.common.lru import LIMIT, Lru, size_limit
from obygaze_features.errors import UsageError
from obygaze_features.store import finalise, open_store
from tests.store.making import numbers, open_state
from tests.store.serving import Served, serve

N = 200
VALUES = {"frames": numbers(N, (32, 64), "float16")}
CHUNK = 16 * (32 * 64 * 2) + 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = open_state(tmp_path_factory.mktemp("kept") / "final.zarr", VALUES, block_rows=32)
    finalise(path)
    return path.parent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/obygaze/stores"


@pytest.fixture
def server(made: Path, cache: Path) -> Iterator[Served]:
    with serve(made) as served:
        yield served


def test_the_limit_is_kept_and_what_was_used_last(cache, server, monkeypatch):
    monkeypatch.setenv("OBYGAZE_CACHE_SIZE", f"{7 * CHUNK}B")
    ids = [f"tt{row:03}" for row in range(0, N, 16)]
    for one in ids:
        store = open_store(f"{server.url}/final.zarr")
        store.read("frames", [one])
    assert sum(file.stat().st_size for file in cache.iterdir()) <= 7.5 * CHUNK
    server.forget()
    open_store(f"{server.url}/final.zarr").read("frames", [ids[-1]])
    assert len(server.requests) == 1
    server.forget()
    open_store(f"{server.url}/final.zarr").read("frames", [ids[0]])
    assert len(server.requests) > 1


def test_without_room_nothing_that_is_kept_is_read_either(cache, server, monkeypatch):
    """Who says 0 wants to know what the network gives."""
    for limit in ("1GB", "0"):
        monkeypatch.setenv("OBYGAZE_CACHE_SIZE", limit)
        server.forget()
        open_store(f"{server.url}/final.zarr").read("frames", ["tt000"])
        assert len(server.requests) > 4


def test_what_was_spoilt_on_the_disk_is_fetched_again(cache, server):
    store = open_store(f"{server.url}/final.zarr")
    store.read("frames", ["tt020"])
    for file in cache.iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content[: len(content) - len(content) % 3])
    store = open_store(f"{server.url}/final.zarr")
    assert store["tt020"]["frames"].tolist() == VALUES["frames"][20].tolist()


@pytest.mark.parametrize("said", ["0", "0MB"])
def test_nothing_is_kept_where_nothing_is_allowed(cache, server, monkeypatch, said):
    monkeypatch.setenv("OBYGAZE_CACHE_SIZE", said)
    np.testing.assert_array_equal(
        open_store(f"{server.url}/final.zarr").read("frames", missing="nan"), VALUES["frames"]
    )
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_none(cache, server):
    cache.parent.parent.mkdir()
    cache.parent.write_text("in the way")
    for _ in range(2):
        store = open_store(f"{server.url}/final.zarr")
        np.testing.assert_array_equal(store.read("frames", missing="nan"), VALUES["frames"])


@pytest.mark.parametrize(
    ("said", "size"),
    [("500MB", 5 * 10**8), ("1.5 gb", 15 * 10**8), ("7", 7), ("3k", 3000), ("", LIMIT)],
)
def test_the_limit_is_said_as_people_say_it(monkeypatch, said, size):
    monkeypatch.setenv("OBYGAZE_CACHE_SIZE", said)
    assert size_limit() == size


def test_a_limit_that_is_none_is_one_line(monkeypatch):
    monkeypatch.setenv("OBYGAZE_CACHE_SIZE", "plenty")
    with pytest.raises(UsageError, match="OBYGAZE_CACHE_SIZE is 'plenty'; a size is meant, such"):
        size_limit()


def use(folder: Path, seed: int) -> None:
    kept, chance = Lru(folder, 100_000), np.random.default_rng(seed)
    for key in chance.integers(0, 200, 400).tolist():
        value = bytes([key]) * (1000 + 10 * key)
        if (found := kept.get(str(key))) is None:
            kept.put(str(key), value)
        elif found != value:
            os._exit(1)


def test_several_processes_share_it(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=use, args=(tmp_path / "lru", seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    used = sum(file.stat().st_size for file in (tmp_path / "lru").iterdir())
    assert 50_000 < used < 120_000
    shutil.rmtree(tmp_path / "lru")
    assert Lru(tmp_path / "lru", 100).get("1") is None


def test_what_finds_no_room_on_the_disk_leaves_nothing(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        Lru(tmp_path, 10**9).put("a", bytes(50_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
