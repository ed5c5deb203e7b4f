from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.explain.significance import concept_significance, holm


@pytest.mark.gate
def test_p_against_every_permutation():
    """Three of seven clips can be positive in 35 ways: all of them, against the drawn ones."""
    chance = np.random.default_rng(3)
    y, truth = np.array([1, 1, 1, 0, 0, 0, 0]), np.repeat([1, 0], 10)
    X = chance.normal(size=(7, 4)) + 0.8 * y[:, None]
    held = chance.normal(size=(20, 4)) + 0.8 * truth[:, None]

    def auc(labels):
        labels = np.array(labels)
        return roc_auc_score(truth, held @ (X[labels == 1].mean(0) - X[labels == 0].mean(0)))

    ways = [np.isin(np.arange(7), some) for some in combinations(range(7), 3)]
    exact = np.mean([auc(labels) >= auc(y) - 1e-12 for labels in ways])
    bank = ConceptBank("mean-difference").fit(X, y[:, None])
    (found,) = concept_significance(
        bank, X, y[:, None], held, truth[:, None], runs=1000, random_state=0
    )
    assert found.auc == pytest.approx(auc(y))
    assert 0.01 < exact < 0.5
    assert found.p == pytest.approx(exact, abs=4 * np.sqrt(exact / 1000))
    assert found.runs == 1000


def test_a_signal_is_significant_and_noise_is_not():
    chance = np.random.default_rng(0)
    Y = chance.integers(0, 2, size=(240, 3))
    Y[:, 1] = 0
    X = chance.normal(size=(240, 10))
    X[:, 0] += 2 * Y[:, 0]
    bank = ConceptBank(C=0.1).fit(X[:120], Y[:120])
    assert list(bank.skipped_) == ["concept 2"]
    signal, noise = concept_significance(
        bank, X[:120], Y[:120], X[120:], Y[120:], runs=49, random_state=0
    )
    assert signal.p == 1 / 50
    assert signal.p_holm == 2 / 50
    assert signal.auc > signal.random_auc_95
    assert noise.p > 0.05
    assert signal.random_auc == pytest.approx(0.5, abs=0.1)


def holm_by_definition(ps):
    """The level at which each hypothesis is first rejected, found by trying levels."""

    def rejected(level):
        gone = set()
        for rank, one in enumerate(sorted(range(len(ps)), key=lambda one: ps[one])):
            if ps[one] * (len(ps) - rank) > level:
                break
            gone.add(one)
        return gone

    levels = sorted({min(1.0, p * times) for p in ps for times in range(1, len(ps) + 1)} | {1.0})
    return [next((a for a in levels if one in rejected(a)), 1.0) for one in range(len(ps))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=6, unique=True))
def test_holm_by_its_definition(ps):
    assert holm(ps) == pytest.approx(holm_by_definition(ps))
