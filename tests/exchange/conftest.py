"""Stores that travel, and things that should not."""

from __future__ import annotations

import os
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


class Malice:
    """What makes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)
