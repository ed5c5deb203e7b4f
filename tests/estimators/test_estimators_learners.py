"""Every estimator as an experiment fits it: what it gets, what it sees, and what it reports."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.svm import SVC

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.data.tasks import concept_targets
from obygaze_models.estimators import logistic
from obygaze_models.estimators.registry import ESTIMATORS, make_estimator
from obygaze_models.experiments.fit import EstimatorSpec, FitMemo, digest_of_values, fit_estimator
from tests.kit.clips import small_clips

QUICK = {"mlp": {"max_iter": 3}, "mlp-author": {"max_iter": 3}}
QUICK |= {name: {"max_iter": 3} for name in ("attention-probe", "frame-mil")}
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
    spec = EstimatorSpec(name, QUICK.get(name, {}) | options, negatives)
    return fit_estimator(spec, data, train, validation, labels, 0, memo)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_learns_and_sees_no_test_clip(name):
    fitted = fit(name)
    before = fitted.probabilities(DATA, TEST)
    assert before.shape == (len(TEST), 2)
    assert before.sum(axis=1) == pytest.approx(1)
    json.dumps([fitted.facts, fitted.history], allow_nan=False)
    if name not in WEAK:
        assert ((before[:, 1] > 0.5) == LABELS[TEST]).mean() > 0.6

    in_test = DATA.folds == 5
    assert not in_test[fitted.seen].any()
    other = replace(DATA, X=np.where(in_test[:, None], np.float32(1e3), DATA.X))
    other = replace(other, frames=np.where(in_test[:, None, None], np.float16(1e3), DATA.frames))
    labels = LABELS
    if fitted.reads in ("features", "frames"):
        other = replace(other, concepts=DATA.concepts | in_test[:, None])
        labels = np.where(in_test, 1, LABELS)
    changed = fit(name, other, labels=labels)
    assert (changed.probabilities(DATA, TEST) == before).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_of_three_classes_training_lacks_one(name):
    labels = np.array([("EN", "HN", "S").index(level) for level in LEVELS])
    labels = np.where((labels == 1) & (DATA.folds != 5), -1, labels)
    train, validation = (
        np.flatnonzero(np.isin(DATA.folds, folds) & (labels >= 0)) for folds in ([0, 1, 2, 3], [4])
    )
    table = fit(name, DATA, train, validation, labels).probabilities(DATA, TEST)
    assert table.shape == (len(TEST), 3)
    assert (table[:, 1] == 0).all()


def test_concepts_are_learned_from_all_clips_of_the_folds():
    """Sure against Hard Negatives trains on no Easy Negative, but these concepts need them."""
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
    assert fit("pcbm-hybrid").facts["accuracy"]["on"] == "validation"
    released = fit("pcbm-tree", negatives="b", bank__C=0.05, head__random_state=42)
    assert {quality["C"] for quality in released.facts["concepts"].values()} == {0.05}
    model = make_estimator("pcbm-tree", {"head__random_state": 42}, random_state=7)
    assert (model.random_state, model.bank.random_state, model.head.random_state) == (7, 7, 42)


def test_a_film_prior_counts_each_films_clips():
    odds = fit("film-prior").probabilities(DATA, TEST)[:, 1]
    share = (LABELS[TRAIN] == 1).mean()
    for row, probability in zip(TEST, odds, strict=True):
        of_film = TRAIN[DATA.groups[TRAIN] == DATA.groups[row]]
        positives = (LABELS[of_film] == 1).sum()
        assert probability == pytest.approx((positives + share) / (len(of_film) + 1))
    few = np.r_[TRAIN[LABELS[TRAIN] == 1][:5], TRAIN[LABELS[TRAIN] == 0]]
    table = fit("majority", train=few).probabilities(DATA, TEST)
    assert table[:, 1] == pytest.approx(share)


def test_heads_of_one_fold_share_their_bank():
    memo = FitMemo()
    forest = {"head": "sklearn.ensemble:RandomForestClassifier", "head__n_estimators": 5}

    def model(name, **options):
        return fit(name, memo=memo, negatives="b", **options).model

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
        assert digest_of_values(first) == digest_of_values(first)
        assert digest_of_values(first) != digest_of_values(second)


def test_concepts_are_learned_once_more_with_validation():
    Cs = dict(zip(DATA.concept_names, (0.05, 1.0, 0.5), strict=True))
    again, once = (
        fit("pcbm-tree", negatives="b", bank__C=Cs, bank__refit=refit) for refit in (True, False)
    )
    assert (again.seen == once.seen).all()
    both = np.flatnonzero(DATA.folds < 5)
    targets = concept_targets(DATA.levels, DATA.concepts, "b")[both]
    for column, name in enumerate(DATA.concept_names):
        reference = SVC(kernel="linear", C=Cs[name], class_weight="balanced")
        reference.fit(DATA.X[both], targets[:, column])
        direction = reference.coef_[0] / np.linalg.norm(reference.coef_[0])
        np.testing.assert_allclose(again.model.bank_.cavs_[column], direction, atol=2e-3)
        assert np.abs(once.model.bank_.cavs_[column] - direction).max() > 1e-2


@pytest.mark.parametrize(
    ("name", "options"), [("logistic", {"l1_ratio": 0.5}), ("pcbm-elastic-net", {})]
)
def test_a_fit_that_does_not_converge_is_an_error(name, options, monkeypatch):
    monkeypatch.setattr(logistic, "MAX_ITER", 1)
    with pytest.raises(ExperimentError, match="did not converge in 1 steps; lower C"):
        fit(name, **options)
