"""CONTRIBUTING.md's recipe for a model, done to the letter: it runs, is scored, saved and read."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import Result
from sklearn.utils.estimator_checks import check_estimator

from obygaze_models import persistence
from obygaze_models.estimators import registry
from tests.world import World

TEXT = Path(__file__).parents[2].joinpath("CONTRIBUTING.md").read_text()
EXPERIMENT = """
name = "a recipe"
manifest = {manifest!r}
store = {store!r}
split = "ten"
positives = ["S"]
train_negatives = ["EN"]
estimators = [{{name = "centroid", sharpness = 2.0}}]
"""


def test_a_model_is_added_as_the_recipe_says(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    """A file and two lines; here they are added to what runs, not to the files."""
    section = TEXT.partition("\n## A model, step by step\n")[2].partition("\n## ")[0]
    file, learner, kind = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    module = ModuleType("obygaze_models.estimators.centroids")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(file, module.__dict__)
    for table, line in ((registry.ESTIMATORS, learner), (persistence._KINDS, kind)):
        for name, place in ast.literal_eval(f"{{{line}}}").items():
            monkeypatch.setitem(table, name, place)
    check_estimator(module.CentroidClassifier())

    def run(*words: object) -> str:
        result = obygaze("models", *words)
        assert result.exit_code == 0, result.output
        return result.stdout

    toml = tmp_path / "e.toml"
    toml.write_text(EXPERIMENT.format(manifest=str(world.manifest), store=str(world.store)))
    assert re.search(r"centroid +0\.[6-9]", run("run", toml, "-o", tmp_path / "run"))
    run("train", toml, "-o", tmp_path / "model")
    run("predict", tmp_path / "model", world.store, "-o", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().count("\n") == 201
    assert "The nearer mean of the training clips." in run("list")
