"""What people write without a zoo: a file a clip, loaded anew each epoch; a whole SVC a fit."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.svm import SVC
from torch import nn
from torch.utils.data import DataLoader, Dataset

__all__ = ["fit_mlp", "fit_svcs", "save_clips"]

BATCH, EPOCHS, PATIENCE = 16, 100, 5


class Clips(Dataset[tuple[torch.Tensor, int]]):  # type: ignore[misc]
    """Some clips of a folder with a .pth file each."""

    def __init__(self, folder: Path, rows: NDArray[np.intp], labels: NDArray[np.int64]) -> None:
        self.paths = [folder / f"{row}.pth" for row in rows.tolist()]
        self.labels = labels[rows].tolist()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return torch.load(self.paths[place], weights_only=True), self.labels[place]


def save_clips(folder: Path, features: NDArray[np.float32]) -> None:
    """Write a file a clip, under its row."""
    folder.mkdir()
    for row, values in enumerate(features):
        torch.save(torch.from_numpy(values.copy()), folder / f"{row}.pth")


def fit_mlp(
    folder: Path,
    train: NDArray[np.intp],
    validation: NDArray[np.intp],
    labels: NDArray[np.int64],
    tests: Iterable[tuple[NDArray[np.intp], NDArray[np.int64]]],
) -> int:
    """Train with early stopping, keep the best epoch, predict each test; the epochs run."""
    learn = DataLoader(Clips(folder, train, labels), BATCH, shuffle=True)
    watch = DataLoader(Clips(folder, validation, labels), BATCH)
    model = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 2))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    best_loss, best_epoch, best = float("inf"), 0, model.state_dict()
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for clips, targets in learn:
            adam.zero_grad()
            loss_of(model(clips), targets).backward()
            adam.step()
        model.eval()
        total = 0.0
        with torch.no_grad():
            for clips, targets in watch:
                total += loss_of(model(clips), targets).item() * len(targets)
        if total < best_loss:
            best_loss, best_epoch, best = total, epoch, copy.deepcopy(model.state_dict())
        elif epoch - best_epoch >= PATIENCE:
            break
    model.load_state_dict(best)
    with torch.no_grad():
        for rows, truth in tests:
            for clips, _ in DataLoader(Clips(folder, rows, truth), BATCH):
                model(clips).softmax(1)
    return epoch


def fit_svcs(
    features: NDArray[np.float32],
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    labels: NDArray[np.int64],
    Cs: Sequence[float],  # noqa: N803
    *,
    probability: bool = True,
) -> Iterator[NDArray[np.float64]]:
    """The decision values on the test clips, for each C."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # probability=True is on its way out
        for C in Cs:  # noqa: N806
            model = SVC(C=C, kernel="linear", class_weight="balanced", probability=probability)
            yield model.fit(features[train], labels[train]).decision_function(features[test])
