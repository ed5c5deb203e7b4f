"""AUROC of models on random codes, with the authors' released splits and with leak-free folds."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import obygaze_models as om
from benchmarks.result import Result
from obygaze_features.manifests import Manifest
from obygaze_features.store import ArraySpec, Recipe
from obygaze_models.scoring.intervals import WITHIN
from tests.kit.authors import save_released
from tests.kit.run import write_rows

CHANCE = 0.5
#: The limit of scores without leaks, as a ratio to chance; scores with leaks have none.
LIMIT = 1.08
SETS, WIDTH = 20, 256
MODELS: dict[str, str | dict[str, Any]] = {
    "MLP": "mlp",
    "nearest clip": {"name": "knn", "n_neighbors": 1},
}
TESTS = (("EN",), ("EN", "HN"))


def measure() -> Iterator[Result]:
    """Measure the mean AUROC over sets of random codes, for training on HN against S."""
    authors = os.environ.get("OBYGAZE_TEST_DATA")
    if not authors:
        sys.exit("Error: set OBYGAZE_TEST_DATA to the folder of the authors' files")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_released(folder / "manifest", Path(authors))
        write_codes(folder)
        for protocol in ("released", "leak-free"):
            aurocs = run_all(folder, protocol)
            for title, own in aurocs.items():
                value = fmean(own)
                limit = LIMIT if protocol == "leak-free" else None
                yield Result(
                    f"{protocol}, {title} (chance)", value, "", CHANCE, value / CHANCE, limit
                )


def write_codes(folder: Path) -> None:
    """Write a store with a random vector for each clip in each of its arrays."""
    manifest = Manifest.load(folder / "manifest")
    chance = np.random.default_rng(7)
    codes = {f"codes{number}": chance.normal(size=(len(manifest), WIDTH)) for number in range(SETS)}
    recipe = Recipe(
        name="codes",
        backbone={"name": "codes", "revision": "1", "weights_sha256": "0" * 64,
                  "config": {"synthetic": "random codes"}},
        preprocessing={"mode": "standard"},
        precision="float32",
        arrays=tuple(ArraySpec(name, (WIDTH,), "float32", "random") for name in codes),
    )  # fmt: skip
    rows = {name: values.astype(np.float32) for name, values in codes.items()}
    write_rows(folder / "codes.zarr", manifest, rows, recipe, block_rows=512)


def run_all(folder: Path, protocol: str) -> dict[str, list[float]]:
    """Return each model's AUROCs on each test set, one for each set of codes."""
    aurocs: dict[str, list[float]] = defaultdict(list)
    for number in range(SETS):
        experiment = om.Experiment(
            name=f"{protocol}, {number}", manifest=str(folder / "manifest"),
            store=str(folder / "codes.zarr"),
            array=f"codes{number}", labels="released", protocol=protocol,
            split=None if protocol == "released" else "clips",
            positives=("S",), train_negatives=("HN",),
            test_negatives=TESTS, estimators=tuple(MODELS.values()),
        )  # fmt: skip
        run = om.run_experiment(experiment, folder / f"{protocol}-{number}")
        titles = dict(zip(run.models, MODELS, strict=True))
        names = dict(zip(run.tests, map("+".join, TESTS), strict=True))
        for scores in run.model_scores:
            title = f"{titles[scores.model]}, {names[scores.test]} vs S"
            auroc = scores.estimate("auroc", WITHIN).value
            assert auroc is not None
            aurocs[title].append(auroc)
    return aurocs
