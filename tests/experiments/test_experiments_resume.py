"""Interrupted, killed and damaged runs: what resumes, and what is refused."""

import errno
import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from msgspec import structs

import obygaze_models as om
from obygaze_features.errors import ExperimentError, OutputExists, StoreUnreadable
from obygaze_features.manifests import Manifest
from obygaze_models.experiments import fit as fitting
from obygaze_models.experiments.plan import make_plan
from obygaze_models.experiments.run_folder import RUN_FILES
from tests.conftest import run_obygaze
from tests.fuzz.kinds import read_files, seal_run, write_files
from tests.kit.files import contents
from tests.kit.predicted import fits_of
from tests.kit.run import make_world, write_store

ESTIMATORS = ({"name": "mlp", "max_iter": 3, "threshold": "validation"},
              {"name": "pcbm-logistic", "bank__C": 0.1}, "majority")  # fmt: skip


@pytest.fixture(scope="module")
def several(experiment, marked):
    """An experiment of 27 fits of a network, a bottleneck and a guess."""
    return structs.replace(
        experiment, manifest=marked.manifest, store=marked.store, estimators=ESTIMATORS
    )


@pytest.fixture(scope="module")
def small(several):
    return structs.replace(several, estimators=("majority",))


@pytest.fixture(scope="module")
def complete(several, tmp_path_factory):
    return bytes_of(om.run_experiment(several, tmp_path_factory.mktemp("whole") / "run").folder)


def bytes_of(folder):
    files = {path.relative_to(folder).as_posix(): data for path, data in contents(folder).items()}
    record = json.loads(files["run.json"]) | {"started": "", "seconds": 0}
    return files | {"run.json": json.dumps(record).encode()}


class Stop(BaseException):
    """An exception that nobody catches, like KeyboardInterrupt."""


@pytest.fixture
def run(monkeypatch):
    real = fitting.fit_estimator

    def run(experiment, output, stop=None, **options):
        calls, lines = [], []

        def fit(*arguments, **more):
            if len(calls) == stop:
                raise Stop
            calls.append(1)
            return real(*arguments, **more)

        monkeypatch.setattr(fitting, "fit_estimator", fit)
        try:
            om.run_experiment(experiment, output, log=lines.append, **options)
        except Stop:
            assert len(calls) == stop
            assert not output.exists()
        return len(calls), lines

    return run


def test_an_interrupted_run_resumes_to_the_same_bytes(several, complete, run, tmp_path):
    """Stop within an estimator, between two, and before the last.

    Then unreadable and changed fits are fitted again.
    """
    output, partial = tmp_path / "run", tmp_path / "run.partial"
    for stop, remaining in ((1, 0), (8, 1), (17, 9)):
        _, lines = run(several, output, stop)
        assert lines[-1] == f"{remaining + stop} of 27 fits are kept in {partial}. " + (
            "Run the same command to resume."
        )
        assert not remaining or lines[0].startswith(f"Resuming: {remaining} finished fit")
    fits = sorted(partial.glob("fits/*/*"))
    assert len(fits) == 26
    folder = partial / "models"
    swapped, second = (folder / p.parent.name / p.stem for p in (fits.pop(), fits[-1]))
    shutil.rmtree(swapped)
    shutil.copytree(second, swapped)  # a sound model of another fit
    for suffix, damages in {
        "": [b"", b"{", b"[" * 100_000, (b'"not_saved":"', b'"not_saved":"x'),
             (b"features", b"frames"), 0.5],
        "model.json": [(b"0", b"1")],
        "model.safetensors": [b"", 0.5],
    }.items():  # fmt: skip
        for damage in damages:
            path = fits.pop()
            if suffix:
                path = partial / "models" / path.parent.name / path.stem / suffix
            data = path.read_bytes()
            if isinstance(damage, tuple):
                damage = data.replace(*damage)
            path.write_bytes(damage if isinstance(damage, bytes) else data[: len(data) // 2])
    fits.pop().unlink()
    # Files of writers that were killed before a model, a fit or the run got its name.
    left = partial / "models/mlp/.HN-vs-S-8.0a1b2c3d_7_x1.partial"
    left.mkdir()
    (left / "model.json").write_text("{")
    (partial / "fits/mlp/.HN-vs-S-8.json.0a1b2c3d_7_x2.partial").write_text("{")
    (partial / ".clips.csv.0a1b2c3d_7_x3.partial").write_text("{")
    (partial / "run.json").write_text("{")
    calls, lines = run(several, output)
    assert calls == 1 + 11
    assert sum("is damaged" in line for line in lines) == 10
    assert bytes_of(output) == complete
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_films_left_out_once_and_in_pairs_resume_together(several, run, tmp_path):
    """Guesses are fitted once per film, a tree for two others of the five films each."""
    tree = {"name": "random-directions", "bank__n_directions": 2}
    asked = structs.replace(several, protocol="leave-film-out", split=None, validation_films=2,
                    estimators=(tree, "majority"))  # fmt: skip
    uninterrupted = bytes_of(om.run_experiment(asked, tmp_path / "whole/run").folder)
    for stop, count in ((4, 4), (8, 12)):
        _, lines = run(asked, tmp_path / "run", stop)
        assert lines[-1].startswith(f"{count} of 15 fits are kept")
    calls, _ = run(asked, tmp_path / "run")
    assert calls == 3
    assert bytes_of(tmp_path / "run") == uninterrupted


def test_the_time_left_counts_only_remaining_fits(small, run, tmp_path, monkeypatch):
    run(small, tmp_path / "run", 5)
    advance = Mock()
    meter = Mock(return_value=nullcontext(advance))
    monkeypatch.setattr("obygaze_models.experiments.run.meter", meter)
    run(small, tmp_path / "run")
    assert (meter.call_args.args[0], sum(call.args[0] for call in advance.mock_calls)) == (4, 4)


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_runs_resume_at_the_last_rename(small, run, tmp_path, monkeypatch, renamed, overwrite):
    output, rename = tmp_path / "run", os.rename
    if overwrite:
        run(small, output)

    def stop(source, target):
        if Path(source).name == "run.partial":
            if renamed:
                rename(source, target)
            raise Stop
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", stop)
        with pytest.raises(Stop):
            om.run_experiment(small, output, overwrite=overwrite)
    if not (renamed or overwrite):
        assert run(small, output)[0] == 0
    assert len(fits_of(om.load_run(output))) == 9 * 2
    run(small, output, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert {path.name for path in output.iterdir()} == {*RUN_FILES, "models"} - {"annotators.csv"}


@pytest.mark.parametrize("name", ["fits", "partial.json", ".run.partial.lock"])
def test_a_run_that_was_killed_at_its_end_is_complete(small, run, tmp_path, monkeypatch, name):
    output = tmp_path / "run"

    def stop(path, *_, **__):
        if Path(path).name == name:
            raise Stop

    with monkeypatch.context() as patch:
        for module, call in ((shutil, "rmtree"), (Path, "unlink")):
            real = getattr(module, call)
            patch.setattr(
                module, call, lambda path, *a, real=real, **k: stop(path) or real(path, *a, **k)
            )
        with pytest.raises(Stop):
            om.run_experiment(small, output)
    table = (output / "predictions.csv").read_bytes()
    if name == ".run.partial.lock":
        with pytest.raises(OutputExists):
            om.run_experiment(small, output)
    else:
        assert run(small, output) == (0, [f"{output} was already complete."])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert {path.name for path in output.iterdir()} == {*RUN_FILES, "models"} - {"annotators.csv"}
    assert (output / "predictions.csv").read_bytes() == table
    with pytest.raises(OutputExists):
        om.run_experiment(small, output)


def test_fits_of_another_run_stay(small, run, tmp_path):
    run(small, tmp_path / "run")
    header = {"format": "obygaze-partial-run", "format_version": 2, "experiment": "another"}
    (tmp_path / "run/partial.json").write_text(json.dumps(header))
    with pytest.raises(OutputExists, match="already exists"):
        om.run_experiment(small, tmp_path / "run")
    assert (tmp_path / "run/partial.json").exists()


def test_concepts_of_similar_names_keep_their_own_fits(experiment, run, tmp_path, monkeypatch):
    names = ("Look (male)", "Look male", "LOOK, male")
    monkeypatch.setattr("tests.kit.run.CONCEPTS", names)
    world, output = make_world(tmp_path / "world", marked=True), tmp_path / "run"
    asked = structs.replace(
        experiment, manifest=world.manifest, store=world.store, concepts=names, negatives="b",
        positives=(), train_negatives=(), test_negatives=(), estimators=("logistic",),
    )  # fmt: skip
    fits, _ = run(asked, output, 25)
    first, second, *_ = sorted((tmp_path / "run.partial/fits/logistic").iterdir())
    shutil.copy(first, second)
    _, lines = run(asked, output)
    assert (fits, sum(f"{second} is damaged" in line for line in lines)) == (25, 1)
    models = om.load_run(output).models()
    assert len({str(model["folder"]).casefold() for model in models}) == len(models) == 27
    assert all(om.load_model(model["folder"])[1]["task"] == model["task"] for model in models)


def test_two_processes_cannot_write_one_run(small, tmp_path, monkeypatch):
    real = fitting.fit_estimator

    def fit(*arguments, **options):
        monkeypatch.setattr(fitting, "fit_estimator", real)
        with pytest.raises(OutputExists, match=r"another process .*run.*Wait"):
            om.run_experiment(small, tmp_path / "run")
        return real(*arguments, **options)

    monkeypatch.setattr(fitting, "fit_estimator", fit)
    om.run_experiment(small, tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(("change", "named"), [
    ({"estimators": ({"name": "majority", "as": "m"},)}, "estimators changed"),
    ({"seed": 3}, "seed, folds changed"), ({}, "features changed"),
])  # fmt: skip
def test_a_changed_experiment_starts_over(small, marked, run, tmp_path, change, named):
    store = shutil.copytree(marked.store, tmp_path / "s.zarr")
    experiment = structs.replace(small, store=store)
    run(experiment, tmp_path / "run", 3)
    if not change:  # other features in the store
        shutil.rmtree(store)
        rows = {clip: row + np.float32(0.5) for clip, row in marked.rows.items()}
        write_store(store, Manifest.load(marked.manifest), rows)
    _, lines = run(structs.replace(experiment, **change), tmp_path / "run", 2)
    assert lines[0].endswith(f"run.partial is not resumed: {named}. Starting again.")
    assert lines[-1].startswith("2 of 9")


@pytest.mark.parametrize(("name", "code"), [
    ("partial.json", errno.EIO), ("HN-vs-S-2.json", errno.EACCES), ("model.safetensors", errno.EIO),
])  # fmt: skip
def test_a_failing_disk_loses_no_fit(small, run, tmp_path, monkeypatch, name, code):
    run(small, tmp_path / "run", 5)
    before, real = contents(tmp_path / "run.partial"), Path.open

    def fails(path, *arguments, **options):
        if path.name == name and "run.partial" in path.parts:
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fails)
        with pytest.raises(StoreUnreadable, match=f"{name} cannot be read at the moment"):
            om.run_experiment(small, tmp_path / "run")
    assert contents(tmp_path / "run.partial") == before
    assert run(small, tmp_path / "run")[0] == 9 - 5


@pytest.mark.parametrize(("name", "content"), [
    ("partial.json", "[1]"), ("thesis.docx", "precious"),
    ("models/majority/HN-vs-S-0/notes.txt", "precious"), ("fits/majority/thesis.docx", None),
])  # fmt: skip
def test_only_files_of_the_run_are_removed(small, run, tmp_path, name, content):
    """A link (None) points elsewhere."""
    run(small, tmp_path / "run", 2)
    path = tmp_path / "run.partial" / name
    (tmp_path / "elsewhere").mkdir()
    if content is None:
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text(content)
    before = contents(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(OutputExists, match=r"run\.partial.*(?i:move) .*another") as caught:
            om.run_experiment(small, tmp_path / "run", overwrite=overwrite)
        assert name in str(caught.value)
        assert contents(tmp_path) == before


def test_a_fit_is_flushed_before_it_is_renamed(small, run, tmp_path, monkeypatch):
    flushed, real = set(), os.fsync

    def observed(descriptor):
        flushed.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", observed)
    run(small, tmp_path / "run", 2)
    remaining = contents(tmp_path / "run.partial")
    assert len(remaining) >= 1 + 2 * 3
    assert {path.stat().st_ino for path in remaining} <= flushed


def edit(change):
    """Return a function that changes run.json."""

    def edited(text):
        change(record := json.loads(text))
        return json.dumps(record)

    return edited


DAMAGE = [
    *((name, None, [name, "obygaze models run"])
      for name in ("run.json", "predictions.csv", "fits.csv", "reasons.csv")),
    ("clips.csv", lambda t: t.replace("tt0,tt0", "tt0,tt9", 1), ["csv was changed after"]),
    ("predictions.csv", lambda t: t.replace(",0.", ",0.0", 1), ["csv was changed after"]),
    ("run.json", lambda t: t.replace('"format_version": 7', '"format_version": 9'),
     ["format version 9, but this version of obygaze only reads up to 7"]),
    ("run.json", lambda t: t.replace('"format_version": 7', '"format_version": 6'),
     ["format version 6", "Run the experiment again: obygaze models run"]),
    ("run.json", edit(lambda r: r["scores"][0]["fits"].append(99)), ["are not from the same fits"]),
    ("run.json", edit(lambda r: next(iter(r["scores"][0]["groups"].values())).pop("auroc")),
     ["no score 'auroc'", "`$.scores[0]`"]),
    ("run.json", lambda t: t.replace('"goal": "', '"goal": "\\ud800', 1), ["not valid JSON"]),
    ("run.json", edit(lambda r: r["experiment"].pop("name")), ["`name`", "`$.experiment`"]),
    ("run.json", edit(lambda r: r["experiment"].update(seed="1")), ["`$.experiment.seed`"]),
    ("run.json", edit(lambda r: r["experiment"].update(estimators=[{}])), ["tables with a name"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "facts"), DAMAGE)
def test_a_damaged_run_is_one_line(make_run, tmp_path, name, change, facts):
    folder = tmp_path / "run"
    shutil.copytree(make_run("good").folder, folder)
    path = folder / name
    text = path.read_text(encoding="utf-8")
    path.unlink()
    if change is not None:
        assert change(text) != text
        path.write_text(change(text), encoding="utf-8")
    result = run_obygaze("report", folder, "-o", tmp_path / "page.html")
    assert (result.exit_code, type(result.exception)) == (1, SystemExit), result.output
    assert all(fact in result.stderr for fact in facts), result.stderr
    assert result.stderr.count("\n") == 1
    with pytest.raises(ExperimentError):
        (run := om.load_run(folder)).clips(), run.models()


def test_a_record_naming_missing_plugins_is_read(make_run, tmp_path):
    """Test a missing plug-in, a key of a later release, and a key that fails today."""
    folder = shutil.copytree(make_run("good").folder, tmp_path / "run")
    path, protocol = folder / "run.json", {"name": "gone", "repeats": 3}
    changes = {"estimators": ["gone.lab:Model"], "protocol": protocol, "later": 1, "gap": 3}
    path.write_text(edit(lambda record: record["experiment"].update(changes))(path.read_text()))
    experiment = om.load_run(folder).record.experiment
    assert (experiment.estimators, experiment.protocol) == (("gone.lab:Model",), protocol)
    with pytest.raises(ExperimentError, match="unknown protocol 'gone'"):
        make_plan(experiment)


CHANGES = {
    "a mean": (lambda r: r["scores"][0]["mean"].update(f1=7.5), "f1: 7.5 in run.json"),
    "an interval": (lambda r: r["scores"][0]["interval"].update(f1=[0.1, 0.2]), "interval: f1: "),
    "a film": (lambda r: r["scores"][0]["groups"].popitem(), "only in the new scores"),
    "a fit": (lambda r: r["scores"][0]["by_fit"][0].update(auroc=None), "by_fit: 0: auroc: None"),
    "a deviation": (lambda r: r["scores"][0]["over_fits"]["std"].update(f1=9.0), "std: f1: 9 in"),
    "a guess": (lambda r: next(iter(r["tests"].values())).update(share=0.9), "share: 0.9 in"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_check_names_scores_that_do_not_follow_from_predictions(make_run, tmp_path, name):
    change, fact = CHANGES[name]
    folder = tmp_path / "run"
    shutil.copytree(make_run("good").folder, folder)
    sound = json.loads(run_obygaze("models", "check", folder, "--json", code=0).stdout)
    assert (sound["differences"], sound["scores"]) == (0, 2)
    record = json.loads((folder / "run.json").read_text())
    change(record)
    (folder / "run.json").write_text(json.dumps(record))
    result = run_obygaze("models", "check", folder, "--json", code=1)
    assert fact in json.loads(result.stdout)["list"][0]["difference"]


#: What a cell of the first row of a tree's reasons is changed to; without a column the row is gone.
BAD_REASONS = [
    ("kind", "sums"), ("value", "inf"), ("value", ""), ("fit", "one"), ("step", "0"),
    ("id", "gone"), ("model", "gone"), ("threshold", "1e999"), ("above", "maybe"),
    ("concept", "Voice"), (None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("column", "cell"), BAD_REASONS)
def test_inconsistent_reasons_are_refused(marked, make_run, tmp_path, column, cell):
    """Their digest matches."""
    run = make_run("tree", manifest=marked.manifest, store=marked.store, split="three",
                   estimators=({"name": "pcbm-tree", "bank__C": 0.1},))  # fmt: skip
    files = read_files(run.folder)
    header, first, *others = files["reasons.csv"].decode().splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=True))
    changed = ",".join((cells | {column: cell}).values()) if column else None
    files["reasons.csv"] = "\n".join(filter(None, [header, changed, *others, ""])).encode()
    seal_run(files)
    write_files(tmp_path / "run", files)
    with pytest.raises(ExperimentError, match=r"Run the experiment again: obygaze models run"):
        om.load_run(tmp_path / "run").reasons()


def test_a_run_reads_no_model_outside_its_folder(make_run, tmp_path):
    files = read_files(make_run("good").folder)
    files["fits.csv"] = files["fits.csv"].replace(b",models/", b",../", 1)
    seal_run(files)
    write_files(tmp_path / "run", files)
    with pytest.raises(ExperimentError, match="is outside the run"):
        om.load_run(tmp_path / "run").models()
