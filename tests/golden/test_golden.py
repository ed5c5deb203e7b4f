"""Files of an earlier release open, verify and read the same, and its experiment gives the same."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import obygaze_features as of
from tests.golden.workspace import DATA, copy_data
from tests.kit.files import refused
from tests.kit.floats import close

EXPECTED = Path(__file__).parent / "expected"
TOLERANCE = 1e-6
COMMANDS = {
    "manifests-show": "manifests show manifest --by-film",
    "manifests-audit": "manifests audit manifest",
    "manifests-check": "manifests check manifest",
    "annotations-show": "annotations show timelines",
    "annotations-project": "annotations project timelines --grid 60 -o out/projected",
    "annotations-merge": "annotations merge projected --name again",
    "annotations-agreement": "annotations agreement projected",
    "stores-info-open": "stores info open.zarr",
    "stores-info-final": "stores info final.zarr",
    "stores-info-packed": "stores info packed.zip",
    "stores-verify-open": "stores verify open.zarr",
    "stores-verify-final": "stores verify final.zarr",
    "stores-diff": "stores diff open.zarr final.zarr",
    "stores-finalise": "stores finalise open.zarr --allow-incomplete",
    "stores-repair": "stores repair open.zarr",
    "models-list-folder": "models list models",
    "models-evaluate": "models evaluate models/pcbm-tree xclip.zarr manifest --labels raw",
    "models-explain-mlp": "models explain models/mlp tt0000001-003 --store xclip.zarr",
    "models-explain-tree": "models explain models/pcbm-tree tt0000001-003 --store xclip.zarr",
    "models-score-run": "mediaeval score-run said.csv accede --labels valence",
}
"""Commands that read the old files, by the name of what they printed."""
VOLATILE = {"versions", "machine", "software", "size", "bytes", "files", "path"}
"""Keys whose values differ from call to call, machine to machine or release to release."""


def load(name: str) -> Any:
    return json.loads((EXPECTED / name).read_text(encoding="utf-8"))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, because nothing is written into the golden folder."""
    folder = copy_data(tmp_path / "data")
    (folder / "out").mkdir()
    monkeypatch.chdir(folder)
    return folder


def leaves(value: Any, *path: object) -> Iterator[tuple[tuple[object, ...], Any]]:
    """Yield each value of a JSON document with its path, and the length of each list."""
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        yield (*path, "length"), len(value)
        parts = enumerate(value)
    else:
        yield path, comparable(value)
    for key, part in parts:
        yield from leaves(part, *path, key)


def comparable(value: Any) -> Any:
    """Return the numbers of a sentence (four words or more), whose words may change."""
    if isinstance(value, str) and len(value.split()) > 3:
        return re.findall(r"\d+(?:\.\d+)?", value)
    return value


def assert_same(golden: Any, now: Any) -> None:
    """Compare all golden values; new ones are ignored."""
    found = dict(leaves(now))
    for path, value in leaves(golden):
        if VOLATILE.isdisjoint(path):
            expected = close(value, TOLERANCE) if isinstance(value, float) else value
            assert path in found, path
            assert found[path] == expected, path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_golden_json(data, obygaze, name):
    result = obygaze(*COMMANDS[name].split(), "--json", code=int(name == "stores-diff"))
    assert_same(load(f"json/{name}.json"), json.loads(result.stdout))


FAILED = 4
"""The row that failed."""


@pytest.mark.parametrize(
    ("name", "written"), [("open.zarr", 6), ("final.zarr", 8), ("packed.zip", 8)]
)
def test_a_golden_store_has_its_rows(data, name, written):
    golden = load("eight.json")
    store = of.open_store(data / name)
    assert of.verify(data / name) == []
    assert list(store.ids) == golden["ids"]
    states = [1] * written + [0] * (8 - written)
    states[FAILED] = 3
    assert store.status.tolist() == states
    assert dict(store.failures) == golden["failures"]
    done = store.status == 1
    assert set(store.arrays) == set(golden["arrays"])
    for array, rows in golden["arrays"].items():
        values = np.asarray(store.read(array, missing="nan"))
        np.testing.assert_array_equal(values[done], np.array(rows, dtype=values.dtype)[done])
        fill = values[~done]
        assert (np.isnan(fill) if values.dtype.kind == "f" else fill == -1).all()


def test_the_golden_manifest_loads_and_saves_the_same(data, tmp_path):
    manifest = of.Manifest.load(data / "manifest")
    assert manifest.digest == json.loads((data / "manifest/manifest.json").read_text())["digest"]
    manifest.save(tmp_path / "again")
    saved = [path.relative_to(DATA) for path in (DATA / "manifest").rglob("*.csv")]
    assert len(saved) == 10
    for path in saved:
        again = tmp_path / "again" / path.relative_to("manifest")
        assert again.read_bytes() == (DATA / path).read_bytes(), path


MARKS = {"0": "negative", "1": "positive"}
"""Labels as they were written and as they are."""


def assert_same_predictions(golden: str, now: Path) -> None:
    before = pd.read_csv(EXPECTED / golden, dtype=str).rename(columns={"run": "fit"})
    after = pd.read_csv(now, dtype=str)
    for name in before:
        if name.startswith("probability"):
            # The table of predictions is rounded to six places.
            differences = before[name].astype(float) - after[name].astype(float)
            assert differences.abs().max() <= 2 * TOLERANCE
        elif name == "label":
            assert after[name].tolist() == [MARKS[label] for label in before[name]]
        elif name in after:
            assert after[name].tolist() == before[name].tolist(), name


@pytest.mark.parametrize("model", ["mlp", "svm", "pcbm-tree", "concept-vector"])
def test_a_golden_model_predicts_the_same(data, obygaze, model):
    obygaze("models", "predict", f"models/{model}", "xclip.zarr", "-o", "new.csv", code=0)
    assert_same_predictions(f"predictions-{model}.csv", data / "new.csv")


def test_a_golden_experiment_run_again_predicts_the_same(data, obygaze):
    obygaze("models", "run", "golden.toml", "-o", "again", code=0)
    assert_same_predictions("predictions.csv", data / "again/predictions.csv")


def test_a_run_of_an_earlier_format_is_refused(data, obygaze):
    refused(obygaze("report", "run"), "an earlier version", "Run the experiment again")
