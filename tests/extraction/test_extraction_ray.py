"""Extraction on local Ray clusters: plans, losses, and who may join."""

import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

import obygaze_features as of
from obygaze_features import errors
from obygaze_features.common import progress
from obygaze_features.extraction.job import Options
from obygaze_features.extraction.ray import WorkerPlan, check_ray, plan_workers
from obygaze_features.store import format as store_format
from tests.extraction import ray_clusters as clusters
from tests.extraction.ray_clusters import descendants, extract_on, left_of, mortal, slow
from tests.kit.files import refused
from tests.kit.models import write_checkpoint
from tests.kit.store import contents as store_files

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.xdist_group("ray"),  # whose clusters share the machine
]


@pytest.mark.parametrize(("nodes", "options", "plan"), [
    ([(8, 0)], {}, WorkerPlan(1, 7, 8, 0, "cpu")),
    ([(1, 0)], {}, WorkerPlan(1, 1, 1, 0, "cpu")),
    ([(64, 4)], {}, WorkerPlan(4, 15, 16, 1, "cuda")),
    ([(64, 4)], {"device": "cpu"}, WorkerPlan(1, 32, 64, 0, "cpu")),
    ([(64, 4)], {"ray_gpus": 0.5, "ray_cpus": 0.5}, WorkerPlan(8, 1, 0.5, 0.5, "cuda")),
    ([(64, 1)], {"ray_gpus": 0.1}, WorkerPlan(10, 5, 6, 0.1, "cuda")),  # Ray takes whole CPUs
    ([(64, 4)], {"ray_forwards": 3, "workers": 5}, WorkerPlan(3, 5, 16, 1, "cuda")),
    # One actor per machine; a head may offer no CPU, and no GPU means no actor.
    ([(0, 0), (4, 0), (16, 0)], {}, WorkerPlan(2, 3, 4, 0, "cpu")),
    ([(64, 0), (16, 1), (8, 2)], {}, WorkerPlan(3, 3, 4, 1, "cuda")),
    ([(64, 4)], {"device": "cuda", "ray_gpus": 0}, "--device cuda and ray_gpus=0 contradict"),
    ([(64, 4)], {"device": "cuda:1"}, "Use --device cuda"),
])  # fmt: skip
def test_a_plan_of_workers_follows_cluster_and_options(nodes, options, plan):
    resources = [{"CPU": cpus, "GPU": gpus} for cpus, gpus in nodes]
    if isinstance(plan, str):
        with pytest.raises(errors.UsageError, match=plan):
            plan_workers(resources, Options(**options))
    else:
        assert plan_workers(resources, Options(**options)) == plan


def test_impossible_runs_are_refused_in_one_line(obygaze, manifest, films, tmp_path, monkeypatch):
    manifest.save(tmp_path / "manifest")
    run = partial(
        obygaze, "features", "extract", tmp_path / "manifest", "--videos", films,
        "--backbone", "tiny-xclip", "-o", tmp_path / "stores",
    )  # fmt: skip
    for options, code, facts in (
        ("--ray local --max-gpu-memory 2GB", 2, "use ray_gpus=0.5"),
        ("--ray 127.0.0.1", 2, "--ray must be HOST:PORT"),
        ("--ray nowhere.invalid:6379", 1, "no Ray cluster answers at nowhere"),
        ("--ray 127.0.0.1:1", 1, "no Ray cluster answers at 127.0.0.1:1"),
    ):  # fmt: skip
        result = run(*options.split())
        assert (result.exit_code, facts in result.stderr) == (code, True), result.stderr
    many = Options(engine="ray", ray_gpus=1, ray_forwards=99)
    facts = f"has {torch.cuda.device_count()}; drop ray_gpus and use --device cpu, or pass"
    with pytest.raises(errors.UsageError, match=facts):
        check_ray(many)
    monkeypatch.setitem(sys.modules, "ray", None)
    refused(run("--ray", "local"), "install it with: pip install 'obygaze[ray]'")
    assert not (tmp_path / "stores").exists()


@pytest.fixture(scope="module", autouse=True)
def as_many_threads_as_actors() -> Iterator[None]:
    """On CPUs the last bits depend on the number of threads, and actors have two CPUs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole_store(as_many_threads_as_actors, manifest, films, tiny, tmp_path_factory) -> Path:
    (store,) = of.extract(manifest, films, [tiny], tmp_path_factory.mktemp("whole")).stores
    return store


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """A head node with one CPU to compute and one to read, and no connected drivers.

    It claims a GPU, too, because Ray believes what it is told.
    """
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        before = signal.getsignal(signal.SIGTERM)
        own = {"num_cpus": 2, "num_gpus": 1, "object_store_memory": clusters.STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
        signal.signal(signal.SIGTERM, before)  # which Ray takes
        yield cluster
        cluster.shutdown()


def finish_locally(manifest, films, tiny, output: Path, whole_store: Path) -> None:
    """Finish with the local engine, which fills the same store."""
    store = output / "tiny.zarr"
    assert 0 < of.open_store(store).status.sum() < len(manifest)
    of.extract(manifest, films, tiny, output)
    assert store_files(store) == store_files(whole_store)


@pytest.mark.night
def test_processes_killed_mid_block_change_nothing(
    cluster, manifest, films, weights, tiny, whole_store, tmp_path, monkeypatch, capsys
):
    """Two actors share a CPU and a GPU; one of them is lost."""
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.5)
    (tmp_path / "deaths").mkdir()
    load = partial(mortal, f"tiny={weights}", tmp_path / "deaths", 8, 1)
    share = {"ray_forwards": 2, "ray_cpus": 0.5, "ray_gpus": 0.5}
    summary = extract_on(cluster, manifest, films, [tiny], tmp_path, [load], workers=1, **share)
    assert len(list((tmp_path / "deaths").iterdir())) == sum(summary.lost.values()) == 1
    assert (summary.clips, summary.done, summary.ended) == (70, 70, "done")
    lines = capsys.readouterr().err
    assert re.search(" 0/70 .*waiting for the Ray cluster to provide 2 x", lines)
    assert re.search(" 70/70 .*device", lines)
    assert summary.batches == {"tiny": 8}
    assert store_files(tmp_path / "tiny.zarr") == store_files(whole_store)
    # Each was computed once, except those in the block during which an actor died.
    assert 70 < (tmp_path / "computed").stat().st_size <= 70 + 32
    # The two and a replacement for the lost actor, unless everything was already done.
    resources = [json.loads(path.read_text()) for path in tmp_path.glob("given-*.json")]
    assert resources == [{"CPU": 0.5, "GPU": 0.5}] * len(resources)
    assert len(resources) in (2, 3)
    log = json.loads((tmp_path / "log.jsonl").read_text())
    assert len(log["devices"]["tiny"].split("; ")) in (2, 3)


@pytest.mark.faults
def test_a_differing_machine_is_named(cluster, manifest, films, tiny, tmp_path, monkeypatch):
    """The processes of the cluster have a different working directory."""
    monkeypatch.chdir(films.parent)
    inner = Path("/proc/self/cwd") / films.name
    no_folder = rf"machine {platform.node()} has no folder {inner}; every machine of the cluster"
    no_start = r"cannot start \(RuntimeError: this machine has no floor\); "
    write_checkpoint("tiny-xclip", tmp_path / "other", seed=1)
    altered = partial(of.load_backbone, f"tiny={tmp_path / 'other'}")
    for media, loads, error, facts in (
        (inner, altered, errors.VideoError, no_folder),
        (films, clusters.broken, errors.ClusterError, no_start),
        (
            films,
            altered,
            errors.BackboneError,
            "has another version of tiny, with different backbone weights",
        ),
    ):
        with pytest.raises(error, match=facts):
            extract_on(cluster, manifest, media, [tiny], tmp_path, [loads])
    assert not of.open_store(tmp_path / "tiny.zarr").status.any()


@pytest.mark.faults
def test_a_lost_machine_is_no_loss(cluster, manifest, films, weights, tiny, whole_store, tmp_path):
    """One of two machines is lost; it has room only for two readers, and holds frames."""
    node = cluster.add_node(num_cpus=2, object_store_memory=clusters.STORE_BYTES)

    def lose() -> None:
        while not (tmp_path / "tiny.zarr/blocks/000000.json").exists():
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    loads = [partial(slow, f"tiny={weights}")]
    summary = extract_on(cluster, manifest, films, [tiny], tmp_path, loads, workers=3)
    thread.join()
    assert (summary.clips, summary.done) == (70, 70)
    assert store_files(tmp_path / "tiny.zarr") == store_files(whole_store)


@pytest.mark.faults
def test_clips_that_kill_are_left(cluster, manifest, films, weights, tiny, tmp_path, monkeypatch):
    """They are in the last piece of the only block of 96 rows; the other pieces are kept."""
    monkeypatch.setattr(store_format, "BLOCKS", 1)
    (whole_store,) = of.extract(manifest, films, [tiny], tmp_path / "whole").stores
    (tmp_path / "deaths").mkdir()
    load = partial(mortal, f"tiny={weights}", tmp_path / "deaths", 6, 100)  # the last one's batch
    words = "3 processes were lost while computing the clips clip-64 to clip-69"
    with pytest.raises(errors.ClusterError, match=words):
        extract_on(cluster, manifest, films, [tiny], tmp_path, [load])
    # A loss may be counted for another block that its process had, of three at most.
    assert 3 <= len(list((tmp_path / "deaths").iterdir())) <= 9
    store = of.open_store(tmp_path / "tiny.zarr")
    assert ((store.status == 1).sum(), store.failures) == (64, {})
    finish_locally(manifest, films, tiny, tmp_path, whole_store)


COMMAND = """
import sys
from functools import partial
import obygaze_features
from tests.extraction import ray_clusters
# As many threads as `whole_store` had.
obygaze_features.extract = partial(obygaze_features.extract, ray_cpus=2)
sys.modules["obygaze_features.extraction.extract"].load_backbone = ray_clusters.stuck
from obygaze_models.commands.main import main
main()
"""
A_BLOCK = "tiny.zarr/blocks/*.json"


@pytest.fixture
def start(manifest, films, weights) -> Callable[..., subprocess.Popen[str]]:
    def start(output: Path, *more: str, until: str = A_BLOCK) -> subprocess.Popen[str]:
        home = output.with_name("manifest")
        if not home.exists():
            manifest.save(home)
        command = [sys.executable, "-c", COMMAND, "features", "extract", home, "--videos", films]
        command += [
            "--backbone",
            f"tiny={weights}",
            "-o",
            output,
            *(more if "--ray" in more else ["--ray", "local", *more]),
        ]
        process = subprocess.Popen(
            [*map(str, command), "--device", "cpu"], start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # Background processes of a shell ignore Ctrl-C, and their children inherit this.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        end = time.monotonic() + 300  # Ray takes minutes to start on a busy machine
        while not any(output.glob(until)) and process.poll() is None:
            if time.monotonic() > end:
                os.killpg(process.pid, signal.SIGKILL)
                pytest.fail(f"no block after 300 s: {process.communicate()[1]}")
            time.sleep(0.01)
        return process

    return start


@pytest.mark.faults
@pytest.mark.parametrize("until", ["*", A_BLOCK])
def test_a_killed_cluster_is_one_line(start, manifest, films, tiny, whole_store, tmp_path, until):
    output = tmp_path / "stores"
    with start(output, until=until) as process:
        while "raylet" not in (names := clusters.children(process.pid)).values():
            time.sleep(0.01)
        for pid, name in names.items():
            if name in ("gcs_server", "raylet"):
                os.kill(pid, signal.SIGKILL)
        out, stderr = process.communicate(timeout=600)
    assert (process.returncode, out) == (1, ""), stderr
    # Ray's own lines begin with a time: they are of what it had only started.
    lines = [line for line in stderr.splitlines() if not re.match(r"Extracting: |\[20", line)]
    assert (len(lines), "Extracting 70 clips" in lines[0]) == (2, True), stderr
    assert lines[1].startswith("Error: ")
    if until == A_BLOCK:
        line = r"Error: the Ray cluster \(.*\) no longer answers; .*run the same command again"
        assert re.fullmatch(line, lines[1])
        assert 0 < of.open_store(output / "tiny.zarr").status.sum() < len(manifest)
    of.extract(manifest, films, tiny, output)
    assert store_files(output / "tiny.zarr") == store_files(whole_store)


@pytest.mark.faults
@pytest.mark.parametrize(("own", "whom", "number", "code", "word"), [
    (False, os.killpg, signal.SIGINT, 130, "Interrupted."),  # as a terminal does it
    (True, os.kill, signal.SIGTERM, 143, "Terminated."),
    (True, os.killpg, signal.SIGTERM, 143, "Terminated."),
])  # fmt: skip
def test_a_signal_stops_the_run_and_its_cluster(
    start, cluster, manifest, films, tiny, whole_store, tmp_path, own, whom, number, code, word
):
    address = () if own else ("--ray", cluster.address)
    with start(tmp_path / "stores", *address) as process:
        pids = descendants(process.pid)
        whom(process.pid, number)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == code
    message = "Finished work is kept; run the same command again to resume."
    assert stderr.splitlines()[-2:] == [message, word]
    assert left_of(process.pid, pids) == []
    finish_locally(manifest, films, tiny, tmp_path / "stores", whole_store)


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0, 2])
def test_a_signal_while_ray_starts_leaves_nothing_behind(start, tmp_path, number, seconds):
    with start(tmp_path / "stores", until="*") as process:
        while "gcs_server" not in descendants(process.pid).values():
            time.sleep(0.01)
        time.sleep(seconds)
        pids = descendants(process.pid)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=600)
    codes = {signal.SIGINT: (130, "Interrupted."), signal.SIGTERM: (143, "Terminated.")}
    assert (process.returncode, stderr.splitlines()[-1]) == codes[number]
    assert left_of(process.pid, pids) == []


LOOPBACK = {"0100007F", f"{'0' * 24}01000000", "0000000000000000FFFF00000100007F"}
"""127.0.0.1, ::1 and ::ffff:127.0.0.1 in Linux's tables of sockets."""
CONNECT = """
import sys
from obygaze_features.extraction.ray import connect
with connect(None, 1, 0):
    sys.__stdout__.write("up\\n")
    sys.__stdout__.flush()
    sys.stdin.read()
"""


def listening(pids: dict[int, str]) -> dict[str, set[str]]:
    """Return the addresses on which processes listen, as Linux writes them, by process name."""
    address_of = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A":
                address_of[f"socket:[{cells[9]}]"] = cells[1].partition(":")[0]
    addresses: dict[str, set[str]] = {}
    for pid, name in pids.items():
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError, KeyError):  # closed since, or no such socket
                address = address_of[str(descriptor.readlink())]
                addresses.setdefault(name, set()).add(address)
    return addresses


@pytest.mark.faults
def test_a_local_cluster_is_reachable_only_locally(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", CONNECT], env={**os.environ, "HOME": str(tmp_path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == b"up\n"
        addresses = listening(descendants(process.pid))
        process.communicate(timeout=60)
    assert addresses.keys() >= {"gcs_server", "raylet"}
    assert set().union(*addresses.values()) <= LOOPBACK, addresses
    assert not (tmp_path / ".ray/auth_token").exists()  # Ray's own file is readable by all
