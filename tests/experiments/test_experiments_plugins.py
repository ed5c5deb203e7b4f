"""Models, predictions and protocols from outside."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from tests.conftest import run_obygaze
from tests.kit.files import refused
from tests.kit.files import write as write_lines
from tests.kit.run import write_experiment

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
STOP = f"{HEAD}class Stop(Base):\n    def fit(self, X, y): raise KeyboardInterrupt\n"

#: The failure of a class, and the reported reason.
BROKEN = {
    "fit = lambda self, X, y: {}['nokey']": r"KeyError: 'nokey' \(mylab/broken.py:\d+\)",
    "def fit(self, X, y):\n        assert 0, 'two\\nlines'": r"AssertionError: two lines \(mylab/",
    "def predict_proba(self, X):\n        raise RuntimeError('no')": r"RuntimeError: no \(mylab/",
    "predict_proba = lambda self, X: np.ones(len(X))": r"shape \((\d+),\), not \(\1, 2\)",
    "predict_proba = lambda self, X: np.ones((len(X), 2))": "sum to 1 for each clip .got 1 to 1",
    "facts_ = {'rule': object()}": "facts_ must contain only JSON values .got object",
}


@pytest.fixture
def write(marked, tmp_path):

    def write(*estimators, **keys):
        keys = {"split": "three", "estimators": list(estimators)} | keys
        return write_experiment(tmp_path / "e.toml", marked, **keys)

    return write


def test_a_broken_model_does_not_stop_the_others(install, tmp_path, write):
    code = HEAD
    points = {}
    for number, body in enumerate(BROKEN):
        code += f"\nclass C{number}(Base):\n    {body}\n"
        points[f"c{number}"] = f"mylab.broken:C{number}"
    install({"broken.py": code}, points)
    toml = write("majority", *points)
    result = run_obygaze("models", "run", toml, "-o", tmp_path / "run", code=3)
    assert re.search(r"majority +across +0\.\d", result.stdout)
    skipped = json.loads((tmp_path / "run/run.json").read_text())["skipped"]
    for number, reason in enumerate(BROKEN.values()):
        own = [skip for skip in skipped if skip["what"].startswith(f"c{number} (")]
        [explanation] = {skip["why"] for skip in own}
        assert re.search(reason, explanation)
        assert "\n" not in explanation
        assert f"SKIPPED: HN vs S, c{number} (" in result.stderr


def test_errors_of_our_own_models_are_raised(tmp_path, write, monkeypatch):
    def fit(self, X, y):
        raise KeyError("ours")

    monkeypatch.setattr(type(om.make_estimator("logistic")), "fit", fit)
    with pytest.raises(KeyError, match="ours"):
        om.run_experiment(write("logistic", "majority"), tmp_path / "run")


def test_facts_warnings_and_versions_are_recorded(install, tmp_path, write, world):
    report = """
    def fit(self, X, y):
        self.facts_ = {"mean": np.float32(0.5), "rows": np.arange(2), "none": np.nan}
        self.warnings_ = ["does not learn"]
        return super().fit(X, y)
"""
    install({"flip.py": f"{HEAD}\nclass Flip(Base):{report}"}, POINT)
    run = tmp_path / "run"
    model = tmp_path / "model"
    result = run_obygaze("models", "run", write("flip"), "-o", run, code=0)
    facts = om.load_run(run).fits["facts"]
    assert facts[0] == {"mean": 0.5, "rows": [0, 1], "none": None}
    assert result.stderr.count("WARNING: flip: does not learn") == 1
    versions = json.loads((run / "run.json").read_text())["versions"]
    assert versions["mylab"] == "0.1.0"
    assert run_obygaze("models", "train", tmp_path / "e.toml", "-o", model).exit_code == 0
    estimator = om.load_model(model).estimator
    assert estimator.predict_proba(np.ones((3, 16))).shape == (3, 2)
    install()
    result = run_obygaze("models", "predict", model, world.store, code=1)
    assert "'mylab.flip:Flip' is not a class that obygaze can load" in result.output


def films_of(X):
    return {*np.argmax(X[:, :20], axis=1).tolist()}


SIDES = []


class Recorded(LogisticRegression):
    """A model that records in `SIDES` the films that it is trained on and then predicts."""

    def fit(self, X, y):
        self.films_ = films_of(X)
        return super().fit(X, y)

    def decision_function(self, X):
        SIDES.append((self.films_, films_of(X)))
        return super().decision_function(X)


@pytest.mark.parametrize("stores", [{}, {"see": 32, "hear": 32}])
def test_no_film_is_on_both_sides_of_an_inner_fold(stores):
    """Folds that divide films would reward recognising the film."""
    SIDES.clear()
    chance = np.random.default_rng(5)
    films = np.repeat(np.arange(20), 10)
    share = chance.choice([0.2, 0.8], 20)
    y = chance.binomial(1, share[films])
    X = np.hstack([2 * np.eye(20)[films], chance.normal(size=(200, 12))])
    data = replace(om.dataset(np.hstack([X, X]), y, films), stores=stores)
    search = GridSearchCV(Recorded(), {"C": [0.1, 1.0]}, cv=3)
    models = {"search": search, "calibrated": CalibratedClassifierCV(Recorded())}
    run = om.cross_validate(models, data, cv=GroupKFold(3))
    assert "inner-folds" not in {warning.code for warning in run.warnings}
    assert run.header.skipped == []
    assert len(SIDES) > 30
    assert not any(trained & tested for trained, tested in SIDES)


def test_a_broken_plugin_hides_no_others(install, write, tmp_path):
    files = {
        "flip.py": FLIP,
        "bad.py": "raise OSError('no\\ngo')",
        "lacking.py": "from obygaze_features.common.package import need\nneed('timm', extra='x')\n",
        "init.py": f"{HEAD}class Init(Base):\n    def __init__(self): raise LookupError('gone')\n",
        "odd.py": f"{HEAD}class Odd(Base):\n    def __init__(self, by=len): self.by = by\n",
    }
    points = {
        "bad": "mylab.bad:Bad",
        "init": "mylab.init:Init",
        "lost": "mylab.flip:Flop",
        "odd": "mylab.odd:Odd",
        "svm": "mylab.flip:Flip",
        "lacking": "mylab.lacking:Net",
        **POINT,
    }
    install(files, points)
    rows = json.loads(run_obygaze("models", "list", "--json").stdout)
    listed = {row["name"]: row for row in rows}
    facts = {
        "bad": "OSError: no go .*bad = mylab.bad:Bad",
        "init": "LookupError: gone",
        "lacking": "mylab.lacking:Net cannot be imported: timm ",
        "lost": "has no attribute",
        "flip": "",
    }
    for name, fact in facts.items():
        assert re.search(fact, listed[name]["estimator"]), name
        assert listed[name]["package"] == "mylab 0.1.0"
    assert listed["odd"]["options"]["by"] == "<built-in function len>"
    assert (listed["flip"]["package"], listed["svm"]["package"]) == ("mylab 0.1.0", "obygaze")
    toml = write("majority", "bad")
    refused(run_obygaze("models", "run", toml, "-o", tmp_path / "run"), "OSError: no go")


@pytest.fixture(scope="module")
def predicted(make_run, tmp_path_factory):
    table = make_run("good").predictions.drop_duplicates(["id", "fit"])
    path = tmp_path_factory.mktemp("outside") / "theirs.csv"
    table[["id", "fit", "probability"]].to_csv(path, index=False)
    return path


def test_a_new_version_of_a_plugin_is_fitted_again(install, tmp_path, write, capsys):
    for version, said in (("0.1.0", ""), ("0.1.0", "Resuming"), ("0.2.0", "Starting again")):
        install({"flip.py": FLIP, "stop.py": STOP}, POINT, version=version)
        with pytest.raises(KeyboardInterrupt):
            om.run_experiment(write("flip", "mylab.stop:Stop"), tmp_path / "run")
        assert said in capsys.readouterr().err


def test_predictions_are_scored_like_those_of_a_model(make_run, predicted):
    run = make_run("outside", predictions=(predicted,))
    assert [*run.models] == ["logistic", "theirs"]
    scores = {(row.model, row.test): row for row in run.model_scores}
    for expected in make_run("good").model_scores:
        ours, annotated = (scores[name, expected.test] for name in ("logistic", "theirs"))
        assert ours.by_fit == annotated.by_fit == expected.by_fit
        assert ours.within == annotated.within
        assert ours.across == annotated.across
    [warning] = run.warnings
    assert (warning.code, warning.subject) == ("outside", "theirs")


TABLES = [
    ("id,probability\na,1.5", "theirs in fit 0"),
    ("id,fit,probability\na,0,.5\na,,.5", "an id is listed twice"),
    ("id,fit,probability\na,0,.5", "a row for each test clip"),
    ("id,fit,probability\na,zero,.5", "cannot be read"),
    ("model,id,probability\nmajority,a,.5", "already named 'majority'"),
]


@pytest.mark.parametrize(("text", "fact"), TABLES)
def test_user_errors_in_predictions_are_one_line(experiment, tmp_path, text, fact):
    table = write_lines(tmp_path / "theirs.csv", text)
    chosen = structs.replace(experiment, estimators=("majority",), predictions=(table,))
    with pytest.raises(ExperimentError, match=fact):
        om.run_experiment(chosen, tmp_path / "run")
    assert not (tmp_path / "run").exists()
