from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from obygaze_models import ConceptBank
from obygaze_models.explain.significance import concept_significance, holm


def test_p_against_every_permutation():
    """Three of seven clips can be positive in 35 ways: all of them, against the drawn ones."""
    chance = np.random.default_rng(3)
    y, truth = np.array([1, 1, 1, 0, 0, 0, 0]), np.repeat([1, 0], 10)
    X = chance.normal(size=(7, 4)) + 0.8 * y[:, None]
    held = chance.normal(size=(20, 4)) + 0.8 * truth[:, None]

    def auc(labels):
        return roc_auc_score(truth, held @ (X[labels].mean(0) - X[~labels].mean(0)))

    ways = [np.isin(np.arange(7), rows) for rows in combinations(range(7), 3)]
    exact = np.mean([auc(labels) >= auc(y == 1) - 1e-12 for labels in ways])
    bank = ConceptBank("mean-difference").fit(X, y[:, None])
    (result,) = concept_significance(
        bank, X, y[:, None], held, truth[:, None], runs=150, random_state=0
    )
    assert result.auc == pytest.approx(auc(y == 1))
    assert 0.01 < exact < 0.5
    assert result.p == pytest.approx(exact, abs=3 * np.sqrt(exact / 150))
    assert result.runs == 150


def test_a_signal_is_significant_and_noise_is_not():
    chance = np.random.default_rng(0)
    Y = chance.integers(0, 2, size=(120, 3))
    Y[:, 1] = 0
    X = chance.normal(size=(120, 6))
    X[:, 0] += 2 * Y[:, 0]
    bank = ConceptBank(C=0.1).fit(X[:60], Y[:60])
    assert list(bank.skipped_) == ["concept 2"]
    signal, noise = concept_significance(
        bank, X[:60], Y[:60], X[60:], Y[60:], runs=39, random_state=0
    )
    assert (signal.p, signal.p_holm) == (1 / 40, 2 / 40)
    assert signal.auc > signal.random_auc_95
    assert noise.p > 0.05
    assert signal.random_auc == pytest.approx(0.5, abs=0.1)


def holm_by_definition(ps):
    """The level at which each hypothesis is first rejected, by trying levels."""

    def rejected(level):
        gone = set()
        for rank, index in enumerate(sorted(range(len(ps)), key=lambda index: ps[index])):
            if ps[index] * (len(ps) - rank) > level:
                break
            gone.add(index)
        return gone

    levels = sorted({min(1.0, p * times) for p in ps for times in range(1, len(ps) + 1)} | {1.0})
    return [next((a for a in levels if i in rejected(a)), 1.0) for i in range(len(ps))]


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=6, unique=True))
def test_holm_by_its_definition(ps):
    assert holm(ps) == pytest.approx(holm_by_definition(ps))
