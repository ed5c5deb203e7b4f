import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from obygaze_models import LinearSVMProbe
from obygaze_models.estimators.classes import fit_temperature
from obygaze_models.estimators.svm_solver import GRAM_ROWS, LinearSVM
from tests.kit.clips import small_clips

CS = (0.01, 0.05, 0.1, 0.5, 1.0, 10.0)
DATA = small_clips()
CLIPS = DATA.X.astype(np.float64)


def newton(X, y, class_weight="balanced"):
    """The solver of large problems, for a small one."""
    problem = LinearSVM(X, y, class_weight)
    problem.fit = problem._fit_newton
    return problem


@given(st.integers(0, 10_000), st.integers(4, 30), st.integers(1, 8), st.sampled_from(CS))
def test_newtons_certificate_holds_against_brute_force(seed, clips, width, C):
    """A general solver of the dual, a quadratic program, finds nothing below the gap."""
    chance = np.random.default_rng(seed)
    X, y = chance.normal(size=(clips, width)), np.arange(clips) % 3 == 0
    fit = newton(X, y, None).fit(C)
    signs = np.where(y, 1.0, -1.0)
    Q = (X @ X.T) * np.outer(signs, signs)
    solved = minimize(
        lambda a: (a @ Q @ a / 2 - a.sum(), Q @ a - 1),
        np.full(clips, 0.0), jac=True, method="SLSQP", bounds=[(0, C)] * clips,
        constraints={"type": "eq", "fun": lambda a: a @ signs, "jac": lambda a: signs},
        options={"maxiter": 1000, "ftol": 1e-14},
    )  # fmt: skip
    slack = np.maximum(0, 1 - signs * fit.decide(X))
    primal = fit.coef @ fit.coef / 2 + C * slack.sum()
    assert primal == pytest.approx(-solved.fun, rel=1e-4, abs=1e-6)
    assert fit.duality_gap < 1e-5


def test_hard_data_end_with_a_certificate():
    """More dimensions than clips, both labels of a clip, separable, one positive, large."""
    chance = np.random.default_rng(3)
    X, y = chance.normal(size=(300, 64)), chance.random(300) < 0.3
    twice, alternating = np.tile(X[:50], (6, 1)), np.arange(300) % 2 == 0
    sets = [(X[:40], y[:40]), (twice, alternating), (X + 20 * y[:, None], y), (1e3 * X, y)]
    for features, labels in [*sets, (X, np.arange(300) == 3)]:
        for C in (1e-3, 1.0, 1e3):
            fit = newton(features, labels).fit(C)
            assert np.isfinite(fit.coef).all()
            assert fit.duality_gap < 1e-5


def test_newtons_method_where_libsvm_is_slow_or_does_not_end():
    chance = np.random.default_rng(3)
    X, y = chance.normal(size=(1_000, 64)), chance.random(1_000) < 0.3
    fit = LinearSVM(X, y).fit(1e6)
    assert fit.solver == "newton"
    assert fit.duality_gap < 1e-5
    assert LinearSVM(X, y).fit(1e-3).solver == "libsvm"
    chance = np.random.default_rng(0)
    X, y = chance.normal(size=(GRAM_ROWS + 200, 8)), np.arange(GRAM_ROWS + 200) % 4 == 0
    X[y] += 1
    model = LinearSVMProbe(C=0.1).fit(X, y)
    reference = SVC(kernel="linear", C=0.1, class_weight="balanced").fit(X, y)
    assert model.facts_["solver"] == "newton"
    assert model.duality_gap_[0] < 1e-5
    assert (model.predict(X) == reference.predict(X)).mean() > 0.999


CHANCE = np.random.default_rng(1)
NAMES = np.array(["EN", "HN", "S"])[np.arange(300) % 3]
X = CHANCE.normal(size=(300, 6))
X[NAMES == "HN", 0] += 2
X[NAMES == "S", 1] += 2
SURE = NAMES == "S"


def test_classes_and_their_weights_are_those_of_svc():
    model = LinearSVMProbe(C=1.0).fit(X[:200], NAMES[:200])
    for column, name in enumerate(["EN", "HN", "S"]):
        reference = SVC(kernel="linear", class_weight="balanced").fit(X[:200], NAMES[:200] == name)
        expected = reference.decision_function(X)
        assert model.decision_function(X)[:, column] == pytest.approx(expected, abs=1e-5)
    assert model.score(X[200:], NAMES[200:]) > 0.75
    for weights in ({False: 1.0, True: 5.0}, None):
        model = LinearSVMProbe(C=0.5, class_weight=weights).fit(X, SURE)
        reference = SVC(kernel="linear", C=0.5, class_weight=weights).fit(X, SURE)
        assert model.decision_function(X) == pytest.approx(reference.decision_function(X), abs=1e-3)


def test_validation_clips_choose_c_and_the_temperature():
    train, held, Cs = slice(150), slice(150, None), (0.001, 1.0)
    validation = {"X_val": X[held], "y_val": SURE[held]}
    reference = SVC(kernel="linear", class_weight="balanced")
    model = LinearSVMProbe(C=Cs).fit(X[train], SURE[train], **validation)
    # scikit-learn's own, each fitted to the same clips: that of the better AUC is taken.
    fitted = (reference.set_params(C=C).fit(X[train], SURE[train]) for C in Cs)
    areas = [roc_auc_score(SURE[held], svm.decision_function(X[held])) for svm in fitted]
    assert model.C_[0] == Cs[int(np.argmax(areas))]
    # Without them folds choose.
    scores = [cross_val_score(reference.set_params(C=C), X, SURE, scoring="roc_auc") for C in Cs]
    means = [of_C.mean() for of_C in scores]
    assert LinearSVMProbe(C=Cs).fit(X, SURE).C_[0] == Cs[int(np.argmax(means))]
    model = LinearSVMProbe(C=1.0).fit(X[train], SURE[train], **validation)
    decisions = model.decision_function(X)
    odds = model.predict_proba(X)[:, 1]
    assert ((odds > 0.5) == (decisions > 0)).all()
    assert odds == pytest.approx(1 / (1 + np.exp(-decisions / model.temperature_)))
    logits = np.stack([-decisions, decisions], axis=1)[held] / 2
    assert model.temperature_ == pytest.approx(fit_temperature(logits, SURE[held] + 0), rel=1e-3)
