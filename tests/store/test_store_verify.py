"""Damage is found wherever it is, the rows are named, and a repair drops no intact row.

``tests/faults`` kills a repair at each system call.
"""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.errors import StoreError, StoreUnreadable
from tests.kit import store as toys
from tests.kit.store import STATES, flip_bit

BLOCK_1 = ("tt1-004", "tt1-005", "tt1-006", "tt1-007")
SHARD = "native/c/0/0"
BLOCK_2 = ("tt1-008", "tt1-009", "tt1-010", "tt1-011")


@pytest.fixture(scope="module", params=STATES)
def files(request, sound, tmp_path_factory):
    """A store, its shards, its other files, and its content."""
    folder = shutil.copytree(sound, tmp_path_factory.mktemp("files") / "stores")
    path = folder / f"{request.param}.zarr"
    store = of.open_store(path)
    values = {name: store.read(name, missing="nan") for name in store.arrays}
    folders = {path / name / "c" for name in store.arrays}
    files = [file for file in path.rglob("*") if file.is_file()]
    shards = sorted(file for file in files if folders & {*file.parents})
    others = [file for file in files if file.name != "log.jsonl"]
    return path, shards, sorted(set(others) - set(shards)), values


@given(data=st.data(), share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_shard_names_its_rows(files, data, share, bit):
    path, shards, _, values = files
    file = data.draw(st.sampled_from(shards))
    offset = int(share * file.stat().st_size)
    flip_bit(file, offset, bit)
    try:
        [entry] = of.verify(path)
        name = file.relative_to(path).as_posix()
        array = name.partition("/")[0]
        assert (entry.file, entry.why) == (name, "it was changed")
        hit = entry.ids
        index = 4 * 16 + 4  # of an open store, whose chunks are single rows
        if path.name == "open.zarr" and offset < file.stat().st_size - index:
            assert len(hit) == 1
        assert hit
        store = of.open_store(path)
        for item_id in hit:
            with pytest.raises(StoreError, match=f"{file}: .* obygaze stores repair"):
                store.read(array, [item_id])
        with pytest.raises(StoreError, match=f"^{file}: "):
            store.read(array, missing="drop")
        left = [item_id for item_id in store.done_ids() if item_id not in hit]
        rows = [store.ids.index(item_id) for item_id in left]
        np.testing.assert_array_equal(store.read(array, left), values[array][rows])
    finally:
        flip_bit(file, offset, bit)


@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), data=st.data())
def test_a_flipped_bit_of_any_other_file_is_found(files, share, bit, data):
    path, _, others, _ = files
    file = data.draw(st.sampled_from(others))
    offset = int(share * file.stat().st_size)
    flip_bit(file, offset, bit)
    try:
        assert of.verify(path)
    finally:
        flip_bit(file, offset, bit)


@pytest.mark.parametrize(
    ("spoil", "file", "ids"),
    [
        (lambda p: flip_bit(p / "native/c/1/0", 40), "native/c/1/0", BLOCK_1[1:2]),
        (lambda p: flip_bit(p / "blocks/000001.json", 40), "blocks/000001.json", BLOCK_1),
        (lambda p: (p / "native/c/2/0").unlink(), "native/c/2/0", BLOCK_2),
        # Its checksums are right, but it is not the shard that the record names.
        (lambda p: shutil.copyfile(p / SHARD, p / "native/c/2/0"), "native/c/2/0", BLOCK_2),
    ],
)
def test_repair_and_extraction_restore_the_store(path, sound, spoil, file, ids):
    spoil(path)
    [entry] = of.verify(path)
    assert (entry.file, entry.ids) == (file, ids)
    assert of.repair(path) == [entry]
    store = of.open_store(path)
    assert [store.ids[row] for row in store.missing_rows()] == list(ids)
    assert of.verify(path) == []
    toys.fill(toys.resume(path))
    assert toys.contents(path) == toys.contents(sound / "open.zarr")


def test_leftovers_of_a_killed_writer_leave_the_final_store(path, sound):
    names = {
        "staging/.0a.partial",
        "staging/000001.native.0123456789abcdef",
        "blocks/.000001.json.x.partial",
        "native/c/1/0.partial",
    }
    for name in names:
        (path / name).write_bytes(b"half a shard")
    assert of.verify(path) == []
    assert of.repair(path) == []
    of.finalise(path)
    assert toys.contents(path) == toys.contents(sound / "final.zarr")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", ["zarr.json", "native/zarr.json", "ids/c/0/0", "items.csv"])
def test_files_that_extraction_cannot_make_come_from_a_copy(copy, sound, state, name):
    store = copy(state)
    (store / name).unlink()
    assert name in {entry.file for entry in of.verify(store)}
    with pytest.raises(StoreError, match=name):
        of.repair(store)
    shutil.copyfile(sound / f"{state}.zarr" / name, store / name)
    assert of.repair(store) == []
    assert toys.contents(store) == toys.contents(sound / f"{state}.zarr")


def test_a_final_store_reopens_to_the_same_store(obygaze, final, sound):
    assert of.repair(final) == []
    assert of.open_store(final).is_final
    reopened = obygaze("stores", "repair", final, "--reopen", "--json", code=0)
    assert json.loads(reopened.stdout)["to_do"] == []
    assert toys.contents(final) == toys.contents(sound / "open.zarr")
    of.finalise(final)
    assert toys.contents(final) == toys.contents(sound / "final.zarr")


def test_a_damaged_probe_is_dropped(final):
    flip_bit(final / "probe/native/c/0/0", 3)
    assert [entry.file for entry in of.repair(final)] == ["probe/native/c/0/0"]
    assert of.verify(final) == []


def test_a_shard_of_another_store_is_damage(final, tmp_path):
    """Its chunks are intact, so the list may be wrong instead: no row is dropped."""
    second = toys.a_store(tmp_path / "other.zarr", film="tt2")
    of.finalise(second)
    (final / SHARD).chmod(0o644)
    shutil.copyfile(second / SHARD, final / SHARD)
    [entry] = of.verify(final)
    assert (entry.file, entry.why, entry.ids) == (SHARD, "it was changed", ())
    before = toys.contents(final)
    with pytest.raises(StoreError, match=f"{SHARD} cannot be repaired .*pull the store"):
        of.repair(final)
    assert toys.contents(final) == before
    (final / "checksums.json").unlink()
    with pytest.raises(StoreError, match=r"checksums\.json cannot be repaired .*pull the store"):
        of.repair(final)


@pytest.mark.parametrize(
    ("state", "name", "number"),
    [
        ("open", "native/c/2/0", errno.EIO),
        ("open", "blocks/000003.json", errno.EACCES),
        ("final", "rows.csv", errno.EIO),
    ],
)
def test_unreadable_files_are_not_reported_as_damage(copy, monkeypatch, state, name, number):
    path = copy(state)
    opened = Path.open
    before = toys.contents(path)

    def refuse(file, *args, **options):
        if file == path / name:
            raise OSError(number, os.strerror(number), str(file))
        return opened(file, *args, **options)

    monkeypatch.setattr(Path, "open", refuse)
    for change in (of.verify, of.repair):
        with pytest.raises(StoreUnreadable, match=f"{path / name}.*{os.strerror(number)}"):
            change(path)
    monkeypatch.undo()
    assert toys.contents(path) == before
    assert of.verify(path) == []


@pytest.mark.parametrize(("state", "count"), [("open", 1), ("final", 17)])
def test_repair_asks(obygaze, copy, state, count):
    path = copy(state)
    flip_bit(path / SHARD, 3)
    found = json.loads(obygaze("stores", "verify", path, "--json", code=1).stdout)
    [damage] = found["damage"]
    assert damage["file"] == SHARD
    assert damage["why"] == "it was changed"
    assert len(damage["ids"]) == count
    obygaze("stores", "repair", path, code=1)  # there is nobody to answer
    result = obygaze("stores", "repair", path, "--yes", "--json", code=3)
    assert len(json.loads(result.stdout)["to_do"]) == count
    assert of.verify(path) == []
