"""Extraction on a Ray cluster: real ones, of this machine."""

from __future__ import annotations

import contextlib
import http.server
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.random_weights import write_weights
from obygaze_features.errors import BackboneError, ClusterError, VideoError
from obygaze_features.extraction import extract
from obygaze_features.store import open_store
from obygaze_features.store.claims import Claims
from tests.extraction.ray_loads import broken, mortal, slow
from tests.extraction.test_extraction_pipeline import contents

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks for processes as Linux has them"
)
STORE = 100 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator:
    """A head with one CPU that computes and one that reads; nobody is connected to it."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        settings = {"num_cpus": 2, "object_store_memory": STORE, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=settings)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def whole(manifest, films, tiny, tmp_path_factory) -> Path:
    """The local engine's store."""
    (store,) = extract(manifest, films, [tiny], tmp_path_factory.mktemp("whole")).stores
    return store


def on(cluster, *loads, **settings):
    from obygaze_features.extraction.engines.ray import RayEngine

    return RayEngine(loads, cluster.address, "cpu", **settings)


def test_processes_killed_in_mid_block_change_nothing(
    cluster, manifest, films, weights, tiny, whole, tmp_path
):
    (tmp_path / "deaths").mkdir()
    load = partial(mortal, f"tiny={weights}", tmp_path / "deaths", 8, 1)
    with killing(cluster, b"ray::Reading.read") as killed:
        summary = extract(manifest, films, [tiny], tmp_path, engine=on(cluster, load))
    assert (len(killed), len(list((tmp_path / "deaths").iterdir()))) == (1, 1)
    assert sum(summary.lost.values()) == 2
    assert (summary.clips, summary.done, summary.ended) == (70, 70, "done")
    assert summary.batches == {"tiny": 8}
    assert contents(tmp_path / "tiny.zarr") == contents(whole)
    assert Claims(tmp_path / "tiny.zarr/claims").at_work() == []


@contextlib.contextmanager
def killing(cluster, title: bytes) -> Iterator[list[int]]:
    """Kill the first process of the cluster that is seen at this work."""
    raylet = cluster.head_node.all_processes["raylet"][0].process.pid
    killed: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not killed and not stop.wait(0.01):
            for pid in children(raylet):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(title):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
                        return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


@pytest.mark.faults
def test_a_machine_that_does_not_see_the_films_is_named_and_nothing_recorded(
    cluster, manifest, films, weights, tiny, tmp_path, monkeypatch
):
    """Here the folder has all films, for the cluster's processes it is another one."""
    monkeypatch.chdir(films)
    engine = on(cluster, partial(load_backbone, f"tiny={weights}"))
    with pytest.raises(VideoError, match=r"clip0\.mp4 is here, but not on every machine"):
        extract(manifest, Path("/proc/self/cwd"), [tiny], tmp_path, engine=engine)
    assert not open_store(tmp_path / "tiny.zarr").status.any()


COMMAND = """
import obygaze_features.backbones
from tests.extraction import ray_loads
obygaze_features.backbones.load_backbone = ray_loads.slow
from cli import main
main()
"""


def start(
    manifest, films, weights, output: Path, *more: str, until: str = "tiny.zarr/blocks/000000.json"
) -> subprocess.Popen[str]:
    """The command itself, with a backbone that takes its time; it is through the first block."""
    manifest.save(output.with_name("manifest"))
    command = [sys.executable, "-c", COMMAND, "features", "extract", output.with_name("manifest")]
    command += ["--videos", films, "--backbone", f"tiny={weights}", "-o", output]
    process = subprocess.Popen(
        [*map(str, command), "--engine", "ray", "--device", "cpu", *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
        # A shell starts what runs in its background with Ctrl-C ignored, and children inherit it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    end = time.monotonic() + 60
    while not (output / until).exists() and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


def named(processes: list[int]) -> dict[str, int]:
    return {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in processes}


def go_on(manifest, films, tiny, output: Path, whole: Path) -> None:
    """With the local engine: it is the same store for both."""
    assert 0 < open_store(output / "tiny.zarr").status.sum() < len(manifest)
    assert Claims(output / "tiny.zarr/claims").at_work() == []
    extract(manifest, films, [tiny], output)
    assert contents(output / "tiny.zarr") == contents(whole)


def test_a_cluster_that_is_killed_is_one_line_and_the_command_goes_on(
    manifest, films, weights, tiny, whole, tmp_path
):
    with start(manifest, films, weights, tmp_path / "stores") as process:
        mine = named(children(process.pid))
        for name in ("gcs_server", "raylet"):
            os.kill(mine[name], signal.SIGKILL)
        out, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out == ""
    assert "Extracting 70 clips" in told.splitlines()[0]
    assert told.splitlines()[1:] == [
        f"Error: the Ray cluster ({told.partition('cluster (')[2].partition(')')[0]}) does not "
        "answer any more; what was computed is kept, and the same command goes on from there"
    ]
    go_on(manifest, films, tiny, tmp_path / "stores", whole)


def test_ctrl_c_stops_cleanly_and_soon(manifest, films, weights, tiny, whole, cluster, tmp_path):
    address = ("--ray-address", cluster.address)
    with start(manifest, films, weights, tmp_path / "stores", *address) as process:
        begin = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        assert_stopped(process, 130, "Interrupted.")
    assert time.monotonic() - begin < 10
    go_on(manifest, films, tiny, tmp_path / "stores", whole)


def assert_stopped(process: subprocess.Popen[str], code: int, word: str) -> None:
    _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert told.splitlines()[1:] == [
        "What was computed is kept; the same command goes on from there.",
        word,
    ]


@pytest.mark.faults
@pytest.mark.parametrize("whom", [os.kill, os.killpg])
def test_sigterm_stops_cleanly_and_takes_its_cluster_with_it(
    manifest, films, weights, tiny, whole, tmp_path, whom
):
    with start(manifest, films, weights, tmp_path / "stores") as process:
        mine = children(process.pid)
        whom(process.pid, signal.SIGTERM)
        assert_stopped(process, 143, "Terminated.")
    assert [pid for pid in mine if Path(f"/proc/{pid}").exists()] == []
    go_on(manifest, films, tiny, tmp_path / "stores", whole)


@pytest.mark.faults
def test_a_machine_that_is_lost_changes_nothing(
    cluster, manifest, films, weights, tiny, whole, tmp_path
):
    """Of two: that which has no room but for two that read, and frames in its memory."""
    other = cluster.add_node(num_cpus=2, object_store_memory=STORE)
    engine = on(cluster, partial(slow, f"tiny={weights}"))
    first = tmp_path / "tiny.zarr/blocks/000000.json"

    def lose() -> None:
        while not first.exists():
            time.sleep(0.01)
        cluster.remove_node(other, allow_graceful=False)

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    summary = extract(manifest, films, [tiny], tmp_path, workers=3, engine=engine)
    thread.join()
    assert (summary.clips, summary.done) == (70, 70)
    assert contents(tmp_path / "tiny.zarr") == contents(whole)


@pytest.mark.faults
def test_a_block_that_kills_whoever_computes_it_is_named_and_left_to_do(
    cluster, manifest, films, weights, tiny, whole, tmp_path
):
    (tmp_path / "deaths").mkdir()
    load = partial(mortal, f"tiny={weights}", tmp_path / "deaths", 6, 100)  # the last block's batch
    with pytest.raises(
        ClusterError, match="3 processes were lost over the clips clip-64 to clip-69"
    ):
        extract(manifest, films, [tiny], tmp_path, engine=on(cluster, load))
    assert len(list((tmp_path / "deaths").iterdir())) == 3
    store = open_store(tmp_path / "tiny.zarr")
    assert (store.status == 1).sum() == 64
    assert not store.failures
    go_on(manifest, films, tiny, tmp_path, whole)


@pytest.mark.faults
def test_those_that_read_make_room_for_one_that_computes(
    cluster, manifest, films, weights, tiny, whole, tmp_path, monkeypatch, capsys
):
    """Three are to read where there is room for two in all: one waits for the place of the dead."""
    from obygaze_features.extraction.engines import ray_run

    monkeypatch.setattr(ray_run, "WAIT", 3.0)
    (tmp_path / "deaths").mkdir()
    load = partial(mortal, f"tiny={weights}", tmp_path / "deaths", 8, 1)
    extract(manifest, films, [tiny], tmp_path, workers=3, engine=on(cluster, load))
    assert contents(tmp_path / "tiny.zarr") == contents(whole)
    assert capsys.readouterr().err == (
        "Waiting for the Ray cluster (2 CPU, 0 GPU) to give 1 x (1 CPU, 0 GPU) to compute and "
        "3 x 1 CPU to read\n"
    )


@pytest.mark.faults
def test_processes_that_cannot_start_are_one_line(cluster, manifest, films, tiny, tmp_path):
    with pytest.raises(ClusterError, match=r"\(RuntimeError: this machine has no floor\); what"):
        extract(manifest, films, [tiny], tmp_path, engine=on(cluster, partial(broken, "x")))


@pytest.mark.faults
def test_other_weights_on_another_machine_are_refused(cluster, manifest, films, tiny, tmp_path):
    write_weights("tiny-xclip", tmp_path / "weights", seed=1)
    engine = on(cluster, partial(load_backbone, f"tiny={tmp_path / 'weights'}"))
    with pytest.raises(BackboneError, match="has another tiny: with other backbone weights"):
        extract(manifest, films, [tiny], tmp_path, engine=engine)


@pytest.mark.faults
def test_clusters_killed_at_random_moments_come_to_the_same_store(
    manifest, films, weights, tiny, whole, tmp_path
):
    chance, ended = random.Random(7), []
    for number in range(5):
        output = tmp_path / f"{number}/stores"
        output.parent.mkdir()
        with start(manifest, films, weights, output, until="../manifest") as process:
            while "raylet" not in (mine := named(children(process.pid))):
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 9))
            for pid in mine.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _, told = process.communicate(timeout=120)
        ended.append(process.returncode)
        assert process.returncode in (0, 1), told
        # One line: where it was only being started, Ray's own, which then ends the process.
        assert len(told.split("\n")) == 2 + process.returncode, told
        extract(manifest, films, [tiny], output)
        assert contents(output / "tiny.zarr") == contents(whole)
    assert ended.count(1) >= 3


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def test_addresses_where_no_cluster_is_are_one_line_at_once(obygaze, manifest, films, tmp_path):
    manifest.save(tmp_path / "manifest")
    command = ["features", "extract", tmp_path / "manifest", "--videos", films]
    command += ["--backbone", "tiny-xclip", "-o", tmp_path / "stores"]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        for address, code, words in [
            (f"127.0.0.1:{other.server_port}", 1, "no Ray cluster answers at 127.0.0.1:"),
            ("127.0.0.1:1", 1, "no Ray cluster answers at 127.0.0.1:1; see its address"),
            ("nowhere.invalid:6379", 1, "no Ray cluster answers at nowhere.invalid:6379"),
            ("ray://127.0.0.1:10001", 2, "--ray-address is HOST:PORT"),
            ("127.0.0.1", 2, "--ray-address is HOST:PORT"),
        ]:
            result = obygaze(*command, "--engine", "ray", "--ray-address", address)
            assert result.exit_code == code, address
            assert result.stderr.startswith(f"Error: {words}")
            assert len(result.stderr.splitlines()) == 1
        other.shutdown()
    assert not (tmp_path / "stores").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ray-gpus", "0.5"], "--ray-gpus is for --engine ray"),
        (["--engine", "ray", "--dry-run"], "--dry-run tries clips on this machine"),
        (["--engine", "ray", "--max-gpu-memory", "2GB"], "give a part: --ray-gpus 0.5"),
    ],
)
def test_options_that_do_not_go_together(obygaze, manifest, films, tmp_path, options, words):
    manifest.save(tmp_path / "manifest")
    result = obygaze(
        "features", "extract", tmp_path / "manifest", "--videos", films,
        "--backbone", "tiny-xclip", "-o", tmp_path / "stores", *options,
    )  # fmt: skip
    assert result.exit_code == 2
    assert words in result.stderr
