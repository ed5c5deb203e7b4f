"""Commands print what an earlier release printed; its files open, verify and read the same. How an
output is compared with the golden one: volatile fields masked, new ones ignored."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from obygaze_features.annotations import Timelines
from obygaze_features.annotations.project import project
from obygaze_features.manifests import Manifest
from obygaze_features.store import open_store
from obygaze_features.store.verify import verify
from obygaze_models.scoring.metrics import score
from tests.conftest import run_obygaze
from tests.golden.workspace import COMMANDS, DATA, EXPECTED, copy_data, make_workspace, run_command
from tests.kit.files import csv_rows, refused

#: Fields that differ from call to call, machine to machine or release to release, by command;
#: "" applies to all. They only need to be present.
VOLATILE = {
    "": {"seconds", "started", "versions", "machine", "software", "size", "bytes", "files"},
    "features-extract": {"shares", "notes"},
    "features-extract-plan": {"free"},
}
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TOLERANCE = 1e-6
EIGHT = json.loads((EXPECTED / "eight.json").read_text(encoding="utf-8"))
#: Each store, and how many of its eight rows are written.
STORES = {"open.zarr": 6, "final.zarr": 8, "packed.zip": 8}
FAILED = 4


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("golden") / "workspace", run_obygaze)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, because nothing is written into the golden folder."""
    return copy_data(tmp_path_factory.mktemp("golden") / "data")


def differences(
    golden: Any, now: Any, *, volatile: Set[str] = frozenset(), at: str = "$"
) -> Iterator[str]:
    """Yield each golden value that is missing or differs now; see README.md."""
    if isinstance(golden, dict) and isinstance(now, dict):
        for key, value in golden.items():
            if key not in now:
                yield f"{at}.{key} is missing"
            elif key not in volatile:
                yield from differences(value, now[key], volatile=volatile, at=f"{at}.{key}")
    elif isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        for number, (value, new_value) in enumerate(zip(golden, now, strict=True)):
            yield from differences(value, new_value, volatile=volatile, at=f"{at}[{number}]")
    elif isinstance(golden, dict | list) or not _same(golden, now):
        yield f"{at}: {golden!r} became {now!r}"


def _same(golden: Any, now: Any) -> bool:
    if isinstance(golden, bool) or isinstance(now, bool) or golden is None:
        return golden is now
    if isinstance(golden, float):
        return isinstance(now, float | int) and math.isclose(
            golden, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE
        )
    if isinstance(golden, str) and isinstance(now, str) and len(golden.split()) > 3:
        return NUMBER.findall(golden) == NUMBER.findall(now)
    return bool(golden == now)


@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.startswith("reproduce")])
def test_a_command_prints_the_golden_json(workspace, obygaze, name):
    golden = json.loads((EXPECTED / "json" / f"{name}.json").read_text(encoding="utf-8"))
    printed = run_command(name, workspace, obygaze)
    volatile = VOLATILE[""] | VOLATILE.get(name, set())
    assert not list(differences(golden, printed, volatile=volatile))


def test_a_loop_over_thresholds_gives_the_golden_counts(data):
    """This loop replaces `annotations sweep`, which printed them."""
    golden = json.loads((EXPECTED / "json/annotations-sweep.json").read_text(encoding="utf-8"))
    timelines = Timelines.load(data / "timelines")
    for row in golden["thresholds"]:
        merged = project(timelines, 60, row["threshold"]).merge_labels()
        assert len(merged) == row["clips"]
        assert Counter(merged.levels) == Counter(row["levels"])
        concepts = sum(map(len, merged.concepts)) / len(merged)
        assert concepts == pytest.approx(row["concepts_per_clip"], abs=TOLERANCE)


@pytest.mark.night
@pytest.mark.parametrize("table", ["table2", "fig3"])
def test_a_reproduction_is_the_same_to_the_digit(workspace, obygaze, table):
    golden = json.loads((EXPECTED / f"json/reproduce-{table}.json").read_text(encoding="utf-8"))
    rows = run_command(f"reproduce-{table}", workspace, obygaze)[table]
    expected = []
    for block in golden[table]["blocks"]:
        for line in block["lines"]:
            for column in filter(line["values"].get, golden[table]["columns"]):
                value = line["values"][column]
                low, high = value["interval"] or (None, None)
                of_value = {"mean": value["mean"], "std": value["std"], "low": low, "high": high}
                where = {"block": block["title"], "row": line["name"], "column": column}
                difference = {"ours_minus_published": value["difference"]}
                expected.append(where | of_value | difference)
    assert not list(differences(expected, rows))
    text = (workspace / "out" / table / f"{table}.txt").read_text(encoding="utf-8")
    assert digits(text) == digits((EXPECTED / f"{table}.txt").read_text(encoding="utf-8"))


def digits(text: str) -> list[list[str]]:
    """Return the numbers of each line of a table that has decimals, as printed."""
    lines = (re.findall(r"[+-]?\d+\.\d+", line) for line in text.splitlines())
    return [numbers for numbers in lines if len(numbers) > 1]


@pytest.mark.parametrize("name", STORES)
def test_a_golden_store_has_its_rows(data, name):
    store, written = open_store(data / name), STORES[name]
    assert verify(data / name) == []
    assert list(store.ids) == EIGHT["ids"]
    states = [1] * written + [0] * (8 - written)
    states[FAILED] = 3
    assert store.status.tolist() == states
    assert dict(store.failures) == EIGHT["failures"]
    done = store.status == 1
    assert {spec.name for spec in store.specs} == set(EIGHT["arrays"])
    for array, rows in EIGHT["arrays"].items():
        values = np.asarray(store.read(array, missing="nan"))
        np.testing.assert_array_equal(values[done], np.array(rows, dtype=values.dtype)[done])
        fill = values[~done]
        assert (np.isnan(fill) if values.dtype.kind == "f" else fill == -1).all()


def test_the_golden_manifest_loads_and_saves_the_same(data, tmp_path):
    manifest = Manifest.load(data / "manifest")
    assert len(manifest) == 160
    assert manifest.digest == json.loads((data / "manifest/manifest.json").read_text())["digest"]
    assert sorted(manifest.label_names) == ["paper", "raw"]
    splits = "02_ENHN_S 02_EN_HN_S 02_EN_S 02_HN_S leak-free"
    assert sorted(manifest.split_names) == splits.split()
    assert sorted(manifest.run_names) == ["02_EN_S", "02_HN_S"]
    manifest.save(tmp_path / "again")
    saved = sorted(path for path in (DATA / "manifest").rglob("*.csv"))
    assert len(saved) == 10
    for path in saved:
        again = tmp_path / "again" / path.relative_to(DATA / "manifest")
        assert again.read_bytes() == path.read_bytes(), path.name
    loaded = Manifest.load(tmp_path / "again")
    assert loaded.labels("paper").levels == manifest.labels("paper").levels


def assert_same_rows(golden: Path, now: Path, tolerance: float) -> None:
    for before, after in zip(csv_rows(golden), csv_rows(now), strict=True):
        for name, cell in before.items():
            column = {"run": "fit", "seen_in_training": "seen"}.get(name, name)
            if column.startswith("probability"):
                near = math.isclose(float(cell), float(after[column]), abs_tol=tolerance)
                assert near, (column, before, after)
            else:
                key = {"0": "negative", "1": "positive", "yes": "clip"}.get(cell, cell)
                assert after[column] in (cell, key), (column, before, after)


@pytest.mark.parametrize("model", ["mlp", "svm", "pcbm-tree", "concept-vector"])
def test_a_golden_model_predicts_the_same(data, obygaze, tmp_path, model):
    output = tmp_path / "predictions.csv"
    words = ("models", "predict", data / "models" / model, data / "xclip.zarr", "-o", output)
    obygaze(*words, code=0)
    # The table is rounded to six places.
    assert_same_rows(EXPECTED / f"predictions-{model}.csv", output, 2 * TOLERANCE)


def test_a_golden_experiment_run_again_gives_the_same(workspace):
    run = workspace / "run"
    assert_same_rows(EXPECTED / "predictions.csv", run / "predictions.csv", TOLERANCE)
    predictions = pd.read_csv(run / "predictions.csv")
    for golden in json.loads((EXPECTED / "scores.json").read_text(encoding="utf-8")):
        of_model = predictions["model"] == golden["model"]
        chosen = predictions[of_model & (predictions["test"] == golden["test"])]
        scores = []
        for _, fit in chosen.groupby("fit"):
            is_positive = (fit["label"] == "positive").to_numpy(int)
            scores.append(score(is_positive, fit["probability"].to_numpy()))

        fits = pd.DataFrame(scores, dtype=float)
        for kind, now in (("mean", fits.mean()), ("std", fits.std(ddof=0))):
            expected = pd.Series(golden[kind], dtype=float)
            np.testing.assert_allclose(now[expected.index], expected, atol=TOLERANCE)


def test_a_run_of_an_earlier_format_is_refused(data, obygaze):
    refused(obygaze("report", data / "run"), "an earlier version", "Run the experiment again")
