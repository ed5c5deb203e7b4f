"""Damaged stores: every way in which a file can be wrong is one line that names it.

Damage at random is in ``tests/fuzz``, and in ``test_store_verify.py``.
"""

import json
import os
import re
import shutil
from dataclasses import replace

import google_crc32c
import numpy as np
import pytest
import zarr

import obygaze_features as of
from obygaze_features.errors import StoreError
from tests.kit import store as toys

SHARD = "native/c/0/0"


@pytest.fixture(params=toys.STATES)
def any_path(copy, request):
    return copy(request.param)


def read_everything(path):
    """Read everything in a store, so that any damage is detected."""
    store = of.open_store(path)
    store.info()
    assert len(store.rows_table["source"]) == len(store)
    for name in store.arrays:
        store.read(name, missing="nan")


def test_a_damaged_index_gives_no_traceback(path):
    shard = path / SHARD
    before = shard.read_bytes()
    for offset, size in [(2**63, 24), (0, 2**63), (2**64 - 1, 24), (8, 24), (0, 0), (10**6, 24)]:
        chunks = [offset, size, 24, 24, 48, 24, 72, 24]
        index = np.array(chunks, "<u8").tobytes()
        index += google_crc32c.value(index).to_bytes(4, "little")
        shard.write_bytes(before[: -len(index)] + index)
        with pytest.raises(StoreError, match=re.escape(str(shard))):
            of.open_store(path).read("native", missing="nan")


@pytest.mark.parametrize("size", [None, 0, 3, 30])
def test_a_lost_shard_is_named(any_path, size):
    shard = any_path / SHARD
    shard.chmod(0o644)
    if size is None:
        shard.unlink()
    else:
        os.truncate(shard, size)
    for ids in (None, ["tt1-001"], ["tt1-000", "tt1-002"]):
        with pytest.raises(StoreError, match=f"{shard}: .*stores repair"):
            of.open_store(any_path).read("native", ids, missing="nan")
    of.open_store(any_path).read("frames", missing="nan")


def test_a_damaged_record_is_named(path):
    record = path / "blocks/000001.json"
    before = record.read_bytes()
    toys.flip_bit(record, 29)
    store = of.open_store(path)
    for _ in range(2):  # the second look says the same as the first
        with pytest.raises(StoreError, match=f"{record}: .*block 1 .*stores repair"):
            store.read("native", ["tt1-000"])
    record.write_bytes(before)
    shutil.copy(path / "blocks/000000.json", path / "blocks/000002.json")
    with pytest.raises(StoreError, match="it is not a valid commit record of block 2"):
        of.open_store(path).read("native", missing="nan")


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": (1, 1, 9, 1)},
        {"status": (1, 1, -1, 1), "failures": {}},
        {"sources": (None, None, None, 3)},
        {"failures": {}},
        {"failures": {"tt1-005": "another row"}},
        {"shards": dict.fromkeys(["native", "frames", "frame_index"])},
        {"shards": dict.fromkeys(["native", "frames", "frame_index"], "../../etc")},
    ],
    ids=str,
)
def test_an_impossible_record_is_refused(path, wrong):
    """Its checksum is valid, so the writer was wrong, not the disk."""
    record = replace(of.open_store(path).records[1], **wrong)
    (path / "blocks/000001.json").write_bytes(record.to_bytes())
    with pytest.raises(StoreError, match="it is not a valid commit record of block 1"):
        of.open_store(path).read("native", missing="nan")


@pytest.mark.parametrize("name", ["ids/c/0/0", "status/c/0"])
def test_damaged_ids_and_status_are_named(final, name):
    before = (final / name).read_bytes()
    toys.flip_bit(final / name, 2)
    with pytest.raises(StoreError, match=rf"{final / name}: its checksum is wrong"):
        read_everything(final)
    (final / name).write_bytes(before[:-1])
    with pytest.raises(StoreError, match=rf"{final / name}: it has the wrong length"):
        read_everything(final)
    (final / name).unlink()
    with pytest.raises(StoreError, match=rf"{final / name}: it is missing"):
        read_everything(final)


@pytest.mark.parametrize("damaged", [b"tt1-000", b"", b"tt1\0001", b"\xff\0\0\0"])
def test_bad_ids_are_refused(path, damaged):
    """A duplicate, an empty one, two in one row, and one that is not UTF-8."""
    table = zarr.open_array(path / "ids", mode="r+")
    table[1] = np.frombuffer(damaged.ljust(7, b"\0"), np.uint8)
    with pytest.raises(StoreError, match="ids/c/0/0"):
        of.open_store(path).read("native", ["tt1-000"])


def attribute(**values):
    return "zarr.json", lambda group: group["attributes"]["obygaze"].update(values)


def metadata(name, **values):
    return f"{name}/zarr.json", lambda header: header.update(values)


COLUMNS = {"shape": [5], "dtype": "float32", "meaning": "", "columns": ["a", "b"]}
FORGED = {
    "newer": (*attribute(format_version=2), "is not in format version 1 of obygaze"),
    "other rows": (*attribute(n=8), "ids/c/0/0: it has the wrong length"),
    "escape": (*attribute(arrays={"../x": {}}), r"matching regex .*\$.arrays"),
    "columns": (*attribute(arrays={"native": COLUMNS}), r"2 distinct column names do not fit"),
    "array codecs": (*metadata("native", codecs=[]), "native/zarr.json: its content is not valid"),
    "other shape": (*metadata("native", shape=[8, 3]), "native/zarr.json: it does not describe"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_forged_metadata_is_one_line(path, forged):
    name, change, line = FORGED[forged]
    values = json.loads((path / name).read_text())
    change(values)
    (path / name).write_text(json.dumps(values))
    with pytest.raises(StoreError, match=line) as problem:
        read_everything(path)
    assert str(path) in str(problem.value)
    (path / "checksums.json").write_text("{}")
    if name == "native/zarr.json":
        assert [entry.file for entry in of.verify(path)] == [name]


def test_a_mismatched_table_of_rows_is_named(final):
    path = final / "rows.csv"
    table = path.read_text()
    mismatch = "does not match the store's ids and status"
    for wrong, line in [
        (table.replace("tt1-006,3", "tt1-006,1"), mismatch),
        (table.replace("tt1-006", "tt1-999"), mismatch),
        (table[:-20], "rows.csv: the table has changed since it was written"),
        (table.replace("reason", "why", 1), "no column 'reason'"),
    ]:
        path.unlink()
        path.write_text(wrong)
        with pytest.raises(StoreError, match=line):
            assert of.open_store(final).failures
    path.unlink()
    with pytest.raises(StoreError, match=r"rows.csv: it is missing"):
        assert of.open_store(final).failures
