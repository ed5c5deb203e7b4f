"""Folds (the rows of each fit), the base classes of protocols, and leaks within folds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from inspect import signature
from numbers import Integral
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state

from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.metrics import Array

N_FOLDS = 10
Balance = Literal["undersample", "weights", "none"]
BALANCES = ("undersample", "weights", "none")
"""The ways to balance classes in training. ``undersample`` draws as many clips of each class as the
smallest class has. ``weights`` uses all clips, and estimators weight each class by its inverse
size. ``none`` uses all clips without weights.
"""
BALANCE: Balance = "undersample"
"""The default balance of all protocols that draw their training clips. With this balance, even
models without class weights can learn the smaller classes.
"""
RandomState = int | np.random.RandomState | None
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows of a fit.

    `tests` has the rows of each test set by name. `group` is the same for related folds, such as
    folds that leave out the same film. `drawn_from` is the number of clips that `train` was drawn
    from, or 0 if the protocol does not draw. `near` has the rows that are left out because they are
    too close to a test clip.
    """

    index: int
    name: str
    seed: int
    train: Array
    validation: Array
    tests: Mapping[str, Array]
    group: str = ""
    drawn_from: int = 0
    near: Array = field(default_factory=lambda: np.array([], dtype=np.int64))

    @property
    def test_rows(self) -> Array:
        """The rows of all test sets, without duplicates."""
        return np.unique(np.concatenate([np.array([], dtype=np.int64), *self.tests.values()]))


class MadeWhenNeeded(Sequence[T], Generic[T]):
    """A sequence whose elements are made on demand. Only the last element is kept in memory.

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
        self._count, self._make = count, make
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


FoldParts = tuple[str, Array, Array, Array | Mapping[str, Array], str]
"""A fold before training rows are drawn: its name, boolean masks of the training, validation and
test clips (or a mask per test set), and its group.
"""


Near = Callable[[Array], Array] | None
"""A function that takes the rows of test clips and returns a mask of clips too close to them."""


class Splitter:
    """The base class of all protocols. The decorator `protocol` sets the class attributes."""

    title: ClassVar[str]
    short: ClassVar[str]
    default_balance: ClassVar[str]
    in_turn: ClassVar[bool]
    from_clips: ClassVar[frozenset[str]] = frozenset({"random_state"})
    """The keywords that `of_clips` sets, so experiments cannot set them."""
    balance: Balance | None = None
    random_state: RandomState = 0

    @classmethod
    def options(cls) -> list[str]:
        """Return the keywords that an experiment can pass."""
        return [name for name in signature(cls).parameters if name not in cls.from_clips]

    @classmethod
    def of_clips(cls, data: Any, division: Any, **options: Any) -> Splitter:
        """Return the splitter for an experiment's clips, given their `Division`."""
        return cls(**options)

    @abstractmethod
    def _parts(self, y: Array, groups: Any, near: Near = None) -> Iterable[FoldParts]:
        """Return the training (before balancing), validation and test clips of each fold."""

    def make_folds(
        self,
        y: Array,
        tests: Mapping[str, Array],
        *,
        groups: Sequence[str] | Array | None = None,
        near: Near = None,
    ) -> Sequence[Fold]:
        """Return the folds of an experiment, each made on demand.

        Parameters
        ----------
        y
            The class of each clip in training, from 0; -1 for clips that are left out.
        tests
            The class of each clip in each test set, by the name of the test set.
        groups
            The film (or other group) of each clip.
        near
            A function that takes the rows of a fold's test clips and returns a boolean for each
            clip: True if it is too close to a test clip to be used in training.
        """
        check_balance(self.balance)
        fold_parts = self._parts(y, groups, near)
        parts = fold_parts if isinstance(fold_parts, Sequence) else list(fold_parts)
        seeds = draw_seeds(self.random_state, len(parts))

        def make_fold(index: int) -> Fold:
            name, train, validation, tested, group = parts[index]
            sets = {
                test: select_rows(tested[test] if isinstance(tested, Mapping) else tested, codes)
                for test, codes in tests.items()
            }
            test_rows = np.unique(np.concatenate([*sets.values()]))
            too_near = near(test_rows) if near else np.zeros(len(y), dtype=bool)
            train, validation = train & ~too_near, validation & ~too_near
            pool, seed = select_rows(train, y), seeds[index]
            learn, stop = balanced(pool, y, seed, self.balance), select_rows(validation, y)
            drawn_from = 0 if self.balance is None else len(pool)
            return Fold(
                index,
                name,
                seed,
                train=learn,
                validation=stop,
                tests=sets,
                group=group,
                drawn_from=drawn_from,
                near=np.flatnonzero(too_near),
            )

        return MadeWhenNeeded(len(parts), make_fold)


@dataclass(eq=False, repr=False)
class ByFolds(Splitter):
    """The base class of protocols that use a fold column."""

    from_clips = Splitter.from_clips | {"folds", "last"}
    folds: Sequence[int] | Array | None = None
    _: KW_ONLY
    last: int | None = None
    random_state: RandomState = 0

    @classmethod
    def of_clips(cls, data: Any, division: Any, **options: Any) -> Splitter:
        """Return the splitter for an experiment's clips, given their `Division`."""
        return cls(data.folds, last=division.last, **options)

    def _column(self, y: Array) -> Array:
        """Return the fold of each clip."""
        if self.folds is None:
            return draw_folds(y, self.random_state)
        folds = np.asarray(self.folds)
        if len(folds) != len(y):
            raise ExperimentError(
                f"{type(self).__name__}: folds has {len(folds)} entries, but there are {len(y)} "
                "clips. Pass the fold of each clip, such as data.folds"
            )
        return folds

    def _last(self) -> int:
        if self.last is not None:
            return self.last
        return N_FOLDS - 1 if self.folds is None else int(np.max(self.folds, initial=-1))

    def _last_of_three(self) -> int:
        last = self._last()
        if last < 2:
            raise ExperimentError(
                f"the split has {counted(last + 1, 'fold')}; training, validation and test need "
                'three. To draw new folds, set split = "" in the experiment'
            )
        return last


def draw_folds(y: Array, random_state: RandomState) -> Array:
    """Assign labelled clips to ten stratified folds, and unlabelled clips to fold -1."""
    folds = np.full(len(y), -1)
    rows = np.flatnonzero(y >= 0)
    dealer = StratifiedKFold(N_FOLDS, shuffle=True, random_state=random_state)
    for number, (_, dealt) in enumerate(dealer.split(rows, y[rows])):
        folds[rows[dealt]] = number
    return folds


def check_balance(balance: str | None) -> None:
    """Raise `ExperimentError` if the balance is unknown."""
    if balance not in (None, *BALANCES):
        raise ExperimentError(unknown_name("balance", str(balance), BALANCES))


def balanced(rows: Array, y: Array, seed: int, balance: str | None = "undersample") -> Array:
    """Return random rows: as many of each class of `y` as the smallest class has.

    Return all rows if the balance is not ``undersample``.
    """
    check_balance(balance)
    if balance != "undersample":
        return rows
    chance = np.random.default_rng(seed)
    classes = [rows[y[rows] == code] for code in np.unique(y[y >= 0])]
    size = min(map(len, classes), default=0)
    drawn = [chance.choice(rows, size, replace=False) for rows in classes]
    return np.sort(np.concatenate(drawn)) if drawn else rows


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
