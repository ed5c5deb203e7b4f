"""Writers that are killed, stopped, or that the disk fails: nothing is lost, nothing is wrong."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import StoreError
from obygaze_features.store import (
    finalise,
    open_store,
    repair,
    subset,
    verify,
)
from obygaze_features.store.claims import Claims
from tests.store import fault_writer, toys

IN_WRITING = ("writing", "fsync", "commit")


@pytest.fixture(scope="module")
def server() -> multiprocessing.context.ForkServerContext:
    """Starts processes that have imported everything already, so that a start takes no time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.fault_writer"])
    return context


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("whole") / "toy.zarr"
    toys.fill(fault_writer.new_store(path), None, fault_writer.compute)
    return toys.contents(path)


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.0005)


def kill_again_and_again(
    server: multiprocessing.context.ForkServerContext,
    folder: Path,
    moments: Iterator[Callable[[Path], None]],
    landed: Counter[str],
    whole: dict[str, bytes],
) -> None:
    """Kill a writer at each moment and start it again; count in `landed` what it was doing.

    A writer that is done before its moment has come starts on a new store.
    """
    path, seen, kills = folder / "0.zarr", folder / "seen", 0

    def start() -> multiprocessing.process.BaseProcess:
        seen.write_bytes(b"\0")
        process = server.Process(target=fault_writer.write, args=(path, seen))
        process.start()
        return process

    def finish() -> None:
        """Let it end, and hold what it wrote to the uninterrupted store."""
        last = start()
        last.join()
        assert last.exitcode == 0
        assert [one for one in verify(path) if not one.harmless] == []
        for place in [*path.rglob("*"), *path.parent.glob(f".{path.name}.*")]:
            toys.age(place)
        repair(path)
        assert toys.contents(path) == whole
        begun = Counter(event for event in fault_writer.notes_of(seen) if "begun" in event)
        assert len(begun) == open_store(path).blocks
        assert begun.total() - len(begun) <= kills  # one block a kill is done again
        seen.with_suffix(".log").unlink()

    fault_writer.new_store(path)
    for moment in moments:
        process = start()
        moment(seen)
        process.kill()
        process.join()
        if process.exitcode == 0:
            finish()
            path, kills = path.with_name(f"{int(path.stem) + 1}.zarr"), 0
            fault_writer.new_store(path)
            continue
        assert process.exitcode == -signal.SIGKILL
        landed[fault_writer.phase_of(seen)] += 1
        kills += 1
        check_what_is_done(path)
    finish()


def check_what_is_done(path: Path) -> None:
    """Every row that reads as done is right, and no committed one is damaged."""
    store = open_store(path)
    for ids, values in store.iter_blocks():
        for place, one in enumerate(ids):
            expected = fault_writer.compute(int(one[2:])).values
            for name, rows in values.items():
                dtype = rows.dtype
                assert np.array_equal(rows[place], np.asarray(expected[name]).astype(dtype))
    assert [one for one in verify(path) if not one.harmless] == []


def test_killed_writers_lose_at_most_the_block_in_hand(server, tmp_path, uninterrupted):
    dice = random.Random(5)
    landed: Counter[str] = Counter()

    def in_phase(phase: str) -> Callable[[Path], None]:
        def moment(seen: Path) -> None:
            wait_for(lambda: fault_writer.phase_of(seen) in (phase, "finished"))
            time.sleep(dice.choice([0, dice.uniform(0, 0.002)]))

        return moment

    def moments() -> Iterator[Callable[[Path], None]]:
        for phase in IN_WRITING * 20:
            if landed[phase] < 2:
                yield in_phase(phase)

    kill_again_and_again(server, tmp_path, moments(), landed, uninterrupted)
    assert min(landed[phase] for phase in IN_WRITING) >= 2, landed


@pytest.mark.faults
def test_fifty_kills_at_random_moments(server, tmp_path, uninterrupted):
    dice = random.Random(50)
    landed: Counter[str] = Counter()

    def moments() -> Iterator[Callable[[Path], None]]:
        while landed.total() < 50:
            yield lambda seen: time.sleep(dice.uniform(0.02, 0.35))

    kill_again_and_again(server, tmp_path, moments(), landed, uninterrupted)
    assert landed.total() == 50
    assert all(landed[phase] for phase in IN_WRITING), landed


def stopped_and_continued(
    server: multiprocessing.context.ForkServerContext,
    folder: Path,
    phase: str,
    whole: dict[str, bytes],
) -> str:
    """Four writers by claims, one of them stopped in a phase, past its lease, and continued.

    Returns what the stopped one made of the block that it had in hand.
    """
    lease, path = 0.4, folder / "toy.zarr"
    fault_writer.new_store(path)
    seen = [folder / f"seen{number}" for number in range(4)]
    for one in seen:
        one.write_bytes(b"\0")
    processes = [
        server.Process(target=fault_writer.write_by_claims, args=(path, one, lease, 0.02))
        for one in seen
    ]
    for process in processes:
        process.start()
    pid = processes[0].pid
    assert pid is not None
    while True:
        wait_for(lambda: fault_writer.phase_of(seen[0]) == phase)
        os.kill(pid, signal.SIGSTOP)
        if fault_writer.phase_of(seen[0]) == phase:  # it may have gone on in between
            break
        os.kill(pid, signal.SIGCONT)
    in_hand = fault_writer.notes_of(seen[0])[-1].split()[1]
    # The others finish the store: they take over what the stopped one had claimed.
    for process in processes[1:]:
        process.join(60)
    committed_by_others = f"written {in_hand}" in [
        event for one in seen[1:] for event in fault_writer.notes_of(one)
    ]
    os.kill(pid, signal.SIGCONT)
    processes[0].join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]

    events = [event for one in seen for event in fault_writer.notes_of(one)]
    written = sorted(int(event.split()[1]) for event in events if event.startswith("written"))
    assert written == list(range(open_store(path).blocks))  # each by one writer, none twice
    assert list((path / "claims").iterdir()) == []
    for place in path.rglob("*"):
        toys.age(place)
    repair(path)
    assert toys.contents(path) == whole
    mine = [event for event in fault_writer.notes_of(seen[0]) if event.split()[1] == in_hand]
    assert committed_by_others == any("late" in event for event in fault_writer.notes_of(seen[0]))
    return mine[-1]


def test_a_writer_stopped_past_its_lease_is_overtaken(server, tmp_path, uninterrupted):
    outcome = stopped_and_continued(server, tmp_path, "computing", uninterrupted)
    assert outcome.startswith("late")


@pytest.mark.faults
@pytest.mark.parametrize("phase", ["computing", *IN_WRITING] * 4)
def test_a_writer_stopped_anywhere(server, tmp_path, uninterrupted, phase):
    stopped_and_continued(server, tmp_path, phase, uninterrupted)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
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
    path = small_disk / "toy.zarr"
    writer = fault_writer.new_store(path)
    with pytest.raises(StoreError, match=r"cannot write .*toy.zarr: No space left on device"):
        toys.fill(writer, None, fault_writer.compute)
    assert len(open_store(path).records) in range(5, 10)
    check_what_is_done(path)
    # What was on its way stays until the block is written again, or until a repair.
    assert {Path(one.file).parent.name for one in verify(path)} <= {"staging"}
    with pytest.raises(StoreError, match="No space left on device"):
        finalise(path, allow_incomplete=True)
    with pytest.raises(StoreError, match="No space left on device"):
        subset(open_store(path), small_disk / "some.zarr", ids=open_store(path).ids[:20])
    assert [one.name for one in small_disk.iterdir()] == ["toy.zarr"]
    check_what_is_done(path)

    subprocess.run(["mount", "-o", "remount,size=256m", str(small_disk)], check=True)
    toys.fill(fault_writer.resume(path), None, fault_writer.compute)
    assert toys.contents(path) == uninterrupted


def test_a_read_only_disk(small_disk):
    path = toys.a_store(small_disk / "toy.zarr", blocks=[0, 1])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    store = open_store(path)
    assert len(store.read("native", store.ids[:5])) == 5
    assert verify(path) == []
    said = "Read-only file system"
    with pytest.raises(StoreError, match=said):
        toys.fill(toys.resume(path))
    with (
        pytest.raises(StoreError, match=said),
        toys.resume(path).claimed() as blocks,
    ):
        next(blocks)
    with pytest.raises(StoreError, match=said):
        finalise(path, allow_incomplete=True)
    with pytest.raises(StoreError, match=said):
        repair(path)
    with pytest.raises(StoreError, match=said):
        toys.a_store(small_disk / "other.zarr")
    assert open_store(path).status.tolist() == [1] * 6 + [3, 1] + [0] * 10


def test_claims_say_who_is_at_work(tmp_path):
    mine, other = Claims(tmp_path / "claims"), Claims(tmp_path / "claims")
    with mine.heartbeat():
        assert mine.take(3)
        assert not other.take(3)
        assert other.active_blocks() == [3]
        dead = tmp_path / "claims/000005.json"
        dead.write_text(
            json.dumps({"owner": "x", "host": os.uname().nodename, "process": 2**22 + 1})
        )
        assert other.stale_files() == [dead]
    assert other.active_blocks() == []


def test_a_claim_that_appears_between_two_looks_is_kept(tmp_path, monkeypatch):
    """Two writers that start on a block together: the later one must not remove the claim."""
    first, late = Claims(tmp_path / "claims"), Claims(tmp_path / "claims")
    exists, taken = Path.exists, []

    def exists_just_before_the_other_takes(path: Path) -> bool:
        found = exists(path)
        if path.name == "000003.json" and not taken:
            taken.append(True)
            assert first.take(3)
        return found

    with first.heartbeat():
        monkeypatch.setattr(Path, "exists", exists_just_before_the_other_takes)
        assert not late.take(3)
