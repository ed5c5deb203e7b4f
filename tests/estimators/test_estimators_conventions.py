"""scikit-learn's own checks, on every estimator of ours; and its own tools, on our data."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import (
    ConvergenceWarning,
    DataConversionWarning,
    UnsetMetadataPassedError,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MaxAbsScaler, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

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


def signs(X):
    """Concepts for estimators that are told them: in which half of each feature a row is."""
    rows = np.atleast_2d(X.toarray() if hasattr(X, "toarray") else np.asarray(X))
    try:
        return rows.real.astype(float) > 0
    except (TypeError, ValueError):
        return np.zeros(rows.shape, dtype=bool)


class MarkedOracle(om.OracleBottleneck):
    """An oracle that is told the features' signs."""

    def fit(self, X, y):
        return super().fit(X, y, concepts=signs(X))

    def predict_proba(self, X, concepts=None):
        return super().predict_proba(X, concepts=signs(X))

    def predict(self, X, concepts=None):
        return super().predict(X, concepts=signs(X))

    def score(self, X, y, sample_weight=None):
        return super().score(X, y, sample_weight, concepts=signs(X))


def films(X):
    """Films for the estimator that learns from films alone: rows of equal signs are one film."""
    return np.array(["".join("01"[sign] for sign in row) for row in signs(X).astype(int)])


class FilmedPrior(om.FilmPrior):
    """A prior of films that follow from the features' signs."""

    def fit(self, X, y):
        return super().fit(X, y, groups=films(X))

    def predict_proba(self, X, groups=None):
        return super().predict_proba(X, groups=films(X))

    def predict(self, X, groups=None):
        return super().predict(X, groups=films(X))

    def score(self, X, y, sample_weight=None):
        return super().score(X, y, sample_weight, groups=films(X))


#: One quick instance a class. What a class's `fit` wants beside X and y, these take from them.
INSTANCES = (
    om.MLPProbe(max_iter=20),
    om.LinearSVMProbe(C=1.0),
    om.LogisticProbe(),
    om.RandomDirections(),
    MarkedBank(C=1.0),
    MarkedBottleneck(om.ConceptBank(C=1.0)),
    MarkedHybrid(om.ConceptBank(C=1.0)),
    MarkedOracle(),
    FilmedPrior(),
)
OTHERS = (
    om.LinearSVMProbe(C=(0.1, 1.0), cv=2),
    om.LinearSVMProbe(C=1.0, class_weight=None),
    MarkedBank(C=(0.1, 1.0), cv=2),
    MarkedBank("mean-difference"),
    om.ConceptBottleneck(om.RandomDirections()),
    om.ConceptBottleneck(StandardScaler(), LogisticRegression()),
    om.HybridBottleneck(om.RandomDirections()),
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


@pytest.mark.gate
@pytest.mark.parametrize(("estimator", "check"), checks(OTHERS), ids=check_name)
@pytest.mark.filterwarnings("ignore::obygaze_models.estimators.concepts.DegenerateConcept")
def test_other_settings_follow_conventions(estimator, check):
    check(clone(estimator))


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


@pytest.mark.gate
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


@pytest.mark.gate
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


@pytest.mark.parametrize("estimator", [om.OracleBottleneck(), om.FilmPrior()])
def test_annotations_take_the_place_of_features(estimator, data):
    pandas = pytest.importorskip("pandas")
    X, y, C, films = data
    name, values = ("concepts", C) if hasattr(estimator, "head") else ("groups", films)
    given = {name: values}
    frame = pandas.DataFrame(X, columns=[f"x{column}" for column in range(X.shape[1])])
    model = clone(estimator).fit(frame, y, **given)
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert model.predict_proba(frame, **given).sum(axis=1) == pytest.approx(1)
    right = model.predict(frame, **given) == y
    assert model.score(frame, y, **given) == right.mean()
    assert model.score(frame, y, sample_weight=right, **given) == 1
    for wrong, labels in [(X[:-1], y), (csr_array(X), y), (X, None), (X, np.stack([y, y], axis=1))]:
        with pytest.raises((ValueError, TypeError)):
            clone(estimator).fit(wrong, labels, **given)
    with pytest.raises(ValueError, match="expecting 16 features"):
        clone(estimator).fit(X, y, **given).predict(X[:, 1:], **given)
    with pytest.warns(DataConversionWarning):
        clone(estimator).fit(X, y[:, None], **given)
    with pytest.raises(ExperimentError, match="pass"):
        clone(estimator).fit(X, y)
    with config_context(enable_metadata_routing=True):
        asks = {name: True}
        routed = clone(estimator).set_fit_request(**asks).set_score_request(**asks)
        scores = cross_val_score(routed, X, y, params=given)
    train, test = next(StratifiedKFold().split(X, y))
    fold = clone(estimator).fit(X[train], y[train], **{name: values[train]})
    assert scores[0] == fold.score(X[test], y[test], **{name: values[test]})


@pytest.mark.parametrize(
    "estimator",
    [
        om.ConceptBottleneck(bank="x"),
        om.ConceptBottleneck(head=StandardScaler()),
        om.HybridBottleneck(residual_C=-1),
        om.HybridBottleneck(residual_C="a"),
        om.OracleBottleneck(random_state="x"),
        om.ConceptBank(cv="ab"),
        om.LinearSVMProbe(cv=1),
    ],
    ids=repr,
)
def test_a_wrong_parameter_is_named(estimator, data):
    X, y, C, _ = data
    given = {"y": C} if isinstance(estimator, om.ConceptBank) else {"y": y}
    with pytest.raises(ValueError, match=r"The '(bank|head|residual_C|random_state|cv)' parameter"):
        estimator.fit(X, **given)


@pytest.mark.parametrize(
    "estimator", [om.MLPProbe(), om.LinearSVMProbe(), om.ConceptBottleneck(), om.OracleBottleneck()]
)
def test_half_of_the_validation_clips_is_an_error(estimator, data):
    X, y, _, _ = data
    for given in ({"y_val": y}, {"X_val": X}):
        with pytest.raises(ExperimentError, match="need both X_val and y_val"):
            clone(estimator).fit(X, y, **given)


@pytest.mark.parametrize("estimator", [om.LinearSVMProbe((0.1, 1.0)), om.ConceptBank(C=(0.1, 1.0))])
def test_cv_is_what_scikit_learn_takes(estimator, data):
    X, y, C, _ = data
    folds = list(StratifiedKFold(5).split(X, y))
    targets = C if isinstance(estimator, om.ConceptBank) else y
    by_rows = clone(estimator).set_params(cv=iter(folds)).fit(X, targets)
    assert np.isin(by_rows.C_, (0.1, 1.0)).all()
    if targets is y:
        by_number = clone(estimator).set_params(cv=None).fit(X, y)
        assert by_rows.temperature_ == by_number.temperature_


def test_a_banks_folds_are_rows_of_all_clips(data):
    """Also of a concept that some clips have no part in."""
    X, y, C, _ = data
    part = np.random.default_rng(0).random(len(X)) < 0.6
    masked = np.where(part[:, None], C, -1)
    folds = list(StratifiedKFold(4).split(X, y))
    bank = om.ConceptBank(C=(0.1, 1.0), cv=folds).fit(X, masked)
    number = np.cumsum(part) - 1
    cut = [tuple(number[rows[part[rows]]] for rows in fold) for fold in folds]
    again = om.ConceptBank(C=(0.1, 1.0), cv=cut).fit(X[part], C[part])
    assert [one["aucs"] for one in bank.quality_] == [one["aucs"] for one in again.quality_]


def test_concept_names_are_checked(data):
    X, _, C, _ = data
    with pytest.raises(ExperimentError, match="a name of its own"):
        om.ConceptBank(C=1.0).fit(X, C, concept_names=["Look", "Look", "Body"])
    with pytest.raises(ExperimentError, match="'abc'"):
        om.ConceptBank(C=1.0).fit(X, C, concept_names="abc")
    bank = om.ConceptBank(C=1.0).fit(X, C)
    for fitted in (bank, om.RandomDirections().fit(X)):
        assert len(fitted.get_feature_names_out([f"x{column}" for column in range(16)])) >= 3
        with pytest.raises(ValueError, match="input_features should have length"):
            fitted.get_feature_names_out(["a"])


def test_a_bank_takes_several_targets_alone(data):
    X, y, _, _ = data
    tags = get_tags(om.ConceptBank()).target_tags
    assert (tags.multi_output, tags.single_output) == (True, False)
    with pytest.raises(ExperimentError, match=r"C \[N, K\].*got shape \(240,\)"):
        om.ConceptBank().fit(X, y)


def test_a_bottleneck_has_what_its_head_has(data):
    X, y, C, _ = data
    model = om.ConceptBottleneck(head=LinearSVC(random_state=0))
    assert hasattr(model, "decision_function")
    assert not hasattr(model, "predict_proba")
    model.fit(X, y, concepts=C)
    decisions = model.head_.decision_function(model.concept_scores(X))
    assert (model.decision_function(X) == decisions).all()
    assert (model.predict(X) == (decisions > 0)).all()
    assert not hasattr(om.ConceptBottleneck(), "decision_function")
    forest = om.ConceptBottleneck(head=RandomForestClassifier(5))  # it has a length of 0
    assert not hasattr(forest, "decision_function")
    assert hasattr(forest, "predict_proba")


def test_a_bank_gets_the_data_as_they_come(data):
    """Names of a data frame's columns reach the bank; what it returns may be sparse."""
    pandas = pytest.importorskip("pandas")
    X, y, _, _ = data
    frame = pandas.DataFrame(X, columns=[f"x{column}" for column in range(X.shape[1])])
    some = ColumnTransformer(
        [("bins", KBinsDiscretizer(4, quantile_method="linear"), ["x1", "x3"])]
    )
    for kind in (om.ConceptBottleneck, om.HybridBottleneck):
        model = kind(some, LogisticRegression()).fit(
            frame[:200], y[:200], X_val=frame[200:], y_val=y[200:]
        )
        assert model.concept_scores(frame).shape == (240, 8)
        assert model.predict(frame).shape == y.shape
    X = X.astype(np.float64)
    sparse = om.ConceptBottleneck(MaxAbsScaler(), LogisticRegression())
    dense = clone(sparse).fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    assert get_tags(sparse).input_tags.sparse
    X = csr_array(X)
    sparse.fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    assert sparse.predict_proba(X) == pytest.approx(dense.predict_proba(X))


@pytest.mark.parametrize("kind", [om.ConceptBottleneck, om.HybridBottleneck])
def test_labels_of_clips_without_one_are_not_read(kind, data):
    X, y, C, _ = data
    labelled = np.arange(len(X)) % 4 > 0
    gaps = np.where(labelled, y, np.nan)
    model = kind(om.ConceptBank(C=1.0), random_state=0)
    fitted = clone(model).fit(X, gaps, concepts=C, labelled=labelled)
    full = clone(model).fit(X, y, concepts=C, labelled=labelled)
    assert (fitted.predict_proba(X) == full.predict_proba(X)).all()
    with pytest.raises(ValueError, match="Input y contains NaN"):
        clone(model).fit(X, gaps, concepts=C)


def test_a_logistic_probe_weighs_clips_and_warns(data):
    X, y, _, _ = data
    twice = np.concatenate([X, X[y]]), np.concatenate([y, y[y]])
    weighed = om.LogisticProbe().fit(X, y, sample_weight=1 + y)
    assert weighed.coef_ == pytest.approx(om.LogisticProbe().fit(*twice).coef_, abs=1e-3)
    steep = np.concatenate([X * 1e3, -X * 1e3])
    with pytest.warns(ConvergenceWarning, match="lower C"):
        om.LogisticProbe(1e6, l1_ratio=0.5).fit(steep, np.concatenate([y, y]))


# Metadata routing.


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


def test_a_banks_requests_decide(routing, data):
    X, y, C, films = data
    bank = om.ConceptBank(C=1.0)
    plain = om.ConceptBottleneck(bank, random_state=0)
    with pytest.raises(UnsetMetadataPassedError, match=r"ConceptBank\.fit"):
        plain.fit(X, y, concepts=C)
    asks = om.ConceptBottleneck(clone(bank).set_fit_request(concepts=True), random_state=0)
    expected = cross_val_score(asks, X, y, params={"concepts": C})
    assert expected.mean() > 0.7
    named = om.ConceptBottleneck(clone(bank).set_fit_request(concepts="marks"), random_state=0)
    assert (cross_val_score(named, X, y, params={"marks": C}) == expected).all()
    searched = GridSearchCV(asks, {"bank__C": [0.1, 1.0]}).fit(X, y, concepts=C)
    assert searched.best_estimator_.bank_.names_ == ["concept 1", "concept 2", "concept 3"]
    never = om.ConceptBottleneck(om.RandomDirections().set_fit_request(concepts=False))
    with pytest.raises(TypeError, match=r"concepts.*not routed"):
        never.fit(X, y, concepts=C)
    with pytest.raises(ValueError, match=r"\[groups\] are passed but .* ConceptBank"):
        cross_val_score(asks, X, y, cv=GroupKFold(4), params={"concepts": C, "groups": films})
    router = asks.get_metadata_routing()
    assert router.consumes("fit", {"concepts": C, "groups": films}) == {"concepts"}


@pytest.mark.parametrize("kind", [om.ConceptBottleneck, om.HybridBottleneck])
def test_a_heads_weights_reach_it(routing, kind, data):
    X, y, C, _ = data
    weight = np.random.default_rng(0).random(len(X))
    labelled = np.arange(len(X)) % 3 > 0
    head = LogisticRegression().set_fit_request(sample_weight=True)
    model = kind(om.ConceptBank(C=1.0).set_fit_request(concepts=True), head)
    model.fit(X, y, concepts=C, sample_weight=weight, labelled=labelled)
    by_hand = clone(head).fit(
        model.concept_scores(X[labelled]), y[labelled], sample_weight=weight[labelled]
    )
    assert (model.head_.coef_ == by_hand.coef_).all()
    with config_context(enable_metadata_routing=False), pytest.raises(ValueError, match="routing"):
        kind().fit(X, y, concepts=C, sample_weight=weight)


def test_weights_do_not_cover_validation_clips(routing, data):
    X, y, _, _ = data
    head = LogisticRegression().set_fit_request(sample_weight=True)
    bank = StandardScaler().set_fit_request(sample_weight=False)
    with pytest.raises(ExperimentError, match="sample_weight is not given for these clips"):
        om.ConceptBottleneck(bank, head).fit(X, y, X_val=X, y_val=y, sample_weight=np.ones(len(X)))


def test_a_pipeline_as_bank_asks_for_routing(data):
    X, y, C, _ = data
    model = om.ConceptBottleneck(make_pipeline(StandardScaler(), om.ConceptBank(C=1.0)))
    with pytest.raises(
        ExperimentError, match=r"enable .* routing and .*concepts=True.*ConceptBank"
    ):
        model.fit(X, y, concepts=C)


def test_a_bank_that_takes_no_concepts_learns_from_labelled_clips(data):
    X, y, C, _ = data
    labelled = np.arange(len(X)) % 3 > 0
    model = om.ConceptBottleneck(StandardScaler()).fit(X, y, concepts=C, labelled=labelled)
    assert model.bank_.mean_ == pytest.approx(X[labelled].mean(axis=0))
