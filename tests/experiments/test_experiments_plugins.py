"""Models, predictions, protocols, metrics and tables from outside."""

import json
import re
import shutil
import sys
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from msgspec import structs
from sklearn.metrics import brier_score_loss, matthews_corrcoef
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedGroupKFold

import obygaze_models as om
from docs.blocks import blocks
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Split
from obygaze_features.store import ArraySpec
from obygaze_models.data.folds import Splitter
from obygaze_models.data.protocols import PROTOCOLS, LeakFree, protocol
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.experiments.plan import make_plan
from obygaze_models.experiments.summary import headline
from obygaze_models.experiments.warnings import messages_of
from obygaze_models.reproduce.context import TARGETS, Target
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value
from obygaze_models.scoring.metrics import METRICS, Metric
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows, refused
from tests.kit.files import write as write_lines
from tests.kit.floats import close
from tests.kit.predicted import fits_of
from tests.kit.run import RECIPE, labelled, write_experiment, write_rows

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
STOP = "class Stop(Base):\n    def fit(self, X, y): raise KeyboardInterrupt\n"

#: The failure of a class, and the reported reason.
BROKEN = {
    "fit = lambda self, X, y: {}['nokey']": r"KeyError: 'nokey' \(mylab/broken.py:\d+\)",
    "def fit(self, X, y):\n        assert 0, 'two\\nlines'": r"AssertionError: two lines \(mylab/",
    "def fit(self, X, y): raise GeneratorExit": r"GeneratorExit \(mylab/broken.py:\d+\)",
    "def fit(self, X, y): return self": "fit must set classes_",
    "def predict_proba(self, X):\n        raise RuntimeError('no')": r"RuntimeError: no \(mylab/",
    "predict_proba = lambda self, X: np.ones(len(X))": r"shape \((\d+),\), not \(\1, 2\)",
    "predict_proba = lambda self, X: np.full((len(X), 2), np.nan)": "not probabilities.*nan",
    "predict_proba = lambda self, X: np.ones((len(X), 2))": "rows sum to 2 to 2, not 1",
    "facts_ = {'rule': object()}": "facts_ must contain only JSON values .got object",
    "def __init__(self): raise LookupError('gone')": r"LookupError: gone \(mylab/broken.py:\d+\)",
}


@pytest.fixture
def write(marked, tmp_path):

    def write(*estimators, **keys):
        keys = {"split": "three", "estimators": list(estimators)} | keys
        return write_experiment(tmp_path / "e.toml", marked, **keys)

    return write


def test_a_broken_model_does_not_stop_the_others(install, tmp_path, write):
    classes = [f"class C{number}(Base):\n    {body}\n" for number, body in enumerate(BROKEN)]
    points = {f"c{number}": f"mylab.broken:C{number}" for number in range(len(BROKEN))}
    install({"broken.py": "\n".join([HEAD, *classes])}, points)
    toml = write("majority", *points)
    result = run_obygaze("models", "run", toml, "-o", tmp_path / "run", "-v", code=3)
    assert re.search(r"majority +0\.\d", result.stdout)
    assert re.search(r"SKIPPED: .*c0, .*KeyError: 'nokey' \(mylab/broken.py:\d+\)", result.stderr)
    skipped = json.loads((tmp_path / "run/run.json").read_text())["skipped"]
    for number, reason in enumerate(BROKEN.values()):
        [explanation] = {skip["why"] for skip in skipped if skip["what"][:4] == f"c{number}, "}
        assert re.search(reason, explanation)
        assert "\n" not in explanation
        assert f"SKIPPED: HN vs S, c{number}, " in result.stderr
    train = ("models", "train", toml, "--estimator", f"c{len(BROKEN) - 1}", "-o", tmp_path / "m")
    result = run_obygaze(*train, code=1)
    assert re.fullmatch(r"Error: c\d cannot be trained: .*mylab/.*\n", result.output)
    result = run_obygaze("models", "compare", tmp_path / "run", "--model", "c0")
    assert "c0 has no predictions: all its fits were skipped" in result.output


def test_changing_the_working_folder_moves_no_output(install, tmp_path, write, monkeypatch):
    (elsewhere := tmp_path / "elsewhere").mkdir()
    move = f"import os; os.chdir({str(elsewhere)!r}); return super().fit(X, y)"
    away = f"{FLIP}\nclass Away(Flip):\n    def fit(self, X, y): {move}\n"
    install({"flip.py": away}, {"away": "mylab.flip:Away"})
    monkeypatch.chdir(tmp_path)
    run_obygaze("models", "run", write("away"), "-o", "r", code=0)
    assert Path.cwd() == tmp_path
    assert (tmp_path / "r/run.json").is_file()
    assert list(elsewhere.iterdir()) == []


def test_the_concept_model_of_the_docs_runs(install, tmp_path, write):
    how_to = (Path(__file__).parents[2] / "docs/how-to/extend.md").read_text()
    [code] = re.findall(r"```python\n(# film_lab/near.py.*?)```", how_to, re.DOTALL)
    install({"near.py": code}, {"near-concepts": "mylab.near:NearConcepts"})
    [table] = re.findall(r"`\{name = \"(near-concepts)\", negatives = \"(b)\"\}`", how_to)
    toml = write(dict(zip(("name", "negatives"), table, strict=True)))
    result = run_obygaze("models", "run", toml, "-o", tmp_path / "run", code=0)
    assert re.search(r"near-concepts +0\.[6-9]", result.stdout)
    assert "was not saved" not in result.output


def test_errors_of_our_own_models_are_raised(tmp_path, write, monkeypatch):
    def fit(self, X, y):
        raise KeyError("ours")

    monkeypatch.setattr(LogisticProbe, "fit", fit)
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
    run, model = tmp_path / "run", tmp_path / "model"
    result = run_obygaze("models", "run", write("flip"), "-o", run, code=0)
    assert om.load_run(run).fits["facts"][0] == {"mean": 0.5, "rows": [0, 1], "none": None}
    assert result.stderr.count("WARNING: flip: does not learn") == 1
    versions = json.loads((run / "run.json").read_text())["versions"]
    assert versions["mylab"] == "0.1.0"
    assert versions["mylab.flip:Flip"].startswith("sha256 ")
    assert run_obygaze("models", "train", tmp_path / "e.toml", "-o", model).exit_code == 0
    assert om.load_model(model)[0].predict_proba(np.ones((3, 16))).shape == (3, 2)
    install()
    result = run_obygaze("models", "predict", model, world.store, code=1)
    assert "needs the estimator mylab.flip.Flip from mylab 0.1.0, which is not i" in result.output


def test_a_saved_model_that_fails_is_one_line(install, tmp_path, write, world):
    moody = (
        "predict_proba = lambda self, X: {}['gone'] if len(X) == 2 else Base.predict_proba(self, X)"
    )
    install({"flip.py": f"{HEAD}\nclass Flip(Base):\n    {moody}\n"}, POINT)
    model = tmp_path / "model"
    run_obygaze("models", "train", write("flip"), "-o", model, code=0)
    run_obygaze("models", "predict", model, world.store, code=0)
    two = ("--ids", ",".join(world.ids[:2]))
    refused(run_obygaze("models", "predict", model, world.store, *two), "'gone'", "mylab/flip.py:")


@pytest.fixture
def interrupt(install, tmp_path, write):
    def interrupt(files=(), *, overwrite=False, estimators=("flip", "mylab.stop:Stop"), **package):
        if estimators[0] == "flip":
            stop = f"from mylab.flip import Base\n{STOP}"
            install({"flip.py": FLIP, "stop.py": stop} | dict(files), POINT, **package)
        toml, lines = write(*estimators), []
        with pytest.raises(KeyboardInterrupt):
            om.run_experiment(toml, tmp_path / "run", overwrite=overwrite, log=lines.append)
        return lines

    return interrupt


def test_a_changed_plugin_is_fitted_again(interrupt):
    assert re.match(r"\d+ of \d+ fits are kept", interrupt()[-1])
    assert "Resuming" in interrupt()[0]
    assert "Resuming" not in interrupt(overwrite=True)[0]
    for begin in ("", "def later():\n    "):
        for share in (0.25, 0.75):
            net = {"net.py": f"SHARE = {share}\n"}
            files = {"flip.py": f"{begin}from mylab import net\n{FLIP}"} | net
            line = interrupt(files)[0]
            assert "not resumed: mylab.flip:Flip, mylab.stop:Stop changed" in line
    assert "not resumed: mylab changed" in interrupt(files, version="0.2.0")[0]


@pytest.mark.gate
def test_a_changed_imported_module_is_fitted_again(tmp_path, interrupt, monkeypatch):
    """The module is in a plain folder without a package."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mylab_est.py").write_text(f"def later():\n    import mylab_net\n{FLIP}\n\n{STOP}")
    heard = []
    for share in (0.25, 0.25, 0.5):
        (tmp_path / "mylab_net.py").write_text(f"SHARE = {share:.2f}\n")
        for name in ("mylab_est", "mylab_net"):
            sys.modules.pop(name, None)
        heard.append(interrupt(estimators=("mylab_est:Flip", "mylab_est:Stop"))[0])
    assert "Resuming" in heard[1]
    assert "not resumed: mylab_est:Flip, mylab_est:Stop changed" in heard[2]


def test_a_model_that_cannot_be_read_back_is_not_saved(install, tmp_path, write):
    body = (
        "\n    def fit(self, X, y):\n        self.classes_, self.w_ = np.unique(y), X[0]\n"
        "        return self\n\n    def predict_proba(self, X):\n"
        "        return super().predict_proba(X @ self.w_)\n"
    )
    bare = FLIP.replace("np.unique(y)", "print('fitted') or np.unique(y)")
    install({"flip.py": f"{HEAD}\nclass Flip(Base):{body}", "bare.py": bare}, POINT)
    remedy = '[project.entry-points."obygaze.estimators"] flip = "mylab.bare:Flip"'
    for name, fact in (("flip", "n_features_in_"), ("mylab.bare:Flip", remedy)):
        toml, run, model = write(name), tmp_path / "run", tmp_path / "model"
        result = run_obygaze("models", "run", toml, "--overwrite", "-o", run, code=0)
        text = f"{name} was not saved: .*{re.escape(fact)}"
        assert re.search(text, result.stderr)
        assert not (run / "models").exists()
        result = run_obygaze("models", "train", toml, "-o", model)
        assert (result.exit_code, fact in result.stderr) == (1, True), result.stderr
        assert not model.exists()
    assert "fitted" not in result.stdout


GRID = [0.01, 0.1, 1.0]
SEARCH = {
    "name": "sklearn.model_selection:GridSearchCV", "param_grid": {"C": GRID},
    "estimator": "obygaze_models.estimators.logistic:LogisticProbe",
}  # fmt: skip
GROUP_KFOLD = "sklearn.model_selection:GroupKFold"


@pytest.fixture(scope="module")
def by_film(marked):
    """An experiment in which folds that divide films reward recognising the film."""
    chance, folder = np.random.default_rng(5), marked.folder / "by-film"
    films = np.repeat(np.arange(20), 10)
    ids = [f"tt{film:02}-{row:03}" for row, film in enumerate(films)]
    levels = np.where(chance.random(200) < chance.choice([0.2, 0.8], 20)[films], "S", "EN")
    features = np.hstack([2 * np.eye(20)[films], chance.normal(size=(200, 12))])
    features[levels == "S", -1] += 0.5
    manifest = labelled(ids, levels.tolist(), folds=(np.arange(200) % 4).tolist())
    splits = {"films": films % 3, "one-film": np.minimum(films, 1) + (films > 9)}
    splits = [Split(name, ids, folds.tolist()) for name, folds in splits.items()]
    manifest.with_parts(splits=[manifest.split("ten"), *splits]).save(folder / "manifest")
    array = ArraySpec("native", (32,), "float32", "one vector a clip")
    rows = {"native": features.astype(np.float32)}
    recipe = replace(RECIPE, arrays=(array,))
    write_rows(folder / "s.zarr", manifest, rows, recipe, block_rows=200)
    return om.Experiment(
        "By film", folder / "manifest", folder / "s.zarr", split="ten", positives=["S"],
        train_negatives=["EN"], balance="none",
    )  # fmt: skip


SEARCHES = [
    ({}, GroupKFold()),
    ({"cv": "groups"}, GroupKFold()),
    ({"cv": 3}, GroupKFold(3)),
    ({"cv": GROUP_KFOLD}, GroupKFold()),
    ({"cv": GROUP_KFOLD, "cv__n_splits": 4}, GroupKFold(4)),
]


def test_a_search_in_an_experiment_tunes_on_whole_films(by_film, tmp_path):
    entries = [SEARCH | options | {"as": f"n{i}"} for i, (options, _) in enumerate(SEARCHES)]
    asked = structs.replace(by_film, protocol="leak-free", estimators=entries)
    run, plan = om.run_experiment(asked, tmp_path / "run"), make_plan(asked)
    assert not [warning for warning in run.warnings if warning.code == "inner-folds"]
    [folds], data = plan.folds.values(), plan.data
    labels = plan.problems[0].train.labels(data)
    differs = 0
    for number, (_, cv) in enumerate(SEARCHES):
        saved = [row for row in run.saved if row["model"] == f"n{number}"]
        for fold, row in zip(folds, saved, strict=True):
            X, y, films = data.X[fold.train], labels[fold.train], data.groups[fold.train]
            search = GridSearchCV(LogisticProbe(random_state=fold.seed), {"C": GRID}, cv=cv)
            best = search.fit(X, y, groups=films).best_params_["C"]
            assert best == om.load_model(row["folder"])[0].C
            differs += best != search.set_params(cv=None).fit(X, y).best_params_["C"]
    assert differs > 0


CALIBRATED = "sklearn.calibration:CalibratedClassifierCV"
CALIBRATED = {"name": CALIBRATED, "estimator": SEARCH["estimator"]}


def films_of(X):
    return {*np.argmax(np.asarray(X)[:, :20], axis=1).tolist()}


@pytest.mark.parametrize("stores", [1, 2])
def test_no_film_is_on_both_sides_of_an_inner_fold(by_film, tmp_path, monkeypatch, stores):
    """This includes a search on two stores side by side."""
    fit, check, sides = LogisticProbe.fit, LogisticProbe._check, []

    def record_fit(self, X, y, sample_weight=None):
        self.films = films_of(X)
        return fit(self, X, y, sample_weight)

    def record_test(self, X):
        if hasattr(self, "films"):
            sides.append((self.films, films_of(X)))
        return check(self, X)

    monkeypatch.setattr(LogisticProbe, "fit", record_fit)
    monkeypatch.setattr(LogisticProbe, "_check", record_test)
    keys = {"split": "films", "protocol": "leak-free"}
    keys["estimators"] = [SEARCH | {"param_grid": {"C": [0.1, 1.0]}}, CALIBRATED]
    if stores == 2:
        copied = shutil.copytree(by_film.store, tmp_path / "b.zarr")
        keys |= {"store": (by_film.store, copied)}
    run = om.run_experiment(structs.replace(by_film, **keys), tmp_path / "run")
    assert "inner-folds" not in {warning.code for warning in run.warnings}
    assert run.header.skipped == []
    assert len(sides) > 30
    assert not any(trained & tested for trained, tested in sides)


def test_inner_folds_that_divide_films_are_warned_of(by_film, tmp_path):
    nested = {"estimator": "obygaze_models.estimators.svm:LinearSVMProbe", "as": "nested"}
    nested |= {"name": CALIBRATED["name"], "estimator__C": [0.1, 1.0]}
    shuffled = {"cv": "sklearn.model_selection:StratifiedKFold", "cv__shuffle": True}
    keys = {
        "split": "one-film", "protocol": "leak-free",
        "estimators": [SEARCH, SEARCH | shuffled | {"as": "shuffled"}, nested],
    }  # fmt: skip
    run = om.run_experiment(structs.replace(by_film, **keys), tmp_path / "run")
    messages = {w.subject: w.text for w in run.warnings if w.code == "inner-folds"}
    assert "training clips are from one film" in messages[SEARCH["name"]]
    assert "StratifiedKFold" in messages["shuffled"]
    assert 'cv = "groups"' in messages["shuffled"]
    assert any(w.subject == "nested" and "LinearSVMProbe" in w.text for w in run.warnings)


def test_a_broken_plugin_hides_no_others(install, write, tmp_path):
    files = {
        "flip.py": FLIP, "bad.py": "raise OSError('no\\ngo')",
        "lacking.py": "from obygaze_features.common.package import need\nneed('timm', extra='x')\n",
        "init.py": f"{HEAD}class Init(Base):\n    def __init__(self): raise LookupError('gone')\n",
    }  # fmt: skip
    points = {
        "bad": "mylab.bad:Bad", "init": "mylab.init:Init", "lost": "mylab.flip:Flop",
        "svm": "mylab.flip:Flip", "lacking": "mylab.lacking:Net", **POINT,
    }  # fmt: skip
    install(files, points)
    listed = {
        row["name"]: row for row in json.loads(run_obygaze("models", "list", "--json").stdout)
    }
    for name, fact in {
        "bad": "cannot be loaded: OSError: no go .*bad = mylab.bad:Bad",
        "init": "LookupError: gone", "lacking": "mylab.lacking:Net cannot be imported: timm ",
        "lost": "has no attribute", "flip": "", "svm (mylab.flip:Flip)": "ignored",
    }.items():  # fmt: skip
        assert re.search(fact, listed[name]["estimator"]), name
        assert listed[name]["package"] == "mylab 0.1.0"
    taking = {name for name, about in listed.items() if "threshold" in about["options"]}
    assert {"mlp", "logistic"} <= taking
    assert not taking & {"pcbm-tree", "majority", "film-prior"}  # see EstimatorSpec
    assert (listed["flip"]["package"], listed["svm"]["package"]) == ("mylab 0.1.0", "obygaze")
    toml = write("majority", "bad", "no_such_package:Class", {"name": "knn", "as": "near"}, "svm")
    assert run_obygaze("models", "run", toml, "-o", tmp_path / "run").exit_code == 1
    option = ["--estimator", "near", "-o", tmp_path / "m"]  # one that is not installed is in
    assert run_obygaze("models", "train", toml, *option).exit_code == 0  # nobody's way


@pytest.fixture(scope="module")
def predicted(make_run, tmp_path_factory):
    rows = csv_rows(make_run("good").folder / "predictions.csv")
    unique = {(row["id"], row["fit"]): row["probability"] for row in rows}
    lines = [f"{clip},{fit},{value}" for (clip, fit), value in unique.items()]
    folder = tmp_path_factory.mktemp("outside")
    return write_lines(folder / "theirs.csv", "id,fit,probability", *lines)


def test_predictions_are_scored_like_those_of_a_model(make_run, predicted, tmp_path):
    run = make_run("outside", predictions=(predicted,))
    assert [*run.models] == ["logistic", "theirs"]
    scores = {(row.model, row.test): row for row in run.model_scores}
    for expected in make_run("good").model_scores:
        ours, annotated = (scores[name, expected.test] for name in ("logistic", "theirs"))
        assert ours.by_fit == annotated.by_fit == expected.by_fit
        assert ours.interval == annotated.interval
    [warning] = run.warnings
    assert (warning.code, warning.subject) == ("outside", "theirs")
    assert "theirs" in om.report(run, tmp_path / "page.html").read_text(encoding="utf-8")


def test_predictions_may_cover_some_fits(make_run, predicted, tmp_path):
    lines = predicted.read_text().splitlines()
    clips = sorted({line.split(",")[0] for line in lines[1:]})
    half = [f"{clip},half,0.5" for clip in clips]
    constant = write_lines(tmp_path / "c.csv", "id,model,probability", *half)
    run = make_run("constant", estimators=(), predictions=(constant,))
    assert [*run.models] == ["half"]
    assert {len(scores.fits) for scores in run.model_scores} == {9}
    part = write_lines(tmp_path / "part.csv", *(line for line in lines if ",3," not in line))
    run = make_run("part", estimators=("majority",), predictions=(part,))
    assert [(skip.fit, skip.why) for skip in run.header.skipped] == [
        (3, "part.csv has no predictions for fit 3")
    ]


TABLES = [
    ("id,probability\na,1.5", "line 2: probability must be from 0 to 1 .got 1.5"),
    ("id,fit,probability\na,0,.5\na,0,.5", "line 3: duplicate a in fit 0"),
    ("id,fit,probability\na,0,.5", "theirs has no prediction for the test clip tt"),
    ("id,fit,probability,model\na,0,.5,majority", "two models are called 'majority'"),
]


@pytest.mark.parametrize(("text", "fact"), TABLES)
def test_user_errors_in_predictions_are_one_line(experiment, tmp_path, monkeypatch, text, fact):
    monkeypatch.setattr("obygaze_models.experiments.fit.fit_estimator", None)
    table = write_lines(tmp_path / "theirs.csv", text)
    chosen = structs.replace(experiment, estimators=("majority",), predictions=(table,))
    with pytest.raises(ExperimentError, match=fact):
        om.run_experiment(chosen, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def squares(labels, probabilities, weights):
    return weights @ np.square(probabilities - labels) / weights.sum(axis=1)


@pytest.fixture
def own(make_run):
    make_run("good")  # by what was known before
    tables = [dict(table) for table in (PROTOCOLS, METRICS, TARGETS)]

    @protocol("first-fold", "First fold: one fit, for a look", "a look", balance="none")
    class FirstFold(LeakFree):
        def make_folds(self, y, tests, *, groups=None):
            return super().make_folds(y, tests)[:1]

    METRICS["squares"] = Metric(
        "Squares", "mean square", "the mean square of what is missing to certainty",
        binary=True, lower_is_better=True, compute=squares,
    )  # fmt: skip

    @Target("clips", "Clips")
    def clips(context, runs):
        line = Line("clips", "ours", {"all": Value(len(context.manifest))})
        return Artifacts([Table(["all"], [Block("", "", "count", [line])])])

    yield
    for table, before in zip((PROTOCOLS, METRICS, TARGETS), tables, strict=True):
        table.clear()
        table.update(before)


def test_custom_protocols_metrics_and_targets_work_everywhere(own, experiment, make_run, tmp_path):
    # A release that adds a metric reads its users' older runs.
    assert "Squares" not in om.report(make_run("good"), tmp_path / "older.html").read_text()
    chosen = structs.replace(experiment, protocol="first-fold", estimators=("logistic", "knn"))
    run = om.run_experiment(chosen, tmp_path / "run")
    record, [fit, *_] = run.record, fits_of(run)
    assert (record.protocol, record.balance, record.fit_count) == ("first-fold", "none", 1)
    scores = record.scores[0]
    squares = scores.over_fits.mean["squares"]
    assert squares == close(brier_score_loss(fit.labels, fit.probabilities))
    page = om.report(run, tmp_path / "page.html").read_text()
    for text in ("First fold: one fit, for a look", "Squares", "what is missing to certainty"):
        assert text in page, text
    assert fits_of(om.load_run(tmp_path / "run"))[0].ids == fit.ids
    result = run_obygaze("models", "compare", run.folder, "--metric", "squares")
    assert "; Squares\n" in result.stdout
    unknown = run_obygaze("models", "compare", run.folder, "--metric", "square")
    refused(unknown, "did you mean squares", code=2)
    del PROTOCOLS["first-fold"]  # as in another process
    refused(run_obygaze("report", run.folder, "-o", tmp_path / "x"), "unknown protocol 'first-f")


def test_no_folds_are_drawn_for_a_protocol_without_them(own, experiment, tmp_path):
    @protocol("parts", "Parts: clips by turns, perhaps several times", "parts", in_turn=True)
    @dataclass(eq=False, repr=False)
    class Parts(Splitter):
        _: KW_ONLY
        repeats: int = 1
        random_state: int = 0

        def _parts(self, y, groups, near=None):
            for number in range(4 * self.repeats):
                part = np.random.default_rng(number // 4).integers(4, size=len(y))
                stop, test = part == (number + 1) % 4, part == number % 4
                yield f"part {number}", ~(stop | test), stop, test, ""

        def get_n_splits(self, X=None, y=None, groups=None):
            return 4 * self.repeats

    counts = {1: "4 fits test different clips.", 2: "8 fits test each clip up to 2 times."}
    for split, (repeats, text) in zip((None, ""), counts.items(), strict=True):
        asked = {"name": "parts", "repeats": repeats}
        chosen = structs.replace(experiment, split=split, protocol=asked, estimators=("logistic",))
        run = om.run_experiment(chosen, tmp_path / f"run{repeats}")
        assert run.header.split == ""
        assert {row["fold"] for row in csv_rows(run.folder / "clips.csv")} == {""}
        assert text in [message.text for message in messages_of(run.record)]
    stopped = structs.replace(chosen, estimators=("mlp",))
    trained = om.train_model(stopped, tmp_path / "model")
    assert 5 < trained.trained / trained.validated < 10  # one in ten stops it


def matthews(labels, probabilities, weights):
    return np.array([
        matthews_corrcoef(labels, probabilities > 0.5, sample_weight=row) for row in weights
    ])  # fmt: skip


def test_the_named_score_leads(own, experiment, tmp_path):
    metrics = dict(METRICS)
    METRICS.clear()
    mcc = Metric("MCC", "MCC", "a correlation", binary=True, compute=matthews)
    METRICS.update({"squares": metrics.pop("squares"), "mcc": mcc, **metrics})
    changes = {"protocol": "first-fold", "estimators": ("logistic", "majority")}
    chosen = structs.replace(experiment, **changes, score="mcc")
    run = om.run_experiment(chosen, tmp_path / "run")
    fit = max(fits_of(run), key=lambda fit: (fit.model == "logistic", len(fit.ids)))
    films = np.array([clip.partition("-")[0] for clip in fit.ids])
    values = [matthews_corrcoef(fit.labels[films == f], fit.called[films == f])
              for f in np.unique(films) if len({*fit.labels[films == f]}) == 2]  # fmt: skip
    expected = f"MCC {np.mean(values):.2f}"
    page = om.report(run, tmp_path / "page.html").read_text()
    sentences = re.sub("<[^>]*>", "", page)
    printed = run_obygaze("report", run.folder, "-o", tmp_path / "again.html", code=0)
    assert (tmp_path / "again.html").read_text() == page, printed
    assert "MCC" in sentences
    assert f"logistic, the first listed of 2 models: {expected}" in "\n".join(headline(run.record))
    with pytest.raises(ExperimentError, match="unknown score 'squares'"):
        make_plan(structs.replace(chosen, score="squares"))


REPEATED = """
name = "Repeated"
manifest = '{manifest}'
store = '{store}'
positives = ["S"]
train_negatives = ["HN"]
estimators = ["logistic"]

[protocol]
name = "repeated"
parts = 3
"""


def test_protocol_options_are_a_table(own, world, tmp_path):
    """Compare the protocol of the how-to with scikit-learn's folds."""
    page = Path("docs/how-to/extend.md").read_text(encoding="utf-8")
    [code] = [content for _, name, content in blocks(page) if name == "repeated.py"]
    run_path(str(write_lines(tmp_path / "repeated.py", code)))
    toml = tmp_path / "e.toml"

    def write(*options):
        table = REPEATED.format(manifest=world.manifest, store=world.store)
        toml.write_text("\n".join([table, *options]), encoding="utf-8")
        return toml

    write("repeats = 2")
    run = om.run_experiment(toml, tmp_path / "run")
    table = {"name": "repeated", "parts": 3, "repeats": 2}
    assert om.load_run(run.folder).experiment.protocol == table
    plan = make_plan(toml)
    labels = plan.problems[0].train.labels(plan.data)
    rows = np.flatnonzero(labels >= 0)
    expected = [
        {plan.data.ids[row] for row in rows[test]}
        for seed in (0, 1)
        for _, test in StratifiedGroupKFold(3, shuffle=True, random_state=seed).split(
            rows, labels[rows], plan.data.groups[rows]
        )
    ]
    assert [{*fit.ids} for fit in fits_of(run)] == expected
    again = om.run_experiment(write(), tmp_path / "once")
    assert len(fits_of(again)) == 3
    [compared] = om.compare(run, again).comparisons
    [note] = [note for note in compared.differences if note.code == "options"]
    assert "different protocol options: {parts = 3, repeats = 2} in run" in note.text
    for option, fact in (
        ("repeat = 2", "protocol: unknown option 'repeat'; did you mean repeats?"),
        ('repeats = "two"', 'protocol: repeats = "two": Expected `int`'),
        ("random_state = 1", "unknown option 'random_state'"),
        ("min_clips = 3", "min_clips needs protocol ="),
        ('balance = "none"', "balance has no effect with the protocol repeated"),
    ):
        with pytest.raises(ExperimentError, match=re.escape(fact)) as caught:
            om.load_experiment(write(option))
        assert "e.toml" in str(caught.value)


def test_experiment_keys_may_be_in_the_options_table(experiment):
    changes = {"split": None, "protocol": {"name": "leave-film-out", "min_clips": 3}}
    table = structs.replace(experiment, **changes)
    assert (table.protocol, table.min_clips) == ("leave-film-out", 3)
    with pytest.raises(ExperimentError, match="min_clips has different values"):
        structs.replace(experiment, **changes, min_clips=4)
    with pytest.raises(ExperimentError, match=r"\[protocol\] has no name"):
        structs.replace(experiment, protocol={"repeats": 3})


def test_training_folds_exclude_their_tested_clips(own, marked, tmp_path):
    @protocol("half-fold", "Half a fold tests, and the other half trains", "half a fold")
    class HalfFold(LeakFree):
        def _parts(self, y, groups, near=None):
            folds = np.asarray(self.folds)
            tests = (folds == 0) & (np.arange(len(y)) < 100)
            yield "half of fold 0", (folds < 8) & ~tests, folds == 8, tests, ""

    tree = {"name": "pcbm-tree", "negatives": "b"}
    toml = write_experiment(
        tmp_path / "e.toml", marked, protocol="half-fold", estimators=[tree, "majority"]
    )
    run = om.run_experiment(toml, tmp_path / "run")
    tested = {clip for fit in fits_of(run) for clip in fit.ids}
    assert len(tested) == 6  # of ten
    for model in run.saved:
        seen = {*om.load_model(model["folder"])[1]["seen"]}
        assert not seen & tested
        assert seen >= {*marked.clips("S", "HN", folds=[0])} - tested  # the other half teaches
    assert not run.leaked


def test_a_custom_table_is_made_and_listed_in_help(own, world, tmp_path):
    run_obygaze("reproduce", "clips", "--manifest", world.manifest, "-o", tmp_path / "out", code=0)
    assert str(len(world.ids)) in (tmp_path / "out/clips.txt").read_text()
    assert "clips" in run_obygaze("reproduce", "--help").stdout
