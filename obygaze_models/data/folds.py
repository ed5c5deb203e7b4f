"""Folds: the rows of each fit, and how clips are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Generic, Literal, TypeVar, overload

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state

from obygaze_models.scoring.metrics import Array

N_FOLDS = 10
Balance = Literal["undersample", "weights", "none"]
BALANCES = ("undersample", "weights", "none")
"""The ways to balance classes in training. ``undersample`` draws as many clips of each class as the
smallest class has. ``weights`` uses all clips, and estimators with class weights weight each class
by the inverse of its size. ``none`` uses all clips and each estimator's own class weights.
"""
BALANCE: Balance = "undersample"
"""The default balance of classes in protocols that draw training clips. With this balance, even
models without class weights can learn the smaller classes.
"""
RandomState = int | np.random.RandomState | None
T = TypeVar("T")


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
    near: Array = field(default_factory=lambda: np.array([], dtype=np.int64))

    @property
    def test_rows(self) -> Array:
        """The rows of all test sets, without duplicates."""
        nothing = np.array([], dtype=np.int64)
        return np.unique(np.concatenate([nothing, *self.tests.values()]))


class MadeWhenNeeded(Sequence[T], Generic[T]):
    """A sequence whose elements are made on demand. Only the element made last is kept in memory.

    This saves memory, because leaving out pairs of N films makes N * (N - 1) folds.

    Parameters
    ----------
    count
        The number of elements.
    make
        A function that takes an element's number and returns the element.

    Examples
    --------
    >>> squares = MadeWhenNeeded(4, lambda number: number**2)
    >>> len(squares), squares[-1], list(squares[1:])
    (4, 9, [1, 4, 9])
    """

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count = count
        self._make = make
        self._last: tuple[int, T] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> T: ...

    @overload
    def __getitem__(self, number: slice) -> MadeWhenNeeded[T]: ...

    def __getitem__(self, number: int | slice) -> T | MadeWhenNeeded[T]:
        if isinstance(number, slice):
            numbers = range(self._count)[number]
            return MadeWhenNeeded(len(numbers), lambda index: self[numbers[index]])
        number = range(self._count)[number]  # raises IndexError
        if self._last is None or self._last[0] != number:
            self._last = number, self._make(number)
        return self._last[1]


Near = Callable[[Array], Array] | None
"""A function that takes the rows of test clips and returns a mask of clips too close to them."""


def draw_folds(y: Array, random_state: RandomState) -> Array:
    """Assign labelled clips to ten stratified folds, and unlabelled clips to fold -1."""
    folds = np.full(len(y), -1)
    rows = np.flatnonzero(y >= 0)
    dealer = StratifiedKFold(N_FOLDS, shuffle=True, random_state=random_state)
    for number, (_, dealt) in enumerate(dealer.split(rows, y[rows])):
        folds[rows[dealt]] = number
    return folds


def balanced(rows: Array, y: Array, seed: int, balance: str = "undersample") -> Array:
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
    for own in classes:
        drawn.append(chance.choice(own, size, replace=False))
    return np.sort(np.concatenate(drawn))


def draw_seeds(random_state: RandomState, count: int) -> list[int]:
    """Return a seed for each fold."""
    seed: Any = random_state
    if not isinstance(random_state, Integral):
        seed = check_random_state(random_state).randint(2**31)
    seeds: list[int] = np.random.SeedSequence(seed).generate_state(count).tolist()
    return seeds


def select_rows(chosen: Array, y: Array) -> Array:
    """Return the row numbers of the chosen clips that take part (`y` is not negative)."""
    return np.flatnonzero(chosen & (y >= 0))
