"""scikit-learn's checks and tools on our estimators, and one-line errors."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn import model_selection as selection
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator

import obygaze_models as om
from examples.plugin.film_lab.centroids import Centroids
from obygaze_features.errors import ExperimentError
from obygaze_models.data.targets import concept_targets
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.estimators.trees import TreeArrays
from obygaze_models.scoring.metrics import baselines
from tests.kit.clips import small_clips
from tests.kit.floats import close


class Marked:
    """Use all classes except one as concepts, because scikit-learn's checks have none."""

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


#: A quick instance of each class. They derive additional inputs of `fit` from X and y.
INSTANCES = (
    om.MLPProbe((16,), max_iter=20, batch_size=64, learning_rate_init=0.01),
    om.LinearSVMProbe(C=1.0),
    LogisticProbe(),
    om.RandomDirections(),
    Centroids(),
    MarkedBank(C=1.0),
    MarkedBottleneck(om.ConceptBank(C=1.0)),
)


def check_name(part):
    return getattr(getattr(part, "func", part), "__name__", type(part).__name__)


def checks(instances):
    return [pair for instance in instances for pair in estimator_checks_generator(instance)]


@pytest.mark.parametrize(("estimator", "check"), checks(INSTANCES), ids=check_name)
@pytest.mark.filterwarnings("ignore::obygaze_models.estimators.concepts.DegenerateConcept")
def test_estimators_follow_scikit_learns_conventions(estimator, check):
    check(clone(estimator))


# Calls that a scikit-learn user tries first.

DATA = small_clips()
X, Y, C = DATA.X, np.array(DATA.levels) == "S", DATA.concepts.astype(int)
FILMS = np.array(DATA.groups)
QUICK = om.ConceptBank(C=1.0)
FRAME = pd.DataFrame(X, columns=[f"x{column}" for column in range(X.shape[1])])


def test_a_bottleneck_is_cross_validated_by_film():
    model = om.ConceptBottleneck(QUICK, random_state=0)
    cv, extra = selection.GroupKFold(2), {"concepts": C}
    scores = selection.cross_validate(
        model, X, Y, groups=FILMS, cv=cv, params=extra, return_estimator=True
    )
    assert scores["test_score"].mean() > 0.7
    for fold, (train, test) in enumerate(cv.split(X, Y, FILMS)):
        by_hand = clone(model).fit(X[train], Y[train], concepts=C[train])
        assert scores["test_score"][fold] == by_hand.score(X[test], Y[test])
        assert (scores["estimator"][fold].bank_.cavs_ == by_hand.bank_.cavs_).all()


def test_a_bank_that_ignores_concepts_learns_from_labelled_clips():
    labelled = np.arange(len(X)) % 3 > 0
    model = om.ConceptBottleneck(StandardScaler()).fit(X, Y, concepts=C, labelled=labelled)
    assert model.bank_.mean_ == close(X[labelled].mean(axis=0))


def test_data_frames_give_feature_names():
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


def test_a_network_reads_a_data_frame_without_a_warning():
    """Torch warns only once in a process, unless told otherwise."""
    torch.set_warn_always(True)
    try:
        model = om.MLPProbe(max_iter=2, random_state=0).fit(FRAME, Y)
    finally:
        torch.set_warn_always(False)
    plain = om.MLPProbe(max_iter=2, random_state=0).fit(X, Y)
    assert (model.predict_proba(FRAME) == plain.predict_proba(X)).all()


def test_a_film_prior_takes_films_for_features():
    estimator, metadata = om.FilmPrior(), {"groups": FILMS}
    model = clone(estimator).fit(FRAME, Y, **metadata)
    assert model.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert model.predict_proba(FRAME, **metadata).sum(axis=1) == close(1)
    right = model.predict(FRAME, **metadata) == Y
    assert model.score(FRAME, Y, **metadata) == right.mean()
    assert model.score(FRAME, Y, sample_weight=right, **metadata) == 1
    with pytest.raises(ValueError, match="expecting 16 features"):
        clone(estimator).fit(X, Y, **metadata).predict(X[:, 1:], **metadata)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(estimator).fit(X, Y, groups=FILMS[1:])
    with config_context(enable_metadata_routing=True):
        routed = clone(estimator).set_fit_request(groups=True).set_score_request(groups=True)
        scores = selection.cross_val_score(routed, X, Y, params=metadata)
    train, test = next(selection.StratifiedKFold().split(X, Y))
    fold = clone(estimator).fit(X[train], Y[train], groups=FILMS[train])
    assert scores[0] == fold.score(X[test], Y[test], groups=FILMS[test])


def test_a_bottleneck_has_the_methods_of_its_head():
    model = om.ConceptBottleneck(QUICK, LinearSVC(random_state=0))
    assert (hasattr(model, "decision_function"), hasattr(model, "predict_proba")) == (True, False)
    model.fit(X, Y, concepts=C)
    decisions = model.head_.decision_function(model.concept_scores(X))
    assert (model.decision_function(X) == decisions).all()
    assert (model.predict(X) == (decisions > 0)).all()
    forest = om.ConceptBottleneck(head=RandomForestClassifier(5))  # it has a length of 0
    assert (hasattr(forest, "decision_function"), hasattr(forest, "predict_proba")) == (False, True)


@config_context(enable_metadata_routing=True)
def test_a_bottleneck_asks_for_concepts():
    model = om.ConceptBottleneck(QUICK, random_state=0)
    scores = selection.cross_val_score(model, X, Y, params={"concepts": C}, cv=2)
    assert scores.mean() > 0.7
    searched = selection.GridSearchCV(model, {"bank__C": [0.1, 1.0]}, cv=2).fit(X, Y, concepts=C)
    assert [searched.best_params_["bank__C"]] * 3 == searched.best_estimator_.bank_.C_


FRAMES = np.random.default_rng(0).normal(size=(60, 6, 5)).astype(np.float32)
EVEN = np.arange(60) % 2
CLIP_7 = (np.arange(60) == 7)[:, None, None]

#: The name and options of an estimator in an experiment, and the facts in the message.
NAMES = [
    ("mpl", {}, "unknown estimator 'mpl'; did you mean mlp?"),
    ("mlp", {"batchsize": 3}, "unknown option 'batchsize'; did you mean batch_size?"),
    ("pcbm-tree", {"max_depth": 3}, "unknown option 'max_depth'; did you mean head__max_depth"),
    ("mlp", {"hidden_layer_sizes": "x"}, "'hidden_layer_sizes' parameter of MLPProbe must be"),
    ("knn", {"metric": "humming"}, "'metric' parameter"),
    ("no_such_package:Forest", {}, "cannot be imported: .*Install its package"),
    ("sklearn.svm:SVC", {}, "nor a classifier with predict_proba"),
    ("builtins:dict", {}, "builtins:dict is not a scikit-learn estimator"),
    ("sklearn.decomposition:PCA", {}, "neither a regressor nor a classifier"),
    ("sklearn.pipeline:Pipeline", {}, "cannot be made"),
    ("sklearn.naive_bayes:GaussianNB", {"priors": "builtins:dict"}, "builtins:dict is not a"),
]


@pytest.mark.parametrize(("name", "options", "message"), NAMES)
def test_invalid_estimators_of_experiments_are_refused(name, options, message):
    with pytest.raises(ExperimentError, match=message) as caught:
        om.make_estimator(name, options)
    assert "\n" not in str(caught.value)


#: Scikit-learn's own error for its own rules: the parameter is named.
PARAMETERS = [
    om.ConceptBottleneck(bank="x"),
    om.ConceptBottleneck(head=StandardScaler()),
    om.ConceptBottleneck(random_state="x"),
    om.ConceptBank(cv="ab"),
    om.LinearSVMProbe(cv=1),
    om.BlockScaler([8, 8]),
    om.BlockScaler({"see": 8, "hear": 9}),
    *(om.MLPProbe(hidden_layer_sizes=sizes) for sizes in ([], [0], "x", [2.5], [[3]], 0)),
]


@pytest.mark.parametrize("estimator", PARAMETERS, ids=repr)
def test_a_wrong_parameter_is_named(estimator):
    target = C if isinstance(estimator, om.ConceptBank) else Y
    with pytest.raises(
        ValueError, match=r"bank|head|random_state|cv|hidden_layer|sizes|17 columns"
    ):
        estimator.fit(X, target)


def fit_bank(**changes):
    om.ConceptBank(**changes.pop("options", {})).fit(**{"X": X, "concepts": C} | changes)


def fit_mlp(X, y, **options):
    validation = {name: options.pop(name) for name in ("X_val", "y_val") if name in options}
    om.MLPProbe(random_state=0, **options).fit(X, y, **validation)


def predict_frames(change):
    om.FrameMIL(max_iter=1, random_state=0).fit(FRAMES, EVEN).predict_proba(change(FRAMES))


def tree(**changes):
    parts = {
        "left": [1, -1, -1], "right": [2, -1, -1], "feature": [1, -2, -2],
        "threshold": [0.5, -2, -2], "value": [[0.5, 0.5], [1, 0], [0, 1]], "width": 2,
    }  # fmt: skip
    parts |= changes
    return TreeArrays(**{name: np.array(part) for name, part in parts.items()})


OVERFLOW = np.full((32, 8), 3e38, dtype=np.float32)
SLIPS = [
    *(
        (lambda estimator=estimator, part=part: estimator.fit(X, Y, **part), "both X_val and y")
        for estimator in (om.MLPProbe(), om.LinearSVMProbe(), om.ConceptBottleneck(),
                          om.FrameMIL())
        for part in ({"y_val": Y}, {"X_val": X})
    ),
    (lambda: fit_bank(concepts=C[:-1]), r"\(240, 3\) \(got \(239, 3\)"),
    (lambda: fit_bank(concepts=C + 1), "1 .*, 0 .* or -1"),
    (lambda: fit_bank(X_val=X), "need both X_val and concepts_val"),
    (lambda: fit_bank(concept_names=["Look", "Look", "Body"]), "distinct .*Look.*Look"),
    (lambda: fit_bank(concepts=C[:, :1] * 0, concept_names=["a"]),
     "no concept can be learned: a has no positive"),
    (lambda: fit_bank(options={"C": {"Nothing": 1.0}}), "C: unknown concept 'concept 1'"),
    (lambda: om.ConceptBank().fit(X, Y), r"fit\(X, y, concepts=C\).*\(240,\)"),
    (lambda: cross_val_score(om.ConceptBottleneck(), X, Y, error_score="raise"),
     r'ConceptBottleneck .*params={"concepts": C}'),
    (lambda: make_pipeline(om.ConceptBank(), DummyClassifier()).fit(X, Y), "needs concepts"),
    (lambda: om.ConceptBottleneck(make_pipeline(StandardScaler(), om.ConceptBank())).fit(
        X, Y, concepts=C), "enable metadata routing"),
    (lambda: concept_targets(["EN"], C[:1], "d"), "unknown negatives 'd'. Choose one: a"),
    (lambda: concept_targets(["low"], C[:1], "a", is_obygaze=False), "needs ObyGaze's levels"),
    (lambda: om.LinearSVMProbe([0.1, 1]).fit(X, Y, X_val=X[:99], y_val=np.ones(99, bool)),
     "all or none of the 99 validation clips are of class"),
    (lambda: fit_mlp(X, Y, calibrate=True, early_stopping=False), "calibrate=True needs"),
    (lambda: fit_mlp(np.eye(2), ["EN", "S"], X_val=np.eye(2), y_val=["EN", "NS"]),
     r"\['NS'\] are not among"),
    (lambda: fit_mlp(OVERFLOW, np.arange(32) % 2, early_stopping=False), "overflowed in epoch"),
    (lambda: predict_frames(lambda X: X[..., :4]), "frames of 4 features"),
    (lambda: predict_frames(lambda X: np.where(CLIP_7, np.nan, X)), "clip 7 .* no frame"),
    (lambda: predict_frames(lambda X: np.where(np.arange(5) == 1, np.nan, X)),
     "clip 0 .* not finite"),
    (lambda: baselines(0), "above 0 and below 1"),
    (lambda: tree(left=[0, -1, -1]), r"two children after them \(of 3 nodes\)"),  # for ever
    (lambda: tree(left=[1, 2, -1]), "or no children"),
    (lambda: tree(feature=[2, -2, -2]), "one of its 2 columns"),
    (lambda: tree(threshold=[0.5]), "a row of each array for each node"),
    (lambda: tree(value=np.zeros((2, 2))), "a row of each array"),
]  # fmt: skip


@pytest.mark.parametrize(("slip", "message"), SLIPS, ids=[message for _, message in SLIPS])
def test_user_errors_are_one_line(slip, message):
    with pytest.raises(ExperimentError, match=message) as caught:
        slip()
    assert "\n" not in str(caught.value)
