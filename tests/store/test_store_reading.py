"""Reading: our mapped reader, Zarr, and other readers agree."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.errors import StoreError, StoreUnreadable, UnknownItem, UsageError
from obygaze_features.store import Done, Store, StoreWriter

# The names of staged shards, and the seal of a record, are written down in the specification.
from obygaze_features.store import format as fmt

# A folder that is read in ranges, as if it were behind a URL.
from obygaze_features.store.files import Folder
from tests.kit import store as toys
from tests.kit.store import numbers, open_state


def without(values, rows):
    values = values.copy()
    values[rows] = -1 if values.dtype.kind == "i" else np.nan
    return values


class InRanges(Folder):
    is_local = False


@given(
    n=st.integers(1, 12),
    block_rows=st.integers(1, 6),
    shard_chunks=st.integers(1, 5),
    chunk_rows=st.integers(1, 8),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["float16", "float32", "float64", "int32"]),
    is_compressed=st.booleans(),
    data=st.data(),
)
def test_every_reader_agrees_on_any_store(
    n, block_rows, shard_chunks, chunk_rows, shape, dtype, is_compressed, data
):
    values = numbers(n, shape, dtype)
    failed = data.draw(st.sets(st.integers(0, n - 1)), label="failed")
    todo = data.draw(st.sets(st.integers(0, (n - 1) // block_rows)), label="todo")
    unwritten = {row for row in range(n) if row // block_rows in todo}
    missing = sorted(failed | unwritten)
    expected = without(values, missing)
    done = [row for row in range(n) if row not in missing]
    asked = data.draw(st.lists(st.sampled_from(done), max_size=9), label="asked") if done else []
    with TemporaryDirectory() as folder:
        rows = {"native": values}
        source = Path(folder, "a.zarr")
        open_state(source, rows, failed, todo, block_rows, padded=is_compressed)
        final = shutil.copytree(source, Path(folder, "b.zarr"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fmt, "final_rows", lambda *_: (shard_chunks * chunk_rows, chunk_rows))
            of.finalise(final, allow_incomplete=True)
        for path in (source, final):
            plain = zarr.open_array(path / "native", mode="r")
            np.testing.assert_array_equal(plain[:], expected)
            for location in (Folder(path), InRanges(path)):
                store = Store(location)
                array = store.read("native", missing="nan")
                np.testing.assert_array_equal(array, expected)
                assert array.dtype == dtype
                assert array.dtype.isnative
                wanted_ids = [store.ids[row] for row in asked]
                np.testing.assert_array_equal(store.read("native", wanted_ids), values[asked])
                everyone = [*store.ids, "nobody"]
                assert store.done_ids(everyone) == [store.ids[row] for row in done]
                rows = store.read("native", everyone, missing="drop")
                np.testing.assert_array_equal(rows, values[done])
        in_blocks = [row for row in failed if row // block_rows not in todo]
        reasons = {f"tt{row:03}": f"row {row} is broken" for row in in_blocks}
        assert of.open_store(source).failures == reasons


VALUES = {"native": numbers(9, (3,), "float32"), "frames": numbers(9, (2, 3), "float16")}
DONE = [0, 1, 2, 4, 5, 8]


@pytest.fixture
def source(tmp_path):
    """Nine rows in blocks of two: row 3 failed, the block of rows 6 and 7 is to do."""
    return open_state(tmp_path / "toy.zarr", VALUES, failed=[3], todo=[3])


@pytest.fixture(params=toys.STATES)
def either(source, request):
    if request.param == "final":
        of.finalise(source, allow_incomplete=True)
    return source


def test_a_store_is_the_same_in_every_state(either):
    store = of.open_store(either)
    sources = [f"{row:064x}" if row in DONE else "" for row in range(9)]
    assert store.rows_table["source"] == sources
    read = store.read("frames", ["tt001", "tt000"])
    np.testing.assert_array_equal(read, VALUES["frames"][[1, 0]])
    read[:] = 0  # what was read is the reader's own
    np.testing.assert_array_equal(store["tt001"]["frames"], VALUES["frames"][1])
    near = ["tt000x", "tt00", "tt000\0", "", "\ud800"]
    assert store.done_ids(["tt001", *near, "tt000"]) == ["tt001", "tt000"]

    letter = pickle.dumps(store)  # it travels to another process as its path
    assert len(letter) < 1000
    again = pickle.loads(letter).read("native", missing="nan")
    np.testing.assert_array_equal(again, without(VALUES["native"], [3, 6, 7]))


@pytest.mark.parametrize(
    ("method", "arguments", "error", "message"),
    [
        ("read", {"ids": ["tt000", "tt006", "tt003"]}, StoreError, r"tt006 is not .*read: 2\)"),
        ("read", {"ids": ["tt01"]}, UnknownItem, "unknown id 'tt01'; did you mean tt001"),
        ("read", {"array": ["native"]}, StoreError, "no array"),
        ("read", {"missing": "skip"}, UsageError, "'nan' or 'drop'.*'skip"),
        ("dataset", {"ids": ["tt003"]}, StoreError, "tt003 failed: row 3 is broken"),
        ("__getitem__", {"id_": "nope"}, LookupError, "unknown id 'nope'"),
    ],
)
def test_user_errors_are_one_line(source, method, arguments, error, message):
    with pytest.raises(error, match=message):
        getattr(of.open_store(source), method)(**arguments)


def test_a_reader_sees_one_state_until_it_refreshes(source):
    store = of.open_store(source)
    assert store.missing_rows().tolist() == [6, 7]
    rows = {"native": np.ones(3), "frames": np.ones((2, 3))}
    done = Done(rows, None)
    StoreWriter(of.open_store(source)).write_rows({6: done, 7: done})
    assert store.done_ids(["tt006"]) == []
    assert of.open_store(source)["tt006"]["native"].tolist() == [1, 1, 1]
    assert store.refresh().missing_rows().tolist() == []
    assert store.missing_rows(retry_failed=True).tolist() == [3]
    of.finalise(source)
    assert store.refresh().is_final
    with pytest.raises(StoreError, match="--reopen"):
        store.missing_rows(retry_failed=True)


@pytest.mark.parametrize("state", toys.STATES)
def test_a_reader_gives_no_row_of_a_replaced_store(copy, state):
    """Inode, size and time may be equal after `rm -r` and `tar x`: only ctime differs."""
    path = copy(state)
    unread, asked, partly = (of.open_store(path) for _ in range(3))
    assert asked.ids == unread.ids
    before = partly.read("native", ["tt1-001"])
    dataset = of.open_store(path).dataset("native")

    header = path / "zarr.json"
    was = header.stat()
    header.chmod(0o644)
    header.write_bytes(header.read_bytes())
    os.utime(header, ns=(was.st_atime_ns, was.st_mtime_ns))
    for read in (
        lambda: unread.items,
        lambda: asked["tt1-001"],
        lambda: partly.read("frame_index", ["tt1-001"]),
        lambda: dataset[5],
    ):
        with pytest.raises(StoreUnreadable, match="has been replaced since"):
            read()
    if state == "final":  # whose one shard is mapped; memory stays that of the first store
        np.testing.assert_array_equal(partly.read("native", ["tt1-001"]), before)
    np.testing.assert_array_equal(partly.refresh().read("native", ["tt1-001"]), before)


def test_the_worked_seal_of_the_specification_holds():
    text = (Path(__file__).parents[2] / "stores/README.md").read_text()
    [(worked, sha256)] = re.findall(r"For example, `(.*)` has SHA-256\n`([0-9a-f]{64})`", text)
    record = fmt.BlockRecord.from_json({**json.loads(worked), "sha256": sha256})
    assert json.loads(record.to_bytes())["sha256"] == sha256


READ_ALL = """
import resource
import sys
from pathlib import Path
from obygaze_features.store import open_store

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
peak = lambda: int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
store = open_store(sys.argv[1])
store.read("tokens", store.ids[:8])
before = peak()
total = 0
for start in range(0, len(store), 32):
    total += store.read("tokens", store.ids[start : start + 32]).nbytes
    store.forget()
print(total, 1024 * (peak() - before))
for id_ in store.ids:  # in more shards than files may be open
    store.read("tokens", [id_])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much it was at most")
@pytest.mark.parametrize("final", [False, True])
def test_a_store_is_read_in_bounded_memory_with_few_open_files(tmp_path, final):
    rows = np.ones((256, 512, 512), np.float16)  # 128 MiB
    path = open_state(tmp_path / "big.zarr", {"tokens": rows}, block_rows=2)
    if final:
        of.finalise(path)
    run = [sys.executable, "-c", READ_ALL, str(path)]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    total, grown = map(int, output.split())
    assert total == rows.nbytes
    assert grown < rows.nbytes / 2


def test_reading_loads_few_of_our_modules(final_store: Path):
    code = (
        "import sys; from obygaze_features import open_store\n"
        f"store = open_store({str(final_store)!r}); store.read(ids=store.done_ids())\n"
        "print(*(name for name in sys.modules if name.startswith('obygaze')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "obygaze_features.store.store" in loaded
    assert len(loaded) <= 15, loaded
