"""What is written is what is read, by our reader and by plain Zarr."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_features.errors import OutputExists, StoreError
from obygaze_features.store import (
    ArraySpec,
    Done,
    Failed,
    Status,
    StoreWriter,
    open_store,
)
from tests.store.making import a_manifest, a_recipe, fill


@given(
    n=st.integers(1, 13),
    block_rows=st.integers(1, 6),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["float16", "float32", "float64", "int32"]),
    data=st.data(),
)
@settings(deadline=None, max_examples=25)
def test_any_shape_type_and_block_size_round_trips(n, block_rows, shape, dtype, data):
    failed = data.draw(st.frozensets(st.integers(0, n - 1)))
    values = np.random.default_rng(n).integers(0, 2000, (n, *shape)).astype(dtype)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "toy.zarr"
        spec = ArraySpec("native", shape, dtype, "numbers")
        writer = StoreWriter.create(path, a_manifest(n), a_recipe(spec), block_rows=block_rows)
        fill(writer, {"native": values}, failed)

        store = open_store(path)
        expected = values.copy()
        expected[sorted(failed)] = -1 if dtype == "int32" else np.nan
        np.testing.assert_array_equal(store.read("native", missing="nan"), expected)
        assert store.read("native", missing="nan").dtype == dtype
        # A plain reader agrees, row by row.
        np.testing.assert_array_equal(zarr.open_array(path / "native", mode="r")[:], expected)
        assert store.failures == {f"tt{row:03}": f"row {row} is broken" for row in sorted(failed)}
        done = [row for row in range(n) if row not in failed]
        backwards = [store.ids[row] for row in reversed(done)]
        np.testing.assert_array_equal(store.read("native", backwards), values[done[::-1]])


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """Five rows in blocks of two: block 0 done, row 3 failed, block 2 still to do."""
    writer = StoreWriter.create(tmp_path / "toy.zarr", a_manifest(5), a_recipe(), block_rows=2)
    rows = np.arange(15, dtype=np.float32).reshape(5, 3)
    writer.write_block(0, [Done({"native": row}, "aa") for row in rows[:2]])
    writer.write_block(1, [Done({"native": rows[2]}, "aa"), Failed(Status.MISSING, "not there")])
    return tmp_path / "toy.zarr"


def test_rows_are_read_by_id(half):
    store = open_store(half)
    assert store.ids == ["tt000", "tt001", "tt002", "tt003", "tt004"]
    assert store.status.tolist() == [1, 1, 1, 2, 0]
    assert store["tt001"]["native"].tolist() == [3, 4, 5]
    asked = ["tt002", "tt003", "nobody", "tt000"]
    ids, rows = store.done_ids(asked), store.read("native", asked, missing="drop")
    assert ids == ["tt002", "tt000"]
    assert rows.tolist() == [[6, 7, 8], [0, 1, 2]]


@pytest.mark.parametrize(
    ("identifier", "why"),
    [("tt003", "failed: not there"), ("tt004", "not done yet"), ("nobody", "not an item")],
)
def test_a_row_that_cannot_be_read_is_named_with_the_reason(half, identifier, why):
    with pytest.raises(StoreError, match=f"{identifier} .*{why}"):
        open_store(half).read("native", ["tt000", identifier])


def test_an_unknown_array_is_answered_with_the_known_ones(half):
    with pytest.raises(StoreError, match="no array cls; it has native"):
        open_store(half).read("cls", missing="nan")


def test_every_codec_chain_ends_in_a_checksum(half):
    chain = json.loads((half / "native/zarr.json").read_text())["codecs"]
    (sharding,) = chain
    assert sharding["name"] == "sharding_indexed"
    assert sharding["configuration"]["chunk_shape"] == [1, 3]
    for part in ("codecs", "index_codecs"):
        assert [codec["name"] for codec in sharding["configuration"][part]] == ["bytes", "crc32c"]
    ids = json.loads((half / "ids/zarr.json").read_text())["codecs"]
    assert [codec["name"] for codec in ids] == ["bytes", "crc32c"]


def test_records_hold_the_fingerprint_of_each_shard(half):
    record = json.loads((half / "blocks/000001.json").read_text())
    shard = (half / "native/c/1/0").read_bytes()
    assert record["shards"] == {"native": hashlib.sha256(shard).hexdigest()}
    assert record["status"] == [1, 2]
    assert record["sources"] == ["aa", None]


def test_a_store_carries_its_items_and_its_provenance(half):
    manifest = a_manifest(5)
    assert (half / "items.csv").read_bytes() == manifest.items.to_csv().encode()
    facts = open_store(half).info()
    assert facts["items_digest"] == manifest.digest
    assert facts["backbone"]["weights_sha256"] == "ab" * 32
    assert facts["licence"] == "CC0"
    assert facts["rows"] == {"all": 5, "done": 3, "failed": 1, "to_do": 1}


@pytest.mark.parametrize("value", [70000.0, np.inf, np.nan])
def test_a_value_that_float16_cannot_hold_is_a_failure(tmp_path, value):
    spec = ArraySpec("frames", (2,), "float16", "two numbers")
    writer = StoreWriter.create(tmp_path / "toy.zarr", a_manifest(2), a_recipe(spec))
    writer.write_block(
        0, [Done({"frames": np.array([1.0, value])}, "a"), Done({"frames": np.ones(2)}, "b")]
    )
    store = open_store(tmp_path / "toy.zarr")
    assert store.status.tolist() == [Status.NOT_FINITE, Status.DONE]
    why = "a value that float16 cannot hold" if value == 70000 else "NaN or infinity"
    assert store.failures == {"tt000": f"frames has {why}"}


@pytest.mark.parametrize(
    ("dtype", "value", "status"),
    [
        ("float16", 65504, Status.DONE),
        ("float16", -65504, Status.DONE),
        ("float16", -np.inf, Status.NOT_FINITE),
        ("float32", 70000, Status.DONE),
        ("float32", 1e39, Status.NOT_FINITE),
        ("float32", np.nan, Status.NOT_FINITE),
        ("float32", -np.inf, Status.NOT_FINITE),
        ("float64", 1e39, Status.DONE),
        ("float64", np.inf, Status.NOT_FINITE),
    ],
)
def test_a_row_is_done_if_its_type_holds_all_values(tmp_path, dtype, value, status):
    spec = ArraySpec("native", (2,), dtype, "two numbers")
    writer = StoreWriter.create(tmp_path / "toy.zarr", a_manifest(1), a_recipe(spec))
    record = writer.write_block(0, [Done({"native": np.array([1.0, value])}, "a")])
    assert record.status == (status,)
    assert record.sources == ("a",)
    if status is Status.DONE:
        assert open_store(tmp_path / "toy.zarr").read("native", missing="nan").tolist() == [
            [1, value]
        ]


@pytest.mark.parametrize(
    ("frames", "times", "why"),
    [
        (4, 8, None),
        (2, 4, None),
        (2, 3, "some of its frames have no features"),
        (1, 8, "some of its frames have no features"),
        (4, 7, "some of its frames have no features"),
        (0, 0, "frames has "),
    ],
)
def test_padding_ends_at_the_same_share_of_all_arrays(tmp_path, frames, times, why):
    """So many of 4 frames and of 8 times are there; the rest is padding."""
    specs = (
        ArraySpec("frames", (4, 2), "float16", "a vector a frame", padded=True),
        ArraySpec("frame_index", (8,), "int32", "which frames", padded=True),
        ArraySpec("native", (3,), "float32", "three numbers"),
    )
    writer = StoreWriter.create(tmp_path / "toy.zarr", a_manifest(1), a_recipe(*specs))
    values = {
        "frames": np.where(np.arange(4)[:, None] < frames, [[1.0, 2.0]], np.nan),
        "frame_index": np.where(np.arange(8) < times, np.arange(8), -1),
        "native": np.ones(3),
    }
    record = writer.write_block(0, [Done(values, "a")])
    assert list(record.failures) == ([] if why is None else ["tt000"])
    if why is not None:
        assert record.failures["tt000"].startswith(why)
    else:
        store = open_store(tmp_path / "toy.zarr")
        for name, value in values.items():
            np.testing.assert_array_equal(store.read(name, missing="nan")[0], value)


def test_a_gap_between_frames_is_no_padding(tmp_path):
    spec = ArraySpec("frames", (3, 1), "float16", "a number a frame", padded=True)
    writer = StoreWriter.create(tmp_path / "toy.zarr", a_manifest(1), a_recipe(spec))
    record = writer.write_block(0, [Done({"frames": np.array([[1], [np.nan], [2]])}, None)])
    assert record.failures == {"tt000": "frames has NaN or infinity"}


def test_a_block_takes_its_own_rows_and_all_of_them(half):
    writer = StoreWriter(open_store(half))
    with pytest.raises(StoreError, match="block 3 has 0 rows"):
        writer.write_block(3, [])
    for rows in ([], [None, None]):
        with pytest.raises(StoreError, match=rf"block 2 has 1 row \(got {len(rows)}\)"):
            writer.write_block(2, rows)
    with pytest.raises(StoreError, match=r"native has shape \(3,\) \(got \(2,\)\)"):
        writer.write_block(2, [Done({"native": np.ones(2)}, None)])
    record = writer.write_block(2, [Done({"native": np.ones(3)}, None)])
    assert record.status == (Status.DONE,)
    assert list((half / "staging").iterdir()) == []


def test_the_value_that_stands_for_nothing_is_a_failure_too(tmp_path):
    spec = ArraySpec("frame_index", (2,), "int32", "two numbers")
    writer = StoreWriter.create(tmp_path / "toy.zarr", a_manifest(1), a_recipe(spec))
    writer.write_block(0, [Done({"frame_index": np.array([0, -1])}, "a")])
    assert open_store(tmp_path / "toy.zarr").status.tolist() == [Status.NOT_FINITE]


def test_a_store_of_another_format_is_refused(half):
    header = json.loads((half / "zarr.json").read_text())
    header["attributes"]["obygaze"]["format_version"] = 2
    (half / "zarr.json").write_text(json.dumps(header))
    with pytest.raises(StoreError, match="has format version 2, and this obygaze reads version 1"):
        open_store(half)


def test_creating_never_overwrites(half):
    with pytest.raises(OutputExists):
        StoreWriter.create(half, a_manifest(5), a_recipe())


@pytest.mark.parametrize("content", [None, "{}"])
def test_what_is_not_a_store_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "zarr.json").write_text(content)
    with pytest.raises(StoreError, match=str(tmp_path)):
        open_store(tmp_path)
