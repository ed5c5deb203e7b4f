"""The connection to a Ray cluster, joined or started on this machine.

Ray searches for a lost cluster for a minute, and then ends the process without an error. So an
address is checked before Ray gets it, and the cluster's ports while it works.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from obygaze_features.common.package import need
from obygaze_features.common.text import first_line
from obygaze_features.errors import ClusterError, UsageError

PORT_TIMEOUT_S = 5.0
_SEVERAL_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Despite its name, what makes Ray listen on all addresses, or on loopback, on any system."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to; its head's port, and this machine's."""

    ray: ModuleType
    ports: tuple[tuple[str, int], ...]

    def check(self) -> None:
        """Raise `ClusterError` if it is gone."""
        if not all(_answers(*port) for port in self.ports):
            raise ClusterError(
                f"the Ray cluster ({':'.join(map(str, self.ports[0]))}) no longer answers; what "
                "was computed is kept, and the same command resumes"
            )


def import_ray(address: str | None) -> ModuleType:
    """Import Ray, to start a cluster on loopback or to join one; `ObygazeError` if it cannot be."""
    if address is None:
        os.environ.setdefault(_SEVERAL_MACHINES, "0")  # which Ray reads when it is imported
    ray = need("ray", extra="ray")
    if address is not None:
        check_address(address)
    return ray


@contextlib.contextmanager
def connect(address: str | None, cpus: int, gpus: int) -> Iterator[Cluster]:
    """Connect to the cluster at an address, or to ``auto``, or start one on this machine.

    A new cluster has so many CPUs and GPUs, and ends with the block. It listens on this machine's
    loopback address only, unless Ray was imported before.
    """
    ray = import_ray(address)
    # Messages of Ray's own processes would come between lines that scripts read. A signal goes to
    # the main thread, and would leave Ray half started there; and Ray's processes end with the
    # thread that started them.
    with contextlib.redirect_stdout(io.StringIO()), ThreadPoolExecutor(1, "ray") as thread:
        started = thread.submit(_init, ray, address, cpus, gpus)
        try:
            while not started.done():
                time.sleep(0.01)
                _restore_sigterm()
            started.result()
            _restore_sigterm()
            context = ray.get_runtime_context()
            head, _, port = context.gcs_address.rpartition(":")
            here = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
            own = here["NodeManagerAddress"], here["NodeManagerPort"]
            yield Cluster(ray, ((head, int(port)), own))
        except SystemError as problem:  # what Ray makes of a signal that arrives with an answer
            if problem.__cause__ is None or isinstance(problem.__cause__, Exception):
                raise
            raise problem.__cause__ from None
        finally:
            thread.submit(ray.shutdown)


def _restore_sigterm() -> None:
    """Reinstall Python's SIGTERM handler: Ray's ends the process with a traceback."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _init(ray: ModuleType, address: str | None, cpus: int, gpus: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    new: dict[str, Any] = {}
    if not address:
        # Ray would write one to a file that all users can read; who has it can run programs.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        new = {"num_cpus": cpus, "num_gpus": gpus, "include_dashboard": False}
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.CRITICAL, **new)
    except Exception as problem:  # of every kind, also plain ones
        action = f"joined at {address}" if address else "started on this machine"
        reason = first_line(problem)
        if address:
            reason += (
                "; if it asks for a token, copy ~/.ray/auth_token from its head and set "
                "RAY_AUTH_MODE=token"
            )
        raise ClusterError(f"a Ray cluster cannot be {action}: {reason}") from None


def check_address(address: str) -> None:
    """Raise if no cluster answers there: Ray itself would try for ten minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "://" in address or not (host and port.isdecimal()):
        raise UsageError(
            f"--ray-address is HOST:PORT of the cluster's head, for example 10.0.0.1:6379, or "
            f"auto (got {address!r})"
        )
    if not _answers(host.strip("[]"), int(port)):
        raise ClusterError(
            f"no Ray cluster answers at {address}; check its address, and that it runs, with: "
            "ray status"
        )


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError, OverflowError):
        socket.create_connection((host, port), PORT_TIMEOUT_S).close()
        return True
    return False
