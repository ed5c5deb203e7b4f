"""Code that people write without a zoo: like the authors, or like a careful user.

The authors load a file per clip in each epoch and fit a whole SVC with probabilities. A careful
user keeps tensors in memory, and computes the kernel once, without probabilities.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.svm import SVC
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

BATCH, EPOCHS, PATIENCE = 16, 100, 5

Batches = Callable[[NDArray[np.intp], NDArray[np.int64], bool], Any]
"""A function of rows, labels and a flag for shuffling. Its batches can be iterated many times."""


class _Files(Dataset[tuple[Tensor, int]]):  # type: ignore[misc]
    """Some clips in a folder with a .pth file for each."""

    def __init__(self, folder: Path, rows: NDArray[np.intp], labels: NDArray[np.int64]) -> None:
        self.paths = [folder / f"{row}.pth" for row in rows.tolist()]
        self.labels = labels[rows].tolist()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.load(self.paths[row], weights_only=True), self.labels[row]


@dataclass(frozen=True)
class _InMemory:
    """Batches of tensors in memory, without a DataLoader."""

    clips: Tensor
    targets: Tensor
    shuffle: bool

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        count = len(self.targets)
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        for batch in order.split(BATCH):
            yield self.clips[batch], self.targets[batch]


def batches_of_files(folder: Path, batch: int = BATCH) -> Batches:
    """Return a function for batches that load each clip in every epoch, as the authors do."""

    def batches(rows: NDArray[np.intp], labels: NDArray[np.int64], shuffle: bool) -> Any:
        return DataLoader(_Files(folder, rows, labels), batch, shuffle=shuffle)

    return batches


def batches_in_memory(features: NDArray[np.float32]) -> Batches:
    """Return a function for batches of features in memory, without a DataLoader."""
    tensors = torch.from_numpy(features)

    def batches(rows: NDArray[np.intp], labels: NDArray[np.int64], shuffle: bool) -> Any:
        return _InMemory(tensors[rows], torch.from_numpy(labels[rows]), shuffle)

    return batches


def save_clips(folder: Path, features: NDArray[np.floating]) -> None:
    """Write a file per clip, named by its row."""
    folder.mkdir()
    for row, values in enumerate(features):
        torch.save(torch.from_numpy(values.copy()), folder / f"{row}.pth")


def fit_mlp(
    batches: Batches,
    train: NDArray[np.intp],
    validation: NDArray[np.intp],
    labels: NDArray[np.int64],
    tests: Iterable[tuple[NDArray[np.intp], NDArray[np.int64]]],
) -> int:
    """Train with early stopping, predict each test, and return the number of epochs."""
    training = batches(train, labels, True)
    validating = batches(validation, labels, False)
    model = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 2))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    best_loss, best_epoch, best = float("inf"), 0, model.state_dict()
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for clips, targets in training:
            adam.zero_grad()
            loss_of(model(clips), targets).backward()
            adam.step()
        model.eval()
        total = 0.0
        with torch.no_grad():
            for clips, targets in validating:
                total += loss_of(model(clips), targets).item() * len(targets)
        if total < best_loss:
            best_loss, best_epoch, best = total, epoch, copy.deepcopy(model.state_dict())
        elif epoch - best_epoch >= PATIENCE:
            break
    model.load_state_dict(best)
    with torch.no_grad():
        for rows, truth in tests:
            for clips, _ in batches(rows, truth, False):
                model(clips).softmax(1)
    return epoch


def fit_svcs(
    features: NDArray[np.float32],
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    labels: NDArray[np.int64],
    Cs: Sequence[float],  # noqa: N803
) -> Iterator[NDArray[np.float64]]:
    """Yield the decision values on the test clips for each C, as the authors compute them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # probability=True is deprecated
        for C in Cs:  # noqa: N806
            model = SVC(C=C, kernel="linear", class_weight="balanced", probability=True)
            yield model.fit(features[train], labels[train]).decision_function(features[test])


def fit_kernel_svcs(
    kernel: NDArray[np.float64],
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    labels: NDArray[np.int64],
    Cs: Sequence[float],  # noqa: N803
) -> Iterator[NDArray[np.float64]]:
    """Yield the values of `fit_svcs` from products that are computed once for all clips."""
    fitted, asked = kernel[np.ix_(train, train)], kernel[np.ix_(test, train)]
    for C in Cs:  # noqa: N806
        model = SVC(C=C, kernel="precomputed", class_weight="balanced")
        yield model.fit(fitted, labels[train]).decision_function(asked)
