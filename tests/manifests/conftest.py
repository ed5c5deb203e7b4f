"""Manifests of small files of the authors' make, and of the authors' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from obygaze_features.manifests import Manifest
from tests.manifests.sources import write_source


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "annotations.csv")


@pytest.fixture
def manifest(source: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "manifest"
    Manifest.from_obygaze12(source).save(folder)
    return folder


@pytest.fixture(scope="session")
def obygaze12(authors: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """The authors' annotations with their splits and runs, on disk."""
    from obygaze_features.manifests.importers.obygaze12 import read_released_splits
    from obygaze_features.manifests.manifest import save_parts

    folder = tmp_path_factory.mktemp("authors") / "obygaze12"
    Manifest.from_obygaze12(authors / "obygaze12" / "ObyGaze12_thresh_02.csv").save(folder)
    splits, runs = read_released_splits(authors / "obygaze12", Manifest.load(folder))
    save_parts(folder, [*splits, *runs])
    return Manifest.load(folder)
