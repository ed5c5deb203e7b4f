"""Scores within groups of clips (such as films) and across groups, and their intervals.

Two questions are always answered, each with its number of clips and films. *Within films*: given
two clips of one film, how well does a model tell them apart? The score is the mean of the scores of
the films that have two or more clips of each class, with a t interval over these films. *Across
films*: given any two held-out clips? The score is that of all clips together, except that two
ratings are only compared if the same fit made them, because different fits have different scales.
Its interval is a jackknife that leaves out one film at a time. The protocol decides which of the
two leads: if each fit tests a single film, the one within films.

In cross-validation, a film is in the training set of fits that are tested on other films, and vice
versa. Random similarities between two films affect the scores of both, so scores vary more than
independent ones. See `variance_factor`. `benchmarks/intervals.py` measures the coverage of the
intervals by simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from obygaze_features.common.arrays import Array
from obygaze_models.scoring.metrics import (
    CLASSES,
    METRICS,
    TREC,
    Scores,
    score,
    trec_ranks,
    weighted_scores,
)
from obygaze_models.scoring.number_scores import NUMBER, none_if_nan, ratio

WITHIN = "within"
ACROSS = "across"
OVER = (WITHIN, ACROSS)
"""The two questions: about clips of one film, and of any held-out films."""
LEVEL = 0.95
MIN_CLIPS = 10
MIN_GROUPS = 5
"""The minimum numbers of clips of each class, and of groups, for an interval."""
MIN_OF_CLASS = 2
"""The minimum number of clips of each class in a group that is scored on its own."""
MIN_SHARE = 0.1
"""The minimum share of positive clips for an interval of `Metric.skewed` scores."""
CROSSED = "the variance of Nadeau and Bengio, because films or folds are left out in turn"
"""The reason for wider intervals of cross-validated scores, for readers."""
MAX_CELLS = 4_000_000
"""The maximum number of clips' weights in memory at a time."""


def lead_first(lead: str) -> list[str]:
    """Return both questions, beginning with the one that the protocol asks."""
    return sorted(OVER, key=lambda over: over != lead)


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
    target_key
        The kind of target. If it is not classes, labels and predictions are numbers.
    fits
        The number of the fit that made each prediction; by default one fit made all.
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
    target_key: str = CLASSES
    fits: Array | None = None
    is_mixed: bool = False

    @cached_property
    def rows_by_fit(self) -> list[Array]:
        """The rows of each fit."""
        if self.fits is None:
            return [np.arange(len(self.ids))]
        return [np.flatnonzero(self.fits == fit) for fit in np.unique(self.fits)]

    @property
    def folds(self) -> int:
        """The number of folds that were tested in turn; 1 if a fit tested all clips."""
        return max(1, round(len(self.rows_by_fit) / len(self.rounds)))

    @cached_property
    def lead(self) -> str:
        """The question that the protocol asks: `WITHIN` if each fit tests a single group."""
        for rows in self.rows_by_fit:
            if len({self.groups[row] for row in rows.tolist()}) > 1:
                return ACROSS
        return WITHIN if any(self.groups) else ACROSS

    @property
    def effective_groups(self) -> float:
        """The effective number of groups (Kish): (Σm)² / Σm², lower if a few have most clips.

        m is a group's number of clips of a class. The class with the lowest result counts.
        """
        rows = self.rounds[0]
        labels = np.zeros(len(rows), int) if self.is_numeric else self.labels[rows]
        sizes = pd.crosstab(np.asarray(self.groups)[rows], labels).drop("", errors="ignore")
        totals = sizes.sum().to_numpy()
        numbers = ratio(totals**2, (sizes**2).sum().to_numpy())
        return float(np.nan_to_num(numbers.min()))

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
        return self.target_key == NUMBER

    def has_enough(self, rows: Array) -> bool:
        """Return True if rows have two clips of every class or, for numbers, different values."""
        first = self.rounds[0]
        labels = self.labels[first[rows[first]]]
        if self.is_numeric:
            return len(np.unique(labels)) > 1
        return bool((np.bincount(labels, minlength=self.classes) >= MIN_OF_CLASS).all())

    def ranks(self, rows: Array) -> Array | None:
        """Return trec_eval's ranks for some rows, or None if the measure does not need ranks."""
        if self.measure != TREC:
            return None
        return trec_ranks([self.ids[row] for row in rows.tolist()], self.probabilities[rows])


@dataclass(frozen=True, eq=False)
class GroupScores:
    """The scores of one model on a test set, within groups and across groups.

    Parameters
    ----------
    clips
        The predictions.
    values
        A row for each scored group, and a column for each metric. Undefined scores are NaN.
    left_out
        The groups without a row, because their labels do not vary enough.
    across
        The scores of all clips for each row of `weigh_groups`, for `estimate_weighted`.
    """

    clips: ScoredClips
    values: pd.DataFrame
    left_out: list[str]
    across: Mapping[str, Array]

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
    groups, effective
        The number of groups in the mean or score, and their effective number.
    clips
        The number of clips.
    p_value
        The p-value of a t-test of a difference against 0; None for a score.
    error
        The standard error; None if there is no interval.
    """

    value: float | None
    interval: tuple[float, float] | None = None
    groups: int = 0
    effective: float = 0.0
    clips: int = 0
    p_value: float | None = None
    error: float | None = None

    def p_against(self, other: float) -> float | None:
        """Return the p-value of a t-test of the value against another; None if undefined."""
        if self.value is None or self.error is None:
            return None
        distance = abs(self.value - other)
        if self.error == 0:  # the same score in every group
            return 1.0 if distance == 0 else 0.0
        return float(2 * stats.t.sf(distance / self.error, self.effective - 1))


class Estimates(NamedTuple):
    """The estimates of each score: within groups, and across groups."""

    within: dict[str, Estimate]
    across: dict[str, Estimate]


@dataclass(frozen=True)
class Difference:
    """The scores of a model and a reference on the same clips, and their difference."""

    model: Estimate
    reference: Estimate
    difference: Estimate


def score_groups(clips: ScoredClips) -> GroupScores:
    """Score each group that has enough clips (averaging over rounds), and all clips together."""
    names, members = np.unique(np.asarray(clips.groups, dtype=str), return_inverse=True)
    rows = {}
    left_out = []
    for number, name in enumerate(names.tolist()):
        if not name:
            continue
        if clips.has_enough(members == number):
            rows[name] = _score_rounds(clips, members == number)
        else:
            left_out.append(name)
    across = score_across(clips)
    keys = [*rows[next(iter(rows))]] if rows else [*across]
    values = pd.DataFrame.from_dict(rows, orient="index", columns=keys, dtype=np.float64)
    return GroupScores(clips, values, left_out, across)


def _score_rounds(clips: ScoredClips, chosen: Array) -> Scores:
    """Return the mean of each score over the rounds in which it is defined."""
    by_round = []
    for rows in clips.rounds:
        of_round = rows[chosen[rows]]
        if len(of_round):
            values = clips.labels[of_round], clips.probabilities[of_round], clips.ranks(of_round)
            by_round.append(score(*values, clips.target_key))
    return mean_scores(by_round)


def mean_scores(
    scores: Sequence[Scores],
    statistic: Callable[[list[float]], Any] = np.mean,
) -> Scores:
    """Return the mean (or another statistic) of each score, or None if it is never defined."""
    means: Scores = {}
    for key in scores[0]:
        defined = [value for each in scores if (value := each[key]) is not None]
        means[key] = None
        if defined:
            means[key] = float(statistic(defined))
    return means


def score_across(clips: ScoredClips) -> dict[str, Array]:
    """Score all clips for each row of `weigh_groups`.

    Scores that compare the ratings of two clips are means over fits, weighted by each fit's pairs
    (for numbers, its clips). They are undefined if each fit tests a single group. So is average
    precision, which ranks all clips, if they were tested in several folds.
    """
    members, count = group_columns(clips.groups)
    weights = weigh_groups(count)
    step = max(1, MAX_CELLS // len(clips.ids))
    blocks = []
    for start in range(0, len(weights), step):
        drawn = weights[start : start + step]
        rounds = []
        for rows in clips.rounds:
            values = clips.labels[rows], clips.probabilities[rows]
            ranks = clips.ranks(rows)
            rounds.append(
                weighted_scores(*values, drawn[:, members[rows]], ranks, clips.target_key)
            )
        scores = {key: np.mean([part[key] for part in rounds], axis=0) for key in rounds[0]}
        blocks.append(scores | _rank_by_fit(clips, drawn[:, members]))
    return {key: np.concatenate([block[key] for block in blocks]) for key in blocks[0]}


def _rank_by_fit(clips: ScoredClips, weights: Array) -> dict[str, Array]:
    """Return the scores that compare clips, from pairs of clips that the same fit rated."""
    undefined = np.full(len(weights), np.nan)
    keys = ["spearman", "pearson"] if clips.is_numeric else ["auroc", "average_precision"]
    if clips.lead == WITHIN:
        return dict.fromkeys(keys, undefined)
    if clips.is_numeric:
        return {key: _mean_over_fits(clips, weights, key) for key in keys}
    columns = clips.probabilities
    if columns.ndim == 2:
        areas = []
        for code, column in enumerate(columns.T):
            labels = (clips.labels == code).astype(int)
            one_class = replace(clips, labels=labels, probabilities=column)
            areas.append(_mean_over_fits(one_class, weights, "auroc"))
        return {"auroc": np.mean(areas, axis=0)}
    scores = {"auroc": _mean_over_fits(clips, weights, "auroc")}
    if clips.folds > 1:
        scores["average_precision"] = undefined
    return scores


def _mean_over_fits(clips: ScoredClips, weights: Array, key: str) -> Array:
    """Return the mean of a score over fits, weighted by their pairs (AUROC) or their clips."""
    top = bottom = np.zeros(len(weights))
    for rows in clips.rows_by_fit:
        of_fit = weights[:, rows]
        labels = clips.labels[rows]
        values = weighted_scores(labels, clips.probabilities[rows], of_fit, None, clips.target_key)
        sizes = of_fit.sum(axis=1)
        if key == "auroc":
            positives = of_fit[:, labels == 1].sum(axis=1)
            sizes = positives * (sizes - positives)
        top = top + np.nan_to_num(values[key]) * sizes
        bottom = bottom + np.where(np.isnan(values[key]), 0.0, sizes)
    return ratio(top, bottom)


def estimate_scores(scored: GroupScores, *, least: float = 0.0, folds: int = 0) -> Estimates:
    """Estimate each score and its interval, within groups and across groups.

    Intervals of bounded scores and differences are clipped to the range from `least` to 1. `folds`
    are by default those of the clips.
    """
    clips = scored.clips
    folds = folds or clips.folds
    effective = clips.effective_groups
    counts = [0] if clips.is_mixed else clips.class_counts
    alone = np.isin(np.asarray(clips.groups)[clips.rounds[0]], scored.values.index.astype(str))
    within = {}
    for key in scored.values.columns.tolist():
        estimate = estimate_mean(scored.values[key].to_numpy(), cross_validated=folds > 1)
        estimate = replace(estimate, clips=int(alone.sum()))
        within[key] = restrict(estimate, key, counts, least=least)
    across = {}
    for key, values in scored.across.items():
        estimate = estimate_weighted(values, folds=folds, effective=effective)
        estimate = replace(estimate, clips=len(clips.rounds[0]))
        # Without folds, the jackknife of skewed scores is too narrow.
        enough = [0] if METRICS[key].skewed and folds == 1 else counts
        across[key] = restrict(estimate, key, enough, least=least)
    return Estimates(within, across)


def estimate_differences(
    model: GroupScores,
    reference: GroupScores,
) -> dict[str, dict[str, Difference]]:
    """Estimate the differences between two models' scores, within and across groups, by score."""
    folds = max(model.clips.folds, reference.clips.folds)
    shared = model.values.columns.intersection(reference.values.columns)
    across = {}
    for key in model.across:
        if key in reference.across:  # one model may lack an official measure
            across[key] = model.across[key] - reference.across[key]
    apart = replace(model, values=(model.values - reference.values)[[*shared]], across=across)
    if reference.clips.is_mixed:
        apart = replace(apart, clips=reference.clips)
    differences = estimate_scores(apart, least=-1.0, folds=folds)
    first = estimate_scores(model)
    second = estimate_scores(reference)
    tables: dict[str, dict[str, Difference]] = {}
    for over, scores, others, gaps in zip(OVER, first, second, differences, strict=True):
        tables[over] = {}
        for key, difference in gaps.items():
            tested = replace(difference, p_value=difference.p_against(0.0))
            tables[over][key] = Difference(scores[key], others[key], tested)
    return tables


def restrict(
    estimate: Estimate,
    key: str,
    class_counts: Sequence[int],
    *,
    least: float,
) -> Estimate:
    """Return an estimate without its interval if there is not enough data.

    The interval of a bounded score is clipped to the range from `least` to 1.
    """
    if shortage(class_counts, estimate.effective, key):
        return replace(estimate, interval=None, error=None)
    if METRICS[key].bounded and estimate.interval is not None:
        low, high = estimate.interval
        return replace(estimate, interval=(max(least, low), min(1.0, high)))
    return estimate


def estimate_mean(values: Array, *, cross_validated: bool = False) -> Estimate:
    """Estimate the mean of groups' scores or differences, with its t interval.

    In cross-validation, the variance of the mean is multiplied by `variance_factor`.

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
        return Estimate(mean, groups=count, effective=count)
    factor = variance_factor(count) if cross_validated else 1.0
    error = float(defined.std(ddof=1) / count**0.5 * factor**0.5)
    return _with_error(Estimate(mean, groups=count, effective=count), error)


def _with_error(estimate: Estimate, error: float) -> Estimate:
    """Return an estimate with its standard error and its 95% t interval."""
    half = float(stats.t.ppf((1 + LEVEL) / 2, estimate.effective - 1)) * error
    value: Any = estimate.value
    return replace(estimate, interval=(value - half, value + half), error=error)


def variance_factor(folds: int) -> float:
    """Return the factor by which cross-validation increases the variance of a score.

    For k folds, Nadeau and Bengio (2003) add the ratio of tested to training data, 1/(k - 1), to
    1/k, so that the variance is s² (1/k + 1/(k - 1)). In a mean over groups, each group is a fold.

    >>> variance_factor(5), variance_factor(1)
    (2.25, 1.0)
    """
    return 1 + folds / (folds - 1) if folds > 1 else 1.0


def group_columns(groups: Sequence[str]) -> tuple[Array, int]:
    """Return the column of each clip's group, and the number of groups.

    The column of clips without a group is -1, the last column of `weigh_groups`.
    """
    codes, names = pd.factorize(pd.Series(groups, dtype=object).replace("", None), sort=True)
    return codes, len(names)


def weigh_groups(count: int) -> Array:
    """Return the weights [2 + count, count + 1] for `estimate_weighted`.

    The first row has all clips. The others leave out clips without a group, which could belong to
    any group. The second row has all groups, and each of the rest leaves out one group.
    """
    weights = np.ones((2 + count, 1 + count))
    weights[1:, count] = 0
    weights[2:, :count] -= np.eye(count)
    return weights


def estimate_weighted(
    values: Array,
    *,
    folds: int = 1,
    effective: float | None = None,
) -> Estimate:
    """Estimate a statistic of all clips with the jackknife t interval of all groups together.

    Parameters
    ----------
    values
        The statistic for each row of `weigh_groups`.
    folds
        The number of folds; see `variance_factor`.
    effective
        The effective number of groups; by default their number. There is no interval if it is less
        than `MIN_GROUPS`.

    Examples
    --------
    >>> scores = np.array([0.5, 0.6, 0.7, 0.6, 0.8, 0.0])
    >>> weights = weigh_groups(5)
    >>> estimate = estimate_weighted(weights @ scores / weights.sum(axis=1))
    >>> round(estimate.value, 3), [round(end, 3) for end in estimate.interval]
    (0.533, [0.498, 0.782])
    """
    total, value, *others = np.asarray(values, dtype=np.float64).tolist()
    groups = len(others)
    effective = groups if effective is None else effective
    estimate = Estimate(none_if_nan(value), groups=groups, effective=effective)
    if effective >= MIN_GROUPS and not np.isnan([value, *others]).any():
        deviations = np.array(others) - np.mean(others)
        spread = (groups - 1) / groups * (deviations**2).sum()
        estimate = _with_error(estimate, float((spread * variance_factor(folds)) ** 0.5))
    return replace(estimate, value=none_if_nan(total))


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


def shortage(
    classes: Collection[int],
    groups: float,
    metric: str = "",
    *,
    noun: str = "film",
) -> str:
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
