import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

import obygaze_models as om
from obygaze_features.errors import ExperimentError, OutputExists
from obygaze_models.estimators.bottlenecks import ConceptBottleneck
from obygaze_models.estimators.classes import keywords, reads_frames
from obygaze_models.estimators.concepts import ConceptBank, RandomDirections
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.experiments.fit import EstimatorSpec, fit_estimator
from obygaze_models.persistence import load_model, save_model
from tests.estimators.clips import small_clips

ABOUT = {"features": {"backbone": "tiny", "array": "native", "pooling": None}, "run": 3}
FRESH = """
import sys
from pathlib import Path
import numpy as np
from obygaze_models.persistence import load_model
for folder in sorted(Path(sys.argv[1]).iterdir()):
    model, about = load_model(folder / "model")
    given = dict(np.load(folder / "clips.npz"))
    said = model.predict_proba if hasattr(model, "predict_proba") else model.transform
    np.save(folder / "said.npy", said(**given))
"""


@pytest.fixture(scope="module")
def known():
    return small_clips()


@pytest.fixture(scope="module")
def models(known):
    """Every estimator, fitted; and what it is asked about."""
    labels = np.array([{"S": 1, "HN": 0}.get(level, -1) for level in known.levels])
    train, validation = (
        np.flatnonzero(np.isin(known.folds, folds) & (labels >= 0)) for folds in ([0, 1, 2, 3], [4])
    )
    made = {}
    for name in ESTIMATORS:
        quick = {"max_iter": 3, "hidden_layer_sizes": [8, 8], "calibrate": True}
        spec = EstimatorSpec(name, quick if name == "mlp" else {})
        made[name] = fit_estimator(spec, known, train, validation, labels, 0).model
    texts = np.array(known.levels)[train]
    made["texts"] = LogisticProbe().fit(known.X[train], texts)
    made["a classifier from elsewhere"] = GaussianNB().fit(known.X[train], texts)
    made["weights"] = MLPProbe(class_weight={0: 1.0, 1: 2.5}, max_iter=1, random_state=0).fit(
        known.X[train], labels[train]
    )
    made["bank"] = made["pcbm-tree"].bank_
    made["random bank"] = RandomDirections(3, random_state=0).fit(known.X)
    made["a frozen bank"] = ConceptBottleneck(FrozenEstimator(made["bank"])).fit(
        known.X[train], labels[train]
    )
    made["foreign parts"] = ConceptBottleneck(PCA(2), GaussianNB()).fit(
        known.X[train], labels[train]
    )
    return made


def given_to(model, known):
    """What a model is asked about."""
    method = getattr(model, "predict_proba", None) or model.transform
    values = {"concepts": known.concepts.astype(float), "groups": np.array(known.groups)}
    return {"X": known.frames if reads_frames(model) else known.X} | {
        name: value for name, value in values.items() if name in keywords(method)
    }


def says(model, given):
    return (
        model.predict_proba(**given)
        if hasattr(model, "predict_proba")
        else model.transform(**given)
    )


@pytest.mark.gate
def test_every_estimator_says_the_same_in_a_fresh_process(models, known, tmp_path):
    for name, model in models.items():
        save_model(model, tmp_path / name / "model", ABOUT)
        np.savez(tmp_path / name / "clips.npz", **given_to(model, known))
    subprocess.run([sys.executable, "-c", FRESH, str(tmp_path)], check=True, timeout=900)
    for name, model in models.items():
        given = given_to(model, known)
        said = np.load(tmp_path / name / "said.npy", allow_pickle=False)
        assert (said == says(model, given)).all(), name
        assert said.dtype == says(model, given).dtype
        again, about = load_model(tmp_path / name / "model")
        assert about == ABOUT
        assert type(again) is type(model)
        assert repr(again.get_params().keys()) == repr(model.get_params().keys())
        if hasattr(model, "classes_"):
            assert (again.predict(**given) == model.predict(**given)).all()


@pytest.mark.parametrize("routing", [False, True])
def test_a_pipeline_is_saved_step_by_step(known, tmp_path, routing):
    """As in docs/reference/python.md, and the same with scikit-learn's metadata routing."""
    y, concepts = np.array(known.levels) == "S", known.concepts
    with sklearn.config_context(enable_metadata_routing=routing):
        if routing:
            bank = om.ConceptBank(C=1.0).set_fit_request(concepts=True)
            head = LogisticRegression().set_fit_request(sample_weight=True)
            model = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), bank, head)
            model.fit(known.X, y, concepts=concepts, sample_weight=np.ones(len(y)))
        else:
            model = make_pipeline(om.ConceptBank(C=1.0), LogisticRegression())
            model.fit(known.X, y, conceptbank__concepts=concepts)
    om.save_model(model, tmp_path / "model", ABOUT)
    again, about = om.load_model(tmp_path / "model")
    assert about == ABOUT
    assert [name for name, _ in again.steps] == [name for name, _ in model.steps]
    assert (again.predict_proba(known.X) == model.predict_proba(known.X)).all()
    assert again.named_steps["conceptbank"].names_ == model.named_steps["conceptbank"].names_


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline("passthrough", make_pipeline(PCA(2), MLPProbe(max_iter=1, random_state=0))),
        make_pipeline(StandardScaler(), PCA(3), memory="cache"),
        make_pipeline(StandardScaler(), LinearSVC(random_state=0)),
        LinearSVC(random_state=0, fit_intercept=False),
        make_pipeline(*[StandardScaler()] * 2, RidgeClassifier()),
        make_pipeline(RobustScaler(with_centering=False), LinearDiscriminantAnalysis()),
        SGDClassifier(loss="log_loss", random_state=0),
    ],
    ids=["nested", "transformer", "no probabilities", "alone", "ridge", "discriminant", "loss"],
)
def test_what_else_can_be_saved(known, tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    method = "predict" if hasattr(model, "predict") else "transform"
    levels = np.array(known.levels)
    for name, y in (("all", levels), ("two", levels == "S")):
        model = clone(model).fit(known.X, y)
        om.save_model(model, name)
        again, _ = om.load_model(name)
        assert (getattr(again, method)(known.X) == getattr(model, method)(known.X)).all()
        assert "cache" not in Path(name, "model.json").read_text()


def test_a_loaded_model_predicts_in_one_process(known, tmp_path):
    model = make_pipeline(StandardScaler(), KNeighborsClassifier(algorithm="brute", n_jobs=-1))
    om.save_model(model.fit(known.X, known.levels), tmp_path / "model")
    again, _ = om.load_model(tmp_path / "model")
    assert again[-1].n_jobs in (None, 1)
    assert model[-1].n_jobs == -1
    assert (again.predict(known.X) == model.predict(known.X)).all()


def test_what_was_learnt_is_all_there(models, tmp_path):
    bank = models["bank"]
    save_model(bank, tmp_path / "bank", {})
    again, _ = load_model(tmp_path / "bank")
    assert again.quality_ == bank.quality_
    assert again.names_ == bank.names_
    assert again.C_ == bank.C_
    assert again.get_params() == bank.get_params()


def test_the_same_model_is_the_same_bytes(models, tmp_path):
    for name in ("first", "second"):
        save_model(models["pcbm-hybrid"], tmp_path / name, ABOUT)
    for file in ("model.json", "model.safetensors"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_within_a_folder_that_is_being_made_the_same_files(models, tmp_path, monkeypatch):
    model = models["pcbm-tree"]
    save_model(model, tmp_path / "public", {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: pytest.fail("flushed one by one"))
        save_model(model, tmp_path / "new" / "inner", {}, durable=False)
    for name in ("model.json", "model.safetensors"):
        assert (tmp_path / "public" / name).read_bytes() == (
            tmp_path / "new" / "inner" / name
        ).read_bytes()


@pytest.mark.parametrize("order", ["F", "strided", "reversed"])
def test_arrays_that_are_not_contiguous_are_kept_whole(known, tmp_path, order):
    model = RandomDirections(6, random_state=0).fit(known.X)
    model.cavs_ = {
        "F": np.asfortranarray(model.cavs_),
        "strided": np.repeat(model.cavs_, 2, axis=1)[:, ::2],
        "reversed": model.cavs_[::-1],
    }[order]
    save_model(model, tmp_path / "model", {})
    assert (load_model(tmp_path / "model")[0].cavs_ == model.cavs_).all()


@pytest.fixture
def saved(models, tmp_path):
    path = tmp_path / "tree"
    save_model(models["pcbm-tree"], path, ABOUT)
    return path


@pytest.mark.parametrize("file", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("keep", [0, 1, 0.5, -2])
def test_a_file_cut_short_is_one_line(saved, file, keep):
    data = (saved / file).read_bytes()
    (saved / file).write_bytes(data[: int(len(data) * keep)] if 0 < keep < 1 else data[:keep])
    with pytest.raises(ExperimentError, match=rf"{file}") as raised:
        load_model(saved)
    assert "\n" not in str(raised.value)


def test_every_edited_byte_of_the_arrays_is_seen(saved):
    data = bytearray((saved / "model.safetensors").read_bytes())
    for place in range(0, len(data), max(1, len(data) // 40)):
        data[place] ^= 1
        (saved / "model.safetensors").write_bytes(data)
        with pytest.raises(ExperimentError, match="is damaged, or was edited"):
            load_model(saved)
        data[place] ^= 1


def test_an_edited_description_is_seen(saved):
    header = json.loads((saved / "model.json").read_text())
    header["about"]["features"]["backbone"] = "another"
    (saved / "model.json").write_text(json.dumps(header))
    with pytest.raises(ExperimentError, match=r"model\.json is damaged, or was edited"):
        load_model(saved)


def test_a_missing_file_is_one_line(saved, tmp_path):
    (saved / "model.safetensors").unlink()
    with pytest.raises(ExperimentError, match=r"has no file .model\.safetensors"):
        load_model(saved)
    with pytest.raises(ExperimentError, match="nothing does not exist; give a model"):
        load_model(tmp_path / "nothing")


@pytest.mark.skipif(os.name == "nt", reason="needs named pipes")
@pytest.mark.parametrize("file", ["model.json", "model.safetensors"])
def test_a_pipe_in_place_of_a_file_is_one_line(saved, file):
    (saved / file).unlink()
    os.mkfifo(saved / file)
    with pytest.raises(ExperimentError, match=r"is a .*pipe|has no model\.json"):
        load_model(saved)


def forge(path: Path, *, header=lambda header: None, arrays=lambda arrays: None) -> None:
    """Edit both files, as somebody would who corrects the digests as well."""
    tensors = load_file(path / "model.safetensors")
    arrays(tensors)
    save_file(tensors, path / "model.safetensors")
    content = json.loads((path / "model.json").read_text())
    header(content)
    (path / "model.json").write_text(json.dumps(content))
    sign(path)


def sign(path: Path) -> None:
    content = json.loads((path / "model.json").read_text())
    content.pop("sha256")
    data = (path / "model.safetensors").read_bytes()
    content["files"]["model.safetensors"] = hashlib.sha256(data).hexdigest()
    for file in path.glob("*.skops"):
        content["files"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    text = json.dumps(content, sort_keys=True)
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (path / "model.json").write_text(json.dumps(content))


def test_a_forgery_that_changes_nothing_loads(saved):
    """Or else the tests below would not show what they are meant to."""
    forge(saved)
    load_model(saved)


@pytest.mark.parametrize("array", ["left", "right", "feature"])
@pytest.mark.parametrize("value", [10**9, -7])
def test_a_forged_tree_that_points_out_of_its_arrays_is_refused(saved, array, value):
    def point_out(arrays):
        arrays[f"model.head_.{array}"][0] = value

    forge(saved, arrays=point_out)
    with pytest.raises(ExperimentError, match=r"is damaged, or was edited \(a tree"):
        load_model(saved)


FORGERIES = {
    "another kind": lambda h: h["model"].update({"class": "subprocess:Popen"}),
    "another module": lambda h: h["model"].update({"class": "obygaze_models.estimators.mlp:torch"}),
    "a method's name": lambda h: h["model"]["fitted"].update(predict_proba=1),
    "a private name": lambda h: h["model"]["fitted"].update(__class__=1),
    "an unknown parameter": lambda h: h["model"]["parameters"].update(more=1),
    "a missing part": lambda h: h["model"]["fitted"].pop("head_"),
    "a part of another kind": lambda h: h["model"]["fitted"].update(head_="tree"),
    "an array that is not there": lambda h: h["model"]["fitted"].update(classes_={"array": "x"}),
    "an unknown form": lambda h: h["model"].update(fitted={"a_": {"pickle": "gASV"}}),
    "no model": lambda h: h.pop("model"),
    "a file above": lambda h: h["files"].update({"../model.x": ""}),
    "a file of no name": lambda h: h["files"].update({"model\0": ""}),
    "a list": lambda h: h.update(model=[1, 2]),
    "a pipeline of no estimators": lambda h: h.update(
        model={
            "pipeline": {
                "steps": [{"tuple": ["a", "b"]}],
                "transform_input": None,
                "verbose": False,
            }
        }
    ),
    "a pipeline with a memory": lambda h: h.update(
        model={"pipeline": {"steps": [{"tuple": ["a", h["model"]]}], "memory": "cache"}}
    ),
    "nested without end": lambda h: h.update(model=json.loads("[" * 500 + "]" * 500)),
    "classes that it does not name": lambda h: h["about"].update(classes=["EN"]),
    "more classes": lambda h: h["model"]["fitted"].update(classes_={"texts": ["a", "b", "c"]}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_descriptions_are_one_line(saved, forgery):
    forge(saved, header=FORGERIES[forgery])
    with pytest.raises(ExperimentError, match="is damaged, or was edited") as raised:
        load_model(saved)
    assert "\n" not in str(raised.value)


def test_forged_shapes_are_refused(models, tmp_path):
    save_model(models["mlp"], tmp_path / "mlp", {})

    def narrow(arrays):
        arrays["model.coefs_.1"] = np.ascontiguousarray(arrays["model.coefs_.1"][:-1])

    forge(tmp_path / "mlp", arrays=narrow)
    with pytest.raises(ExperimentError, match="is damaged, or was edited"):
        load_model(tmp_path / "mlp")


@pytest.mark.parametrize(
    "kind",
    [RandomForestClassifier, HistGradientBoostingClassifier, SVC, NuSVC, KMeans,
     GaussianProcessClassifier, QuadraticDiscriminantAnalysis],
)  # fmt: skip
def test_predictors_out_of_the_table_are_not_saved(known, tmp_path, kind):
    """A forged one could read and write memory, or cannot be checked in a few words."""
    labels = np.array(known.levels) == "S"
    with pytest.raises(ExperimentError, match="cannot be read back safely, so it is not saved"):
        save_model(kind().fit(known.X, labels), tmp_path / "model", {})
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"metric": "chebyshev"}, "metric is 'chebyshev'.*'cosine'"),
        ({"n_neighbors": 10**4}, "most"),
    ],
)
def test_a_knn_that_cannot_be_checked_is_not_saved(known, tmp_path, options, reason):
    model = KNeighborsClassifier(algorithm="brute", **options).fit(known.X, known.levels)
    with pytest.raises(ExperimentError, match=reason):
        save_model(model, tmp_path / "model", {})


def test_a_model_of_other_features_is_not_saved(known, tmp_path, models):
    about = {"features": {"shape": [4, known.X.shape[1] + 1]}}
    with pytest.raises(ExperimentError, match="could not be read back"):
        save_model(models["foreign parts"], tmp_path / "model", about)


CHILDREN = """
import json, os, resource, signal, sys
from pathlib import Path
import numpy as np
import skops.io, sklearn.dummy, sklearn.neighbors, torch  # once, not in every child
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators import registry
from obygaze_models.persistence import load_model
for name in registry.ESTIMATORS:
    registry.make_estimator(name)
for folder in sorted(Path(sys.argv[1]).iterdir()):
    if (pid := os.fork()) == 0:
        os.dup2(2, 1)
        resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
        signal.alarm(20)
        try:
            model, _ = load_model(folder)
            model.predict(np.zeros((2, model.n_features_in_), dtype=np.float32))
        except ExperimentError as problem:
            os._exit(7 if chr(10) not in str(problem) else 8)
        os._exit(0)
    _, status, usage = os.wait4(pid, 0)
    end = [folder.name, os.waitstatus_to_exitcode(status), usage.ru_maxrss]
    print(json.dumps(end), flush=True)
"""


def fitted(header, **values):
    header["model"]["fitted"].update(values)


def manhattan(header, arrays):
    header["model"]["parameters"]["metric"] = "manhattan"
    fitted(header, effective_metric_="manhattan")
    arrays["model._fit_X"] = arrays["model._fit_X"].astype("float32")
    arrays["model._y"][:] = 10**9


def reshape(name, *shape):
    def forge_shape(header, arrays):
        arrays[name] = np.resize(arrays[name], shape)

    return forge_shape


def neighbours(header, arrays):
    labels = arrays["model._y"].copy()
    manhattan(header, arrays)
    arrays["model._y"] = labels
    header["model"]["parameters"]["n_neighbors"] = 10**4


def narrow(header, arrays, metric="euclidean"):
    del header["model"]["fitted"]["n_features_in_"]
    header["model"]["parameters"]["metric"] = metric
    fitted(header, effective_metric_=metric)
    arrays["model._fit_X"] = np.full((len(arrays["model._y"]), 1), 0.5, "float32")


def widen(header, arrays):
    """Few numbers in the file; frames x units in memory."""
    fitted(header, n_frames_in_=2**20, n_features_in_=1)
    header["model"]["parameters"]["hidden_layer_sizes"] = [1000]
    for name, shape in {"layer0": (1, 1000), "offset0": 1000, "layer1": (1000, 1)}.items():
        arrays[f"model.weights_.{name}"] = np.zeros(shape, "float32")
    arrays["model.weights_.offset1"] = np.zeros(1, "float32")
    arrays["model.mean_"] = np.zeros(1, "float32")
    fitted(header, weights_={"mapping": [
        [name, {"array": f"model.weights_.{name}"}]
        for name in ("layer0", "offset0", "layer1", "offset1")
    ]})  # fmt: skip


def nest(header, arrays):
    for _ in range(30):
        steps = [{"tuple": ["a", header["model"]]}]
        pipeline = {"steps": steps, "transform_input": None, "verbose": False}
        header["model"] = {"pipeline": pipeline}


def own_names(X, y):
    model = LinearDiscriminantAnalysis().fit(X, y)
    model._n_features_out = 3 * 10**7
    return model


def no_arrays(X, y):
    model = StandardScaler(with_mean=False, with_std=False)
    model.n_features_in_, model.n_samples_seen_ = 2**24, 1
    model.mean_ = model.var_ = model.scale_ = None
    return model


def file_named(name):
    return lambda header, arrays: header["files"].update({name: ""})


SIZES = [
    ("knn", "labels", manhattan),
    ("knn", "negative labels", lambda h, a: a["model._y"].__setitem__(0, -9)),
    ("knn", "clips", lambda h, a: fitted(h, n_samples_fit_=10**9)),
    ("knn", "neighbours", neighbours),
    ("knn", "no width", narrow),
    ("knn", "no width, cosine", lambda h, a: narrow(h, a, "cosine")),
    ("knn", "a number for clips", lambda h, a: fitted(h, n_samples_fit_=1.0, _fit_X=1.0)),
    ("knn", "fewer labels", reshape("model._y", 3)),
    ("knn", "width", lambda h, a: fitted(h, n_features_in_=10**9)),
    ("majority", "width", lambda h, a: fitted(h, n_features_in_=10**9)),
    ("majority", "a text", lambda h, a: fitted(h, more_={"texts": ["a" * 10**6, *"b" * 10**6]})),
    ("frame-mil", "frames", lambda h, a: fitted(h, n_frames_in_=4 * 10**7)),
    ("attention-probe", "frames", lambda h, a: fitted(h, n_frames_in_=4 * 10**7)),
    ("mlp", "width", lambda h, a: fitted(h, n_features_in_=10**9)),
    ("mlp", "columns of offsets", reshape("model.intercepts_.0", 20_000, 1)),
    ("logistic", "no rule", reshape("model.coef_", 0, 10**9)),
    ("pcbm-tree", "columns of offsets", reshape("model.bank_.intercepts_", 20_000, 1)),
    ("frame-mil", "a wide layer", widen),
    ("logistic", "pipelines in one another", nest),
    ("logistic", "another width", lambda h, a: h.update(about={"features": {"shape": [10**12]}})),
    ("logistic", "a file's name", file_named("a\0b")),
    ("logistic", "a file's name that is no text", file_named("\ud800")),
    ("a classifier from elsewhere", "a kernel machine", lambda X, y: SVC().fit(X, y)),
    ("a classifier from elsewhere", "names", own_names),
    ("a classifier from elsewhere", "no arrays", no_arrays),
    ("a classifier from elsewhere", "processes", lambda X, y: FeatureUnion(
        [("a", LinearDiscriminantAnalysis())], n_jobs=2).fit(X, y)),
]  # fmt: skip


@pytest.mark.gate
def test_forged_sizes_neither_crash_nor_take_memory(models, known, tmp_path):
    import skops.io

    for number, (name, subject, forgery) in enumerate(SIZES):
        path = tmp_path / f"{number:02} {name}, {subject}"
        save_model(models[name], path, {})
        if name == "a classifier from elsewhere":
            model = forgery(known.X, np.array(known.levels))
            (path / "model.skops").write_bytes(skops.io.dumps(model))
            sign(path)
            continue
        tensors = load_file(path / "model.safetensors")
        header = json.loads((path / "model.json").read_text())
        forgery(header, tensors)
        save_file(tensors, path / "model.safetensors")
        (path / "model.json").write_text(json.dumps(header))
        sign(path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILDREN, str(tmp_path)],
        check=True, timeout=300, capture_output=True, text=True,
    )  # fmt: skip
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) == len(SIZES)
    assert [end for end in ends if end[1] != 7 or end[2] > 2**20] == []


def test_a_forged_skops_file_runs_nothing(known, tmp_path):
    """A file that asks for a type that is not trusted is refused, whatever its digest."""
    import skops.io

    model = GaussianNB().fit(known.X, np.array(known.levels) == "S")
    save_model(model, tmp_path / "model", {})
    model.witness = Path.touch
    data = skops.io.dumps(model)
    (tmp_path / "model" / "model.skops").write_bytes(data)
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    content["files"]["model.skops"] = hashlib.sha256(data).hexdigest()
    (tmp_path / "model" / "model.json").write_text(json.dumps(content))
    sign(tmp_path / "model")
    with pytest.raises(ExperimentError, match="is damaged, or was edited"):
        load_model(tmp_path / "model")


class Malice:
    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self):
        return Path.touch, (self.witness,)


def test_a_pickle_is_never_run(saved, tmp_path):
    malice = pickle.dumps(Malice(tmp_path / "witness"))
    pickle.loads(malice)
    (tmp_path / "witness").unlink()
    (saved / "model.safetensors").write_bytes(malice)
    with pytest.raises(ExperimentError, match="is damaged"):
        load_model(saved)
    sign(saved)
    with pytest.raises(ExperimentError, match="is damaged"):
        load_model(saved)
    (saved / "model.json").write_bytes(malice)
    with pytest.raises(ExperimentError, match="not valid JSON"):
        load_model(saved)
    assert not (tmp_path / "witness").exists()


def test_what_cannot_be_saved_is_one_line(known, tmp_path, saved):
    for model, message in [
        (MLPProbe(), "the MLPProbe is not fitted"),
        (object(), "model is a builtins.object, which cannot be saved"),
        (ConceptBottleneck(), "is not fitted"),
        (ConceptBank(), "is not fitted"),
        (GaussianNB(), "is not fitted"),
        (make_pipeline(ConceptBank(), LogisticProbe()), "the Pipeline is not fitted"),
    ]:
        with pytest.raises(ExperimentError, match=message):
            save_model(model, tmp_path / "new", {})
        assert not (tmp_path / "new").exists()
    with pytest.raises(OutputExists):
        save_model(load_model(saved)[0], saved, {})


def test_a_newer_format_asks_for_an_update(saved):
    forge(saved, header=lambda header: header.update(format_version=3))
    with pytest.raises(ExperimentError, match="update obygaze"):
        load_model(saved)
