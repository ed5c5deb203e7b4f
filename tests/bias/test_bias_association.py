"""Association tests against their definition: every partition, item by item."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from obygaze_features.errors import BiasError
from obygaze_models.studies.bias.association import Settings, associate, associate_each
from tests.kit.floats import close

X = [[1, 0], [2, 1], [1, 1]]
Y = [[0, 1], [1, 2], [1, 1.5]]
A = [[1, 0], [1, 0.5]]
B = [[0, 1], [0.5, 1]]


def scores(rows, a, b):
    """Return the mean cosine with A minus that with B."""
    rows, a, b = (np.array(v) / np.linalg.norm(v, axis=1, keepdims=True) for v in (rows, a, b))
    return (rows @ a.T).mean(axis=1) - (rows @ b.T).mean(axis=1)


def by_force(x, y, a, b, ddof=1):
    """Apply the formulas one by one, and compute p over every partition of X and Y."""
    first, second = (scores(group, a, b).tolist() for group in (x, y))
    pooled = first + second
    mean = sum(pooled) / len(pooled)
    deviation = math.sqrt(sum((s - mean) ** 2 for s in pooled) / (len(pooled) - ddof))
    d = (sum(first) / len(first) - sum(second) / len(second)) / deviation
    T = sum(first) - sum(second)
    at_least = partitions = 0
    for chosen in itertools.combinations(range(len(pooled)), len(first)):
        rest = [s for position, s in enumerate(pooled) if position not in chosen]
        at_least += sum(pooled[position] for position in chosen) - sum(rest) >= T - 1e-9
        partitions += 1
    return d, T, at_least / partitions


#: Few directions, so that many partitions tie.
ROW = st.sampled_from([(1, 0), (2, 0), (1, 1), (0, 1), (-1, 1), (3, 1)])
ROWS = st.lists(ROW, min_size=1, max_size=5)


@given(ROWS, ROWS, ROWS, ROWS, st.sampled_from([0, 1]))
def test_every_partition_counts_also_ties_and_unequal_sizes(x, y, a, b, ddof):
    if np.ptp(scores([*x, *y], a, b)) < 1e-9:
        with pytest.raises(BiasError, match="all items in X and Y score the same"):
            associate(x, y, a, b)
        return
    result = associate(x, y, a, b, Settings(ddof=ddof, draws=0))
    np.testing.assert_allclose(
        (result.d, result.statistic, result.p), by_force(x, y, a, b, ddof), atol=1e-9
    )


def test_a_single_item_is_tested_by_partitions_of_the_words():
    chance = np.random.default_rng(3)
    x, a, b = (chance.normal(size=(size, 64)).astype(np.float32) for size in (3, 5, 7))
    for w, single in zip(x, associate_each(x, a, b), strict=True):
        expected = by_force(a, b, [w], [-w])
        assert (single.d, 2 * single.statistic, single.p) == close(expected, eps=1e-5)


@pytest.mark.parametrize(("x", "y"), [((4, 3, 3), (3, 4, 4)), ((2, 1, 1), (10, 12, 8))])
def test_nearly_tied_partitions_are_counted_exactly(x, y):
    """With three kinds of items, partitions are counted by the number of each kind."""
    chance = np.random.default_rng(17)
    kinds, a, b = (chance.normal(size=(size, 6)) for size in (3, 4, 4))
    kind_scores, sizes = scores(kinds, a, b), np.add(x, y)
    as_high = sum(
        math.prod(map(math.comb, sizes.tolist(), counts))
        for counts in itertools.product(*(range(size + 1) for size in sizes))
        if sum(counts) == sum(x) and kind_scores @ counts >= kind_scores @ x - 1e-9
    )
    p = as_high / math.comb(sum(sizes), sum(x))
    items = np.repeat(kinds, x, axis=0), np.repeat(kinds, y, axis=0)
    exact = len(items[0]) < 10  # all 352,716 partitions of the first case are too many
    result = associate(*items, a, b)
    assert result.p_is == ("exact" if exact else "sampled")
    spread = 1e-12 if exact else 4.5 * math.sqrt(p * (1 - p) / 100_000)
    assert result.p == pytest.approx(p, abs=spread)


def test_a_sampled_p_is_never_zero_and_is_reproducible():
    chance = np.random.default_rng(7)
    a, b = chance.normal(size=(2, 30, 16))
    x, y = chance.normal(size=(2, 20, 16)) + np.array([[[2.0]], [[-2.0]]]) * (a - b).mean(axis=0)
    first = associate(x, y, a, b, Settings(samples=999))
    assert (first.p, first.p_is, first.partitions) == (1 / 1000, "sampled", 999)
    assert associate(x, y, a, b, Settings(samples=999)) == first


def test_the_normal_approximation_has_the_exact_moments():
    normal = Settings(p="normal")
    result, item_scores = associate(X, Y[:2], A, B, normal), scores([*X, *Y[:2]], A, B)
    sums = [sum(chosen) for chosen in itertools.combinations(item_scores, 3)]
    observed = item_scores[:3].sum()
    assert result.p == close(stats.norm.sf(observed, np.mean(sums), np.std(sums)))
    assert (result.p_is, result.partitions) == ("normal", None)


@pytest.mark.parametrize(("sets", "facts"), [
    ({"x": []}, ["X", "empty"]),
    ({"a": [[1, 0], [0, 0]]}, ["A", "embedding 2", "zero"]),
    ({"y": [[1, np.nan]]}, ["Y", "embedding 1", "not finite"]),
    ({"b": [[1, 0, 0]]}, ["'X': 2", "'B': 3", "one model"]),
])  # fmt: skip
def test_invalid_embeddings_are_refused(sets, facts):
    with pytest.raises(BiasError) as raised:
        associate(**{"x": X, "y": Y, "a": A, "b": B, **sets})
    assert all(fact in str(raised.value) for fact in facts), raised.value
    assert "\n" not in str(raised.value)


def test_rounding_is_no_association():
    """A and B are the same directions in another order, so scores are 0 up to rounding."""
    chance = np.random.default_rng(0)
    x, y, a = (chance.normal(size=(size, 512)) for size in (8, 8, 30))
    b = 3 * chance.permutation(a)
    assert np.abs(scores(x, a, b)).max() > 0
    with pytest.raises(BiasError, match="all items in X and Y score the same"):
        associate(x, y, a, b)
