"""Association tests, compared with a plain Python loop over partitions.

The loop gets the scores s for free, and computes each partition and its statistic. Our side starts
from the embeddings. Both find the same p; the sampled p agrees within its error.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.result import Result, side_by_side
from obygaze_models.bias.association import Settings, associate

Array = NDArray[Any]
Sets = tuple[Array, Array, Array, Array]
WIDTH, SAMPLES, TESTS = 512, 100_000, 10


def measure() -> Iterator[Result]:
    """Measure an exact test and a sampled test.

    A loop takes at least 50 times as long as the exact test, and at least 10 times as long as the
    sampled test, which shuffles all scores for each partition. We measured ratios of 1/20 to 1/14
    for the latter.
    """
    few = _sets(8, 8)
    x, y = _scores(few)

    def exact_ours() -> float:
        return associate(*few, Settings(draws=0)).p

    def exact_peer() -> float:
        return _exact(x, y)

    assert exact_ours() == exact_peer()
    yield side_by_side(
        f"{TESTS} tests, all 12,870 partitions of 8 + 8 items, 8 + 8 words (Python loop)",
        lambda: [exact_ours() for _ in range(TESTS)],
        lambda: [exact_peer() for _ in range(TESTS)],
        target=1 / 50,
    )
    many = _sets(20, 30)
    first, second = _scores(many)

    def sampled_ours() -> float:
        return associate(*many, Settings(draws=0)).p

    def sampled_peer() -> float:
        return _sampled(first, second)

    assert abs(sampled_ours() - sampled_peer()) < 5 * (0.25 / SAMPLES) ** 0.5
    yield side_by_side(
        "100,000 random partitions of 20 + 20 images, 30 + 30 prompts (Python loop)",
        sampled_ours,
        sampled_peer,
        target=1 / 10,
        runs=3,
    )


def _sets(items: int, words: int) -> Sets:
    chance = np.random.default_rng(0)
    x, y = (chance.normal(size=(items, WIDTH)) for _ in "xy")
    a, b = (chance.normal(size=(words, WIDTH)) for _ in "ab")
    return x, y, a, b


def _scores(sets: Sets) -> tuple[list[float], list[float]]:
    x, y, a, b = sets
    x, y, a, b = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y, a, b))
    direction = a.mean(axis=0) - b.mean(axis=0)
    return (x @ direction).tolist(), (y @ direction).tolist()


def _exact(x: list[float], y: list[float]) -> float:
    both, observed = x + y, sum(x) - sum(y)
    at_least = partitions = 0
    for chosen in combinations(range(len(both)), len(x)):
        first = set(chosen)
        statistic = 0.0
        for place, score in enumerate(both):
            statistic += score if place in first else -score
        at_least += statistic >= observed - 1e-12
        partitions += 1
    return at_least / partitions


def _sampled(x: list[float], y: list[float]) -> float:
    both, observed = x + y, sum(x) - sum(y)
    chance = random.Random(0)
    at_least = 0
    for _ in range(SAMPLES):
        chance.shuffle(both)
        at_least += sum(both[: len(x)]) - sum(both[len(x) :]) >= observed - 1e-12
    return (at_least + 1) / (SAMPLES + 1)
