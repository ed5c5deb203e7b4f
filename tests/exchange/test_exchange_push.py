"""Whole stores to elsewhere: resumed, verified, and never over something else."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import diff, finalise, open_store, repair, verify
from obygaze_features.store.pack import pack
from obygaze_features.store.pull import pull
from obygaze_features.store.push import push
from obygaze_features.store.remote import open_file_system
from tests.exchange.travelling import files_of, obygaze
from tests.kit import store as toys
from tests.kit.servers import bucket, relay
from tests.kit.store import flip_bit


@pytest.fixture(params=["folder", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "shared" / "toy.zarr")
    else:
        name = f"shared-{tmp_path.name.lower().replace('_', '-')[-40:]}"  # the server forgets none
        with bucket(name):
            yield f"s3://{name}/lab/toy.zarr"


def test_what_is_pushed_is_what_is_read_there(target, final_store, other_store, tmp_path):
    done = push(final_store, target)
    assert (done["where"], done["files"]) == (target, len(files_of(final_store)))
    assert done["sent"] == done["files"]
    assert verify(target) == []
    assert diff(open_store(target), open_store(final_store)).identical
    assert files_of(pull(target, tmp_path / "back.zarr")["path"]) == files_of(final_store)
    assert push(final_store, target)["sent"] == 0
    with pytest.raises(StoreError, match=r"toy.zarr holds another store"):
        push(other_store, target)
    assert verify(target) == []


@pytest.mark.parametrize("share", [0, 0.02, 0.9])
def test_a_push_that_was_cut_off_in_its_first_file_is_resumed(share, final_store, tmp_path):
    target = tmp_path / "shared/toy.zarr"
    target.mkdir(parents=True)
    listed = (final_store / "checksums.json").read_bytes()
    (target / "checksums.json").write_bytes(listed[: int(share * len(listed))])
    push(final_store, target)
    assert verify(target) == []
    assert files_of(target) == files_of(final_store)


def test_a_link_in_the_place_of_the_log_is_not_followed(final_store, tmp_path):
    """Of all files of a store the log alone has no checksum."""
    (tmp_path / "secret").write_text("key")
    store = Path(shutil.copytree(final_store, tmp_path / "toy.zarr"))
    (store / "log.jsonl").unlink()
    (store / "log.jsonl").symlink_to(tmp_path / "secret")
    for send in (
        lambda: push(store, tmp_path / "there.zarr"),
        lambda: pack(store, tmp_path / "toy.zip"),
        lambda: repair(store, reopen=True),
    ):
        with pytest.raises(StoreError, match=r"log\.jsonl is a link"):
            send()
    assert [entry.file for entry in verify(store) if not entry.harmless] == ["log.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "toy.zarr"]
    unfinished = toys.a_store(tmp_path / "open.zarr")
    (unfinished / "log.jsonl").unlink()
    (unfinished / "log.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match=r"log\.jsonl is a link"):
        finalise(unfinished)
    with pytest.raises(StoreError, match=r"log\.jsonl is a link"):
        toys.resume(unfinished).log("extracted")
    (unfinished / "log.jsonl").unlink()
    shutil.rmtree(unfinished / "probe")
    (unfinished / "probe").symlink_to(tmp_path)
    with pytest.raises(StoreError, match=r"probe is a link"):
        finalise(unfinished)
    assert (tmp_path / "secret").read_text() == "key"


@pytest.mark.gate
def test_a_folder_gets_a_store_under_its_own_name(target, final_store, other_store):
    """As cp does; a second store goes beside the first, and none goes into another."""
    folder = target.rpartition("/")[0]
    for _ in range(2):
        done = push(other_store, f"{folder}/")
        assert done["where"] == f"{folder}/other.zarr"
    assert done["sent"] == 0
    assert push(other_store, f"{folder}/other.zarr")["sent"] == 0
    assert push(final_store, target)["where"] == target
    assert verify(f"{folder}/other.zarr") == verify(target) == []
    for inside in (f"{target}/copy.zarr", f"{target}/native", f"{target}/native/c"):
        with pytest.raises(UsageError, match=r"is inside the store \S*/toy.zarr"):
            push(final_store, inside)
    assert verify(target) == []


def test_a_store_without_the_ending_stays_a_place(final_store, other_store, tmp_path):
    """A folder that a push filled before stores went under their own names."""
    shutil.copytree(final_store, tmp_path / "shared")
    assert push(final_store, tmp_path / "shared")["sent"] == 0
    with pytest.raises(StoreError, match="holds another store"):
        push(other_store, tmp_path / "shared")


@pytest.mark.gate
def test_a_push_that_was_cut_off_goes_on(target, final_store, other_store):
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


@pytest.mark.gate
def test_a_push_killed_three_times_at_random_bytes_goes_on(large_store, tmp_path):
    chance = np.random.default_rng(5)
    with bucket("killed"), relay(os.environ["AWS_ENDPOINT_URL"]) as way:
        target = "s3://killed/large.zarr"
        for _ in range(3):
            running = obygaze("push", large_store, target, AWS_ENDPOINT_URL=way.url)
            way.after = int(chance.integers(20_000, 500_000))
            way.then = lambda: running.send_signal(signal.SIGKILL)  # noqa: B023  # called now
            running.communicate(timeout=600)
            assert running.returncode == -signal.SIGKILL
            with pytest.raises(StoreError, match="a push to it was cut off"):
                open_store(target)
        way.after = 10**12
        last = obygaze("push", large_store, target, "--json", AWS_ENDPOINT_URL=way.url)
        told = json.loads(last.communicate(timeout=600)[0])
        assert 0 < told["sent"] < told["files"]
        assert verify(target) == []
        assert files_of(pull(target, tmp_path / "back.zarr")["path"]) == files_of(large_store)


def test_a_store_that_is_damaged_here_is_not_offered_there(target, final_store, tmp_path):
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
    flip_bit(own / "rows.csv", 20)
    with pytest.raises(StoreError, match=r"rows.csv is not as it was.*; run: .*verify .*/own.zarr"):
        push(own, target)
    with pytest.raises(StoreError, match="a push to it was cut off"):
        open_store(target)


def test_what_is_damaged_here_does_not_replace_what_is_whole_there(target, final_store, tmp_path):
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
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


def test_only_the_stores_own_files_are_sent(target, final_store, tmp_path):
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
    (own / "notes.txt").write_text("private")
    assert push(own, target)["left_out"] == ["notes.txt"]
    assert files_of(pull(target, tmp_path / "back.zarr")["path"]) == files_of(final_store)
    own = Path(shutil.copytree(final_store, tmp_path / "strange.zarr"))
    (tmp_path / "secret").write_text("private")
    listed = json.loads((own / "checksums.json").read_text())
    for name in ("../secret", "notes"):
        (own / "checksums.json").chmod(0o644)
        (own / "checksums.json").write_text(json.dumps({name: "0" * 64, **listed}))
        with pytest.raises(StoreError, match=f"lists '{name}', not a store's file"):
            push(own, f"{target}.other")
    with pytest.raises(StoreError, match=r"there is nothing at|does not exist"):
        open_store(f"{target}.other")


def test_of_two_that_push_at_once_one_gets_the_place(final_store, other_store, tmp_path):
    """The other's list comes over ours, when both saw that there is nothing yet."""
    from fsspec.implementations.local import LocalFileSystem

    put = LocalFileSystem.put_file

    def meanwhile(self, here, there, **options):
        put(self, here, there, **options)
        shutil.copyfile(other_store / "checksums.json", tmp_path / "x.zarr/meanwhile")
        (tmp_path / "x.zarr/meanwhile").replace(tmp_path / "x.zarr/checksums.json")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalFileSystem, "put_file", meanwhile)
        with pytest.raises(StoreError, match="holds another store"):
            push(final_store, tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr/zarr.json").exists()


def test_what_cannot_be_pushed_is_one_line(final_store, tmp_path):
    (tmp_path / "films.zarr").mkdir()
    (tmp_path / "films.zarr/one.mkv").write_text("precious")
    with pytest.raises(StoreError, match=r"films.zarr holds something else, such as one.mkv"):
        push(final_store, tmp_path / "films.zarr")
    assert files_of(tmp_path / "films.zarr") == {"one.mkv": b"precious"}
    toys.a_store(tmp_path / "open.zarr")
    with pytest.raises(StoreError, match=r"is still open.*run: obygaze stores finalise"):
        push(tmp_path / "open.zarr", tmp_path / "x.zarr")
    with pytest.raises(UsageError, match="nothing is sent over HTTP"):
        push(final_store, "https://lab.example/x.zarr")
    with pytest.raises(UsageError, match="is the store itself"):
        push(final_store, final_store)
    with pytest.raises(UsageError, match="is inside the store"):
        push(final_store, final_store / "copy")
    with pytest.raises(UsageError, match="give hf://datasets/OWNER/NAME"):
        push(final_store, "hf://models/x")
    with pytest.raises(UsageError, match=r"nonsense://x: .*'nonsense' addresses"):
        push(final_store, "nonsense://x")
