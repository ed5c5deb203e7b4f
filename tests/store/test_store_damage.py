"""Damaged stores: every way in which a file can be wrong is one line that names it. Damage at
random is in ``tests/fuzz``, and in ``test_store_verify.py``."""

import dataclasses
import json
import os
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr

from obygaze_features.errors import StoreError
from obygaze_features.store import open_store
from obygaze_features.store.shards import checksum
from tests.kit.store import STATES, final_state, flip_bit, open_state

VALUES = {
    "native": np.arange(27, dtype="float32").reshape(9, 3),
    "frames": np.arange(54, dtype="float16").reshape(9, 2, 3),
}
SHARD = "native/c/0/0"


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Nine rows in blocks of two; row 3 failed. Final: six rows per shard, two per chunk."""
    folder = tmp_path_factory.mktemp("stores")
    source = open_state(folder / "open.zarr", VALUES, failed=[3])
    final_state(source, folder / "final.zarr", 6, 2)
    final_state(source, folder / "compressed.zarr", 6, 2, compress=True)
    return folder


@pytest.fixture(params=STATES)
def state(request):
    return request.param


@pytest.fixture
def path(stores, state, tmp_path):
    return Path(shutil.copytree(stores / f"{state}.zarr", tmp_path / "toy.zarr"))


def read_everything(path):
    """Read everything in a store, so that any damage is detected."""
    store = open_store(path)
    store.info()
    assert len(store.rows_table["source"]) == len(store)
    for name in store.arrays:
        store.read(name, missing="nan")
    ids, rows = store.done_ids(store.ids), store.read("native", store.ids, missing="drop")
    assert len(ids) == len(rows)


@pytest.mark.parametrize(
    ("offset", "size"),
    [(2**63, 16), (0, 2**63), (2**64 - 1, 16), (8, 16), (8, 17), (0, 0), (10**6, 16)],
)
@pytest.mark.parametrize("state", ["open"], indirect=True)
def test_a_damaged_index_gives_no_traceback(path, offset, size):
    index = np.array([[offset, size], [16, 16]], "<u8").tobytes()  # its checksum is right
    shard = path / SHARD
    shard.write_bytes(shard.read_bytes()[:-36] + index + checksum(index))
    with pytest.raises(StoreError, match=re.escape(str(path / SHARD))):
        open_store(path).read("native", missing="nan")


@pytest.mark.parametrize("spoil", [
    lambda shard: flip_bit(shard, -7), Path.unlink,
    *(partial(os.truncate, length=size) for size in (0, 3, 30)),
])  # fmt: skip
def test_a_lost_shard_is_named(path, spoil):
    spoil(path / SHARD)
    for ids in (None, ["tt001"], ["tt000", "tt002"]):
        with pytest.raises(StoreError, match=f"{path / SHARD}: .*stores repair"):
            open_store(path).read("native", ids, missing="nan")
    open_store(path).read("frames", missing="nan")


@pytest.mark.parametrize("state", ["open"], indirect=True)
def test_a_damaged_record_is_named(path):
    record = path / "blocks/000001.json"
    before = record.read_bytes()
    for position in range(0, len(before), 29):
        record.write_bytes(before)
        flip_bit(record, position)
        store = open_store(path)
        for _ in range(2):  # the second look says the same as the first
            with pytest.raises(StoreError, match=f"{record}: .*block 1 .*stores repair"):
                store.read("native", ["tt000"])
    record.write_bytes(before)
    shutil.copy(path / "blocks/000000.json", path / "blocks/000002.json")
    with pytest.raises(StoreError, match="it is not a valid commit record of block 2"):
        open_store(path).read("native", missing="nan")


WRONG = [
    {"status": (1, 9)}, {"status": (1, -1), "failures": {}}, {"status": (1, 3.0)}, {"status": (1,)},
    {"sources": (None,)}, {"sources": (None, 3)}, {"failures": {}}, {"failures": {"tt003": 4}},
    {"failures": {"tt002": "another row"}}, {"shards": {}},
    {"shards": {"native": None, "frames": None}},
    {"shards": {"native": "../../etc", "frames": "../../etc"}},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.parametrize("state", ["open"], indirect=True)
def test_an_impossible_record_is_refused(path, wrong):
    """Its checksum is valid, so the writer was wrong, not the disk."""
    record = dataclasses.replace(open_store(path).records[1], **wrong)
    (path / "blocks/000001.json").write_bytes(record.to_bytes())
    with pytest.raises(StoreError, match="it is not a valid commit record of block 1"):
        open_store(path).read("native", missing="nan")


def test_damaged_ids_and_status_are_named(path, state):
    for name in ["ids/c/0/0"] if state == "open" else ["ids/c/0/0", "status/c/0"]:
        before = (path / name).read_bytes()
        flip_bit(path / name, 2)
        with pytest.raises(StoreError, match=rf"{path / name}: its checksum is wrong"):
            read_everything(path)
        (path / name).write_bytes(before[:-1])
        with pytest.raises(StoreError, match=rf"{path / name}: it has the wrong length"):
            read_everything(path)
        (path / name).unlink()
        with pytest.raises(StoreError, match=rf"{path / name}: it is missing"):
            read_everything(path)
        (path / name).write_bytes(before)
    read_everything(path)
    if state == "open":
        table = zarr.open_array(path / "ids", mode="r+")
        for damaged in (table[0], 0):  # a duplicate, and an empty id
            table[1] = damaged
            with pytest.raises(StoreError, match="an empty or a duplicate id"):
                open_store(path).read("native", ["tt000"])


def attribute(**values):
    return "zarr.json", lambda group: group["attributes"]["obygaze"].update(values)


def metadata(name, **values):
    return f"{name}/zarr.json", lambda header: header.update(values)


FORGED = {
    "newer": (*attribute(format_version=2), "is not in format version 1 of obygaze"),
    "other rows": (*attribute(n=8), "ids/c/0/0: it has the wrong length"),
    "escape": (*attribute(arrays={"../x": {}}), r"matching regex .*\$.arrays"),
    "array codecs": (*metadata("native", codecs=[]), "native/zarr.json: its content is not valid"),
    "other shape": (*metadata("native", shape=[8, 3]), "native/zarr.json: it does not describe"),
}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("state", ["open"], indirect=True)
def test_forged_metadata_is_one_line(path, forged):
    name, change, line = FORGED[forged]
    values = json.loads((path / name).read_text())
    change(values)
    (path / name).write_text(json.dumps(values))
    with pytest.raises(StoreError, match=line) as problem:
        read_everything(path)
    assert str(path) in str(problem.value)


@pytest.mark.parametrize("state", ["final"], indirect=True)
def test_a_mismatched_table_of_rows_is_named(path):
    table = (path / "rows.csv").read_text()
    for wrong, line in [
        (table.replace("tt003,3", "tt003,1"), "does not match the store's ids and status"),
        (table.replace("tt003", "tt999"), "does not match the store's ids and status"),
        (table[:-20], "rows.csv: the table has changed since it was written"),
        (table.replace("reason", "why", 1), "no column 'reason'"),
        (None, r"rows.csv: it is missing"),
    ]:
        (path / "rows.csv").unlink() if wrong is None else (path / "rows.csv").write_text(wrong)
        with pytest.raises(StoreError, match=line):
            assert open_store(path).failures
