"""Kappa, alpha and confusion, against scikit-learn and the package krippendorff."""

import warnings

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from obygaze_features.annotations.measures import distances_of, krippendorff_alpha, nominal, ordinal
from obygaze_features.manifests import obygaze_scheme
from obygaze_features.manifests.label_agreement import cohen_kappa, confusion

CODES = ["EN", "HN", "NS", "S"]
MATRIX = distances_of(obygaze_scheme()).matrix
pairs = st.lists(st.tuples(st.sampled_from(CODES), st.sampled_from(CODES)), min_size=2, max_size=60)


def by_the_paper(i1, i2, **_):
    return MATRIX[i1, i2]


@given(pairs)
def test_against_scikit_learn(labels):
    a, b = zip(*labels, strict=True)
    counts = confusion(a, b, CODES)
    np.testing.assert_array_equal(counts, confusion_matrix(a, b, labels=CODES))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = cohen_kappa_score(a, b, labels=CODES)
    result = cohen_kappa(counts)
    assert np.isnan(expected) if result is None else result == pytest.approx(expected, abs=1e-9)


@given(pairs)
def test_against_krippendorff(labels):
    a, b = zip(*labels, strict=True)
    counts = confusion(a, b, CODES)
    ranks = np.array([[CODES.index(level) for level in entry] for entry in (a, b)], dtype=float)
    for level, differences in (
        ("nominal", nominal(counts)),
        ("ordinal", ordinal(counts)),
        (lambda v1, v2, **rest: by_the_paper(**rest), MATRIX),
    ):
        result = krippendorff_alpha(counts, differences)
        if len({*a, *b}) == 1:
            assert result is None
            continue
        expected = krippendorff.alpha(
            reliability_data=ranks, level_of_measurement=level, value_domain=[0.0, 1.0, 2.0, 3.0]
        )
        assert result == pytest.approx(expected, abs=1e-9)


@given(pairs, st.permutations(CODES))
def test_names_of_levels_do_not_matter(labels, names):
    a, b = zip(*labels, strict=True)
    renamed = dict(zip(CODES, names, strict=True))
    counts = confusion(a, b, CODES)
    second = confusion([renamed[entry] for entry in a], [renamed[entry] for entry in b], CODES)
    assert cohen_kappa(counts) == pytest.approx(cohen_kappa(second))
    for one, two in ((counts, second), (counts, counts.T)):
        alphas = [krippendorff_alpha(part, nominal(part)) for part in (one, two)]
        assert alphas[0] == pytest.approx(alphas[1])
    nothing = confusion([], [], CODES)
    assert cohen_kappa(nothing) is krippendorff_alpha(nothing, MATRIX) is None
