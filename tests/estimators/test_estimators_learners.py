import json

import numpy as np
import pytest
from sklearn.svm import SVC

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.registry import ESTIMATORS, make_learner
from obygaze_models.tasks import concept_targets
from tests.estimators.clips import small_clips

QUICK = {"mlp": {"max_epochs": 3}}


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
    learner = make_learner(name, QUICK.get(name, {}) | options)
    return learner.fit(known, train, validation, labels, seed)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_learns_and_says_probabilities(name, known, rows):
    _, _, test, labels = rows
    fitted, again = (fit(name, known, rows) for _ in range(2))
    said = fitted.probabilities(known.features[test], test)
    assert said.shape == (len(test), 2)
    assert said.sum(axis=1) == pytest.approx(1)
    assert (said == again.probabilities(known.features[test], test)).all()
    json.dumps([fitted.facts, fitted.history], allow_nan=False)
    if name not in ("majority", "film-prior", "mlp-author", "mlp", "random-directions"):
        assert ((said[:, 1] > 0.5) == labels[test]).mean() > 0.6


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_of_the_test_fold_is_seen(name, known, rows):
    """Test clips that are changed beyond recognition change nothing of what is said."""
    _, _, test, labels = rows
    clips = known.features[test].copy()
    fitted = fit(name, known, rows)
    assert not np.isin(fitted.seen, np.flatnonzero(known.folds == 5)).any()
    other = small_clips()
    of_fold = other.folds == 5
    other.features[of_fold] = 1e3
    before = fitted.probabilities(clips, test)
    if fitted.inputs is None:
        other.concepts[of_fold] = True
        other_labels = np.where(of_fold, 1, labels)
    else:
        other_labels = labels
    changed = fit(name, other, (*rows[:3], other_labels))
    assert (changed.probabilities(clips, test) == before).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_three_classes_and_one_that_training_lacks(name, known):
    labels = np.array([{"EN": 0, "HN": 1, "S": 2}[level] for level in known.levels])
    train, validation, test = (
        np.flatnonzero(np.isin(known.folds, folds)) for folds in ([0, 1, 2, 3], [4], [5])
    )
    fitted = fit(name, known, (train, validation, test, labels))
    assert fitted.probabilities(known.features[test], test).shape == (len(test), 3)
    few = [of[labels[of] != 1] for of in (train, validation)]
    masked = np.where((labels == 1) & (known.folds != 5), -1, labels)
    fitted = fit(name, known, (*few, test, masked))
    said = fitted.probabilities(known.features[test], test)
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
    said = fit("film-prior", known, rows).probabilities(known.features[test], test)
    for row, probability in zip(test, said[:, 1], strict=True):
        film = known.films[row]
        of_film = [r for r in train if known.films[r] == film]
        positives, share = (labels[of_film] == 1).sum(), (labels[train] == 1).mean()
        assert probability == pytest.approx((positives + share) / (len(of_film) + 1))


def test_a_majority_is_counted_before_balancing(known, rows):
    train, validation, test, labels = rows
    few = np.concatenate([train[labels[train] == 1][:5], train[labels[train] == 0]])
    said = fit("majority", known, (few, validation, test, labels))
    share = (labels[train] == 1).mean()
    assert said.probabilities(known.features[test])[:, 1] == pytest.approx(share)


def test_an_oracle_needs_annotations(known, rows):
    with pytest.raises(ExperimentError, match="only be asked about labelled clips"):
        fit("oracle-tree", known, rows).probabilities(known.features[:3])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mpl", {}, "unknown estimator 'mpl'; did you mean mlp?"),
        ("forest", {}, "unknown estimator 'forest'; known are mlp, "),
        ("mlp", {"hiden": [3]}, "unknown option 'hiden' of|'hiden'; did you mean hidden?"),
        ("mlp-author", {"hidden": [3]}, "unknown option 'hidden'"),
        ("mlp", {"hidden": []}, "'hidden' of estimator 'mlp' is .*a list, each a whole number"),
        ("mlp", {"hidden": 64}, "a list, each a whole number"),
        ("mlp", {"calibrate": 1}, "where true or false is meant"),
        ("mlp", {"batch_size": True}, "where a whole number above 0 is meant"),
        ("mlp", {"learning_rate": -1}, "where a number above 0 is meant"),
        ("svm", {"C": "x"}, "where a number above 0 or a list, each a number above 0"),
        ("knn", {"metric": "hamming"}, "where 'cosine' or 'euclidean' is meant"),
        ("pcbm-tree", {"negatives": "d"}, "where 'a' or 'b' or 'c' is meant"),
        ("pcbm-tree", {"concept_C": {"Look": 0}}, "a table, each entry a number above 0"),
    ],
)
def test_a_slip_is_one_line(name, options, message):
    with pytest.raises(ExperimentError, match=message):
        make_learner(name, options)


def test_options_may_be_as_toml_has_them():
    assert make_learner("mlp", {"hidden": [64, 32]}).options == {"hidden": (64, 32)}
    assert make_learner("svm", {"C": [1, 2.5]}).options == {"C": (1, 2.5)}
    assert make_learner("pcbm-tree", {"max_depth": None}).options == {"max_depth": None}


def test_the_c_of_concepts_and_the_trees_seed_can_be_given_as_the_authors_did(known, rows):
    fitted = fit("pcbm-tree", known, rows, negatives="b", concept_C=0.05, random_state=42)
    assert {one["C"] for one in fitted.facts["concepts"].values()} == {0.05}
    assert fitted.model.random_state == 42


def test_concepts_can_be_learnt_once_more_from_validation_too(known, rows):
    """With a C for each concept, as scikit-learn's own SVM does on both sets of folds."""
    Cs = dict(zip(known.concept_names, (0.05, 1.0, 0.5, 0.1), strict=False))
    fitted = fit("pcbm-tree", known, rows, negatives="b", concept_C=Cs, refit=True)
    once = fit("pcbm-tree", known, rows, negatives="b", concept_C=Cs)
    assert fitted.seen.tolist() == once.seen.tolist()
    folds = np.unique(known.folds[np.concatenate(rows[:2])])
    both = np.flatnonzero(np.isin(known.folds, folds))
    targets = concept_targets(known.levels, known.concepts, "b")[both]
    for column, name in enumerate(known.concept_names):
        theirs = SVC(kernel="linear", C=Cs[name], class_weight="balanced")
        theirs.fit(known.features[both], targets[:, column])
        cav = theirs.coef_[0] / np.linalg.norm(theirs.coef_[0])
        place = fitted.model.bank_.names_.index(name)
        np.testing.assert_allclose(fitted.model.bank_.cavs_[place], cav, atol=2e-3)
        assert np.abs(once.model.bank_.cavs_[place] - cav).max() > 1e-2
    with pytest.raises(ExperimentError, match="no C is given for the concept"):
        fit("pcbm-tree", known, rows, negatives="b", concept_C={"Nothing": 1.0})
