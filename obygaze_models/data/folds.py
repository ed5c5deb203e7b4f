"""Folds: the rows of each fit, how splitters make them, and the clips that leak between them."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from inspect import signature
from numbers import Integral
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

import numpy as np
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold
from sklearn.utils import check_random_state, column_or_1d, indexable
from sklearn.utils.multiclass import check_classification_targets

from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.metrics import Array

N_FOLDS = 10
Balance = Literal["undersample", "weights", "none"]
BALANCES = ("undersample", "weights", "none")
"""``undersample``: draw as many training clips of each class as the smallest class has.
``weights``: train on all clips, with estimators weighing each class by the inverse of its size.
``none``: train on all clips, unweighted.
"""
BALANCE: Balance = "undersample"
"""The default of all protocols that draw their training clips. Models then predict every class,
even those that cannot weigh classes.
"""
RandomState = int | np.random.RandomState | None
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows of a fit.

    `tests` has the rows of each test set by its name. `group` is shared by some folds, such as
    those that leave out the same film. `drawn_from` counts the clips from which `train` was drawn,
    0 if the protocol draws none. `near` are the rows that are left out because they are too near to
    a test clip.
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
    """A sequence whose elements are made on demand; only the last is kept.

    If N films are left out in pairs, there are N * (N - 1) folds, each with thousands of rows.

    Parameters
    ----------
    count
        The number of elements.
    make
        A function that makes an element by its number.

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
"""A fold before its training rows are drawn: its name; booleans for the clips that train, validate
and test (perhaps by test set); and its group.
"""


Near = Callable[[Array], Array] | None
"""A function from the rows of test clips to booleans for clips too near to them, or None."""


class Splitter(BaseCrossValidator):  # type: ignore[misc]
    """The common base of all splitters; `protocol` sets the class attributes."""

    title: ClassVar[str]
    short: ClassVar[str]
    default_balance: ClassVar[str]
    in_turn: ClassVar[bool]
    from_clips: ClassVar[frozenset[str]] = frozenset({"random_state"})
    """The keywords that `of_clips` passes, not experiments."""
    balance: Balance | None = None
    random_state: RandomState = 0

    @classmethod
    def options(cls) -> list[str]:
        """Return the keywords that an experiment may pass."""
        return [name for name in signature(cls).parameters if name not in cls.from_clips]

    @classmethod
    def of_clips(cls, data: Any, division: Any, **options: Any) -> Splitter:
        """Return the splitter for an experiment's clips, with the manifest's division."""
        return cls(**options)

    @abstractmethod
    def _parts(self, y: Array, groups: Any, near: Near = None) -> Iterable[FoldParts]:
        """Return what each fold trains on (before balancing), validates and tests."""

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
            The training class of each clip, from 0; -1 for clips that are left out.
        tests
            The same for each test set, by its name.
        groups
            The film of each clip, or another group that is kept together.
        near
            A function from the rows of a fold's test clips to a boolean for each clip: True
            if it is too near to one of them to train or to validate.
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
            rest = sets, group, drawn_from, np.flatnonzero(too_near)
            return Fold(index, name, seed, learn, stop, *rest)

        return MadeWhenNeeded(len(parts), make_fold)

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Yield training and test rows, for scikit-learn.

        Parameters
        ----------
        X
            Features; only their number matters.
        y
            The class of each clip. Classes are sorted, so the last is positive.
        groups
            Ignored, with a warning.
        """
        codes = self._codes_without_groups(X, y, groups)
        for fold in self.make_folds(codes, {"test": codes}):
            yield fold.train, fold.tests["test"]

    def _codes_without_groups(self, X: Any, y: Any, groups: Any) -> Array:
        if groups is not None:
            warnings.warn(
                f"{type(self).__name__} ignores groups; LeaveFilmOut uses them", stacklevel=3
            )
        return self._check(X, y)[0]

    def _check(self, X: Any, y: Any, groups: Any = None) -> tuple[Array, Any]:
        """Return each clip's class from 0 and the groups; raise like scikit-learn's splitters."""
        if y is None:
            raise ValueError(f"{type(self).__name__} needs y, the class of each clip")
        _, y, groups = indexable(X, y, groups)
        check_classification_targets(y)
        return np.unique(column_or_1d(y), return_inverse=True)[1], groups


@dataclass(eq=False, repr=False)
class ByFolds(Splitter):
    """The base of splitters that use a fold column."""

    from_clips = Splitter.from_clips | {"folds", "last"}
    folds: Sequence[int] | Array | None = None
    _: KW_ONLY
    last: int | None = None
    random_state: RandomState = 0

    @classmethod
    def of_clips(cls, data: Any, division: Any, **options: Any) -> Splitter:
        """Return the splitter for an experiment's clips, with the manifest's division."""
        return cls(data.folds, last=division.last, **options)

    def _column(self, y: Array) -> Array:
        """Return the fold of each clip."""
        if self.folds is None:
            return draw_folds(y, self.random_state)
        folds = np.asarray(self.folds)
        if len(folds) != len(y):
            raise ExperimentError(
                f"{type(self).__name__}: folds has {len(folds)} entries for {len(y)} "
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
                'three (split = "" in an experiment draws new ones)'
            )
        return last


@dataclass(frozen=True)
class Leak:
    """Clips of a fold's test set that the same fold trains on, or that stop its training.

    `otherwise` are clips that a model of the fold saw in another way, for example to learn its
    concepts.
    """

    fold: int
    test: str
    clips: int
    train: list[str]
    validation: list[str]
    otherwise: list[str]

    @property
    def ids(self) -> list[str]:
        """The ids of all leaked clips."""
        return sorted({*self.train, *self.validation, *self.otherwise})


def find_leaks(
    folds: Iterable[Fold],
    ids: Sequence[str],
    *,
    seen: Mapping[int, Array] | None = None,
    meet: Callable[[list[str], list[str]], list[str]] | None = None,
) -> list[Leak]:
    """Return the leaks of each fold and test set that has any.

    Parameters
    ----------
    seen
        The rows that the models of a fold saw in any way, by the fold's index.
    meet
        Which of the first ids are among the second, or show the same seconds of a film; by
        default those of equal ids.
    """
    meet = meet or (lambda left, right: sorted({*left} & {*right}))

    def names(rows: Array) -> list[str]:
        return [ids[row] for row in rows.tolist()]

    leaks = []
    for fold in folds:
        used = [fold.train, fold.validation]
        others = np.setdiff1d((seen or {}).get(fold.index, fold.train), np.concatenate(used))
        for test, rows in fold.tests.items():
            met = [meet(names(rows), names(part)) for part in (*used, others)]
            leaks.append(Leak(fold.index, test, len(rows), *met))
    return [leak for leak in leaks if leak.ids]


def draw_folds(y: Array, random_state: RandomState) -> Array:
    """Return a stratified fold of ten for each clip; -1 for unlabelled clips."""
    folds = np.full(len(y), -1)
    rows = np.flatnonzero(y >= 0)
    dealer = StratifiedKFold(N_FOLDS, shuffle=True, random_state=random_state)
    for number, (_, dealt) in enumerate(dealer.split(rows, y[rows])):
        folds[rows[dealt]] = number
    return folds


def check_balance(balance: str | None) -> None:
    """Raise if this balance does not exist."""
    if balance not in (None, *BALANCES):
        raise ExperimentError(unknown_name("balance", str(balance), BALANCES))


def balanced(rows: Array, y: Array, seed: int, balance: str | None = "undersample") -> Array:
    """Return as many rows of each class of `y` as the smallest class has."""
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
    """Return the rows of the chosen clips that take part."""
    return np.flatnonzero(chosen & (y >= 0))
