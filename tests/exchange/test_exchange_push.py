"""Whole stores to elsewhere: resumed, verified, and never over something else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import diff, open_store, verify
from obygaze_features.store.pull import pull
from obygaze_features.store.push import push
from obygaze_features.store.remote import open_file_system
from tests.exchange.conftest import files_of
from tests.store.making import flip_bit
from tests.store.s3 import bucket


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.gate)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "shared" / "toy.zarr")
    else:
        name = f"shared-{tmp_path.name.lower().replace('_', '-')[-40:]}"  # the server forgets none
        with bucket(name):
            yield f"s3://{name}/lab/toy.zarr"


@pytest.fixture
def own(final_store, tmp_path):
    return Path(shutil.copytree(final_store, tmp_path / "own.zarr"))


def test_what_is_pushed_is_what_is_read_there(target, final_store, own, other_store, tmp_path):
    (own / "notes.txt").write_text("private")
    result = push(own, target)
    assert (result["where"], result["left_out"]) == (target, ["notes.txt"])
    assert result["files"] == result["sent"] == len(files_of(final_store))
    assert verify(target) == []
    assert diff(open_store(target), open_store(final_store)).identical
    assert files_of(pull(target, tmp_path / "back.zarr")["path"]) == files_of(final_store)
    assert push(final_store, target)["sent"] == 0
    with pytest.raises(StoreError, match=r"toy.zarr holds another store"):
        push(other_store, target)
    # A folder gets a store under its own name, as with cp, and none goes into another.
    folder = target.rpartition("/")[0]
    for _ in range(2):
        result = push(other_store, f"{folder}/")
        assert result["where"] == f"{folder}/other.zarr"
    assert result["sent"] == push(other_store, f"{folder}/other.zarr")["sent"] == 0
    for inside in (f"{target}/copy.zarr", f"{target}/native", f"{target}/native/c"):
        with pytest.raises(UsageError, match=r"is inside the store \S*/toy.zarr"):
            push(final_store, inside)
    assert verify(f"{folder}/other.zarr") == verify(target) == []


@pytest.mark.parametrize("share", [0, 0.02, 0.9])
def test_a_push_that_was_cut_off_in_its_first_file_is_resumed(share, final_store, tmp_path):
    target = tmp_path / "shared/toy.zarr"
    target.mkdir(parents=True)
    listed = (final_store / "checksums.json").read_bytes()
    (target / "checksums.json").write_bytes(listed[: int(share * len(listed))])
    push(final_store, target)
    assert verify(target) == []
    assert files_of(target) == files_of(final_store)


def test_a_push_that_was_cut_off_is_resumed(target, final_store, other_store):
    """What is there is looked at again, and what is damaged is sent again."""
    push(final_store, target)
    system, root, _ = open_file_system(target)
    for name in ("zarr.json", "native/c/0/0"):
        system.rm_file(f"{root}/{name}")
    system.pipe_file(f"{root}/rows.csv", b"half of it")
    damaged = bytearray((final_store / "frames/c/0/0/0").read_bytes())
    damaged[9] ^= 1
    system.pipe_file(f"{root}/frames/c/0/0/0", bytes(damaged))
    with pytest.raises(StoreError, match="a push to it was cut off"):
        open_store(target)
    with pytest.raises(StoreError, match="holds another store"):
        push(other_store, target)
    assert push(final_store, target)["sent"] == 4
    assert verify(target) == []


def test_a_store_without_the_ending_stays_where_it_is(final_store, other_store, tmp_path):
    """A folder that a push filled before stores went under their own names."""
    shutil.copytree(final_store, tmp_path / "shared")
    assert push(final_store, tmp_path / "shared")["sent"] == 0
    with pytest.raises(StoreError, match="holds another store"):
        push(other_store, tmp_path / "shared")


def test_what_is_damaged_here_does_not_replace_what_is_whole_there(target, final_store, own):
    push(own, target)
    shard = own / "frames/c/0/0/0"
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 is not as it was written, so the store "):
        push(own, target)
    shard.unlink()
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 cannot be read \(No such file"):
        push(own, target)
    assert verify(target) == []
    shutil.copyfile(final_store / "frames/c/0/0/0", shard)
    flip_bit(own / "rows.csv", 20)
    with pytest.raises(StoreError, match=r"rows.csv is not as it was.*; run: .*verify .*/own.zarr"):
        push(own, f"{target}.zarr")
    with pytest.raises(StoreError, match="a push to it was cut off"):
        open_store(f"{target}.zarr")


def test_of_two_that_push_together_one_gets_the_target(
    final_store, other_store, tmp_path, monkeypatch
):
    """The other's list comes over ours, when both saw that there is nothing yet."""
    from fsspec.implementations.local import LocalFileSystem

    put = LocalFileSystem.put_file

    def meanwhile(self, source, target, **options):
        put(self, source, target, **options)
        shutil.copyfile(other_store / "checksums.json", tmp_path / "x.zarr/meanwhile")
        (tmp_path / "x.zarr/meanwhile").replace(tmp_path / "x.zarr/checksums.json")

    monkeypatch.setattr(LocalFileSystem, "put_file", meanwhile)
    with pytest.raises(StoreError, match="holds another store"):
        push(final_store, tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr/zarr.json").exists()
