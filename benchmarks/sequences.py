"""Frame probes on 1,048 clips x 32 frames x 512, compared with plain loops: time and memory.

Both sides run on one thread, on the same clips, batches and epochs. Our side also reads the store,
checks the frames, updates weights, stops early, and predicts and scores the validation clips in
every epoch.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from benchmarks.clips import DIM, known_clips
from benchmarks.memory import peak_mib
from benchmarks.result import Result
from benchmarks.store import FRAMES, make_store
from benchmarks.zoo import TABLE_2, Fitted, fit_all, paper_folds
from benchmarks.zoo_peers import batches_of_files, save_clips
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.folds import Fold
from obygaze_models.data.stores import open_stores, read_frames
from obygaze_models.data.tasks import Task
from obygaze_models.estimators.attention import FrameMIL

SHOWN, SIGNAL, LIMIT_S, LIMIT_MIB = 3, 3.0, 90, 1500
PROBE = FrameMIL()
BESIDE_LOADER = 0.25
"""A limit for processors with and without AMX, which speeds up the peer more than our code."""
Fit = tuple[Task, Fold, int]
"""A task, the fold with its clips, and the number of epochs."""


def measure() -> Iterator[Result]:
    """Measure the promised speed and memory of sequence models."""
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(1):
        folder = Path(temporary)
        known = _labelled_clips()
        frames = _planted_frames(known)
        store = make_store(folder / "s.zarr", known.ids, {"frames": frames})
        peak = peak_mib(
            [sys.executable, "-c", f"from {__name__} import fit_probes; fit_probes({str(store)!r})"]
        )
        begin = time.perf_counter()
        results = fit_probes(store)
        seconds = time.perf_counter() - begin
        fits = [
            (result.planned.task, result.planned.fold, len(result.fit.estimator.history_))
            for result in results
        ]
        epochs = sum(fit[2] for fit in fits)
        name = f"{len(fits)} frame probes, {epochs / len(fits):.0f} epochs each"
        begin = time.perf_counter()
        _passes_alone(known, torch.from_numpy(frames), fits)
        alone = time.perf_counter() - begin
        yield Result(
            f"{name} (forward and backward alone, in memory)",
            seconds, "s", alone, seconds / alone, 2,
        )  # fmt: skip
        save_clips(folder / "files", frames)
        sample = fits[4::8]
        begin = time.perf_counter()
        _files_loop(known, folder / "files", sample)
        files = (time.perf_counter() - begin) * epochs / sum(fit[2] for fit in sample)
        yield Result(
            f"{name} (one file per clip, DataLoader; {len(sample)} of {len(fits)}, scaled)",
            seconds, "s", files, seconds / files, BESIDE_LOADER,
        )  # fmt: skip
        yield Result("their time (limit)", seconds, "s", LIMIT_S, seconds / LIMIT_S, 1)
        yield Result("their peak memory (limit)", peak, "MiB", LIMIT_MIB, peak / LIMIT_MIB, 1)


def fit_probes(store: Path | str) -> list[Fitted]:
    """Read the frames, and fit and test a probe in every fold, as an experiment does."""
    known = _labelled_clips()
    ids, frames = read_frames(open_stores(store), known.ids, "frames")
    assert ids == known.ids
    data = replace(known, frames=frames)
    return fit_all("frame-mil", data, TABLE_2, paper_folds(data))


def _labelled_clips() -> ClipDataset:
    return known_clips(signal=0.0, length=1)


def _planted_frames(known: ClipDataset) -> NDArray[np.float16]:
    """Return noise in which three frames of each Sure clip carry a direction."""
    chance = np.random.default_rng(0)
    direction = chance.standard_normal(DIM)
    direction *= SIGNAL / np.linalg.norm(direction)
    frames = chance.standard_normal((len(known), FRAMES, DIM), np.float32)
    for row in np.flatnonzero(np.array(known.levels) == "S"):
        start = chance.integers(FRAMES - SHOWN)
        frames[row, start : start + SHOWN] += direction
    return frames.astype(np.float16)


class _HighestFrames(nn.Module):  # type: ignore[misc]
    """A linear layer on frames, and the mean of the highest frames."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(DIM, 1)

    def forward(self, frames: Tensor) -> Tensor:
        scores = self.layer(frames).squeeze(-1)
        logits = scores.topk(PROBE.k, dim=1).values.mean(1)
        return torch.stack([torch.zeros_like(logits), logits], dim=1)


def _passes_alone(known: ClipDataset, frames: Tensor, fits: Iterable[Fit]) -> None:
    """Run only the forward and backward passes of the training batches."""
    for task, fold, epochs in fits:
        targets, model = torch.from_numpy(task.labels(known)), _HighestFrames()
        for _ in range(epochs):
            order = torch.from_numpy(fold.train)[torch.randperm(len(fold.train))]
            for rows in order.split(PROBE.batch_size):
                _loss(model, frames[rows], targets[rows]).backward()


def _files_loop(known: ClipDataset, folder: Path, fits: Iterable[Fit]) -> None:
    """Load every clip from its file in every epoch, as people commonly do."""
    batches = batches_of_files(folder, PROBE.batch_size)
    for task, fold, epochs in fits:
        labels, model = task.labels(known), _HighestFrames()
        adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
        training, validating = (
            batches(rows, labels, shuffle)
            for rows, shuffle in ((fold.train, True), (fold.validation, False))
        )
        for _ in range(epochs):
            for clips, targets in training:
                adam.zero_grad()
                _loss(model, clips, targets).backward()
                adam.step()
            with torch.no_grad():
                sum(_loss(model, *batch).item() for batch in validating)
        with torch.no_grad():
            for rows in fold.tests.values():
                for clips, _ in batches(rows, labels, False):
                    model(clips.float()).softmax(1)


def _loss(model: nn.Module, clips: Tensor, targets: Tensor) -> Any:
    return nn.functional.cross_entropy(model(clips.float()), targets)
