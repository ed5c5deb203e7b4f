"""scikit-learn's checks and tools on our estimators, and one-line errors."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn import model_selection as selection
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator

import obygaze_models as om
from examples.plugin.film_lab.centroids import Centroids
from obygaze_features.errors import ExperimentError
from tests.kit.clips import small_clips
from tests.kit.floats import close


class Marked:
    """Use all classes except one as concepts, because scikit-learn's checks have none."""

    def fit(self, X, y):
        marks = None
        if y is not None:
            labels = np.asarray(y).ravel()
            marks = labels[:, None] == np.unique(labels)[-2:]
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
    om.make_estimator("logistic"),
    om.RandomDirections(),
    Centroids(),
    MarkedBank(C=1.0),
    MarkedBottleneck(om.ConceptBank(C=1.0)),
)


CHECKS = [pair for instance in INSTANCES for pair in estimator_checks_generator(instance)]


def check_name(part):
    return getattr(getattr(part, "func", part), "__name__", type(part).__name__)


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=check_name)
@pytest.mark.filterwarnings("ignore::obygaze_models.estimators.concepts.DegenerateConcept")
def test_estimators_follow_scikit_learns_conventions(estimator, check):
    check(clone(estimator))


# Calls that a scikit-learn user tries first.

DATA = small_clips()
X = DATA.X
Y = np.array(DATA.levels) == "S"
C = DATA.concepts.astype(int)
FILMS = np.array(DATA.groups)
QUICK = om.ConceptBank(C=1.0)
FRAME = pd.DataFrame(X).add_prefix("x")


def test_a_bottleneck_is_cross_validated_by_film():
    model = om.ConceptBottleneck(QUICK, random_state=0)
    cv = selection.GroupKFold(2)
    scores = selection.cross_val_score(model, X, Y, groups=FILMS, cv=cv, params={"concepts": C})
    assert scores.mean() > 0.7
    train, test = next(cv.split(X, Y, FILMS))
    by_hand = clone(model).fit(X[train], Y[train], concepts=C[train])
    assert scores[0] == by_hand.score(X[test], Y[test])
    with config_context(enable_metadata_routing=True):
        search = selection.GridSearchCV(model, {"bank__C": [0.1, 1.0]}, cv=2)
        search.fit(X, Y, concepts=C)
    assert [search.best_params_["bank__C"]] * 3 == search.best_estimator_.bank_.C_


def test_a_bank_that_ignores_concepts_learns_from_labelled_clips():
    labelled = np.arange(len(X)) % 3 > 0
    model = om.ConceptBottleneck(StandardScaler()).fit(X, Y, concepts=C, labelled=labelled)
    assert model.bank_.mean_ == close(X[labelled].mean(axis=0))


def test_data_frames_name_concepts():
    names = ["Look", "Body", "Posture"]
    concepts = pd.DataFrame(C, columns=names)
    model = om.ConceptBottleneck(QUICK, random_state=0).fit(FRAME, Y, concepts=concepts)
    assert model.concept_names() == tuple(names)
    plain = om.ConceptBottleneck(QUICK, random_state=0).fit(X, Y, concepts=C)
    with config_context(transform_output="pandas"):
        assert (model.predict_proba(FRAME) == plain.predict_proba(X)).all()


def test_a_film_prior_needs_films():
    with pytest.warns(UserWarning, match="Pass groups=films"):
        prior = om.FilmPrior().fit(X, Y)
    assert prior.predict_proba(X)[:, 1] == close(Y.mean())
    assert not prior.predict(X).any()


def test_a_bottleneck_has_the_methods_of_its_head():
    model = om.ConceptBottleneck(QUICK, LinearSVC(random_state=0))
    assert (hasattr(model, "decision_function"), hasattr(model, "predict_proba")) == (True, False)
    model.fit(X, Y, concepts=C)
    decisions = model.head_.decision_function(model.concept_scores(X))
    assert (model.decision_function(X) == decisions).all()
    assert (model.predict(X) == (decisions > 0)).all()
    forest = om.ConceptBottleneck(head=RandomForestClassifier(5))  # it has a length of 0
    assert (hasattr(forest, "decision_function"), hasattr(forest, "predict_proba")) == (False, True)


FRAMES = np.random.default_rng(0).standard_normal((60, 6, 5), np.float32)
EVEN = np.arange(60) % 2
CLIP_7 = (np.arange(60) == 7)[:, None, None]
FIRST = np.arange(5) == 0

#: The name and options of an estimator in an experiment, and the facts in the message.
NAMES = [
    ("mpl", {}, "unknown estimator 'mpl'; did you mean mlp?"),
    ("pcbm-tree", {"max_depth": 3}, "unknown option 'max_depth'; did you mean head__max_depth"),
    ("mlp", {"hidden_layer_sizes": "x"}, "'hidden_layer_sizes' parameter of MLPProbe must be"),
    ("no_such_package:Forest", {}, "cannot be imported: .*Install its package"),
    ("builtins:dict", {}, "builtins:dict is not a scikit-learn estimator"),
    ("sklearn.decomposition:PCA", {}, "neither a regressor nor a classifier"),
    ("sklearn.pipeline:Pipeline", {}, "cannot be made"),
]


@pytest.mark.parametrize(("name", "options", "message"), NAMES)
def test_invalid_estimators_of_experiments_are_refused(name, options, message):
    with pytest.raises(ExperimentError, match=message) as caught:
        om.make_estimator(name, options)
    assert "\n" not in str(caught.value)


#: Scikit-learn's own error for its own rules: the parameter is named.
PARAMETERS = [
    (om.ConceptBottleneck(bank="x"), "bank"),
    (om.ConceptBank(cv="ab"), "cv"),
    (om.BlockScaler({"see": 8, "hear": 9}), "17 columns"),
    (om.LinearSVMProbe(["x"]), "C must be a number"),
    (om.MLPProbe(()), "one for each hidden layer"),
]


@pytest.mark.parametrize(("estimator", "name"), PARAMETERS)
def test_a_wrong_parameter_is_named(estimator, name):
    with pytest.raises(ValueError, match=name):
        estimator.fit(X, C if isinstance(estimator, om.ConceptBank) else Y)


def fit_bank(*, C=C, names=None, **options):
    om.ConceptBank(**options).fit(X, concepts=C, concept_names=names)


def fit_mlp(X, y, **options):
    om.MLPProbe(random_state=0, early_stopping=False, **options).fit(X, y)


def predict_frames(frames):
    om.FrameMIL(max_iter=1, random_state=0).fit(FRAMES, EVEN).predict_proba(frames)


SOME = {"X_val": X[:99], "y_val": np.ones(99, bool)}
SLIPS = [
    (lambda: fit_bank(C=C[:-1]), r"\(240, 3\) \(got \(239, 3\)"),
    (lambda: fit_bank(C=C + 1), "1 .*, 0 .* or -1"),
    (lambda: fit_bank(names=["Look", "Look", "Body"]), "distinct .*Look.*Look"),
    (lambda: fit_bank(C=C[:, :1] * 0), "no concept can be learned: concept 1 has no positive"),
    (lambda: om.ConceptBank().fit(X, Y), r"\(240,\).*fit\(X, y, concepts=C\)"),
    (lambda: om.ConceptBottleneck().fit(X, Y), r'ConceptBottleneck .*params={"concepts": C}'),
    (lambda: om.FrameMIL().fit(X, Y, X_val=X), "both X_val and y"),
    (lambda: om.LinearSVMProbe([0.1, 1]).fit(X, Y, **SOME), "99 validation clips are of class"),
    (lambda: om.MLPProbe().fit(X, Y, X_val=X, y_val=C[:, 0] + 1), r"\[2\] are not among"),
    (lambda: fit_mlp(X, Y, calibrate=True), "calibrate needs"),
    (lambda: fit_mlp(np.full((32, 8), 3e38), np.arange(32) % 2), "overflowed in epoch"),
    (lambda: predict_frames(X), "has 2 axes"),
    (lambda: predict_frames(FRAMES[..., :4]), "frames of 4 features"),
    (lambda: predict_frames(np.where(CLIP_7, np.nan, FRAMES)), "clip 7 .* no frame"),
    (lambda: predict_frames(np.where(FIRST, np.nan, FRAMES)), "clip 0 .* not finite"),
]


@pytest.mark.parametrize(("slip", "message"), SLIPS, ids=[message for _, message in SLIPS])
def test_user_errors_are_one_line(slip, message):
    with pytest.raises(ExperimentError, match=message) as caught:
        slip()
    assert "\n" not in str(caught.value)
