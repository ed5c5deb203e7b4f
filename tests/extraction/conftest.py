"""A small film library, a checkpoint, a manifest and its store, and the commands on them."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import obygaze_features as of
from tests.conftest import run_obygaze
from tests.kit.films import rows, write_clip


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clips in one folder: clip0.mp4 to clip5.mp4, of 5, 12, 19 ... frames."""
    folder = tmp_path_factory.mktemp("films")
    for number in range(6):
        seconds = (5 + 7 * number) / 24
        write_clip(folder / f"clip{number}.mp4", "S", seed=number, seconds=seconds)
    return folder


@pytest.fixture(scope="session")
def weights(checkpoints: Mapping[str, Path]) -> Path:
    return checkpoints["tiny-xclip"]


@pytest.fixture(scope="session")
def tiny(weights: Path) -> of.Backbone:
    return of.load_backbone(f"tiny={weights}", "cpu")


@pytest.fixture(scope="session")
def manifest() -> of.Manifest:
    """Seventy items (three blocks) that share the six clips."""
    return rows(70)


@pytest.fixture(scope="session")
def whole_store(manifest: of.Manifest, films: Path, tiny: of.Backbone, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    (store,) = of.extract(manifest, films, [tiny], folder, batch=8).stores
    return store


@pytest.fixture(scope="session")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    run_obygaze("features", "demo", folder / "data", "--seconds", 0.5, code=0)
    of.Manifest.from_csv(folder / "data/annotations.csv").save(folder / "manifest")
    return folder


@pytest.fixture
def library(data_set: Path, tmp_path: Path) -> Path:
    """A copy of the dataset to damage: data/videos/FILM/FILM_scene_N.mp4, and manifest/."""
    shutil.copytree(data_set, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def command(obygaze, library: Path, weights: Path) -> Callable[..., Any]:
    fixed = ["--videos", library / "data/videos", "-o", library / "stores", "--device", "cpu"]
    fixed += ["--backbone", f"tiny={weights}"]
    extract = ("features", "extract", library / "manifest", *fixed)
    return lambda *more, **options: obygaze(*extract, *more, **options)
