"""Writers that were killed, overtaken or failed by the disk: what counts, who may resume.
``tests/faults`` kills writers at each system call."""

import contextlib
import errno
import importlib
import json
import os
import signal
import time
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import BlockTaken, StoreError, StoreUnreadable
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import Done, Failed, Status, StoreWriter, commit
from obygaze_features.store.claims import BlockClaims, Claims
from obygaze_features.store.finalise import finalise
from obygaze_features.store.verify import verify
from tests.kit import store as toys
from tests.kit.store import plain_recipe

#: The module; the package has a function of that name.
finalising = importlib.import_module("obygaze_features.store.finalise")
MANIFEST = Manifest("made-up", Items.of([Item(f"tt{row}") for row in range(4)]))
RECIPE = plain_recipe()
BROKEN = Failed(Status.UNREADABLE, "broken")


def row(number: float) -> Done:
    return Done({"native": np.full(3, number)}, "ab" * 32)


@pytest.fixture(params=["hard links", "no hard links"])
def path(tmp_path, request):
    """An empty store on a disk such as ext4, and on one such as exFAT."""
    with pytest.MonkeyPatch.context() as disk:
        if request.param == "no hard links":
            refused = PermissionError(errno.EPERM, "Operation not permitted")
            disk.setattr(os, "link", Mock(side_effect=refused))
        StoreWriter.create(tmp_path / "toy.zarr", MANIFEST, RECIPE, block_rows=2)
        yield tmp_path / "toy.zarr"


def resume(path) -> StoreWriter:
    return StoreWriter.resume(str(path), MANIFEST, RECIPE, block_rows=2)


def native(path) -> list[float]:
    return of.open_store(path).read("native", missing="nan")[:, 0].tolist()


def test_shards_of_a_killed_run_do_not_enter_the_block(path):
    writer = resume(path)
    writer.write_block(0, [row(1), row(1)])
    (path / "blocks/000000.json").unlink()
    (path / "staging/.1f2e.partial").write_bytes(b"half")
    (path / "staging/000000.native.0123456789abcdef").write_bytes(b"whole, and of no record")
    assert of.open_store(path).status.tolist() == [0] * 4
    resume(path).write_block(0, [BROKEN, row(2)])
    assert np.isnan(native(path)[0])
    fresh = StoreWriter.create(path.with_name("fresh.zarr"), MANIFEST, RECIPE, block_rows=2)
    fresh.write_block(0, [BROKEN, row(2)])
    for name in ("native/c/0", "blocks"):
        files = {file.name: file.read_bytes() for file in (path / name).iterdir()}
        expected = (path.with_name("fresh.zarr") / name).iterdir()
        assert files == {file.name: file.read_bytes() for file in expected}


def test_committed_shards_are_read_and_moved_from_staging(path):
    record = resume(path).write_block(0, [row(1), row(2)])
    staged = path / f"staging/000000.native.{record.shards['native'][:16]}"
    os.replace(path / "native/c/0/0", staged)
    assert native(path)[:2] == [1, 2]
    assert verify(path) == []
    resume(path)
    assert not staged.exists()
    assert native(path)[:2] == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_record_without_its_name_is_not_a_block(path, monkeypatch):
    """The process is killed before the file gets its name."""
    writer = resume(path)
    child = os.fork()
    if not child:
        step = "os.rename" if isinstance(os.link, Mock) else "os.link"
        monkeypatch.setattr(step, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        with contextlib.suppress(BaseException):
            writer.write_block(0, [row(1), row(1)])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert len([*(path / "blocks").iterdir()]) == 1
    assert of.open_store(path).status.tolist() == [0] * 4
    assert [entry for entry in verify(path) if not entry.harmless] == []
    resume(path).write_block(0, [row(2), row(2)])
    assert native(path)[:2] == [2, 2]


def overtaken(monkeypatch, name, meanwhile, after=False):
    """Run something just before or after the next call of a function in the commit."""
    call = getattr(commit, name)

    def overtaken(*args):
        monkeypatch.undo()
        if not after:
            meanwhile()
        result = call(*args)
        if after:
            meanwhile()
        return result

    monkeypatch.setattr(commit, name, overtaken)


def test_the_second_writer_of_a_block_is_told(path, monkeypatch):
    first, second = resume(path), resume(path)
    overtaken(monkeypatch, "write_shard", lambda: first.write_block(0, [row(1), row(1)]))
    with pytest.raises(StoreError, match="another process wrote block 0"):
        second.write_block(0, [row(2), row(2)])
    assert of.open_store(path).status.tolist() == [1, 1, 0, 0]
    assert native(path)[:2] == [1, 1]
    assert list((path / "staging").iterdir()) == []


def test_a_finalised_store_refuses_its_writer(path, monkeypatch):
    """Finalise before the writer begins, or after its shards but before the record."""
    resume(path).write_block(0, [row(1), row(2)])
    late, later = resume(path), resume(path)
    finish = partial(finalise, path, allow_incomplete=True)
    overtaken(monkeypatch, "sync_path", finish, after=True)
    for writer in (late, later):
        with pytest.raises(StoreError, match="was finalised while rows were being written"):
            writer.write_block(1, [row(3), row(4)])
    assert of.open_store(path).status.tolist() == [1, 1, 0, 0]
    assert native(path)[:2] == [1, 2]
    assert verify(path) == []


def test_finalise_yields_to_an_active_writer(path, monkeypatch):
    writer, fill = resume(path), finalising._write_final
    writer.write_block(0, [row(0), row(1)])

    def overtaken(*args, **options):
        fill(*args, **options)
        writer.write_block(1, [row(2), row(3)])

    with monkeypatch.context() as patch:
        patch.setattr(finalising, "_write_final", overtaken)
        with pytest.raises(StoreError, match="another process wrote to it meanwhile"):
            finalise(path, allow_incomplete=True)
    assert native(path) == [0, 1, 2, 3]
    assert verify(path) == []
    asked, unasked = of.open_store(path), of.open_store(path)
    assert asked.status.all()
    finalise(path)
    assert native(path) == [0, 1, 2, 3]
    for store in (asked, unasked):  # a reader is told
        with pytest.raises(StoreUnreadable, match=r"has been replaced .*; open it again"):
            store.read("native", missing="nan")


@pytest.mark.parametrize("step", ["write_shard", "publish_exclusively", "move_shards"])
def test_a_retry_that_is_killed_loses_nothing(path, monkeypatch, step):
    resume(path).write_block(0, [row(1), BROKEN])
    running, writer = resume(path), resume(path)
    with monkeypatch.context() as patch:
        patch.setattr(commit, step, Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            writer.rewrite(0, {1: row(2)})
    if step == "publish_exclusively":  # between two records of the block
        assert running.missing_blocks() == [1]
        with pytest.raises(BlockTaken):
            running.write_block(0, [BROKEN, BROKEN])
    resume(path)
    assert [file for file in (path / "staging").iterdir() if "retired" in file.name] == []
    assert of.open_store(path).status.tolist() == [1, 1 if step == "move_shards" else 3, 0, 0]
    assert native(path)[0] == 1
    resume(path).rewrite(0, {0: row(9), 1: row(2)})
    assert native(path)[:2] == [1, 2]  # finished work is not repeated
    assert of.open_store(path).failures == {}
    assert [entry for entry in verify(path) if not entry.harmless] == []


@pytest.mark.parametrize("between", [True, False])
def test_a_retry_of_an_older_record_leaves_the_newer_one(path, monkeypatch, between):
    assert resume(path).write_block(0, [BROKEN, BROKEN]).shards == {"native": None}
    first, second = resume(path), resume(path)

    def meanwhile():
        first.rewrite(0, {0: row(2)})
        if between:  # as if the first were between its two records
            (path / "blocks/000000.json").unlink()

    overtaken(monkeypatch, "write_shard", meanwhile)
    with pytest.raises(BlockTaken, match="is rewriting block 0"):
        second.rewrite(0, {1: row(3)})
    assert list((path / "staging").iterdir()) == []
    if not between:
        assert of.open_store(path).status.tolist()[:2] == [1, 3]
        assert verify(path) == []


def test_claims_name_their_owner(tmp_path):
    ours, second = (Claims(tmp_path / "claims", lease=0.2) for _ in range(2))
    with ours.heartbeat():
        assert ours.take(3)
        time.sleep(0.5)
        assert not second.take(3)
        assert second.active_blocks() == [3]
        dead = tmp_path / "claims/000005.json"
        owner = {"owner": "x", "host": os.uname().nodename, "process": 2**22 + 1}
        dead.write_text(json.dumps(owner))
        assert second.take(5)
        second.release(5)
    assert second.active_blocks() == []
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Not a directory"):
        Claims(tmp_path / "file/claims").take(3)


def test_an_expired_lease_is_taken_over(tmp_path):
    path = toys.a_store(tmp_path / "toy.zarr", blocks=[])
    writers = [toys.resume(path) for _ in range(2)]
    paused, second = (BlockClaims({"": writer}) for writer in writers)
    block, rows = [toys.a_row(row) for row in range(12, 16)], {"": range(12, 16)}
    assert paused.take(3, rows)
    assert not second.take(3, rows)
    toys.age(path / "claims/000003.json")
    assert second.take(3, rows) == {"": [12, 13, 14, 15]}
    paused.release(3, [""])  # which is another's by now
    assert not paused.take(3, rows)
    writers[1].write_block(3, block)
    with pytest.raises(BlockTaken, match="block 3"):
        writers[0].write_block(3, block)
    second.release(3, [""])
    assert paused.take(3, rows) == {}
    assert list((path / "claims").iterdir()) == []
    assert verify(path) == []


def test_a_claim_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    """Two writers start a block together; the later one must keep the claim."""
    first, late = Claims(tmp_path / "claims"), Claims(tmp_path / "claims")
    exists, claimed = Path.exists, []

    def exists_just_before_the_other_takes(path):
        result = exists(path)
        if path.name == "000003.json" and not claimed:
            claimed.append(True)
            assert first.take(3)
        return result

    with first.heartbeat():
        monkeypatch.setattr(Path, "exists", exists_just_before_the_other_takes)
        assert not late.take(3)
