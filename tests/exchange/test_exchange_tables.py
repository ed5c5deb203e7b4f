"""Imports of DataFrames, arrays in memory, Parquet and safetensors."""

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

import obygaze_features as of
from obygaze_features.errors import StoreError, UsageError
from tests.kit.store import numbers, plain_manifest

pytestmark = pytest.mark.filterwarnings("ignore::obygaze_features.imports.FailedRows")
N = 40
D = 6
MANIFEST = plain_manifest(N)
ROWS = numbers(N, (D,), "float32")
NAMES = list("abcdef")
#: All items but one, in another order than the manifest's.
ORDER = np.random.default_rng(0).permutation(N)[: N - 1]
IDS = [MANIFEST.ids[row] for row in ORDER]
FRAME = pd.DataFrame(ROWS[ORDER], pd.Index(IDS, name="id"), NAMES)
WIDE = np.hstack([ROWS, ROWS])
LISTS = FRAME[[]].assign(film="x", year=2000, wide=[*WIDE[ORDER]], native=[*ROWS[ORDER]])


def bring(source, tmp_path, **options):
    return of.import_features(source, MANIFEST, tmp_path / "made.zarr", overwrite=True, **options)


def check(store, rows=ROWS, array="native", columns=None):
    values = store.read(array, IDS)
    np.testing.assert_array_equal(values, rows[ORDER])
    assert values.dtype == rows.dtype
    [missing] = set(MANIFEST.ids) - set(IDS)
    assert store.failures.keys() == {missing}
    assert "its id has no row" in store.failures[missing]
    named = store.to_pandas(array).columns
    assert named.tolist() == (columns or [*range(rows[0].size)])


def test_a_frame_or_an_array_in_memory_becomes_a_store(tmp_path):
    check(bring(FRAME.assign(start=1.0, end=2.0), tmp_path), columns=NAMES)
    check(bring(FRAME.reset_index(), tmp_path), columns=NAMES)
    check(bring(FRAME.set_axis(range(D), axis=1).assign(film="x"), tmp_path))
    check(bring(ROWS[ORDER], tmp_path, ids=FRAME.index))
    cubes = ROWS.reshape(N, 2, 3)
    np.save(tmp_path / "F.npy", cubes[ORDER])
    store = bring({"native": FRAME, "frames": tmp_path / "F.npy"}, tmp_path, ids=IDS)
    np.testing.assert_array_equal(store.read("frames", IDS), cubes[ORDER])
    # What a store gives, it takes.
    again = of.import_features(store.to_pandas(), MANIFEST, tmp_path / "again.zarr")
    check(again, columns=NAMES)


@pytest.mark.parametrize("index", [False, True])
def test_parquet_has_a_list_or_a_column_per_feature(tmp_path, index):
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    (FRAME if index else FRAME.reset_index()).to_parquet(path)
    check(bring(path, tmp_path), columns=NAMES)
    (LISTS if index else LISTS.reset_index()).to_parquet(path)
    store = bring(path, tmp_path)
    check(store)
    np.testing.assert_array_equal(store.read("wide", IDS), WIDE[ORDER])


def test_safetensors_have_a_tensor_per_array_or_per_id(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"native": ROWS[ORDER], "half": ROWS[ORDER].astype("float16")}, path)
    store = bring(path, tmp_path, ids=IDS)
    check(store)
    check(store, ROWS.astype("float16"), "half")
    # As a network returns them, one at a time.
    single = {name: ROWS[[row]] for name, row in zip(IDS, ORDER, strict=True)}
    save_file(single, path)
    check(bring(path, tmp_path))


@pytest.mark.parametrize(
    ("source", "ids", "fact"),
    [
        (ROWS, None, r"native has no ids; pass .*ids="),
        (ROWS, IDS, r"native needs 2 or more axes .*ids: 39; shape: \(40, 6\)"),
        (FRAME.astype(str), None, r"2 or more axes .*shape: \(39, 0\)"),
        (FRAME.set_axis(["x"] * 39), None, "has several rows for 'x'"),
        ("x.pkl", IDS, "x.pkl cannot be imported; pass a .npy"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(tmp_path, source, ids, fact):
    with pytest.raises((StoreError, UsageError), match=fact):
        bring(source, tmp_path, ids=ids)
    assert not (tmp_path / "made.zarr").exists()


@pytest.mark.parametrize(
    ("columns", "fact"),
    [
        ({"id": ["tt000", "tt001"], "x": [[1.0, 2.0], [1.0]]}, "same shape"),
        ({"id": ["tt000"], "x": [[1.0] * 21]}, "it has 22 values; save them as"),
    ],
)
def test_parquet_has_rows_of_one_length(tmp_path, monkeypatch, columns, fact):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("obygaze_features.store.sources.MAX_VALUES", 21)
    pd.DataFrame(columns).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(StoreError, match=rf"x\.parquet .*{fact}"):
        bring(tmp_path / "x.parquet", tmp_path)
