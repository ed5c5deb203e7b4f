"""Protocols as scikit-learn splitters: which clips train, validate and test. Arrays in, rows out.

==================  ==================  ====================================================
in an experiment    splitter
==================  ==================  ====================================================
``leak-free``       `LeakFree`          the last fold tests, each other one validates in turn
``released``        `Released`          what the authors' code does with their split files
``paper``           `PaperSplit`        the text of the paper's version 1: eight folds train
``leave-film-out``  `LeaveFilmOut`      each film tests in turn (Table 4)
``split``           `ManifestSplit`     each fold tests in turn: every clip is tested once
``official``        `OfficialSplit`     a benchmark's own training, validation and test sets
==================  ==================  ====================================================

A splitter has two methods. `make_folds` gives what an experiment uses: training, validation and
any number of test sets. `split` gives what scikit-learn can use, ``(train, test)``: its
cross-validation knows no validation set and one test set. So `LeaveFilmOut` and `ManifestSplit`
put the validation clips back into training there; the others leave them out. Only `LeaveFilmOut`
goes by `groups`, the films; the others warn that they ignore them, as scikit-learn's `KFold` does.

The released files draw a fold column for each pairing of levels, so that clips that one pairing
trains on are tested in another; `obygaze_models.data.leaks` counts them.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold
from sklearn.utils import check_random_state, column_or_1d, indexable
from sklearn.utils.multiclass import check_classification_targets

from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, Run, RunSet

FILM_CLIPS = 10
"""A film tests and validates if it has at least this many clips of each class; ten in the paper."""
VALIDATION_SHARE = 10
"""Where a benchmark has no validation set, one in this many development clips validates."""
N_FOLDS = 10
BALANCES = ("undersample", "weights", "none")
"""``undersample``: draw as many training clips of each class as the smallest has. ``weights``:
train on all; estimators weigh each class by the inverse of its size. ``none``: on all, as they are.
"""
Balance = Literal["undersample", "weights", "none"]
RandomState = int | np.random.RandomState | None
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows of one fit.

    `tests` has the rows of each test set by its name; `group` is what some folds share and others
    do not, such as the film that is left out. `drawn_from` counts the clips that `train` was drawn
    from; 0 where the protocol draws none.
    """

    index: int
    name: str
    seed: int
    train: Array
    validation: Array
    tests: Mapping[str, Array]
    group: str = ""
    drawn_from: int = 0

    @property
    def test_rows(self) -> Array:
        """The rows of all test sets; a clip of several is asked about once."""
        return np.unique(np.concatenate(list(self.tests.values())))


S = TypeVar("S", bound="Splitter")
PROTOCOLS: dict[str, type[Splitter]] = {}
"""The splitter of each protocol, in the order of the report: those without leaks first."""


def protocol(
    name: str, title: str, short: str, *, balance: str = "", in_turn: bool = False
) -> Callable[[type[S]], type[S]]:
    """Let experiments use a splitter.

    Parameters
    ----------
    name
        As experiments name it.
    title, short
        What it does, in a line and in a few words.
    balance
        How it balances training clips by default; empty where it cannot.
    in_turn
        Whether its fits test different clips.
    """

    def register(splitter: type[S]) -> type[S]:
        splitter.title, splitter.short = title, short
        splitter.default_balance, splitter.in_turn = balance, in_turn
        PROTOCOLS[name] = splitter
        return splitter

    return register


class Splitter(BaseCrossValidator):  # type: ignore[misc]
    """What all splitters share; `protocol` gives the attributes."""

    title: ClassVar[str]
    short: ClassVar[str]
    default_balance: ClassVar[str]
    in_turn: ClassVar[bool]

    @classmethod
    def of_clips(cls, data: Any, division: Any, **options: Any) -> Splitter:
        """The splitter of an experiment's clips, as its manifest divides them."""
        return cls(**options)

    @abstractmethod
    def make_folds(
        self, y: Array, tests: Mapping[str, Array], *, groups: Sequence[str] | Array | None = None
    ) -> list[Fold]:
        """The folds of an experiment.

        Parameters
        ----------
        y
            The class of each clip in training, from 0; -1 takes no part.
        tests
            The same in each test set, by its name.
        groups
            The film of each clip.
        """

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Training and test rows, for scikit-learn.

        Parameters
        ----------
        X
            Features; only their number counts.
        y
            The class of each clip; classes are ordered as sorted, so the last is the positive one.
        groups
            Ignored, with a warning.
        """
        codes = self._codes_without_groups(X, y, groups)
        for fold in self.make_folds(codes, {"test": codes}):
            yield fold.train, fold.tests["test"]

    def _codes_without_groups(self, X: Any, y: Any, groups: Any) -> Array:
        if groups is not None:
            warnings.warn(
                f"{type(self).__name__} ignores groups; LeaveFilmOut goes by them", stacklevel=3
            )
        return self._check(X, y)[0]

    def _check(self, X: Any, y: Any, groups: Any = None) -> tuple[Array, Any]:
        """The class of each clip from 0, and the groups; errors as scikit-learn's splitters."""
        if y is None:
            raise ValueError(f"{type(self).__name__} needs y, the class of each clip")
        _, y, groups = indexable(X, y, groups)
        check_classification_targets(y)
        return np.unique(column_or_1d(y), return_inverse=True)[1], groups


class _ByFolds(Splitter):
    """Those that go by a fold column."""

    @classmethod
    def of_clips(cls, data: Any, division: Any, **options: Any) -> Splitter:
        """The splitter of an experiment's clips, as its manifest divides them."""
        return cls(data.folds, last=division.last, **options)

    def __init__(
        self,
        folds: Sequence[int] | Array | None = None,
        *,
        last: int | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.folds = folds
        self.last = last
        self.random_state = random_state

    def _column(self, y: Array) -> Array:
        """The fold of each clip."""
        if self.folds is None:
            folds = np.full(len(y), -1)
            taking = np.flatnonzero(y >= 0)
            dealer = StratifiedKFold(N_FOLDS, shuffle=True, random_state=self.random_state)
            for number, (_, rows) in enumerate(dealer.split(taking, y[taking])):
                folds[taking[rows]] = number
            return folds
        folds = np.asarray(self.folds)
        if len(folds) != len(y):
            raise ExperimentError(
                f"{type(self).__name__}: folds has {len(folds)} entries, and there are {len(y)} "
                "clips; give the fold of each, such as data.folds"
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
                f"the split has {counted(last + 1, 'fold')}; to train, validate and test takes "
                "three"
            )
        return last


class _Balanced(Splitter):
    """Those that can draw their training clips."""

    balance: Balance

    def _draw(
        self,
        index: int,
        name: str,
        seed: int,
        y: Array,
        pool: Array,
        validation: Array,
        tests: dict[str, Array],
        group: str = "",
    ) -> Fold:
        """A fold whose training rows are drawn from `pool`, or are all of it."""
        train = balanced(pool, y, seed, self.balance)
        return Fold(index, name, seed, train, validation, tests, group, len(pool))


class _BalancedByFolds(_Balanced, _ByFolds):
    """Those of them that go by a fold column."""

    def __init__(
        self,
        folds: Sequence[int] | Array | None = None,
        *,
        last: int | None = None,
        balance: Balance = "undersample",
        random_state: RandomState = 0,
    ) -> None:
        super().__init__(folds, last=last, random_state=random_state)
        self.balance = balance


@protocol(
    "leak-free",
    "Leak-free: one fold column for all clips; the last fold tests",
    "one test fold",
    balance="undersample",
)
class LeakFree(_BalancedByFolds):
    """One fold column for all clips: the last fold tests, each other one validates in turn.

    The training rows are balanced: of each class as many are drawn as the smallest has, anew in
    each fold. The validation fold is left as it is, as the paper does.

    Parameters
    ----------
    folds
        The fold of each clip; -1 has none. By default ten stratified ones.
    last
        The fold that tests; by default the highest.
    balance
        ``undersample``, or ``none``; ``weights`` draws nothing either, and leaves it to the
        estimators to weigh the classes.
    random_state
        Fixes the draws; each fold gets a seed of its own from it. A number, None, or a RandomState.
    """

    def make_folds(self, y: Array, tests: Mapping[str, Array], *, groups: Any = None) -> list[Fold]:
        """The folds of an experiment: the training, validation and test rows of each fit."""
        folds, last = self._column(y), self._last_of_three()
        return [
            self._draw(
                fold,
                f"validation fold {fold}",
                seed,
                y,
                _rows((folds >= 0) & (folds != fold) & (folds != last), y),
                _rows(folds == fold, y),
                _tests(folds == last, tests),
            )
            for fold, seed in enumerate(_seeds(self.random_state, last))
        ]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of splits, which the folds alone decide."""
        return self._last_of_three()


@protocol(
    "leave-film-out",
    "Leave film out: each film in turn is tested by models that never saw it",
    "films left out",
    balance="none",
    in_turn=True,
)
class LeaveFilmOut(_Balanced):
    """Each eligible film tests in turn, and each other eligible one validates in turn.

    A film is eligible if it has at least `min_clips` clips of each class; the others train in
    every fold. Training rows are taken as they are, not balanced, as the authors did.

    Parameters
    ----------
    min_clips
        Of each class, for a film to test.
    balance
        As in `LeakFree`.
    random_state
        Fixes the seed of each fold.

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

    # Under metadata routing the groups always reach `split`, as with scikit-learn's own.
    __metadata_request__split = {"groups": True}  # noqa: RUF012

    def __init__(
        self,
        *,
        min_clips: int = FILM_CLIPS,
        balance: Balance = "none",
        random_state: RandomState = 0,
    ) -> None:
        self.min_clips = min_clips
        self.balance = balance
        self.random_state = random_state

    def eligible(self, y: Array, groups: Sequence[str] | Array) -> list[str]:
        """The films that test."""
        films, classes = np.asarray(groups), np.unique(y[y >= 0])
        names: list[str] = np.unique(films).tolist()
        return [
            film
            for film in names
            if all(((films == film) & (y == code)).sum() >= self.min_clips for code in classes)
        ]

    def make_folds(self, y: Array, tests: Mapping[str, Array], *, groups: Any = None) -> list[Fold]:
        """The folds of an experiment: the training, validation and test rows of each fit."""
        films, eligible = self._films(y, groups)
        pairs = [(test, stop) for test in eligible for stop in eligible if stop != test]
        return [
            self._draw(
                index,
                f"without {test}, stopped by {stop}",
                seed,
                y,
                _rows((films != test) & (films != stop), y),
                _rows(films == stop, y),
                _tests(films == test, tests),
                group=test,
            )
            for index, ((test, stop), seed) in enumerate(
                zip(pairs, _seeds(self.random_state, len(pairs)), strict=True)
            )
        ]

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Training and test rows; each eligible film tests once, all others train."""
        codes, groups = self._check(X, y, groups)
        films, eligible = self._films(codes, groups)
        for film, seed in zip(eligible, _seeds(self.random_state, len(eligible)), strict=True):
            train = balanced(_rows(films != film, codes), codes, seed, self.balance)
            yield train, _rows(films == film, codes)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of eligible films, which takes `y` and `groups`."""
        return len(self._films(*self._check(X, y, groups))[1])

    def _films(self, y: Array, groups: Any) -> tuple[Array, list[str]]:
        if groups is None:
            raise ValueError("LeaveFilmOut needs groups, the film of each clip: data.groups")
        films = np.asarray(groups)
        eligible = self.eligible(y, films)
        if len(eligible) < 2:
            raise ExperimentError(
                f"leave-film-out needs at least two films with {self.min_clips} clips of each "
                f"class, and {len(eligible)} of {len(set(films.tolist()))} have them; pass a "
                "smaller min_clips, or in an experiment use a split by film (obygaze manifests "
                "split MANIFEST --by-film)"
            )
        return films, eligible


@protocol(
    "split",
    "Split: each fold tests in turn, so that every clip is tested once",
    "each fold in turn",
    balance="undersample",
    in_turn=True,
)
class ManifestSplit(_BalancedByFolds):
    """Each fold tests in turn; training rows are balanced as in `LeakFree`.

    The next fold that has clips of every class validates; after the last comes the first.

    Parameters
    ----------
    folds, last, balance, random_state
        As in `LeakFree`.
    """

    def make_folds(self, y: Array, tests: Mapping[str, Array], *, groups: Any = None) -> list[Fold]:
        """The folds of an experiment: the training, validation and test rows of each fit."""
        folds, last = self._column(y), self._last_of_three()
        every_class = set(y[(folds >= 0) & (y >= 0)])
        complete = {fold for fold in range(last + 1) if set(y[folds == fold]) >= every_class}
        fold_list = []
        for fold, seed in enumerate(_seeds(self.random_state, last + 1)):
            others = [(fold + step) % (last + 1) for step in range(1, last + 1)]
            after = next((number for number in others if number in complete), others[0])
            train = _rows((folds >= 0) & (folds != fold) & (folds != after), y)
            fold_list.append(
                self._draw(
                    fold,
                    f"test fold {fold}",
                    seed,
                    y,
                    train,
                    _rows(folds == after, y),
                    _tests(folds == fold, tests),
                )
            )
        return fold_list

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Training and test rows; all folds but the test fold train."""
        codes = self._codes_without_groups(X, y, groups)
        folds, present = self._column(codes), self._present()
        for fold, seed in enumerate(_seeds(self.random_state, self._last() + 1)):
            if fold in present:
                train = _rows((folds >= 0) & (folds != fold), codes)
                yield balanced(train, codes, seed, self.balance), _rows(folds == fold, codes)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds that have clips."""
        return len(self._present())

    def _present(self) -> set[int]:
        present = set(range(self._last() + 1))
        if self.folds is not None:
            present &= {*np.asarray(self.folds).tolist()}
        if len(present) < 2:
            raise ExperimentError(
                f"the split has {counted(len(present), 'fold')}; to train and test takes two"
            )
        return present


@protocol(
    "official",
    "Official sets: trained, stopped and tested on a benchmark’s own",
    "official sets",
)
class OfficialSplit(_ByFolds):
    """One fit by the sets that a benchmark gives out; training rows are taken as they are.

    The last fold tests, the last but one validates, the others train. Of two folds the first
    trains but for one in `VALIDATION_SHARE` of each class, drawn by the seed, which validate.

    Parameters
    ----------
    folds, last, random_state
        As in `LeakFree`.
    """

    def make_folds(self, y: Array, tests: Mapping[str, Array], *, groups: Any = None) -> list[Fold]:
        """The folds of an experiment: the training, validation and test rows of each fit."""
        folds, last = self._column(y), self._last()
        if last < 1:
            raise ExperimentError(
                "the split has 1 fold; official sets are two or more, the last tests"
            )
        [seed] = _seeds(self.random_state, 1)
        train = _rows((folds >= 0) & (folds < max(1, last - 1)), y)
        if last > 1:
            validation = _rows(folds == last - 1, y)
        else:
            chance = np.random.default_rng(seed)
            classes = [train[y[train] == code] for code in np.unique(y[train])]
            drawn = [
                chance.choice(rows, -(-len(rows) // VALIDATION_SHARE), replace=False)
                for rows in classes
            ]
            validation = np.sort(np.concatenate([*drawn, train[:0]]))
            train = np.setdiff1d(train, validation)
        return [Fold(0, "official sets", seed, train, validation, _tests(folds == last, tests))]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of splits, which is one."""
        return 1


@protocol(
    "paper",
    "As the paper’s text has it: eight training folds, negatives drawn by folds",
    "the paper’s text",
)
class PaperSplit(_ByFolds):
    """The last fold tests, the last but one validates, the others train: as many fits as those.

    All positives train. Of the negatives whole folds are taken, as many as come nearest to the
    number of positives: fit r takes those from fold r on, and after the last training fold the
    first. Where there are no more negatives than positives, all fits train on the same.

    Parameters
    ----------
    folds, last, random_state
        As in `LeakFree`.
    """

    def make_folds(self, y: Array, tests: Mapping[str, Array], *, groups: Any = None) -> list[Fold]:
        """The folds of an experiment: the training, validation and test rows of each fit."""
        folds, last = self._column(y), self._last_of_three()
        pool = last - 1
        training = _rows((folds >= 0) & (folds < pool), y)
        positives, negatives = training[y[training] == 1], training[y[training] == 0]
        balanced_count = round(pool * len(positives) / max(1, len(negatives)))
        n_chosen = min(pool, max(1, balanced_count))
        fold_list = []
        for index, seed in enumerate(_seeds(self.random_state, pool)):
            chosen = [(index + step) % pool for step in range(n_chosen)]
            fold_list.append(
                Fold(
                    index,
                    f"negatives of folds {', '.join(map(str, chosen))}",
                    seed,
                    np.union1d(positives, negatives[np.isin(folds[negatives], chosen)]),
                    _rows(folds == pool, y),
                    _tests(folds == last, tests),
                )
            )
        return fold_list

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of splits, which the folds alone decide."""
        return self._last_of_three() - 1


@protocol(
    "released",
    "As the authors’ code has it: their split files, which leak into one another",
    "the released code",
)
class Released(Splitter):
    """The authors' lists of clips, as their code uses them; nothing is drawn.

    Parameters
    ----------
    ids
        The id of each clip, such as ``data.ids``.
    runs
        The lists that each fit trains on and is stopped by.
    tested
        The ids of each test set, by its name; for `split` just one.
    random_state
        Fixes the seed of each fold.
    """

    @classmethod
    def of_clips(cls, data: Any, division: Any, **options: Any) -> Splitter:
        """The splitter of an experiment's clips, as its manifest divides them."""
        return cls(data.ids, division.runs, division.tested, **options)

    def __init__(
        self,
        ids: Sequence[str],
        runs: RunSet,
        tested: Mapping[str, frozenset[str]],
        *,
        random_state: RandomState = 0,
    ) -> None:
        self.ids = ids
        self.runs = runs
        self.tested = tested
        self.random_state = random_state

    @classmethod
    def from_manifest(cls, manifest: Manifest, ids: Sequence[str], split: str) -> Released:
        """The runs that a manifest of ObyGaze12 holds under the name of a released split."""
        runs = find_released_runs(manifest, split)
        return cls(ids, runs, {"test": released_test_ids(manifest, split)})

    def make_folds(self, y: Array, tests: Mapping[str, Array], *, groups: Any = None) -> list[Fold]:
        """The folds of an experiment: the training, validation and test rows of each fit."""
        if len(self.ids) != len(y):
            raise ExperimentError(
                f"Released: ids has {len(self.ids)} entries, and there are {len(y)} clips; give "
                "the id of each, such as data.ids"
            )
        row_of = {clip: row for row, clip in enumerate(self.ids)}

        def rows(clips: Sequence[str] | frozenset[str], codes: Array) -> Array:
            chosen = np.array(sorted(row_of[clip] for clip in clips if clip in row_of), np.intp)
            return chosen[codes[chosen] >= 0]

        return [
            Fold(
                index,
                f"{self.runs.name} run {run.name}",
                seed,
                rows(run.train, y),
                rows(run.validation, y),
                {name: rows(self.tested[name], codes) for name, codes in tests.items()},
            )
            for index, (run, seed) in enumerate(
                zip(
                    self.runs.runs,
                    _seeds(self.random_state, len(self.runs.runs)),
                    strict=True,
                )
            )
        ]

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Training and test rows, where there is one test set."""
        codes = self._codes_without_groups(X, y, groups)
        if len(self.tested) != 1:
            raise ExperimentError(
                f"Released: split takes one test set (got {', '.join(self.tested) or 'none'}); "
                "give tested just one, or call make_folds"
            )
        [test] = self.tested
        for fold in self.make_folds(codes, {test: codes}):
            yield fold.train, fold.tests[test]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of runs."""
        return len(self.runs.runs)


def find_released_runs(manifest: Manifest, name: str, *, first: int = 0) -> RunSet:
    """The authors' runs of a split; where they gave none, each fold validates from `first` on.

    Clips without a media file are left out there, as their code does.
    """
    if name in manifest.run_names:
        return manifest.runs(name)
    split = manifest.split(name)
    with_media = {item.id for item in manifest if item.media}
    usable = split.where(with_media.__contains__)
    last = split.last_fold

    def run(fold: int) -> Run:
        train = [clip for clip, own in usable.fold_of.items() if own not in (fold, last)]
        return Run(str(fold), train, usable.fold(fold))

    return RunSet(name, [run(fold) for fold in range(first, last)])


def released_test_ids(manifest: Manifest, name: str) -> frozenset[str]:
    """The clips of a released split's last fold that have a media file."""
    split = manifest.split(name)
    with_media = {item.id for item in manifest if item.media}
    return frozenset(with_media.intersection(split.fold(split.last_fold)))


def balanced(rows: Array, y: Array, seed: int, balance: str = "undersample") -> Array:
    """As many rows of each class as the smallest has; the classes are those of all of `y`."""
    if balance not in BALANCES:
        raise ExperimentError(unknown_name("balance", str(balance), BALANCES))
    if balance != "undersample":
        return rows
    chance = np.random.default_rng(seed)
    classes = [rows[y[rows] == code] for code in np.unique(y[y >= 0])]
    size = min(map(len, classes), default=0)
    drawn = [chance.choice(rows, size, replace=False) for rows in classes]
    return np.sort(np.concatenate(drawn)) if drawn else rows


def _seeds(random_state: RandomState, count: int) -> list[int]:
    seed: Any = random_state
    if not isinstance(random_state, Integral):
        seed = check_random_state(random_state).randint(2**31)
    seeds: list[int] = np.random.SeedSequence(seed).generate_state(count).tolist()
    return seeds


def _rows(chosen: Array, y: Array) -> Array:
    return np.flatnonzero(chosen & (y >= 0))


def _tests(chosen: Array, tests: Mapping[str, Array]) -> dict[str, Array]:
    return {name: _rows(chosen, codes) for name, codes in tests.items()}
