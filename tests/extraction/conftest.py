"""A small film library, a checkpoint and a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.extraction import extract
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.video.synthetic import write_clip
from tests.kit.models import write_checkpoint


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clips in one folder: clip0.mp4 to clip5.mp4, of 5, 12, 19 ... frames."""
    folder = tmp_path_factory.mktemp("films")
    for number in range(6):
        seconds = (5 + 7 * number) / 24
        write_clip(folder / f"clip{number}.mp4", "S", seed=number, seconds=seconds)
    return folder


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    write_checkpoint("tiny-xclip", folder)
    return folder


@pytest.fixture(scope="session")
def tiny(weights: Path) -> Backbone:
    return load_backbone(f"tiny={weights}", "cpu")


@pytest.fixture(scope="session")
def manifest() -> Manifest:
    """Seventy items, so three blocks, that share the six clips."""
    items = [Item(f"clip-{row:02}", media=f"clip{row % 6}.mp4") for row in range(70)]
    return Manifest("made-up", Items.of(items))


@pytest.fixture(scope="session")
def whole_store(manifest: Manifest, films: Path, tiny: Backbone, tmp_path_factory) -> Path:
    """The local engine's store."""
    (store,) = extract(manifest, films, [tiny], tmp_path_factory.mktemp("whole")).stores
    return store


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    from tests.extraction.ray_clusters import head

    with head() as cluster:
        yield cluster
