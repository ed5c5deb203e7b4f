"""NumPy matrices with one row per clip."""

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import OutputExists
from tests.kit.files import write
from tests.kit.store import numbers, plain_manifest

pytestmark = pytest.mark.filterwarnings("ignore::obygaze_features.store.imports.FailedRows")
N, D, ABSENT = 40, 6, 7
"""Clips, width, and the clip without a row."""
ROWS = numbers(N, (D,), "float32")
FRAMES = numbers(N, (3, D), "float16")
ORDER = [row for row in np.random.default_rng(0).permutation(N).tolist() if row != ABSENT]
IDS = [f"tt{row:03}" for row in ORDER]


def check(store, **arrays):
    assert set(store.arrays) == set(arrays)
    for name, rows in arrays.items():
        values = store.read(name, IDS)
        np.testing.assert_array_equal(values, rows[ORDER])
        assert values.dtype == rows.dtype
    assert store.failures == {"tt007": f"its id has no row in {min(arrays)[0].upper()}.npy"}


def test_numpy_matrices_become_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("N.npy", ROWS[ORDER])
    np.save("F.npy", FRAMES[ORDER])

    def bring(**options):
        files = {"frames": "F.npy", "native": "N.npy"}
        return of.import_features(files, plain_manifest(N), "made.zarr", ids=IDS, **options)

    check(bring(), native=ROWS, frames=FRAMES)
    np.save("N.npy", ROWS[ORDER] + 1)
    with pytest.raises(OutputExists, match=r"made\.zarr already exists"):
        bring()
    check(bring(overwrite=True), native=ROWS + 1, frames=FRAMES)


def test_an_interrupted_import_leaves_nothing_to_the_next(tmp_path, monkeypatch):
    """It is interrupted at its last block."""
    monkeypatch.setattr("obygaze_features.store.imports.MAX_ROWS_READ", 10)
    manifest = plain_manifest(N)
    output = tmp_path / "made.zarr"
    first = np.full((N, 2), 1, np.float32)
    with monkeypatch.context() as patch:
        commits = iter(range(3))
        patch.setattr("obygaze_features.store.imports.commit_block", lambda *_, **__: next(commits))
        with pytest.raises(StopIteration):
            of.import_features(first, manifest, output, ids=manifest.ids)
    assert not list(tmp_path.iterdir())
    store = of.import_features(2 * first, manifest, output, ids=manifest.ids)
    assert np.unique(store.read()).tolist() == [2]


def test_rows_that_fail_are_counted_in_a_warning(tmp_path):
    rows = ROWS.copy()
    rows[[3, 8, 9], 0] = np.nan
    manifest = plain_manifest(N)
    with pytest.warns(match=r"3 of 40 rows failed, such as tt003: native has a value"):
        of.import_features(rows, manifest, tmp_path / "x.zarr", ids=manifest.ids)


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
