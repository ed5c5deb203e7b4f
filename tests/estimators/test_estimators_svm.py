import time
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.svm import (
    LinearSVMClassifier,
    SharedGram,
    choose_c,
    fit_linear_svm,
)
from obygaze_models.tasks import concept_targets

CS = (0.01, 0.05, 0.1, 0.5, 1.0, 10.0)


def folds_and_targets(known):
    """Training rows, test rows and targets of every concept that the test fold has."""
    for targets in concept_targets(known.levels, known.concepts, "a").T:
        train = np.flatnonzero((known.folds < 9) & (targets >= 0))
        test = np.flatnonzero((known.folds == 9) & (targets >= 0))
        yield train, test, targets


@pytest.mark.parametrize("class_weight", ["balanced", None])
@pytest.mark.parametrize("C", CS)
def test_decides_as_scikit_learns_own(labelled, C, class_weight):
    gram = SharedGram(labelled.features)
    for train, _, targets in list(folds_and_targets(labelled))[:3]:
        fit = fit_linear_svm(gram, train, targets[train], C, class_weight)
        theirs = SVC(C=C, kernel="linear", class_weight=class_weight)
        theirs.fit(labelled.features[train], targets[train])
        decisions = theirs.decision_function(labelled.features)
        assert fit.decide(labelled.features) == pytest.approx(decisions, abs=1e-5)
        assert ((fit.decide(labelled.features) > 0) == (decisions > 0)).all()
        assert fit.margin == pytest.approx(1 / np.linalg.norm(theirs.coef_), rel=1e-6)


def test_the_c_with_the_highest_auc_is_chosen(labelled):
    train, test, targets = next(folds_and_targets(labelled))
    X = labelled.features
    fit, aucs = choose_c(
        SharedGram(X), train, targets[train], CS, "balanced", X[test], targets[test]
    )
    expected = {
        C: roc_auc_score(
            targets[test],
            SVC(C=C, kernel="linear", class_weight="balanced")
            .fit(X[train], targets[train])
            .decision_function(X[test]),
        )
        for C in CS
    }
    assert aucs == pytest.approx(expected)
    assert expected[fit.C] == max(expected.values())


def test_a_c_that_is_too_small_is_seen(labelled):
    train, _, targets = next(folds_and_targets(labelled))
    gram = SharedGram(labelled.features)
    small = fit_linear_svm(gram, train, targets[train], 1e-4)
    assert small.bounded == 1
    assert small.degenerate
    # By hand: all duals at the bound make the difference of the classes' means, scaled.
    positive, negative = (gram.features[train[targets[train] == one]].mean(0) for one in (1, 0))
    alike = small.coef @ (positive - negative)
    alike /= np.linalg.norm(small.coef) * np.linalg.norm(positive - negative)
    assert alike == pytest.approx(1)
    assert not fit_linear_svm(gram, train, targets[train], 10).degenerate


def test_above_the_limit_liblinear_stands_in_and_says_so(labelled):
    train, _, targets = next(folds_and_targets(labelled))
    exact, other = (
        fit_linear_svm(SharedGram(labelled.features, limit=limit), train, targets[train], 1.0)
        for limit in (2_000, 100)
    )
    assert (exact.solver, other.solver) == ("libsvm", "liblinear")
    assert other.bounded is None
    assert other.converged
    agree = (exact.decide(labelled.features) > 0) == (other.decide(labelled.features) > 0)
    assert agree.mean() > 0.97


def test_ten_times_faster_than_one_fit_at_a_time(labelled):
    train, test, targets = next(folds_and_targets(labelled))
    X, y = labelled.features, targets
    X = np.hstack([X, np.random.default_rng(0).normal(size=(len(X), 448)) / 30]).astype("float32")
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # probability=True is on its way out
        gram = SharedGram(X)
        choose_c(gram, train, y[train], CS, "balanced", X[test], y[test])
        ours, theirs = [], []
        for _ in range(2):
            start = time.perf_counter()
            choose_c(gram, train, y[train], CS, "balanced", X[test], y[test])
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            for C in CS:
                SVC(C=C, kernel="linear", class_weight="balanced", probability=True).fit(
                    X[train], y[train]
                )
            theirs.append(time.perf_counter() - start)
    assert min(theirs) > 10 * min(ours)


@pytest.fixture
def noise():
    """1,000 clips in 64 numbers that have nothing to do with the labels: libsvm never ends."""
    chance = np.random.default_rng(3)
    return chance.normal(size=(1_000, 64)), chance.random(1_000) < 0.3


def test_where_libsvm_would_not_end_it_is_stopped_and_that_is_said(noise):
    X, y = noise
    gram, rows = SharedGram(X), np.arange(1_000)
    start = time.perf_counter()
    fit = fit_linear_svm(gram, rows, y, 1e6)
    assert time.perf_counter() - start < 5
    assert not fit.converged
    assert np.isfinite(fit.coef).all()
    small = fit_linear_svm(gram, rows, y, 1e-3)
    assert small.converged
    theirs = SVC(C=1e-3, kernel="linear", class_weight="balanced").fit(X, y)
    assert small.decide(X) == pytest.approx(theirs.decision_function(X), abs=1e-5)
    with pytest.warns(ConvergenceWarning, match="stopped before its end at C = 1e\\+06"):
        model = LinearSVMClassifier(C=1e6).fit(X, y)
    assert model.converged_ == [False]


def test_a_c_is_chosen_among_those_at_which_the_svm_ends(noise):
    X, y = noise
    half = np.arange(500)
    gram = SharedGram(X)
    fit, aucs = choose_c(gram, half, y[half], (1e6, 1e-3, 1e7, 1e-2), None, X[500:], y[500:])
    assert fit.converged
    assert list(aucs) == [1e-3, 1e-2]
    fit, aucs = choose_c(gram, half, y[half], (1e7, 1e6), None, X[500:], y[500:])
    assert not fit.converged
    assert list(aucs) == [fit.C] == [1e6]


@pytest.fixture
def three_kinds():
    chance = np.random.default_rng(1)
    y = np.array(["EN", "HN", "S"])[np.arange(300) % 3]
    X = chance.normal(size=(300, 6))
    X[y == "HN", 0] += 2
    X[y == "S", 1] += 2
    return X, y


def test_more_than_two_classes_one_against_the_rest(three_kinds):
    X, y = three_kinds
    model = LinearSVMClassifier(C=1.0).fit(X[:200], y[:200])
    for column, name in enumerate(["EN", "HN", "S"]):
        theirs = SVC(kernel="linear", class_weight="balanced").fit(X[:200], y[:200] == name)
        assert model.decision_function(X)[:, column] == pytest.approx(
            theirs.decision_function(X), abs=1e-5
        )
    assert model.score(X[200:], y[200:]) > 0.75


def test_probabilities_are_half_on_the_hyperplane_and_fit_validation(three_kinds):
    X, y = three_kinds
    y = y == "S"
    model = LinearSVMClassifier().fit(X[:150], y[:150], X[150:], y[150:])
    decisions = model.decision_function(X)
    said = model.predict_proba(X)[:, 1]
    assert ((said > 0.5) == (decisions > 0)).all()
    assert said == pytest.approx(1 / (1 + np.exp(-decisions / model.temperature_)))

    def log_loss(temperature):
        p = 1 / (1 + np.exp(-decisions[150:] / temperature))
        return -np.log(np.where(y[150:], p, 1 - p)).mean()

    grid = np.exp(np.linspace(-2, 4, 2001))
    best = grid[np.argmin([log_loss(one) for one in grid])]
    assert model.temperature_ == pytest.approx(best, rel=0.01)


def test_c_is_chosen_on_validation_or_not_at_all(three_kinds):
    X, y = three_kinds
    y = y == "S"
    model = LinearSVMClassifier(C=[0.001, 1.0]).fit(X[:150], y[:150], X[150:], y[150:])
    # scikit-learn's own, each fitted to the same clips: that of the better AUC is taken.
    areas = {
        C: roc_auc_score(
            y[150:],
            SVC(kernel="linear", C=C, class_weight="balanced")
            .fit(X[:150], y[:150])
            .decision_function(X[150:]),
        )
        for C in (0.001, 1.0)
    }
    assert model.C_[0] == max(areas, key=areas.__getitem__)
    with pytest.raises(ExperimentError, match="takes validation data"):
        LinearSVMClassifier(C=[0.001, 1.0]).fit(X, y)
    with pytest.raises(ExperimentError, match="all 100 validation labels are on one side"):
        LinearSVMClassifier(C=[0.1, 1.0]).fit(X, y, X[:100], np.ones(100, dtype=bool))
