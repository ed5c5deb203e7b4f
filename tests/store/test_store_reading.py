"""Reading: the mapped way, Zarr's own, and other people's readers all say the same."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import Done, Status, StoreWriter, open_store
from obygaze_features.store import format as fmt
from obygaze_features.store.finalise import finalise
from obygaze_features.store.location import Folder
from obygaze_features.store.row_reader import MAX_OPEN_SHARDS, RangeShard
from obygaze_features.store.shards import ABSENT, checksum
from tests.store.independent_reader import read_store
from tests.store.making import a_manifest, final_state, numbers, open_state

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
dtypes = st.sampled_from(["float16", "float32", "float64", "int32"])


def without(values: np.ndarray, rows: list[int]) -> np.ndarray:
    """The values as they read where some rows are not done."""
    values = values.copy()
    values[rows] = -1 if values.dtype.kind == "i" else np.nan
    return values


@given(
    n=st.integers(1, 20),
    block_rows=st.integers(1, 6),
    shard_chunks=st.integers(1, 5),
    chunk_rows=st.integers(1, 8),
    shape=shapes,
    dtype=dtypes,
    compress=st.booleans(),
    data=st.data(),
)
@settings(deadline=None, max_examples=40)
def test_every_reader_says_the_same_of_any_store(
    n, block_rows, shard_chunks, chunk_rows, shape, dtype, compress, data
):
    values = numbers(n, shape, dtype)
    failed = data.draw(st.sets(st.integers(0, n - 1)), label="failed")
    todo = data.draw(st.sets(st.integers(0, (n - 1) // block_rows)), label="todo")
    missing = sorted(failed | {row for row in range(n) if row // block_rows in todo})
    expected = without(values, missing)
    done = [row for row in range(n) if row not in missing]
    asked = data.draw(st.lists(st.sampled_from(done), max_size=9), label="asked") if done else []
    with TemporaryDirectory() as folder:
        source = open_state(Path(folder) / "a.zarr", {"native": values}, failed, todo, block_rows)
        final = final_state(
            source,
            Path(folder) / "b.zarr",
            shard_chunks * chunk_rows,
            chunk_rows,
            compress=compress,
        )
        for path in (source, final):
            for checksums in (True, False):
                store = open_store(path, checksums=checksums)
                array = store.read("native", missing="nan")
                np.testing.assert_array_equal(array, expected)
                assert array.dtype == dtype
                assert array.dtype.isnative
                rows = store.read("native", [store.ids[row] for row in asked])
                np.testing.assert_array_equal(rows, values[asked])
                everyone = [*store.ids, "nobody"]
                skipped = store.done_ids(everyone)
                rows = store.read("native", everyone, missing="drop")
                assert skipped == [store.ids[row] for row in done]
                np.testing.assert_array_equal(rows, values[done])
                assert [i for ids, _ in store.iter_blocks() for i in ids] == skipped
                blocks = [rows["native"] for _, rows in store.iter_blocks(["native"])]
                np.testing.assert_array_equal(np.concatenate([rows[:0], *blocks]), values[done])
            plain = zarr.open_array(path / "native", mode="r")
            np.testing.assert_array_equal(plain[:], expected)
            if path == source or not compress:
                _, ids, status, arrays = read_store(path)
                assert ids == store.ids
                np.testing.assert_array_equal(status, store.status)
                np.testing.assert_array_equal(arrays["native"], expected)
            # By ranges, as compressed and remote stores are read.
            one = store.stored["native"]
            for shard in {row // one.layout.shard_rows for row in done}:
                size = one.layout.shard_rows
                rows = np.array([row % size for row in done if row // size == shard], np.intp)
                name = fmt.shard_name(one.spec, shard)
                reader = RangeShard(Folder(path), name, one.layout, compressed=one.compressed)
                out = reader.read(rows)
                np.testing.assert_array_equal(out, values[rows + shard * size])


@pytest.fixture
def values() -> dict[str, np.ndarray]:
    return {"native": numbers(9, (3,), "float32"), "frames": numbers(9, (2, 3), "float16")}


@pytest.fixture
def source(tmp_path: Path, values: dict[str, np.ndarray]) -> Path:
    """Nine rows in blocks of two: row 3 failed, the block of rows 6 and 7 is still to do."""
    return open_state(tmp_path / "toy.zarr", values, failed=[3], todo=[3])


@pytest.fixture(params=["open", "final", "compressed", "finalised"])
def either(source: Path, request: pytest.FixtureRequest) -> Path:
    """The same store in its states; the third one is read by Zarr."""
    if request.param == "finalised":
        finalise(source, allow_incomplete=True)
    elif request.param != "open":
        path = source.with_name("final.zarr")
        return final_state(source, path, 6, 2, compress=request.param == "compressed")
    return source


def test_what_a_store_says_of_itself_is_the_same_in_every_state(either, source, values):
    store = open_store(either)
    assert len(store) == 9
    assert store.arrays == ["native", "frames"]
    assert [one.shape for one in store.specs] == [(3,), (2, 3)]
    assert store.ids == a_manifest(9).ids
    assert store.status.tolist() == [1, 1, 1, 3, 1, 1, 0, 0, 1]
    assert store.failures == {"tt003": "row 3 is broken"}
    assert store.sources["tt002"] == f"{2:064x}"
    assert store.sources["tt003"] is None
    assert store.sources["tt006"] is None
    assert list(store.sources) == store.ids
    assert (store.blocks, store.block_rows) == (5, 2)
    if store.is_final:
        assert (store.records, store.record_of(0)) == ([], None)
    else:
        assert [record.block for record in store.records] == [0, 1, 2, 4]
        assert store.record_of(3) is None
        assert store.record_of(99) is None
    row = store["tt008"]
    np.testing.assert_array_equal(row["frames"], values["frames"][8])
    np.testing.assert_array_equal(row["native"], values["native"][8])


def test_rows_are_read_in_the_order_asked_and_as_often(either, values):
    store = open_store(either)
    rows = store.read("frames", ["tt008", "tt000", "tt008", "tt005"])
    np.testing.assert_array_equal(rows, values["frames"][[8, 0, 8, 5]])
    np.testing.assert_array_equal(
        store.read_rows("native", np.array([5, 2])), values["native"][[5, 2]]
    )
    assert store.read("frames", []).shape == (0, 2, 3)
    rows[:] = 0  # what was read is the reader's own


@pytest.mark.parametrize("chunk_rows", [1, 2, 3])
def test_any_two_rows_are_read(source, tmp_path, values, chunk_rows):
    path = final_state(source, tmp_path / "b.zarr", 6, chunk_rows)
    store = open_store(path)
    done = [0, 1, 2, 4, 5, 8]
    for pair in itertools.product(done, done):
        rows = store.read_rows("native", np.array(pair))
        np.testing.assert_array_equal(rows, values["native"][list(pair)])


@pytest.mark.parametrize("chunk_rows", [1, 2, 3])
def test_shards_with_gaps_are_read_in_any_order(source, tmp_path, values, chunk_rows):
    """Zarr allows a shard's chunks to begin anywhere, though no writer that we know does it."""
    path = final_state(source, tmp_path / "b.zarr", 6, chunk_rows)
    for shard in (path / "native/c").glob("*/0"):
        content, size = shard.read_bytes(), 6 // chunk_rows * 16 + 4
        index = np.frombuffer(content[-size:-4], "<u8").reshape(-1, 2).copy()
        index[index[:, 0] != ABSENT, 0] += 3
        shard.write_bytes(b"gap" + content[:-size] + index.tobytes() + checksum(index.tobytes()))
    done = [0, 1, 2, 4, 5, 8]
    plain = zarr.open_array(path / "native", mode="r")[:]
    np.testing.assert_array_equal(plain[done], values["native"][done])
    store = open_store(path)
    for rows in itertools.product(done, repeat=3):
        taken = store.read_rows("native", np.array(rows))
        np.testing.assert_array_equal(taken, values["native"][list(rows)])
    np.testing.assert_array_equal(store.read("native", missing="nan"), plain)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["tt000", "tt003", "tt006"], r"tt003 failed: row 3 is broken \(and 1 more"),
        (["tt006"], "tt006 is not done yet"),
        (["nobody"], "nobody is not an item of this store"),
        (["tt00"], "tt00 is not an item of this store"),
    ],
)
def test_rows_that_cannot_be_read_raise_with_the_reason(either, asked, why):
    with pytest.raises(StoreError, match=why):
        open_store(either).read("native", asked)
    assert open_store(either).done_ids(asked) in ([], ["tt000"])


@pytest.mark.parametrize("ids", ["tt000", [0], [0, 1], [None, "tt000"]])
def test_ids_are_a_list_of_texts(either, ids):
    with pytest.raises(UsageError, match="ids is a list of ids"):
        open_store(either).read("native", ids)
    with pytest.raises(UsageError, match="by its name"):
        open_store(either).read(["native"])


def test_rows_by_number_are_checked_too(either):
    with pytest.raises(StoreError, match="tt006 is not done yet"):
        open_store(either).read_rows("native", np.array([0, 6]))
    for row in (-1, 9):
        with pytest.raises(StoreError, match="has the rows 0 to 8"):
            open_store(either).read_rows("native", np.array([row]))


def test_blocks_come_in_order_with_the_arrays_asked_for(either, values):
    parts = list(open_store(either).iter_blocks(["frames"]))
    assert [one for ids, _ in parts for one in ids] == [f"tt{row:03}" for row in (0, 1, 2, 4, 5, 8)]
    assert all(list(rows) == ["frames"] for _, rows in parts)
    joined = np.concatenate([rows["frames"] for _, rows in parts])
    np.testing.assert_array_equal(joined, values["frames"][[0, 1, 2, 4, 5, 8]])
    with pytest.raises(StoreError, match="no array nonsense"):
        next(open_store(either).iter_blocks(["nonsense"]))


def test_an_open_store_travels_to_another_process_as_its_path(either, values):
    store = open_store(either)
    store.read("native", missing="nan")
    letter = pickle.dumps(store)
    assert len(letter) < 1000
    np.testing.assert_array_equal(
        pickle.loads(letter).read("native", missing="nan"), store.read("native", missing="nan")
    )


def test_a_reader_sees_what_was_there_when_it_looked(source):
    store = open_store(source)
    assert store.status[6] == Status.TODO
    writer = StoreWriter(open_store(source))
    rows = {"native": np.ones(3), "frames": np.ones((2, 3))}
    writer.write_block(3, [Done(rows, None), Done(rows, None)])
    assert store.done_ids(["tt006"]) == []
    assert open_store(source)["tt006"]["native"].tolist() == [1, 1, 1]


def test_tensorstore_reads_every_state(either, values):
    tensorstore = pytest.importorskip("tensorstore")
    for name, expected in values.items():
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(either / name)}}
        read = tensorstore.open(spec, read=True, open=True).result().read().result()
        np.testing.assert_array_equal(read, without(expected, [3, 6, 7]))
    for name in ("ids", "status"):
        if (either / name).exists():
            spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(either / name)}}
            read = tensorstore.open(spec, read=True, open=True).result().read().result()
            np.testing.assert_array_equal(read, zarr.open_array(either / name, mode="r")[:])


@pytest.mark.gate
@pytest.mark.skipif(os.name == "nt", reason="Windows does not list what is open")
def test_few_shard_files_are_open_at_a_time(tmp_path):
    n = 3 * MAX_OPEN_SHARDS
    rows = numbers(n, (2,), "float32")
    store = open_store(open_state(tmp_path / "a.zarr", {"native": rows}, block_rows=1))
    descriptors = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
    gc.collect()  # what earlier tests left open is closed now, not while we count
    before = len(list(descriptors.iterdir()))
    np.testing.assert_array_equal(store.read("native", missing="nan"), rows)
    assert MAX_OPEN_SHARDS - 8 < len(list(descriptors.iterdir())) - before <= MAX_OPEN_SHARDS + 8
    np.testing.assert_array_equal(store["tt000"]["native"], rows[0])


READ_ALL = """
import sys
from pathlib import Path
from obygaze_features.store import open_store

def peak():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])

store = open_store(Path(sys.argv[1]))
next(store.iter_blocks())
before, total = peak(), 0
for ids, rows in store.iter_blocks():
    total += sum(row.nbytes for row in rows.values())
print(total, peak() - before)
"""


@pytest.mark.gate
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much it was at most")
@pytest.mark.parametrize("final", [False, True])
def test_blocks_are_read_in_bounded_memory(tmp_path, final):
    rows = np.ones((256, 512, 512), np.float16)  # 128 MiB
    path = open_state(tmp_path / "big.zarr", {"tokens": rows}, block_rows=8)
    if final:
        finalise(path)
    run = subprocess.run(
        [sys.executable, "-c", READ_ALL, str(path)], capture_output=True, text=True, check=True
    )
    total, grown = map(int, run.stdout.split())
    assert total == rows.nbytes
    assert grown < rows.nbytes / 2


def test_only_exact_ids_are_items_of_a_store(source):
    store = open_store(source)
    near = ["tt000x", "tt00", "tt000\0", "", "tt", "\ud800", "tt000" * 9]
    assert store.done_ids(["tt001", *near, "tt000"]) == ["tt001", "tt000"]
    assert store.done_ids([]) == []


def test_an_id_that_is_there_twice_is_refused(source):
    table = zarr.open_array(source / "ids", mode="r+")
    table[1] = table[0]
    with pytest.raises(StoreError, match="ids: an id is there twice"):
        open_store(source).read("native", ["tt000"])


@pytest.mark.parametrize("missing", ["raise", "nan", "drop"])
def test_missing_rows_raise_are_nan_or_are_dropped(either, values, missing):
    store, asked = open_store(either), ["tt008", "nobody", "tt003", "tt006", "tt001"]
    if missing == "raise":
        with pytest.raises(StoreError, match=r"nobody is not an item .*\(and 2 more"):
            store.read("native", asked)
        return
    rows = store.read("native", asked, missing=missing)
    if missing == "nan":
        assert np.isnan(rows).all(axis=1).tolist() == [False, True, True, True, False]
        rows = rows[[0, 4]]
    np.testing.assert_array_equal(rows, values["native"][[8, 1]])
    assert store.done_ids(asked) == ["tt008", "tt001"]


def test_an_unknown_treatment_of_missing_rows_is_refused(either):
    with pytest.raises(UsageError, match=r"'raise', 'nan' or 'drop'.*'skip'"):
        open_store(either).read("native", missing="skip")


def test_refresh_sees_what_was_written_since(source):
    store = open_store(source)
    before = store.missing_rows().tolist()
    rows = {"native": np.ones(3), "frames": np.ones((2, 3))}
    StoreWriter(open_store(source)).write_block(3, [Done(rows, None), Done(rows, None)])
    assert store.missing_rows().tolist() == before == [6, 7]
    assert store.refresh().missing_rows().tolist() == []
    assert store.missing_rows(retry_failed=True).tolist() == [3]
    finalise(source)
    assert store.refresh().is_final
    with pytest.raises(StoreError, match="--reopen"):
        store.missing_rows(retry_failed=True)


def test_a_store_says_how_rows_and_arrays_are_asked_for(tmp_path):
    store = open_store(open_state(tmp_path / "toy.zarr", {"native": numbers(4, (3,), "float32")}))
    for asked in (0, slice(None, 3), np.int64(1), ["tt000"]):
        with pytest.raises(UsageError, match=r"by id .*store\[store.ids\[0\]\].*read\('native'\)"):
            store[asked]
    with pytest.raises(UsageError, match=r"is an array, not an id; use store.read\('native'\)"):
        store["native"]
    assert store[store.ids[0]]["native"].tolist() == store.read("native", missing="nan")[0].tolist()
