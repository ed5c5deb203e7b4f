"""Extraction on local Ray clusters: parts, lost machines, and clusters that do not answer."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import obygaze_features as of
from obygaze_features.errors import ClusterError

# A cluster of several kinds of machines is not at hand.
from obygaze_features.extraction import ray as ray_engine
from tests.extraction.ray_clusters import STORE_BYTES
from tests.kit.files import refused
from tests.kit.floats import close
from tests.kit.store import contents as store_files

SLOW = "tiny=tests.extraction.ray_clusters:slow"

needs_cluster = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
pytestmark = pytest.mark.xdist_group("ray")  # whose clusters share the machine


@pytest.mark.parametrize(
    ("nodes", "device", "plan"),
    [
        ([(64, 4)], None, (16, 1, 4)),
        # A head may offer no CPU. Without GPUs, tasks fit on the smallest machine.
        ([(0, 0), (4, 0), (16, 0)], None, (4, 0, 5)),
        ([(64, 0), (16, 1), (8, 2)], "cuda", (4, 1, 3)),
        ([(2, 4)], None, (1, 1, 4)),
    ],
)
def test_tasks_follow_the_machines(nodes, device, plan):
    resources = [{"CPU": cpus, "GPU": gpus} for cpus, gpus in nodes]
    assert ray_engine.plan_tasks(resources, device) == plan


def test_impossible_runs_are_refused_in_one_line(obygaze, manifest, films, tmp_path, monkeypatch):
    manifest.save(tmp_path / "manifest")
    command = ("features", "extract", tmp_path / "manifest", "--videos", films)
    run = partial(obygaze, *command, "--backbone", "tiny-xclip", "-o", tmp_path / "stores")
    for options, code, facts in (
        ("--ray auto --part 1/2", 2, "leave out --part or --ray"),
        ("--ray 127.0.0.1:1", 1, "cannot connect to 127.0.0.1:1 "),
    ):
        refused(run(*options.split()), facts, code=code)
    monkeypatch.setitem(sys.modules, "ray", None)
    refused(run("--ray", "auto"), "install it with: pip install 'obygaze[ray]'")
    assert not (tmp_path / "stores").exists()


def test_a_machine_that_differs_is_named(tmp_path):
    here = Path.cwd()
    absent = tmp_path / "absent"
    for paths, software, facts in (
        ([tmp_path, absent], version("obygaze"), f"see these paths: .*{absent}"),
        ([tmp_path], "0.0", "must have obygaze 0.0, and"),
    ):
        with pytest.raises(ClusterError, match=facts):
            ray_engine.run_part((pytest.fail, paths, here, software), None)


@pytest.fixture(scope="module")
def as_many_threads_as_tasks() -> Iterator[None]:
    """On CPUs the last bits depend on the number of threads, and tasks have two CPUs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole_store(as_many_threads_as_tasks, manifest, films, tmp_path_factory) -> Path:
    (store,) = of.extract(manifest, films, SLOW, tmp_path_factory.mktemp("whole")).stores
    return store


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """A cluster of one machine, which claims a GPU, too: Ray believes what it is told."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        before = signal.getsignal(signal.SIGTERM)
        own = {"num_cpus": 2, "num_gpus": 1, "object_store_memory": STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
        signal.signal(signal.SIGTERM, before)  # which Ray takes
        yield cluster
        cluster.shutdown()


@pytest.fixture
def second_node(cluster, monkeypatch) -> Iterator[object]:
    """Another machine of the cluster, and parts of at least a clip."""
    monkeypatch.setattr(ray_engine, "PART_ROWS", 1)
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    yield node
    if node in cluster.worker_nodes:  # it has not been lost
        cluster.remove_node(node)


@needs_cluster
@pytest.mark.night
def test_two_machines_make_the_same_store(
    cluster, second_node, manifest, films, whole_store, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    summary = of.extract(
        manifest, films, SLOW, "stores", ray=cluster.address, device="cpu", batch=8
    )
    assert (summary.clips, summary.done) == (70, 70)
    assert summary.batches == {"tiny": 8}
    assert sum(summary.shares.values()) == close(1)
    assert store_files(tmp_path / "stores/tiny.zarr") == store_files(whole_store)
    entries = [json.loads(line) for line in Path("stores/log.jsonl").read_text().splitlines()]
    assert sorted(entry["clips"] for entry in entries) == [6, 32, 32, 70]


@needs_cluster
@pytest.mark.faults
def test_a_lost_machine_is_no_loss(cluster, second_node, manifest, films, whole_store, tmp_path):
    def lose() -> None:
        while not (tmp_path / "tiny.zarr/blocks/000000.json").exists():
            time.sleep(0.01)
        cluster.remove_node(second_node, allow_graceful=False)

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    summary = of.extract(
        manifest, films, SLOW, tmp_path, ray=cluster.address, device="cpu", batch=8
    )
    thread.join()
    assert summary.done == 70
    for path in tmp_path.rglob("*.partial"):  # a killed process may leave one
        path.unlink()
    assert store_files(tmp_path / "tiny.zarr") == store_files(whole_store)
