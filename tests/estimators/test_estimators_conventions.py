"""scikit-learn's own checks, on every estimator of ours; and its own tools, on our data."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.registry import ESTIMATORS
from tests.estimators.clips import small_clips


def marks(y):
    """Concepts for the checks, which have none: one for each class but the first."""
    if y is None:
        return None
    y = np.asarray(y).ravel()
    return np.stack([y == one for one in np.unique(y)[-2:]], axis=1)


class MarkedBottleneck(om.ConceptBottleneck):
    """A bottleneck that takes the labels for concepts."""

    def fit(self, X, y):
        return super().fit(X, y, concepts=marks(y))


class MarkedHybrid(om.HybridBottleneck):
    """A hybrid that takes the labels for concepts."""

    def fit(self, X, y):
        return super().fit(X, y, concepts=marks(y))


class MarkedBank(om.ConceptBank):
    """A bank that takes labels for concepts."""

    def fit(self, X, y):
        return super().fit(X, y, concepts=marks(y))

    def fit_transform(self, X, y=None):
        return self.fit(X, y).transform(X)


#: The checks that some estimators cannot pass, and why.
CANNOT = {
    om.OracleBottleneck: "reads annotated concepts, which the checks do not pass",
    om.FilmPrior: "reads the clips' films, which the checks do not pass",
}


@parametrize_with_checks(
    [
        om.MLPProbe(max_iter=20),
        om.LinearSVMProbe(C=(0.1, 1.0), cv=2),
        om.LinearSVMProbe(C=1.0, class_weight=None),
        om.LogisticProbe(),
        om.RandomDirections(),
        MarkedBank(C=(0.1, 1.0), cv=2),
        MarkedBank("mean-difference"),
        MarkedBottleneck(om.ConceptBank(C=1.0)),
        MarkedHybrid(om.ConceptBank(C=1.0)),
        om.ConceptBottleneck(om.RandomDirections()),
        om.ConceptBottleneck(StandardScaler(), LogisticRegression()),
        om.HybridBottleneck(om.RandomDirections()),
    ],
)
@pytest.mark.filterwarnings("ignore::obygaze_models.estimators.concepts.DegenerateConcept")
def test_follows_scikit_learns_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_registered_estimator_clones_and_sets_its_parameters(name):
    estimator = om.make_estimator(name, random_state=0)
    again = clone(estimator)
    assert repr(again) == repr(estimator)
    for key, value in estimator.get_params(deep=True).items():
        again.set_params(**{key: value})


# What a scikit-learn user tries first. Each failed before these estimators were rebuilt.


@pytest.fixture(scope="module")
def data():
    known = small_clips()
    y = np.array([level == "S" for level in known.levels])
    return known.X, y, known.concepts.astype(int), np.array(known.groups)


def test_a_bank_is_fitted_with_its_own_defaults(data):
    X, _, C, _ = data
    bank = om.ConceptBank().fit(X, C)
    assert bank.transform(X).shape == (len(X), 3)
    assert {one["on"] for one in bank.quality_} == {"cross-validation"}


def test_a_bank_is_a_step_of_a_pipeline(data):
    X, y, C, _ = data
    model = make_pipeline(om.ConceptBank(), LogisticRegression())
    assert model.fit(X, y, conceptbank__concepts=C).score(X, y) > 0.8
    with pytest.raises(ExperimentError, match="none were given"):
        clone(model).fit(X, y)
    with config_context(enable_metadata_routing=True):
        model = make_pipeline(om.ConceptBank().set_fit_request(concepts=True), LogisticRegression())
        assert model.fit(X, y, concepts=C).score(X, y) > 0.8
        scores = cross_val_score(model, X, y, params={"concepts": C})
        assert scores.mean() > 0.7


def test_a_bottleneck_is_cross_validated_by_film(data):
    X, y, C, films = data
    model = om.ConceptBottleneck(random_state=0)
    found = cross_validate(
        model, X, y, groups=films, cv=GroupKFold(4), params={"concepts": C}, return_estimator=True
    )
    assert found["test_score"].mean() > 0.7
    for fold, (train, test) in enumerate(GroupKFold(4).split(X, y, films)):
        by_hand = clone(model).fit(X[train], y[train], concepts=C[train])
        assert found["test_score"][fold] == by_hand.score(X[test], y[test])
        assert (found["estimator"][fold].bank_.cavs_ == by_hand.bank_.cavs_).all()
    with config_context(enable_metadata_routing=True):
        routed = om.ConceptBottleneck(random_state=0).set_fit_request(concepts=True, groups=False)
        scores = cross_val_score(
            routed, X, y, cv=GroupKFold(4), params={"concepts": C, "groups": films}
        )
    assert scores == pytest.approx(found["test_score"])


def test_a_bottleneck_without_concepts_is_an_error(data):
    X, y, _, _ = data
    with pytest.raises(ExperimentError, match=r"pass fit\(X, y, concepts=C\)"):
        om.ConceptBottleneck().fit(X, y)


def test_a_networks_cross_validation_stops_early(data):
    X, y, _, films = data
    found = cross_validate(
        om.MLPProbe(random_state=0), X, y, groups=films, cv=GroupKFold(4), return_estimator=True
    )
    for model in found["estimator"]:
        assert all("validation_loss" in epoch for epoch in model.history_)
        losses = [epoch["validation_loss"] for epoch in model.history_]
        assert model.best_epoch_ == 1 + int(np.argmin(losses))


def test_a_grid_of_the_parts_parameters(data):
    X, y, C, _ = data
    grid = GridSearchCV(
        om.ConceptBottleneck(om.ConceptBank(), DecisionTreeClassifier(), random_state=0),
        {"bank__C": [0.1, 1.0], "head__max_depth": [2, 4]},
        cv=3,
    ).fit(X, y, concepts=C)
    assert len(grid.cv_results_["params"]) == 4
    best = grid.best_estimator_
    assert [grid.best_params_["bank__C"]] * 3 == best.bank_.C_
    assert best.head_.get_depth() <= grid.best_params_["head__max_depth"]


def test_any_transformer_and_classifier_are_parts(data):
    X, y, C, _ = data
    for bank in (
        PCA(4),
        StandardScaler(),
        make_pipeline(StandardScaler(), PCA(4)),
        om.RandomDirections(5),
    ):
        model = om.ConceptBottleneck(bank, RandomForestClassifier(5), random_state=0).fit(X, y)
        assert model.predict_proba(X).shape == (len(X), 2)
    with config_context(enable_metadata_routing=True):
        scaled = make_pipeline(StandardScaler(), om.ConceptBank().set_fit_request(concepts=True))
        model = om.ConceptBottleneck(scaled, random_state=0).fit(X, y, concepts=C)
    assert model.concept_scores(X).shape == (len(X), 3)


def test_data_frames_in_and_names_out(data):
    pandas = pytest.importorskip("pandas")
    X, y, C, _ = data
    frame = pandas.DataFrame(X, columns=[f"x{column}" for column in range(X.shape[1])])
    concepts = pandas.DataFrame(C, columns=["Look", "Body", "Posture"])
    bank = om.ConceptBank(C=1.0).set_output(transform="pandas").fit(frame, concepts)
    assert bank.feature_names_in_.tolist() == frame.columns.tolist()
    assert bank.transform(frame).columns.tolist() == ["Look", "Body", "Posture"]
    model = om.ConceptBottleneck(random_state=0).fit(frame, y, concepts=concepts)
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert model.concept_names() == ("Look", "Body", "Posture")
    plain = om.ConceptBottleneck(random_state=0).fit(X, y, concepts=C)
    assert (model.predict_proba(frame) == plain.predict_proba(X)).all()
    with config_context(transform_output="pandas"):
        assert (model.predict_proba(frame) == plain.predict_proba(X)).all()


def test_heads_of_one_fold_share_a_bank_by_memory(data, tmp_path):
    X, y, C, _ = data
    heads = [DecisionTreeClassifier(max_depth=2), LogisticRegression()]
    models = [
        om.ConceptBottleneck(head=head, memory=str(tmp_path), random_state=0).fit(X, y, concepts=C)
        for head in heads
    ]
    apart = [
        om.ConceptBottleneck(head=head, random_state=0).fit(X, y, concepts=C) for head in heads
    ]
    for model, alone in zip(models, apart, strict=True):
        assert (model.predict_proba(X) == alone.predict_proba(X)).all()
    assert len(list(tmp_path.rglob("output.pkl"))) == 1


@pytest.mark.parametrize("estimator", CANNOT)
def test_estimators_outside_of_the_checks_say_what_they_lack(estimator, data):
    X, y, C, films = data
    given = {"concepts": C} if estimator is om.OracleBottleneck else {"groups": films}
    model = estimator().fit(X, y, **given)
    assert model.predict_proba(X, **given).sum(axis=1) == pytest.approx(1)
    assert model.predict(X, **given).shape == y.shape
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(ExperimentError, match="pass"):
        estimator().fit(X, y)
