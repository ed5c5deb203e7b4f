"""Scores of each group of clips (such as a film), their mean, and its confidence interval.

Models are meant for films that they have not seen, so a model's score is the mean of its scores on
single films. The films are the sample. The interval of the mean is a t interval over films, and two
models are compared by a paired t-test over films. `benchmarks/intervals.py` measures the coverage
of the intervals by simulation.

In cross-validation, a film is in the training set of fits that are tested on other films, and vice
versa. Random similarities between two films affect the scores of both, so the mean varies more
than the mean of independent scores. See `cross_validation_factor`.

Films with undefined scores, for example because all clips have the same class, are left out. If
fewer than two films remain, all clips are scored together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from obygaze_models.scoring.metrics import (
    CLASSES,
    METRICS,
    TREC,
    Array,
    Scores,
    score,
    trec_ranks,
    weighted_scores,
)
from obygaze_models.scoring.number_scores import NUMBER, none_if_nan

LEVEL = 0.95
MIN_CLIPS = 10
MIN_GROUPS = 5
"""The minimum numbers of clips of each class, and of groups, for an interval."""
MIN_SHARE = 0.1
"""The minimum share of positive clips for an interval of `Metric.skewed` scores."""
CROSSED = "the variance of Nadeau and Bengio, because films or folds are left out in turn"
"""The reason for wider intervals of cross-validated scores, for readers."""
MAX_CELLS = 4_000_000
"""The maximum number of clips' weights in memory at a time."""


@dataclass(frozen=True, eq=False)
class ScoredClips:
    """A model's predictions on a test set, with a row for each clip and each fit that tested it.

    Parameters
    ----------
    ids
        The clip of each row.
    labels
        The class code of each row, from 0.
    probabilities
        The probabilities [N] of the positive class, or [N, classes].
    groups
        The film (or other group) of each row; "" for rows without a group.
    classes
        The number of classes.
    measure
        The benchmark's official measure, if any. It is computed on all clips together.
    kind
        The kind of target. If it is not classes, labels and predictions are numbers.
    cross_validated
        True if fits are trained on clips that other fits test.
    is_mixed
        True if fits are trained on clips of the groups that they test. There are then no intervals,
        because the scores say nothing about other groups.
    """

    ids: Sequence[str]
    labels: Array
    probabilities: Array
    groups: Sequence[str]
    classes: int = 2
    measure: str = ""
    kind: str = CLASSES
    cross_validated: bool = False
    is_mixed: bool = False

    @cached_property
    def rounds(self) -> list[Array]:
        """The rows of each round. A clip that was tested by n fits is in n rounds, once in each."""
        ids = pd.Series(self.ids)
        numbers = ids.groupby(ids).cumcount().to_numpy()
        return [np.flatnonzero(numbers == number) for number in range(numbers.max() + 1)]

    @property
    def class_counts(self) -> list[int]:
        """The number of clips of each class, or of all clips for numbers. Each clip counts once."""
        labels = self.labels[self.rounds[0]]
        if self.is_numeric:
            return [len(labels)]
        counts: list[int] = np.bincount(labels, minlength=self.classes).tolist()
        return counts

    @property
    def is_numeric(self) -> bool:
        """True if labels and predictions are numbers."""
        return self.kind == NUMBER

    def has_enough(self, rows: Array) -> bool:
        """Return True if rows have clips of every class or, for numbers, two different values."""
        different = len(np.unique(self.labels[rows]))
        return different > 1 if self.is_numeric else different == self.classes

    def ranks(self, rows: Array) -> Array | None:
        """Return trec_eval's ranks for some rows, or None if the measure does not need ranks."""
        if self.measure != TREC:
            return None
        return trec_ranks([self.ids[row] for row in rows.tolist()], self.probabilities[rows])


@dataclass(frozen=True, eq=False)
class GroupScores:
    """The scores of one model on each group of a test set.

    Parameters
    ----------
    values
        A row for each scored group, and a column for each metric. Undefined scores are NaN. If all
        clips are scored together, there is a single row named "".
    left_out
        The groups that are left out, because their labels do not vary enough.
    class_counts
        The number of clips of each class.
    together
        The scores of all clips together, in the form that `estimate_weighted` needs.
    cross_validated, is_mixed
        See `ScoredClips`.
    """

    values: pd.DataFrame
    left_out: list[str]
    class_counts: list[int]
    together: Mapping[str, Array]
    cross_validated: bool
    is_mixed: bool

    @property
    def pooled(self) -> bool:
        """True if all clips are scored together."""
        return self.values.index.tolist() == [""]

    def by_name(self) -> dict[str, Scores]:
        """Return the scores of each group, with None for undefined scores."""
        values = self.values.astype(object).where(self.values.notna(), None)
        scores: Any = values.to_dict("index")
        return dict(scores)


@dataclass(frozen=True)
class Estimate:
    """A mean over groups, or a score of all groups together.

    Parameters
    ----------
    value
        The mean or score; None if it is undefined.
    interval
        The 95% interval; None if there is not enough data.
    groups
        The number of groups in the mean or score.
    p_value
        The p-value of a t-test of a mean difference against 0; None for a score.
    """

    value: float | None
    interval: tuple[float, float] | None = None
    groups: int = 0
    p_value: float | None = None


@dataclass(frozen=True)
class Difference:
    """The scores of a model and a reference on the same groups, and their difference."""

    model: Estimate
    reference: Estimate
    difference: Estimate


def score_groups(clips: ScoredClips, *, pooled: bool = False) -> GroupScores:
    """Score each group separately, averaging over rounds.

    Only groups with clips of every class, or with different numbers, are scored. If there are fewer
    than two such groups, all clips are scored as a single group named "". The benchmark's measure
    (if any), or all scores if `pooled` is True, are also computed on all clips together.
    """
    together = {}
    if pooled or clips.measure:
        scores = score_pooled(clips)
        together = scores if pooled else {clips.measure: scores[clips.measure]}
    names, members = np.unique(np.asarray(clips.groups, dtype=str), return_inverse=True)
    complete: list[int] = []
    left_out: list[int] = []
    for number, name in enumerate(names.tolist()):
        if name:
            (complete if clips.has_enough(members == number) else left_out).append(number)
    if len(complete) < 2:
        names = np.array([""])
        members = np.zeros_like(members)
        complete = [0]
        left_out = []
    by_group = [_score_rounds(clips, members == number) for number in complete]
    values = pd.DataFrame(by_group, index=names[complete], dtype=np.float64)  # None becomes NaN
    return GroupScores(
        values=values,
        left_out=names[left_out].tolist(),
        class_counts=clips.class_counts,
        together=together,
        cross_validated=clips.cross_validated,
        is_mixed=clips.is_mixed,
    )


def _score_rounds(clips: ScoredClips, chosen: Array) -> Scores:
    """Return the mean of each score over the rounds in which it is defined."""
    by_round = []
    for rows in clips.rounds:
        own = rows[chosen[rows]]
        if len(own):
            values = clips.labels[own], clips.probabilities[own], clips.ranks(own)
            by_round.append(score(*values, clips.kind))
    return mean_scores(by_round)


def mean_scores(
    scores: Sequence[Scores],
    statistic: Callable[[list[float]], Any] = np.mean,
) -> Scores:
    """Return the mean (or another statistic) of each score, or None if it is never defined."""
    means: Scores = {}
    for key in scores[0]:
        defined = [value for own in scores if (value := own[key]) is not None]
        means[key] = None
        if defined:
            means[key] = float(statistic(defined))
    return means


def score_pooled(clips: ScoredClips) -> dict[str, Array]:
    """Score all clips together for each row of `weigh_groups`, for `estimate_weighted`."""
    members, count = group_columns(clips.groups)
    weights = weigh_groups(count)
    step = max(1, MAX_CELLS // len(clips.ids))
    parts = []
    for start in range(0, len(weights), step):
        by_round = []
        for rows in clips.rounds:
            own = weights[start : start + step, members[rows]]
            values = clips.labels[rows], clips.probabilities[rows]
            by_round.append(weighted_scores(*values, own, clips.ranks(rows), clips.kind))
        parts.append(_combine(by_round, partial(np.mean, axis=0)))
    return _combine(parts, np.concatenate)


def _combine(parts: Sequence[dict[str, Array]], join: Callable[..., Any]) -> dict[str, Array]:
    return {key: join([part[key] for part in parts]) for key in parts[0]}


def estimate_scores(scored: GroupScores) -> dict[str, Estimate]:
    """Estimate the mean and interval of each score of a test set."""
    estimates = _estimate_each(scored)
    # A score is not tested against 0.
    return {key: replace(estimate, p_value=None) for key, estimate in estimates.items()}


def _estimate_each(scored: GroupScores, *, least: float = 0.0) -> dict[str, Estimate]:
    """Estimate each column; a bounded score or difference is between `least` and 1."""
    estimates = {}
    for key in scored.values.columns.tolist():
        if key in scored.together:
            values = scored.together[key]
            estimate = estimate_weighted(values, cross_validated=scored.cross_validated)
        else:
            values = scored.values[key].to_numpy()
            estimate = estimate_mean(values, cross_validated=scored.cross_validated)
        if scored.is_mixed:
            estimate = replace(estimate, interval=None, p_value=None)
        estimates[key] = restrict(estimate, key, scored.class_counts, least=least)
    return estimates


def estimate_differences(model: GroupScores, reference: GroupScores) -> dict[str, Difference]:
    """Estimate the differences between two models' scores on the same clips."""
    first = estimate_scores(model)
    second = estimate_scores(reference)
    common = [key for key in first if key in second]  # one model may lack an official measure
    together = {}
    for key in model.together:
        if key in reference.together:
            together[key] = model.together[key] - reference.together[key]
    apart = replace(
        model,
        values=model.values[common] - reference.values[common],
        together=together,
        cross_validated=model.cross_validated or reference.cross_validated,
        is_mixed=model.is_mixed or reference.is_mixed,
    )
    differences = _estimate_each(apart, least=-1.0)
    return {key: Difference(first[key], second[key], differences[key]) for key in common}


def restrict(
    estimate: Estimate,
    key: str,
    class_counts: Sequence[int],
    *,
    least: float = 0.0,
) -> Estimate:
    """Return an estimate without its interval and p-value if there is not enough data.

    The interval of a bounded score is clipped to the range from `least` to 1.
    """
    if shortage(class_counts, estimate.groups, key):
        return replace(estimate, interval=None, p_value=None)
    return clip_interval(estimate, least) if METRICS[key].bounded else estimate


def clip_interval(estimate: Estimate, least: float = 0.0) -> Estimate:
    """Clip an interval to the range from `least` to 1, the bounds of the score."""
    if estimate.interval is None:
        return estimate
    low, high = estimate.interval
    return replace(estimate, interval=(max(least, low), min(1.0, high)))


def estimate_mean(values: Array, *, cross_validated: bool = False) -> Estimate:
    """Estimate the mean of groups' scores or differences, with its t interval and t-test.

    In cross-validation, the variance of the mean is multiplied by `cross_validation_factor`.

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
    low, high = t_interval(defined, cross_validated=cross_validated)
    error = float(standard_error(defined, cross_validated=cross_validated))
    if error == 0:  # the same score in every group
        p_value = 1.0 if mean == 0 else 0.0
    else:
        t = abs(mean) / error
        p_value = float(2 * stats.t.sf(t, count - 1))
    return Estimate(mean, (float(low), float(high)), count, p_value)


def standard_error(values: Array, *, cross_validated: bool = False) -> Array:
    """Return the standard error of means along the last axis."""
    count = values.shape[-1]
    error: Array = values.std(axis=-1, ddof=1) / count**0.5
    return error * cross_validation_factor(count) ** 0.5 if cross_validated else error


def cross_validation_factor(groups: int) -> float:
    """Return the factor by which cross-validation increases the variance of a mean over groups.

    For n groups, Nadeau and Bengio (2003) add the ratio of tested to training groups, 1/(n - 1), to
    1/n, so that the variance is s² (1/n + 1/(n - 1)).

    >>> cross_validation_factor(5)
    2.25
    """
    return 1 + groups / (groups - 1)


def t_interval(values: Array, *, cross_validated: bool = False) -> tuple[Array, Array]:
    """Return the lower and upper ends of the 95% t intervals of means along the last axis.

    Examples
    --------
    >>> low, high = t_interval(np.array([0.5, 0.6, 0.7, 0.6, 0.8]))
    >>> round(float(low), 3), round(float(high), 3)
    (0.498, 0.782)
    """
    mean = values.mean(axis=-1)
    error = standard_error(values, cross_validated=cross_validated)
    quantile = stats.t.ppf((1 + LEVEL) / 2, values.shape[-1] - 1)
    half = quantile * error
    return mean - half, mean + half


def leave_each_out(groups: int) -> Array:
    """Return the weights of groups [1 + groups, groups] for `jackknife`.

    The first row has all groups. Each of the other rows leaves out one group.
    """
    without_one = 1 - np.eye(groups)
    return np.vstack([np.ones((1, groups)), without_one])


def jackknife(values: Array, *, cross_validated: bool = False) -> Estimate:
    """Estimate a statistic of all groups together, with its jackknife t interval.

    Parameters
    ----------
    values
        The statistic for each row of `leave_each_out`.
    cross_validated
        See `estimate_mean`.

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
    return estimate_mean(pseudo - pseudo.mean() + value, cross_validated=cross_validated)


def group_columns(groups: Sequence[str]) -> tuple[Array, int]:
    """Return the column of each clip's group, and the number of groups.

    The column of clips without a group is -1, the last column of `weigh_groups`.
    """
    names = sorted({*groups} - {""})
    number = {"": -1} | {name: index for index, name in enumerate(names)}
    return np.array([number[name] for name in groups]), len(names)


def weigh_groups(count: int) -> Array:
    """Return the weights [2 + count, count + 1] for `estimate_weighted`.

    The first row has all clips. The other rows are from `leave_each_out`. They leave out clips
    without a group, which could belong to any group.
    """
    named = np.pad(leave_each_out(count), ((0, 0), (0, 1)))
    return np.vstack([np.ones(count + 1), named])


def estimate_weighted(values: Array, *, cross_validated: bool = False) -> Estimate:
    """Estimate a statistic of all clips with its jackknife interval, from rows of `weigh_groups`.

    Examples
    --------
    >>> scores = np.array([0.5, 0.6, 0.7, 0.6, 0.8, 0.0])
    >>> weights = weigh_groups(5)
    >>> estimate = estimate_weighted(weights @ scores / weights.sum(axis=1))
    >>> round(estimate.value, 3), [round(end, 3) for end in estimate.interval]
    (0.533, [0.498, 0.782])
    """
    estimate = jackknife(values[1:], cross_validated=cross_validated)
    return replace(estimate, value=none_if_nan(values[0]))


def holm(p_values: Iterable[float | None]) -> Array:
    """Adjust p-values for multiple comparisons by Holm's method. Missing ones are NaN.

    Examples
    --------
    >>> holm([0.01, None, 0.04, 0.03])
    array([0.03,  nan, 0.06, 0.06])
    """
    values = np.array([*p_values], dtype=np.float64)
    order = np.argsort(values)  # NaN last
    count = np.count_nonzero(~np.isnan(values))
    remaining = count - np.arange(len(values))
    highest = np.maximum.accumulate(values[order] * remaining)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1, highest)
    return adjusted


def shortage(classes: Collection[int], groups: int, metric: str = "", *, noun: str = "film") -> str:
    """Return the reason why there is no interval, or "" if there is enough data.

    Few clips or films can be alike by chance; the interval is then too narrow. Skewed metrics also
    need a tenth of the clips to be positive. `noun` is the word for a group.
    """
    counts = [*classes]
    if min(counts) < MIN_CLIPS:
        return "too few clips"
    if groups < MIN_GROUPS:
        return f"too few {noun}s"
    is_skewed = metric in METRICS and METRICS[metric].skewed
    if is_skewed and len(counts) == 2 and counts[1] < MIN_SHARE * sum(counts):
        return "too few positives"
    return ""
