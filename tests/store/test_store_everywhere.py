"""Golden stores give the same rows wherever they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.store import Store, open_store, verify
from obygaze_features.store.pull import pull
from obygaze_features.store.push import push
from obygaze_features.store.serving import make_server
from tests.golden.workspace import copy_data
from tests.store.s3 import bucket

NAMES = ["open.zarr", "final.zarr"]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_data(tmp_path_factory.mktemp("golden") / "data")


@pytest.fixture(scope="module")
def url(golden: Path) -> Iterator[str]:
    """The golden data as `obygaze stores serve` offers them."""
    with make_server(golden, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def assert_same(store: Store, expected: Store) -> None:
    assert store.info() == expected.info()
    assert store.sources == expected.sources
    for name in expected.arrays:
        np.testing.assert_array_equal(
            store.read(name, missing="nan"), expected.read(name, missing="nan")
        )
    assert verify(store.location.address) == []


@pytest.mark.parametrize("name", NAMES)
def test_over_http(golden, url, name):
    assert_same(open_store(f"{url}/{name}"), open_store(golden / name))


@pytest.mark.parametrize("name", NAMES)
def test_from_s3(golden, name):
    with bucket(f"golden-{name[:4]}") as put:
        for file in (golden / name).rglob("*"):
            if file.is_file():
                put(f"lab/{name}/{file.relative_to(golden / name).as_posix()}", file)
        assert_same(open_store(f"s3://golden-{name[:4]}/lab/{name}"), open_store(golden / name))


@pytest.mark.parametrize("name", NAMES)
def test_by_the_url_of_a_file(golden, name):
    assert_same(open_store(f"file://{golden}/{name}"), open_store(golden / name))


@pytest.mark.parametrize("name", ["final.zarr", "packed.zip"])
def test_once_it_was_pulled(golden, url, name, tmp_path):
    pulled = pull(f"{url}/{name}", tmp_path / "pulled.zarr")["path"]
    assert_same(open_store(pulled), open_store(golden / name))


def test_once_it_was_pushed(golden, tmp_path):
    where = push(golden / "final.zarr", tmp_path)["where"]
    assert where == str(tmp_path / "final.zarr")
    assert_same(open_store(where), open_store(golden / "final.zarr"))
