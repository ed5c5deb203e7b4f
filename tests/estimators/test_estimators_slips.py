"""What is wrong, in one line that names it: of estimators, their parts, clips and labels."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.data.tasks import concept_targets
from obygaze_models.estimators.baselines import baselines
from obygaze_models.estimators.trees import TreeArrays
from obygaze_models.experiments.fit import EstimatorSpec
from tests.kit.clips import small_clips

DATA = small_clips()
X, Y, C = DATA.X, np.array(DATA.levels) == "S", DATA.concepts.astype(int)
FRAMES = np.random.default_rng(0).normal(size=(60, 6, 5)).astype(np.float32)
EVEN = np.arange(60) % 2
CLIP_7 = (np.arange(60) == 7)[:, None, None]

#: Of an estimator in an experiment: its name, its options, and what the message says.
NAMES = [
    ("mpl", {}, "unknown estimator 'mpl'; did you mean mlp?"),
    ("mlp", {"batchsize": 3}, "unknown option 'batchsize'; did you mean batch_size?"),
    ("pcbm-tree", {"max_depth": 3}, "unknown option 'max_depth'; did you mean head__max_depth"),
    ("mlp", {"hidden_layer_sizes": "x"}, "'hidden_layer_sizes' parameter of MLPProbe must be"),
    ("knn", {"metric": "humming"}, "'metric' parameter"),
    ("no_such_package:Forest", {}, "cannot be imported .*Install its package"),
    ("sklearn.svm:SVC", {}, "has no predict_proba"),
    ("builtins:dict", {}, "it has no fit, get_params, "),
    ("sklearn.naive_bayes:GaussianNB", {"prior": 1}, "'prior'; did you mean priors?"),
    ("sklearn.linear_model:LinearRegression", {}, "is not a classifier"),
    ("sklearn.ensemble:VotingClassifier", {}, "cannot be made: .*estimators"),
    ("sklearn.naive_bayes:GaussianNB", {"priors": "builtins:dict"}, "priors names builtins:d"),
]


@pytest.mark.parametrize(("name", "options", "message"), NAMES)
def test_an_experiments_estimator(name, options, message):
    with pytest.raises(ExperimentError, match=message) as caught:
        om.make_estimator(name, options)
    assert "\n" not in str(caught.value)


#: Scikit-learn's own error for its own rules: the parameter is named.
PARAMETERS = [
    om.ConceptBottleneck(bank="x"),
    om.ConceptBottleneck(head=StandardScaler()),
    om.HybridBottleneck(residual_C=-1),
    om.OracleBottleneck(random_state="x"),
    om.ConceptBank(cv="ab"),
    om.LinearSVMProbe(cv=1),
    *(om.MLPProbe(hidden_layer_sizes=sizes) for sizes in ([], [0], "x", [2.5], [[3]], 0)),
]


@pytest.mark.parametrize("estimator", PARAMETERS, ids=repr)
def test_a_wrong_parameter_is_named(estimator):
    target = C if isinstance(estimator, om.ConceptBank) else Y
    with pytest.raises(ValueError, match=r"bank|head|residual_C|random_state|cv|hidden_layer"):
        estimator.fit(X, target)


def fit_bank(**changes):
    om.ConceptBank(**changes.pop("options", {})).fit(**{"X": X, "concepts": C} | changes)


def fit_mlp(X, y, **options):
    validation = {name: options.pop(name) for name in ("X_val", "y_val") if name in options}
    om.MLPProbe(random_state=0, **options).fit(X, y, **validation)


def predict_frames(change):
    om.FrameMIL(max_iter=1, random_state=0).fit(FRAMES, EVEN).predict_proba(change(FRAMES))


def fit_frozen(kind, head, X=X):
    bank = om.ConceptBank(C=1.0).fit(DATA.X, C)
    kind(FrozenEstimator(bank), head).fit(X, Y)


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
        (lambda estimator=estimator, given=given: estimator.fit(X, Y, **given), "both X_val and y")
        for estimator in (om.MLPProbe(), om.LinearSVMProbe(), om.ConceptBottleneck(),
                          om.OracleBottleneck(), om.AttentionProbe())
        for given in ({"y_val": Y}, {"X_val": X})
    ),
    (lambda: fit_bank(concepts=C[:-1]), "do not fit"),
    (lambda: fit_bank(concepts=C + 1), "a concept is 1 .*, 0 .* or -1"),
    (lambda: fit_bank(X_val=X), "need both X_val and concepts_val"),
    (lambda: fit_bank(concept_names=["Look", "Look", "Body"]), "a name of its own"),
    (lambda: fit_bank(concept_names="abc"), "'abc'"),
    (lambda: fit_bank(concepts=C[:, :1] * 0, concept_names=["a"]),
     "no concept can be learned: a has no positive"),
    (lambda: fit_bank(options={"C": {"Nothing": 1.0}}), "no C is given for the concept"),
    (lambda: om.ConceptBank().fit(X, Y), r"were given; pass fit\(X, y, concepts=C\).*\(240,\)"),
    (lambda: cross_val_score(om.ConceptBottleneck(), X, Y, error_score="raise"),
     r'ConceptBottleneck .*params={"concepts": C}.*set_fit_request\(concepts=True, groups=False\)'),
    (lambda: om.OracleBottleneck().fit(X, Y, concepts=C).predict(X), "pass concepts=C"),
    (lambda: make_pipeline(om.ConceptBank(), DummyClassifier()).fit(X, Y), "none were given"),
    (lambda: om.ConceptBottleneck(make_pipeline(StandardScaler(), om.ConceptBank())).fit(
        X, Y, concepts=C), "enable metadata routing"),
    (lambda: fit_frozen(om.HybridBottleneck, DecisionTreeClassifier()), "has no decision_function"),
    (lambda: concept_targets(["EN"], C[:1], "d"), "'d' are not known; choose a"),
    (lambda: EstimatorSpec("pcbm-tree", {}, "d"), "unknown set of negatives 'd'"),
    (lambda: om.LinearSVMProbe([0.1, 1]).fit(X, Y, X_val=X[:99], y_val=np.ones(99, bool)),
     "all 99 validation labels are on one side"),
    (lambda: fit_mlp(X[:3], [0, 0, 1]), r"too few clips \(3, 1 of the rarest class\)"),
    (lambda: fit_mlp(X, Y, calibrate=True, early_stopping=False), "calibrate=True needs"),
    (lambda: fit_mlp(np.eye(2), ["EN", "S"], X_val=np.eye(2), y_val=["EN", "NS"]),
     r"\['NS'\] are not among"),
    (lambda: fit_mlp(OVERFLOW, np.arange(32) % 2, early_stopping=False), "overflowed in epoch"),
    (lambda: fit_mlp(X, Y, hidden_layer_sizes=[10**8]), "100,000,000 weights is too large"),
    (lambda: predict_frames(lambda X: X[:, :4]), "4 frames of 5 features"),
    (lambda: predict_frames(lambda X: np.where(CLIP_7, np.nan, X)), "clip 7 .* no frame"),
    (lambda: predict_frames(lambda X: np.where(np.arange(5) == 1, np.nan, X)), "frame 0 of clip 0"),
    (lambda: baselines(0), "between 0 and 1"),
    (lambda: tree(left=[3, -1, -1]), "child is out of the range of its 3 nodes"),
    (lambda: tree(left=[0, -1, -1]), "child is out of the range"),  # for ever
    (lambda: tree(left=[1, 2, -1]), "has one child"),
    (lambda: tree(feature=[2, -2, -2]), "a column out of its 2"),
    (lambda: tree(threshold=[0.5]), "differ in length"),
    (lambda: tree(value=np.zeros((2, 2))), "a tree of 3 nodes has values of"),
]  # fmt: skip


@pytest.mark.parametrize(("slip", "message"), SLIPS, ids=[message for _, message in SLIPS])
def test_a_slip_is_one_line(slip, message):
    with pytest.raises(ExperimentError, match=message) as caught:
        slip()
    assert "\n" not in str(caught.value)
