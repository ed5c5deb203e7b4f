"""Every estimator as an experiment fits it, and the exact linear SVM."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC, LinearSVC

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.data.targets import concept_targets
from obygaze_models.estimators import logistic, svm_solver
from obygaze_models.estimators.classes import fit_temperature
from obygaze_models.estimators.registry import ESTIMATORS, make_estimator
from obygaze_models.experiments.fit import predict_rows
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


def fit(name, data=DATA, train=TRAIN, validation=VALIDATION, labels=LABELS, **options):
    negatives = options.pop("negatives", "a")
    estimator = make_estimator(name, QUICK.get(name, {}) | options)
    learner = om.Learner(estimator, negatives=negatives)
    return fit_on(learner, data, train, validation, labels)


def on_test(model, data=DATA):
    return predict_rows(model, data, TEST)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_learns_and_sees_no_test_clip(name):
    model = fit(name)
    before = on_test(model)
    assert before.shape == (len(TEST), 2)
    assert before.sum(axis=1) == close(1)
    json.dumps(model.about.facts, allow_nan=False)
    if name not in WEAK:
        assert ((before[:, 1] > 0.5) == LABELS[TEST]).mean() > 0.6

    in_test = DATA.folds == 5
    assert not {*np.array(DATA.ids)[in_test]} & {*model.about.seen}
    edited = replace(DATA, X=np.where(in_test[:, None], np.float32(1e3), DATA.X))
    edited = replace(edited, frames=np.where(in_test[:, None, None], np.float16(1e3), DATA.frames))
    labels = LABELS
    if model.about.reads in ("features", "frames"):
        edited = replace(edited, concepts=DATA.concepts | in_test[:, None])
        labels = np.where(in_test, 1, LABELS)
    changed = fit(name, edited, labels=labels)
    assert (on_test(changed) == before).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_class_absent_from_training_has_probability_zero(name):
    labels = np.array([("EN", "HN", "S").index(level) for level in LEVELS])
    labels = np.where((labels == 1) & (DATA.folds != 5), -1, labels)
    train, validation = (
        np.flatnonzero(np.isin(DATA.folds, folds) & (labels >= 0)) for folds in ([0, 1, 2, 3], [4])
    )
    table = on_test(fit(name, DATA, train, validation, labels))
    assert table.shape == (len(TEST), 3)
    assert (table[:, 1] == 0).all()


def test_concepts_are_learned_from_all_clips_of_the_folds():
    """Sure against Hard Negatives trains on no Easy Negative, but its concepts use them."""
    model = fit("pcbm-tree", negatives="a")
    easy = np.flatnonzero((LEVELS == "EN") & (DATA.folds < 4))
    targets = concept_targets(DATA.levels, DATA.concepts, "a")
    known, held = DATA.folds < 4, DATA.folds == 4
    bank = om.ConceptBank(random_state=model.estimator.random_state).fit(
        DATA.X[known], targets[known], X_val=DATA.X[held], concepts_val=targets[held]
    )
    assert (model.estimator.bank_.cavs_ == bank.cavs_).all()
    assert {*DATA.ids_at(easy), *DATA.ids_at(BOTH)} <= {*model.about.seen}
    # Where folds do not describe the draw, the very rows are used.
    mixed = fit("pcbm-tree", train=BOTH[::2], validation=BOTH[1::2], negatives="c")
    assert [*mixed.about.seen] == DATA.ids_at(BOTH)
    unfolded = replace(DATA, folds=np.where(DATA.folds == 3, -1, DATA.folds))
    assert [*fit("pcbm-tree", unfolded, negatives="c").about.seen] == DATA.ids_at(BOTH)


def test_facts_tell_what_was_chosen():
    released = fit("pcbm-tree", negatives="b", bank__C=0.05, head__random_state=42)
    assert {quality["C"] for quality in released.about.facts["concepts"].values()} == {0.05}
    model = make_estimator("pcbm-tree", {"head__random_state": 42}, random_state=7)
    assert (model.random_state, model.bank.random_state, model.head.random_state) == (7, 7, 42)


def test_a_film_prior_counts_the_clips_of_each_film():
    odds = on_test(fit("film-prior"))[:, 1]
    share = (LABELS[TRAIN] == 1).mean()
    for row, probability in zip(TEST, odds, strict=True):
        of_film = TRAIN[DATA.groups[TRAIN] == DATA.groups[row]]
        positives = (LABELS[of_film] == 1).sum()
        assert probability == close((positives + share) / (len(of_film) + 1))
    rows = np.r_[TRAIN[LABELS[TRAIN] == 1][:5], TRAIN[LABELS[TRAIN] == 0]]
    table = on_test(fit("majority", train=rows))
    assert table[:, 1] == close(share)


def test_heads_of_one_fold_share_their_bank():
    forest = {"head": "sklearn.ensemble:RandomForestClassifier", "head__n_estimators": 5}

    def model(name, **options):
        return fit(name, negatives="b", **options).estimator

    tree, linear, forest = model("pcbm-tree"), model("pcbm-logistic"), model("pcbm-tree", **forest)
    assert tree.bank_ is linear.bank_ is forest.bank_
    assert tree.bank_ is not model("pcbm-tree", bank__C=0.1).bank_
    assert len(forest.head_.estimators_) == 5


@pytest.mark.parametrize(
    ("name", "options"), [("logistic", {"l1_ratio": 0.5}), ("pcbm-elastic-net", {})]
)
def test_a_fit_that_does_not_converge_is_an_error(name, options, monkeypatch):
    monkeypatch.setattr(logistic, "MAX_ITER", 1)
    with pytest.raises(ExperimentError, match=r"did not converge in 1 steps.*Lower C"):
        fit(name, **options)


def test_many_clips_are_fitted_without_inner_products(monkeypatch):
    chance = np.random.default_rng(0)
    X, y = chance.normal(size=(700, 8)), np.arange(700) % 4 == 0
    X[y] += 1
    by_kernel = om.LinearSVMProbe(C=0.1).fit(X, y)
    monkeypatch.setattr(svm_solver, "GRAM_ROWS", 450)
    model = om.LinearSVMProbe(C=0.1).fit(X, y)
    reference = LinearSVC(C=0.1, class_weight="balanced", dual=False).fit(X, y)
    assert (model.coef_ == reference.coef_).all()
    assert (model.predict(X) == by_kernel.predict(X)).mean() > 0.98
    assert model.facts_["converged"] == [True]
    films = [f"film {row % 7}" for row in range(700)]
    data = om.dataset(X, y, films, concepts=X[:, :1] > 0, concept_names=["Look"])
    models = {"svm": om.LinearSVMProbe(C=0.1), "pcbm": om.ConceptBottleneck(om.ConceptBank(C=0.1))}
    run = om.cross_validate(models, data, cv=om.LeaveFilmOut(balance="none"))
    assert {note.subject for note in run.warnings if "squared hinge" in note.text} == {*models}

    monkeypatch.setattr(svm_solver, "LinearSVC", partial(LinearSVC, max_iter=1))
    with pytest.warns(ConvergenceWarning):
        hasty = om.LinearSVMProbe(C=0.1).fit(X, y)
    assert hasty.facts_["converged"] == [False]


def test_libsvm_stops_on_data_without_a_signal():
    """The fit after 50 steps per clip is kept, and the facts say so."""
    chance = np.random.default_rng(3)
    X, y = chance.normal(size=(1_000, 64)), chance.random(1_000) < 0.3
    model = om.LinearSVMProbe(C=1e6).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.facts_["converged"] == [False]
    assert om.LinearSVMProbe(C=1e-3).fit(X, y).facts_["converged"] == [True]


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
