"""scikit-learn's own checks, on our estimators and the example; and its own tools, on our data."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn import model_selection as selection
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator

import obygaze_models as om
from examples.plugin.film_lab.centroids import Centroids
from obygaze_features.errors import ExperimentError
from tests.kit.clips import small_clips


class Marked:
    """Takes the labels for concepts, which the checks have not: one for each class but one."""

    def fit(self, X, y):
        marks = None
        if y is not None:
            labels = np.asarray(y).ravel()
            marks = np.stack([labels == label for label in np.unique(labels)[-2:]], axis=1)
        return super().fit(X, y, concepts=marks)


class MarkedBottleneck(Marked, om.ConceptBottleneck):
    pass


class MarkedBank(Marked, om.ConceptBank):
    def fit_transform(self, X, y=None):
        return self.fit(X, y).transform(X)


#: One quick instance a class. What a class's `fit` wants beside X and y, these take from them.
INSTANCES = (
    om.MLPProbe(max_iter=20, batch_size=64, learning_rate_init=0.01),
    om.LinearSVMProbe(C=1.0),
    om.LogisticProbe(),
    om.RandomDirections(),
    Centroids(),
    MarkedBank(C=1.0),
    MarkedBottleneck(om.ConceptBank(C=1.0)),
)


def check_name(part):
    return getattr(getattr(part, "func", part), "__name__", type(part).__name__)


def checks(instances):
    """All of scikit-learn's checks on all instances: none is expected to fail."""
    return [pair for instance in instances for pair in estimator_checks_generator(instance)]


@pytest.mark.parametrize(("estimator", "check"), checks(INSTANCES), ids=check_name)
@pytest.mark.filterwarnings("ignore::obygaze_models.estimators.concepts.DegenerateConcept")
def test_follows_scikit_learns_conventions(estimator, check):
    check(clone(estimator))


# What a scikit-learn user tries first.

DATA = small_clips()
X, Y, C = DATA.X, np.array(DATA.levels) == "S", DATA.concepts.astype(int)
FILMS = np.array(DATA.groups)
QUICK = om.ConceptBank(C=1.0)
FRAME = pd.DataFrame(X, columns=[f"x{column}" for column in range(X.shape[1])])
ROUTING = config_context(enable_metadata_routing=True)


def test_a_bottleneck_is_cross_validated_by_film():
    model = om.ConceptBottleneck(QUICK, random_state=0)
    cv, given = selection.GroupKFold(2), {"concepts": C}
    found = selection.cross_validate(
        model, X, Y, groups=FILMS, cv=cv, params=given, return_estimator=True
    )
    assert found["test_score"].mean() > 0.7
    for fold, (train, test) in enumerate(cv.split(X, Y, FILMS)):
        by_hand = clone(model).fit(X[train], Y[train], concepts=C[train])
        assert found["test_score"][fold] == by_hand.score(X[test], Y[test])
        assert (found["estimator"][fold].bank_.cavs_ == by_hand.bank_.cavs_).all()


def test_a_bank_that_takes_no_concepts_and_one_within_a_pipeline():
    """The first learns from the clips that have a label."""
    labelled = np.arange(len(X)) % 3 > 0
    model = om.ConceptBottleneck(StandardScaler()).fit(X, Y, concepts=C, labelled=labelled)
    assert model.bank_.mean_ == pytest.approx(X[labelled].mean(axis=0))
    with config_context(enable_metadata_routing=True):
        scaled = make_pipeline(StandardScaler(), clone(QUICK).set_fit_request(concepts=True))
        model = om.ConceptBottleneck(scaled, random_state=0).fit(X, Y, concepts=C)
    assert model.concept_scores(X).shape == (len(X), 3)


def test_data_frames_in_and_names_out():
    names = ["Look", "Body", "Posture"]
    concepts = pd.DataFrame(C, columns=names)
    bank = clone(QUICK).set_output(transform="pandas").fit(FRAME, concepts)
    assert bank.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert bank.transform(FRAME).columns.tolist() == names
    model = om.ConceptBottleneck(QUICK, random_state=0)
    plain = clone(model).fit(X, Y, concepts=C).predict_proba(X)
    model.fit(FRAME, Y, concepts=concepts)
    assert model.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert model.concept_names() == tuple(names)
    assert (model.predict_proba(FRAME) == plain).all()
    with config_context(transform_output="pandas"):
        assert (model.predict_proba(FRAME) == plain).all()


@pytest.mark.parametrize(
    ("estimator", "name", "values"),
    [(om.OracleBottleneck(), "concepts", C), (om.FilmPrior(), "groups", FILMS)],
    ids=["oracle", "film prior"],
)
def test_annotations_take_the_place_of_features(estimator, name, values):
    given = {name: values}
    model = clone(estimator).fit(FRAME, Y, **given)
    assert model.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert model.predict_proba(FRAME, **given).sum(axis=1) == pytest.approx(1)
    right = model.predict(FRAME, **given) == Y
    assert model.score(FRAME, Y, **given) == right.mean()
    assert model.score(FRAME, Y, sample_weight=right, **given) == 1
    with pytest.raises(ValueError, match="expecting 16 features"):
        clone(estimator).fit(X, Y, **given).predict(X[:, 1:], **given)
    with pytest.raises(ExperimentError, match="pass"):
        clone(estimator).fit(X, Y)
    with config_context(enable_metadata_routing=True):
        asks = {name: True}
        routed = clone(estimator).set_fit_request(**asks).set_score_request(**asks)
        scores = selection.cross_val_score(routed, X, Y, params=given)
    train, test = next(selection.StratifiedKFold().split(X, Y))
    fold = clone(estimator).fit(X[train], Y[train], **{name: values[train]})
    assert scores[0] == fold.score(X[test], Y[test], **{name: values[test]})


def test_cv_is_what_scikit_learn_takes():
    folds = list(selection.StratifiedKFold(5).split(X, Y))
    probe = om.LinearSVMProbe((0.1, 1.0))
    by_rows = clone(probe).set_params(cv=iter(folds)).fit(X, Y)
    by_number = clone(probe).set_params(cv=None).fit(X, Y)
    assert by_rows.temperature_ == by_number.temperature_
    # A bank's folds are rows of all clips, also of a concept that some have no part in.
    part = np.random.default_rng(0).random(len(X)) < 0.6
    masked = np.where(part[:, None], C, -1)
    bank = om.ConceptBank(C=(0.1, 1.0), cv=folds).fit(X, masked)
    number = np.cumsum(part) - 1
    cut = [tuple(number[rows[part[rows]]] for rows in fold) for fold in folds]
    again = om.ConceptBank(C=(0.1, 1.0), cv=cut).fit(X[part], C[part])
    assert [q["aucs"] for q in bank.quality_] == [q["aucs"] for q in again.quality_]


def test_a_bottleneck_has_what_its_head_has():
    model = om.ConceptBottleneck(QUICK, LinearSVC(random_state=0))
    assert (hasattr(model, "decision_function"), hasattr(model, "predict_proba")) == (True, False)
    model.fit(X, Y, concepts=C)
    decisions = model.head_.decision_function(model.concept_scores(X))
    assert (model.decision_function(X) == decisions).all()
    assert (model.predict(X) == (decisions > 0)).all()
    forest = om.ConceptBottleneck(head=RandomForestClassifier(5))  # it has a length of 0
    assert (hasattr(forest, "decision_function"), hasattr(forest, "predict_proba")) == (False, True)


def test_a_logistic_probe_weighs_clips_and_warns():
    twice = om.LogisticProbe().fit(np.concatenate([X, X[Y]]), np.concatenate([Y, Y[Y]]))
    weighed = om.LogisticProbe().fit(X, Y, sample_weight=1 + Y)
    assert weighed.coef_ == pytest.approx(twice.coef_, abs=1e-3)
    steep = np.concatenate([X[:60] * 1e3, -X[:60] * 1e3])
    with pytest.warns(ConvergenceWarning, match="lower C"):
        om.LogisticProbe(1e6, l1_ratio=0.5).fit(steep, np.concatenate([Y[:60], Y[:60]]))


@ROUTING
def test_a_banks_requests_decide():
    def asking(**requests):
        bank = clone(QUICK).set_fit_request(**requests)
        return om.ConceptBottleneck(bank, random_state=0)

    asks = asking(concepts=True)
    expected = selection.cross_val_score(asks, X, Y, params={"concepts": C}, cv=2)
    assert expected.mean() > 0.7
    named = asking(concepts="marks")
    assert (selection.cross_val_score(named, X, Y, params={"marks": C}, cv=2) == expected).all()
    searched = selection.GridSearchCV(asks, {"bank__C": [0.1, 1.0]}, cv=2).fit(X, Y, concepts=C)
    assert [searched.best_params_["bank__C"]] * 3 == searched.best_estimator_.bank_.C_
    never = om.ConceptBottleneck(om.RandomDirections().set_fit_request(concepts=False))
    with pytest.raises(TypeError, match=r"concepts.*not routed"):
        never.fit(X, Y, concepts=C)
    assert asks.get_metadata_routing().consumes("fit", ["concepts", "groups"]) == {"concepts"}


@pytest.mark.parametrize("kind", [om.ConceptBottleneck, om.HybridBottleneck])
@ROUTING
def test_a_heads_weights_reach_it(kind):
    weight = np.random.default_rng(0).random(len(X))
    labelled = np.arange(len(X)) % 3 > 0
    head = LogisticRegression().set_fit_request(sample_weight=True)
    model = kind(clone(QUICK).set_fit_request(concepts=True), head)
    model.fit(X, Y, concepts=C, sample_weight=weight, labelled=labelled)
    scores = model.concept_scores(X[labelled])
    by_hand = clone(head).fit(scores, Y[labelled], sample_weight=weight[labelled])
    assert (model.head_.coef_ == by_hand.coef_).all()
    with config_context(enable_metadata_routing=False), pytest.raises(ValueError, match="routing"):
        kind().fit(X, Y, concepts=C, sample_weight=weight)
    bank = StandardScaler().set_fit_request(sample_weight=False)
    with pytest.raises(ExperimentError, match="sample_weight is not given for these clips"):
        om.ConceptBottleneck(bank, head).fit(X, Y, X_val=X, y_val=Y, sample_weight=weight)
