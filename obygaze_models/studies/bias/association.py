"""The embedding association test, which compares X and Y by their nearness to A and B.

s(w) is the mean cosine of w with A minus the mean with B. The effect size d is the mean of s over
X minus the mean over Y, in standard deviations of s over both. T is the sum of s over X minus the
sum over Y. Of all partitions of X and Y into groups of the same sizes, p is the share whose T is at
least the observed T (one-sided). T values that differ only by rounding count as equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from obygaze_features.common.arrays import Array
from obygaze_features.errors import BiasError

Vectors = ArrayLike | Mapping[str, ArrayLike]
"""Embeddings: an array with one per row, or a mapping from names to embeddings."""
EXACT_UP_TO = 200_000
"""The maximum number of partitions that are all counted."""
# Scores come from cosines, so deviations up to this limit are rounding errors.
_ROUNDING = 1e-14


@dataclass(frozen=True)
class Settings:
    """The settings of an association test.

    Parameters
    ----------
    ddof
        1 for the standard deviation of a sample, 0 for that of a population.
    samples
        The number of random partitions, if there are more than `EXACT_UP_TO` in all.
    draws
        The number of bootstrap samples for the interval of d; 0 for no interval.
    seed
        The seed of the bootstrap samples and of the sampled partitions.
    """

    ddof: Literal[0, 1] = 1
    samples: int = 100_000
    draws: int = 2_000
    seed: int = 0


@dataclass(frozen=True)
class Association:
    """The result of an association test: d, the statistic T, and p.

    Parameters
    ----------
    p_is
        The method for p: exact (all partitions were counted) or sampled.
    partitions
        The number of counted partitions.
    low, high
        The ends of the 95% bootstrap interval of d; None if `draws` is 0 or a group has a single
        item.
    """

    d: float
    statistic: float
    p: float
    p_is: str
    partitions: int
    low: float | None
    high: float | None


def associate(
    x: Vectors, y: Vectors, a: Vectors, b: Vectors, settings: Settings = Settings()
) -> Association:
    """Test whether X is nearer to A than to B, compared with Y.

    Parameters
    ----------
    x, y, a, b
        Embeddings of nonzero length: an array with one per row, or a mapping from names to
        embeddings.

    Examples
    --------
    >>> x, y = [[1, 0], [2, 1], [1, 1]], [[0, 1], [1, 2], [1, 1.5]]
    >>> result = associate(x, y, [[1, 0], [1, 0.5]], [[0, 1], [0.5, 1]])
    >>> round(result.d, 6), round(result.statistic, 6), result.p
    (1.506042, 2.29512, 0.05)
    """
    x, y, a, b = _unit_vectors(X=x, Y=y, A=a, B=b)
    direction = a.mean(axis=0) - b.mean(axis=0)
    return _test(x @ direction, y @ direction, "X and Y", settings)


def associate_each(x: Vectors, a: Vectors, b: Vectors) -> list[Association]:
    """Test for each row of X whether it is nearer to A than to B.

    Here d is the mean cosine with A minus the mean cosine with B, in standard deviations of all
    these cosines. T is the sum with A minus the sum with B. p comes from partitions of A and B.
    """
    x, a, b = _unit_vectors(X=x, A=a, B=b)
    return [_test(a @ row, b @ row, "A and B", Settings()) for row in x]


def _test(first: Array, second: Array, groups: str, settings: Settings) -> Association:
    d = float(_effect_sizes(first, second, ddof=settings.ddof))
    if not math.isfinite(d):
        raise BiasError(f"all items in {groups} score the same, so d is undefined. Use others")
    p, p_is, partitions = _p(first, second, settings)
    draw = partial(_effect_sizes, ddof=settings.ddof)
    low, high = bootstrap_interval((first, second), draw, settings.draws, settings.seed)
    return Association(d, float(first.sum() - second.sum()), p, p_is, partitions, low, high)


def _effect_sizes(first: Array, second: Array, axis: int = -1, *, ddof: int) -> Array:
    """Return the effect sizes along an axis; NaN if all scores are the same."""
    deviation = np.concatenate([first, second], axis=axis).std(axis=axis, ddof=ddof)
    deviation = np.where(deviation <= _ROUNDING, np.nan, deviation)
    return np.asarray((first.mean(axis=axis) - second.mean(axis=axis)) / deviation)


def bootstrap_interval(
    samples: Sequence[Array],
    statistic: Callable[..., Array],
    draws: int,
    seed: int,
    **options: Any,
) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of the 95% bootstrap interval of a statistic of the samples.

    Return None for both if `draws` is 0 or a sample has a single row.
    """
    from scipy.stats import bootstrap

    if not draws or min(map(len, samples)) < 2:
        return None, None
    random = np.random.default_rng(seed)
    drawn = bootstrap(
        samples,
        statistic,
        n_resamples=draws,
        method="percentile",
        rng=random,
        **options,
    ).bootstrap_distribution
    low, high = np.nanquantile(drawn, [0.025, 0.975]).tolist()
    return low, high


def _p(first: Array, second: Array, settings: Settings) -> tuple[float, str, int]:
    """Return p, its method, and the number of counted partitions.

    T is high exactly when the sum of the first group is high. A sampled p is (1 + random partitions
    with at least the observed T) / (1 + samples).
    """
    scores = np.concatenate([first, second])
    size = len(first)
    partitions = math.comb(len(scores), size)
    method = "exact"
    extra = 0
    sums: Iterable[float] = map(sum, combinations(scores.tolist(), size))
    if partitions > EXACT_UP_TO:
        random = np.random.default_rng(settings.seed)
        method = "sampled"
        extra = 1
        partitions = settings.samples
        sums = (float(random.permutation(scores)[:size].sum()) for _ in range(partitions))
    threshold = float(first.sum()) - 1e-12 * float(np.abs(scores).sum())
    as_high = extra + sum(total >= threshold for total in sums)
    return as_high / (extra + partitions), method, partitions


def _unit_vectors(**sets: Any) -> list[Array]:
    """Scale the sets' rows to length 1; raise `BiasError` if a row has no direction."""
    units = {}
    for name, rows in sets.items():
        if not isinstance(rows, Mapping):
            rows = dict(enumerate(rows, start=1))
        try:
            table = np.array(list(rows.values()), dtype=np.float64)
            lengths = np.sqrt(np.einsum("nd,nd->n", table, table))
        except (TypeError, ValueError):
            raise BiasError(f"the set {name} is empty or not a table of numbers") from None
        for label, length in zip(rows, lengths, strict=True):
            if not 0 < length < math.inf:
                raise BiasError(
                    f"the embedding {label!r} of {name} is zero or not finite. Leave it out"
                )
        units[name] = table / lengths[:, None]

    widths = {name: unit.shape[1] for name, unit in units.items()}
    if len(set(widths.values())) > 1:
        raise BiasError(f"the embeddings differ in width: {widths}. Use embeddings of one model")
    return list(units.values())
