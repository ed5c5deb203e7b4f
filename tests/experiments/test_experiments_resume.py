"""Runs that are killed resume, and write the same bytes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from obygaze_features.common.files import sha256_of
from obygaze_features.errors import OutputExists, StoreUnreadable
from obygaze_models.experiments import evaluate
from obygaze_models.experiments.run import run_experiment
from obygaze_models.model_header import digest_of
from obygaze_models.persistence import save_model
from tests.world import make_world

PIPE = object()
NEEDS_PIPES = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
ESTIMATORS = ("mlp", "pcbm-logistic", "majority")


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("marked"), marked=True)


@pytest.fixture(scope="module")
def several(experiment, marked):
    return replace(experiment, manifest=marked.manifest, store=marked.store, estimators=ESTIMATORS)


@pytest.fixture(scope="module")
def whole(several, tmp_path_factory):
    """The bytes of a run that nobody interrupted."""
    return bytes_of(run_experiment(several, tmp_path_factory.mktemp("whole") / "run").folder)


def bytes_in(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def bytes_of(folder):
    files = bytes_in(folder)
    record = json.loads(files["run.json"]) | {"started": "", "seconds": 0}
    return files | {"run.json": json.dumps(record).encode()}


class Stop(BaseException):
    """Nobody catches it, like KeyboardInterrupt."""


@pytest.fixture
def stop_after(monkeypatch):
    """Interrupts an evaluation after some fits."""
    real = evaluate.fit_estimator

    def arrange(fits):
        calls = []

        def fit(*arguments, **options):
            if len(calls) == fits:
                raise Stop
            calls.append(1)
            return real(*arguments, **options)

        monkeypatch.setattr(evaluate, "fit_estimator", fit)
        return calls

    return arrange


def test_an_interrupted_run_resumes_to_the_same_bytes(several, whole, stop_after, tmp_path):
    """At any moment: within an estimator, between two, before the last."""
    for number, fits in enumerate((1, 9, 26)):
        output, lines = tmp_path / f"run-{number}", []
        stop_after(fits)
        with pytest.raises(Stop):
            run_experiment(several, output, log=lines.append)
        assert not output.exists()
        assert lines == [
            f"{fits} of 27 fits are kept in {output}.partial; the same command resumes."
        ]
        lines.clear()
        calls = stop_after(1000)
        run = run_experiment(several, output, log=lines.append)
        assert len(calls) == 27 - fits
        assert lines[0].startswith(f"Resuming: {fits} finished fit")
        assert bytes_of(run.folder) == whole
        assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"estimators": ("mlp", "majority")}, "estimators changed"),
        ({"seed": 3}, "seed, folds changed"),
        ({"name": "Other"}, "name changed"),
    ],
)
def test_a_changed_experiment_starts_anew(several, stop_after, tmp_path, change, named):
    stop_after(3)
    with pytest.raises(Stop):
        run_experiment(several, tmp_path / "run")
    lines = []
    calls = stop_after(2)
    with pytest.raises(Stop):
        run_experiment(replace(several, **change), tmp_path / "run", log=lines.append)
    assert len(calls) == 2
    assert lines[0].endswith(f"run.partial is not resumed: {named}. Starting anew.")
    assert "2 of" in lines[1]


def test_another_stores_features_start_anew(several, experiment, stop_after, tmp_path):
    world = make_world(tmp_path / "world", marked=True)
    changed = replace(several, manifest=world.manifest, store=world.store)
    stop_after(3)
    with pytest.raises(Stop):
        run_experiment(changed, tmp_path / "run")
    from obygaze_features.manifests import Manifest
    from tests.world import write_store

    shutil.rmtree(world.store)
    features = dict(zip(world.ids, world.features + np.float32(0.5), strict=True))
    write_store(world.store, Manifest.load(world.manifest), features)
    lines = []
    with pytest.raises(Stop):
        run_experiment(changed, tmp_path / "run", log=lines.append)
    assert "run.partial is not resumed: features changed" in lines[0]


DAMAGE = {
    "fit.json": [
        b"",
        b"{",
        b"[1]",
        b"[" * 100_000,
        lambda data: data.replace(b"features", b"frames"),
    ],
    "arrays.npz": [b"", b"PK", lambda data: data[: len(data) // 2]],
    "model/model.json": [lambda data: data.replace(b"0", b"1")],
}


def test_a_damaged_fit_is_fitted_again(several, whole, stop_after, tmp_path):
    """Whatever it does not read as, and what can be read and was changed."""
    stop_after(12)
    with pytest.raises(Stop):
        run_experiment(several, tmp_path / "run")
    folders = sorted((tmp_path / "run.partial").glob("*/*"))
    for name, contents in DAMAGE.items():
        for content in contents:
            path = folders.pop() / name
            path.write_bytes(content if isinstance(content, bytes) else content(path.read_bytes()))
    (folders.pop() / "fit.json").unlink()
    # What a writer left that was killed inside of a fit's folder.
    left = tmp_path / "run.partial/mlp/.HN-vs-S-8.0a1b2c3d_7_x1.partial"
    left.mkdir()
    (left / ".fit.json.0a1b2c3d_7_x2.partial").write_text("{")
    calls, lines = stop_after(1000), []
    run = run_experiment(several, tmp_path / "run", log=lines.append)
    assert len(calls) == 27 - 12 + 10
    assert sum("is damaged" in line for line in lines) == 9
    assert bytes_of(run.folder) == whole


def forge_arrays(**changed):
    """Other arrays in a fit's folder."""

    def change(folder, record):
        with np.load(folder / "arrays.npz") as arrays:
            content = dict(arrays)
        content |= {name: make(content[name]) for name, make in changed.items()}
        np.savez_compressed(folder / "arrays.npz", **content)
        record["files"]["arrays.npz"] = sha256_of(folder / "arrays.npz")

    return change


def forge_model(folder, record):
    """A sound model of other features."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    shutil.rmtree(folder / "model")
    save_model(LogisticRegression().fit(X, np.arange(20) % 2), folder / "model")
    for name in ("model.json", "model.safetensors"):
        record["files"].pop(f"model/{name}", None)


def name_another_file(name):
    """A file elsewhere whose digest is right."""
    empty = hashlib.sha256(b"").hexdigest()
    return lambda folder, record: record["files"].update({name: empty})


FORGERIES = {
    "a file elsewhere": name_another_file(os.devnull),
    "a file above": name_another_file("../../../empty"),
    "facts": lambda folder, record: record.update(facts=[1]),
    "skipped concepts": lambda folder, record: record.update(facts={"skipped": 1}),
    "a lone surrogate": lambda folder, record: record.update(facts={"a": "\ud800"}),
    "history": lambda folder, record: record.update(history="x"),
    "warnings": lambda folder, record: record.update(warnings=[{"code": 1}]),
    "what it reads": lambda folder, record: record.update(reads="groups"),
    "another model": forge_model,
    "a table without numbers": forge_arrays(table=lambda table: table * np.nan),
    "a table of a row": forge_arrays(table=lambda table: table[:1]),
    "a table of texts": forge_arrays(table=lambda table: table.astype(str)),
    "a table of many rows": forge_arrays(table=lambda table: np.zeros((10**6, 2))),
    "clips that are not there": forge_arrays(seen=lambda seen: np.array([10**9])),
    "clips before the first": forge_arrays(seen=lambda seen: np.array([-1])),
    "half a clip": forge_arrays(seen=lambda seen: np.array([0.5])),
    "a table of clips": forge_arrays(seen=lambda seen: np.array([[0]])),
}


@pytest.mark.gate
def test_a_forged_fit_is_fitted_again(several, whole, stop_after, tmp_path):
    """Its digests are right, and what it says cannot be of this run."""
    stop_after(len(FORGERIES) + 1)
    with pytest.raises(Stop):
        run_experiment(several, tmp_path / "run")
    (tmp_path / "empty").touch()
    folders = sorted((tmp_path / "run.partial").glob("*/*"))
    for folder, forge in zip(folders, FORGERIES.values(), strict=False):
        record = json.loads((folder / "fit.json").read_text())
        forge(folder, record)
        record.pop("sha256")
        (folder / "fit.json").write_text(json.dumps(record | {"sha256": digest_of(record)}))
    calls, lines = stop_after(1000), []
    run = run_experiment(several, tmp_path / "run", log=lines.append)
    damaged = {line.partition(" is damaged")[0] for line in lines if "is damaged" in line}
    again = {
        name for name, folder in zip(FORGERIES, folders, strict=False) if str(folder) in damaged
    }
    assert again == {*FORGERIES}
    assert len(calls) == 27 - 1
    assert bytes_of(run.folder) == whole


@pytest.fixture
def small(several):
    return replace(several, estimators=("majority",))


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("name", ["partial.json", "fit.json", "arrays.npz"])
def test_a_disk_that_fails_now_loses_no_fit(small, stop_after, tmp_path, monkeypatch, name, code):
    stop_after(5)
    with pytest.raises(Stop):
        run_experiment(small, tmp_path / "run")
    before = bytes_in(tmp_path / "run.partial")
    real = Path.open

    def fails(path, *arguments, **options):
        if path.name == name and "run.partial" in path.parts:
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", fails)
    with pytest.raises(StoreUnreadable, match=f"{name} cannot be read now"):
        run_experiment(small, tmp_path / "run")
    monkeypatch.setattr(Path, "open", real)
    assert bytes_in(tmp_path / "run.partial") == before
    calls = stop_after(1000)
    run_experiment(small, tmp_path / "run")
    assert len(calls) == 9 - 5


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("partial.json", "[1]"),
        ("partial.json", "[" * 100_000),
        ("partial.json", ""),
        ("partial.json", "{}"),
        ("thesis.docx", "precious"),
        ("majority/HN-vs-S-0/notes.txt", "precious"),
        ("majority/thesis.docx", None),
        pytest.param("partial.json", PIPE, marks=NEEDS_PIPES),
        pytest.param("majority/HN-vs-S-0/fit.json", PIPE, marks=NEEDS_PIPES),
    ],
)
def test_only_what_a_run_wrote_is_removed(small, stop_after, tmp_path, name, content, overwrite):
    """A link (None) leads elsewhere."""
    stop_after(2)
    with pytest.raises(Stop):
        run_experiment(small, tmp_path / "run")
    path = tmp_path / "run.partial" / name
    (tmp_path / "elsewhere").mkdir()
    if content is None:
        path.symlink_to(tmp_path / "elsewhere")
    elif content is PIPE:
        path.unlink()
        os.mkfifo(path)
    else:
        path.write_text(content)
    before = bytes_in(tmp_path)
    with pytest.raises(OutputExists, match=r"run\.partial.*; move .*choose another") as problem:
        run_experiment(small, tmp_path / "run", overwrite=overwrite)
    assert name in str(problem.value)
    assert bytes_in(tmp_path) == before


def test_what_is_kept_is_flushed_before_it_has_its_name(small, stop_after, tmp_path, monkeypatch):
    flushed = set()
    real = os.fsync

    def observed(descriptor):
        flushed.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", observed)
    stop_after(2)
    with pytest.raises(Stop):
        run_experiment(small, tmp_path / "run")
    kept = [path for path in (tmp_path / "run.partial").rglob("*") if path.is_file()]
    assert len(kept) >= 1 + 2 * 3
    assert {path.stat().st_ino for path in kept} <= flushed


@pytest.mark.gate
def test_a_killed_run_resumes_to_the_same_bytes(several, whole, tmp_path):
    """SIGKILL at several moments, each later than the last, until it ends by itself."""
    output, toml = tmp_path / "run", tmp_path / "several.toml"
    # JSON's texts and lists are TOML's, too.
    given = {key: value for key, value in asdict(several).items() if value not in (None, (), "")}
    lines = [f"{key} = {json.dumps(value, default=str)}\n" for key, value in given.items()]
    toml.write_text("".join(lines), encoding="utf-8")
    arguments = [sys.executable, "-m", "cli", "models", "run", str(toml), "-o", str(output)]
    kills = 0
    for wanted in (1, 10, 22):
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                done = len(list(tmp_path.glob("run.partial/*/*/fit.json")))
                if done >= wanted:
                    os.kill(process.pid, signal.SIGKILL)
                    kills += 1
                    break
                time.sleep(0.005)
            process.wait()
            assert process.stderr is not None
            text = process.stderr.read()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, text
        assert not output.exists()
    assert kills >= 2
    run = run_experiment(several, output)
    assert bytes_of(run.folder) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "several.toml"]


def test_the_time_left_is_by_the_fits_of_this_call(experiment, stop_after, tmp_path, monkeypatch):
    """Ten of 18 fits are kept; each further one takes a second."""
    from obygaze_models.experiments import run as module

    two = replace(experiment, estimators=("majority", "logistic"))
    stop_after(10)
    with pytest.raises(Stop):
        run_experiment(two, tmp_path / "run")
    calls, lines = stop_after(-1), []
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(len(calls))))
    run_experiment(two, tmp_path / "run", log=lines.append)
    assert "11 of 18 fits, about 7 s left" in lines
    assert "17 of 18 fits, about 1 s left" in lines
    assert not any(line.startswith("10 of 18 fits") for line in lines)
