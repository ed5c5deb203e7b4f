"""A chain of commands on a made-up world gives the values that it gave before."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.golden.test_golden import EXPECTED, VOLATILE, leaves
from tests.golden.workspace import copy_data
from tests.kit.floats import close
from tests.kit.models import write_checkpoint
from tests.kit.world2 import make_world2

EXPERIMENTS = {
    "pair": """
        positives = ["A+"]
        train_negatives = ["very-high"]
        test_negatives = [["A"]]
        estimators = ["logistic", "film-prior", "frame-mil"]
        protocol = {name = "leave-film-out", min_clips = 4}
    """,
    "seeds": """
        positives = ["A+"]
        train_negatives = ["very-high", "A"]
        split = "three"
        seeds = [1, 2]
        estimators = ["pcbm-tree", "majority"]
    """,
    "levels": """
        levels = ["very-high", "A", "A+"]
        split = "three"
        estimators = ["svm", "knn"]
    """,
    "concepts": """
        concepts = ["A", "smoke, fire"]
        split = "three"
        estimators = ["logistic", "random-directions"]
    """,
}
ON_RUNS = """
manifests show manifest --by-film --json
annotations agreement manifest -o out/agreement
annotations agreement manifest --json
annotations merge manifest --name most --rule majority --json
models run pair.toml -o out/pair --json
models run seeds.toml -o out/seeds
models run levels.toml -o out/levels
models run concepts.toml -o out/concepts
models compare out/pair out/seeds --json
models compare out/levels --metric brier --by film --json
models predict out/pair --elan out/elan -o out/pair.csv
models train pair.toml --estimator frame-mil -o out/mil
models train seeds.toml -o out/tree --json
models moments out/mil toy.zarr -o out/moments.csv --frames out/frames.csv
models explain out/tree s1-03 --store toy.zarr --json
report out/pair out/seeds -o out/pair.html
report out/levels -o out/levels.html
report out/concepts -o out/concepts.html
report manifest -o out/labels.html
stores subset toy.zarr --film A+ -o out/part.zarr
stores diff toy.zarr out/part.zarr --json
stores search toy.zarr --like s1-03 --json
manifests split manifest --name own --folds 3
manifests audit manifest --json
"""
ON_FILES = """
annotations import csv segments.csv --film-table films.csv -o out/timelines
annotations project out/timelines --grid 30 -o out/grid --json
annotations merge out/grid --name two --rule at-least-2 --json
annotations agreement out/grid --json
annotations export out/timelines -o out/elan
annotations import elan out/elan -o out/again
report out/grid --timelines out/again -o out/timelines.html
stores merge open.zarr final.zarr -o out/merged.zarr
stores info out/merged.zarr --json
features demo made --count 3 --scenes 4 --seconds 2
manifests import csv made/annotations.csv -o out/clips
features extract out/clips --videos made/videos --backbone ./tiny-clip --device cpu -o out --json
stores search out/tiny-clip.zarr --like tt0000001-001 --json
reproduce table2 --manifest manifest --store xclip=xclip.zarr --protocol released -o out/table2
reproduce fig3 --manifest manifest --store xclip=xclip.zarr --protocol leak-free -o out/fig3
bias captions emotions.csv -o out/rates.csv
"""
CHANGING = VOLATILE | {"started", "seconds", "digest", "fingerprint", "obygaze", "shares"}
CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.DOTALL)
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
DATA = re.compile(r'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)


def read_output(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix == ".csv":
        return list(csv.reader(text.splitlines()))
    cells = [re.sub(r"<[^>]*>", " ", cell).split() for cell in CELL.findall(text)]
    return {"cells": cells, "data": list(map(json.loads, DATA.findall(text)))}


def values_in(outputs: dict[str, Any]) -> dict[Any, Any]:
    """Return all values by path, and of sentences their numbers."""
    values = {}
    for path, value in leaves(outputs):
        numbers = value if isinstance(value, list) else [value]
        if CHANGING.isdisjoint(path):
            values[path] = [float(n) if NUMBER.fullmatch(str(n)) else n for n in numbers]
    return values


def make_files(folder: Path) -> None:
    copy_data(folder)
    write_checkpoint("tiny-clip", folder / "tiny-clip")


def make_runs(folder: Path) -> None:
    make_world2(folder)
    for name, keys in EXPERIMENTS.items():
        shared = f'name = "{name}"\nmanifest = "manifest"\nstore = "toy.zarr"\nlabels = "merged"\n'
        (folder / f"{name}.toml").write_text(shared + keys)


@pytest.mark.parametrize(
    ("name", "make", "chain"),
    [("runs", make_runs, ON_RUNS), ("files", make_files, ON_FILES)],
)
def test_a_chain_of_commands_gives_the_same_values(
    name, make, chain, tmp_path, monkeypatch, obygaze
):
    make(tmp_path / name)
    monkeypatch.chdir(tmp_path / name)
    Path("out").mkdir()
    outputs = {}
    for command in chain.strip().splitlines():
        printed = obygaze(*command.split()).stdout
        if "--json" in command:
            outputs[command] = json.loads(printed)
    for path in sorted(Path("out").rglob("*")):
        is_text = path.suffix in (".json", ".csv", ".html")
        if is_text and not re.search("zarr|model|/clips", str(path)):
            outputs[path.as_posix()] = read_output(path)
    Path("outputs.json").write_text(json.dumps(outputs))

    now = values_in(outputs)
    file = EXPECTED / f"outputs-{name}.json"
    before = values_in(json.loads(file.read_text(encoding="utf-8")))
    assert now.keys() == before.keys()
    for path, values in before.items():
        if values and isinstance(values[0], float):
            values = close(values, 1e-4)
        assert now[path] == values, path
