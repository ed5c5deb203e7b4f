"""Stores to send and to fetch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from obygaze_features.store import finalise
from tests.kit.store import a_store


class Malice:
    """A program in the shape of data: unpickling it makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its name in it."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


@pytest.fixture(scope="session")
def final_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A final store of 18 rows, one of which failed. Not to be changed."""
    path = a_store(tmp_path_factory.mktemp("final") / "toy.zarr")
    finalise(path)
    return path


@pytest.fixture
def other_store(tmp_path: Path) -> Path:
    path = a_store(tmp_path / "other.zarr", 5)
    finalise(path)
    return path
