"""Files of format version 1 that an earlier release wrote open, verify and read the same."""

from __future__ import annotations

import csv
import html
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.manifests import Manifest
from obygaze_features.store import open_store
from tests.golden.commands import COMMANDS
from tests.golden.comparing import TOLERANCE, VOLATILE, differences
from tests.golden.workspace import DATA, EXPECTED, copy_data

EIGHT = json.loads((EXPECTED / "eight.json").read_text(encoding="utf-8"))
#: Each store, and how many of its eight rows are written.
STORES = {"open.zarr": 6, "final.zarr": 8, "packed.zip": 8}
FAILED = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: nothing is ever written into the golden folder."""
    return copy_data(tmp_path_factory.mktemp("golden") / "data")


@pytest.mark.parametrize("name", STORES)
def test_a_golden_store_has_its_rows(data, name):
    store, written = open_store(data / name), STORES[name]
    assert list(store.ids) == EIGHT["ids"]
    states = [1] * written + [0] * (8 - written)
    states[FAILED] = 3
    assert store.status.tolist() == states
    assert dict(store.failures) == EIGHT["failures"]
    done = [row for row, state in enumerate(states) if state == 1]
    assert {spec.name for spec in store.specs} == set(EIGHT["arrays"])
    for array, rows in EIGHT["arrays"].items():
        values = np.asarray(store.read(array, missing="nan"))
        np.testing.assert_array_equal(values[done], np.array(rows, dtype=values.dtype)[done])
        fill = values[[row for row in range(8) if row not in done]]
        assert (np.isnan(fill) if values.dtype.kind == "f" else fill == -1).all()


@pytest.mark.parametrize("name", STORES)
def test_a_golden_store_verifies(data, obygaze, name):
    result = obygaze("stores", "verify", data / name)
    assert result.exit_code == 0, result.output


def test_a_golden_open_store_is_filled_and_finalised(data, obygaze, tmp_path):
    """What is missing comes from the final one; all else stays."""
    merged = tmp_path / "merged.zarr"
    result = obygaze("stores", "merge", data / "open.zarr", data / "final.zarr", "-o", merged)
    assert result.exit_code == 0, result.output
    result = obygaze("stores", "finalise", merged)
    assert result.exit_code == 0, result.output
    golden, filled = open_store(data / "final.zarr"), open_store(merged)
    for array in EIGHT["arrays"]:
        np.testing.assert_array_equal(
            filled.read(array, missing="nan"), golden.read(array, missing="nan")
        )
    assert dict(filled.failures) == EIGHT["failures"]


def test_the_golden_manifest_loads_and_saves_the_same(data, tmp_path):
    manifest = Manifest.load(data / "manifest")
    assert len(manifest) == 160
    assert manifest.digest == json.loads((data / "manifest/manifest.json").read_text())["digest"]
    assert sorted(manifest.label_names) == ["paper", "raw"]
    assert sorted(manifest.split_names) == [
        *("02_ENHN_S", "02_EN_HN_S", "02_EN_S", "02_HN_S", "leak-free")
    ]
    assert sorted(manifest.run_names) == ["02_EN_S", "02_HN_S"]
    manifest.save(tmp_path / "again")
    saved = sorted(path for path in (DATA / "manifest").rglob("*.csv"))
    assert len(saved) == 10
    for path in saved:
        again = tmp_path / "again" / path.relative_to(DATA / "manifest")
        assert again.read_bytes() == path.read_bytes(), path.name
    loaded = Manifest.load(tmp_path / "again")
    assert loaded.labels("paper").levels == manifest.labels("paper").levels


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def assert_same_rows(golden: Path, now: Path, tolerance: float) -> None:
    """Every golden cell is there again; probabilities agree."""
    expected, rows = rows_of(golden), rows_of(now)
    assert len(expected) == len(rows)
    for before, after in zip(expected, rows, strict=True):
        for name, cell in before.items():
            column = {"run": "fit"}.get(name, name)  # as format 4 calls it
            if column.startswith("probability"):
                near = math.isclose(float(cell), float(after[column]), abs_tol=tolerance)
                assert near, (column, before, after)
            else:
                assert cell == after[column], (column, before, after)


@pytest.mark.parametrize("model", ["mlp", "svm", "pcbm-tree", "concept-vector"])
def test_a_golden_model_predicts_the_same(data, obygaze, tmp_path, model):
    output = tmp_path / "predictions.csv"
    result = obygaze(
        "models", "predict", data / "models" / model, data / "xclip.zarr", "-o", output
    )
    assert result.exit_code == 0, result.output
    # The table is rounded to six places.
    assert_same_rows(EXPECTED / f"predictions-{model}.csv", output, 2 * TOLERANCE)


def test_a_golden_experiment_run_again_says_the_same(data, obygaze, tmp_path):
    result = obygaze("models", "run", data / "golden.toml", "-o", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    assert_same_rows(EXPECTED / "predictions.csv", tmp_path / "run" / "predictions.csv", TOLERANCE)
    golden = json.loads((EXPECTED / "scores.json").read_text(encoding="utf-8"))
    scores = {
        (score_row["model"], score_row["test"]): score_row
        for score_row in json.loads(result.stdout)["scores"]
    }
    for before in golden:
        after = scores[before["model"], before["test"]]
        for kind in ("mean", "std"):
            assert {name: after[kind][name] for name in before[kind]} == pytest.approx(
                before[kind], abs=TOLERANCE
            )


def test_a_run_of_an_earlier_format_is_refused_in_one_line(data, obygaze):
    result = obygaze("report", data / "run")
    assert result.exit_code == 1
    assert "is of format version 3" in result.stderr
    assert "run it again" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.fixture
def run_again(data, obygaze):
    """The golden experiment, in the format of today."""
    if (data / "run-of-format-3").is_dir():
        return data / "run"
    (data / "run").rename(data / "run-of-format-3")
    result = obygaze("models", "run", data / "golden.toml", "-o", data / "run")
    assert result.exit_code == 0, result.output
    return data / "run"


def test_the_golden_run_folder_reads_the_same(data, run_again, obygaze, monkeypatch):
    monkeypatch.chdir(data)
    command = COMMANDS["models-compare"]
    result = obygaze(*command.split(), "--json")
    assert result.exit_code == 0, result.output
    golden = json.loads((EXPECTED / "json/models-compare.json").read_text(encoding="utf-8"))
    assert not list(differences(golden, json.loads(result.stdout), volatile=VOLATILE[""]))


def test_a_report_of_the_golden_run_shows_its_scores(run_again, obygaze, tmp_path):
    page = tmp_path / "report.html"
    result = obygaze("report", run_again, "-o", page)
    assert result.exit_code == 0, result.output
    rows = page.read_text(encoding="utf-8").split("<tr>")
    for score_row in json.loads((EXPECTED / "scores.json").read_text(encoding="utf-8")):
        model, test = score_row["model"], score_row["test"]
        (row,) = (
            row
            for row in rows
            if f'<th scope="row">{model}</th>' in row and f"{test}</td>" in html.unescape(row)
        )
        shown = [float(value) for value in re.findall(r'<data value="([^"]+)"', row)]
        for kind in ("mean", "std"):
            for score in ("f1", "f1_weighted"):
                expected = pytest.approx(score_row[kind][score], abs=TOLERANCE)
                assert any(value == expected for value in shown), (model, test, kind, score)
