"""Splitters, which divide clips into training, validation and test sets.

They are the protocols of experiments (`PROTOCOLS`), and splitters of scikit-learn. A subclass
yields the parts of each fold; `Splitter.folds` turns these into the rows of each fit.

The released files have a fold column for each set of levels, so training clips of one set of levels
can be test clips of another. Runs warn of these leaks.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from itertools import permutations
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from sklearn.model_selection import BaseCrossValidator, check_cv
from sklearn.utils import check_random_state, column_or_1d, indexable
from sklearn.utils._param_validation import (
    Interval,
    StrOptions,
    validate_parameter_constraints,
)

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import counted
from obygaze_features.errors import ExperimentError
from obygaze_models.data.folds import (
    BALANCE,
    BALANCES,
    NO_ROWS,
    Balance,
    Fold,
    balanced,
    draw_seeds,
)

FILM_CLIPS = 10
"""The minimum number of clips of each class in a test or validation film.

In ObyGaze12, it leaves out the two films that the released code leaves out by number.
"""
VALIDATION_SHARE = 10
"""One in this many development clips is used for validation if there is no validation set."""
OPTIONS = {
    "balance": [StrOptions({*BALANCES})],
    "min_clips": [Interval(Integral, 1, None, closed="left")],
    "validation_films": [Interval(Integral, 0, None, closed="left"), None],
    "gap": [Interval(Real, 0, None, closed="left")],
}
"""The options of splitters, as in scikit-learn."""
Near = Callable[[Array], Array] | None
"""A function that takes the rows of test clips and returns a mask of clips too close to them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Clips:
    """What a splitter knows about clips.

    `y` is the class of each clip (-1 for clips that are left out), and `folds` its fold (-1 for no
    fold), up to `last`. `validate` is False if the estimator needs no validation clips.
    """

    y: Array
    groups: Array | Sequence[str] = ()
    ids: Sequence[str] = ()
    folds: Array = field(default_factory=NO_ROWS.copy)
    last: int = -1
    near: Near = None
    validate: bool = True


class Parts(NamedTuple):
    """A fold before training clips are drawn.

    `train`, `validation` and `test` are masks of clips. `test` can have a mask for each test set.
    """

    name: str
    train: Array
    validation: Array
    test: Array | Mapping[str, Array]


@dataclass(eq=False, repr=False, kw_only=True)
class Splitter(BaseCrossValidator):  # type: ignore[misc]
    """A base class of splitters. Parameters are the options of a protocol.

    ``divides`` says what the splitter divides: the
    ``"folds"`` of a column, the ``"groups"`` (films, unless another column is named), or
    ``"clips"``. If ``own_sets`` is True, the folds are a benchmark's own: new folds are never
    drawn, and models are never trained on the test set. If ``validates`` is False, no clips are
    kept for validation.
    """

    # With metadata routing, `split` always gets the groups, as in scikit-learn.
    __metadata_request__split = {"groups": True}  # noqa: RUF012
    divides: ClassVar[str] = "folds"
    own_sets: ClassVar[bool] = False
    validates: ClassVar[bool] = True
    two_classes: ClassVar[bool] = False

    random_state: int | np.random.RandomState | None = 0

    def __post_init__(self) -> None:
        validate_parameter_constraints(OPTIONS, vars(self), type(self).__name__)
        state = self.random_state
        if not isinstance(state, Integral):  # all models get the same folds
            self.random_state = check_random_state(state).randint(2**31)

    @abstractmethod
    def parts(self, clips: Clips) -> Iterator[Parts]:
        """Yield the parts of each fold."""

    def folds(self, clips: Clips, tests: Mapping[str, Array]) -> Iterator[Fold]:
        """Yield the rows of each fit; `tests` has the class of each clip in each test set."""
        balance = getattr(self, "balance", "")
        for index, parts in enumerate(self.parts(clips)):
            seed = draw_seeds(self.random_state, index + 1)[index]
            sets = {}
            for test, codes in tests.items():
                mask = parts.test[test] if isinstance(parts.test, Mapping) else parts.test
                sets[test] = np.flatnonzero(mask & (codes >= 0))
            too_near = np.zeros(len(clips.y), dtype=bool)
            if clips.near:
                too_near = clips.near(np.unique(np.concatenate([*sets.values()])))

            usable = (clips.y >= 0) & ~too_near
            pool = np.flatnonzero(parts.train & usable)
            yield Fold(
                index,
                parts.name,
                seed,
                train=balanced(pool, clips.y, seed, balance),
                validation=np.flatnonzero(parts.validation & usable),
                tests=sets,
                drawn_from=len(pool) if balance else 0,
                near=np.flatnonzero(too_near),
            )

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Yield training and test rows, for scikit-learn.

        `groups` has the film of each clip or, if the splitter divides folds, its fold.
        """
        if y is None or groups is None:
            noun = "fold (groups=data.folds)" if self.divides == "folds" else "film (data.groups)"
            raise ValueError(f"{type(self).__name__} needs y and groups: pass each clip's {noun}")
        if getattr(self, "gap", 0):
            raise ExperimentError("gap needs the times of clips. Leave gap out in scikit-learn")
        _, y, groups = indexable(X, y, groups)
        y = column_or_1d(y)
        codes = np.zeros(len(y), dtype=np.int64)  # numbers do not balance folds
        if y.dtype.kind != "f":
            codes = np.unique(y, return_inverse=True)[1]
        folds = NO_ROWS
        if self.divides == "folds":
            folds = np.unique(groups, return_inverse=True)[1]
        last = int(folds.max(initial=-1))
        clips = Clips(y=codes, groups=groups, folds=folds, last=last, validate=False)
        for fold in self.folds(clips, {"test": codes}):
            yield fold.train, fold.tests["test"]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds, which can depend on `y` and `groups`."""
        return sum(1 for _ in self.split(X, y, groups))


@dataclass(eq=False, repr=False, kw_only=True)
class DrawnSplitter(Splitter):
    """A base class of splitters that draw training clips.

    Parameters
    ----------
    balance
        ``undersample`` reduces each class in training to the size of the smallest class. With
        ``none`` or ``weights``, no rows are left out.
    gap
        Clips of a tested clip's file that are at most this many seconds from it are left out of
        training and validation.
    """

    balance: Balance = BALANCE
    gap: float = 0.0


class LeakFree(DrawnSplitter):
    """Test the last fold, and use each of the other folds once for validation."""

    def parts(self, clips: Clips) -> Iterator[Parts]:
        """Yield the parts of each fold."""
        folds = clips.folds
        last = clips.last
        for fold in range(last):
            train = (folds >= 0) & (folds != fold) & (folds != last)
            yield Parts(f"validation fold {fold}", train, folds == fold, folds == last)


@dataclass(eq=False, repr=False, kw_only=True)
class LeaveFilmOut(DrawnSplitter):
    """Test each eligible film, with other eligible films for validation.

    A film is eligible if it has at least `min_clips` clips of each class. Films that are not
    eligible are used for training in every fold. Clips without a film raise an error. Other groups,
    such as files or directors, work like films. With ``min_clips=1`` and ``balance="none"``, the
    splits in scikit-learn are those of its `LeaveOneGroupOut`, except that groups without clips of
    some class are not tested.

    Parameters
    ----------
    min_clips
        The number of clips of each class that a film needs to be tested.
    validation_films
        The number of validation films to draw for each tested film, each for a fit of its own. With
        None, or a larger number than there are, each other eligible film validates once: N eligible
        films give N * (N - 1) fits. For models that need no validation clips, only the tested film
        is left out, which gives N fits. 0 suits only such models.
    balance, gap
        See `DrawnSplitter`.
    random_state
        The seed of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.model_selection import cross_val_score
    >>> y, films = np.tile([0, 1], 30), np.repeat(["a", "b", "c"], 20)
    >>> X = np.zeros((60, 2))
    >>> cross_val_score(DummyClassifier(), X, y, groups=films, cv=LeaveFilmOut())
    array([0.5, 0.5, 0.5])
    """

    divides = "groups"
    min_clips: int = FILM_CLIPS
    validation_films: int | None = 1

    def parts(self, clips: Clips) -> Iterator[Parts]:
        """Yield the parts of each fold."""
        names, codes = np.unique(np.asarray(clips.groups, dtype=str), return_inverse=True)
        labelled = clips.y >= 0
        if unnamed := int(labelled[names[codes] == ""].sum()):
            raise ExperimentError(
                f"leave-film-out: no film or other group for {unnamed:,} of "
                f"{counted(int(labelled.sum()), 'clip')}. Give each clip a film, choose other "
                "groups, or use another protocol"
            )
        sizes = pd.crosstab(codes[labelled], clips.y[labelled])
        eligible = sizes.index[(sizes >= self.min_clips).all(axis=1)].tolist()
        if len(eligible) < 2:
            raise ExperimentError(
                f"leave-film-out needs two films or other groups with {self.min_clips} or more "
                f"clips of each class (got {len(eligible)} of {len(names)}). Lower "
                "min_clips, or choose another protocol or splitter"
            )
        pairs = []
        wanted = self.validation_films
        if wanted == 0 or not clips.validate:
            pairs = [(film, -1) for film in eligible]
        elif wanted is None or wanted >= len(eligible) - 1:
            pairs = list(permutations(eligible, 2))
        else:
            chance = np.random.default_rng(draw_seeds(self.random_state, 1))
            for film in eligible:
                others = np.setdiff1d(eligible, film)
                drawn = np.sort(chance.choice(len(others), wanted, replace=False))
                pairs += [(film, other) for other in others[drawn].tolist()]

        for test, stop in pairs:
            name = f"test {names[test]}"
            if stop >= 0:
                name += f", validation {names[stop]}"
            tested = codes == test
            stopping = codes == stop
            yield Parts(name, ~(tested | stopping), stopping, tested)


class EveryFold(DrawnSplitter):
    """Test each fold once.

    The validation set is the next fold that has clips of every class far enough from the test
    clips, or else the next fold. The first fold follows the last.
    """

    def parts(self, clips: Clips) -> Iterator[Parts]:
        """Yield the parts of each fold."""
        y = clips.y
        folds = clips.folds
        count = clips.last + 1
        every_class = set(y[(folds >= 0) & (y >= 0)])
        for fold in range(count):
            far = y
            if clips.near:
                tested = np.flatnonzero(folds == fold)
                far = np.where(clips.near(tested), -1, y)
            after = (fold + 1) % count
            for step in range(1, count):
                number = (fold + step) % count
                if set(far[folds == number]) >= every_class:
                    after = number
                    break
            train = (folds >= 0) & (folds != fold) & (folds != after)
            yield Parts(f"test fold {fold}", train, folds == after, folds == fold)


class OfficialSets(Splitter):
    """Fit once, on a benchmark's own sets. Training clips are not balanced.

    The last fold is the test set, the second to last is the validation set, and the others are for
    training. With only two folds, one in `VALIDATION_SHARE` training clips of each class is drawn
    for validation.
    """

    own_sets = True

    def parts(self, clips: Clips) -> Iterator[Parts]:
        """Yield the parts of each fold."""
        y = clips.y
        folds = clips.folds
        last = clips.last
        train = (folds >= 0) & (folds < max(1, last - 1))
        validation = folds == last - 1
        if last == 1:
            chance = np.random.default_rng(draw_seeds(self.random_state, 1)[0])
            validation = np.zeros(len(y), dtype=bool)
            for code in np.unique(y[train & (y >= 0)]):
                rows = np.flatnonzero(train & (y == code))
                share = -(-len(rows) // VALIDATION_SHARE)
                validation[chance.choice(rows, share, replace=False)] = True
            train = train & ~validation
        yield Parts("official sets", train, validation, folds == last)


@dataclass(eq=False, repr=False, kw_only=True)
class AnySplitter(Splitter):
    """Any splitter of scikit-learn, or a number of folds. There are no validation clips."""

    divides = "clips"
    validates = False
    cv: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.cv, Integral):
            return
        self.cv = deepcopy(check_cv(self.cv))  # folds are read more than once
        state = getattr(self.cv, "random_state", None)
        if isinstance(state, np.random.RandomState):
            self.cv.random_state = state.randint(2**31)

    def __repr__(self) -> str:
        return " ".join(repr(self.cv).split())

    def parts(self, clips: Clips) -> Iterator[Parts]:
        """Yield the parts of each fold."""
        rows = np.flatnonzero(clips.y >= 0)
        y = clips.y[rows]
        groups = np.asarray(clips.groups)[rows]
        every = np.arange(len(clips.y))
        splitter = copy(check_cv(self.cv, y, classifier=True))
        if getattr(splitter, "random_state", 0) is None:
            splitter.random_state = self.random_state
        with warnings.catch_warnings(action="ignore"):  # some ignore groups, and say so
            splits = [*splitter.split(y, y, groups)]
        for number, sets in enumerate(splits):
            train, test = (np.isin(every, rows[chosen]) for chosen in sets)
            yield Parts(f"split {number}", train, every < 0, test)


PROTOCOLS: dict[str, type[Splitter]] = {
    "leak-free": LeakFree,
    "leave-film-out": LeaveFilmOut,
    "split": EveryFold,
    "official": OfficialSets,
}
"""The splitters that experiments can name. Protocols without leaks come first."""
