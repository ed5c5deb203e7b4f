import json

import numpy as np
import pytest
from sklearn import config_context
from sklearn.svm import SVC

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators import logistic
from obygaze_models.estimators.registry import ESTIMATORS, make_estimator
from obygaze_models.experiments.fit import EstimatorSpec, FitMemo, fit_estimator
from obygaze_models.tasks import concept_targets
from tests.estimators.clips import small_clips

QUICK = {"mlp": {"max_iter": 3}}


@pytest.fixture(scope="module")
def known():
    return small_clips()


@pytest.fixture(scope="module")
def rows(known):
    """Sure against Hard Negatives: training rows of folds 0-3, validation 4, test 5."""
    labels = np.array([{"S": 1, "HN": 0}.get(level, -1) for level in known.levels])
    part = [
        np.flatnonzero(np.isin(known.folds, folds) & (labels >= 0))
        for folds in ([0, 1, 2, 3], [4], [5])
    ]
    return *part, labels


def fit(name, known, rows, seed=0, **options):
    train, validation, _, labels = rows
    negatives = options.pop("negatives", "a")
    spec = EstimatorSpec(name, QUICK.get(name, {}) | options, negatives)
    return fit_estimator(spec, known, train, validation, labels, seed)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_learns_and_says_probabilities(name, known, rows):
    _, _, test, labels = rows
    fitted, again = (fit(name, known, rows) for _ in range(2))
    said = fitted.probabilities(known, test)
    assert said.shape == (len(test), 2)
    assert said.sum(axis=1) == pytest.approx(1)
    assert (said == again.probabilities(known, test)).all()
    json.dumps([fitted.facts, fitted.history], allow_nan=False)
    if name not in ("majority", "film-prior", "mlp-author", "mlp", "random-directions"):
        assert ((said[:, 1] > 0.5) == labels[test]).mean() > 0.6


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_of_the_test_fold_is_seen(name, known, rows):
    """Test clips that are changed beyond recognition change nothing of what is said."""
    _, _, test, labels = rows
    fitted = fit(name, known, rows)
    assert not np.isin(fitted.seen, np.flatnonzero(known.folds == 5)).any()
    other = small_clips()
    of_fold = other.folds == 5
    other.X[of_fold] = 1e3
    before = fitted.probabilities(known, test)
    if fitted.reads == "features":
        other.concepts[of_fold] = True
        other_labels = np.where(of_fold, 1, labels)
    else:
        other_labels = labels
    changed = fit(name, other, (*rows[:3], other_labels))
    assert (changed.probabilities(known, test) == before).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_three_classes_and_one_that_training_lacks(name, known):
    labels = np.array([{"EN": 0, "HN": 1, "S": 2}[level] for level in known.levels])
    train, validation, test = (
        np.flatnonzero(np.isin(known.folds, folds)) for folds in ([0, 1, 2, 3], [4], [5])
    )
    fitted = fit(name, known, (train, validation, test, labels))
    assert fitted.probabilities(known, test).shape == (len(test), 3)
    few = [of[labels[of] != 1] for of in (train, validation)]
    masked = np.where((labels == 1) & (known.folds != 5), -1, labels)
    fitted = fit(name, known, (*few, test, masked))
    said = fitted.probabilities(known, test)
    assert said.shape == (len(test), 3)
    assert (said[:, 1] == 0).all()


def test_concepts_are_learnt_from_all_clips_of_the_training_folds(known, rows):
    """Sure against Hard Negatives trains on no Easy Negative, but these concepts need them."""
    train, validation, _, _ = rows
    assert not {known.levels[row] for row in train} & {"EN"}
    fitted = fit("pcbm-tree", known, rows, negatives="a")
    easy = [row for row, level in enumerate(known.levels) if level == "EN" and known.folds[row] < 4]
    for quality in fitted.facts["concepts"].values():
        assert quality["training_negatives"] == len(easy)
    assert set(easy) <= set(fitted.seen.tolist())
    assert {*train.tolist(), *validation.tolist()} <= set(fitted.seen.tolist())


def test_where_folds_say_nothing_the_very_rows_are_used(known, rows):
    train, validation, test, labels = rows
    mixed = np.sort(np.concatenate([train, validation]))
    fitted = fit("pcbm-tree", known, (mixed[::2], mixed[1::2], test, labels), negatives="c")
    assert fitted.seen.tolist() == mixed.tolist()
    unfolded = small_clips()
    unfolded.folds[unfolded.folds == 3] = -1
    fitted = fit("pcbm-tree", unfolded, rows, negatives="c")
    assert fitted.seen.tolist() == mixed.tolist()


def test_facts_tell_what_was_chosen(known, rows):
    assert fit("svm", known, rows).facts["C"][0] in (0.01, 0.05, 0.1, 0.5, 1.0, 10.0)
    assert fit("svm", known, rows, C=0.2).facts["C"] == [0.2]
    fitted = fit("mlp", known, rows)
    assert [epoch["epoch"] for epoch in fitted.history] == [1, 2, 3]
    assert fitted.facts["best_epoch"] in (1, 2, 3)
    assert fit("pcbm-hybrid", known, rows).facts["accuracy"]["on"] == "validation"


def test_a_film_prior_counts_each_films_clips(known, rows):
    train, _, test, labels = rows
    said = fit("film-prior", known, rows).probabilities(known, test)
    for row, probability in zip(test, said[:, 1], strict=True):
        film = known.groups[row]
        of_film = [r for r in train if known.groups[r] == film]
        positives, share = (labels[of_film] == 1).sum(), (labels[train] == 1).mean()
        assert probability == pytest.approx((positives + share) / (len(of_film) + 1))


def test_a_majority_is_counted_before_balancing(known, rows):
    train, validation, test, labels = rows
    few = np.concatenate([train[labels[train] == 1][:5], train[labels[train] == 0]])
    said = fit("majority", known, (few, validation, test, labels))
    share = (labels[train] == 1).mean()
    assert said.probabilities(known, test)[:, 1] == pytest.approx(share)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mpl", {}, "unknown estimator 'mpl'; did you mean mlp?"),
        ("forest", {}, "unknown estimator 'forest'; known are mlp, .*package.module:Class"),
        ("mlp", {"batchsize": 3}, "unknown option 'batchsize'; did you mean batch_size?"),
        ("pcbm-tree", {"max_depth": 3}, "unknown option 'max_depth'; did you mean head__max_depth"),
        ("mlp", {"hidden_layer_sizes": "x"}, "'hidden_layer_sizes' parameter of MLPProbe must be"),
        ("mlp", {"calibrate": "yes"}, "'calibrate' parameter"),
        ("mlp", {"batch_size": 0}, "'batch_size' parameter"),
        ("mlp", {"learning_rate_init": -1}, "'learning_rate_init' parameter"),
        ("svm", {"C": "x"}, "'C' parameter"),
        ("knn", {"metric": "humming"}, "'metric' parameter"),
        ("pcbm-tree", {"head__max_depth": 0}, "'max_depth' parameter"),
        ("no_such_package:Forest", {}, "cannot be imported .*Install its package"),
        ("sklearn.ensemble:Forest", {}, "cannot be imported"),
        ("sklearn.svm:SVC", {}, "has no predict_proba"),
        ("json:JSONDecoder", {}, "is not a scikit-learn classifier"),
        ("sklearn.mixture:GaussianMixture", {}, "GaussianMixture.* is not a classifier"),
        ("sklearn.linear_model:LinearRegression", {}, "is not a classifier"),
        ("sklearn.ensemble:VotingClassifier", {}, "cannot be made: .*estimators"),
        ("sklearn.naive_bayes:GaussianNB", {"priors": "builtins:dict"}, "priors names builtins:d"),
    ],
)
def test_a_slip_is_one_line(name, options, message):
    with pytest.raises(ExperimentError, match=message) as caught:
        make_estimator(name, options)
    assert "\n" not in str(caught.value)


def test_an_experiments_estimator_names_a_set_of_negatives():
    with pytest.raises(ExperimentError, match="unknown set of negatives 'd'"):
        EstimatorSpec("pcbm-tree", {}, "d")


def test_the_random_state_is_that_of_every_part_without_one():
    model = make_estimator("pcbm-tree", {"head__random_state": 42}, random_state=7)
    assert (model.random_state, model.bank.random_state, model.head.random_state) == (7, 7, 42)


def test_parts_can_be_named_in_an_experiment(known, rows):
    options = {"head": "sklearn.ensemble:RandomForestClassifier", "head__n_estimators": 5}
    fitted = fit("pcbm-tree", known, rows, negatives="b", **options)
    assert len(fitted.model.head_.estimators_) == 5


@pytest.mark.parametrize(
    "name", ["sklearn.ensemble:RandomForestClassifier", "sklearn.naive_bayes:GaussianNB"]
)
def test_any_classifier_of_scikit_learn_is_fitted(name, known, rows):
    fitted = fit(name, known, rows)
    train, _, test, labels = rows
    assert fitted.seen.tolist() == train.tolist()
    said = fitted.probabilities(known, test)
    assert ((said[:, 1] > 0.5) == labels[test]).mean() > 0.6


def test_heads_of_one_fold_share_their_bank(known, rows):
    train, validation, _, labels = rows
    memo = FitMemo()
    trees = [
        fit_estimator(
            EstimatorSpec(name, options, "b"), known, train, validation, labels, 0, memo
        ).model
        for name, options in (
            ("pcbm-tree", {}),
            ("pcbm-logistic", {}),
            ("pcbm-tree", {"bank__C": 0.1}),
        )
    ]
    assert trees[0].bank_ is trees[1].bank_
    assert trees[0].bank_ is not trees[2].bank_


def test_the_c_of_concepts_and_the_trees_seed_can_be_given_as_the_authors_did(known, rows):
    fitted = fit("pcbm-tree", known, rows, negatives="b", bank__C=0.05, head__random_state=42)
    assert {one["C"] for one in fitted.facts["concepts"].values()} == {0.05}
    assert fitted.model.head_.random_state == 42


def test_concepts_can_be_learnt_once_more_from_validation_too(known, rows):
    """With a C for each concept, as scikit-learn's own SVM does on both sets of folds."""
    Cs = dict(zip(known.concept_names, (0.05, 1.0, 0.5, 0.1), strict=False))
    fitted = fit("pcbm-tree", known, rows, negatives="b", bank__C=Cs, bank__refit=True)
    once = fit("pcbm-tree", known, rows, negatives="b", bank__C=Cs)
    assert fitted.seen.tolist() == once.seen.tolist()
    folds = np.unique(known.folds[np.concatenate(rows[:2])])
    both = np.flatnonzero(np.isin(known.folds, folds))
    targets = concept_targets(known.levels, known.concepts, "b")[both]
    for column, name in enumerate(known.concept_names):
        theirs = SVC(kernel="linear", C=Cs[name], class_weight="balanced")
        theirs.fit(known.X[both], targets[:, column])
        cav = theirs.coef_[0] / np.linalg.norm(theirs.coef_[0])
        place = fitted.model.bank_.names_.index(name)
        np.testing.assert_allclose(fitted.model.bank_.cavs_[place], cav, atol=2e-3)
        assert np.abs(once.model.bank_.cavs_[place] - cav).max() > 1e-2
    with pytest.raises(ExperimentError, match="no C is given for the concept"):
        fit("pcbm-tree", known, rows, negatives="b", bank__C={"Nothing": 1.0})


def test_a_fit_is_the_same_with_metadata_routing(known, rows):
    with config_context(enable_metadata_routing=True):
        routed = fit("pcbm-tree", known, rows)
    expected = fit("pcbm-tree", known, rows).probabilities(known, rows[2])
    assert (routed.probabilities(known, rows[2]) == expected).all()


@pytest.mark.parametrize("name", ["logistic", "pcbm-elastic-net"])
def test_a_fit_that_does_not_converge_ends_the_experiment(name, known, rows, monkeypatch):
    monkeypatch.setattr(logistic, "MAX_ITER", 1)
    options = {"l1_ratio": 0.5} if name == "logistic" else {}
    with pytest.raises(ExperimentError, match="did not converge in 1 steps; lower C"):
        fit(name, known, rows, **options)
