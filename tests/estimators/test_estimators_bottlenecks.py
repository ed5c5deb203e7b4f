import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.bottlenecks import (
    ConceptBottleneck,
    HybridBottleneck,
    OracleBottleneck,
)
from obygaze_models.estimators.concepts import ConceptBank, RandomDirections
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.estimators.trees import TreeArrays, as_tree
from obygaze_models.tasks import concept_targets
from tests.estimators.clips import logistic_on, tree_on, with_output


@pytest.fixture(scope="module")
def targets(labelled):
    return concept_targets(labelled.levels, labelled.concepts, "a")


@pytest.fixture(scope="module")
def bank(labelled, targets):
    train, held = labelled.folds < 8, labelled.folds == 8
    X = labelled.X
    return ConceptBank(C=(1.0, 10.0)).fit(
        X[train], targets[train], X_val=X[held], concepts_val=targets[held]
    )


@pytest.fixture(scope="module")
def sides(labelled):
    """Features and labels of folds 0-8, and of fold 9."""
    y = np.array(labelled.levels) == "S"
    train = labelled.folds < 9
    return labelled.X[train], y[train], labelled.X[~train], y[~train]


@pytest.mark.parametrize("output", ["distance", "decision"])
@pytest.mark.parametrize(("depth", "leaf"), [(10, 1), (4, 6), (None, 1)])
def test_a_tree_as_arrays_is_exactly_scikit_learns(bank, sides, output, depth, leaf):
    X, y, X_test, _ = sides
    bank = with_output(bank, output)
    theirs = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=42)
    theirs.fit(bank.transform(X), y)
    ours = tree_on(bank, max_depth=depth, min_samples_leaf=leaf, random_state=42).fit(X, y)
    arrays = as_tree(ours.head_)
    for clips in (X, X_test):
        expected = theirs.predict_proba(bank.transform(clips))
        assert (ours.predict_proba(clips) == expected).all()
        assert (arrays.predict_proba(ours.concept_scores(clips)) == expected).all()
        assert (
            arrays.apply(ours.concept_scores(clips)) == theirs.apply(bank.transform(clips))
        ).all()


@pytest.mark.parametrize("output", ["distance", "decision"])
@pytest.mark.parametrize(("l1_ratio", "C"), [(0, 0.1), (1, 0.1), (0.5, 1.0)])
def test_a_linear_head_is_exactly_scikit_learns(bank, sides, output, l1_ratio, C):
    X, y, X_test, _ = sides
    bank = with_output(bank, output)
    theirs = LogisticRegression(
        solver="liblinear" if l1_ratio in (0, 1) else "saga",
        l1_ratio=l1_ratio,
        C=C,
        random_state=42,
        max_iter=5000,
    ).fit(bank.transform(X), y)
    ours = logistic_on(bank, C=C, l1_ratio=l1_ratio, random_state=42).fit(X, y)
    assert (ours.head_.coef_ == theirs.coef_).all()
    assert (ours.head_.intercept_ == theirs.intercept_).all()
    expected = theirs.predict_proba(bank.transform(X_test))
    assert ours.predict_proba(X_test) == pytest.approx(expected, abs=1e-14)
    assert (ours.predict(X_test) == theirs.predict(bank.transform(X_test))).all()


def test_three_classes(bank, labelled):
    X, y = labelled.X, np.array(labelled.levels)
    projected = bank.transform(X)
    tree = tree_on(bank, max_depth=4, random_state=1).fit(X, y)
    theirs = DecisionTreeClassifier(max_depth=4, random_state=1).fit(projected, y)
    assert (tree.predict(X) == theirs.predict(projected)).all()
    linear = logistic_on(bank, C=10).fit(X, y)
    lbfgs = LogisticRegression(C=10, max_iter=5000).fit(projected, y)
    assert linear.predict_proba(X) == pytest.approx(lbfgs.predict_proba(projected), abs=1e-12)


def test_concepts_beat_directions_that_mean_nothing(bank, sides):
    X, y, X_test, y_test = sides
    concepts = logistic_on(bank, C=100).fit(X, y).score(X_test, y_test)
    random = [
        ConceptBottleneck(RandomDirections(8), LogisticProbe(C=100), random_state=seed)
        .fit(X, y)
        .score(X_test, y_test)
        for seed in range(5)
    ]
    assert concepts > max(random)


def test_clips_without_a_label_teach_the_concepts_alone(labelled, targets):
    """As fitting the bank on all clips and the head on those with a label by hand."""
    X, y = labelled.X, (np.array(labelled.levels) == "S").astype(int)
    has_label = np.isin(labelled.levels, ("HN", "S"))
    model = ConceptBottleneck(ConceptBank(C=1.0), LogisticProbe(C=1))
    model.fit(X, np.where(has_label, y, -1), concepts=targets, labelled=has_label)
    bank = ConceptBank(C=1.0).fit(X, targets)
    head = LogisticProbe(C=1).fit(bank.transform(X[has_label]), y[has_label])
    assert model.classes_.tolist() == [0, 1]
    assert model.predict_proba(X) == pytest.approx(head.predict_proba(bank.transform(X)))


@pytest.mark.filterwarnings("ignore::obygaze_models.estimators.concepts.DegenerateConcept")
def test_validation_clips_choose_for_the_bank_and_teach_the_head(labelled, targets):
    X, y = labelled.X, np.array(labelled.levels) == "S"
    train, held = labelled.folds < 8, labelled.folds == 8
    model = ConceptBottleneck(random_state=0).fit(
        X[train], y[train], concepts=targets[train],
        X_val=X[held], y_val=y[held], concepts_val=targets[held],
    )  # fmt: skip
    bank = ConceptBank().fit(X[train], targets[train], X_val=X[held], concepts_val=targets[held])
    assert (model.bank_.cavs_ == bank.cavs_).all()
    both = np.concatenate([np.flatnonzero(train), np.flatnonzero(held)])
    head = DecisionTreeClassifier(max_depth=10, random_state=0)
    head.fit(bank.transform(X[both]), y[both])
    assert (model.predict_proba(X) == head.predict_proba(bank.transform(X))).all()
    assert list(model.facts_["concepts"]) == bank.names_


def test_an_oracle_is_a_tree_on_the_annotations(labelled):
    X, y = labelled.X, np.array(labelled.levels) == "S"
    C = labelled.concepts.astype(float)
    ours = OracleBottleneck(random_state=3).fit(X, y, concepts=C)
    theirs = DecisionTreeClassifier(max_depth=10, random_state=3).fit(C, y)
    assert (ours.predict_proba(X, concepts=C) == theirs.predict_proba(C)).all()
    with pytest.raises(ExperimentError, match="pass concepts=C"):
        ours.predict_proba(X)


def test_a_residual_on_nothing_is_a_plain_logistic_regression(sides):
    """Where the bottleneck says nothing, the hybrid has a known answer."""
    X, y, X_test, _ = sides
    hybrid = HybridBottleneck(RandomDirections(), LogisticProbe(C=1e-12), residual_C=1.0)
    hybrid.fit(X, y)
    assert np.abs(hybrid.head_.coef_).max() < 1e-6
    # A row of weights for each of two classes, both penalised: as one row at twice the C.
    theirs = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(X, y)
    assert hybrid.predict_proba(X_test) == pytest.approx(theirs.predict_proba(X_test), abs=1e-3)


def test_a_hybrid_says_how_it_does_without_its_concepts(bank, sides):
    X, y, X_val, y_val = sides
    frozen, head = FrozenEstimator(bank), LogisticProbe(C=100)
    hybrid = HybridBottleneck(frozen, head).fit(X, y, X_val=X_val, y_val=y_val)
    assert hybrid.accuracy_["on"] == "validation"
    assert hybrid.accuracy_["clips"] == len(y_val)
    assert hybrid.accuracy_["full"] == hybrid.score(X_val, y_val)
    right = (hybrid.mean_logits_ + hybrid.residual_logits(X_val)).argmax(axis=1) == y_val
    assert hybrid.accuracy_["concepts_ablated"] == right.mean()
    right = hybrid.head_.predict(hybrid.concept_scores(X_val)) == y_val
    assert hybrid.accuracy_["residual_ablated"] == right.mean()
    plain = ConceptBottleneck(frozen, head).fit(X, y)
    assert hybrid.accuracy_["residual_ablated"] == plain.score(X_val, y_val)
    assert HybridBottleneck(frozen).fit(X, y).accuracy_["on"] == "training"


def test_parts_that_do_not_fit_are_one_line(bank, sides):
    X, y, _, _ = sides
    with pytest.raises(NotFittedError):
        ConceptBottleneck(FrozenEstimator(ConceptBank())).fit(X, y)
    with pytest.raises(ValueError, match="expecting 64 features"):
        tree_on(bank).fit(X[:, :60], y)
    with pytest.raises(ExperimentError, match="has no decision_function"):
        HybridBottleneck(FrozenEstimator(bank), DecisionTreeClassifier()).fit(X, y)
    with pytest.raises(ExperimentError, match=r"pass fit\(X, y, concepts=C\)"):
        ConceptBottleneck().fit(X, y)


def tree(**changes):
    parts = {
        "left": np.array([1, -1, -1]),
        "right": np.array([2, -1, -1]),
        "feature": np.array([1, -2, -2]),
        "threshold": np.array([0.5, -2, -2]),
        "value": np.array([[0.5, 0.5], [1, 0], [0, 1]]),
        "width": 2,
    }
    return TreeArrays(**parts | changes)


def test_a_tree_by_hand():
    assert tree().predict_proba(np.array([[9, 0.5], [9, 0.6]])).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left": np.array([3, -1, -1])}, "child is out of the range of its 3 nodes"),
        ({"right": np.array([-5, -1, -1])}, "child is out of the range"),
        ({"left": np.array([0, -1, -1])}, "child is out of the range"),  # for ever
        ({"left": np.array([1, 0, -1]), "right": np.array([2, 2, -1])}, "child is out"),
        ({"left": np.array([1, 2, -1])}, "has one child"),
        ({"feature": np.array([2, -2, -2])}, "a column out of its 2"),
        ({"feature": np.array([-1, -2, -2])}, "a column out of its 2"),
        ({"threshold": np.array([0.5])}, "differ in length"),
        ({"value": np.zeros((2, 2))}, "a tree of 3 nodes has values of"),
        ({"left": np.array([1.0, -1, -1])}, "whole numbers"),
    ],
)
def test_a_tree_that_points_nowhere_is_refused(changes, message):
    with pytest.raises(ExperimentError, match=message):
        tree(**changes)
