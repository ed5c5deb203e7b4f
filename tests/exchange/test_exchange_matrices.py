"""NumPy matrices with one row per clip."""

import numpy as np
import pytest

import obygaze_features as of
from tests.kit.files import write
from tests.kit.store import numbers, plain_manifest

pytestmark = pytest.mark.filterwarnings("ignore::obygaze_features.imports.FailedRows")
N = 40
ROWS = numbers(N, (6,), "float32")


def test_rows_that_fail_are_counted_in_a_warning(tmp_path):
    rows = ROWS.copy()
    rows[[3, 8, 9], 0] = np.nan
    manifest = plain_manifest(N)
    manifest.save(tmp_path / "manifest")
    with pytest.warns(match=r"3 of 40 rows failed, such as tt003: native has a value"):
        of.import_features(rows, tmp_path / "manifest", tmp_path / "x.zarr", ids=manifest.ids)


def test_ids_are_changed_as_in_the_import_of_a_table(obygaze, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "ids.csv", "id,film", "=cmd,", "clip 2,", "Juno/three.mp4,", "four.mp4,Up")
    np.save("X.npy", ROWS[:4])
    obygaze("manifests", "import", "csv", "ids.csv", "-o", "manifest", code=0)
    imported = ("--ids", "ids.csv", "--manifest", "manifest", "-o", "x.zarr")
    obygaze("stores", "import", "X.npy", *imported, code=0)
    store = of.open_store("x.zarr")
    assert store.ids == ["cmd", "clip_2", "Juno-three", "Up-four"]
    np.testing.assert_array_equal(store.read(), ROWS[:4])
