"""Concept banks and bottlenecks against scikit-learn and plain arithmetic."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold, cross_val_score
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from tests.kit.clips import CONCEPTS, small_clips, with_output
from tests.kit.floats import close

DATA = small_clips(360)
TRAIN = DATA.folds < 4
X = DATA.X[TRAIN]
Y = DATA.concepts[TRAIN].astype(int)
X_VAL = DATA.X[~TRAIN]
Y_VAL = DATA.concepts[~TRAIN].astype(int)
CS = (0.5, 1.0, 10.0)
LEVELS = np.array(DATA.levels)
SURE = LEVELS == "S"


def fit(*, C=CS, X=X, Y=Y, Y_val=Y_VAL, **options):
    names = {"concept_names": CONCEPTS, "X_val": X_VAL, "concepts_val": Y_val}
    return om.ConceptBank(C=C, **options).fit(X, Y, **names)


def their_svm(C, X, y):
    return SVC(kernel="linear", C=C, class_weight="balanced").fit(X, y)


def coefficients(bank, column):
    return bank.cavs_[column] * bank.scales_[column]


@pytest.fixture(scope="module")
def bank():
    return fit()


def test_each_direction_is_the_normal_of_an_svm(bank):
    assert bank.get_feature_names_out().tolist() == list(CONCEPTS)
    for column in range(3):
        reference = their_svm(bank.C_[column], X, Y[:, column])
        length = np.linalg.norm(reference.coef_)
        assert bank.cavs_[column] == pytest.approx(reference.coef_[0] / length, abs=1e-6)
        assert bank.scales_[column] == close(length, eps=1e-5)
        decisions = reference.decision_function(X_VAL)
        for output, scale in (("distance", length), ("decision", 1)):
            scores = with_output(bank, output).transform(X_VAL)
            assert scores[:, column] == pytest.approx(decisions / scale, abs=1e-5)
    # Clips with -1 are ignored.
    part = np.random.default_rng(0).random(len(X)) < 0.7
    marked = fit(C=1.0, Y=np.where(part[:, None], Y, -1))
    alone = fit(C=1.0, X=X[part], Y=Y[part])
    assert marked.cavs_ == pytest.approx(alone.cavs_, abs=1e-9)


def test_quality_is_measured_on_validation(bank):
    for column, quality in enumerate(bank.quality_):
        distances = bank.transform(X_VAL)[:, column]
        truth = Y_VAL[:, column]
        expected = {
            "on": "validation",
            "auc": roc_auc_score(truth, distances),
            "f1": f1_score(truth, distances > 0),
            "positives": truth.sum(),
            "negatives": (truth == 0).sum(),
            "converged": True,
        }
        assert {name: quality[name] for name in expected} == close(expected)
        assert quality["auc"] == pytest.approx(max(quality["aucs"].values()), abs=1e-12)


def test_subsampling_fits_as_many_positives_as_negatives():
    bank = fit(C=1.0, balance="subsample", random_state=0)
    chance = np.random.RandomState(0)
    for column, y in enumerate(Y.T):
        kinds = [np.flatnonzero(y == code) for code in (0, 1)]
        fewer = min(map(len, kinds))
        rows = np.concatenate([chance.choice(kind, fewer, replace=False) for kind in kinds])
        reference = SVC(kernel="linear").fit(X[rows], y[rows])
        assert coefficients(bank, column) == close(reference.coef_[0], eps=1e-2)


def without_look(targets):
    changed = targets.copy()
    changed[:, 0] = np.minimum(changed[:, 0], 0)
    return changed


def test_unreliable_directions_are_warned_of():
    bank = fit(C=1.0, Y=without_look(Y))
    assert bank.skipped_ == {"Look": f"no positive among {len(X)} training clips"}
    assert bank.names_ == ["Body", "Posture"]
    assert bank.transform(X_VAL).shape == (len(X_VAL), 2)
    with pytest.warns(UserWarning, match="Look: too few positive or negative validation"):
        bank = fit(Y_val=without_look(Y_VAL))
    assert (bank.C_[0], bank.quality_[0]["on"]) == (1.0, "training")
    with pytest.warns(UserWarning, match=r"Look: at C = 0[.]0001 no clip is"):
        bank = fit(C=0.0001)
    assert (len(bank.warnings_), bank.quality_[0]["degenerate"]) == (3, True)


def test_cross_validation_chooses_c_as_scikit_learn_does():
    """A clip without a film is a group of its own."""
    y = Y[:, 0]
    films = [f"film {row // 24}" if row >= 30 else "" for row in range(len(X))]
    apart = [film or f"own {row}" for row, film in enumerate(films)]
    folds = [*StratifiedGroupKFold(5).split(X, y, apart)]
    svms = [SVC(kernel="linear", class_weight="balanced", C=C) for C in CS]
    for groups, cv in ((None, None), (films, folds)):
        bank = om.ConceptBank(C=CS).fit(X, Y[:, :1], groups=groups)
        aucs = [cross_val_score(svm, X, y, scoring="roc_auc", cv=cv) for svm in svms]
        means = np.mean(aucs, axis=1)
        [quality] = bank.quality_
        assert list(quality["aucs"].values()) == pytest.approx(means, abs=1e-6)
        best = int(np.argmax(np.round(means, 9)))
        assert bank.C_[0] == CS[best]
        reference = their_svm(bank.C_[0], X, y)
        assert coefficients(bank, 0) == pytest.approx(reference.coef_[0], abs=1e-5)
        assert quality["on"] == "cross-validation"


def test_each_concept_may_have_its_own_c():
    own = fit(C=dict(zip(CONCEPTS, CS, strict=True)))
    assert tuple(own.C_) == CS
    for column, C in enumerate(CS):
        assert (own.cavs_[column] == fit(C=C).cavs_[column]).all()
    with pytest.raises(ExperimentError, match=f"C has no value .* '{CONCEPTS[0]}'"):
        fit(C={"Nothing": 1.0})


def test_a_bank_is_fitted_again_with_its_c_on_all_clips(bank):
    again = fit(refit=True)
    assert (again.C_, again.quality_) == (bank.C_, bank.quality_)
    clips = np.vstack([X, X_VAL])
    marks = np.vstack([Y, Y_VAL])
    for column, C in enumerate(bank.C_):
        reference = their_svm(C, clips, marks[:, column])
        assert coefficients(again, column) == close(reference.coef_[0], eps=1e-2)


def logistic(l1_ratio, C):
    return om.make_estimator("logistic", {"l1_ratio": l1_ratio, "C": C, "random_state": 42})


TREE = DecisionTreeClassifier(max_depth=4, min_samples_leaf=6, random_state=42)
LINEAR = LogisticRegression(max_iter=5000, random_state=42)
HEADS = [
    (TREE, TREE, LEVELS),
    (logistic(0, 0.1), clone(LINEAR).set_params(solver="liblinear", C=0.1), SURE),
    (logistic(1, 0.1), clone(LINEAR).set_params(solver="liblinear", l1_ratio=1, C=0.1), SURE),
    (logistic(0.5, 1), clone(LINEAR).set_params(solver="saga", l1_ratio=0.5), SURE),
    (logistic(0, 10), clone(LINEAR).set_params(C=10), LEVELS),
]


@pytest.mark.parametrize("output", ["distance", "decision"])
@pytest.mark.parametrize(("head", "reference", "labels"), HEADS)
def test_a_bottlenecks_head_equals_scikit_learns(bank, output, head, reference, labels):
    bank = with_output(bank, output)
    model = om.ConceptBottleneck(FrozenEstimator(bank), head).fit(X, labels[TRAIN])
    scores = bank.transform(DATA.X)
    assert (model.concept_scores(DATA.X) == scores).all()
    reference = clone(reference).fit(bank.transform(X), labels[TRAIN])
    expected = reference.predict_proba(scores)
    assert model.predict_proba(DATA.X) == pytest.approx(expected, abs=1e-12)
    assert (model.predict(DATA.X) == reference.predict(scores)).all()


def test_validation_clips_tune_the_bank_and_train_the_head(bank):
    model = om.ConceptBottleneck(om.ConceptBank(C=CS), random_state=0)
    model.fit(
        X,
        SURE[TRAIN],
        concepts=Y,
        concept_names=CONCEPTS,
        X_val=X_VAL,
        y_val=SURE[~TRAIN],
        concepts_val=Y_VAL,
    )
    assert (model.bank_.cavs_ == bank.cavs_).all()
    rows = np.argsort(~TRAIN, kind="stable")
    head = DecisionTreeClassifier(max_depth=10, random_state=0)
    head.fit(bank.transform(DATA.X[rows]), SURE[rows])
    expected = head.predict_proba(bank.transform(DATA.X))
    assert (model.predict_proba(DATA.X) == expected).all()
    assert list(model.facts_["concepts"]) == bank.names_
