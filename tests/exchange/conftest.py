"""Stores to travel."""

from __future__ import annotations

from pathlib import Path

import pytest

from obygaze_features.store import finalise
from tests.kit import store as toys
from tests.kit.store import numbers, open_state


@pytest.fixture(scope="session")
def final_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A final store of 18 rows, one of which failed. Not to be changed."""
    path = toys.a_store(tmp_path_factory.mktemp("final") / "toy.zarr")
    finalise(path)
    return path


@pytest.fixture(scope="session")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = {"frames": numbers(200, (32, 64), "float16"), "native": numbers(200, (64,), "float32")}
    path = open_state(tmp_path_factory.mktemp("large") / "large.zarr", values, block_rows=32)
    finalise(path)
    return path


@pytest.fixture
def other_store(tmp_path: Path) -> Path:
    path = toys.a_store(tmp_path / "other.zarr", 5)
    finalise(path)
    return path
