"""Saved models predict as before, and no untrusted file runs code or crashes."""

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import obygaze_models as om
from obygaze_features.errors import ExperimentError

# The names of our estimators, all of which can be saved.
from obygaze_models.estimators.registry import ESTIMATORS
from tests.estimators.test_estimators_learners import DATA, LABELS, LEVELS, TRAIN, VALIDATION
from tests.kit.fits import fit_on
from tests.kit.store import flip_bit

ABOUT = om.About(model="tiny", reads="features", facts={"C": 3})
HEADER = "model.json"
ARRAYS = "model.safetensors"
X = DATA.X
OPTIONS = {"mlp": {"max_iter": 3, "hidden_layer_sizes": [8, 8], "calibrate": True}}
OPTIONS |= {name: {"max_iter": 2} for name in ("frame-mil", "mlp-author")}


@pytest.fixture(scope="module")
def models():
    by_name = {}
    for name in ESTIMATORS:
        learner = om.Learner(om.make_estimator(name, OPTIONS.get(name)))
        by_name[name] = fit_on(learner, DATA, TRAIN, VALIDATION, LABELS).estimator
    rows = X[TRAIN]
    labels = LABELS[TRAIN]
    bank = by_name["pcbm-tree"].bank_
    weighted = om.MLPProbe(class_weight={0: 1.0, 1: 2.5}, max_iter=1, random_state=0)
    halves = om.BlockScaler({"see": X.shape[1] - 1, "hear": 1})
    logistic = om.make_estimator("logistic")
    return by_name | {
        "fusion": make_pipeline(halves, clone(logistic)).fit(rows, labels),
        "texts": logistic.fit(rows, LEVELS[TRAIN]),
        "a classifier from elsewhere": GaussianNB().fit(rows, LEVELS[TRAIN]),
        "weights": weighted.fit(rows, labels),
        "bank": bank,
        "random bank": om.RandomDirections(3, random_state=0).fit(X),
        "a tree of texts": om.ConceptBottleneck(FrozenEstimator(bank)).fit(rows, LEVELS[TRAIN]),
        "foreign parts": om.ConceptBottleneck(PCA(2), GaussianNB()).fit(rows, labels),
    }


@pytest.fixture(scope="module")
def saved(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for name, model in models.items():
        om.save_model(om.Model(model, ABOUT), folder / name)
    return folder


@pytest.fixture
def copied(saved, tmp_path):
    return lambda name="pcbm-tree": Path(shutil.copytree(saved / name, tmp_path / "model"))


def answers(model):
    """Return what a model makes of the clips."""
    if not hasattr(model, "predict_proba"):
        return model.transform(X)
    groups = {"groups": DATA.groups} if hasattr(model, "films_") else {}
    clips = DATA.frames if hasattr(model, "predict_frames") else X
    return model.predict_proba(clips, **groups)


def test_every_estimator_survives_saving(models, saved):
    for name, model in models.items():
        loaded = om.load_model(saved / name)
        again = loaded.estimator
        assert (loaded.about, type(again)) == (ABOUT, type(model))
        if hasattr(model, "concept_scores"):
            assert again.predict(X).tolist() == model.predict(X).tolist()
        expected = answers(model)
        results = answers(again)
        assert (results.dtype, results.tolist()) == (expected.dtype, expected.tolist()), name
        assert again.get_params().keys() == model.get_params().keys()
        labels = getattr(model, "classes_", np.array([]))
        assert getattr(again, "classes_", labels).tolist() == labels.tolist()
    bank = om.load_model(saved / "bank").estimator
    for attribute in ("quality_", "names_", "C_"):
        assert getattr(bank, attribute) == getattr(models["bank"], attribute)
    assert bank.get_params() == models["bank"].get_params()


FOREIGN = [
    make_pipeline(StandardScaler(), make_pipeline("passthrough", PCA(3)), memory="cache"),
    LinearSVC(random_state=0, fit_intercept=False),
    make_pipeline(RobustScaler(with_centering=False), LinearDiscriminantAnalysis()),
    GridSearchCV(om.make_estimator("logistic"), {"C": [0.1, 1.0]}, cv=2),  # its best estimator
    KNeighborsClassifier(3, algorithm="kd_tree", metric="chebyshev", weights="distance"),
]


@pytest.mark.parametrize("model", FOREIGN, ids=lambda model: type(model).__name__)
def test_scikit_learn_estimators_can_be_saved(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    method = "predict" if hasattr(model, "predict") else "transform"
    for name, y in (("all", LEVELS), ("two", LEVELS == "S")):
        model = clone(model).fit(X, y)
        om.save_model(model, name)
        again = om.load_model(name).estimator
        assert (getattr(again, method)(X) == getattr(model, method)(X)).all()
        assert "cache" not in Path(name, "model.json").read_text()


def test_a_tree_with_numeric_classes_is_saved(tmp_path):
    model = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=3)).fit(X, DATA.y)
    om.save_model(model, tmp_path / "model")
    again = om.load_model(tmp_path / "model").estimator
    assert (again.predict_proba(X) == model.predict_proba(X)).all()


def test_a_class_is_saved_and_loaded_only_where_it_is_trusted(tmp_path):
    model = SVR().fit(X, LABELS)
    path = tmp_path / "svr"
    trusted = ["sklearn.svm:SVR"]
    with pytest.raises(ExperimentError, match="SVR cannot be loaded safely"):
        om.save_model(model, path)
    om.save_model(model, path, trusted=trusted)
    with pytest.raises(ExperimentError, match=r"svr.*'sklearn\.svm:SVR'.*trusted"):
        om.load_model(path)
    again = om.load_model(path, trusted=trusted)
    assert (again.estimator.predict(X) == model.predict(X)).all()


NOT_SAVED = [
    (object(), "model cannot be saved: a builtins:object cannot be loaded safely"),
    # A forged file could read and write memory, or is too complex to check.
    (SVC(), "cannot be loaded safely"),
    (KNeighborsClassifier(p=np.inf), "cannot be saved: Out of range"),
    (KNeighborsClassifier(metric=lambda a, b: 0.0), "metric cannot be saved: a builtins:function"),
]


@pytest.mark.parametrize(("model", "message"), NOT_SAVED)
def test_unsupported_models_are_refused_in_one_line(tmp_path, model, message):
    if hasattr(model, "fit"):
        model.fit(X, LEVELS)
    with pytest.raises(ExperimentError, match=message):
        om.save_model(model, tmp_path / "new")
    with pytest.raises(NotFittedError):
        om.save_model(make_pipeline(om.ConceptBank(), PCA()), tmp_path / "new")
    assert not (tmp_path / "new").exists()


# Changes that an attacker or a bad disk makes to the files.


class Malice:
    """Unpickling creates a file named witness in the working directory."""

    def __reduce__(self):
        return Path.touch, (Path("witness"),)


def cut_short(folder):
    with (folder / HEADER).open("r+b") as file:
        file.truncate(200)


def flip_a_bit(folder):
    flip_bit(folder / ARRAYS, -1)


def rename(folder):
    text = (folder / HEADER).read_text()
    (folder / HEADER).write_text(text.replace("tiny", "tidy"))


def pickle_and_sign(folder):
    (folder / ARRAYS).write_bytes(pickle.dumps(Malice()))
    sign(folder)


def make_a_pipe(folder):
    (folder / ARRAYS).unlink()
    os.mkfifo(folder / ARRAYS)


DAMAGE = [
    (cut_short, "valid JSON"),
    (flip_a_bit, "checksum"),
    (rename, "checksum"),
    (pickle_and_sign, "is damaged"),
    (make_a_pipe, "pipe"),
    (lambda folder: forge(folder, lambda h, a: h.update(format_version=4)), "update oby"),
    (lambda folder: forge(folder, lambda h, a: h.update(format_version=2)), "train the"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_damage_is_one_line(copied, tmp_path, monkeypatch, damage, message):
    monkeypatch.chdir(tmp_path)
    folder = copied()
    damage(folder)
    with pytest.raises(ExperimentError, match=message) as raised:
        om.load_model(folder)
    assert "\n" not in str(raised.value)
    assert not Path("witness").exists()


def sign(path):
    """Update the digests, as a forger would."""
    content = json.loads((path / HEADER).read_text())
    content.pop("sha256")
    content["files"][ARRAYS] = hashlib.sha256((path / ARRAYS).read_bytes()).hexdigest()
    text = json.dumps(content, sort_keys=True)
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (path / HEADER).write_text(json.dumps(content))


def forge(path, change):
    """Change a model's description and arrays by a function, and sign them."""
    arrays = load_file(path / ARRAYS)
    header = json.loads((path / HEADER).read_text())
    change(header, arrays)
    save_file(arrays, path / ARRAYS)
    (path / HEADER).write_text(json.dumps(header))
    sign(path)


def learned(header, **values):
    header["model"]["fitted"].update(values)


def parameters(header, **values):
    header["model"]["parameters"].update(values)


def manhattan(header, arrays):
    parameters(header, metric="manhattan")
    learned(header, effective_metric_="manhattan")
    arrays["model._fit_X"] = arrays["model._fit_X"].astype("float32")
    arrays["model._y"][:] = 10**9


def nest(header, arrays):
    """Each pipeline would double the time to predict."""
    for _ in range(30):
        steps = [{"tuple": ["step", header["model"]]}]
        parts = {"parameters": {"steps": steps}, "fitted": {}}
        header["model"] = {"class": "sklearn.pipeline:Pipeline"} | parts


def rename_all(header, arrays):
    learned(header, names_=["Look"])


def leave_the_tree(header, arrays):
    arrays["model.head_.left"][0] = 10**9


def make_nodes_floats(header, arrays):
    arrays["model.head_.left"] = arrays["model.head_.left"].astype("float32")


def stretch_scales(header, arrays):
    arrays["model.steps.0.1.scale_"] = np.ones((10**4, 1))


FORGERIES = [
    ("pcbm-tree", lambda h, a: h["model"].update({"class": "subprocess:Popen"})),
    ("pcbm-tree", lambda h, a: learned(h, score=1)),  # a method
    ("pcbm-tree", leave_the_tree),
    ("pcbm-tree", make_nodes_floats),
    ("bank", lambda h, a: learned(h, names_={"code": 1})),
    ("bank", lambda h, a: learned(h, names_={"array": "x"})),
    ("bank", rename_all),
    ("fusion", stretch_scales),
    ("frame-mil", lambda h, a: parameters(h, gamma=None)),
    # Changes that would crash a process or exhaust its memory.
    ("knn", manhattan),
    ("logistic", nest),
    ("mlp", lambda h, a: a["model.coefs_.0"].fill(np.nan)),
    ("majority", lambda h, a: learned(h, more_={"texts": ["a" * 10**6, *"b" * 10**6]})),
]


@pytest.mark.parametrize(("name", "change"), FORGERIES)
def test_a_signed_forgery_is_one_line(copied, name, change):
    folder = copied(name)
    forge(folder, lambda header, arrays: None)
    om.load_model(folder)  # so that the changes below are the only cause
    forge(folder, change)
    with pytest.raises(ExperimentError, match="is damaged, edited or older") as raised:
        om.load_model(folder)
    assert "\n" not in str(raised.value)


def test_computed_state_of_neighbours_is_not_read(models, copied):
    """They are fitted again from their clips, so forged sizes and types reach no code."""
    folder = copied("knn")
    forge(folder, lambda h, a: learned(h, n_samples_fit_=10**9, n_features_in_=1, _tree="x"))
    again = om.load_model(folder).estimator
    assert (again.predict_proba(X) == models["knn"].predict_proba(X)).all()


def test_arrays_of_any_layout_are_saved(models, tmp_path):
    """Sums depend on the order of an array, and parts of it must be saved whole."""
    model = om.RandomDirections(6, random_state=0).fit(X)
    layouts = (np.asfortranarray(model.cavs_), model.cavs_[::-1])
    for number, cavs in enumerate(layouts):
        model.cavs_ = cavs
        om.save_model(model, tmp_path / f"{number}")
        loaded = om.load_model(tmp_path / f"{number}").estimator.cavs_
        assert (loaded == cavs).all()
        assert loaded.flags.f_contiguous == cavs.flags.f_contiguous


def test_a_loaded_model_predicts_in_one_process(tmp_path):
    om.save_model(KNeighborsClassifier(n_jobs=-1).fit(X, LEVELS), tmp_path / "model")
    assert om.load_model(tmp_path / "model").estimator.n_jobs == 1
