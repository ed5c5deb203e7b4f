"""Association tests against their definition: every partition, item by item."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from obygaze_features.errors import BiasError
from obygaze_models.studies.bias.association import Settings, associate, associate_each
from tests.kit.floats import close

SETS = {
    "x": [[1, 0], [2, 1], [1, 1]],
    "y": [[0, 1], [1, 2]],
    "a": [[1, 0], [1, 0.5]],
    "b": [[0, 1], [0.5, 1]],
}


def mean_cosines(rows, others):
    units = others / np.linalg.norm(others, axis=1, keepdims=True)
    lengths = np.linalg.norm(rows, axis=1)
    return np.inner(rows, units.mean(axis=0)) / lengths


def scores(rows, a, b):
    return mean_cosines(rows, a) - mean_cosines(rows, b)


def by_definition(x, y, a, b, ddof=1):
    """Return d, T and p."""
    first = scores(x, a, b)
    second = scores(y, a, b)
    pooled = np.concatenate([first, second])
    d = (first.mean() - second.mean()) / pooled.std(ddof=ddof)
    at_least = np.array(sums_of_partitions(first, second)) >= first.sum() - 1e-9
    return d, first.sum() - second.sum(), at_least.mean()


def sums_of_partitions(first, second):
    """Return the sum of the first group in each partition into groups of the same sizes."""
    return [sum(chosen) for chosen in combinations([*first, *second], len(first))]


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
    actual = (result.d, result.statistic, result.p)
    np.testing.assert_allclose(actual, by_definition(x, y, a, b, ddof), rtol=0, atol=2e-9)


def test_a_single_item_is_tested_by_partitions_of_the_words():
    drawn = np.random.default_rng(3).normal(size=(15, 64))
    x, a, b = np.split(drawn, [3, 8])
    for row, single in zip(x, associate_each(x, a, b), strict=True):
        expected = by_definition(a, b, [row], [-row])
        assert (single.d, 2 * single.statistic, single.p) == close(expected)


def test_sampled_partitions_of_two_kinds_of_items_are_hypergeometric():
    """X has 7 items of the first kind and 3 of the second; Y has 4 and 7."""
    kinds = [[0.3, 0.1], [0.1, 0.7]]
    x = np.repeat(kinds, (7, 3), axis=0)
    y = np.repeat(kinds, (4, 7), axis=0)
    result = associate(x, y, SETS["a"], SETS["b"])
    p = stats.hypergeom.sf(6, 21, 11, 10)
    assert result.p_is == "sampled"
    error = np.sqrt(p * (1 - p) / 100_000)
    assert result.p == pytest.approx(p, abs=4.5 * error)


def test_a_sampled_p_is_never_zero_and_is_reproducible():
    x = np.repeat([[1, 0], [1, 0.1]], 10, axis=0)
    y = np.flip(x, axis=1)
    first = associate(x, y, SETS["a"], SETS["b"], Settings(samples=999))
    assert (first.p, first.p_is, first.partitions) == (1 / 1000, "sampled", 999)
    assert associate(x, y, SETS["a"], SETS["b"], Settings(samples=999)) == first


INVALID = [
    ({"x": []}, "set X is empty"),
    ({"a": [[1, 0], [0, 0]]}, "embedding 2 of A is zero"),
    ({"y": [[1, np.nan]]}, "embedding 1 of Y is .*not finite"),
    ({"b": [[1, 0, 0]]}, "'X': 2.*'B': 3"),
]


@pytest.mark.parametrize(("sets", "fact"), INVALID)
def test_invalid_embeddings_are_refused(sets, fact):
    with pytest.raises(BiasError, match=fact):
        associate(**SETS | sets)


def test_rounding_is_no_association():
    """A and B are the same directions in another order, so scores are 0 up to rounding."""
    drawn = np.random.default_rng(0).normal(size=(46, 512))
    x, y, a = np.split(drawn, [8, 16])
    b = 3 * np.random.default_rng(1).permutation(a)
    assert np.abs(scores(x, a, b)).max() > 0
    with pytest.raises(BiasError, match="all items in X and Y score the same"):
        associate(x, y, a, b)
