"""Saved models predict as before, and no untrusted file runs code or crashes."""

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import sklearn
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import obygaze_models as om
from obygaze_features.errors import ExperimentError, OutputExists
from obygaze_models.estimators.classes import keywords
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.saved.about import About
from obygaze_models.saved.model import prediction_errors
from tests.estimators.test_estimators_learners import DATA, LABELS, LEVELS, TRAIN, VALIDATION
from tests.kit.fits import fit_on

ABOUT = About(model="tiny", reads="features", facts={"C": 3})
FILES = ("model.json", "model.safetensors")
FOREIGN = "a classifier from elsewhere"
X = DATA.X
OPTIONS = {"mlp": {"max_iter": 3, "hidden_layer_sizes": [8, 8], "calibrate": True}}
OPTIONS |= {name: {"max_iter": 2} for name in ("frame-mil", "mlp-author")}


@pytest.fixture(scope="module")
def models():
    by_name = {}
    for name in ESTIMATORS:
        learner = om.Learner(om.make_estimator(name, OPTIONS.get(name)))
        by_name[name] = fit_on(learner, DATA, TRAIN, VALIDATION, LABELS).estimator
    rows, labels, bank = X[TRAIN], LABELS[TRAIN], by_name["pcbm-tree"].bank_
    weighted = om.MLPProbe(class_weight={0: 1.0, 1: 2.5}, max_iter=1, random_state=0)
    halves = {"see": X.shape[1] - 1, "hear": 1}
    fused = make_pipeline(om.BlockScaler(halves), LogisticProbe()).fit(rows, labels)
    return by_name | {
        "fusion": fused,
        "texts": LogisticProbe().fit(rows, LEVELS[TRAIN]),
        FOREIGN: GaussianNB().fit(rows, LEVELS[TRAIN]),
        "weights": weighted.fit(rows, labels),
        "bank": bank,
        "random bank": om.RandomDirections(3, random_state=0).fit(X),
        "a frozen bank": om.ConceptBottleneck(FrozenEstimator(bank)).fit(rows, labels),
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


def inputs_of(model):
    """Return the clips to predict, with any other inputs of the model."""
    method = getattr(model, "predict_proba", None) or model.transform
    values = {"concepts": DATA.concepts.astype(float), "groups": DATA.groups}
    inputs = {name: values[name] for name in values.keys() & keywords(method)}
    return {"X": DATA.frames if hasattr(model, "predict_frames") else X} | inputs


def answers(model, inputs):
    return getattr(model, "predict_proba", getattr(model, "transform", None))(**inputs)


def test_every_estimator_survives_saving(models, saved):
    for name, model in models.items():
        loaded = om.load_model(saved / name)
        again = loaded.estimator
        assert (loaded.about, type(again)) == (ABOUT, type(model))
        inputs, expected = inputs_of(model), answers(model, inputs_of(model))
        results = answers(again, inputs)
        assert (results.dtype, results.tolist()) == (expected.dtype, expected.tolist()), name
        assert again.get_params().keys() == model.get_params().keys()
        if hasattr(model, "classes_"):
            assert (again.predict(**inputs) == model.predict(**inputs)).all()
    bank = om.load_model(saved / "bank").estimator
    for attribute in ("quality_", "names_", "C_"):
        assert getattr(bank, attribute) == getattr(models["bank"], attribute)
    assert bank.get_params() == models["bank"].get_params()


def test_a_pipeline_is_saved_step_by_step(tmp_path):
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        bank = om.ConceptBank(C=1.0).set_fit_request(concepts=True)
        head = LogisticRegression().set_fit_request(sample_weight=True)
        model = make_pipeline(scaler, bank, head)
        model.fit(X, LEVELS == "S", concepts=DATA.concepts, sample_weight=np.ones(len(X)))
    om.save_model(om.Model(model, ABOUT), tmp_path / "model")
    loaded = om.load_model(tmp_path / "model")
    again = loaded.estimator
    assert loaded.about == ABOUT
    assert [name for name, _ in again.steps] == [name for name, _ in model.steps]
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert again.named_steps["conceptbank"].names_ == model.named_steps["conceptbank"].names_


@pytest.mark.parametrize("model", [
    make_pipeline(StandardScaler(), make_pipeline("passthrough", PCA(3)), memory="cache"),
    LinearSVC(random_state=0, fit_intercept=False),
    make_pipeline(RobustScaler(with_centering=False), LinearDiscriminantAnalysis()),
    GridSearchCV(LogisticProbe(), {"C": [0.1, 1.0]}, cv=2),  # its best estimator
    KNeighborsClassifier(3, algorithm="kd_tree", metric="chebyshev", weights="distance"),
], ids=["nested", "alone", "discriminant", "search", "neighbours"])  # fmt: skip
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
    codes = np.unique(LEVELS, return_inverse=True)[1]
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    for name, fitted in {"tree": model, "last": make_pipeline(StandardScaler(), model)}.items():
        om.save_model(fitted.fit(X, codes), tmp_path / name)
        again = om.load_model(tmp_path / name).estimator
        assert (again.predict(X) == fitted.predict(X)).all()
        assert (again.predict_proba(X) == fitted.predict_proba(X)).all()
    with pytest.raises(ExperimentError, match="cannot be loaded safely"):
        om.save_model(model.fit(X, LEVELS), tmp_path / "texts")


def test_a_class_is_saved_and_loaded_only_where_it_is_trusted(tmp_path):
    model, path, trusted = SVR().fit(X, LABELS), tmp_path / "svr", ["sklearn.svm:SVR"]
    with pytest.raises(ExperimentError, match="SVR cannot be loaded safely"):
        om.save_model(model, path)
    om.save_model(model, path, trusted=trusted)
    with pytest.raises(ExperimentError, match=r"svr.*'sklearn\.svm:SVR'.*trusted"):
        om.load_model(path)
    again = om.load_model(path, trusted=trusted)
    assert (again.estimator.predict(X) == model.predict(X)).all()


def fitted(kind, **options):
    return kind(**options).fit(X, LEVELS == "S")


NOT_SAVED = [
    (object, "model cannot be saved: a builtins:object cannot be loaded safely"),
    # A forged file could read and write memory, or is too complex to check.
    *(
        (lambda kind=kind: fitted(kind), "cannot be loaded safely")
        for kind in (RandomForestClassifier, SVC, QuadraticDiscriminantAnalysis)
    ),
    (lambda: fitted(KNeighborsClassifier, metric=lambda a, b: abs(a - b).sum()),
     "metric cannot be saved: a builtins:function"),
    (lambda: fitted(SGDClassifier), "cannot be loaded safely"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), NOT_SAVED)
def test_unsupported_models_are_refused_in_one_line(tmp_path, make, message):
    with pytest.raises(ExperimentError, match=message):
        om.save_model(make(), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("model", [om.MLPProbe(), make_pipeline(om.ConceptBank(), PCA())], ids=repr)
def test_only_fitted_models_are_saved(tmp_path, model):
    with pytest.raises(NotFittedError):
        om.save_model(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()


# Changes that an attacker or a bad disk makes to the files.


class Malice:
    """Unpickling creates a file named witness in the working directory."""

    def __reduce__(self):
        return Path.touch, (Path("witness"),)


def write(file, change):
    def damage(folder):
        (folder / file).write_bytes(change((folder / file).read_bytes()))

    return damage


def arrays_a_pipe(folder):
    (folder / FILES[1]).unlink()
    os.mkfifo(folder / FILES[1])


def pickled_and_signed(folder):
    write(FILES[1], lambda data: pickle.dumps(Malice()))(folder)
    sign(folder)


DAMAGE = {
    **{
        f"{file} cut": (write(file, lambda data: data[: len(data) // 2]), "damaged|valid JSON")
        for file in FILES
    },
    "a bit": (write(FILES[1], lambda data: data[:-1] + bytes([data[-1] ^ 1])), "checksum"),
    "description": (write(FILES[0], lambda data: data.replace(b"tiny", b"tidy")), "checksum"),
    "pickled and signed": (pickled_and_signed, "is damaged"),
    "arrays a pipe": (arrays_a_pipe, "pipe"),
    "newer": (lambda folder: forge(folder, lambda h, a: h.update(format_version=4)), "update oby"),
    "older": (lambda folder: forge(folder, lambda h, a: h.update(format_version=2)), "train the"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_one_line(copied, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    folder, (damage, message) = copied(), DAMAGE[name]
    damage(folder)
    with pytest.raises(ExperimentError, match=message) as raised:
        om.load_model(folder)
    assert "\n" not in str(raised.value)
    assert not Path("witness").exists()


def sign(path):
    """Update the digests, as a forger would."""
    content = json.loads((path / "model.json").read_text())
    content.pop("sha256")
    content["files"][FILES[1]] = hashlib.sha256((path / FILES[1]).read_bytes()).hexdigest()
    text = json.dumps(content, sort_keys=True)
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (path / "model.json").write_text(json.dumps(content))


def forge(path, change):
    """Change a model's description and arrays by a function, and sign them."""
    arrays = load_file(path / FILES[1])
    header = json.loads((path / FILES[0]).read_text())
    change(header, arrays)
    save_file(arrays, path / FILES[1])
    (path / FILES[0]).write_text(json.dumps(header))
    sign(path)


def learned(header, **values):
    header["model"]["fitted"].update(values)


def parameters(header, **values):
    header["model"]["parameters"].update(values)


def cut(name):
    return lambda h, a: a.update({name: np.ascontiguousarray(a[name][:-1])})


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


def reshape(name, *shape):
    return lambda header, arrays: arrays.update({name: np.resize(arrays[name], shape)})


def widen(header, arrays):
    """A few numbers in the file expand to frames x outputs in memory."""
    shapes = {"layer0": (1, 1000), "offset0": 1000}
    for name, shape in shapes.items():
        arrays[f"model.weights_.{name}"] = np.zeros(shape, "float32")
    arrays["model.mean_"] = np.zeros(1, "float32")
    pairs = [[name, {"array": f"model.weights_.{name}"}] for name in shapes]
    learned(header, n_frames_in_=2**20, n_features_in_=1, weights_={"mapping": pairs})


def test_unknown_options_are_refused(copied):
    folder = copied("frame-mil")
    forge(folder, lambda header, arrays: parameters(header, gamma=None))
    with pytest.raises(ExperimentError, match=r"gamma.*train the model again"):
        om.load_model(folder)


FORGERIES = [
    ("pcbm-tree", "another kind", lambda h, a: h["model"].update({"class": "subprocess:Popen"})),
    ("pcbm-tree", "a method's name", lambda h, a: learned(h, score=1)),
    ("pcbm-tree", "a child out of range", lambda h, a: a["model.head_.left"].__setitem__(0, 10**9)),
    ("pcbm-tree", "a node between nodes", lambda h, a: a.update(
        {"model.head_.left": a["model.head_.left"].astype("float32")})),
    ("bank", "another part", lambda h, a: learned(h, names_={"code": 1})),
    ("bank", "an array that is not there", lambda h, a: learned(h, names_={"array": "x"})),
    ("bank", "fewer names", lambda h, a: learned(h, names_=["Look"])),
    ("knn", "fewer labels", cut("model._y")),
    ("fusion", "scales", reshape("model.steps.0.1.scale_", 10**4, 1)),
    # Changes that would crash a process or exhaust its memory.
    ("knn", "labels", manhattan),
    ("logistic", "nested pipelines", nest),
    ("mlp", "not a number", lambda h, a: a["model.coefs_.0"].fill(np.nan)),
    ("majority", "a text", lambda h, a: learned(h, more_={"texts": ["a" * 10**6, *"b" * 10**6]})),
]  # fmt: skip
SIZES = [
    ("mlp", reshape("model.intercepts_.0", 20_000, 1)),
    ("logistic", reshape("model.coef_", 0, 10**9)),
    ("frame-mil", widen),
]


@pytest.mark.parametrize(("name", "subject", "change"), FORGERIES)
def test_a_signed_forgery_is_one_line(copied, name, subject, change):
    folder = copied(name)
    forge(folder, lambda header, arrays: None)
    om.load_model(folder)  # so that the changes below are the only cause
    forge(folder, change)
    with pytest.raises(ExperimentError, match="is damaged, edited or older") as raised:
        om.load_model(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("name", "change"), SIZES)
def test_forged_sizes_end_at_the_first_prediction(models, copied, name, change):
    folder = copied(name)
    forge(folder, change)
    model = om.load_model(folder)
    clips = np.zeros((3, 4, X.shape[1])) if name == "frame-mil" else X
    with pytest.raises(ExperimentError), prediction_errors(model):
        model.estimator.predict_proba(clips)


def test_computed_state_of_neighbours_is_not_read(models, copied):
    """They are fitted again from their clips, so forged sizes and types reach no code."""
    folder = copied("knn")
    forge(folder, lambda h, a: learned(h, n_samples_fit_=10**9, n_features_in_=1, _tree="x"))
    again = om.load_model(folder).estimator
    assert (again.predict_proba(X) == models["knn"].predict_proba(X)).all()


def test_arrays_of_any_layout_are_saved(models, saved, tmp_path):
    """Non-contiguous arrays are saved completely. A loaded model predicts in one process."""
    directions = om.RandomDirections(6, random_state=0).fit(X).cavs_
    model = om.RandomDirections(6, random_state=0).fit(X)
    for name, cavs in {"F": np.asfortranarray(directions), "reversed": directions[::-1]}.items():
        model.cavs_ = cavs
        om.save_model(model, tmp_path / name)
        loaded = om.load_model(tmp_path / name).estimator.cavs_
        assert (loaded == cavs).all()
        assert loaded.flags.f_contiguous == cavs.flags.f_contiguous
    model = make_pipeline(StandardScaler(), KNeighborsClassifier(algorithm="brute", n_jobs=-1))
    om.save_model(model.fit(X, LEVELS), tmp_path / "model")
    again = om.load_model(tmp_path / "model").estimator
    assert (again[-1].n_jobs in (None, 1), model[-1].n_jobs) == (True, -1)
    assert (again.predict(X) == model.predict(X)).all()
    with pytest.raises(OutputExists):
        om.save_model(models["mlp"], saved / "mlp")
    with pytest.raises(ExperimentError, match="nothing does not exist; pass a model"):
        om.load_model(tmp_path / "nothing")
