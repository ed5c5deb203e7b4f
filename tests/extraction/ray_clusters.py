"""Real Ray clusters of this machine, and their processes."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.extraction.test_extraction_pipeline import contents

from obygaze_features.extraction import Options, extract
from obygaze_features.extraction.extract import fill
from obygaze_features.store import open_store
from obygaze_features.store.claims import Claims

STORE = 100 * 2**20


@contextlib.contextmanager
def head(**settings: Any) -> Iterator[Any]:
    """A head with one CPU that computes and one that reads; nobody is connected to it.

    It claims a GPU, too: Ray gives out what it is told that there is.
    """
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        before = signal.getsignal(signal.SIGTERM)
        its = {"num_cpus": 2, "num_gpus": 1, "object_store_memory": STORE}
        cluster = Cluster(
            initialize_head=True, head_node_args={**its, "include_dashboard": False, **settings}
        )
        signal.signal(signal.SIGTERM, before)  # which Ray takes
        yield cluster
        cluster.shutdown()


def extract_on(cluster, manifest, films, backbone, output, load, **options):
    """Extract on a cluster whose processes get their backbone from `load`."""
    from obygaze_features.extraction.ray_engine import run_ray

    options = Options(engine="ray", ray_address=cluster.address, device="cpu", **options)
    engine = partial(run_ray, loads=[load])
    return fill(manifest, Path(films), [backbone], output, options, engine)


def children(pid: int) -> list[int]:
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                pids.append(int(stat.parent.name))
    return pids


def named(processes: Iterable[int]) -> dict[str, int]:
    return {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in processes}


def below(pid: int) -> set[int]:
    """All processes that a process started, and that these did."""
    pids = {pid}
    while more := {child for parent in pids for child in children(parent)} - pids:
        pids |= more
    return pids - {pid}


class Watching:
    """Looks at the processes of a cluster while a block of code runs.

    Parameters
    ----------
    cluster
        Whose head's processes.
    kill
        The first one that is seen with a title that begins so is killed.
    """

    def __init__(self, cluster: Any, kill: bytes = b"nobody") -> None:
        self._raylet = cluster.head_node.all_processes["raylet"][0].process.pid
        self._kill, self._stop = kill, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.killed: list[int] = []
        self.seen: dict[str, set[int]] = {"Reader": set(), "Computer": set()}

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            for pid in children(self._raylet):
                with contextlib.suppress(OSError):
                    title = Path(f"/proc/{pid}/cmdline").read_bytes()
                    for kind, pids in self.seen.items():
                        if title.startswith(b"ray::" + kind.encode()):
                            pids.add(pid)
                    if title.startswith(self._kill) and not self.killed:
                        os.kill(pid, signal.SIGKILL)
                        self.killed.append(pid)


def once(sign: Path, do: Callable[[], object]) -> threading.Thread:
    """Do it as soon as a file is there."""

    def wait() -> None:
        while not sign.exists():
            time.sleep(0.01)
        do()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def finish_locally(manifest, films, tiny, output: Path, whole_store: Path) -> None:
    """With the local engine: it is the same store for both."""
    assert 0 < open_store(output / "tiny.zarr").status.sum() < len(manifest)
    assert Claims(output / "tiny.zarr/claims").active_blocks() == []
    extract(manifest, films, [tiny], output)
    assert contents(output / "tiny.zarr") == contents(whole_store)
