"""Proportional odds against statsmodels, and properties of the model."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator
from statsmodels.miscmodels.ordinal_model import OrderedModel

from obygaze_models.estimators.logistic import NotConverged
from obygaze_models.estimators.ordered import OrderedProbe, _loss
from tests.kit.floats import close


def drawn(clips=400, levels=4, seed=3):
    chance = np.random.default_rng(seed)
    X = chance.normal(size=(clips, 3))
    cuts = np.linspace(-1, 1.5, levels - 1)
    latent = X @ [1.0, -0.5, 0.0] + chance.logistic(size=clips)
    return X, np.searchsorted(cuts, latent)


def test_the_unpenalised_fit_equals_statsmodels():
    X, y = drawn()
    expected = OrderedModel(y, X, distr="logit").fit(method="bfgs", disp=False)
    model = OrderedProbe(C=1e8).fit(X, y)
    assert model.coef_ == pytest.approx(expected.params[:3], abs=1e-4)
    cuts = expected.model.transform_threshold_params(expected.params)[1:-1]
    assert model.cuts_ == pytest.approx(cuts, abs=1e-4)
    assert model.predict_proba(X) == pytest.approx(expected.predict(X), abs=1e-4)


def test_weights_count_as_repeated_clips_and_balance_the_levels():
    X, y = drawn(levels=3)
    times = np.random.default_rng(0).integers(0, 3, len(y))
    weighted = OrderedProbe().fit(X, y, times)
    repeated = OrderedProbe().fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert weighted.coef_ == pytest.approx(repeated.coef_, abs=1e-4)
    assert weighted.cuts_ == pytest.approx(repeated.cuts_, abs=1e-4)
    rare = np.flatnonzero((y < 2) | (np.arange(len(y)) % 8 == 0))
    shares = OrderedProbe(class_weight="balanced").fit(X[rare], y[rare]).predict_proba(X)
    plain = OrderedProbe().fit(X[rare], y[rare]).predict_proba(X)
    assert shares[:, 2].mean() > plain[:, 2].mean() + 0.1


def test_two_levels_are_a_logistic_regression():
    X, y = drawn(levels=2)
    expected = LogisticRegression(C=0.3, tol=1e-8).fit(X, y)
    model = OrderedProbe(C=0.3).fit(X, y)
    assert model.predict_proba(X) == pytest.approx(expected.predict_proba(X), abs=1e-4)


def test_the_gradient_equals_finite_differences():
    X, y = drawn(clips=50)
    free = np.array([0.3, -0.2, 0.1, -1.0, 0.2, -0.4])
    weights = np.linspace(0.5, 2, 50)
    step = 1e-6 * np.eye(6)
    ends = [[_loss(free + sign * row, X, y, weights, 0.7)[0] for sign in (1, -1)] for row in step]
    slopes = (np.array(ends)[:, 0] - np.array(ends)[:, 1]) / 2e-6
    assert _loss(free, X, y, weights, 0.7)[1] == close(slopes, eps=1e-5)


def test_the_probe_passes_scikit_learns_checks():
    check_estimator(OrderedProbe())


def test_far_features_and_separated_levels_have_finite_probabilities():
    y = np.repeat([0, 1, 2], 20)
    X = (y[:, None] * 10.0) + np.random.default_rng(0).normal(size=(60, 2))
    model = OrderedProbe(C=100).fit(X, y)
    shares = model.predict_proba(1e4 * X)
    assert np.isfinite(shares).all()
    assert shares.sum(axis=1) == close(1)
    assert (model.predict(X) == y).mean() > 0.95


def test_a_fit_that_stops_early_warns(monkeypatch):
    monkeypatch.setattr("obygaze_models.estimators.ordered.MAX_ITER", 2)
    X, y = drawn()
    with pytest.warns(NotConverged, match="did not converge in 2 steps"):
        OrderedProbe(C=1e6).fit(X, y)
