"""Toy stores that are made once, and copies of them to damage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import obygaze_features as of
from tests.kit import store as toys


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one store of 18 rows as ``open.zarr`` and ``final.zarr``; row 6 failed."""
    folder = tmp_path_factory.mktemp("sound")
    path = toys.a_store(folder / "open.zarr")
    of.finalise(shutil.copytree(path, folder / "final.zarr"))
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies the sound store in a state: ``copy("final", "my.zarr")``."""

    def copy(state: str = "open", name: str = "toy.zarr") -> Path:
        return Path(shutil.copytree(sound / f"{state}.zarr", tmp_path / name))

    return copy


@pytest.fixture
def path(copy: Callable[..., Path]) -> Path:
    return copy("open")


@pytest.fixture
def final(copy: Callable[..., Path]) -> Path:
    return copy("final", "final.zarr")
