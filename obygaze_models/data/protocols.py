"""Protocols, which divide clips into training, validation and test.

Each protocol is a class whose `make_folds` returns the folds of an experiment, with training and
validation clips and any number of test sets. `LeaveFilmOut` is also a splitter for scikit-learn.
There, ``PredefinedSplit(data.folds)`` tests each fold of a column.

The released files have a fold column for each set of levels, so training clips of one set of levels
can be test clips of another. `obygaze_models.data.folds` counts these leaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import permutations
from typing import Any, TypeVar

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import column_or_1d, indexable
from sklearn.utils.multiclass import check_classification_targets

from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, Run, RunSet
from obygaze_models.data.folds import (
    BALANCE,
    Balance,
    ByFolds,
    FoldParts,
    MadeWhenNeeded,
    Near,
    RandomState,
    Splitter,
    balanced,
    draw_seeds,
    select_rows,
)
from obygaze_models.scoring.metrics import Array

FILM_CLIPS = 10
"""The minimum number of clips of each class in a test or validation film, as in the paper."""
VALIDATION_SHARE = 10
"""One in this many development clips is used for validation if there is no validation set."""
S = TypeVar("S", bound="Splitter")
PROTOCOLS: dict[str, type[Splitter]] = {}
"""The class of each protocol, in the order of reports: protocols without leaks come first."""


def protocol(
    name: str, title: str, short: str, *, balance: str = "", in_turn: bool = False
) -> Callable[[type[S]], type[S]]:
    """Register a protocol for experiments.

    Parameters
    ----------
    name
        The protocol's name in experiments.
    title, short
        A description in one line, and in a few words.
    balance
        The default balance of training clips; empty if the protocol fixes these clips.
    in_turn
        True if every fold of a split is tested, not only the last.
    """

    def register(splitter: type[S]) -> type[S]:
        splitter.title, splitter.short = title, short
        splitter.default_balance, splitter.in_turn = balance, in_turn
        PROTOCOLS[name] = splitter
        return splitter

    return register


def find_protocol(name: str) -> type[Splitter]:
    """Return the class of a protocol."""
    try:
        return PROTOCOLS[name]
    except KeyError:
        raise ExperimentError(
            f"{unknown_name('protocol', name, PROTOCOLS)}. To use your own protocol, import the "
            "module that defines it (see docs/how-to/extend.md)"
        ) from None


@protocol(
    "leak-free",
    "Leak-free: one fold column for all clips; the last fold is the test set",
    "one test fold",
    balance=BALANCE,
)
@dataclass(eq=False, repr=False)
class LeakFree(ByFolds):
    """Test the last fold, and uses each of the other folds once for validation.

    Training rows are balanced: each class is reduced to the size of the smallest class. The
    validation fold is not balanced, as in the paper.

    Parameters
    ----------
    folds
        The fold of each clip; -1 for no fold. By default, ten stratified folds are drawn.
    last
        The test fold; by default the highest.
    balance
        ``undersample``, ``none`` or ``weights``. With ``weights``, no rows are left out, and the
        estimators weight the classes.
    random_state
        The seed of all draws: a number, None, or a RandomState. Each fold's own seed is derived
        from it.
    """

    _: KW_ONLY
    balance: Balance = BALANCE

    def _parts(self, y: Array, groups: Any, near: Near = None) -> Iterator[FoldParts]:
        folds, last = self._column(y), self._last_of_three()
        for fold in range(last):
            train = (folds >= 0) & (folds != fold) & (folds != last)
            yield f"validation fold {fold}", train, folds == fold, folds == last, ""


@protocol(
    "leave-film-out",
    "Leave {group} out: each {group} is tested by models that never saw it",
    "films left out",
    balance=BALANCE,
    in_turn=True,
)
@dataclass(eq=False, repr=False)
class LeaveFilmOut(Splitter, BaseCrossValidator):  # type: ignore[misc]
    """A splitter that tests each eligible film, with each of the others once for validation.

    N films give N * (N - 1) folds. With `validation_films`, fewer films are used for validation.
    With 0, only the tested film is left out, which gives N folds.

    A film is eligible if it has at least `min_clips` clips of each class. Films that are not
    eligible are used for training in every fold. Clips without a film raise an error. Other groups,
    such as files or directors, work like films. With ``min_clips=1`` and ``balance="none"``, the
    splits are those of scikit-learn's `LeaveOneGroupOut`, except that groups without clips of some
    class are not tested.

    Parameters
    ----------
    min_clips
        The number of clips of each class that a film needs to be tested.
    validation_films
        The number of validation films to draw for each tested film; 0 for no validation. Each is
        used for validation once. By default, all other eligible films are used.
    balance
        See `LeakFree`.
    random_state
        The seed of the folds and of the drawn films.

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

    # With metadata routing, `split` always gets the groups, as in scikit-learn.
    __metadata_request__split = {"groups": True}  # noqa: RUF012

    _: KW_ONLY
    min_clips: int = FILM_CLIPS
    validation_films: int | None = None
    balance: Balance = BALANCE
    random_state: RandomState = 0

    def eligible(self, y: Array, groups: Sequence[str] | Array) -> list[str]:
        """Return the films that can be tested."""
        films, classes = np.asarray(groups), np.unique(y[y >= 0])
        names: list[str] = np.unique(films[films != ""]).tolist()
        return [
            film
            for film in names
            if all(((films == film) & (y == code)).sum() >= self.min_clips for code in classes)
        ]

    def _parts(self, y: Array, groups: Any, near: Near = None) -> Sequence[FoldParts]:
        films, eligible = self._films(y, groups)
        names, codes = np.unique(films, return_inverse=True)
        left_out = list(self._draw_stopping(eligible))

        def make_parts(number: int) -> FoldParts:
            test, stop = left_out[number]
            tested = codes == np.searchsorted(names, test)
            if stop is None:
                return f"test {test}", ~tested, np.zeros(len(y), dtype=bool), tested, test
            stopping = codes == np.searchsorted(names, stop)
            name = f"test {test}, early stopping on {stop}"
            return name, ~(tested | stopping), stopping, tested, test

        return MadeWhenNeeded(len(left_out), make_parts)

    def _draw_stopping(self, eligible: Sequence[str]) -> Iterator[tuple[str, str | None]]:
        """Yield pairs of a test film and a validation film (or None)."""
        count = self.validation_films
        if count == 0:
            yield from ((film, None) for film in eligible)
        elif count is None or count >= len(eligible) - 1:
            yield from permutations(eligible, 2)
        else:
            chance = np.random.default_rng(draw_seeds(self.random_state, 1))
            for film in eligible:
                others = [name for name in eligible if name != film]
                drawn = sorted(chance.choice(len(others), count, replace=False).tolist())
                yield from ((film, others[index]) for index in drawn)

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Yield training and test rows: each eligible film is the test set once."""
        codes, groups = _check_labels(X, y, groups)
        films, eligible = self._films(codes, groups)
        for film, seed in zip(eligible, draw_seeds(self.random_state, len(eligible)), strict=True):
            train = balanced(select_rows(films != film, codes), codes, seed, self.balance)
            yield train, select_rows(films == film, codes)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of eligible films, which depends on `y` and `groups`."""
        return len(self._films(*_check_labels(X, y, groups))[1])

    def _films(self, y: Array, groups: Any) -> tuple[Array, list[str]]:
        if groups is None:
            raise ValueError("LeaveFilmOut needs groups: pass the film of each clip (data.groups)")
        films = np.asarray(groups)
        if unnamed := int(((films == "") & (y >= 0)).sum()):
            raise ExperimentError(
                f"leave-film-out: {unnamed:,} of {counted(int((y >= 0).sum()), 'clip')} have no "
                'film. Drop them with data.select(data.groups != ""), or group clips by file: '
                'groups = "media"'
            )
        eligible = self.eligible(y, films)
        if len(eligible) < 2:
            raise ExperimentError(
                f"leave-film-out needs at least two films or other groups with {self.min_clips} "
                f"clips of each class (got {len(eligible)} of {len(set(films.tolist()))}). "
                "Use a smaller min_clips, such as min_clips = 1"
            )
        return films, eligible


def _check_labels(X: Any, y: Any, groups: Any) -> tuple[Array, Any]:
    """Return the class codes and the groups; raise the same errors as scikit-learn."""
    if y is None:
        raise ValueError("LeaveFilmOut needs y, the class of each clip")
    _, y, groups = indexable(X, y, groups)
    check_classification_targets(y)
    return np.unique(column_or_1d(y), return_inverse=True)[1], groups


@protocol(
    "split", "Split: each fold is tested once", "every fold tested", balance=BALANCE, in_turn=True
)
class ManifestSplit(LeakFree):
    """Test each fold once. Training rows are balanced as in `LeakFree`.

    The validation set is the next fold that has clips of every class far enough from the test
    clips. The first fold follows the last.

    Parameters
    ----------
    folds, last, balance, random_state
        See `LeakFree`.
    """

    def _parts(self, y: Array, groups: Any, near: Near = None) -> Iterator[FoldParts]:
        folds, last = self._column(y), self._last_of_three()
        every_class = set(y[(folds >= 0) & (y >= 0)])
        for fold in range(last + 1):
            far = np.where(near(np.flatnonzero(folds == fold)), -1, y) if near else y
            others = [(fold + step) % (last + 1) for step in range(1, last + 1)]
            complete = (number for number in others if {*far[folds == number]} >= every_class)
            after = next(complete, others[0])
            train = (folds >= 0) & (folds != fold) & (folds != after)
            yield f"test fold {fold}", train, folds == after, folds == fold, ""


@protocol(
    "official", "Official sets: a benchmark’s own training, validation and test", "official sets"
)
class OfficialSplit(ByFolds):
    """Fit once, on a benchmark's own sets. Training rows are not balanced.

    The last fold is the test set, the second to last is the validation set, and the others are for
    training. With only two folds, one in `VALIDATION_SHARE` training clips of each class is drawn
    for validation.

    Parameters
    ----------
    folds, last, random_state
        See `LeakFree`.
    """

    def _parts(self, y: Array, groups: Any, near: Near = None) -> Iterator[FoldParts]:
        folds, last = self._column(y), self._last()
        if last < 1:
            raise ExperimentError(
                "the split has only 1 fold, but official sets need at least two (one for testing)"
            )
        train, validation = (folds >= 0) & (folds < max(1, last - 1)), folds == last - 1
        if last == 1:
            chance = np.random.default_rng(draw_seeds(self.random_state, 1)[0])
            validation = np.zeros(len(y), dtype=bool)
            for code in np.unique(y[train & (y >= 0)]):
                rows = np.flatnonzero(train & (y == code))
                share = -(-len(rows) // VALIDATION_SHARE)
                validation[chance.choice(rows, share, replace=False)] = True
            train = train & ~validation
        yield "official sets", train, validation, folds == last, ""


@protocol(
    "paper",
    "As in the paper’s text: eight training folds, negatives chosen by fold",
    "the paper’s text",
)
class PaperSplit(ByFolds):
    """Test on the last fold, validate on the one before, and train on the rest.

    There is a fit for each training fold. All fits train on all positives. Negatives are chosen as
    whole folds, so that there are about as many negatives as positives. Fit r takes the
    negatives of fold r and of the folds after it, where fold 0 follows the last training fold. If
    negatives do not outnumber positives, all fits train on the same clips.

    Parameters
    ----------
    folds, last, random_state
        See `LeakFree`.
    """

    def _parts(self, y: Array, groups: Any, near: Near = None) -> Iterator[FoldParts]:
        folds, last = self._column(y), self._last_of_three()
        pool = last - 1
        training = (folds >= 0) & (folds < pool)
        positives, negatives = (int((training & (y == code)).sum()) for code in (1, 0))
        n_chosen = min(pool, max(1, round(pool * positives / max(1, negatives))))
        for index in range(pool):
            chosen = [(index + step) % pool for step in range(n_chosen)]
            train = training & ((y == 1) | np.isin(folds, chosen))
            name = f"negatives of folds {', '.join(map(str, chosen))}"
            yield name, train, folds == pool, folds == last, ""


@protocol(
    "released",
    "As in the authors’ code: their split files, which leak into each other",
    "the released code",
)
@dataclass(eq=False, repr=False)
class Released(Splitter):
    """Use the authors' lists of clips as in their code, without drawing clips.

    Parameters
    ----------
    ids
        The id of each clip, such as ``data.ids``.
    runs
        The training and validation lists of each fit.
    tested
        The ids of each test set, by name.
    random_state
        The seed of the folds.
    """

    from_clips = Splitter.from_clips | {"ids", "runs", "tested"}
    ids: Sequence[str]
    runs: RunSet
    tested: Mapping[str, frozenset[str]]
    _: KW_ONLY
    random_state: RandomState = 0

    @classmethod
    def of_clips(cls, data: Any, division: Any, **options: Any) -> Splitter:
        """Return the splitter for an experiment's clips, given their `Division`."""
        return cls(data.ids, division.runs, division.tested, **options)

    def _parts(self, y: Array, groups: Any, near: Near = None) -> Iterator[FoldParts]:
        tested = {test: np.isin(self.ids, list(clips)) for test, clips in self.tested.items()}
        for run in self.runs.runs:
            train, validation = (np.isin(self.ids, part) for part in (run.train, run.validation))
            yield f"{self.runs.name} run {run.name}", train, validation, tested, ""


def find_released_runs(manifest: Manifest, name: str, *, first: int = 0) -> RunSet:
    """Return the authors' runs of a split, or make runs from its fold column.

    If the manifest has no runs of the split, there is a run for each validation fold from `first`
    on. These runs leave out clips without a media file, as in the authors' code.
    """
    if name in manifest.run_names:
        return manifest.runs(name)
    split = manifest.split(name)
    usable = split.where(_with_media(manifest).__contains__)
    last = split.last_fold

    def run(fold: int) -> Run:
        train = [clip for clip, own in usable.fold_of.items() if own not in (fold, last)]
        return Run(str(fold), train, usable.fold(fold))

    return RunSet(name, [run(fold) for fold in range(first, last)])


def released_test_ids(manifest: Manifest, name: str) -> frozenset[str]:
    """Return the clips with a media file in the last fold of a released split."""
    split = manifest.split(name)
    return frozenset(_with_media(manifest).intersection(split.fold(split.last_fold)))


def _with_media(manifest: Manifest) -> set[str]:
    return {item.id for item in manifest if item.media}
