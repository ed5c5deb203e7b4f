"""CONTRIBUTING.md's recipe for a model, done to the letter: it runs, is scored, saved and read."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from examples.plugin.film_lab.centroids import Centroids
from obygaze_models.estimators import registry
from tests.kit.run import World, make_world, write_experiment

ROOT = Path(__file__).parents[2]
TEXT = ROOT.joinpath("CONTRIBUTING.md").read_text()
SECTION = TEXT.partition("\n## A model, step by step\n")[2].partition("\n## ")[0]
CONTRACT = ROOT.joinpath("docs/how-to/extend.md").read_text().partition("\n## A model\n")[2]


@parametrize_with_checks([Centroids()])
def test_the_example_follows_scikit_learns_conventions(estimator, check):
    check(estimator)


@pytest.fixture
def write(tmp_path):
    """Writes an experiment's file with a line of estimators."""

    def write(world: World, estimators: str) -> Path:
        path = write_experiment(tmp_path / "e.toml", world, train_negatives=["EN"])
        path.write_text(path.read_text() + estimators)
        return path

    return write


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", SECTION, re.DOTALL)


def test_a_model_is_one_file_and_one_line(world, tmp_path, monkeypatch, obygaze, write):
    """As if the file were copied, and the line put in."""
    _, source, target = blocks("console")[0].removeprefix("$ ").split()
    spec = spec_from_file_location(target[:-3].replace("/", "."), ROOT / source)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    for name, entry in eval(f"{{{blocks('python')[0]}}}", vars(registry)).items():
        monkeypatch.setitem(registry.ESTIMATORS, name, entry)
    toml = write(world, blocks("toml")[0])
    printed = [
        obygaze("models", *words.split())
        for words in (
            f"run {toml} -o {tmp_path / 'run'}",
            f"train {toml} --estimator centroids -o {tmp_path / 'model'}",
            f"predict {tmp_path / 'model'} {world.store} -o {tmp_path / 'out.csv'}",
            "list",
        )
    ]
    assert [result.exit_code for result in printed] == [0] * 4, printed[1].output
    assert re.search(r"centroids +0\.[6-9]", printed[0].stdout)
    assert (tmp_path / "out.csv").read_text().count("\n") == 201
    assert "The nearer mean of the training clips." in printed[-1].stdout


def test_the_model_that_uses_concepts(install, tmp_path, obygaze, write):
    world = make_world(tmp_path / "world", marked=True)
    points = {"near-concepts": "mylab.near:NearConcepts"}
    [code] = re.findall(r"```python\n(# film_lab/near.py.*?)```", CONTRACT, re.DOTALL)
    install({"near.py": code}, points)
    table = re.search(r"`(\{name = \"near-concepts\".*?\})`", CONTRACT)[1]
    toml = write(world, f"estimators = [{table}]")
    result = obygaze("models", "run", toml, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert re.search(r"near-concepts +0\.[6-9]", result.stdout)
    assert "not among the saved models" not in result.output
