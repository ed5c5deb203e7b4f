"""A repair drops no intact row: not for a wrong list, not for a file that cannot be read now.

``tests/faults`` kills it at each system call.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import StoreError, StoreUnreadable
from obygaze_features.store import finalise, open_store, repair, verify
from tests.kit import store as toys
from tests.kit.store import flip_bit

SHARD = "native/c/0/0"


def fail_on(monkeypatch, file: Path, number: int) -> None:
    """Have the system refuse to open a file."""
    opened = Path.open

    def refuse(path, *args, **options):
        if path == file:
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", refuse)


@pytest.mark.parametrize("flips", [8, pytest.param(60, marks=pytest.mark.night)])
def test_flipped_bits_of_the_list_cost_no_row(copy, sound, flips):
    """Nothing covers checksums.json itself: it is named, and the store is to be pulled again."""
    path, whole = copy("final"), toys.contents(sound / "final.zarr")
    dice, status = random.Random(5), open_store(sound / "final.zarr").status
    for position in dice.sample(range(len(whole["checksums.json"])), flips):
        flip_bit(path / "checksums.json", position)
        before = toys.contents(path)
        if verify(path):  # a line end may turn into another space
            with contextlib.suppress(StoreError):
                assert repair(path).reopened  # for README.md or croissant.json
                before = {}
            assert not before or toys.contents(path) == before
        assert np.array_equal(open_store(path).status, status)
        shutil.rmtree(path)
        copy("final")
    (path / "checksums.json").unlink()
    with pytest.raises(StoreError, match=r"checksums\.json cannot be repaired .*pull the store"):
        repair(path)


def test_a_shard_of_another_store_is_damage(final, tmp_path):
    """Its chunks hold, so that the list may be wrong as well: no row is dropped."""
    other = toys.a_store(tmp_path / "other.zarr", film="tt2")
    finalise(other)
    (final / SHARD).chmod(0o644)
    shutil.copyfile(other / SHARD, final / SHARD)
    [entry] = verify(final)
    assert (entry.file, entry.why, entry.ids) == (SHARD, "it was changed", ())
    before = toys.contents(final)
    with pytest.raises(StoreError, match=f"{SHARD} cannot be repaired .*pull the store"):
        repair(final)
    assert toys.contents(final) == before


@pytest.mark.parametrize(
    ("state", "name", "number"),
    [
        ("open", "native/c/2/0", errno.EIO),
        ("open", "blocks/000003.json", errno.EACCES),
        ("open", "checksums.json", errno.EMFILE),
        ("final", "native/c/0/0", errno.EACCES),
        ("final", "status/c/0", errno.EMFILE),
        ("final", "rows.csv", errno.EIO),
        ("final", "frames/zarr.json", errno.EMFILE),
    ],
)
def test_what_cannot_be_read_now_is_no_damage(copy, monkeypatch, state, name, number):
    path = copy(state)
    before = toys.contents(path)
    fail_on(monkeypatch, path / name, number)
    for change in (verify, repair):
        with pytest.raises(StoreUnreadable, match=f"{path / name}.*{os.strerror(number)}"):
            change(path)
    monkeypatch.undo()
    assert toys.contents(path) == before
    assert verify(path) == []


@pytest.mark.parametrize(("state", "count"), [("open", 4), ("final", 18)])
def test_the_command_asks_and_keeps_what_it_drops(obygaze, copy, state, count):
    path = copy(state)
    flip_bit(path / SHARD, 3)
    before = toys.contents(path)
    asked = obygaze("stores", "repair", path)
    assert asked.exit_code == 1
    assert f"{count} rows to drop, and to compute again: tt1-000" in asked.stderr
    assert f"obygaze stores repair {path} --yes" in asked.stderr
    assert toys.contents(path) == before

    result = obygaze("stores", "repair", path, "--yes", "--json")
    answer = json.loads(result.stdout)
    aside = path.with_name("toy.zarr.before-repair")
    assert (result.exit_code, len(answer["to_do"]), answer["aside"]) == (3, count, str(aside))
    kept = toys.contents(aside)
    assert b"obygaze stores repair" in kept.pop("kept-by-repair.txt")
    assert kept.items() <= before.items()
    assert kept.keys() >= set(before if state == "final" else {"blocks/000000.json", SHARD})
    assert verify(path) == []
    if state == "final":
        assert open_store(aside).is_final
        return
    toys.fill(toys.resume(path), [0])
    flip_bit(path / SHARD, 4)
    assert f"as it was: {aside}-2 (remove it" in obygaze("stores", "repair", path, "--yes").stdout
    assert kept.items() <= toys.contents(aside).items()


def test_nothing_is_kept_through_a_link_that_is_there(path, tmp_path):
    """An archive may bring a folder of that name, with a link in it, beside its store."""
    elsewhere, aside = tmp_path / "elsewhere", path.with_name("toy.zarr.before-repair")
    (elsewhere / "c").mkdir(parents=True)
    aside.mkdir()
    (aside / "kept-by-repair.txt").write_text("ours, says a stranger")
    (aside / "native").symlink_to(elsewhere)
    flip_bit(path / SHARD, 3)
    assert repair(path).aside == path.with_name("toy.zarr.before-repair-2")
    assert list(elsewhere.rglob("*")) == [elsewhere / "c"]


def test_a_shard_that_lost_its_record_is_kept(path):
    before = toys.contents(path)
    del before["blocks/000002.json"]
    (path / "blocks/000002.json").unlink()
    flip_bit(path / SHARD, 3)  # and what is dropped goes to the same folder
    damaged = toys.contents(path)[SHARD]
    for file in path.rglob("*"):
        toys.age(file)
    result, before[SHARD] = repair(path), damaged
    assert before.items() <= {**toys.contents(path), **toys.contents(result.aside)}.items()
    assert (result.cleared, verify(path)) == ((), [])
