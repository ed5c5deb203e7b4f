"""What a store holds, and the values that it refuses."""

import numpy as np
import pytest
import zarr

from obygaze_features.errors import StoreError
from obygaze_features.store import ArraySpec, Done, Status, StoreWriter, open_store
from obygaze_features.store.finalise import finalise
from tests.kit.store import numbers, open_state, plain_manifest, plain_recipe


def write_row(folder, values, *specs):
    path = folder / "row.zarr"
    writer = StoreWriter.create(path, plain_manifest(1).items, plain_recipe(*specs))
    writer.write_rows({0: Done(values, "a")})
    store = open_store(path)
    return store.records[0], store


@pytest.mark.parametrize(("dtype", "value", "reason"), [
    ("float16", 65504, ""),
    ("float16", 70000, "has a value that cannot be stored as float16"),
    ("float16", -np.inf, "has a value that cannot be stored as float16"),
    ("float32", 1e39, "has a value that cannot be stored as float32"),
    ("float64", 1e39, ""),
    ("int32", 2**31 - 1, ""),
    ("int32", 2**32 + 5.0, "has a value that cannot be stored as int32"),
    ("int32", np.nan, "has a value that cannot be stored as int32"),
    ("int32", 1.5, "has a value that cannot be stored as int32"),
    ("int32", -1, "has a value that cannot be stored as int32"),  # it stands for nothing
])  # fmt: skip
def test_a_row_that_overflows_its_type_fails(tmp_path, dtype, value, reason):
    spec = ArraySpec("native", (2,), dtype, "two numbers")
    record, store = write_row(tmp_path, {"native": np.array([1.0, value])}, spec)
    assert record.status == (Status.NOT_FINITE if reason else Status.DONE,)
    assert record.sources == ("a",)
    assert store.failures == ({"tt000": f"native {reason}"} if reason else {})
    if not reason:
        assert store.read("native").tolist() == [[1, value]]


@pytest.mark.parametrize(("frames", "times", "reason"), [
    ([0, 1, 2, 3], 8, None),
    ([0, 1], 4, None),
    ([0, 1], 3, "some frames have no features"),
    ([0, 1, 2, 3], 7, "some frames have no features"),
    ([], 0, "frames has "),
    ([0, 2], 8, "frames has a value that cannot"),  # a gap is not padding
])  # fmt: skip
def test_padding_ends_at_the_same_share_in_all_arrays(tmp_path, frames, times, reason):
    """Rows have some of 4 frames and of 8 times; the rest is padding."""
    specs = (
        ArraySpec("frames", (4, 2), "float16", "a vector a frame", padded=True),
        ArraySpec("frame_index", (8,), "int32", "which frames", padded=True),
        ArraySpec("native", (3,), "float32", "three numbers"),
    )
    values = {
        "frames": np.where(np.isin(np.arange(4), frames)[:, None], [[1.0, 2.0]], np.nan),
        "frame_index": np.where(np.arange(8) < times, np.arange(8), -1),
        "native": np.ones(3),
    }
    record, store = write_row(tmp_path, values, *specs)
    if reason:
        assert record.failures["tt000"].startswith(reason)
    else:
        assert record.failures == {}
        for name, value in values.items():
            np.testing.assert_array_equal(store.read(name)[0], value)


def test_padding_takes_no_space(tmp_path):
    """Zarr reads compressed chunks, before and after the store is finalised."""
    spec = ArraySpec("frames", (64, 512), "float16", "a vector a frame", padded=True)
    values = np.full(spec.shape, np.nan, "f2")
    values[:3] = numbers(1, (3, 512), "float16")[0]
    _, store = write_row(tmp_path, {"frames": values}, spec)
    for _ in range(2):
        sizes = [path.stat().st_size for path in (store.path / "frames/c").rglob("*")]
        assert sum(sizes) < 4 * values[:3].nbytes
        read = zarr.open_group(store.path, mode="r")["frames"][0]
        assert read.tobytes() == store.read("frames")[0].tobytes() == values.tobytes()
        store = finalise(store.path)


ONES = Done({"native": np.ones(3)}, None)


def create(writer, items, recipe):
    StoreWriter.create(writer.store.path / "x.zarr", items, recipe)


SLIPS = {
    "no such row": (lambda w: w.write_rows({4: ONES, 5: ONES}), r"has no row 5 \(rows: 5\)"),
    "shape": (
        lambda w: w.write_rows({4: Done({"native": np.ones(2)}, None)}),
        r"native needs the shape \(3,\) \(got \(2,\)\)",
    ),
    "no items": (lambda w: create(w, plain_manifest(0).items, plain_recipe()), r"at `\$\.n`"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_user_errors_are_one_line_and_change_nothing(tmp_path, slip):
    call, message = SLIPS[slip]
    half = open_state(tmp_path / "toy.zarr", {"native": numbers(5, (3,), "float32")}, [3], [2])
    before = {path: path.stat().st_mtime_ns for path in half.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=message):
        call(StoreWriter(open_store(half)))
    assert {p: p.stat().st_mtime_ns for p in half.rglob("*") if p.is_file()} == before
    StoreWriter(open_store(half)).write_rows({4: ONES})
    assert open_store(half).status[4] == Status.DONE
    assert list((half / "staging").iterdir()) == []
