"""Protocols, which divide clips into training, validation and test sets.

A protocol is an entry of `PROTOCOLS` with a function that yields the parts of each fold.
`Protocol.make_folds` turns the parts into the rows of each fit. For scikit-learn, `LeaveFilmOut`
tests each eligible film, and ``PredefinedSplit(data.folds)`` tests each fold of a column.

The released files have a fold column for each set of levels, so training clips of one set of levels
can be test clips of another. Runs warn of these leaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import column_or_1d, indexable
from sklearn.utils.multiclass import check_classification_targets

from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, Run, RunSet
from obygaze_models.data.folds import (
    BALANCE,
    BALANCES,
    Balance,
    Fold,
    MadeWhenNeeded,
    Near,
    RandomState,
    balanced,
    draw_seeds,
    select_rows,
)
from obygaze_models.scoring.metrics import Array

FILM_CLIPS = 10
"""The minimum number of clips of each class in a test or validation film, as in the paper."""
VALIDATION_SHARE = 10
"""One in this many development clips is used for validation if there is no validation set."""
NO_RUNS = RunSet("", [])


@dataclass(frozen=True, eq=False, kw_only=True)
class Clips:
    """The facts about clips that a protocol can use.

    Parameters
    ----------
    y
        The class of each clip in training, from 0; -1 for clips that are left out.
    groups, ids
        The film (or other group) and the id of each clip.
    folds, last
        The fold of each clip, -1 for no fold; and the last fold.
    near
        A function that takes the rows of a fold's test clips and returns a boolean for each clip:
        True if it is too close to a test clip for training and validation.
    runs, tested
        The authors' training and validation lists, and the ids of each test set.
    seed
        The seed of all draws. Each fold's own seed is derived from it.
    validate
        False if the estimator needs no validation clips.
    """

    y: Array
    groups: Sequence[str] | Array = ()
    ids: Sequence[str] = ()
    folds: Array = field(default_factory=lambda: np.array([], dtype=np.int64))
    last: int = -1
    near: Near = None
    runs: RunSet = NO_RUNS
    tested: Mapping[str, frozenset[str]] = field(default_factory=dict)
    seed: RandomState = 0
    validate: bool = True


class Parts(NamedTuple):
    """A fold before training clips are drawn.

    `train`, `validation` and `test` are masks of clips. `test` can have a mask for each test set.
    """

    name: str
    train: Array
    validation: Array
    test: Array | Mapping[str, Array]


@dataclass(frozen=True)
class Protocol:
    """A protocol.

    Parameters
    ----------
    parts
        A function of `Clips` that yields the parts of each fold. Its other parameters are options.
    short
        A description in a few words.
    balance
        The default balance of classes in training; empty if the protocol fixes the training clips.
    divides
        What the protocol divides: the ``"folds"`` of a column, the ``"groups"`` (films, unless
        the experiment names another column), or ``"clips"``.
    own_sets
        True if the folds are a benchmark's own sets: new folds are never drawn instead, and models
        are never trained on the test set.
    two_classes
        True if the protocol is only for tasks with two classes.
    """

    parts: Callable[..., Iterable[Parts]]
    short: str
    balance: str = ""
    _: KW_ONLY
    divides: str = "folds"
    own_sets: bool = False
    two_classes: bool = False

    def make_folds(
        self,
        clips: Clips,
        tests: Mapping[str, Array],
        balance: str = "",
        **options: Any,
    ) -> Sequence[Fold]:
        """Return the folds, each made on demand.

        Parameters
        ----------
        clips
            The clips.
        tests
            The class of each clip in each test set, by the name of the test set.
        balance
            The balance of training clips; empty if the protocol fixes these clips.
        options
            The options of the protocol.
        """
        if balance not in ("", *BALANCES):
            raise ExperimentError(unknown_name("balance", balance, BALANCES))
        parts = self.parts(clips, **options)
        if not isinstance(parts, Sequence):
            parts = list(parts)
        seeds = draw_seeds(clips.seed, len(parts))

        def make_fold(index: int) -> Fold:
            own = parts[index]
            sets = {}
            for test, codes in tests.items():
                mask = own.test[test] if isinstance(own.test, Mapping) else own.test
                sets[test] = select_rows(mask, codes)
            too_near = np.zeros(len(clips.y), dtype=bool)
            if clips.near:
                too_near = clips.near(np.unique(np.concatenate([*sets.values()])))

            pool = select_rows(own.train & ~too_near, clips.y)
            train = balanced(pool, clips.y, seeds[index], balance) if balance else pool
            return Fold(
                index,
                own.name,
                seeds[index],
                train=train,
                validation=select_rows(own.validation & ~too_near, clips.y),
                tests=sets,
                drawn_from=len(pool) if balance else 0,
                near=np.flatnonzero(too_near),
            )

        return MadeWhenNeeded(len(parts), make_fold)


def leak_free(clips: Clips) -> Iterator[Parts]:
    """Test the last fold, and use each of the other folds once for validation."""
    folds = clips.folds
    last = clips.last
    for fold in range(last):
        train = (folds >= 0) & (folds != fold) & (folds != last)
        yield Parts(f"validation fold {fold}", train, folds == fold, folds == last)


def leave_film_out(
    clips: Clips,
    min_clips: int = FILM_CLIPS,
    validation_films: int | None = None,
) -> Sequence[Parts]:
    """Test each eligible film, with each other eligible film once for validation.

    N eligible films give N * (N - 1) folds. With `validation_films`, this number of films is drawn
    for each tested film. With 0, or if no validation clips are needed, only the tested film is left
    out, which gives N folds.

    A film is eligible if it has at least `min_clips` clips of each class. Films that are not
    eligible are used for training in every fold. Other groups, such as files or directors, work
    like films.
    """
    names, codes, eligible = _films(clips.y, clips.groups, min_clips)
    pairs: list[tuple[int, int]] = []
    if validation_films == 0 or not clips.validate:
        pairs = [(film, -1) for film in eligible]
    elif validation_films is None or validation_films >= len(eligible) - 1:
        pairs = list(permutations(eligible, 2))
    else:
        chance = np.random.default_rng(draw_seeds(clips.seed, 1))
        for film in eligible:
            others = np.setdiff1d(eligible, film)
            drawn = np.sort(chance.choice(len(others), validation_films, replace=False))
            for other in others[drawn].tolist():
                pairs.append((film, other))

    def make_parts(number: int) -> Parts:
        test, stop = pairs[number]
        name = f"test {names[test]}"
        if stop >= 0:
            name += f", validation {names[stop]}"
        tested = codes == test
        stopping = codes == stop
        return Parts(name, ~(tested | stopping), stopping, tested)

    return MadeWhenNeeded(len(pairs), make_parts)


def _films(y: Array, groups: Any, min_clips: int) -> tuple[Array, Array, list[int]]:
    """Return the films' names, the number of each clip's film, and the eligible films' numbers."""
    names, codes = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    labelled = y >= 0
    if unnamed := int(labelled[names[codes] == ""].sum()):
        raise ExperimentError(
            f"leave-film-out: no film or other group for {unnamed:,} of "
            f"{counted(int(labelled.sum()), 'clip')}. Drop them with "
            'data.select(data.groups != ""), or group clips by file: groups = "media"'
        )
    enough = names != ""
    for code in np.unique(y[labelled]):
        enough &= np.bincount(codes[y == code], minlength=len(names)) >= min_clips
    eligible: list[int] = np.flatnonzero(enough).tolist()
    if len(eligible) < 2:
        raise ExperimentError(
            f"leave-film-out needs two films or other groups with {min_clips} or more clips "
            f"of each class (got {len(eligible)} of {len(names)}). Lower min_clips (protocol = "
            '{name = "leave-film-out", min_clips = 1}), or use another protocol'
        )
    return names, codes, eligible


def each_fold(clips: Clips) -> Iterator[Parts]:
    """Test each fold once.

    The validation set is the next fold that has clips of every class far enough from the test
    clips, or else the next fold. The first fold follows the last.
    """
    y = clips.y
    folds = clips.folds
    count = clips.last + 1
    every_class = set(y[(folds >= 0) & (y >= 0)])
    for fold in range(count):
        far = y
        if clips.near:
            tested = np.flatnonzero(folds == fold)
            far = np.where(clips.near(tested), -1, y)
        others = [*range(fold + 1, count), *range(fold)]
        after = others[0]
        for number in others:
            if set(far[folds == number]) >= every_class:
                after = number
                break
        train = (folds >= 0) & (folds != fold) & (folds != after)
        yield Parts(f"test fold {fold}", train, folds == after, folds == fold)


def official_sets(clips: Clips) -> Iterator[Parts]:
    """Fit once, on a benchmark's own sets. Training clips are not balanced.

    The last fold is the test set, the second to last is the validation set, and the others are for
    training. With only two folds, one in `VALIDATION_SHARE` training clips of each class is drawn
    for validation.
    """
    y = clips.y
    folds = clips.folds
    last = clips.last
    train = (folds >= 0) & (folds < max(1, last - 1))
    validation = folds == last - 1
    if last == 1:
        chance = np.random.default_rng(draw_seeds(clips.seed, 1)[0])
        validation = np.zeros(len(y), dtype=bool)
        for code in np.unique(y[train & (y >= 0)]):
            rows = np.flatnonzero(train & (y == code))
            share = -(-len(rows) // VALIDATION_SHARE)
            validation[chance.choice(rows, share, replace=False)] = True
        train = train & ~validation
    yield Parts("official sets", train, validation, folds == last)


def papers_text(clips: Clips) -> Iterator[Parts]:
    """Test on the last fold, validate on the one before, and train on the rest.

    There is a fit for each training fold. All fits train on all positives. Negatives are chosen as
    whole folds, so that there are about as many negatives as positives. Fit r takes the
    negatives of fold r and of the next few folds, where fold 0 follows the last training fold. If
    negatives do not outnumber positives, all fits train on the same clips.
    """
    y = clips.y
    folds = clips.folds
    last = clips.last
    pool = last - 1
    training = (folds >= 0) & (folds < pool)
    positives = int((training & (y == 1)).sum())
    negatives = int((training & (y == 0)).sum())
    wanted = round(pool * positives / max(1, negatives))
    n_chosen = min(pool, max(1, wanted))
    for index in range(pool):
        chosen = np.arange(index, index + n_chosen) % pool
        train = training & ((y == 1) | np.isin(folds, chosen))
        name = f"negatives of folds {', '.join(map(str, chosen))}"
        yield Parts(name, train, folds == pool, folds == last)


def authors_lists(clips: Clips) -> Iterator[Parts]:
    """Use the authors' lists of clips as in their code, without drawing clips."""
    tested = {}
    for test, own in clips.tested.items():
        tested[test] = np.isin(clips.ids, list(own))
    for run in clips.runs.runs:
        train = np.isin(clips.ids, run.train)
        validation = np.isin(clips.ids, run.validation)
        yield Parts(f"{clips.runs.name} run {run.name}", train, validation, tested)


PROTOCOLS = {
    "leak-free": Protocol(leak_free, "one test fold", BALANCE),
    "leave-film-out": Protocol(leave_film_out, "films left out", BALANCE, divides="groups"),
    "split": Protocol(each_fold, "every fold tested", BALANCE),
    "official": Protocol(official_sets, "official sets", own_sets=True),
    "paper": Protocol(papers_text, "the paper’s text", two_classes=True),
    "released": Protocol(authors_lists, "the released code", divides="clips", two_classes=True),
}
"""All protocols by name. Protocols without leaks come first."""


def find_protocol(name: str) -> Protocol:
    """Return a protocol."""
    if name not in PROTOCOLS:
        raise ExperimentError(
            f"{unknown_name('protocol', name, PROTOCOLS)} (for your own protocol, import the "
            "module that defines it; see docs/how-to/extend.md)"
        )
    return PROTOCOLS[name]


@dataclass(eq=False, repr=False)
class LeaveFilmOut(BaseCrossValidator):  # type: ignore[misc]
    """A splitter for scikit-learn that tests each eligible film once.

    A film is eligible if it has at least `min_clips` clips of each class. Films that are not
    eligible are used for training in every fold. Clips without a film raise an error. Other groups,
    such as files or directors, work like films. With ``min_clips=1`` and ``balance="none"``, the
    splits are those of scikit-learn's `LeaveOneGroupOut`, except that groups without clips of some
    class are not tested.

    Parameters
    ----------
    min_clips
        The number of clips of each class that a film needs to be tested.
    balance
        ``undersample`` reduces each class in training to the size of the smallest class. With
        ``none`` or ``weights``, no rows are left out.
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

    # With metadata routing, `split` always gets the groups, as in scikit-learn.
    __metadata_request__split = {"groups": True}  # noqa: RUF012

    _: KW_ONLY
    min_clips: int = FILM_CLIPS
    balance: Balance = BALANCE
    random_state: RandomState = 0

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Yield training and test rows: each eligible film is the test set once."""
        for fold in self._folds(X, y, groups):
            yield fold.train, fold.tests["test"]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of eligible films, which depends on `y` and `groups`."""
        return len(self._folds(X, y, groups))

    def _folds(self, X: Any, y: Any, groups: Any) -> Sequence[Fold]:
        if y is None or groups is None:
            raise ValueError(
                "LeaveFilmOut needs y and groups: pass the film of each clip (data.groups)"
            )
        _, y, groups = indexable(X, y, groups)
        check_classification_targets(y)
        codes = np.unique(column_or_1d(y), return_inverse=True)[1]
        clips = Clips(y=codes, groups=groups, seed=self.random_state)
        protocol = PROTOCOLS["leave-film-out"]
        return protocol.make_folds(
            clips,
            {"test": codes},
            self.balance,
            min_clips=self.min_clips,
            validation_films=0,
        )


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

    runs = []
    for fold in range(first, last):
        train = [clip for clip, own in usable.fold_of.items() if own not in (fold, last)]
        runs.append(Run(str(fold), train, usable.fold(fold)))
    return RunSet(name, runs)


def released_test_ids(manifest: Manifest, name: str) -> frozenset[str]:
    """Return the clips with a media file in the last fold of a released split."""
    split = manifest.split(name)
    return frozenset(_with_media(manifest).intersection(split.fold(split.last_fold)))


def _with_media(manifest: Manifest) -> set[str]:
    return {item.id for item in manifest if item.media}
