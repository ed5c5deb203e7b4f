"""The leak-free protocol: one fold column for all clips, so that train and test never meet.

The last fold is the test fold, whatever the task. Each other fold in turn is the validation
fold of a run, and all the rest trains. The paper's released splits draw a fold column for each
pairing of levels; there, clips that one pairing trains on are tested in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError

__all__ = ["PROTOCOL", "Draw", "leak_free_draws", "leaks", "rows_to_test"]

PROTOCOL = "leak-free"
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Draw:
    """The rows of one run."""

    run: int
    seed: int
    validation_fold: int
    train: Array
    validation: Array


def leak_free_draws(
    folds: Array, labels: Array, *, fold_names: Sequence[int], seed: int
) -> list[Draw]:
    """One run a validation fold.

    The training rows are balanced: of the larger class, as a rule the negatives, as many are
    drawn as the smaller has, anew in each run. The validation fold is left as it is, as the
    paper does.

    Parameters
    ----------
    folds, labels
        A row a clip: its fold, and 1, 0 or `UNUSED`.
    fold_names
        All folds of the split, also those of which no clip is left, so that the test fold
        is the same one whatever is missing.
    seed
        Fixes the draws; each run gets a seed of its own from it.
    """
    *others, last = sorted(set(fold_names))
    if len(others) < 2:
        raise ExperimentError(
            f"the split has {len(others) + 1} folds; to train, validate and test takes three"
        )
    seeds = np.random.SeedSequence(seed).generate_state(len(others)).tolist()
    draws = []
    for run, (fold, own_seed) in enumerate(zip(others, seeds, strict=True)):
        validation = _both_classes(labels, folds == fold, f"validation fold {fold}")
        train = _both_classes(
            labels, (folds != fold) & (folds != last), f"training set beside fold {fold}"
        )
        draws.append(Draw(run, own_seed, fold, _balanced(train, labels, own_seed), validation))
    return draws


def rows_to_test(folds: Array, labels: Array, *, fold_names: Sequence[int]) -> Array:
    """The rows of a test set: those of the last fold that take part in its task."""
    last = max(fold_names)
    return _both_classes(labels, folds == last, f"test fold {last}")


def leaks(draws: Sequence[Draw], ids: Sequence[str], tested: Array) -> list[str]:
    """Ids of test clips that some run trained on or stopped by: to be empty, and looked at."""
    seen = {ids[row] for draw in draws for row in (*draw.train, *draw.validation)}
    return sorted({ids[row] for row in tested} & seen)


def _both_classes(labels: Array, chosen: Array, what: str) -> Array:
    rows = np.flatnonzero(chosen & (labels >= 0))
    positive = int((labels[rows] == 1).sum())
    if not 0 < positive < len(rows):
        raise ExperimentError(
            f"the {what} has {positive} positive and {len(rows) - positive} negative clips, "
            "and needs both; look at the levels, the split, and what the store lacks"
        )
    return rows


def _balanced(rows: Array, labels: Array, seed: int) -> Array:
    chance = np.random.default_rng(seed)
    classes = [rows[labels[rows] == label] for label in (0, 1)]
    size = min(map(len, classes))
    return np.sort(np.concatenate([chance.choice(of, size, replace=False) for of in classes]))
