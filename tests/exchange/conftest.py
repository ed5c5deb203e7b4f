"""Stores to send and to fetch, and commands that run beside the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from obygaze_features.store import finalise
from tests.store.making import numbers, open_state
from tests.store.toys import a_store


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


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """`obygaze stores` in a process that can be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", "cli", "stores", *map(str, arguments)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="session")
def final_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A final store of 18 rows, one of which failed. Not to be changed."""
    path = a_store(tmp_path_factory.mktemp("final") / "toy.zarr")
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
    path = a_store(tmp_path / "other.zarr", 5)
    finalise(path)
    return path
