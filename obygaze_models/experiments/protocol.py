"""Protocols: which clips train, stop and test each run. Arrays in, rows out; no files.

=================  ==============================================================================
``leak-free``      one fold column for all clips; the last fold tests, each other one validates
                   in turn, the rest trains, balanced by a draw a run
``released``       what the authors' code does with their split files, clip by clip
``paper``          the text of the paper's version 1: eight folds train, all their positives and
                   some folds' negatives, which are the runs
``leave-film-out`` each film tests in turn, each other one validates in turn (Table 4)
``split``          any fold column: each fold tests in turn, so that every clip is tested once
``official``       one run by a benchmark's own sets: the last fold tests, the last but one
                   validates; of two folds, a tenth of the first validates
=================  ==============================================================================

The released files draw a fold column for each pairing of levels, so that clips that one pairing
trains on are tested in another; `leaks` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import RunSet

__all__ = [
    "FILM_CLIPS",
    "PROTOCOLS",
    "Draw",
    "Leak",
    "balanced",
    "cross_validation",
    "leak_free",
    "leaks",
    "leave_film_out",
    "official",
    "paper",
    "released",
]

PROTOCOLS = ("leak-free", "released", "paper", "leave-film-out", "split", "official")
FILM_CLIPS = 10
"""A film tests and validates if it has so many clips of each class; the paper's choice of ten."""
HELD = 10
"""Where a benchmark has no validation set, one in so many development clips validates."""
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Draw:
    """The rows of one run.

    `tests` has the rows of each test set by its name; `group` is what some runs share and others
    do not, such as the film that is left out.
    """

    run: int
    name: str
    seed: int
    train: Array
    validation: Array
    tests: Mapping[str, Array]
    group: str = ""


@dataclass(frozen=True)
class Leak:
    """Clips of one run's test set that the same run has trained on, or was stopped by.

    `otherwise` are those that a model of the run saw in another way, say to learn its concepts.
    """

    run: int
    test: str
    clips: int
    train: list[str]
    validation: list[str]
    otherwise: list[str]

    @property
    def ids(self) -> list[str]:
        """All of them."""
        return sorted({*self.train, *self.validation, *self.otherwise})


def leak_free(
    folds: Array, labels: Array, tests: Mapping[str, Array], *, last: int, seed: int
) -> list[Draw]:
    """One run a validation fold; fold `last` tests, whatever the task.

    The training rows are balanced: of each class as many are drawn as the smallest has, anew
    in each run. The validation fold is left as it is, as the paper does.

    Parameters
    ----------
    folds
        A row a clip; -1 has no fold.
    labels, tests
        Its class in training, and by name in each test set; -1 takes no part.
    last
        The split's last fold, also where no clip of it is left.
    seed
        Fixes the draws; each run gets a seed of its own from it.
    """
    if last < 2:
        raise ExperimentError(
            f"the split has {last + 1} folds; to train, validate and test takes three"
        )
    return [
        Draw(
            fold,
            f"validation fold {fold}",
            own_seed,
            balanced(
                _rows((folds >= 0) & (folds != fold) & (folds != last), labels), labels, own_seed
            ),
            _rows(folds == fold, labels),
            _tests(folds == last, tests),
        )
        for fold, own_seed in enumerate(_seeds(seed, last))
    ]


def cross_validation(
    folds: Array, labels: Array, tests: Mapping[str, Array], *, last: int, seed: int
) -> list[Draw]:
    """One run a fold, which tests; training rows are balanced as in `leak_free`.

    The next fold that has clips of every class validates; after the last comes the first.
    """
    if last < 2:
        raise ExperimentError(
            f"the split has {last + 1} folds; to train, validate and test takes three"
        )
    whole = {
        fold
        for fold in range(last + 1)
        if set(labels[folds == fold]) >= set(labels[(folds >= 0) & (labels >= 0)])
    }
    draws = []
    for fold, own_seed in enumerate(_seeds(seed, last + 1)):
        others = [(fold + step) % (last + 1) for step in range(1, last + 1)]
        after = next((other for other in others if other in whole), others[0])
        train = _rows((folds >= 0) & (folds != fold) & (folds != after), labels)
        draws.append(
            Draw(
                fold,
                f"test fold {fold}",
                own_seed,
                balanced(train, labels, own_seed),
                _rows(folds == after, labels),
                _tests(folds == fold, tests),
            )
        )
    return draws


def paper(
    folds: Array, labels: Array, tests: Mapping[str, Array], *, last: int, seed: int
) -> list[Draw]:
    """The last fold tests, the last but one validates, the others train: as many runs as those.

    All positives train. Of the negatives whole folds are taken, as many as come nearest to the
    number of positives: run r takes those from fold r on, after the last training fold going on
    at the first. Where there are no more negatives than positives, all runs train on the same.
    """
    pool = last - 1
    if pool < 1:
        raise ExperimentError(
            f"the split has {last + 1} folds; to train, validate and test takes three"
        )
    training = _rows((folds >= 0) & (folds < pool), labels)
    positives = training[labels[training] == 1]
    negatives = training[labels[training] == 0]
    wanted = round(pool * len(positives) / max(1, len(negatives)))
    taken = min(pool, max(1, wanted))
    draws = []
    for run, own_seed in enumerate(_seeds(seed, pool)):
        chosen = [(run + step) % pool for step in range(taken)]
        train = np.union1d(positives, negatives[np.isin(folds[negatives], chosen)])
        draws.append(
            Draw(
                run,
                f"negatives of folds {', '.join(map(str, chosen))}",
                own_seed,
                train,
                _rows(folds == pool, labels),
                _tests(folds == last, tests),
            )
        )
    return draws


def leave_film_out(
    films: Sequence[str], labels: Array, tests: Mapping[str, Array], *, seed: int
) -> list[Draw]:
    """Each eligible film tests in turn, and each other eligible one validates in turn.

    A film is eligible if it has at least `FILM_CLIPS` clips of each class; the others train in
    every run. Training rows are taken as they are, not balanced, as the authors did.
    """
    film_of = np.array(films)
    classes = set(labels[labels >= 0].tolist())
    eligible = [
        film
        for film in sorted(set(films))
        if all(((film_of == film) & (labels == one)).sum() >= FILM_CLIPS for one in classes)
    ]
    if len(eligible) < 2:
        raise ExperimentError(
            f"leave-film-out needs at least two films with {FILM_CLIPS} clips of each class, and "
            f"{len(eligible)} of {len(set(films))} have them"
        )
    pairs = [(test, other) for test in eligible for other in eligible if other != test]
    return [
        Draw(
            run,
            f"without {test}, stopped by {other}",
            own_seed,
            _rows((film_of != test) & (film_of != other), labels),
            _rows(film_of == other, labels),
            _tests(film_of == test, tests),
            group=test,
        )
        for run, ((test, other), own_seed) in enumerate(
            zip(pairs, _seeds(seed, len(pairs)), strict=True)
        )
    ]


def released(
    ids: Sequence[str],
    labels: Array,
    tests: Mapping[str, Array],
    *,
    runs: RunSet,
    tested: Mapping[str, frozenset[str]],
    seed: int,
) -> list[Draw]:
    """The runs of a list of ids, tested on lists of ids; nothing is drawn.

    Parameters
    ----------
    ids
        The id of each row.
    runs
        What each run trains on and is stopped by.
    tested
        The ids of each test set.
    """
    row_of = {one: row for row, one in enumerate(ids)}

    def rows(wanted: Sequence[str] | frozenset[str], codes: Array) -> Array:
        found = sorted(row_of[one] for one in wanted if one in row_of)
        chosen = np.array(found, dtype=np.intp)
        return chosen[codes[chosen] >= 0]

    return [
        Draw(
            number,
            f"{runs.name} run {run.name}",
            own_seed,
            rows(run.train, labels),
            rows(run.validation, labels),
            {name: rows(tested[name], codes) for name, codes in tests.items()},
        )
        for number, (run, own_seed) in enumerate(
            zip(runs.runs, _seeds(seed, len(runs.runs)), strict=True)
        )
    ]


def official(
    folds: Array, labels: Array, tests: Mapping[str, Array], *, last: int, seed: int
) -> list[Draw]:
    """One run by the sets that a benchmark gives out; training rows are taken as they are.

    The last fold tests, the last but one validates, the others train. Of two folds the first
    trains but for one in `HELD` of each class, drawn by the seed, which validate.
    """
    if last < 1:
        raise ExperimentError("the split has 1 fold; official sets are two or more, the last tests")
    [own_seed] = _seeds(seed, 1)
    train = _rows((folds >= 0) & (folds < max(1, last - 1)), labels)
    if last > 1:
        validation = _rows(folds == last - 1, labels)
    else:
        chance = np.random.default_rng(own_seed)
        classes = [train[labels[train] == one] for one in np.unique(labels[train])]
        held = [chance.choice(of, -(-len(of) // HELD), replace=False) for of in classes]
        validation = np.sort(np.concatenate([*held, train[:0]]))
        train = np.setdiff1d(train, validation)
    tested = _tests(folds == last, tests)
    return [Draw(0, "official sets", own_seed, train, validation, tested)]


def leaks(
    draws: Sequence[Draw],
    ids: Sequence[str],
    *,
    seen: Mapping[int, Array] | None = None,
    meet: Callable[[list[str], list[str]], list[str]] | None = None,
) -> list[Leak]:
    """For each run and test set what leaks: to be none, and looked at.

    Parameters
    ----------
    seen
        Run -> the rows that its models saw in any way, where they told.
    meet
        Which of the first ids are among the second, or show the same seconds of a film; by
        default those of equal ids.
    """
    meet = meet or (lambda left, right: sorted({*left} & {*right}))

    def names(rows: Array) -> list[str]:
        return [ids[row] for row in rows.tolist()]

    found = []
    for draw in draws:
        used = [draw.train, draw.validation]
        others = np.setdiff1d((seen or {}).get(draw.run, draw.train), np.concatenate(used))
        for test, rows in draw.tests.items():
            met = [meet(names(rows), names(part)) for part in (*used, others)]
            found.append(Leak(draw.run, test, len(rows), *met))
    return [leak for leak in found if leak.ids]


def _seeds(seed: int, count: int) -> list[int]:
    seeds: list[int] = np.random.SeedSequence(seed).generate_state(count).tolist()
    return seeds


def _rows(chosen: Array, labels: Array) -> Array:
    return np.flatnonzero(chosen & (labels >= 0))


def _tests(chosen: Array, tests: Mapping[str, Array]) -> dict[str, Array]:
    return {name: _rows(chosen, labels) for name, labels in tests.items()}


def balanced(rows: Array, labels: Array, seed: int) -> Array:
    """As many rows of each class as the smallest has; the classes are those of all labels."""
    chance = np.random.default_rng(seed)
    classes = [rows[labels[rows] == one] for one in np.unique(labels[labels >= 0])]
    size = min(map(len, classes), default=0)
    drawn = [chance.choice(of, size, replace=False) for of in classes]
    return np.sort(np.concatenate(drawn)) if drawn else rows
