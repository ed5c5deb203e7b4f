"""NumPy matrices with one row per clip."""

import numpy as np
import pytest

from obygaze_features.errors import OutputExists, StoreError
from obygaze_features.store import imports, open_store
from obygaze_features.store.imports import MAX_ROWS_READ, FailedRows, import_features
from tests.kit.files import write
from tests.kit.store import numbers, plain_manifest

pytestmark = pytest.mark.filterwarnings("ignore::obygaze_features.store.imports.FailedRows")
N, D, ABSENT = 40, 6, 7
"""Clips, width, and the clip without a row."""
ROWS = numbers(N, (D,), "float32")
FRAMES = numbers(N, (3, D), "float16")
ORDER = [row for row in np.random.default_rng(0).permutation(N).tolist() if row != ABSENT]
IDS = [f"tt{row:03}" for row in ORDER]
THEIRS, THEIR_FRAMES = (np.ascontiguousarray(rows[ORDER]) for rows in (ROWS, FRAMES))


def check(store, **arrays):
    assert set(store.arrays) == set(arrays)
    for name, rows in arrays.items():
        values = store.read(name, IDS)
        np.testing.assert_array_equal(values, rows[ORDER])
        assert values.dtype == rows.dtype
    assert {k: why[:17] for k, why in store.failures.items()} == {"tt007": "its id has no row"}


def test_numpy_matrices_become_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", THEIRS)
    np.save("F.npy", THEIR_FRAMES)

    def bring(**options):
        files = {"native": "X.npy", "frames": "F.npy"}
        return import_features(files, plain_manifest(N), "made.zarr", ids=IDS, **options)

    check(bring(), native=ROWS, frames=FRAMES)
    np.save("X.npy", THEIRS + 1)
    with pytest.raises(OutputExists, match=r"made\.zarr already exists"):
        bring()
    check(bring(overwrite=True), native=ROWS + 1, frames=FRAMES)


def test_an_interrupted_import_leaves_nothing_to_the_next(tmp_path, monkeypatch):
    n = 3 * MAX_ROWS_READ
    manifest, output = plain_manifest(n), tmp_path / "made.zarr"
    for number in (1, 2):
        np.save(tmp_path / f"{number}.npy", np.full((n, 2), number, np.float32))

    def bring(number):
        return import_features(tmp_path / f"{number}.npy", manifest, output, ids=manifest.ids)

    def interrupted(item_id, *args):
        if item_id == manifest.ids[-1]:
            raise KeyboardInterrupt
        return read_item(item_id, *args)

    read_item = imports._read_item
    with monkeypatch.context() as patch:
        patch.setattr(imports, "_read_item", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bring(1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.npy", "2.npy"]
    assert np.unique(bring(2).read()).tolist() == [2]


def test_columns_have_names_and_rows_are_in_order(obygaze, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", ROWS)
    manifest, names = plain_manifest(N), ["a", "b", "c", "d", "e", "f"]
    with pytest.raises(StoreError, match=r"column names \(2\) do not fit shape"):
        import_features("X.npy", manifest, "x.zarr", ids=manifest.ids, columns=names[:2])
    store = import_features("X.npy", manifest, "x.zarr", ids=manifest.ids, columns=names)
    assert store.to_pandas().columns.tolist() == names
    np.testing.assert_array_equal(store.read("native"), ROWS)
    manifest.save("manifest")
    ids, about = ("--ids", "manifest/items.csv"), ("--manifest", "manifest", "--backbone", "vivit")
    obygaze("stores", "import", "X.npy", *ids, *about, "-o", "made.zarr", code=0)
    np.testing.assert_array_equal(open_store("made.zarr").read(), ROWS)
    assert open_store("made.zarr").attributes["backbone"]["name"] == "vivit"


def test_rows_that_fail_are_counted_in_a_warning(tmp_path):
    rows = ROWS.copy()
    rows[[3, 8, 9], 0] = np.nan
    np.save(tmp_path / "X.npy", rows)
    manifest = plain_manifest(N)
    with pytest.warns(FailedRows, match=r"3 of 40 rows failed, such as tt003: native has a value"):
        import_features(tmp_path / "X.npy", manifest, tmp_path / "x.zarr", ids=manifest.ids)


def test_minus_one_in_integers_is_an_error(tmp_path):
    manifest = plain_manifest(N)
    counts = np.arange(2 * N).reshape(N, 2) - 1
    np.save(tmp_path / "X.npy", counts)
    with pytest.raises(StoreError, match=r"X\.npy: tt000 has the integer -1 .* Import floats"):
        import_features(tmp_path / "X.npy", manifest, tmp_path / "x.zarr", ids=manifest.ids)
    np.save(tmp_path / "X.npy", counts.astype(np.float32))
    store = import_features(tmp_path / "X.npy", manifest, tmp_path / "y.zarr", ids=manifest.ids)
    np.testing.assert_array_equal(store.read("native"), counts)


def test_ids_are_changed_as_in_the_import_of_a_table(obygaze, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "ids.csv", "id,film", "=cmd,", "clip 2,", "Juno/three.mp4,", "four.mp4,Up")
    np.save("X.npy", ROWS[:4])
    obygaze("manifests", "import", "csv", "ids.csv", "-o", "manifest", code=0)
    imported = ("--ids", "ids.csv", "--manifest", "manifest", "-o", "x.zarr")
    obygaze("stores", "import", "X.npy", *imported, code=0)
    store = open_store("x.zarr")
    assert store.ids == ["cmd", "clip_2", "Juno-three", "Up-four"]
    np.testing.assert_array_equal(store.read(), ROWS[:4])
