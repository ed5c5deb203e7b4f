"""Damage is found wherever it is, the rows are named, and a repair makes them missing."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import StoreError
from obygaze_features.store import finalise, open_store, repair, verify
from obygaze_features.store import format as spec
from obygaze_features.store.verify import Damage
from tests.store import toys

FLIPS = 50


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.a_store(tmp_path_factory.mktemp("sound") / "toy.zarr")


@pytest.fixture(scope="module")
def sound_final(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("final") / "toy.zarr"
    shutil.copytree(sound, path)
    finalise(path)
    return path


@pytest.fixture(scope="module")
def compressed(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compressed") / "toy.zarr"
    shutil.copytree(sound, path)
    finalise(path, compress=True)
    return path


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "toy.zarr")
    return tmp_path / "toy.zarr"


@pytest.fixture
def final(sound_final: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound_final, tmp_path / "final.zarr")
    return tmp_path / "final.zarr"


def flip(file: Path, offset: int, bit: int = 0) -> None:
    file.chmod(0o644)
    with file.open("r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 1 << bit]))


def harmful(path: Path) -> list[Damage]:
    return [entry for entry in verify(path) if not entry.harmless]


def data_files(path: Path) -> list[Path]:
    """Shards of the arrays, and nothing else."""
    return sorted(
        file
        for spec in toys.ARRAYS
        for file in (path / spec.name / "c").rglob("*")
        if file.is_file()
    )


def test_a_sound_store_is_sound(sound, sound_final, compressed):
    assert verify(sound) == verify(sound_final) == verify(compressed) == []


@pytest.mark.parametrize("state_name", ["sound", "sound_final", "compressed"])
def test_one_flipped_bit_is_always_found_and_its_rows_raise(state_name, request, tmp_path):
    original = request.getfixturevalue(state_name)
    copy = tmp_path / "toy.zarr"
    shutil.copytree(original, copy)
    dice = random.Random(7)
    files = data_files(copy)
    sizes = [file.stat().st_size for file in files]
    values = {
        spec.name: open_store(original).read(spec.name, missing="nan") for spec in toys.ARRAYS
    }
    named_one_row = 0
    for _ in range(FLIPS):
        [file] = dice.choices(files, sizes)
        offset, bit = dice.randrange(file.stat().st_size), dice.randrange(8)
        flip(file, offset, bit)

        reported = harmful(copy)
        name = file.relative_to(copy).as_posix()
        assert {entry.file for entry in reported} == {name}
        array = name.partition("/")[0]
        assert {entry.array for entry in reported} == {array}
        hit = {item_id for entry in reported for item_id in entry.ids}
        assert hit
        named_one_row += len(hit) == 1
        store = open_store(copy)
        for row, item_id in enumerate(store.ids):
            if row == toys.FAILED:
                continue
            if item_id in hit:
                with pytest.raises(StoreError, match="obygaze stores repair") as problem:
                    store.read(array, [item_id])
                assert item_id in str(problem.value)
            else:  # what is not named is as it was
                assert np.array_equal(store.read(array, [item_id])[0], values[array][row])

        flip(file, offset, bit)
    assert harmful(copy) == []
    if state_name == "sound":
        assert named_one_row > FLIPS / 4


def test_one_flipped_bit_in_any_small_file_is_found(path, final):
    """Records, metadata, ids, status, tables, probe and card, whole files at random places."""
    dice = random.Random(11)
    for store in (path, final):
        data = set(data_files(store))
        small = [
            file
            for file in sorted(store.rglob("*"))
            if file.is_file() and file not in data and file.name != spec.LOG
        ]
        for file in small:
            offset, bit = dice.randrange(file.stat().st_size), dice.randrange(8)
            flip(file, offset, bit)
            assert harmful(store), f"{file}, byte {offset}, bit {bit}"
            flip(file, offset, bit)
        assert harmful(store) == []


@pytest.mark.parametrize("name", ["native/c/1/0", "blocks/000001.json"])
def test_repair_and_extraction_give_the_undamaged_store_again(path, sound, name):
    flip(path / name, 40)
    done = repair(path)
    assert done.to_do == ("tt1-004", "tt1-005", "tt1-006", "tt1-007")
    assert not done.reopened
    assert open_store(path).status.tolist() == [1] * 4 + [0] * 4 + [1] * 10
    assert verify(path) == []
    toys.fill(toys.resume(path))
    assert toys.contents(path) == toys.contents(sound)


def test_every_block_hit_repair_every_block(path, sound):
    for block in range(5):
        flip(path / f"frames/c/{block}/0/0", 3)
    assert len(repair(path).to_do) == 18
    assert toys.resume(path).missing_blocks() == [0, 1, 2, 3, 4]
    toys.fill(toys.resume(path))
    assert toys.contents(path) == toys.contents(sound)


def test_a_shard_that_is_lost_is_named(path):
    (path / "native/c/2/0").unlink()
    [reported] = verify(path)
    assert reported.file == "native/c/2/0"
    assert reported.ids == ("tt1-008", "tt1-009", "tt1-010", "tt1-011")
    assert reported.why == "it is missing"


def test_a_shard_of_another_block_is_noticed(path):
    """Each of its checksums is right, yet it is not what the record names."""
    shutil.copyfile(path / "native/c/0/0", path / "native/c/2/0")
    [reported] = verify(path)
    assert reported.ids == ("tt1-008", "tt1-009", "tt1-010", "tt1-011")
    assert reported.why == "it was changed"


def test_a_committed_shard_is_found_where_a_kill_left_it(path):
    """Between the commit and the move it lies in staging/, and that is no damage."""
    store = open_store(path)
    record = store.record_of(1)
    (native, *_) = store.specs
    (path / "native/c/1/0").rename(path / spec.staged_name(native, 1, record.shards["native"]))
    assert verify(path) == []
    repair(path)
    assert (path / "native/c/1/0").exists()


def test_what_a_killed_writer_left_is_harmless_and_cleared(path, sound):
    leftovers = [
        path / "staging/.0a.partial",
        path / "staging/000001.native.0123456789abcdef",
        path / "blocks/.000001.json.x.partial",
        path / "native/c/1/0.partial",
    ]
    for file in leftovers:
        file.write_bytes(b"half a shard")
    beside = path.parent / ".toy.zarr.0a1b2c3d_7_x1.partial"
    beside.mkdir()
    reported = verify(path)
    assert all(entry.harmless for entry in reported)
    assert {entry.file for entry in reported} == {
        file.relative_to(path).as_posix() for file in leftovers
    }
    # What is young may be of a writer who is alive.
    assert len(repair(path).left) == 5
    for offset in [*leftovers, beside]:
        toys.age(offset)
    result = repair(path)
    assert len(result.cleared) == 4
    assert result.aside
    assert toys.contents(result.aside)["native/c/1/0.partial"] == b"half a shard"
    assert toys.contents(path) == toys.contents(sound)
    assert not beside.exists()


def test_stale_claims_are_cleared_and_living_ones_respected(path):
    claim = path / "claims/000003.json"
    claim.write_text(json.dumps({"owner": "x", "host": "elsewhere", "process": 1}))
    with pytest.raises(StoreError, match="a process is writing block 3"):
        repair(path)
    toys.age(claim)
    assert repair(path).cleared == ("claims/000003.json",)
    assert repair(path).cleared == ()


@pytest.mark.parametrize("state", ["path", "final"])
@pytest.mark.parametrize("name", ["native/zarr.json", "ids/c/0/0", "ids/zarr.json", "items.csv"])
def test_a_file_that_no_extraction_makes_is_restored_from_a_copy(state, name, request):
    store = request.getfixturevalue(state)
    original_bytes, before = (store / name).read_bytes(), toys.contents(store)
    (store / name).unlink()
    assert name in {entry.file for entry in harmful(store)}
    with pytest.raises(StoreError, match=name):
        repair(store)
    (store / name).write_bytes(original_bytes)
    assert repair(store).damage == ()
    assert toys.contents(store) == before


@pytest.mark.parametrize("name", ["zarr.json", "items.csv", "probe/native/c/0/0"])
def test_the_checksum_of_the_copy_to_restore_is_named(path, name):
    sha256 = json.loads((path / "checksums.json").read_text())[name]
    at = {"zarr.json": b"made-up", "items.csv": b"tt1-003"}.get(name)
    flip(path / name, (path / name).read_bytes().index(at) if at else 2)
    with pytest.raises(
        StoreError, match=f"{name} cannot be repaired .*{sha256}|{name}.*restore it"
    ):
        repair(path)


@pytest.mark.parametrize("state_name", ["sound_final", "compressed"])
def test_a_damaged_final_store_is_opened_again(state_name, request, tmp_path):
    path = tmp_path / "toy.zarr"
    shutil.copytree(request.getfixturevalue(state_name), path)
    # frames has a row a chunk only where rows are large; here one chunk holds them all.
    flip(path / "native/c/0/0", 5)
    done = repair(path)
    assert done.reopened
    store = open_store(path)
    assert not store.is_final
    assert set(done.to_do) == set(store.ids)
    assert verify(path) == []
    toys.fill(toys.resume(path))
    sound = request.getfixturevalue("sound")
    assert toys.contents(path) == toys.contents(sound)


def test_open_final_open_is_the_same_store_and_final_again(final, sound, sound_final):
    assert not repair(final).reopened
    assert repair(final, reopen=True).reopened
    assert toys.contents(final) == toys.contents(sound)
    lines = (final / "log.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events == ["created", "finalised", "reopened"]
    finalise(final)
    assert toys.contents(final) == toys.contents(sound_final)


@pytest.mark.parametrize("name", ["README.md", "probe/native/c/0/0"])
def test_damage_to_what_no_row_needs_costs_no_row(final, sound_final, name):
    flip(final / name, 5)
    done = repair(final)
    assert done.reopened
    assert done.to_do == ()
    assert (open_store(final).status > 0).all()
    if name == "README.md":
        finalise(final)
        assert toys.contents(final) == toys.contents(sound_final)
    else:
        assert not (final / "probe").exists()


@pytest.mark.parametrize("content", [None, "[", "[]"])
def test_a_list_of_checksums_that_is_lost_is_named(path, content):
    (path / "checksums.json").unlink()
    if content is not None:
        (path / "checksums.json").write_text(content)
    assert [entry.file for entry in verify(path)] == ["checksums.json"]
    with pytest.raises(StoreError, match=r"checksums.json cannot be repaired"):
        repair(path)


@pytest.mark.parametrize("name", ["a\0b", "../outside", "/etc/hostname", ""])
def test_a_list_of_checksums_names_only_files_of_the_store(final, name):
    outside = final.parent / "outside"
    outside.write_text("precious")
    listed = final / "checksums.json"
    listed.chmod(0o644)
    sha256 = hashlib.sha256(b"precious").hexdigest()
    listed.write_text(json.dumps({**json.loads(listed.read_text()), name: sha256}))
    damage = [entry for entry in verify(final) if not entry.harmless]
    assert any("such a name" in entry.why for entry in damage), damage


def test_intact_blocks_of_a_damaged_final_store_stay(tmp_path):
    """Rows over 16 KiB have chunks of their own, so that one block alone is hit."""
    from dataclasses import replace

    from obygaze_features.store import ArraySpec, Done, StoreWriter

    recipe = replace(toys.RECIPE, arrays=(ArraySpec("tokens", (80, 128), "float16", "large"),))
    manifest = toys.a_manifest(10)
    writer = StoreWriter.create(tmp_path / "toy.zarr", manifest, recipe, block_rows=4)

    def compute(row: int) -> Done:
        return Done({"tokens": np.random.default_rng(row).normal(size=(80, 128))}, "ab")

    toys.fill(writer, None, compute)
    before = toys.contents(tmp_path / "toy.zarr")
    finalise(tmp_path / "toy.zarr")
    flip(tmp_path / "toy.zarr/tokens/c/0/0/0", 5 * (80 * 128 * 2 + 4) + 17)
    [reported] = verify(tmp_path / "toy.zarr")
    assert reported.ids == ("tt1-005",)
    done = repair(tmp_path / "toy.zarr")
    assert done.to_do == ("tt1-004", "tt1-005", "tt1-006", "tt1-007")
    writer = StoreWriter.resume(tmp_path / "toy.zarr", manifest, recipe, block_rows=4)
    assert writer.missing_blocks() == [1]
    toys.fill(writer, None, compute)
    assert toys.contents(tmp_path / "toy.zarr") == before


def test_a_store_lost_between_two_renames_is_put_back(path, sound):
    path.rename(path.parent / ".toy.zarr.0a1b2c3d_7_abc.replaced")
    assert repair(path).restored == ("toy.zarr",)
    assert toys.contents(path) == toys.contents(sound)


def test_what_never_was_a_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is not a feature store"):
        verify(tmp_path)
