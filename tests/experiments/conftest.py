"""The authors' data with made-up features, which their splits and labels can be tried on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.manifests import Manifest
from obygaze_features.manifests.importers.obygaze12 import read_released_splits
from obygaze_features.manifests.manifest import save_parts
from obygaze_features.store import ArraySpec, Done, Recipe, StoreWriter
from obygaze_models.experiments.experiment import Experiment

CODES = Recipe(
    name="codes",
    backbone={"name": "none", "revision": "1", "weights_sha256": "0" * 64, "config": {}},
    preprocessing={"mode": "standard"},
    precision="float32",
    arrays=(ArraySpec("native", (16,), "float32", "a random code of each clip, and no more"),),
)


@dataclass(frozen=True)
class Authors:
    """The authors' manifest, and a store of a random code for each of its 1,914 clips."""

    manifest: Path
    store: Path

    def experiment(self, negatives: tuple[str, ...] = ("HN",), **more: object) -> Experiment:
        values = {"positives": ("S",), "train_negatives": negatives, "labels": "released"}
        return Experiment("codes", self.manifest, self.store, **(values | more))


@pytest.fixture(scope="session")
def coded(authors: Path, tmp_path_factory: pytest.TempPathFactory) -> Authors:
    folder = tmp_path_factory.mktemp("coded")
    Manifest.from_obygaze12(authors / "obygaze12/ObyGaze12_thresh_02.csv").save(folder / "manifest")
    manifest = Manifest.load(folder / "manifest")
    splits, runs = read_released_splits(authors / "obygaze12", manifest)
    save_parts(folder / "manifest", [*splits, *runs])
    codes = np.random.default_rng(7).normal(size=(len(manifest), 16)).astype(np.float32)
    writer = StoreWriter.create(folder / "codes.zarr", manifest, CODES, block_rows=512)
    for block, start in enumerate(range(0, len(manifest), 512)):
        rows = [Done({"native": code}, None) for code in codes[start : start + 512]]
        writer.write_block(block, rows)
    return Authors(folder / "manifest", folder / "codes.zarr")
