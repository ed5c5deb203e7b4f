"""Reproduction of the paper from synthetic features of full width, compared with plain fits."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits
from torch.nn.functional import cross_entropy

from benchmarks.result import Result
from obygaze_models.studies.reproduce.reproduce import reproduce
from tests.kit.authors import make_dataset

RATIO = 15
CLIPS, WIDTH, HIDDEN, BATCH = 1_364, 512, 128, 16
NETWORKS, EPOCHS, SVMS = 5, 30, 100


def measure() -> Iterator[Result]:
    """Measure all tables and figures, from the authors' labels and splits."""
    authors = os.environ.get("OBYGAZE_TEST_DATA")
    if not authors:
        sys.exit("Error: set OBYGAZE_TEST_DATA to the folder of the authors' files")
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = Path(name)
        dataset = make_dataset(folder, Path(authors), widths=(512, 768, 512))
        begin = _cpu_s()
        plain_fits()
        plain = _cpu_s() - begin
        begin = _cpu_s()
        reproduce("all", dataset.manifest, dataset.stores, folder / "all")
        took = _cpu_s() - begin
        what = f"{NETWORKS} networks and {SVMS} SVMs by torch and scikit-learn alone"
        yield Result(
            f"all tables and figures, CPU time ({what})", took, "s", plain, took / plain, RATIO
        )


def plain_fits() -> None:
    """Train networks and SVMs of the paper's sizes, as in a tutorial."""
    chance = np.random.default_rng(0)
    values = chance.standard_normal((CLIPS, WIDTH))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    labels = chance.integers(0, 2, CLIPS)
    clips, targets = torch.tensor(values, dtype=torch.float32), torch.tensor(labels)
    for _ in range(NETWORKS):
        network = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 2)
        )
        adam = torch.optim.Adam(network.parameters())
        for _ in range(EPOCHS):
            for rows in torch.randperm(CLIPS).split(BATCH):
                adam.zero_grad()
                cross_entropy(network(clips[rows]), targets[rows]).backward()
                adam.step()
    products = values @ values.T
    for _ in range(SVMS):
        SVC(C=1.0, kernel="precomputed", class_weight="balanced").fit(products, labels)


def _cpu_s() -> float:
    """Return the CPU seconds of this process and its finished children."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
