"""Intervals of a mean over runs that respect that clips of one film are alike.

Films are drawn, not clips: each draw takes as many films as there are, with replacement, and all
their clips. One film's clips stand or fall together, so that the interval says how scores would
move with other films of the kind, which is what a reader wants to know, and is wider.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.experiments.metrics.weighted import ranking_scores, weighted_scores

__all__ = [
    "CELLS",
    "LEVEL",
    "REPLICATES",
    "Scored",
    "draw_films",
    "film_intervals",
    "middle",
    "too_few",
]

REPLICATES = 1000
LEVEL = 0.95
CELLS = 4_000_000
"""Weights that are held at a time."""
FEW_CLIPS, FEW_FILMS = 10, 3
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Scored:
    """One run's labels, probabilities ([N], or [N, classes]) and films on one test set.

    `trec` are the clips' `trec_ranks`, where average precision as trec_eval has it is asked for.
    """

    labels: Array
    probabilities: Array
    films: Sequence[str]
    trec: Array | None = None


def film_intervals(
    runs: Sequence[Scored], *, seed: int, replicates: int = REPLICATES
) -> dict[str, tuple[float, float] | None]:
    """For each score the middle 95% of its mean over runs, from draws of films.

    In a draw each run is scored on the clips drawn and counts by how many of its own clips these
    are; so a run on a film that was not drawn counts nothing, and where all runs share a test
    set the mean is the plain one. None where there is one film only, or the score is undefined
    in more than half of the draws.
    """
    films = sorted({film for run in runs for film in run.films})
    number = {film: place for place, film in enumerate(films)}
    columns = [np.array([number[film] for film in run.films]) for run in runs]
    drawn = draw_films(len(films), seed=seed, replicates=replicates)
    step = max(1, CELLS // max(len(run.labels) for run in runs))
    parts = [_means(runs, columns, drawn[at : at + step]) for at in range(0, replicates, step)]
    return {
        name: middle(np.concatenate([part[name] for part in parts])) if len(films) > 1 else None
        for name in parts[0]
    }


def too_few(classes: Iterable[int], films: int) -> str:
    """Why an interval would look surer than it is, given the clips of each class; else empty.

    Few clips or films that are all alike give a narrow interval, which is no certainty.
    """
    if min(classes) < FEW_CLIPS:
        return "too few clips to say"
    return "too few films to say" if films < FEW_FILMS else ""


def draw_films(count: int, *, seed: int, replicates: int = REPLICATES) -> Array:
    """How often each of `count` films is drawn [replicates, count], with replacement."""
    return np.random.default_rng(seed).multinomial(
        count, np.full(count, 1 / count), size=replicates
    )


def middle(values: Array) -> tuple[float, float] | None:
    """The ends of the middle 95% of a value a draw; None if more than half are undefined."""
    there = values[~np.isnan(values)]
    if len(there) <= len(values) / 2:
        return None
    low, high = np.quantile(there, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def _means(runs: Sequence[Scored], columns: Sequence[Array], drawn: Array) -> dict[str, Array]:
    """Each score's weighted mean over the runs, a value a draw."""
    tops: dict[str, Array] = {}
    bottoms: dict[str, Array] = {}
    for run, column in zip(runs, columns, strict=True):
        # A run on few films is drawn in few ways: each is scored once.
        films, place = np.unique(column, return_inverse=True)
        ways, which = np.unique(drawn[:, films], axis=0, return_inverse=True)
        weights = ways[:, place].astype(np.float64)
        share = weights.mean(axis=1)[which.ravel()]
        scores = weighted_scores(run.labels, run.probabilities, weights)
        if run.trec is not None:
            ranked = ranking_scores(run.labels, run.trec, weights)
            scores["trec_average_precision"] = ranked["average_precision"]
        for name, of_ways in scores.items():
            values = of_ways[which.ravel()]
            there = ~np.isnan(values)
            tops[name] = tops.get(name, 0) + np.where(there, values, 0) * share
            bottoms[name] = bottoms.get(name, 0) + there * share
    return {
        name: np.divide(top, bottoms[name], out=np.full_like(top, np.nan), where=bottoms[name] > 0)
        for name, top in tops.items()
    }
