"""How often chance sets two groups of scores as far apart as they are.

The scores are pooled and parted anew, in groups of the same sizes. p is one-sided: the share of
partitions whose first group sums at least as high. Ties count, and sums that differ by rounding
alone are ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import BiasError

__all__ = ["LARGEST", "exact_p", "normal_p", "sampled_p"]

Array = NDArray[Any]

LARGEST = 2**23
"""The most subsets of half the scores that the exact test looks at."""
#: Up to so many scores, partitions are drawn by halves; that has many steps where there are more.
_BY_HALVES = 64
#: Scores of which the sums of all subsets are made, to draw from.
_BLOCK = 10
#: Partitions that are drawn at a time: by halves many, as each time has the same steps; in turn
#: few, so that they stay in the processor's cache.
_DRAWN_BY_HALVES, _DRAWN_IN_TURN = 2**20, 2**14


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
    # Every score is raised by so much that a sum tells how many there are in it.
    step = 4 * float(np.abs(scores).sum()) or 1.0
    raised = (scores + step).tolist()
    left, right = (
        np.sort(_sums_of_subsets(part, few, (few + 0.5) * step))
        for part in (raised[:half], raised[half:])
    )
    reach = np.searchsorted(right, few * step + bar - left)
    end = np.searchsorted(right, (few + 0.5) * step - left)
    return int((end - reach).sum()) / math.comb(len(scores), few)


def sampled_p(first: Array, second: Array, samples: int, seed: int) -> float:
    """(as high + 1) / (samples + 1), of partitions that `seed` draws, any being as likely."""
    few, scores, bar = _smaller_group(first, second)
    chance = np.random.default_rng(seed)
    if len(scores) <= _BY_HALVES:
        blocks = np.split(scores, range(_BLOCK, len(scores), _BLOCK))
        draw = partial(_drawn_by_halves, [_sums_by_size(block) for block in blocks])
        at_once = _DRAWN_BY_HALVES
    else:
        draw, at_once = partial(_drawn_in_turn, scores), _DRAWN_IN_TURN
    count = 0
    for start in range(0, samples, at_once):
        sums = draw(few, min(at_once, samples - start), chance)
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


def _sums_of_subsets(scores: Sequence[float], few: int, most: float) -> Array:
    """The sums of all subsets of up to `few` scores, which are those below `most`."""
    sums = np.zeros(1)
    for place, score in enumerate(scores):
        sums = np.concatenate([sums, sums + score])
        if place >= few:
            sums = sums[sums < most]
    return sums


def _sums_by_size(scores: Array) -> list[Array]:
    """The sums of all subsets of 0, 1 ... all scores."""
    sums, sizes = np.zeros(1), np.zeros(1, np.intp)
    for score in scores.tolist():
        sums, sizes = np.concatenate([sums, sums + score]), np.concatenate([sizes, sizes + 1])
    return [sums[sizes == size] for size in range(len(scores) + 1)]


def _drawn_by_halves(
    blocks: Sequence[list[Array]], few: int, samples: int, chance: np.random.Generator
) -> Array:
    """Sums of `few` scores each, any choice being as likely as any other.

    First is drawn how many of the samples take how many scores from the first half of the blocks,
    then which. As samples come in that order, one half is shuffled before it meets the other.
    """
    if len(blocks) == 1:
        sums = blocks[0][few]
        return np.asarray(sums[chance.integers(len(sums), size=samples)])
    left, right = blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]
    here, there = (sum(len(block) - 1 for block in part) for part in (left, right))
    sizes = range(max(0, few - there), min(few, here) + 1)
    every = math.comb(here + there, few)
    likely = [math.comb(here, size) * math.comb(there, few - size) / every for size in sizes]
    drawn = []
    for size, count in zip(sizes, chance.multinomial(samples, likely).tolist(), strict=True):
        if count:
            others = _drawn_by_halves(right, few - size, count, chance)
            chance.shuffle(others)
            drawn.append(_drawn_by_halves(left, size, count, chance) + others)
    return np.concatenate(drawn)


def _drawn_in_turn(scores: Array, few: int, samples: int, chance: np.random.Generator) -> Array:
    """The same of any number of scores.

    Of the scores in turn each is taken with the chance "still to take" in "still to come".
    """
    # In single bytes so many draws would be rejected as beyond the range that it takes longer.
    kind = np.promote_types(np.uint16, np.min_scalar_type(len(scores)))
    to_take = np.full(samples, few, kind)
    sums, part = np.zeros(samples), np.empty(samples)
    for place, score in enumerate(scores.tolist()):
        taken = chance.integers(len(scores) - place, size=samples, dtype=kind) < to_take
        to_take -= taken
        sums += np.multiply(taken, score, out=part)
    return sums
