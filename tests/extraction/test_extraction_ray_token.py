"""Clusters that ask for a token: used where it is set, and named where it is not."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.extraction.test_extraction_pipeline import contents

pytest.importorskip("ray")
pytestmark = pytest.mark.faults
TOKEN = "a" * 64
HEAD = """
import sys
from ray.cluster_utils import Cluster
head = {"num_cpus": 2, "object_store_memory": 100 * 2**20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def without_token(home: Path) -> dict[str, str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")
    }
    return {**environment, "HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of a cluster that asks for a token, started by a process of its own."""
    environment = {**without_token(tmp_path), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    with subprocess.Popen(
        [sys.executable, "-c", HEAD],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.closing(process.stdin):
            yield process.stdout.readline().strip()


def extract(manifest, films, weights, tmp_path, address, **environment):
    if not (tmp_path / "manifest").exists():
        manifest.save(tmp_path / "manifest")
    command = ["features", "extract", tmp_path / "manifest", "--videos", films]
    command += ["--backbone", f"tiny={weights}", "-o", tmp_path / "stores", "--device", "cpu"]
    command += ["--engine", "ray", "--ray-address", address]
    (tmp_path / "home").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "cli", *map(str, command)],
        env={**without_token(tmp_path / "home"), **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_a_token_is_used_or_asked_for(manifest, films, weights, whole_store, tmp_path, address):
    lacking = extract(manifest, films, weights, tmp_path, address)
    assert lacking.returncode == 1
    line = lacking.stderr.splitlines()[-1]
    assert line.startswith(f"Error: a Ray cluster cannot be joined at {address}: ")
    assert line.endswith("copy ~/.ray/auth_token from its head and set RAY_AUTH_MODE=token")
    assert not (tmp_path / "stores/tiny.zarr/blocks/000000.json").exists()
    (tmp_path / "home/.ray").mkdir()
    (tmp_path / "home/.ray/auth_token").write_text(f"{TOKEN}\n")  # where `ray start` keeps it
    right = extract(manifest, films, weights, tmp_path, address, RAY_AUTH_MODE="token")
    assert right.returncode == 0, right.stderr
    assert contents(tmp_path / "stores/tiny.zarr") == contents(whole_store)


OWN = """
import socket, sys
from obygaze_features.extraction.ray_cluster import connect
with connect(None, resources={"CPU": 1, "GPU": 0}, memory=100 * 2**20) as cluster:
    for host in ("127.0.0.1", sys.argv[1]):
        for _, port in cluster.ports:
            try:
                socket.create_connection((host, port), 5).close()
                sys.stderr.write("reached ")
            except OSError:
                sys.stderr.write("refused ")
"""


def test_a_cluster_of_one_machine_is_reached_from_there_only(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        outward.connect(("192.0.2.1", 9))  # sends nothing
        address = outward.getsockname()[0]
    ended = subprocess.run(
        [sys.executable, "-c", OWN, address],
        env=without_token(tmp_path),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ended.stderr == "reached reached refused refused "
    assert (tmp_path / ".ray/auth_token").stat().st_mode & 0o777 == 0o600
