import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.directions import RandomDirections
from obygaze_models.estimators.heads import TreeHead
from obygaze_models.estimators.pcbm import OracleBottleneck, PCBMClassifier, PCBMHybrid
from obygaze_models.tasks import concept_targets


@pytest.fixture(scope="module")
def bank(labelled):
    targets = concept_targets(labelled.levels, labelled.concepts, "a")
    train, held = labelled.folds < 8, labelled.folds == 8
    X = labelled.features
    return ConceptBank(Cs=(1.0, 10.0)).fit(X[train], targets[train], X[held], targets[held])


@pytest.fixture(scope="module")
def sides(labelled):
    """Features and labels of folds 0-8, and of fold 9."""
    y = np.array(labelled.levels) == "S"
    train = labelled.folds < 9
    return labelled.features[train], y[train], labelled.features[~train], y[~train]


@pytest.mark.parametrize("output", ["distance", "decision"])
@pytest.mark.parametrize(("depth", "leaf"), [(10, 1), (4, 6), (None, 1)])
def test_a_tree_is_exactly_scikit_learns(bank, sides, output, depth, leaf):
    X, y, X_test, _ = sides
    bank.output = output
    theirs = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=42)
    theirs.fit(bank.transform(X), y)
    ours = PCBMClassifier(
        bank, "tree", output, max_depth=depth, min_samples_leaf=leaf, random_state=42
    ).fit(X, y)
    for clips in (X, X_test):
        expected = theirs.predict_proba(bank.transform(clips))
        assert (ours.predict_proba(clips) == expected).all()
        assert (ours.head_.leaves(ours.measure(clips)) == theirs.apply(bank.transform(clips))).all()


@pytest.mark.parametrize("output", ["distance", "decision"])
@pytest.mark.parametrize(("l1_ratio", "C"), [(0, 0.1), (1, 0.1), (0.5, 1.0)])
def test_a_linear_head_is_exactly_scikit_learns(bank, sides, output, l1_ratio, C):
    X, y, X_test, _ = sides
    bank.output = output
    theirs = LogisticRegression(
        solver="liblinear" if l1_ratio in (0, 1) else "saga",
        l1_ratio=l1_ratio,
        C=C,
        random_state=42,
        max_iter=5000,
    ).fit(bank.transform(X), y)
    head = "elastic-net" if 0 < l1_ratio < 1 else "logistic"
    ours = PCBMClassifier(bank, head, output, C=C, l1_ratio=l1_ratio, random_state=42).fit(X, y)
    assert (ours.head_.coef == theirs.coef_).all()
    assert (ours.head_.intercept == theirs.intercept_).all()
    expected = theirs.predict_proba(bank.transform(X_test))
    assert ours.predict_proba(X_test) == pytest.approx(expected, abs=1e-14)
    assert (ours.predict(X_test) == theirs.predict(bank.transform(X_test))).all()


def test_three_classes(bank, labelled):
    y = np.array(labelled.levels)
    bank.output = "distance"
    projected = bank.transform(labelled.features)
    tree = PCBMClassifier(bank, max_depth=4, random_state=1).fit(labelled.features, y)
    theirs = DecisionTreeClassifier(max_depth=4, random_state=1).fit(projected, y)
    assert (tree.predict(labelled.features) == theirs.predict(projected)).all()
    linear = PCBMClassifier(bank, "logistic", C=10).fit(labelled.features, y)
    lbfgs = LogisticRegression(C=10, max_iter=5000).fit(projected, y)
    assert linear.predict_proba(labelled.features) == pytest.approx(
        lbfgs.predict_proba(projected), abs=1e-12
    )


def test_concepts_beat_directions_that_mean_nothing(bank, sides):
    X, y, X_test, y_test = sides
    concepts = PCBMClassifier(bank, "logistic", C=100).fit(X, y).score(X_test, y_test)
    random = [
        PCBMClassifier(RandomDirections(8, seed).fit(X), "logistic", C=100)
        .fit(X, y)
        .score(X_test, y_test)
        for seed in range(5)
    ]
    assert concepts > max(random)


def test_an_oracle_is_a_tree_on_the_annotations(labelled):
    y = np.array(labelled.levels) == "S"
    X = labelled.concepts.astype(float)
    ours = OracleBottleneck(random_state=3).fit(X, y)
    theirs = DecisionTreeClassifier(max_depth=10, random_state=3).fit(X, y)
    assert (ours.predict_proba(X) == theirs.predict_proba(X)).all()


def test_a_residual_on_nothing_is_a_plain_logistic_regression(sides):
    """Where the bottleneck says nothing, the hybrid has a known answer."""
    X, y, X_test, _ = sides
    hybrid = PCBMHybrid(C=1e-12, residual_C=1.0).fit(X, y)
    assert np.abs(hybrid.head_.coef).max() < 1e-6
    # A row of weights for each of two classes, both penalised: as one row at twice the C.
    theirs = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(X, y)
    assert hybrid.predict_proba(X_test) == pytest.approx(theirs.predict_proba(X_test), abs=1e-3)


def test_a_hybrid_says_how_it_does_without_its_concepts(bank, labelled, sides):
    X, y, X_val, y_val = sides
    hybrid = PCBMHybrid(bank, C=100).fit(X, y, X_val, y_val)
    assert hybrid.accuracy_["on"] == "validation"
    assert hybrid.accuracy_["clips"] == len(y_val)
    assert hybrid.accuracy_["full"] == hybrid.score(X_val, y_val)
    for part in ("concepts", "residual"):
        said = hybrid.predict_proba(X_val, without=part).argmax(axis=1) == y_val
        assert hybrid.accuracy_[f"{part}_ablated"] == said.mean()
    plain = PCBMClassifier(bank, "logistic", C=100).fit(X, y)
    assert hybrid.accuracy_["residual_ablated"] == plain.score(X_val, y_val)
    assert PCBMHybrid(bank).fit(X, y).accuracy_["on"] == "training"


def test_a_bank_that_does_not_fit_is_one_line(bank, sides):
    X, y, _, _ = sides
    with pytest.raises(ExperimentError, match="ConceptBank is not fitted"):
        PCBMClassifier(ConceptBank()).fit(X, y)
    with pytest.raises(ExperimentError, match="directions have 64 numbers, the clips' features 60"):
        PCBMClassifier(bank).fit(X[:, :60], y)
    with pytest.raises(ExperimentError, match="unknown head 'bush'; known are tree"):
        PCBMClassifier(bank, "bush").fit(X, y)


def tree(**changes):
    parts = {
        "left": np.array([1, -1, -1]),
        "right": np.array([2, -1, -1]),
        "feature": np.array([1, -2, -2]),
        "threshold": np.array([0.5, -2, -2]),
        "value": np.array([[0.5, 0.5], [1, 0], [0, 1]]),
        "width": 2,
    }
    return TreeHead(**parts | changes)


def test_a_tree_by_hand():
    assert tree().probabilities(np.array([[9, 0.5], [9, 0.6]])).tolist() == [[1, 0], [0, 1]]


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
        ({"threshold": np.array([0.5])}, "not of one length"),
        ({"value": np.zeros((2, 2))}, "a tree of 3 nodes has values of"),
        ({"left": np.array([1.0, -1, -1])}, "whole numbers"),
    ],
)
def test_a_tree_that_points_nowhere_is_refused(changes, message):
    with pytest.raises(ExperimentError, match=message):
        tree(**changes)
