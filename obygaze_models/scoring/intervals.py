"""Scores by group of clips, such as a film; their mean; and how sure it is.

The score of a model is the mean over films of its score on each film, because a model is used on
films that it has not seen, one at a time. The films are the sample, so the interval of the mean is
a t interval over the films' scores, and two models are compared by the paired t test of their
scores on the same films. `benchmarks/intervals.py` shows by simulation what the intervals cover.

Where the score of a film is not defined, as that of a film whose clips are all of one class, the
film does not count. Where fewer than two films count, all clips are scored together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from obygaze_models.scoring.metrics import Scores, score, trec_ranks

LEVEL = 0.95
MIN_CLIPS, MIN_GROUPS = 10, 5
"""Fewer clips of a class, or fewer groups, have no interval."""
MIN_SHARE = 0.1
"""Where a smaller share of the clips is positive, `Metric.skewed` scores have no interval."""
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class TestedClips:
    """A model's predictions on a test set; a clip that several fits tested has several rows.

    Parameters
    ----------
    ids
        The clip of each row.
    labels
        The class of each row, from 0 on.
    probabilities
        [N] of the positive class, or [N, classes].
    groups
        The film of each row, or what else was kept together; empty where none is named.
    classes
        How many classes there are.
    trec
        Whether trec_eval's average precision is among the scores.
    """

    ids: Sequence[str]
    labels: Array
    probabilities: Array
    groups: Sequence[str]
    classes: int = 2
    trec: bool = False

    def score(self, rows: Array) -> Scores:
        """Return the scores of some rows, no clip twice."""
        ranks = None
        if self.trec:
            ranks = trec_ranks([self.ids[row] for row in rows], self.probabilities[rows])
        return score(self.labels[rows], self.probabilities[rows], ranks)


@dataclass(frozen=True, eq=False)
class GroupScores:
    """The scores of one model on each group of a test set.

    Parameters
    ----------
    groups
        The groups that count, in order; one without a name where all clips are scored together.
    left_out
        The groups that lack clips of a class.
    unnamed
        How many clips have no group, and are left out.
    values
        By metric the score of each group; NaN where it is not defined.
    """

    groups: list[str]
    left_out: list[str]
    unnamed: int
    values: Mapping[str, Array]

    @property
    def pooled(self) -> bool:
        """Whether all clips are scored together."""
        return self.groups == [""]


@dataclass(frozen=True)
class Estimate:
    """A mean over groups.

    Parameters
    ----------
    value
        The mean; None where it is not defined for any group.
    interval
        Its 95% interval; None where `why` says why there is none.
    groups
        How many groups count.
    p_value
        Of the t test that the mean is 0: of differences, for instance.
    """

    value: float | None
    interval: tuple[float, float] | None = None
    groups: int = 0
    p_value: float | None = None


def score_groups(clips: TestedClips) -> GroupScores:
    """Score each group of clips by itself.

    A clip that several fits tested is scored in as many rounds, each fit's prediction in one of
    them, and a group's score is the mean over the rounds.
    """
    names, members = np.unique(np.asarray(clips.groups, dtype=str), return_inverse=True)
    rounds = _number_repeats(clips.ids)
    complete, left_out = [], []
    for number, name in enumerate(names.tolist()):
        if not name:
            continue
        rows = np.flatnonzero(members == number)
        has_all = len(np.unique(clips.labels[rows])) == clips.classes
        (complete if has_all else left_out).append((name, rows))
    unnamed = len({clips.ids[row] for row in np.flatnonzero(np.asarray(clips.groups) == "")})
    if len(complete) < 2:
        complete, left_out, unnamed = [("", np.arange(len(clips.ids)))], [], 0
    scores = [_score_rounds(clips, rows, rounds) for _, rows in complete]
    values = {
        key: np.array([own.get(key) for own in scores], dtype=np.float64)  # None becomes NaN
        for key in scores[0]
    }
    counted = [name for name, _ in complete]
    return GroupScores(counted, [name for name, _ in left_out], unnamed, values)


def _number_repeats(ids: Sequence[str]) -> Array:
    """Number the rows of each clip, from 0 on."""
    order = np.argsort(np.asarray(ids), kind="stable")
    ordered = np.asarray(ids)[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(ordered)])
    numbers = np.empty(len(ordered), dtype=np.int64)
    numbers[order] = np.arange(len(ordered)) - np.repeat(starts, sizes)
    return numbers


def _score_rounds(clips: TestedClips, rows: Array, rounds: Array) -> Scores:
    """Return the mean of the scores over the rounds in which they are defined."""
    by_round = [clips.score(rows[rounds[rows] == number]) for number in np.unique(rounds[rows])]
    means: Scores = {}
    for key in by_round[0]:
        defined = [value for scores in by_round if (value := scores[key]) is not None]
        means[key] = float(np.mean(defined)) if defined else None
    return means


def estimate_mean(values: Array) -> Estimate:
    """Return the mean of groups' scores or differences, its t interval and its t test.

    Examples
    --------
    >>> estimate = estimate_mean(np.array([0.5, 0.6, 0.7, 0.6, 0.8, np.nan]))
    >>> round(estimate.value, 2), [round(end, 3) for end in estimate.interval], estimate.groups
    (0.64, [0.498, 0.782], 5)
    """
    defined = np.asarray(values, dtype=np.float64)
    defined = defined[~np.isnan(defined)]
    count = len(defined)
    if count == 0:
        return Estimate(None)
    mean = float(defined.mean())
    if count < MIN_GROUPS:
        return Estimate(mean, groups=count)
    low, high = t_interval(defined)
    spread = float(defined.std(ddof=1))
    if spread == 0:  # the same in every group
        p_value = 1.0 if mean == 0 else 0.0
    else:
        p_value = float(2 * stats.t.sf(abs(mean) / spread * count**0.5, count - 1))
    return Estimate(mean, (float(low), float(high)), count, p_value)


def t_interval(values: Array) -> tuple[Array, Array]:
    """Return the ends of the 95% t interval of means along the last axis.

    Examples
    --------
    >>> low, high = t_interval(np.array([0.5, 0.6, 0.7, 0.6, 0.8]))
    >>> round(float(low), 3), round(float(high), 3)
    (0.498, 0.782)
    """
    count = values.shape[-1]
    mean = values.mean(axis=-1)
    half = stats.t.ppf((1 + LEVEL) / 2, count - 1) * values.std(axis=-1, ddof=1) / count**0.5
    return mean - half, mean + half


def leave_each_out(groups: int) -> Array:
    """Return the weights of groups [1 + groups, groups] that `jackknife` needs.

    The first row has all groups, each other one all but one.
    """
    return np.vstack([np.ones((1, groups)), np.ones((groups, groups)) - np.eye(groups)])


def jackknife(values: Array) -> Estimate:
    """Return a statistic of the clips of all groups together, with its jackknife t interval.

    Parameters
    ----------
    values
        The statistic by each row of `leave_each_out`.

    Examples
    --------
    >>> scores = np.array([0.5, 0.6, 0.7, 0.6, 0.8])
    >>> weights = leave_each_out(5)
    >>> [round(end, 3) for end in jackknife(weights @ scores / weights.sum(axis=1)).interval]
    [0.498, 0.782]
    """
    value, *others = np.asarray(values, dtype=np.float64).tolist()
    groups = len(others)
    if np.isnan(value):
        return Estimate(None)
    pseudo = groups * value - (groups - 1) * np.array(others)
    if groups < MIN_GROUPS or np.isnan(pseudo).any():
        return Estimate(value, groups=groups)
    low, high = t_interval(pseudo - pseudo.mean() + value)
    return Estimate(value, (float(low), float(high)), groups)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values for their number by Holm's method; None stays None.

    Examples
    --------
    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    known = [(value, row) for row, value in enumerate(p_values) if value is not None]
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (value, row) in enumerate(sorted(known)):
        highest = max(highest, min(1.0, value * (len(known) - rank)))
        adjusted[row] = highest
    return adjusted


def too_few(classes: Iterable[int], groups: int) -> str:
    """Return why there is no interval, given the clips of each class; empty if there is one.

    Few clips or films that are all alike give a narrow interval, which does not mean certainty.
    """
    if min(classes) < MIN_CLIPS:
        return "too few clips to say"
    return "too few films to say" if groups < MIN_GROUPS else ""
