"""Manifests of six clips, and of the authors' files in miniature."""

import pytest

import obygaze_features as of
from obygaze_features.manifests.importers.obygaze12 import read_released_splits
from obygaze_features.manifests.manifest import save_parts
from tests.kit.authors import SIX_CLIPS, clip_table, make_authors


@pytest.fixture
def source(tmp_path):
    (tmp_path / "annotations.csv").write_bytes(clip_table(*SIX_CLIPS))
    return tmp_path / "annotations.csv"


@pytest.fixture
def manifest(source, tmp_path):
    of.Manifest.from_obygaze12(source).save(tmp_path / "manifest")
    return tmp_path / "manifest"


@pytest.fixture(scope="session")
def small_authors(tmp_path_factory):
    return make_authors(tmp_path_factory.mktemp("authors"))


@pytest.fixture(scope="session")
def released(small_authors, tmp_path_factory):
    """The small files' annotations with their splits and runs, on disk."""
    folder, data = tmp_path_factory.mktemp("released") / "obygaze12", small_authors / "obygaze12"
    of.Manifest.from_obygaze12(data / "ObyGaze12_thresh_02.csv").save(folder)
    splits, runs = read_released_splits(data, of.Manifest.load(folder))
    save_parts(folder, [*splits, *runs])
    return of.Manifest.load(folder)
