"""Intervals of scores, and of differences between two models, from draws of films.

Films are drawn, not clips: a draw takes as many films as there are, with replacement, and all their
clips. The clips of a film are alike, so that the interval tells how scores would vary with other
films of the kind, and it is wider than an interval over clips. A clip without a film may be of any
of them: it is in no draw.

Two models are scored on the same draws: what makes a film hard for both cancels out of their
difference, whose interval is narrower than their own two intervals suggest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.scoring.metrics import METRICS, score, weighted_scores

REPLICATES = 1000
LEVEL = 0.95
MAX_CELLS = 4_000_000
"""Weights that are in memory at a time."""
MIN_CLIPS, MIN_FILMS = 10, 5
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ScoredClips:
    """What a fit's scores on a test set are computed from.

    Parameters
    ----------
    labels, probabilities, trec
        As in `obygaze_models.scoring.metrics.score`.
    films
        The film of each clip; "" where it has none.
    """

    labels: Array
    probabilities: Array
    films: Sequence[str]
    trec: Array | None = None


@dataclass(frozen=True)
class Difference:
    """A score of two models on the same clips.

    Parameters
    ----------
    first, second, difference
        The scores, and the first minus the second; None where undefined.
    interval
        The middle 95% of the difference over draws of films; None where there are too few,
        or for a score that is not resampled (the AUROC of three classes and more).
    ahead
        The share of draws in which the first is the better one; a tie counts half.
    """

    first: float | None
    second: float | None
    difference: float | None
    interval: tuple[float, float] | None
    ahead: float | None


def film_intervals(
    fits: Sequence[ScoredClips], *, seed: int, replicates: int = REPLICATES
) -> dict[str, tuple[float, float] | None]:
    """For each score the middle 95% of its mean over fits, from draws of films.

    In a draw each fit is scored on the clips drawn, and is weighted by how many of its own clips
    these are. So a fit on a film that was not drawn has no weight, and where all fits share a test
    set the mean is the plain one. None where there are fewer than `MIN_FILMS`, or the score is
    undefined in at least half of the draws. Clips without a film are left out.
    """
    column, count = film_columns([film for fit in fits for film in fit.films])
    columns = np.split(column, np.cumsum([len(fit.films) for fit in fits])[:-1])
    drawn = add_unnamed(draw_films(count, seed=seed, replicates=replicates))
    step = max(1, MAX_CELLS // max(len(fit.labels) for fit in fits))
    parts = [
        _weighted_means(fits, columns, drawn[start : start + step])
        for start in range(0, replicates, step)
    ]
    return {
        key: percentile_interval(np.concatenate([part[key] for part in parts]))
        if count >= MIN_FILMS
        else None
        for key in parts[0]
    }


def paired_differences(
    labels: Array,
    first: Array,
    second: Array,
    films: Sequence[str],
    *,
    seed: int = 0,
    replicates: int = REPLICATES,
) -> dict[str, Difference]:
    """The `Difference` of two models in each score.

    Parameters
    ----------
    labels
        A class from 0 on for each clip.
    first, second
        Two models' probabilities: [N] of the positive class, or [N, classes].
    films
        The film of each clip; "" where it has none.
    seed, replicates
        Of the draws.
    """
    first_scores, second_scores = score(labels, first), score(labels, second)
    column, count = film_columns(films)
    draws: dict[str, list[Array]] = {}
    if count >= MIN_FILMS:
        drawn = add_unnamed(draw_films(count, seed=seed, replicates=replicates))
        step = max(1, MAX_CELLS // len(labels))
        for start in range(0, replicates, step):
            weights = drawn[start : start + step, column].astype(np.float64)
            second_draws = weighted_scores(labels, second, weights)
            for key, values in weighted_scores(labels, first, weights).items():
                draws.setdefault(key, []).append(values - second_draws[key])
    return {
        key: _difference(key, value, second_scores[key], draws.get(key, []))
        for key, value in first_scores.items()
    }


def _difference(
    key: str, first: float | None, second: float | None, draws: Sequence[Array]
) -> Difference:
    difference = None if first is None or second is None else first - second
    values = np.concatenate([[], *draws])
    interval = percentile_interval(values)
    if interval is None:
        return Difference(first, second, difference, None, None)
    values = values[~np.isnan(values)]
    better = values < 0 if METRICS[key].lower_is_better else values > 0
    ahead = float(better.mean() + (values == 0).mean() / 2)
    return Difference(first, second, difference, interval, ahead)


def too_few(classes: Iterable[int], films: int) -> str:
    """Why an interval would look surer than it is, given the clips of each class; else empty.

    Few clips or films that are all alike give a narrow interval, which does not mean certainty;
    that of three or four films is hardly more than from the least to the greatest.
    """
    if min(classes) < MIN_CLIPS:
        return "too few clips to say"
    return "too few films to say" if films < MIN_FILMS else ""


def percentile_interval(values: Array) -> tuple[float, float] | None:
    """The ends of the middle 95% of the values; None if at least half of them are NaN."""
    defined = values[~np.isnan(values)]
    if len(defined) <= len(values) / 2:
        return None
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def film_columns(films: Sequence[str]) -> tuple[Array, int]:
    """Return the number of each clip's film, and how many films there are.

    Clips without a film have -1, the column that `add_unnamed` appends.
    """
    names = sorted({*films} - {""})
    number = {"": -1} | {film: index for index, film in enumerate(names)}
    return np.array([number[film] for film in films]), len(names)


def draw_films(count: int, *, seed: int, replicates: int) -> Array:
    """How often each of `count` films is drawn [replicates, count], with replacement."""
    shares = np.full(max(count, 1), 1 / max(count, 1))
    return np.random.default_rng(seed).multinomial(count, shares, size=replicates)[:, :count]


def add_unnamed(drawn: Array) -> Array:
    """Append a column of zeros to draws of films: clips without a film are in none."""
    return np.pad(drawn, ((0, 0), (0, 1)))


def _weighted_means(
    fits: Sequence[ScoredClips], columns: Sequence[Array], drawn: Array
) -> dict[str, Array]:
    """Each score's weighted mean over the fits [draws]."""
    sums: dict[str, Array] = {}
    shares: dict[str, Array] = {}
    for fit, column in zip(fits, columns, strict=True):
        # A fit on few films has few different draws: each is scored once.
        films, film_of_clip = np.unique(column, return_inverse=True)
        different, draw = np.unique(drawn[:, films], axis=0, return_inverse=True)
        draw = draw.ravel()
        weights = different[:, film_of_clip].astype(np.float64)
        share = weights.mean(axis=1)[draw]
        scores = weighted_scores(fit.labels, fit.probabilities, weights, fit.trec)
        for key, of_different in scores.items():
            values = of_different[draw]
            defined = ~np.isnan(values)
            sums[key] = sums.get(key, 0) + np.where(defined, values, 0) * share
            shares[key] = shares.get(key, 0) + defined * share
    return {
        key: np.divide(total, shares[key], out=np.full_like(total, np.nan), where=shares[key] > 0)
        for key, total in sums.items()
    }
