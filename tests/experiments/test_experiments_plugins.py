"""Models of another installed package: what is recorded of them, and what their errors do."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models import persistence

HEAD = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from obygaze_features.common.package import need

class Base(ClassifierMixin, BaseEstimator):
    def __init__(self, share=0.25):
        self.share = share

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict_proba(self, X):
        return np.tile([self.share, 1 - self.share], (len(X), 1))

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
"""
FLIP = f"{HEAD}\nclass Flip(Base):\n    pass\n"
POINT = {"flip": "mylab.flip:Flip"}

#: How a class fails, and the reason that is given.
BROKEN = {
    "fit = lambda self, X, y: {}['nokey']": r"KeyError: 'nokey' \(mylab/broken.py:\d+\)",
    "def fit(self, X, y):\n        assert 0, 'two\\nlines'": r"AssertionError: two lines \(mylab/",
    "def fit(self, X, y):\n        raise SystemExit('bye')": "SystemExit: bye",
    "def fit(self, X, y, *, secret): pass": "TypeError: .*'secret'",
    "def fit(self, X, y): return self": "fit did not set classes_",
    "def predict_proba(self, X):\n        raise RuntimeError('no')": r"RuntimeError: no \(mylab/",
    "predict_proba = lambda self, X: np.ones(len(X))": r"gave \((\d+),\), not \(\1, 2\): one col",
    "predict_proba = lambda self, X: np.full((len(X), 2), np.nan)": "not probabilities: from nan",
    "predict_proba = lambda self, X: np.ones((len(X), 2))": "rows that sum to 2 to 2, not 1",
    "predict_proba = lambda self, X: np.tile([-1., 2], (len(X), 1))": "from -1 to 2",
    "facts_ = {'rule': object()}": "facts_ and history_ are JSON values, not a object",
    "def fit(self, X, y): need('mylab_x', extra='x')": r"MissingExtra: .* \(mylab/broken.py",
    "def __init__(self): raise LookupError('gone')": r"LookupError: gone \(mylab/broken.py:\d+\)",
}


@pytest.fixture
def write(world, tmp_path):
    """Writes an experiment's file with estimators, and more lines."""

    def write(*estimators, **more):
        path = tmp_path / "e.toml"
        values = {
            "name": "plug-ins", "manifest": str(world.manifest), "store": str(world.store),
            "split": "ten", "positives": ["S"], "train_negatives": ["EN"],
        }  # fmt: skip
        values |= {"estimators": list(estimators)} | more
        lines = [f"{key} = {_toml(value)}\n" for key, value in values.items()]
        path.write_text("".join(lines))
        return path

    return write


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def reasons(folder, model):
    """Why a model's fits were skipped."""
    skipped = json.loads((folder / "run.json").read_text())["skipped"]
    return [skip["why"] for skip in skipped if skip["what"].startswith(f"{model}, ")]


@pytest.mark.gate
def test_a_broken_model_is_skipped_and_the_others_go_on(install, tmp_path, write, obygaze):
    classes = [f"class C{number}(Base):\n    {body}\n" for number, body in enumerate(BROKEN)]
    points = {f"c{number}": f"mylab.broken:C{number}" for number in range(len(BROKEN))}
    install({"broken.py": "\n".join([HEAD, *classes])}, points)
    toml = write("majority", *points)
    result = obygaze("models", "run", toml, "-o", tmp_path / "run")
    assert result.exit_code == 3, result.output
    assert re.search(r"majority +0\.\d", result.stdout)
    assert re.search(r"SKIPPED: .*c0, .*KeyError: 'nokey' \(mylab/broken.py:\d+\)", result.stderr)
    for number, reason in enumerate(BROKEN.values()):
        [why, *others] = {*reasons(tmp_path / "run", f"c{number}")}
        assert re.search(reason, why)
        assert "\n" not in why
        assert not others
        assert f"c{number}, " in result.stderr.splitlines()[-1] or number == len(BROKEN) - 1
    for name in ("c0", "c11", "c12"):
        result = obygaze("models", "train", toml, "--estimator", name, "-o", tmp_path / "model")
        assert result.exit_code == 1
        assert re.fullmatch(f"Error: {name} cannot be trained: .*mylab/.*\n", result.output)
    result = obygaze("models", "compare", tmp_path / "run", "--model", "c0", "--model", "majority")
    assert "c0 has no predictions: all its fits were skipped" in result.output


def test_a_model_that_cannot_be_imported_is_listed(install, obygaze):
    lacking = "from obygaze_features.common.package import need\nneed('mylab_timm', extra='x')\n"
    install({"flip.py": FLIP, "lacking.py": lacking}, POINT | {"lacking": "mylab.lacking:Net"})
    described = json.loads(obygaze("models", "list", "--json").stdout)
    assert described["lacking"]["title"].startswith("cannot be loaded: MissingExtra: this needs")
    assert "entry point lacking = mylab.lacking:Net" in described["lacking"]["title"]
    assert described["flip"]["options"] == {"share": 0.25}


def test_errors_of_our_own_models_are_raised(install, tmp_path, write, monkeypatch):
    def fit(self, X, y):
        raise KeyError("ours")

    from obygaze_models.estimators.logistic import LogisticProbe

    monkeypatch.setattr(LogisticProbe, "fit", fit)
    with pytest.raises(KeyError, match="ours"):
        om.run_experiment(write("logistic", "majority"), tmp_path / "run")


def test_facts_and_warnings_are_recorded(install, tmp_path, write, obygaze):
    report = """
    def fit(self, X, y):
        self.facts_ = {"mean": np.float32(0.5), "rows": np.arange(2), "none": np.nan}
        self.history_ = [{"epoch": np.int64(1)}]
        self.warnings_ = ["does not learn"]
        return super().fit(X, y)
"""
    install({"flip.py": f"{HEAD}\nclass Flip(Base):{report}"}, POINT)
    result = obygaze("models", "run", write("flip"), "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    [line, *_] = (tmp_path / "run/models.jsonl").read_text().splitlines()
    assert json.loads(line)["facts"] == {"mean": 0.5, "rows": [0, 1], "none": None}
    assert result.stderr.count("WARNING: flip: does not learn") == 1
    assert '"epoch": 1}' in (tmp_path / "run/history.jsonl").read_text()


def interrupted(install, tmp_path, write, **package):
    """A run that stops after its first model's fits."""
    stop = "class Stop(Base):\n    def fit(self, X, y): raise KeyboardInterrupt\n"
    files = {"flip.py": FLIP, "stop.py": f"from mylab.flip import Base\n{stop}"}
    install(files | package.pop("files", {}), POINT, **package)
    toml, lines = write("flip", "mylab.stop:Stop"), []
    with pytest.raises(KeyboardInterrupt):
        om.run_experiment(toml, tmp_path / "run", log=lines.append)
    return lines


@pytest.mark.gate
def test_a_changed_plugin_starts_anew(install, tmp_path, write):
    """Its file, one that it inherits from, or its package's version."""
    lines = interrupted(install, tmp_path, write)
    assert re.match(r"\d+ of \d+ fits are kept", lines[-1])
    assert "Resuming" in interrupted(install, tmp_path, write)[0]
    edited = {"flip.py": FLIP.replace("0.25", "0.75")}
    [line, *_] = interrupted(install, tmp_path, write, files=edited)
    assert "not resumed: mylab.flip:Flip, mylab.stop:Stop changed" in line
    [line, *_] = interrupted(install, tmp_path, write, files=edited, version="0.2.0")
    assert "not resumed: mylab changed" in line


IMPORTS = pytest.mark.parametrize("begin", ["", "def later():\n    "], ids=["at once", "later"])


@IMPORTS
def test_a_changed_helper_of_a_plugin_starts_anew(install, tmp_path, write, begin):
    """A module that the class's module imports, or imports while a model is fitted."""
    files = {"flip.py": f"{begin}from mylab import net\n{FLIP}", "net.py": "SHARE = 0.25\n"}
    interrupted(install, tmp_path, write, files=files)
    assert "Resuming" in interrupted(install, tmp_path, write, files=files)[0]
    files["net.py"] = "SHARE = 0.75\n"
    [line, *_] = interrupted(install, tmp_path, write, files=files)
    assert "not resumed: mylab.flip:Flip, mylab.stop:Stop changed" in line


@pytest.mark.gate
@IMPORTS
def test_a_changed_neighbour_of_a_module_starts_anew(tmp_path, write, monkeypatch, begin):
    """Of a module in a plain folder, which has no package."""
    folder = tmp_path / "plain"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    stop = "class Stop(Base):\n    def fit(self, X, y): raise KeyboardInterrupt\n"
    (folder / "mylab_est.py").write_text(f"{begin}import mylab_net\n{FLIP}\n\n{stop}")
    toml, heard = write("mylab_est:Flip", "mylab_est:Stop"), []
    for share in (0.25, 0.25, 0.5):
        (folder / "mylab_net.py").write_text(f"SHARE = {share:.2f}\n")
        for name in ("mylab_est", "mylab_net"):
            sys.modules.pop(name, None)
        lines = []
        with pytest.raises(KeyboardInterrupt):
            om.run_experiment(toml, tmp_path / "run", log=lines.append)
        heard.append(lines[0])
    assert "Resuming" in heard[1]
    assert "not resumed: mylab_est:Flip, mylab_est:Stop changed" in heard[2]


@pytest.mark.gate
def test_overwrite_starts_anew(install, tmp_path, write):
    interrupted(install, tmp_path, write)
    lines = []
    with pytest.raises(KeyboardInterrupt):
        om.run_experiment(tmp_path / "e.toml", tmp_path / "run", overwrite=True, log=lines.append)
    assert "Resuming" not in lines[0]


def test_a_run_names_the_package_of_its_models(install, tmp_path, write, obygaze):
    install({"flip.py": FLIP}, POINT)
    assert obygaze("models", "run", write("flip"), "-o", tmp_path / "run").exit_code == 0
    versions = json.loads((tmp_path / "run/run.json").read_text())["versions"]
    assert versions["mylab"] == "0.1.0"
    assert versions["mylab.flip:Flip"].startswith("sha256 ")


def test_a_model_that_cannot_be_read_back_is_left_out(install, tmp_path, write, obygaze):
    body = "\n    def fit(self, X, y):\n        self.classes_, self.w_ = np.unique(y), X[0]\n"
    body += "        return self\n\n    def predict_proba(self, X):\n"
    body += "        return super().predict_proba(X @ self.w_)\n"
    install({"flip.py": f"{HEAD}\nclass Flip(Base):{body}"}, POINT)
    result = obygaze("models", "run", write("flip"), "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert re.search("flip is not among the saved models: .*n_features_in_", result.stderr)
    assert not (tmp_path / "run/models/flip").exists()
    result = obygaze("models", "train", tmp_path / "e.toml", "-o", tmp_path / "model")
    assert "n_features_in_" in result.output
    assert not (tmp_path / "model").exists()


def test_a_class_without_an_entry_point_is_not_saved(install, tmp_path, write, obygaze):
    """What would get it saved is said, and `models train` says it before it fits."""
    install({"flip.py": FLIP.replace("np.unique(y)", "print('fitted') or np.unique(y)")})
    toml = write("mylab.flip:Flip")
    remedy = '[project.entry-points."obygaze.estimators"] flip = "mylab.flip:Flip"'
    result = obygaze("models", "run", toml, "-o", tmp_path / "run")
    assert result.exit_code == 0
    assert remedy in result.stderr
    result = obygaze("models", "train", toml, "-o", tmp_path / "model")
    assert result.exit_code == 1
    assert remedy in result.stderr
    assert "fitted" not in result.stdout


def test_a_saved_model_names_the_package_that_it_needs(install, tmp_path, write, obygaze, world):
    install({"flip.py": FLIP}, POINT)
    model = tmp_path / "model"
    assert obygaze("models", "train", write("flip"), "-o", model).exit_code == 0
    assert persistence.load_model(model)[0].predict_proba(np.ones((3, 16))).shape == (3, 2)
    install()
    result = obygaze("models", "predict", model, world.store)
    assert result.exit_code == 1
    assert "needs the estimator mylab.flip.Flip of mylab 0.1.0, which is not inst" in result.output


def test_one_broken_plugin_leaves_the_list_whole(install, write, tmp_path, obygaze):
    files = {"flip.py": FLIP, "bad.py": "raise OSError('no\\ngo')", "init.py": HEAD + (
        "class Init(Base):\n    def __init__(self): raise LookupError('gone')\n"
    )}  # fmt: skip
    points = {
        "bad": "mylab.bad:Bad", "init": "mylab.init:Init", "lost": "mylab.flip:Flop",
        "svm": "mylab.flip:Flip", **POINT,
    }  # fmt: skip
    install(files, points)
    lines = obygaze("models", "list").stdout
    for name, fact in {
        "bad": "cannot be loaded: OSError: no go .*bad = mylab.bad:Bad",
        "init": "LookupError: gone",
        "lost": "did you mean Flip", "flip": "", "svm .mylab.flip:Flip.": "ignored",
    }.items():  # fmt: skip
        assert re.search(rf"^{name} .*{fact}.*\(mylab 0.1.0\)$", lines, re.MULTILINE), name
    listed = json.loads(obygaze("models", "list", "--json").stdout)
    assert listed["flip"]["package"] == "mylab 0.1.0"
    assert listed["svm"]["package"] == "obygaze"
    result = obygaze("models", "run", write("svm", "bad"), "-o", tmp_path / "run")
    assert result.exit_code == 3, result.output
    assert "the svm of mylab 0.1.0 is ignored" in result.stderr
    assert set(reasons(tmp_path / "run", "bad")) == {"OSError: no go (mylab/bad.py:1)"}


def test_one_model_is_trained_though_another_is_not_installed(install, write, tmp_path, obygaze):
    toml = write("majority", "no_such_package:Class", {"name": "knn", "as": "near"})
    for option in ([], ["--estimator", "near"]):
        result = obygaze("models", "train", toml, *option, "--overwrite", "-o", tmp_path / "model")
        assert result.exit_code == 0, result.output
    result = obygaze("models", "train", toml, "--estimator", "nobody", "-o", tmp_path / "other")
    assert "no_such_package:Class cannot be imported" in result.output


@pytest.mark.parametrize(
    ("estimators", "more", "message"),
    [
        (["mylab.flip:Flop"], {}, "unknown class 'Flop'; did you mean Flip?$"),
        (["mylab.flip:Plain"], {}, "it has no fit, get_params, .*; inherit from"),
        (["svn"], {}, "did you mean svm?$"),
        ([{"name": "flip", "negatives": "b"}], {}, "'flip' uses no concepts"),
        (["flip"], {"negatives": "b"}, "negatives is for concepts"),
        ([{"name": "mylab.bad:Bad", "shares": 1}], {}, "'shares'; did you mean share?"),
    ],
)  # fmt: skip
def test_a_slip_is_refused_before_any_fit(install, write, obygaze, estimators, more, message):
    install(
        {"flip.py": f"{FLIP}\nclass Plain:\n    pass\n", "bad.py": f"{HEAD}\nBad = Base"}, POINT
    )
    result = obygaze("models", "run", write(*estimators, **more), "-o", "run")
    assert result.exit_code == 1
    assert re.search(message.replace("?", r"\?"), result.output.strip())


def test_an_object_in_place_of_a_name_is_refused(install, world):
    install({"flip.py": FLIP}, POINT)
    from mylab.flip import Flip

    with pytest.raises(ExperimentError, match=r"Flip\(share=2\).*'name': 'mylab.flip:Flip'"):
        om.Experiment(
            name="x", manifest=world.manifest, store=world.store, positives=["S"],
            train_negatives=["EN"], estimators=[Flip(share=2)],
        )  # fmt: skip
