import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import obygaze_models as om
from obygaze_models.data.tasks import concept_targets
from obygaze_models.estimators.trees import as_tree
from tests.kit.clips import logistic_on, small_clips, tree_on, with_output

DATA = small_clips()
LEVELS = np.array(DATA.levels)
Y = LEVELS == "S"
TARGETS = concept_targets(DATA.levels, DATA.concepts, "a")
TRAIN, HELD = DATA.folds < 4, DATA.folds == 4


def fit_bank(*Cs):
    held = {"X_val": DATA.X[HELD], "concepts_val": TARGETS[HELD]}
    return om.ConceptBank(C=Cs).fit(DATA.X[TRAIN], TARGETS[TRAIN], **held)


@pytest.fixture(scope="module")
def bank():
    return fit_bank(1.0, 10.0)


@pytest.mark.parametrize(
    ("output", "depth", "leaf"), [("distance", 10, 1), ("decision", 4, 6), ("distance", None, 1)]
)
def test_a_tree_as_arrays_is_exactly_scikit_learns(bank, output, depth, leaf):
    bank = with_output(bank, output)
    options = {"max_depth": depth, "min_samples_leaf": leaf, "random_state": 42}
    scores = bank.transform(DATA.X)
    reference = DecisionTreeClassifier(**options).fit(scores[TRAIN], LEVELS[TRAIN])
    ours = tree_on(bank, **options).fit(DATA.X[TRAIN], LEVELS[TRAIN])
    arrays = as_tree(ours.head_)
    assert (ours.concept_scores(DATA.X) == scores).all()
    for found in (ours.predict_proba(DATA.X), arrays.predict_proba(scores)):
        assert (found == reference.predict_proba(scores)).all()
    assert (arrays.apply(scores) == reference.apply(scores)).all()
    assert (ours.predict(DATA.X) == reference.predict(scores)).all()


@pytest.mark.parametrize(
    ("output", "l1_ratio", "C"), [("distance", 0, 0.1), ("decision", 1, 0.1), ("distance", 0.5, 1)]
)
def test_a_linear_head_is_exactly_scikit_learns(bank, output, l1_ratio, C):
    bank = with_output(bank, output)
    solver = "liblinear" if l1_ratio in (0, 1) else "saga"
    options = {"l1_ratio": l1_ratio, "C": C, "random_state": 42}
    scores = bank.transform(DATA.X)
    reference = LogisticRegression(solver=solver, max_iter=5000, **options)
    reference.fit(bank.transform(DATA.X[TRAIN]), Y[TRAIN])  # in one computation, as in a fit
    ours = logistic_on(bank, **options).fit(DATA.X[TRAIN], Y[TRAIN])
    assert (ours.head_.coef_ == reference.coef_).all()
    assert (ours.head_.intercept_ == reference.intercept_).all()
    expected = reference.predict_proba(scores)
    assert ours.predict_proba(DATA.X) == pytest.approx(expected, abs=1e-12)
    if C == 1:  # and of three classes
        linear = logistic_on(bank, C=10).fit(DATA.X, LEVELS)
        expected = LogisticRegression(C=10, max_iter=5000).fit(scores, LEVELS).predict_proba(scores)
        assert linear.predict_proba(DATA.X) == pytest.approx(expected, abs=1e-12)


def test_validation_clips_choose_for_the_bank_and_teach_the_head():
    Cs = (0.5, 1.0, 10.0)
    model = om.ConceptBottleneck(om.ConceptBank(C=Cs), random_state=0).fit(
        DATA.X[TRAIN], Y[TRAIN], concepts=TARGETS[TRAIN],
        X_val=DATA.X[HELD], y_val=Y[HELD], concepts_val=TARGETS[HELD],
    )  # fmt: skip
    bank = fit_bank(*Cs)
    assert (model.bank_.cavs_ == bank.cavs_).all()
    both = np.r_[np.flatnonzero(TRAIN), np.flatnonzero(HELD)]
    head = DecisionTreeClassifier(max_depth=10, random_state=0)
    head.fit(bank.transform(DATA.X[both]), Y[both])
    expected = head.predict_proba(bank.transform(DATA.X))
    assert (model.predict_proba(DATA.X) == expected).all()
    assert list(model.facts_["concepts"]) == bank.names_


def test_an_oracle_is_a_tree_on_the_annotations():
    C = DATA.concepts.astype(float)
    ours = om.OracleBottleneck(random_state=3).fit(DATA.X, Y, concepts=C)
    reference = DecisionTreeClassifier(max_depth=10, random_state=3).fit(C, Y)
    assert (ours.predict_proba(DATA.X, concepts=C) == reference.predict_proba(C)).all()


def test_a_residual_on_nothing_is_a_logistic_regression():
    """Where the bottleneck says nothing, the hybrid has a known answer."""
    hybrid = om.HybridBottleneck(om.RandomDirections(), om.LogisticProbe(C=1e-12), residual_C=1.0)
    hybrid.fit(DATA.X[TRAIN], Y[TRAIN])
    assert np.abs(hybrid.head_.coef_).max() < 1e-6
    # A row of weights for each of two classes, both penalised: as one row at twice the C.
    reference = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(DATA.X[TRAIN], Y[TRAIN])
    expected = reference.predict_proba(DATA.X)
    assert hybrid.predict_proba(DATA.X) == pytest.approx(expected, abs=1e-3)


def test_a_hybrid_says_how_it_does_without_its_concepts(bank):
    X, y, X_val, y_val = DATA.X[TRAIN], Y[TRAIN], DATA.X[HELD], Y[HELD]
    frozen, head = FrozenEstimator(bank), om.LogisticProbe(C=100)
    hybrid = om.HybridBottleneck(frozen, head).fit(X, y, X_val=X_val, y_val=y_val)
    plain = om.ConceptBottleneck(frozen, head).fit(X, y)
    without_concepts = (hybrid.mean_logits_ + hybrid.residual_logits(X_val)).argmax(axis=1)
    assert hybrid.accuracy_ == {
        "on": "validation",
        "clips": len(y_val),
        "full": hybrid.score(X_val, y_val),
        "concepts_ablated": (without_concepts == y_val).mean(),
        "residual_ablated": plain.score(X_val, y_val),
    }
    assert om.HybridBottleneck(frozen).fit(X, y).accuracy_["on"] == "training"
