"""CONTRIBUTING.md's recipe for a model, done to the letter: it runs, is scored, saved and read."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.run import World, make_world, write_experiment

ROOT = Path(__file__).parents[2]
TEXT = ROOT.joinpath("CONTRIBUTING.md").read_text()
SECTION = TEXT.partition("\n## A model, step by step\n")[2].partition("\n## ")[0]
CONTRACT = ROOT.joinpath("docs/how-to/extend.md").read_text().partition("\n## A model\n")[2]


@pytest.fixture
def write(tmp_path):
    def write(world: World, estimators: str) -> Path:
        path = write_experiment(tmp_path / "e.toml", world, train_negatives=["EN"])
        path.write_text(path.read_text() + estimators)
        return path

    return write


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", SECTION, re.DOTALL)


COMMANDS = """
import sys
sys.path.insert(0, sys.argv[1])
from cli import main
for line in sys.stdin.read().splitlines():
    main(["models", *line.split()], standalone_mode=False)
"""


@pytest.mark.gate
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
    toml, run, model = write(world, blocks("toml")[0]), tmp_path / "run", tmp_path / "model"
    lines = [
        f"run {toml} -o {run}",
        f"train {toml} --estimator centroids -o {model}",
        f"predict {model} {world.store} -o {tmp_path / 'out.csv'}",
        "list",
    ]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, copy],
        cwd=copy, input="\n".join(lines), capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"centroids +0\.[6-9]", done.stdout)
    assert (tmp_path / "out.csv").read_text().count("\n") == 201
    assert "The nearer mean of the training clips." in done.stdout


def test_the_model_that_uses_concepts(install, tmp_path, obygaze, write):
    world = make_world(tmp_path / "world", marked=True)
    points = {"near-concepts": "mylab.near:NearConcepts"}
    [code] = re.findall(r"```python\n(# film_lab/near.py.*?)```", CONTRACT, re.DOTALL)
    install({"near.py": code}, points)
    table = re.search(r"`(\{name = \"near-concepts\".*?\})`", CONTRACT)[1]
    toml = write(world, f"estimators = [{table}]")
    result = obygaze("models", "run", toml, "-o", tmp_path / "run", code=0)
    assert re.search(r"near-concepts +0\.[6-9]", result.stdout)
    assert "not among the saved models" not in result.output
