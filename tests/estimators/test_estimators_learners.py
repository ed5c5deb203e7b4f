"""Every estimator as an experiment fits it, and the exact linear SVM."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.model_selection import cross_val_predict
from sklearn.svm import SVC, LinearSVC

import obygaze_models as om
from obygaze_features.errors import ExperimentError

# The names of our estimators, all of which must behave.
from obygaze_models.estimators.registry import ESTIMATORS
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
LABELLED = LABELS >= 0
TRAIN = np.flatnonzero(LABELLED & (DATA.folds < 4))
VALIDATION = np.flatnonzero(LABELLED & (DATA.folds == 4))
TEST = np.flatnonzero(LABELLED & (DATA.folds == 5))
BOTH = np.sort(np.r_[TRAIN, VALIDATION])


def fit(
    name,
    data=DATA,
    train=TRAIN,
    validation=VALIDATION,
    labels=LABELS,
    negatives="a",
    **options,
):
    estimator = om.make_estimator(name, QUICK.get(name, {}) | options)
    learner = om.Learner(estimator, negatives=negatives)
    return fit_on(learner, data, train, validation, labels)


def on_test(model):
    clips = DATA.frames if model.about.reads == "frames" else DATA.X
    groups = {}
    if model.about.reads == "groups":
        groups = {"groups": DATA.groups[TEST]}
    return model.estimator.predict_proba(clips[TEST], **groups)


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
    tested = DATA.ids_at(np.flatnonzero(in_test))
    assert not {*tested} & {*model.about.seen}
    edited = replace(DATA, X=DATA.X.copy(), frames=DATA.frames.copy())
    edited.X[in_test] = 1e3
    edited.frames[in_test] = 1e3
    labels = LABELS
    if model.about.reads in ("features", "frames"):
        edited = replace(edited, concepts=DATA.concepts | in_test[:, None])
        labels = np.where(in_test, 1, LABELS)
    changed = fit(name, edited, labels=labels)
    assert (on_test(changed) == before).all()


def test_concepts_are_learned_from_all_clips_of_the_folds():
    """Sure against Hard Negatives trains on no Easy Negative, but its concepts use them."""
    model = fit("pcbm-tree", negatives="b")
    known = DATA.folds < 4
    held = DATA.folds == 4
    marks = DATA.concepts.astype(int)
    validation = {"X_val": DATA.X[held], "concepts_val": marks[held]}
    bank = om.ConceptBank().fit(DATA.X[known], marks[known], **validation)
    assert (model.estimator.bank_.cavs_ == bank.cavs_).all()
    not_tested = DATA.ids_at(np.flatnonzero(DATA.folds < 5))
    assert {*not_tested} == {*model.about.seen}
    # Where folds do not describe the draw, the very rows are used.
    mixed = fit("pcbm-tree", train=BOTH[:-20], validation=BOTH[-20:], negatives="c")
    assert [*mixed.about.seen] == DATA.ids_at(BOTH)


def test_a_film_prior_counts_the_clips_of_each_film():
    odds = on_test(fit("film-prior"))[:, 1]
    labels = LABELS[TRAIN]
    share = (labels == 1).mean()
    for row, probability in zip(TEST, odds, strict=True):
        of_film = TRAIN[DATA.groups[TRAIN] == DATA.groups[row]]
        positives = (LABELS[of_film] == 1).sum()
        assert probability == close((positives + share) / (len(of_film) + 1))
    sure = TRAIN[labels == 1]
    rows = np.r_[sure[:5], TRAIN[labels == 0]]
    table = on_test(fit("majority", train=rows))
    assert table[:, 1] == close(share)


def test_heads_of_one_fold_share_their_bank():
    trees = fit("pcbm-tree", negatives="b").estimator
    linear = fit("pcbm-logistic", negatives="b").estimator
    assert trees.bank_ is linear.bank_
    assert trees.bank_ is not fit("pcbm-tree", negatives="b", bank__C=0.1).estimator.bank_


def test_a_fit_that_does_not_converge_is_an_error():
    X = DATA.X * np.logspace(-9, 9, DATA.X.shape[1])
    logistic = om.make_estimator("logistic", {"l1_ratio": 0.5, "C": 1e9})
    with pytest.raises(ExperimentError, match=r"did not converge in 5000 steps.*Lower C"):
        logistic.fit(X[TRAIN], LABELS[TRAIN])


def test_many_clips_are_fitted_without_inner_products():
    chance = np.random.default_rng(0)
    X = chance.normal(size=(10_001, 3))
    y = np.arange(len(X)) % 4 == 0
    X[y] += 1
    model = om.LinearSVMProbe(C=0.1).fit(X, y)
    reference = LinearSVC(C=0.1, class_weight="balanced", dual=False).fit(X, y)
    assert (model.coef_ == reference.coef_).all()
    assert model.facts_["converged"] == [True]
    [note] = model.warnings_
    assert "squared hinge" in note.text
    bank = om.ConceptBank(C=0.1).fit(X, y[:, None])
    assert bank.warnings_ == [note]


def test_libsvm_stops_on_data_without_a_signal():
    """The fit after 50 steps per clip is kept, and the facts say so."""
    chance = np.random.default_rng(3)
    X = chance.normal(size=(1_000, 64))
    y = chance.random(1_000) < 0.3
    model = om.LinearSVMProbe(C=1e6).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.facts_["converged"] == [False]


CHANCE = np.random.default_rng(1)
NAMES = np.array(["EN", "HN", "S"])[np.arange(300) % 3]
X = CHANCE.normal(size=(300, 6))
X[NAMES == "HN", 0] += 2
X[NAMES == "S", 1] += 2
SURE = NAMES == "S"


def test_classes_and_their_weights_are_those_of_svc():
    names = NAMES[:200]
    model = om.LinearSVMProbe(C=1.0).fit(X[:200], names)
    for column, name in enumerate(["EN", "HN", "S"]):
        reference = SVC(kernel="linear", class_weight="balanced").fit(X[:200], names == name)
        expected = reference.decision_function(X)
        assert model.decision_function(X)[:, column] == pytest.approx(expected, abs=1e-5)
    assert model.score(X[200:], NAMES[200:]) > 0.75
    for weights in ({False: 1.0, True: 5.0}, None):
        model = om.LinearSVMProbe(C=0.5, class_weight=weights).fit(X, SURE)
        reference = SVC(kernel="linear", C=0.5, class_weight=weights).fit(X, SURE)
        assert model.decision_function(X) == pytest.approx(reference.decision_function(X), abs=1e-3)


def test_the_middle_c_is_taken_in_whatever_order_they_are_given():
    rows = [np.argmax(SURE), *np.flatnonzero(~SURE)[:20]]
    for Cs in ((10.0, 0.01, 1.0), (1.0, 10.0, 0.01), (0.01, 1.0, 10.0)):
        with pytest.warns(UserWarning, match="too few clips .* so C = 1 is used$"):
            model = om.LinearSVMProbe(C=Cs).fit(X[rows], SURE[rows])
        assert model.C_ == [1.0]


def best_temperature(decisions, positive):
    margins = np.where(positive, decisions, -decisions)

    def log_loss(temperature):
        return np.logaddexp(0, -margins / temperature).mean()

    return minimize_scalar(log_loss, bounds=(0.01, 100), method="bounded").x


def test_held_out_clips_choose_the_temperature():
    held = {"X_val": X[150:], "y_val": SURE[150:]}
    model = om.LinearSVMProbe(C=1.0)
    model.fit(X[:150], SURE[:150], **held)
    decisions = model.decision_function(X)
    probabilities = expit(decisions / model.temperature_)
    assert model.predict_proba(X)[:, 1] == close(probabilities)
    expected = best_temperature(decisions[150:], SURE[150:])
    assert model.temperature_ == close(expected, eps=1e-3)
    # Without validation clips, those of the folds.
    model = om.LinearSVMProbe(C=(0.5, 1.0)).fit(X, SURE)
    svm = SVC(kernel="linear", class_weight="balanced", C=model.C_[0])
    decisions = cross_val_predict(svm, X, SURE, method="decision_function")
    assert model.temperature_ == close(best_temperature(decisions, SURE), eps=1e-2)
