"""Interrupted, killed and damaged runs: what resumes, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier

import obygaze_models as om
from obygaze_features.errors import ExperimentError, OutputExists, StoreUnreadable
from tests.conftest import run_obygaze
from tests.fuzz.kinds import read_files, seal_run, write_files
from tests.kit.files import contents, refused


def bytes_of(folder):
    """Return the content of each file by path, without the time."""
    files = read_files(folder)
    header = json.loads(files["run.json"]) | {"started": "", "seconds": 0}
    return files | {"run.json": json.dumps(header).encode()}


class Stop(BaseException):
    """An exception that nobody catches, like KeyboardInterrupt."""


class Bomb(DummyClassifier):
    """A model that stops the process at a fit, the first of which is number 0."""

    stop = -1
    fits = 0

    def fit(self, X, y):
        if Bomb.fits == Bomb.stop:
            raise Stop
        Bomb.fits += 1
        return super().fit(X, y)


MAJORITY = {"majority": DummyClassifier(strategy="prior")}
BOTTLENECK = om.make_estimator("pcbm-logistic", {"bank__C": 0.1})
SEVERAL = {
    "network": om.Learner(om.MLPProbe(max_iter=3), threshold="validation"),
    "bottleneck": om.Learner(BOTTLENECK, negatives="b"),
    "bomb": Bomb(),
    "forest": RandomForestClassifier(2),
}
FITS = 4
"""The fits of each model: one for each film."""


@pytest.fixture(scope="module")
def data(clips):
    levels = np.array(clips.data.levels)
    labels = np.select([levels == "HN", levels == "S"], [0, 1], -1)
    [task] = om.dataset(np.ones((2, 1)), ["HN", "S"]).labels
    return replace(clips.data, labels={task: labels})


@pytest.fixture
def run(data):
    """Cross-validate models, and stop at a fit of the bomb; return how many fits it has made."""

    def run(output, stop=-1, models=None, data=data, **options):
        Bomb.stop = stop
        Bomb.fits = 0
        models = {**(models or MAJORITY), "bomb": Bomb()}
        try:
            om.cross_validate(models, data, output=output, **options)
        except Stop:
            assert not output.exists()
        return Bomb.fits

    return run


def test_an_interrupted_run_resumes_to_the_same_bytes(run, tmp_path):
    """Bombs and forests cannot be saved, so they are fitted again; so are damaged models."""
    assert run(tmp_path / "whole", models=SEVERAL) == FITS
    complete = bytes_of(tmp_path / "whole")
    output = tmp_path / "run"
    partial = tmp_path / "run.partial"
    for stop in (0, 1):
        assert run(output, stop, SEVERAL) == stop
    models = sorted(partial.glob("models/*/*/model.*"))
    assert len(models) == 2 * 2 * FITS
    kept = times_of(models)
    damaged = models[::3]
    for path, content in zip(damaged, ("", "{", "[" * 10**5, "x", "", "y"), strict=True):
        path.write_text(content)
    left = partial / "models/network/.HN-vs-S-2.partial"
    left.mkdir()
    (left / "model.json").write_text("{")
    assert run(output, models=SEVERAL) == FITS
    assert bytes_of(output) == complete
    again = times_of(output / path.relative_to(partial) for path in models)
    fitted = {path.parent.name + path.parent.parent.name for path in damaged}
    for path, before, after in zip(models, kept, again, strict=True):
        assert (before != after) == (path.parent.name + path.parent.parent.name in fitted)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "whole"}


def times_of(paths):
    return [path.stat().st_mtime_ns for path in paths]


def test_tasks_and_models_of_similar_names_keep_their_own_fits(data, tmp_path):
    [(task, y)] = data.labels.items()
    tasks = [structs.replace(task, key=name) for name in ("Look (male)", "LOOK, male")]
    data = replace(data, labels=dict.fromkeys(tasks, y))
    models = dict.fromkeys(["a b", "A-b", "..", "../up", "é" * 150], DummyClassifier())
    saved = om.cross_validate(models, data, cv=2, output=tmp_path / "run").saved
    assert len({str(model["folder"]).casefold() for model in saved}) == 20
    for model in saved:
        assert model["folder"].parents[1] == tmp_path / "run/models"
        assert om.load_model(model["folder"]).about.task.key == model["task"]


class Rival(DummyClassifier):
    """A model during whose fit another process writes the same run."""

    def __init__(self, output=None):
        super().__init__()
        self.output = output

    def fit(self, X, y):
        with pytest.raises(OutputExists, match="another process is writing"):
            om.cross_validate(MAJORITY, om.dataset(X, y), cv=2, output=self.output)
        return super().fit(X, y)


def test_two_processes_cannot_write_one_run(data, tmp_path):
    om.cross_validate(Rival(tmp_path / "run"), data, output=tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("change", ["models", "cv", "seeds", "data", "labels", ""])
def test_a_changed_run_starts_over(data, run, tmp_path, change):
    run(tmp_path / "run", 0)
    before = times_of(sorted(tmp_path.glob("run.partial/models/*/*/*")))
    labels = {task: np.abs(y) for task, y in data.labels.items()}
    changes = {
        "": {},
        "models": {"models": {"majority": DummyClassifier(strategy="most_frequent")}},
        "cv": {"cv": om.LeaveFilmOut(min_clips=9)},
        "seeds": {"seeds": (3,)},
        "data": {"data": replace(data, X=data.X + 1)},
        "labels": {"data": replace(data, labels=labels)},
    }
    run(tmp_path / "run", **changes[change])
    after = times_of(sorted(tmp_path.glob("run/models/*/*/*")))
    assert len(before) == 2 * FITS
    assert (before != after) == bool(change)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_failing_disk_loses_no_fit(run, tmp_path, monkeypatch, name):
    run(tmp_path / "run", 0)
    before = contents(tmp_path / "run.partial")
    real = Path.open

    def fails(path, *arguments, **options):
        if path.name == name:
            raise PermissionError(13, "denied", str(path))
        return real(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fails)
        with pytest.raises(StoreUnreadable, match="cannot be read"):
            run(tmp_path / "run")
    assert contents(tmp_path / "run.partial") == before


@pytest.mark.parametrize(
    ("name", "stop"),
    [("thesis.docx", 0), ("models/majority/HN-vs-S-0/notes.txt", -1), ("a link", -1)],
)
def test_only_files_of_a_run_are_removed(run, tmp_path, name, stop):
    run(tmp_path / "run", stop)
    path = tmp_path / ("run" if stop else "run.partial") / name
    (tmp_path / "elsewhere").mkdir()
    if name == "a link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text("precious")
    before = contents(tmp_path)
    with pytest.raises(OutputExists, match="was not made by obygaze"):
        run(tmp_path / "run", overwrite=True)
    assert contents(tmp_path) == before


def test_an_earlier_run_is_replaced_only_when_asked(data, tmp_path):
    run = om.cross_validate(MAJORITY, data, output=tmp_path / "run")
    other = om.cross_validate({"other": DummyClassifier()}, data)
    with pytest.raises(OutputExists, match="--overwrite"):
        om.cross_validate(MAJORITY, data, output=run.folder)
    other.save(run.folder, overwrite=True)
    assert [path.name for path in (run.folder / "models").iterdir()] == ["other"]
    om.cross_validate(MAJORITY, data, output=run.folder, overwrite=True)
    assert [path.name for path in (run.folder / "models").iterdir()] == ["majority"]


def edit(change):
    """Return a function that changes run.json."""

    def edited(text):
        change(header := json.loads(text))
        return json.dumps(header)

    return edited


DAMAGE = [
    ("run.json", None, "is not a run"),
    ("predictions.csv", lambda t: t.replace(",0.", ",0.0", 1), "was changed after"),
    ("run.json", edit(lambda r: r.update(format_version=10)), "reads only up to 9"),
    ("run.json", edit(lambda r: r.update(format_version=8)), "a run of an earlier version"),
    ("run.json", edit(lambda r: r["learned"].append("x")), "a learned task is unknown"),
]


@pytest.mark.parametrize(("name", "change", "fact"), DAMAGE)
def test_a_damaged_run_is_one_line(make_run, tmp_path, name, change, fact):
    folder = tmp_path / "run"
    shutil.copytree(make_run("good").folder, folder)
    path = folder / name
    text = path.read_text(encoding="utf-8")
    path.unlink()
    if change is not None:
        assert change(text) != text
        path.write_text(change(text), encoding="utf-8")
    refused(run_obygaze("models", "compare", folder), fact)


#: What is changed in the first row of a sealed table.
FORGED = [
    ("fits", ",models/", ",../"),
    ("predictions", ",0.", ",7."),
    ("predictions", "HN vs S", "gone"),
    ("clips", "False", "maybe"),
    ("reasons", "tree,", "tree"),
]


@pytest.mark.parametrize(("name", "old", "new"), FORGED)
def test_a_strangers_table_is_refused(marked, make_run, tmp_path, name, old, new):
    """Its digest matches."""
    tree = {"name": "pcbm-tree", "as": "tree", "bank__C": 0.1}
    places = {"manifest": marked.manifest, "store": marked.store, "split": "three"}
    run = make_run("tree", estimators=(tree,), **places)
    files = read_files(run.folder)
    table = files[f"{name}.csv"].decode()
    assert old in table
    files[f"{name}.csv"] = table.replace(old, new, 1).encode()
    seal_run(files)
    write_files(tmp_path / "run", files)
    with pytest.raises(ExperimentError, match="is damaged"):
        getattr(om.load_run(tmp_path / "run"), name)
