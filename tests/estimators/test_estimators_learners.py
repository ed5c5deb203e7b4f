"""Every estimator as an experiment fits it, and the exact linear SVM."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.data.targets import concept_targets
from obygaze_models.estimators import logistic
from obygaze_models.estimators.classes import fit_temperature
from obygaze_models.estimators.registry import ESTIMATORS, make_estimator
from obygaze_models.estimators.svm_solver import GRAM_ROWS, LinearSVM
from obygaze_models.experiments.experiment import Learner
from obygaze_models.experiments.fit import FitMemo
from obygaze_models.experiments.plan import key_of
from tests.kit.clips import small_clips
from tests.kit.fits import fit_on
from tests.kit.floats import close

QUICK = {"mlp": {"max_iter": 3}, "mlp-author": {"max_iter": 3}}
QUICK["frame-mil"] = {"max_iter": 3}
WEAK = {"majority", "film-prior", "random-directions", *QUICK}
DATA = small_clips()
LEVELS = np.array(DATA.levels)
#: Sure against Hard Negatives: training rows of folds 0-3, validation 4, test 5.
LABELS = np.select([LEVELS == "S", LEVELS == "HN"], [1, 0], -1)
TRAIN, VALIDATION, TEST = (
    np.flatnonzero(np.isin(DATA.folds, folds) & (LABELS >= 0)) for folds in ([0, 1, 2, 3], [4], [5])
)
BOTH = np.sort(np.r_[TRAIN, VALIDATION])


def fit(name, data=DATA, train=TRAIN, validation=VALIDATION, labels=LABELS, memo=None, **options):
    negatives = options.pop("negatives", "a")
    learner = Learner(name, QUICK.get(name, {}) | options, negatives)
    return fit_on(learner, data, train, validation, labels, memo)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_learns_and_sees_no_test_clip(name):
    fitted = fit(name)
    before = fitted.probabilities(DATA, TEST)
    assert before.shape == (len(TEST), 2)
    assert before.sum(axis=1) == close(1)
    json.dumps(fitted.facts, allow_nan=False)
    if name not in WEAK:
        assert ((before[:, 1] > 0.5) == LABELS[TEST]).mean() > 0.6

    in_test = DATA.folds == 5
    assert not in_test[fitted.seen].any()
    edited = replace(DATA, X=np.where(in_test[:, None], np.float32(1e3), DATA.X))
    edited = replace(edited, frames=np.where(in_test[:, None, None], np.float16(1e3), DATA.frames))
    labels = LABELS
    if fitted.reads in ("features", "frames"):
        edited = replace(edited, concepts=DATA.concepts | in_test[:, None])
        labels = np.where(in_test, 1, LABELS)
    changed = fit(name, edited, labels=labels)
    assert (changed.probabilities(DATA, TEST) == before).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_class_absent_from_training_has_probability_zero(name):
    labels = np.array([("EN", "HN", "S").index(level) for level in LEVELS])
    labels = np.where((labels == 1) & (DATA.folds != 5), -1, labels)
    train, validation = (
        np.flatnonzero(np.isin(DATA.folds, folds) & (labels >= 0)) for folds in ([0, 1, 2, 3], [4])
    )
    table = fit(name, DATA, train, validation, labels).probabilities(DATA, TEST)
    assert table.shape == (len(TEST), 3)
    assert (table[:, 1] == 0).all()


def test_concepts_are_learned_from_all_clips_of_the_folds():
    """Sure against Hard Negatives trains on no Easy Negative, but its concepts use them."""
    fitted = fit("pcbm-tree", negatives="a")
    easy = np.flatnonzero((LEVELS == "EN") & (DATA.folds < 4))
    for quality in fitted.facts["concepts"].values():
        assert quality["training_negatives"] == len(easy)
    assert {*easy, *TRAIN, *VALIDATION} <= set(fitted.seen)
    # Where folds do not describe the draw, the very rows are used.
    mixed = fit("pcbm-tree", train=BOTH[::2], validation=BOTH[1::2], negatives="c")
    assert (mixed.seen == BOTH).all()
    unfolded = replace(DATA, folds=np.where(DATA.folds == 3, -1, DATA.folds))
    assert (fit("pcbm-tree", unfolded, negatives="c").seen == BOTH).all()


def test_facts_tell_what_was_chosen():
    released = fit("pcbm-tree", negatives="b", bank__C=0.05, head__random_state=42)
    assert {quality["C"] for quality in released.facts["concepts"].values()} == {0.05}
    model = make_estimator("pcbm-tree", {"head__random_state": 42}, random_state=7)
    assert (model.random_state, model.bank.random_state, model.head.random_state) == (7, 7, 42)


def test_a_film_prior_counts_the_clips_of_each_film():
    odds = fit("film-prior").probabilities(DATA, TEST)[:, 1]
    share = (LABELS[TRAIN] == 1).mean()
    for row, probability in zip(TEST, odds, strict=True):
        of_film = TRAIN[DATA.groups[TRAIN] == DATA.groups[row]]
        positives = (LABELS[of_film] == 1).sum()
        assert probability == close((positives + share) / (len(of_film) + 1))
    rows = np.r_[TRAIN[LABELS[TRAIN] == 1][:5], TRAIN[LABELS[TRAIN] == 0]]
    table = fit("majority", train=rows).probabilities(DATA, TEST)
    assert table[:, 1] == close(share)


def test_heads_of_one_fold_share_their_bank():
    memo = FitMemo()
    forest = {"head": "sklearn.ensemble:RandomForestClassifier", "head__n_estimators": 5}

    def model(name, **options):
        return fit(name, memo=memo, negatives="b", **options).estimator

    tree, linear, forest = model("pcbm-tree"), model("pcbm-logistic"), model("pcbm-tree", **forest)
    assert tree.bank_ is linear.bank_ is forest.bank_
    assert tree.bank_ is not model("pcbm-tree", bank__C=0.1).bank_
    assert len(forest.head_.estimators_) == 5


def test_banks_and_parameters_that_look_alike_are_told_apart():
    ours = type("ConceptBank", (om.ConceptBank,), {"__module__": "mine"})
    alike = [
        (om.ConceptBank(), ours()),
        ([["a"], "b"], [["a", "b"]]),
        tuple(np.array([*range(2000), last], dtype=object) for last in "ab"),
    ]
    for first, second in alike:
        assert key_of(first) == key_of(first)
        assert key_of(first) != key_of(second)


def test_concepts_are_learned_once_more_with_validation():
    Cs = dict(zip(DATA.concept_names, (0.05, 1.0, 0.5), strict=True))
    again, once = (
        fit("pcbm-tree", negatives="b", bank__C=Cs, bank__refit=refit) for refit in (True, False)
    )
    assert (again.seen == once.seen).all()
    rows = np.flatnonzero(DATA.folds < 5)
    targets = concept_targets(DATA.levels, DATA.concepts, "b")[rows]
    for column, name in enumerate(DATA.concept_names):
        reference = SVC(kernel="linear", C=Cs[name], class_weight="balanced")
        reference.fit(DATA.X[rows], targets[:, column])
        direction = reference.coef_[0] / np.linalg.norm(reference.coef_[0])
        np.testing.assert_allclose(again.estimator.bank_.cavs_[column], direction, atol=2e-3)
        assert np.abs(once.estimator.bank_.cavs_[column] - direction).max() > 1e-2


@pytest.mark.parametrize(
    ("name", "options"), [("logistic", {"l1_ratio": 0.5}), ("pcbm-elastic-net", {})]
)
def test_a_fit_that_does_not_converge_is_an_error(name, options, monkeypatch):
    monkeypatch.setattr(logistic, "MAX_ITER", 1)
    with pytest.raises(ExperimentError, match=r"did not converge in 1 steps.*Lower C"):
        fit(name, **options)


CS = (0.01, 0.05, 0.1, 0.5, 1.0, 10.0)
CLIPS = DATA.X.astype(np.float64)


def newton(X, y, class_weight="balanced"):
    """Return the solver of large problems, applied to a small one."""
    problem = LinearSVM(X, y, class_weight)
    problem.fit = problem._fit_newton
    return problem


@given(st.integers(0, 10_000), st.integers(4, 30), st.integers(1, 8), st.sampled_from(CS))
def test_the_newton_bound_holds_against_brute_force(seed, clips, width, C):
    """A general quadratic solver of the dual finds nothing below the gap."""
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
    assert primal == close(-solved.fun, eps=1e-4)
    assert fit.duality_gap < 1e-5


def test_hard_data_end_within_the_bound():
    """Test wide, contradictory, separable, one-positive and large data."""
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
    model = om.LinearSVMProbe(C=0.1).fit(X, y)
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
    model = om.LinearSVMProbe(C=1.0).fit(X[:200], NAMES[:200])
    for column, name in enumerate(["EN", "HN", "S"]):
        reference = SVC(kernel="linear", class_weight="balanced").fit(X[:200], NAMES[:200] == name)
        expected = reference.decision_function(X)
        assert model.decision_function(X)[:, column] == pytest.approx(expected, abs=1e-5)
    assert model.score(X[200:], NAMES[200:]) > 0.75
    for weights in ({False: 1.0, True: 5.0}, None):
        model = om.LinearSVMProbe(C=0.5, class_weight=weights).fit(X, SURE)
        reference = SVC(kernel="linear", C=0.5, class_weight=weights).fit(X, SURE)
        assert model.decision_function(X) == pytest.approx(reference.decision_function(X), abs=1e-3)


def test_the_middle_c_is_taken_in_whatever_order_they_are_given():
    rows = np.r_[np.flatnonzero(SURE)[:1], np.flatnonzero(~SURE)[:20]]
    for Cs in ((10.0, 0.01, 1.0), (1.0, 10.0, 0.01), (0.01, 1.0, 10.0)):
        with pytest.warns(UserWarning, match="too few clips .* so C = 1 is used$"):
            assert om.LinearSVMProbe(C=Cs).fit(X[rows], SURE[rows]).C_ == [1.0]


def test_validation_clips_choose_c_and_the_temperature():
    train, held, Cs = slice(150), slice(150, None), (0.001, 1.0)
    validation = {"X_val": X[held], "y_val": SURE[held]}
    reference = SVC(kernel="linear", class_weight="balanced")
    model = om.LinearSVMProbe(C=Cs).fit(X[train], SURE[train], **validation)
    # scikit-learn's models, fitted to the same clips; the one with the better AUC is used.
    fitted = (reference.set_params(C=C).fit(X[train], SURE[train]) for C in Cs)
    areas = [roc_auc_score(SURE[held], svm.decision_function(X[held])) for svm in fitted]
    assert model.C_[0] == Cs[int(np.argmax(areas))]
    # Without them folds choose.
    scores = [cross_val_score(reference.set_params(C=C), X, SURE, scoring="roc_auc") for C in Cs]
    means = [of_C.mean() for of_C in scores]
    assert om.LinearSVMProbe(C=Cs).fit(X, SURE).C_[0] == Cs[int(np.argmax(means))]
    model = om.LinearSVMProbe(C=1.0).fit(X[train], SURE[train], **validation)
    decisions = model.decision_function(X)
    odds = model.predict_proba(X)[:, 1]
    assert ((odds > 0.5) == (decisions > 0)).all()
    assert odds == close(1 / (1 + np.exp(-decisions / model.temperature_)))
    logits = np.stack([-decisions, decisions], axis=1)[held] / 2
    assert model.temperature_ == close(fit_temperature(logits, SURE[held] + 0), eps=1e-3)
