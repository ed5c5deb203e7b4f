"""CONTRIBUTING.md's recipe for a model, done to the letter: it runs, is scored, saved and read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import obygaze_models as om
from examples.centroids import Centroids
from tests.world import make_world

ROOT = Path(__file__).parents[2]
TEXT = ROOT.joinpath("CONTRIBUTING.md").read_text()
SECTION = TEXT.partition("\n## A model, step by step\n")[2].partition("\n## ")[0]
EXPERIMENT = """
name = "a recipe"
manifest = {manifest!r}
store = {store!r}
split = "ten"
positives = ["S"]
train_negatives = ["EN"]
"""


@parametrize_with_checks([Centroids()])
def test_the_example_follows_scikit_learns_conventions(estimator, check):
    check(estimator)


@pytest.fixture
def write(world, tmp_path):
    """Writes an experiment's file with a line of estimators."""

    def write(estimators: str) -> Path:
        head = EXPERIMENT.format(manifest=str(world.manifest), store=str(world.store))
        path = tmp_path / "e.toml"
        path.write_text(head + estimators)
        return path

    return write


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", SECTION, re.DOTALL)


@pytest.mark.slow
def test_a_model_is_one_file_and_one_line(world, tmp_path, write):
    """In a copy of the package: the file is copied, the line is put in, nothing else changes."""
    copy = tmp_path / "copy"
    for package in ("obygaze_models", "obygaze_features", "examples", "manifests"):
        shutil.copytree(ROOT / package, copy / package)
    shutil.copy(ROOT / "cli.py", copy)
    [shell] = blocks("console")
    _, source, target = shell.removeprefix("$ ").split()
    shutil.copy(copy / source, copy / target)
    listing = copy / "obygaze_models" / "estimators" / "registry.py"
    text, line = listing.read_text(), blocks("python")[0]
    listing.write_text(text.replace("ESTIMATORS = {\n", f"ESTIMATORS = {{\n{line}", 1))

    def run(*words: object) -> str:
        code = f"import sys; sys.path.insert(0, {str(copy)!r}); from cli import main; main()"
        command = [sys.executable, "-c", code, "models", *map(str, words)]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout

    toml = write(blocks("toml")[0])
    assert re.search(r"centroids +0\.[6-9]", run("run", toml, "-o", tmp_path / "run"))
    run("train", toml, "--estimator", "centroids", "-o", tmp_path / "model")
    run("predict", tmp_path / "model", world.store, "-o", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().count("\n") == 201
    assert "The nearer mean of the training clips." in run("list")


@pytest.fixture
def site(tmp_path):
    """A folder in which the recipe's package is installed, entry point and all."""
    site = tmp_path / "site"
    package, metadata = site / "your_package", site / "your_package-1.0.dist-info"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "centroids.py", package)
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: your-package\nVersion: 1.0\n")
    [(group, points)] = tomllib.loads(blocks("toml")[1])["project"]["entry-points"].items()
    lines = [f"{name} = {value}\n" for name, value in points.items()]
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")
    return site


@pytest.mark.slow
def test_a_model_of_an_installed_package(site, world, tmp_path, write, obygaze, monkeypatch):
    """A command finds it, scores it and saves it; here it is read back and listed."""
    toml = write('estimators = ["majority", {name = "centroids", sharpness = 2.0}]')
    command = [sys.executable, "-c", "from cli import main; main()", "models", "run", toml, "-o"]
    done = subprocess.run(
        [*map(str, command), str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])},
        cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"centroids +0\.[6-9]", done.stdout)
    assert "not among the saved models" not in done.stderr
    [folder, *_] = sorted((tmp_path / "run" / "models" / "centroids").iterdir())
    monkeypatch.syspath_prepend(site)
    model, _ = om.load_model(folder)
    assert type(model).__module__ == "your_package.centroids"
    assert model.predict_proba(world.features).shape == (200, 2)
    assert re.search("The nearer mean.*your-package 1.0", obygaze("models", "list").stdout)


IMPORTS = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import validate_data
"""


def test_the_model_that_uses_concepts(install, tmp_path, obygaze):
    world = make_world(tmp_path / "world", marked=True)
    points = {"near-concepts": "mylab.near:NearConcepts"}
    install({"near.py": IMPORTS + blocks("python")[1]}, points)
    head = EXPERIMENT.format(manifest=str(world.manifest), store=str(world.store))
    toml = tmp_path / "e.toml"
    table = re.search(r"`(\{name = \"near-concepts\".*?\})`", SECTION)[1]
    toml.write_text(f"{head}estimators = [{table}]")
    result = obygaze("models", "run", toml, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert re.search(r"near-concepts +0\.[6-9]", result.stdout)
    assert "not among the saved models" not in result.output


def test_what_cannot_be_saved_is_scored_and_named(world, tmp_path, write, obygaze):
    toml = write(
        'estimators = ["logistic", "examples.centroids:Centroids", {as = "forest", '
        'name = "sklearn.ensemble:RandomForestClassifier", n_estimators = 5}]'
    )
    result = obygaze("models", "run", toml, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert re.search(r"forest +0\.[6-9]", result.stdout)
    assert "forest is not among the saved models" in result.output
    assert "examples.centroids.Centroids" in result.output
    assert [path.name for path in (tmp_path / "run" / "models").iterdir()] == ["logistic"]
    page = obygaze("report", tmp_path / "run", "-o", tmp_path / "page.html")
    assert page.exit_code == 0, page.output
