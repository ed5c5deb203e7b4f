"""Folds: the rows of each fit, and how clips are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from obygaze_features.common.arrays import Array

Balance = Literal["undersample", "weights", "none"]
BALANCES = get_args(Balance)
"""The ways to balance classes in training. ``undersample`` draws as many clips of each class as the
smallest class has. ``weights`` uses all clips, and estimators with class weights weight each class
by the inverse of its size. ``none`` uses all clips and each estimator's own class weights.
"""
BALANCE: Balance = "undersample"
"""The default balance of classes in protocols that draw training clips. With this balance, even
models without class weights can learn the smaller classes.
"""
NO_ROWS = np.array([], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows of a fit.

    `tests` has the rows of each test set by name. `drawn_from` is the number of clips that `train`
    was drawn from, or 0 if the protocol does not draw. `near` has the rows that are too
    close to a test clip for training and validation.
    """

    index: int
    name: str
    seed: int
    train: Array
    validation: Array
    tests: Mapping[str, Array]
    drawn_from: int = 0
    near: Array = field(default_factory=NO_ROWS.copy)

    @property
    def test_rows(self) -> Array:
        """The rows of all test sets, without duplicates."""
        return np.unique(np.concatenate([NO_ROWS, *self.tests.values()]))


def balanced(rows: Array, y: Array, seed: int, balance: str) -> Array:
    """Return random rows: as many of each class of `y` as the smallest class has.

    Return all rows if the balance is not ``undersample``.
    """
    if balance != "undersample":
        return rows
    chance = np.random.default_rng(seed)
    classes = [rows[y[rows] == code] for code in np.unique(y[y >= 0])]
    if not classes:
        return rows
    size = min(map(len, classes))
    drawn = []
    for of_class in classes:
        drawn.append(chance.choice(of_class, size, replace=False))
    return np.sort(np.concatenate(drawn))


def draw_seeds(seed: Any, count: int) -> list[int]:
    """Return a seed for each fold. The first ones do not depend on `count`."""
    seeds: list[int] = np.random.SeedSequence(seed).generate_state(count).tolist()
    return seeds
