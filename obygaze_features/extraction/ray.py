"""Extraction on a Ray cluster: each part of the work is a task that runs the local extraction.

Tasks write into the stores themselves, so every machine must see the same files under the same
paths. Ray places the tasks, and runs those of a lost machine again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import MAX_WORKERS
from obygaze_features.common.package import need
from obygaze_features.common.progress import meter
from obygaze_features.errors import ClusterError, first_line
from obygaze_features.extraction.job import Job, Options
from obygaze_features.extraction.summary import Summary
from obygaze_features.store import StoreWriter

PART_ROWS = 256
"""The minimum average number of items in a part, if there are several parts."""


def run_ray(
    extract_part: Callable[[Options], Summary],
    job: Job,
    backbones: Sequence[Backbone],
    writers: Mapping[str, StoreWriter],
    summary: Summary,
) -> None:
    """Compute the blocks of a job on the cluster that this process is connected to.

    `extract_part` extracts the part in its options.
    """
    ray = need("ray", extra="ray")
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cpus, gpus, slots = plan_tasks(nodes, job.options.device)
    left = len(job.to_do)
    # About four parts for each task that can run at a time, so that fast machines can do more.
    count = max(1, min(4 * slots, left // PART_ROWS))
    shares = sorted({row // job.block_rows % count + 1 for row in job.to_do})

    device = job.options.device or ("cuda" if gpus else "cpu")
    workers = job.options.workers or max(1, min(cpus - 1, MAX_WORKERS))
    options = replace(job.options, ray=None, reuse=(), device=device, workers=workers)
    paths = [path.absolute() for path in (*job.paths.values(), job.media) if path]
    shared = ray.put((extract_part, paths, Path.cwd(), version("obygaze")))
    # By default (max_calls=1), a process would end after a task on a GPU, with its backbones.
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_calls=0, max_retries=3)(run_part)
    try:
        tasks = [task.remote(shared, replace(options, part=f"{part}/{count}")) for part in shares]
        with meter(left, "Extracting", unit="item") as advance:
            while tasks:
                time.sleep(5)  # not in Ray, where a signal could be lost
                summary.lap("device")
                finished, tasks = ray.wait(tasks, num_returns=len(tasks), timeout=0)
                for part in ray.get(finished):
                    summary.add(part)
                    advance(part.clips, f"parts left: {len(tasks)}")
    except ray.exceptions.RayError as problem:
        reason = first_line(getattr(problem, "cause", None) or problem)
        raise ClusterError(f"{reason}. Finished work is kept. Run the command again") from None
    finally:
        ray.shutdown()


def plan_tasks(nodes: Sequence[Mapping[str, float]], device: str | None) -> tuple[int, int, int]:
    """Return the CPUs and GPUs of a task, and the number of tasks that can run at a time.

    A task has one GPU, or none if the device is ``cpu`` or the cluster has none. The number of
    its CPUs is the smallest number per GPU on any machine or, without GPUs, the smallest number on
    any machine.
    """
    gpus = int(device != "cpu" and any(node.get("GPU") for node in nodes))
    resource = "GPU" if gpus else "CPU"
    machines = [node for node in nodes if node.get("CPU") and node.get(resource)]
    cpus = min(node["CPU"] // max(1, gpus * node.get("GPU", 0)) for node in machines)
    cpus = max(1, int(cpus))
    slots = sum(node["GPU"] if gpus else node["CPU"] // cpus for node in machines)
    return cpus, gpus, int(slots)


def run_part(
    shared: tuple[Callable[[Options], Summary], list[Path], Path, str],
    options: Options,
) -> Summary:
    """Extract a part on a machine; raise if it has another version of obygaze or lacks a path."""
    extract_part, paths, folder, software = shared
    if version("obygaze") != software or not all(path.exists() for path in paths):
        raise ClusterError(
            f"the machine {socket.gethostname()} must have obygaze {software}, and see these "
            f"paths: {', '.join(map(str, paths))}"
        )
    with contextlib.suppress(OSError):
        os.chdir(folder)  # to which the paths of checkpoints may be relative
    return extract_part(options)


def connect(address: str) -> None:
    """Connect this process to a cluster."""
    ray = need("ray", extra="ray")
    host, _, port = address.rpartition(":")
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        if address != "auto":  # Ray would keep trying for ten minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        ray.init(address, ignore_reinit_error=True, log_to_driver=False, logging_level="critical")
    except Exception as problem:  # Ray raises every kind of error, even plain Exceptions
        reason = first_line(problem)
        raise ClusterError(
            f"--ray HOST:PORT: cannot connect to {address} ({reason}); check that the cluster runs"
        ) from None
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray's own would end the process
