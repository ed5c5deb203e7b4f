"""Interrupted, killed and damaged runs: what resumes, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

import obygaze_models as om
from obygaze_features.errors import ExperimentError, OutputExists, StoreUnreadable
from obygaze_features.manifests import Manifest
from obygaze_models.experiments import run as running
from tests.conftest import run_obygaze
from tests.fuzz.kinds import read_files, seal_run, write_files
from tests.kit.files import contents
from tests.kit.run import write_store

ESTIMATORS = ({"name": "mlp", "max_iter": 3, "threshold": "validation"},
              {"name": "pcbm-logistic", "bank__C": 0.1}, "majority",
              {"name": "sklearn.ensemble:RandomForestClassifier", "as": "forest",
               "n_estimators": 2})  # fmt: skip


@pytest.fixture(scope="module")
def several(experiment, marked):
    """An experiment of 12 fits of a network, a bottleneck, a guess and a forest."""
    return structs.replace(
        experiment, manifest=marked.manifest, store=marked.store, estimators=ESTIMATORS,
        split="three", protocol="split", test_negatives=(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def small(several):
    return structs.replace(several, estimators=("majority",))


@pytest.fixture(scope="module")
def complete(several, tmp_path_factory):
    return bytes_of(om.run_experiment(several, tmp_path_factory.mktemp("whole") / "run").folder)


def bytes_of(folder):
    """Return the content of each file by path, without the time."""
    files = {path.relative_to(folder).as_posix(): data for path, data in contents(folder).items()}
    header = json.loads(files["run.json"]) | {"started": "", "seconds": 0}
    return files | {"run.json": json.dumps(header).encode()}


class Stop(BaseException):
    """An exception that nobody catches, like KeyboardInterrupt."""


@pytest.fixture
def run(monkeypatch):
    real = running.fit_planned

    def run(experiment, output, stop=None, **options):
        calls, lines = [], []

        def fit(*arguments, **more):
            if len(calls) == stop:
                raise Stop
            calls.append(1)
            return real(*arguments, **more)

        monkeypatch.setattr(running, "fit_planned", fit)
        try:
            om.run_experiment(experiment, output, log=lines.append, **options)
        except Stop:
            assert not output.exists()
        return len(calls), lines

    return run


def test_an_interrupted_run_resumes_to_the_same_bytes(several, complete, run, tmp_path):
    """Forests cannot be saved, so they are fitted again; so are damaged models."""
    output, partial = tmp_path / "run", tmp_path / "run.partial"
    for stop, finished in ((1, 0), (3, 1), (7, 4)):
        _, lines = run(several, output, stop)
        assert finished < 2 or lines[0] == f"Resuming: {finished} finished fits in {partial}."
    models = sorted(partial.glob("models/*/*/model.*"))
    assert len(models) == 2 * 9
    for path, data in zip(models[::3], (b"", b"{", b"[" * 10**5, b"x", b""), strict=False):
        path.write_bytes(data)
    left = partial / "models/mlp/.HN-vs-S-2.partial"
    left.mkdir()
    (left / "model.json").write_text("{")
    shutil.rmtree(partial / "models/mlp/HN-vs-S-2")
    calls, _ = run(several, output)
    assert calls == 3 + 5 + 1
    assert bytes_of(output) == complete
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_concepts_of_similar_names_keep_their_own_fits(experiment, tmp_path, monkeypatch):
    from tests.kit.run import make_world

    names = ("Look (male)", "Look male", "LOOK, male")
    monkeypatch.setattr("tests.kit.run.CONCEPTS", names)
    world = make_world(tmp_path / "world", marked=True)
    asked = structs.replace(
        experiment, manifest=world.manifest, store=world.store, concepts=names, negatives="b",
        protocol="official",
        positives=(), train_negatives=(), test_negatives=(), estimators=("logistic",),
    )  # fmt: skip
    saved = om.run_experiment(asked, tmp_path / "run").saved
    assert len({str(model["folder"]).casefold() for model in saved}) == len(saved) == 3
    assert all(om.load_model(model["folder"])[1].task.key == model["task"] for model in saved)


def test_two_processes_cannot_write_one_run(small, tmp_path, monkeypatch):
    real = running.fit_planned

    def fit(*arguments, **options):
        monkeypatch.setattr(running, "fit_planned", real)
        with pytest.raises(OutputExists, match="another process is writing"):
            om.run_experiment(small, tmp_path / "run")
        return real(*arguments, **options)

    monkeypatch.setattr(running, "fit_planned", fit)
    om.run_experiment(small, tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.night
@pytest.mark.parametrize("change", [
    {"estimators": ({"name": "majority", "as": "m"},)}, {"seed": 3}, {},
])  # fmt: skip
def test_a_changed_experiment_starts_over(small, marked, run, tmp_path, change):
    store = shutil.copytree(marked.store, tmp_path / "s.zarr")
    experiment = structs.replace(small, store=store)
    run(experiment, tmp_path / "run", 2)
    if not change:  # other features in the store
        shutil.rmtree(store)
        rows = {clip: row + np.float32(0.5) for clip, row in marked.rows.items()}
        write_store(store, Manifest.load(marked.manifest), rows)
    calls, lines = run(structs.replace(experiment, **change), tmp_path / "run")
    assert "other settings, data or versions" in lines[0]
    assert calls == 3


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_failing_disk_loses_no_fit(small, run, tmp_path, monkeypatch, name):
    run(small, tmp_path / "run", 2)
    before, real = contents(tmp_path / "run.partial"), Path.open

    def fails(path, *arguments, **options):
        if path.name == name:
            raise PermissionError(13, "denied", str(path))
        return real(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fails)
        with pytest.raises(StoreUnreadable, match="cannot be read"):
            om.run_experiment(small, tmp_path / "run")
    assert contents(tmp_path / "run.partial") == before
    assert run(small, tmp_path / "run")[0] == 3 - 2


@pytest.mark.parametrize(("name", "partial"), [
    ("thesis.docx", True), ("models/majority/HN-vs-S-0/notes.txt", False), ("a link", False),
])  # fmt: skip
def test_only_files_of_a_run_are_removed(small, run, tmp_path, name, partial):
    run(small, tmp_path / "run", 2 if partial else None)
    path = tmp_path / ("run.partial" if partial else "run") / name
    (tmp_path / "elsewhere").mkdir()
    if name == "a link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text("precious")
    before = contents(tmp_path)
    with pytest.raises(OutputExists, match="was not made by obygaze"):
        om.run_experiment(small, tmp_path / "run", overwrite=True)
    assert contents(tmp_path) == before


def test_an_earlier_run_is_replaced_only_when_asked(small, tmp_path):
    run = om.run_experiment(small, tmp_path / "run")
    with pytest.raises(OutputExists, match="--overwrite"):
        om.run_experiment(small, run.folder)
    renamed = structs.replace(small, estimators=({"name": "majority", "as": "other"},))
    assert om.run_experiment(renamed, run.folder, overwrite=True).models == ["other"]
    assert [path.name for path in (run.folder / "models").iterdir()] == ["other"]
    (tmp_path / "films").mkdir()
    with pytest.raises(OutputExists, match="is not what this command makes"):
        om.run_experiment(small, tmp_path / "films", overwrite=True)


def edit(change):
    """Return a function that changes run.json."""

    def edited(text):
        change(header := json.loads(text))
        return json.dumps(header)

    return edited


DAMAGE = [
    ("run.json", None, "is not a run"),
    *((name, None, "obygaze models run") for name in ("predictions.csv", "fits.csv")),
    ("clips.csv", lambda t: t.replace("tt0,tt0", "tt0,tt9", 1), "was changed after"),
    ("predictions.csv", lambda t: t.replace(",0.", ",0.0", 1), "was changed after"),
    ("run.json", edit(lambda r: r.update(format_version=9)), "reads only up to 8"),
    ("run.json", edit(lambda r: r["learned"].append("x")), "a learned task is unknown"),
    ("run.json", edit(lambda r: r["experiment"].pop("name")), "`name`"),
]  # fmt: skip


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
    result = run_obygaze("models", "compare", folder)
    if name in ("clips.csv", "fits.csv"):
        with pytest.raises(ExperimentError, match=fact):
            (run := om.load_run(folder)).clips, run.fits
        return
    assert (result.exit_code, type(result.exception)) == (1, SystemExit), result.output
    assert fact in result.stderr
    assert result.stderr.count("\n") == 1


#: What is changed in the first row of a sealed table.
FORGED = [
    ("fits", ",models/", ",../"), ("fits", "{", "["), ("predictions", ",0.", ",7."),
    ("predictions", "HN vs S", "gone"), ("predictions", "tt", "zz"), ("clips", "False", "maybe"),
    ("reasons", "tree,", "tree"), ("reasons", "tt", "zz"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), FORGED)
def test_a_strangers_table_is_refused(marked, make_run, tmp_path, name, old, new):
    """Its digest matches."""
    tree = {"name": "pcbm-tree", "as": "tree", "bank__C": 0.1}
    run = make_run("tree", manifest=marked.manifest, store=marked.store, split="three",
                   estimators=(tree,))  # fmt: skip
    files = read_files(run.folder)
    table = files[f"{name}.csv"].decode()
    assert old in table
    files[f"{name}.csv"] = table.replace(old, new, 1).encode()
    seal_run(files)
    write_files(tmp_path / "run", files)
    with pytest.raises(ExperimentError, match="is damaged"):
        getattr(om.load_run(tmp_path / "run"), name)


def test_a_run_that_names_missing_plugins_is_read(make_run, tmp_path):
    folder = shutil.copytree(make_run("good").folder, tmp_path / "run")
    path = folder / "run.json"
    changes = {"estimators": ["gone.lab:Model"], "protocol": {"name": "gone", "repeats": 3}}
    path.write_text(edit(lambda header: header["experiment"].update(changes))(path.read_text()))
    run = om.load_run(folder)
    assert run.experiment.estimators == ("gone.lab:Model",)
    with pytest.raises(ExperimentError, match="unknown protocol 'gone'"):
        om.run_experiment(run.experiment, tmp_path / "again")
