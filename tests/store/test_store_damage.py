"""Damaged stores: every way in which a file can be wrong is one line that names it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_features.errors import StoreError, StoreUnreadable
from obygaze_features.store import open_store
from obygaze_features.store.shards import checksum, write_shard
from tests.store.making import final_state, flip_bit, open_state

VALUES = {
    "native": np.arange(27, dtype="float32").reshape(9, 3),
    "frames": np.arange(54, dtype="float16").reshape(9, 2, 3),
}
STATES = ("open", "final", "compressed")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine rows in blocks of two, row 3 failed; final: six rows a shard, two a chunk."""
    folder = tmp_path_factory.mktemp("stores")
    source = open_state(folder / "open.zarr", VALUES, failed=[3])
    final_state(source, folder / "final.zarr", 6, 2)
    final_state(source, folder / "compressed.zarr", 6, 2, compress=True)
    return folder


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def path(stores: Path, state: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stores / f"{state}.zarr", tmp_path / "toy.zarr"))


def read_everything(path: Path) -> None:
    """All that a store can be asked, so that whatever is wrong with it comes up."""
    store = open_store(path)
    store.info()
    assert len(store.sources) == len(store)
    for name in store.arrays:
        store.read(name, missing="nan")
    ids, rows = store.done_ids(store.ids), store.read("native", store.ids, missing="drop")
    assert len(ids) == len(rows)
    assert sum(len(ids) for ids, _ in store.iter_blocks()) == len(ids)


def shard_and_rows(path: Path, state: str) -> tuple[Path, list[str], list[str]]:
    """A shard, the ids of its first chunk, and of all of its rows that are done."""
    ids = [f"tt{row:03}" for row in range(9) if row != 3]
    if state == "open":
        return path / "native/c/0/0", ids[:1], ids[:2]
    return path / "native/c/0/0", ids[:2], ids[:5]


def test_a_bit_that_flips_in_a_chunk_is_named_with_its_rows(path, state):
    shard, hit, _ = shard_and_rows(path, state)
    flip_bit(shard, 3)
    store = open_store(path)
    line = re.escape(f"{shard}: ") + f".*row of {', '.join(hit)} cannot be read; "
    line += re.escape(f"run: obygaze stores repair {path}")
    for read in (
        lambda name: store.read(name, missing="nan"),
        lambda name: store.read(name, store.ids, missing="drop"),
    ):
        with pytest.raises(StoreError, match=line) as problem:
            read("native")
        assert "\n" not in str(problem.value)
    with pytest.raises(StoreError, match=f"row of {hit[-1]} cannot be read"):
        store.read("native", ["tt008", hit[-1]])
    with pytest.raises(StoreError, match=hit[0]):
        store[hit[0]]
    with pytest.raises(StoreError, match=hit[0]):
        list(store.iter_blocks())
    assert store.read("native", ["tt004", "tt008"])[0].tolist() == [12, 13, 14]
    assert len(store.read("frames", hit)) == len(hit)


@pytest.mark.parametrize(
    ("state", "position", "hit"),
    [("open", 17, "tt001"), ("final", 30, "tt002"), ("final", 57, "tt004, tt005")],
    indirect=["state"],
)
def test_damage_names_the_rows_of_its_own_chunk(path, position, hit):
    """A chunk of native takes 16 bytes while the store is open, 28 when it is final."""
    flip_bit(path / "native/c/0/0", position)
    store = open_store(path)
    with pytest.raises(StoreError, match=f"the row of {hit} cannot be read"):
        store.read("native", missing="nan")
    alone = hit.split(", ")[-1]
    with pytest.raises(StoreError, match=f"the row of {alone} cannot be read"):
        store[alone]
    assert store.read("native", ["tt000"]).tolist() == [[0, 1, 2]]


def test_without_checksums_a_flipped_bit_passes(path, state):
    shard, hit, _ = shard_and_rows(path, state)
    flip_bit(shard, 3)
    store = open_store(path, checksums=False)
    if state == "compressed":
        with pytest.raises(StoreError, match="cannot be decoded"):
            store.read("native", hit)
    else:
        assert store.read("native", hit)[0].tolist() != [0, 1, 2]


def test_a_bit_that_flips_in_an_index_hits_the_shards_rows(path, state):
    shard, _, hit = shard_and_rows(path, state)
    flip_bit(shard, -7)
    for checksums in (True, False):
        with pytest.raises(StoreError, match=re.escape(str(shard))) as problem:
            open_store(path, checksums=checksums).read("native", missing="nan")
        assert hit[0] in str(problem.value)
        assert f"obygaze stores repair {path}" in str(problem.value)


def test_a_lost_shard_hits_its_rows(path, state):
    shard, _, hit = shard_and_rows(path, state)
    shard.unlink()
    more = f"{', '.join(hit[:3])} and of {len(hit) - 3} more" if len(hit) > 3 else ", ".join(hit)
    with pytest.raises(StoreError, match=f"{re.escape(str(shard))}: .* row of {more} cannot"):
        open_store(path).read("native", missing="nan")
    open_store(path).read("frames", missing="nan")


@pytest.mark.parametrize("size", [0, 3, 30])
def test_a_shard_that_is_cut_short_is_named(path, state, size):
    shard, _, hit = shard_and_rows(path, state)
    shard.write_bytes(shard.read_bytes()[:size])
    with pytest.raises(StoreError, match=rf"{re.escape(str(shard))}: .*{hit[0]}"):
        open_store(path).read("native", missing="nan")


def test_a_folder_in_a_shards_place_is_named(path, state):
    shard, _, _ = shard_and_rows(path, state)
    shard.unlink()
    shard.mkdir()
    with pytest.raises(StoreUnreadable, match=re.escape(str(shard))):
        open_store(path).read("native", missing="nan")


@pytest.mark.parametrize("state", ["open", "final"], indirect=True)
def test_a_chunk_that_is_not_there_although_its_row_is_done_is_named(path, state):
    shard, hit, _ = shard_and_rows(path, state)
    layout = open_store(path).stored["native"].layout
    chunks = [None, *[np.ones(layout.chunk_shape, "float32")] * (layout.chunks - 1)]
    write_shard(shard, chunks, layout)
    with pytest.raises(StoreError, match=f"a chunk is missing; the row of {', '.join(hit)} "):
        open_store(path).read("native", missing="nan")
    with pytest.raises(StoreError, match=f"a chunk is missing; the row of {hit[0]} "):
        open_store(path)[hit[0]]


@pytest.mark.parametrize(
    ("offset", "size"), [(2**63, 16), (0, 2**63), (2**64 - 1, 16), (8, 17), (0, 0), (10**6, 16)]
)
@pytest.mark.parametrize("checksums", [True, False])
def test_an_index_that_points_anywhere_is_no_traceback(stores, tmp_path, offset, size, checksums):
    """Its checksum is right, so that somebody wrote it so."""
    path = Path(shutil.copytree(stores / "open.zarr", tmp_path / "toy.zarr"))
    shard = path / "native/c/0/0"
    index = np.array([[offset, size], [16, 16]], "<u8").tobytes()
    shard.write_bytes(shard.read_bytes()[:-36] + index + checksum(index))
    with pytest.raises(StoreError, match=re.escape(str(shard))):
        open_store(path, checksums=checksums).read("native", missing="nan")


def test_a_damaged_record_hits_its_blocks_rows_and_no_others(stores, tmp_path):
    path = Path(shutil.copytree(stores / "open.zarr", tmp_path / "toy.zarr"))
    record = path / "blocks/000001.json"
    before = record.read_bytes()
    for position in range(0, len(before), 7):
        record.write_bytes(before)
        flip_bit(record, position)
        with pytest.raises(StoreError, match=re.escape(str(record))) as problem:
            open_store(path).read("native", ["tt002"])
        assert "tt002 to tt003" in str(problem.value)
        assert f"obygaze stores repair {path}" in str(problem.value)
        assert open_store(path).read("native", ["tt000", "tt008"])[0].tolist() == [0, 1, 2]
        with pytest.raises(StoreError, match=re.escape(str(record))):
            read_everything(path)


def test_a_record_of_another_block_is_refused(stores, tmp_path):
    path = Path(shutil.copytree(stores / "open.zarr", tmp_path / "toy.zarr"))
    shutil.copy(path / "blocks/000000.json", path / "blocks/000002.json")
    with pytest.raises(StoreError, match="it is not the commit record of block 2"):
        open_store(path).read("native", missing="nan")


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": (1, 9)},
        {"status": (1, -1), "failures": {}},
        {"status": (1, 3.0)},
        {"status": (1,)},
        {"status": (1, "3")},
        {"sources": (None,)},
        {"sources": (None, 3)},
        {"failures": {}},
        {"failures": {"tt002": "another row"}},
        {"failures": {"tt003": 4}},
        {"shards": {}},
        {"shards": {"native": None, "frames": None}},
        {"shards": {"native": "../../etc", "frames": "../../etc"}},
    ],
)
def test_a_record_that_says_what_cannot_be_is_refused(stores, tmp_path, wrong):
    """Sealed as it is: what wrote it was wrong, not the disk."""
    path = Path(shutil.copytree(stores / "open.zarr", tmp_path / "toy.zarr"))
    record = open_store(path).record_of(1)
    assert record is not None
    (path / "blocks/000001.json").write_bytes(dataclasses.replace(record, **wrong).to_bytes())
    with pytest.raises(StoreError, match="it is not the commit record of block 1"):
        open_store(path).read("native", missing="nan")


@pytest.mark.parametrize("state", ["final"], indirect=True)
def test_a_status_that_means_nothing_is_refused(path):
    zarr.open_array(path / "status", mode="r+")[2] = 9
    with pytest.raises(StoreError, match="unknown status 9"):
        open_store(path).read("native", missing="nan")


def test_damaged_ids_and_status_are_named(path, state):
    names = ["ids/c/0/0"] if state == "open" else ["ids/c/0/0", "status/c/0"]
    for name in names:
        original_bytes = (path / name).read_bytes()
        flip_bit(path / name, 2)
        with pytest.raises(StoreError, match=rf"{path / name}: its checksum is wrong"):
            read_everything(path)
        (path / name).write_bytes(original_bytes[:-1])
        with pytest.raises(StoreError, match=rf"{path / name} has the wrong length"):
            read_everything(path)
        (path / name).unlink()
        with pytest.raises(StoreError, match=rf"{path / name} is missing"):
            read_everything(path)
        (path / name).write_bytes(original_bytes)
    read_everything(path)


Change = Callable[[Any], Any]


def huge(meta: Any) -> None:
    """A shard of more rows than a processor can count."""
    meta["chunk_grid"]["configuration"]["chunk_shape"][0] = 2**70


CHANGES: dict[str, tuple[str, Change, str]] = {
    "newer": ("zarr.json", lambda a: a.update(format_version=2), "format version 2, and this"),
    "no version": ("zarr.json", lambda a: a.pop("format_version"), "format version None"),
    "no state": ("zarr.json", lambda a: a.pop("state"), "the attribute state is missing"),
    "no rows": ("zarr.json", lambda a: a.update(n=0), "attribute n is 0; expected a whole number"),
    "rows": ("zarr.json", lambda a: a.update(n=True), "attribute n is True"),
    "other rows": ("zarr.json", lambda a: a.update(n=8), r"the shape is \[9, 3\]; expected 8×3"),
    "block": ("zarr.json", lambda a: a.update(block_rows="2"), "attribute block_rows is '2'"),
    "arrays": ("zarr.json", lambda a: a.update(arrays=[]), r"attribute arrays is \[\]"),
    "array": (
        "zarr.json",
        lambda a: a["arrays"].update(native=3),
        "array native has no valid shape",
    ),
    "shape": ("zarr.json", lambda a: a["arrays"]["native"].update(shape=[4]), "expected 9×4"),
    "type": (
        "zarr.json",
        lambda a: a["arrays"]["native"].update(dtype="float64"),
        "expected float64",
    ),
    "escape": ("zarr.json", lambda a: a["arrays"].update({"../x": {}}), "not a valid array name"),
    "weights": ("zarr.json", lambda a: a["backbone"].pop("weights_sha256"), "weights_sha256"),
    "licence": ("zarr.json", lambda a: a.update(licence=None), "attribute licence is None"),
    "array shape": (
        "native/zarr.json",
        lambda m: m.update(shape=[9]),
        r"shape is \[9\]; expected 9×3",
    ),
    "array type": ("native/zarr.json", lambda m: m.update(data_type="int8"), "expected float32"),
    "a shard without end": (
        "native/zarr.json",
        huge,
        "not whole rows|not a block of 2",
    ),
    "array codecs": ("native/zarr.json", lambda m: m.update(codecs=[]), "not whole rows"),
    "a group": ("native/zarr.json", lambda m: m.update(node_type="group"), "describe a Zarr array"),
    "ids shape": (
        "ids/zarr.json",
        lambda m: m.update(shape=[8, 5]),
        r"shape is \[8, 5\]; expected 9×\?",
    ),
    "ids type": ("ids/zarr.json", lambda m: m.update(data_type="string"), "expected uint8"),
    "ids codecs": ("ids/zarr.json", lambda m: m.update(codecs=["bytes"]), "not one chunk with"),
}


@pytest.mark.parametrize("change_name", CHANGES)
def test_what_the_metadata_must_not_say_is_one_line(path, change_name):
    name, change, line = CHANGES[change_name]
    values = json.loads((path / name).read_text())
    change(values["attributes"]["obygaze"] if name == "zarr.json" else values)
    (path / name).write_text(json.dumps(values))
    with pytest.raises(StoreError, match=line) as problem:
        read_everything(path)
    assert str(path) in str(problem.value)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("zarr.json", "it has no zarr.json"),
        ("native/zarr.json", "native/zarr.json is missing; native cannot be read without it"),
        ("ids/zarr.json", "ids/zarr.json is missing; ids cannot be read without it"),
    ],
)
def test_what_is_missing_is_named(path, name, line):
    (path / name).unlink()
    with pytest.raises(StoreError, match=line):
        read_everything(path)


@pytest.mark.parametrize("state", ["final"], indirect=True)
def test_a_table_of_rows_that_does_not_fit_is_named(path):
    table = (path / "rows.csv").read_text()
    assert "tt003,3,," in table or "tt003,3," in table
    for wrong, line in [
        (table.replace("tt003,3", "tt003,1"), "does not match the store's ids and status"),
        (table.replace("tt003", "tt999"), "does not match the store's ids and status"),
        (table[:-20], "cells where the header has 4"),
        (table.replace("reason", "why", 1), "no column 'reason'"),
    ]:
        (path / "rows.csv").write_text(wrong)
        with pytest.raises(StoreError, match=line):
            assert open_store(path).failures
    (path / "rows.csv").unlink()
    with pytest.raises(StoreError, match=r"rows.csv does not exist"):
        assert open_store(path).sources


def pieces(value: Any, position: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where all parts of a JSON value are."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [
        found
        for key, part in inner
        for found in [
            (*position, key),
            *(pieces(part, (*position, key)) if isinstance(part, dict | list) else []),
        ]
    ]


strange = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_no_change_of_a_json_file_ends_in_a_traceback(stores, data):
    state = data.draw(st.sampled_from(STATES))
    with TemporaryDirectory() as folder:
        path = Path(shutil.copytree(stores / f"{state}.zarr", Path(folder) / "toy.zarr"))
        files = sorted(file for file in path.rglob("*.json") if file.name != "checksums.json")
        file = data.draw(st.sampled_from(files))
        value = json.loads(file.read_text())
        position = data.draw(st.sampled_from(pieces(value)))
        part = value
        for key in position[:-1]:
            part = part[key]
        if data.draw(st.booleans()):
            del part[position[-1]]
        else:
            part[position[-1]] = data.draw(strange)
        file.write_text(json.dumps(value))
        with contextlib.suppress(StoreError):
            read_everything(path)


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_no_damage_of_bytes_ends_in_a_traceback(stores, data):
    state = data.draw(st.sampled_from(STATES))
    with TemporaryDirectory() as folder:
        path = Path(shutil.copytree(stores / f"{state}.zarr", Path(folder) / "toy.zarr"))
        files = sorted(file for file in path.rglob("*") if file.is_file())
        file = data.draw(st.sampled_from(files))
        content = file.read_bytes()
        position = data.draw(st.integers(0, len(content)))
        gone = data.draw(st.sampled_from([0, 1, 8, len(content)]))
        put = data.draw(st.binary(max_size=8) | st.just(b"[" * 5000) | st.just(b"9" * 5000))
        file.write_bytes(content[:position] + put + content[position + gone :])
        with contextlib.suppress(StoreError):
            read_everything(path)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"9" * 10_000, b"\xff", b"", b"null"])
@pytest.mark.parametrize("name", ["zarr.json", "native/zarr.json", "blocks/000000.json"])
def test_json_that_is_none_is_one_line(stores, tmp_path, name, content):
    path = Path(shutil.copytree(stores / "open.zarr", tmp_path / "toy.zarr"))
    (path / name).write_bytes(content)
    with pytest.raises(StoreError, match=str(path)):
        read_everything(path)
