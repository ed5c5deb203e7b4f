"""How often chance sets two groups of scores as far apart as they are.

The scores are pooled and parted anew, in groups of the same sizes. p is one-sided: the share of
partitions whose first group sums at least as high. Ties count, and sums that differ by rounding
alone are ties.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import BiasError

__all__ = ["LARGEST", "exact_p", "normal_p", "sampled_p"]

Array = NDArray[Any]

LARGEST = 2**24
"""The most sums of half the scores that the exact test makes (128 MiB)."""
#: Partitions that are drawn at a time; few, so that they stay in the processor's cache.
_DRAWN = 2**14


def exact_p(first: Array, second: Array) -> float:
    """The share of all partitions, the observed one among them.

    No partition is made: the scores are cut in halves, and for each subset of one half those of
    the other are counted that reach the bar with it. So 20 + 20 scores, with 10^11 partitions,
    take less than a second.
    """
    few, scores, bar = _smaller_group(first, second)
    half = len(scores) // 2
    longer = len(scores) - half
    if sum(math.comb(longer, size) for size in range(min(few, longer) + 1)) > LARGEST:
        raise BiasError(
            f"groups of {len(first)} and {len(second)} have too many partitions to count all; "
            "let them be sampled"
        )
    left = _sums_by_size(scores[:half], few)
    right = [np.sort(sums) for sums in _sums_by_size(scores[half:], few)]
    count = 0
    for size, sums in enumerate(left):
        if few - size < len(right):
            others = right[few - size]
            count += len(others) * len(sums) - int(np.searchsorted(others, bar - sums).sum())
    return count / math.comb(len(scores), few)


def sampled_p(first: Array, second: Array, samples: int, seed: int) -> float:
    """(as high + 1) / (samples + 1), of partitions that `seed` draws."""
    few, scores, bar = _smaller_group(first, second)
    chance = np.random.default_rng(seed)
    count = 0
    for start in range(0, samples, _DRAWN):
        sums = _drawn_sums(scores, few, min(_DRAWN, samples - start), chance)
        count += int(np.count_nonzero(sums >= bar))
    return (count + 1) / (samples + 1)


def normal_p(first: Array, second: Array) -> float:
    """From the normal distribution with the mean and deviation of all partitions."""
    few, scores, _ = _smaller_group(first, second)
    rest = len(scores) - few
    deviation = math.sqrt(few * rest / (len(scores) - 1) * float(scores.var()))
    above = float(scores[:few].sum() - few * scores.mean())
    return 0.5 * math.erfc(above / deviation / math.sqrt(2))


def _smaller_group(first: Array, second: Array) -> tuple[int, Array, float]:
    """The size of the smaller group, all scores with its own before, and the sum to be reached.

    The first group sums high just where the second sums low, so that the smaller can be looked
    at, with all signs turned round if it is the second.
    """
    if len(first) > len(second):
        first, second = -second, -first
    scores = np.concatenate([first, second])
    rounding = 1e-12 * float(np.abs(scores).sum())
    return len(first), scores, float(first.sum()) - rounding


def _sums_by_size(scores: Array, most: int) -> list[Array]:
    """The sums of all subsets of 0, 1 ... up to `most` scores."""
    sums = [np.zeros(1)]
    for score in scores.tolist():
        with_it = [of + score for of in sums[:most]]
        grown = [np.concatenate(pair) for pair in zip(sums[1:], with_it, strict=False)]
        sums = [sums[0], *grown, *with_it[len(grown) :]]
    return sums


def _drawn_sums(scores: Array, few: int, samples: int, chance: np.random.Generator) -> Array:
    """Sums of `few` scores each, any choice being as likely as any other.

    Of the scores in turn each is taken with the chance "still to take" in "still to come".
    """
    kind = np.min_scalar_type(len(scores))
    to_take = np.full(samples, few, kind)
    sums, part = np.zeros(samples), np.empty(samples)
    for place, score in enumerate(scores.tolist()):
        taken = chance.integers(len(scores) - place, size=samples, dtype=kind) < to_take
        to_take -= taken
        sums += np.multiply(taken, score, out=part)
    return sums
