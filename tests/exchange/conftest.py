"""A store to travel."""

from __future__ import annotations

from pathlib import Path

import pytest

from obygaze_features.store import finalise
from tests.store import toys


@pytest.fixture(scope="session")
def final_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A final store of 18 rows, one of which failed. Not to be changed."""
    path = toys.a_store(tmp_path_factory.mktemp("final") / "toy.zarr")
    finalise(path)
    return path
