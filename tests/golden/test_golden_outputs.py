"""A chain of commands on a made-up world gives the values that it gave before."""

import csv
import json
import re
from pathlib import Path
from typing import Any

from tests.golden.test_golden import EXPECTED, VOLATILE, leaves
from tests.kit.floats import close
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
CHAIN = """
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
CHANGING = VOLATILE | {"started", "seconds", "digest", "fingerprint", "obygaze"}
CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.DOTALL)
NUMBER = re.compile(r"-?\d+(\.\d+)?")
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


def test_a_chain_of_commands_gives_the_same_values(tmp_path, monkeypatch, obygaze):
    make_world2(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    for name, keys in EXPERIMENTS.items():
        shared = f'name = "{name}"\nmanifest = "manifest"\nstore = "toy.zarr"\nlabels = "merged"\n'
        Path(f"{name}.toml").write_text(shared + keys)

    outputs = {}
    for command in CHAIN.strip().splitlines():
        printed = obygaze(*command.split(), code=int("diff" in command)).stdout
        if "--json" in command:
            outputs[command] = json.loads(printed)
    for path in sorted(Path("out").rglob("*")):
        is_text = path.suffix in (".json", ".csv", ".html")
        if is_text and not re.search("zarr|model|/clips", str(path)):
            outputs[path.as_posix()] = read_output(path)
    Path("outputs.json").write_text(json.dumps(outputs))

    now = values_in(outputs)
    before = values_in(json.loads((EXPECTED / "outputs.json").read_text(encoding="utf-8")))
    assert now.keys() == before.keys()
    for path, values in before.items():
        if values and isinstance(values[0], float):
            values = close(values, 1e-4)
        assert now[path] == values, path
