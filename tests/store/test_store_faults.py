"""Writers that are killed, stopped, or that the disk fails: nothing is lost, nothing is wrong."""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import StoreError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import (
    ArraySpec,
    Done,
    Failed,
    Status,
    StoreWriter,
    commit,
    finalise,
    open_store,
    repair,
    shards,
    subset,
    verify,
)
from obygaze_features.store.claims import Claims
from tests.kit import store as toys

PHASES = ("starting", "computing", "writing", "fsync", "commit", "finished")
IN_WRITING = PHASES[2:5]
ROWS, BLOCK_ROWS = 48, 3
MANIFEST = Manifest("made-up", Items.of([Item(f"tt{row:03}") for row in range(ROWS)]))
RECIPE = toys.plain_recipe(
    ArraySpec("native", (512,), "float32", "small"),
    ArraySpec("tokens", (1024, 512), "float16", "large"),
)


def compute(row: int) -> Done | Failed:
    if row % 10 == 7:
        return Failed(Status.MISSING, f"clip {row} is not there")
    native = np.random.default_rng(row).normal(size=512)
    return Done({"native": native, "tokens": np.tile(native, (1024, 1))}, f"{row:064x}")


def new_store(path: Path) -> StoreWriter:
    return StoreWriter.create(path, MANIFEST, RECIPE, block_rows=BLOCK_ROWS)


def resume(path: Path) -> StoreWriter:
    return StoreWriter.resume(path, MANIFEST, RECIPE, block_rows=BLOCK_ROWS)


# What follows runs in processes of their own, which tell what they do when they are killed.


def write_all(path: Path, seen: Path) -> None:
    """Write all missing blocks, one after the other."""
    note = observe(seen)
    writer = resume(path)
    for block in writer.missing_blocks():
        note("computing", f"started {block}")
        rows = [compute(row) for row in writer.rows_of(block)]
        note("writing")
        writer.write_block(block, rows)
        note("computing", f"written {block}")
    note("finished")


def write_by_claims(path: Path, seen: Path, lease: float, pause: float) -> None:
    """Write with others, until nothing is missing any more."""
    note = observe(seen)
    writer = resume(path)
    while writer.missing_blocks():
        with writer.claimed(lease=lease) as blocks:
            for block in blocks:
                note("computing", f"started {block}")
                rows = [compute(row) for row in writer.rows_of(block)]
                time.sleep(pause)
                note("writing")
                try:
                    writer.write_block(block, rows)
                except StoreError as problem:
                    note("computing", f"late {block} {problem}")
                else:
                    note("computing", f"written {block}")
        time.sleep(lease / 4)
    note("finished")


def observe(seen: Path):
    """Keep the phase in a mapped byte, which outlives a kill, and events in a log."""
    with seen.open("r+b") as file:
        byte = mmap.mmap(file.fileno(), 1)
    log = os.open(seen.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    fsync, publish, write_shard = os.fsync, commit.publish_exclusively, commit.write_shard

    def note(phase, event=""):
        byte[0] = PHASES.index(phase)
        if event:
            os.write(log, f"{event}\n".encode())

    def observed_write(*args):
        note("writing")
        shards.os.fsync = observed_fsync
        try:
            return write_shard(*args)
        finally:
            shards.os.fsync = fsync

    def observed_fsync(descriptor):
        note("fsync")
        fsync(descriptor)
        note("writing")

    def observed_publish(*args):
        note("commit")  # and what follows: the shards get their names
        return publish(*args)

    commit.write_shard, commit.publish_exclusively = observed_write, observed_publish
    return note


def phase_of(seen: Path) -> str:
    """What a writer is doing, or was doing when it was killed."""
    return PHASES[seen.read_bytes()[0]]


def events_of(seen: Path) -> list[str]:
    log = seen.with_suffix(".log")
    return log.read_text().splitlines() if log.exists() else []


@pytest.fixture(scope="module")
def processes():
    """Starts processes that have imported everything already, so that a start takes no time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("expected") / "toy.zarr"
    toys.fill(new_store(path), None, compute)
    return toys.contents(path)


def harmful(path: Path) -> list:
    return [entry for entry in verify(path) if not entry.harmless]


def wait_for(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.0005)


def repair_left(folder: Path, path: Path) -> None:
    """Repair a store whose writers ended long ago."""
    for place in folder.rglob("*"):
        toys.age(place)
    repair(path)


def kill_again_and_again(processes, folder, moments, landed, expected) -> None:
    """Kill a writer at each moment and start it again; count in `landed` what it was doing.

    A writer that is done before its moment has come starts on a new store.
    """
    path, seen, kills = folder / "0.zarr", folder / "seen", 0

    def start():
        seen.write_bytes(b"\0")
        process = processes.Process(target=write_all, args=(path, seen))
        process.start()
        return process

    def finish():
        """Let it end, and compare what it wrote with the uninterrupted store."""
        last = start()
        last.join()
        assert last.exitcode == 0
        assert harmful(path) == []
        repair_left(folder, path)
        assert toys.contents(path) == expected
        started = Counter(event for event in events_of(seen) if "started" in event)
        assert len(started) == open_store(path).blocks
        assert started.total() - len(started) <= kills  # one block a kill is done again
        seen.with_suffix(".log").unlink()

    new_store(path)
    for moment in moments:
        process = start()
        moment(seen)
        process.kill()
        process.join()
        if process.exitcode == 0:
            finish()
            path, kills = path.with_name(f"{int(path.stem) + 1}.zarr"), 0
            new_store(path)
            continue
        assert process.exitcode == -signal.SIGKILL
        landed[phase_of(seen)] += 1
        kills += 1
        check_done_rows(path)
    finish()


def check_done_rows(path: Path) -> None:
    """Every row that reads as done is right, and no committed one is damaged."""
    for ids, values in open_store(path).iter_blocks():
        for place, item_id in enumerate(ids):
            expected = compute(int(item_id[2:])).values
            for name, rows in values.items():
                np.testing.assert_array_equal(rows[place], expected[name].astype(rows.dtype))
    assert harmful(path) == []


def test_killed_writers_lose_at_most_the_block_in_hand(processes, tmp_path, uninterrupted):
    dice, landed = random.Random(5), Counter[str]()

    def in_phase(phase):
        def moment(seen):
            wait_for(lambda: phase_of(seen) in (phase, "finished"))
            time.sleep(dice.choice([0, dice.uniform(0, 0.002)]))

        return moment

    moments = (in_phase(phase) for phase in IN_WRITING * 20 if not landed[phase])
    kill_again_and_again(processes, tmp_path, moments, landed, uninterrupted)
    assert all(landed[phase] for phase in IN_WRITING), landed


@pytest.mark.faults
def test_fifty_kills_at_random_moments(processes, tmp_path, uninterrupted):
    dice, landed = random.Random(50), Counter[str]()

    def moments():
        while landed.total() < 50:
            yield lambda seen: time.sleep(dice.uniform(0.02, 0.35))

    kill_again_and_again(processes, tmp_path, moments(), landed, uninterrupted)
    assert landed.total() == 50
    assert all(landed[phase] for phase in IN_WRITING), landed


@pytest.mark.parametrize(
    "phase",
    ["computing", *(pytest.param(p, marks=pytest.mark.faults) for p in PHASES[1:5] * 4)],
)
def test_a_writer_stopped_past_its_lease_is_overtaken(processes, tmp_path, uninterrupted, phase):
    """Writers by claims, one of them stopped in a phase, past its lease, and continued."""
    lease, path = 0.4, tmp_path / "toy.zarr"
    new_store(path)
    seen = [tmp_path / f"seen{number}" for number in range(3)]
    for file in seen:
        file.write_bytes(b"\0")
    writers = [
        processes.Process(target=write_by_claims, args=(path, file, lease, 0.02)) for file in seen
    ]
    for process in writers:
        process.start()
    while True:
        # The first byte is that of the first phase before anything has begun.
        wait_for(lambda: events_of(seen[0]) and phase_of(seen[0]) == phase)
        os.kill(writers[0].pid, signal.SIGSTOP)
        if phase_of(seen[0]) == phase:  # it may have gone on in between
            break
        os.kill(writers[0].pid, signal.SIGCONT)
    in_hand = events_of(seen[0])[-1].split()[1]
    # The others finish the store: they take over what the stopped one had claimed.
    for process in writers[1:]:
        process.join(60)
    by_others = [event for file in seen[1:] for event in events_of(file)]
    os.kill(writers[0].pid, signal.SIGCONT)
    writers[0].join(60)
    assert [process.exitcode for process in writers] == [0, 0, 0]

    own = events_of(seen[0])
    written = [int(event.split()[1]) for event in by_others + own if event.startswith("written")]
    assert sorted(written) == list(range(open_store(path).blocks))  # each by one, none twice
    assert list((path / "claims").iterdir()) == []
    repair_left(path, path)
    assert toys.contents(path) == uninterrupted
    assert (f"written {in_hand}" in by_others) == any("late" in event for event in own)
    if phase == "computing":
        assert [event for event in own if event.split()[1] == in_hand][-1].startswith("late")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MiB, which a test can fill and make read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small tmpfs takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(small_disk, uninterrupted):
    path, full = small_disk / "toy.zarr", "No space left on device"
    writer = new_store(path)
    with pytest.raises(StoreError, match=f"toy.zarr cannot be written: {full}"):
        toys.fill(writer, None, compute)
    assert len(open_store(path).records) in range(5, 10)
    check_done_rows(path)
    # What was on its way stays until the block is written again, or until a repair.
    assert {Path(entry.file).parent.name for entry in verify(path)} <= {"staging"}
    with pytest.raises(StoreError, match=full):
        finalise(path, allow_incomplete=True)
    with pytest.raises(StoreError, match=full):
        subset(open_store(path), small_disk / "some.zarr", ids=open_store(path).ids[:20])
    assert [file.name for file in small_disk.iterdir()] == ["toy.zarr"]
    subprocess.run(["mount", "-o", "remount,size=256m", str(small_disk)], check=True)
    toys.fill(resume(path), None, compute)
    assert toys.contents(path) == uninterrupted


def test_a_read_only_disk(small_disk):
    path = toys.a_store(small_disk / "toy.zarr", blocks=[0, 1])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    store = open_store(path)
    assert len(store.read("native", store.ids[:5])) == 5
    assert verify(path) == []

    def claim():
        with toys.resume(path).claimed() as blocks:
            next(blocks)

    for change in (
        lambda: toys.fill(toys.resume(path)),
        claim,
        lambda: finalise(path, allow_incomplete=True),
        lambda: repair(path),
        lambda: toys.a_store(small_disk / "other.zarr"),
    ):
        with pytest.raises(StoreError, match="Read-only file system"):
            change()
    assert open_store(path).status.tolist() == [1] * 6 + [3, 1] + [0] * 10


def test_claims_say_who_is_at_work(tmp_path):
    ours, other = Claims(tmp_path / "claims"), Claims(tmp_path / "claims")
    with ours.heartbeat():
        assert ours.take(3)
        assert not other.take(3)
        assert other.active_blocks() == [3]
        dead = tmp_path / "claims/000005.json"
        owner = {"owner": "x", "host": os.uname().nodename, "process": 2**22 + 1}
        dead.write_text(json.dumps(owner))
        assert other.stale_files() == [dead]
    assert other.active_blocks() == []


def test_a_claim_that_appears_between_two_looks_is_kept(tmp_path, monkeypatch):
    """Two writers that start on a block together: the later one must not remove the claim."""
    first, late = Claims(tmp_path / "claims"), Claims(tmp_path / "claims")
    exists, taken = Path.exists, []

    def exists_just_before_the_other_takes(path):
        found = exists(path)
        if path.name == "000003.json" and not taken:
            taken.append(True)
            assert first.take(3)
        return found

    with first.heartbeat():
        monkeypatch.setattr(Path, "exists", exists_just_before_the_other_takes)
        assert not late.take(3)
