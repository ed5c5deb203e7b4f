"""What a store holds, and the values that it refuses."""

import numpy as np
import pytest
import zarr

import obygaze_features as of
from obygaze_features.errors import StoreError
from obygaze_features.store import ArraySpec, Done, Status, StoreWriter
from tests.kit.store import a_store, contents, numbers, plain_manifest, plain_recipe


def write_row(folder, values, *specs):
    path = folder / "row.zarr"
    writer = StoreWriter.create(path, plain_manifest(1).items, plain_recipe(*specs))
    writer.write_rows({0: Done(values, "a")})
    return of.open_store(path)


@pytest.mark.parametrize(
    ("dtype", "value", "fits"),
    [
        ("float16", 65504, True),
        ("float16", 70000, False),
        ("int32", 2**31 - 1, True),
        ("int32", 2**32 + 5.0, False),
        ("int32", 1.5, False),
        ("int32", -1, False),  # it stands for nothing
    ],
)
def test_a_row_that_overflows_its_type_fails(tmp_path, dtype, value, fits):
    spec = ArraySpec("native", (2,), dtype, "two numbers")
    store = write_row(tmp_path, {"native": np.array([1.0, value])}, spec)
    assert store.records[0].sources == ("a",)
    if fits:
        assert store.read("native").tolist() == [[1, value]]
    else:
        assert store.status.tolist() == [Status.NOT_FINITE]
        assert store.failures == {"tt000": f"native has a value that cannot be stored as {dtype}"}


@pytest.mark.parametrize(
    ("frames", "times", "reason"),
    [
        ([0, 1, 2, 3], 8, ""),
        ([0, 1], 3, "some frames have no features"),
        ([0, 1, 2, 3], 7, "some frames have no features"),
        ([0, 2], 8, "frames has a value that cannot"),  # a gap is not padding
    ],
)
def test_padding_ends_at_the_same_share_in_all_arrays(tmp_path, frames, times, reason):
    """Rows have some of 4 frames and of 8 times; the rest is padding."""
    specs = (
        ArraySpec("frames", (4, 2), "float16", "a vector a frame", padded=True),
        ArraySpec("frame_index", (8,), "int32", "which frames", padded=True),
    )
    has_frame = np.isin(np.arange(4), frames)
    index = np.arange(8)
    values = {
        "frames": np.where(has_frame[:, None], [1.0, 2.0], np.nan),
        "frame_index": np.where(index < times, index, -1),
    }
    store = write_row(tmp_path, values, *specs)
    if reason:
        assert store.failures["tt000"].startswith(reason)
    else:
        for name, value in values.items():
            np.testing.assert_array_equal(store.read(name)[0], value)


def test_padding_takes_no_space(tmp_path):
    """Zarr reads compressed chunks, before and after the store is finalised."""
    spec = ArraySpec("frames", (64, 512), "float16", "a vector a frame", padded=True)
    values = np.full(spec.shape, np.nan, "f2")
    values[:3] = numbers(1, (3, 512), "float16")[0]
    store = write_row(tmp_path, {"frames": values}, spec)
    for _ in range(2):
        sizes = [path.stat().st_size for path in (store.path / "frames/c").rglob("*")]
        assert sum(sizes) < 4 * values[:3].nbytes
        read = zarr.open_group(store.path, mode="r")["frames"][0]
        assert read.tobytes() == store.read("frames")[0].tobytes() == values.tobytes()
        store = of.finalise(store.path)


def test_user_errors_are_one_line_and_change_nothing(tmp_path):
    path = a_store(tmp_path / "toy.zarr", 5, blocks=[])
    row = {"native": np.ones(5), "frames": np.ones((2, 3)), "frame_index": np.ones(2)}
    before = contents(path)
    writer = StoreWriter(of.open_store(path))
    with pytest.raises(StoreError, match=r"has no row 5 \(rows: 5\)"):
        writer.write_rows({4: Done(row, None), 5: Done(row, None)})
    with pytest.raises(StoreError, match=r"native needs the shape \(5,\) \(got \(2,\)\)"):
        writer.write_rows({4: Done({**row, "native": np.ones(2)}, None)})
    with pytest.raises(StoreError, match="a row must have the arrays"):
        writer.write_rows({4: Done({"native": np.ones(5)}, None)})
    assert contents(path) == before
