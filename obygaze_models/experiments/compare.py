"""Models of one run, or of several, held against each other on the clips that both were tested on.

Where a model said something of a clip in several runs of its experiment, the mean of its
probabilities counts; so the scores here are not the means over runs that a run's table shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.run_folder import FitPredictions, Results, average_over_fits
from obygaze_models.intervals import REPLICATES, Difference, paired_differences

__all__ = ["Compared", "Comparison", "Contestant", "compare_runs"]


@dataclass(frozen=True)
class Contestant:
    """A model of a run; its name says the run, too, where there are several."""

    run: str
    model: str
    name: str


@dataclass(frozen=True)
class Comparison:
    """Two models on one test set.

    Parameters
    ----------
    test, first, second
        The test set, and the models.
    clips, films
        On what both were scored.
    smallest
        How many clips the smallest class has.
    scores
        A `Difference` for each score.
    only_first, only_second
        Clips that only the one gets right.
    p_value
        Of McNemar's exact test on these, which takes clips for independent; those of one film
        are not, so that it is smaller than it should be.
    notes
        What a reader must know of these two.
    """

    test: str
    first: Contestant
    second: Contestant
    clips: int
    films: int
    smallest: int
    scores: dict[str, Difference]
    only_first: int
    only_second: int
    p_value: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Compared:
    """All comparisons, and what could not be compared."""

    comparisons: list[Comparison]
    left_out: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Side:
    """A contestant, of the run at a place in the list."""

    place: int
    who: Contestant
    results: Results
    tests: Mapping[str, FitPredictions]
    runs: dict[str, int]


def compare_runs(
    runs: Sequence[Results],
    *,
    models: Sequence[str] = (),
    seed: int = 0,
    replicates: int = REPLICATES,
) -> Compared:
    """Compare models on the test sets that they share.

    Parameters
    ----------
    runs
        Of several, each model is compared with that of the same name in the others; of one, its
        models with one another.
    models
        Only these, of all runs, each with each.
    seed, replicates
        Of the draws of films.
    """
    _check_items(runs)
    sides = _sides(runs)
    names = list(dict.fromkeys(side.who.model for side in sides))
    if len(sides) == 1:
        raise ExperimentError(
            f"{runs[0].run.folder} has one model, {names[0]}; give a second run to compare it with"
        )
    for name in models:
        if name not in names:
            raise ExperimentError(unknown_name("model", name, names))
    pairs = list(_pairs(sides, models, several=len(runs) > 1))
    paired = {side.who.name for pair in pairs for side in pair}
    left_out = [
        f"{side.who.name} has no counterpart of that name; --model names what to compare"
        for side in sides
        if side.who.name not in paired and not models
    ]
    comparisons = []
    for a, b in pairs:
        for test in dict.fromkeys([*a.tests, *b.tests]):
            found = _compare(a, b, test, seed, replicates)
            if isinstance(found, Comparison):
                comparisons.append(found)
            else:
                left_out.append(found)
    if not comparisons:
        raise ExperimentError(
            left_out[0]
            if left_out
            else f"there is nothing to compare {(models or names)[0]} with; give another run, or "
            "another --model"
        )
    return Compared(comparisons, tuple(dict.fromkeys(left_out)))


def _check_items(runs: Sequence[Results]) -> None:
    first = runs[0].run
    for other in (results.run for results in runs[1:]):
        ours, theirs = first.record.manifest, other.record.manifest
        if ours.digest != theirs.digest:
            raise ExperimentError(
                f"{first.folder} and {other.folder} are over different items: those of "
                f"{ours.name} ({ours.digest[:12]}) and of {theirs.name} "
                f"({theirs.digest[:12]}); run both on one manifest"
            )


def _sides(runs: Sequence[Results]) -> list[_Side]:
    """Every model of every run, under a name that tells it from the others."""
    folders = [results.run.folder for results in runs]
    short = [folder.name for folder in folders]
    named = short if len(set(short)) == len(short) else [folder.as_posix() for folder in folders]
    sides = []
    for place, (results, run) in enumerate(zip(runs, named, strict=True)):
        said: dict[str, dict[str, list[FitPredictions]]] = {}
        for one in results.said:
            said.setdefault(one.model, {}).setdefault(one.test, []).append(one)
        for model, tests in said.items():
            name = f"{run}: {model}" if len(runs) > 1 else model
            told = {test: average_over_fits(of) for test, of in tests.items()}
            counts = {test: len(of) for test, of in tests.items()}
            sides.append(_Side(place, Contestant(run, model, name), results, told, counts))
    return sides


def _only(said: FitPredictions, ids: NDArray[Any]) -> FitPredictions:
    """What it says of these clips, which it knows."""
    rows = np.searchsorted(said.ids, ids)
    return FitPredictions(
        said.model, said.fit, said.test, ids.tolist(), said.labels[rows], said.probabilities[rows]
    )


def _pairs(
    sides: Sequence[_Side], models: Sequence[str], *, several: bool
) -> Iterator[tuple[_Side, _Side]]:
    for a, b in combinations(sides, 2):
        if models:
            chosen = a.who.model in models and b.who.model in models
        else:
            chosen = not several or (a.who.model == b.who.model and a.place != b.place)
        if chosen:
            yield a, b


def _compare(a: _Side, b: _Side, test: str, seed: int, replicates: int) -> Comparison | str:
    """How two models do on a test; or why that cannot be said."""
    if test not in a.tests or test not in b.tests:
        has, lacks = (a, b) if test in a.tests else (b, a)
        return f"{test} is a test set of {has.who.name}, not of {lacks.who.name}"
    mine, theirs = a.tests[test], b.tests[test]
    ids = np.intersect1d(mine.ids, theirs.ids)
    alike = _only(mine, ids).labels == _only(theirs, ids).labels
    first, second = _only(mine, ids[alike]), _only(theirs, ids[alike])
    if not first.ids:
        why = "clips annotated otherwise" if len(ids) else "other clips"
        return f"{a.who.name} and {b.who.name} cannot be compared: they have {why} in {test}"
    films = [a.results.clips[one].film for one in first.ids]
    only_first = int((second.wrong & ~first.wrong).sum())
    only_second = int((first.wrong & ~second.wrong).sum())
    odd = only_first + only_second
    return Comparison(
        test=test,
        first=a.who,
        second=b.who,
        clips=len(first.ids),
        films=len(set(films)),
        smallest=int(np.bincount(first.labels, minlength=len(a.results.classes(test))).min()),
        scores=paired_differences(
            first.labels,
            first.probabilities,
            second.probabilities,
            films,
            seed=seed,
            replicates=replicates,
        ),
        only_first=only_first,
        only_second=only_second,
        p_value=float(binomtest(only_first, odd).pvalue) if odd else 1.0,
        notes=tuple(dict.fromkeys(_notes(a, b, test, len(ids), set(first.ids)))),
    )


def _notes(a: _Side, b: _Side, test: str, common: int, scored: set[str]) -> Iterator[str]:
    """What is not alike in two models' data and protocol, and which clips had to be left out."""
    one, other = a.results.run.record, b.results.run.record
    for what, ours, theirs in (
        ("label sets", one.manifest.labels, other.manifest.labels),
        ("protocols", one.protocol, other.protocol),
        ("splits", one.split, other.split),
        ("training tasks", one.trained_on(test), other.trained_on(test)),
    ):
        if ours != theirs:
            yield f"different {what}: {ours} in {a.who.run}, {theirs} in {b.who.run}"
    for side in (a, b):
        if extra := len(side.tests[test].ids) - common:
            yield f"left out: {counted(extra, 'clip')} of {test} that only {side.who.run} has"
    if odd := common - len(scored):
        yield f"left out: {counted(odd, 'clip')} of {test} annotated otherwise in the two"
    runs = [side.runs[test] for side in (a, b)]
    if runs[0] != runs[1]:
        yield (
            f"{a.who.name} is the mean of {counted(runs[0], 'run')}, {b.who.name} of {runs[1]}, "
            "and a mean of more is the better for it"
        )
    for side in (a, b):
        if met := len(scored & set(side.results.run.record.leaked)):
            yield (
                f"LEAKAGE: {met} of these {counted(len(scored), 'clip')} of {test} are in a "
                f"training or validation set of {side.who.run}"
            )
