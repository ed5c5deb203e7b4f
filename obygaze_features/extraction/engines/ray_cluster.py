"""A Ray cluster: joined, or started on this machine, and watched for whether it still is there.

Ray itself looks for a cluster that is gone for a minute, and then ends the process without a word
to who called it. So it is asked for nothing before its ports answer, and they are watched.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from obygaze_features.common.package import need
from obygaze_features.errors import ClusterError, UsageError
from obygaze_features.extraction.engines.ray_token import GREETING, settle_token

__all__ = ["Cluster", "check_address", "joined"]

ANSWER = 5.0
"""Seconds in which a port has to answer."""
GRACE = 30.0
"""Seconds for which a cluster may be away: its head may be started again by others."""
PATIENCE = 5.0
"""Seconds that a signal waits for a cluster that is being joined."""
_SETTINGS = 4


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to.

    Parameters
    ----------
    ray
        The package.
    address
        For people.
    ports
        Of its head, and of its process on this machine.
    grace
        Seconds for which these may be silent.
    """

    ray: ModuleType
    address: str
    ports: tuple[tuple[str, int], ...]
    grace: float

    def check(self) -> None:
        """Raise `ClusterError` if it is gone; waits while it may come back."""
        end = time.monotonic() + self.grace
        while not all(_answers(*port) for port in self.ports):
            if time.monotonic() >= end:
                raise ClusterError(
                    f"the Ray cluster ({self.address}) does not answer any more; what was "
                    "computed is kept, and the same command goes on from there"
                )
            time.sleep(0.5)

    def count(self, what: str) -> float:
        """How much it has of ``CPU`` or ``GPU``, in use or not."""
        return float(self.ray.cluster_resources().get(what, 0))


@contextlib.contextmanager
def joined(address: str | None, *, resources: Mapping[str, int], memory: int) -> Iterator[Cluster]:
    """Be connected to the cluster at an address, or to one of this machine's own.

    Parameters
    ----------
    address
        ``HOST:PORT`` of the cluster's head, or ``auto``. Without one, a new one is started, that
        ends with the block.
    resources, memory
        ``CPU`` and ``GPU`` of a new cluster, and the bytes that it keeps for what is on its way.
    """
    ray = need("ray", extra="ray")
    if address is not None:
        check_address(address)
    # What Ray's own processes have to say would come between lines that scripts read.
    with contextlib.redirect_stdout(io.StringIO()), _kept(ray, address, resources, memory):
        yield _connected(ray, GRACE if address else 0.0)


@contextlib.contextmanager
def _kept(
    ray: ModuleType, address: str | None, resources: Mapping[str, int], memory: int
) -> Iterator[None]:
    """Be connected, by a thread that begins and ends it.

    A signal, which comes to the main thread, would stop Ray half started, and leave some of its
    processes behind. They end with the thread that started them, whatever ends it: it stays.
    """
    begun, over = threading.Event(), threading.Event()
    problems: list[BaseException] = []

    def keep() -> None:
        try:
            _connect(ray, address, resources, memory)
        except BaseException as problem:
            problems.append(problem)
        begun.set()
        over.wait()
        ray.shutdown()

    thread = threading.Thread(target=keep, name="ray", daemon=True)
    thread.start()
    try:
        while not begun.wait(0.01):
            _own_sigterm()
        _own_sigterm()
        if problems:
            raise problems[0]
        yield
    finally:
        over.set()
        # Where a cluster is only joined, there is nothing to end, and to join may take long.
        thread.join(None if begun.is_set() or not address else PATIENCE)


def _own_sigterm() -> None:
    """Have SIGTERM do what Python was told: Ray takes it, and ends the process with a trace."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _connect(
    ray: ModuleType, address: str | None, resources: Mapping[str, int], memory: int
) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    new = {
        "num_cpus": resources["CPU"],
        "num_gpus": resources["GPU"],
        "object_store_memory": memory,
        "include_dashboard": False,
    }
    try:
        ray.init(
            address or "local",
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            **({} if address else new),
        )
    except Exception as problem:  # of every kind, also plain ones
        what = f"joined at {address}" if address else "started on this machine"
        said = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        if "any running Ray instance" in said:
            said = "none runs on this machine; give --ray-address HOST:PORT of its head"
        elif "token" in said.lower():
            said = f"{said.partition('. ')[0]}; copy ~/.ray/auth_token from its head"
        raise ClusterError(f"a Ray cluster cannot be {what}: {said}") from None


def _connected(ray: ModuleType, grace: float) -> Cluster:
    context = ray.get_runtime_context()
    head, _, port = context.gcs_address.rpartition(":")
    here = next(one for one in ray.nodes() if one["NodeID"] == context.get_node_id())
    ports = (head, int(port)), (here["NodeManagerAddress"], here["NodeManagerPort"])
    return Cluster(ray, context.gcs_address, ports, grace)


def check_address(address: str) -> None:
    """Raise if no cluster answers there: Ray itself would go on trying for ten minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto":
        return
    if "://" in address or not (colon and host and port.isdecimal()):
        raise UsageError(
            f"--ray-address is HOST:PORT of the cluster's head, for example 10.0.0.1:6379, or "
            f"auto, not {address!r}"
        )
    if not _answers(host.strip("[]"), int(port)):
        raise ClusterError(
            f"no Ray cluster answers at {address}; see its address, and that it runs, with: "
            "ray status"
        )
    if os.environ.get("RAY_USE_TLS", "0") == "0":
        settle_token(host.strip("[]"), int(port))


def _answers(host: str, port: int) -> bool:
    """Whether somebody is there who speaks as Ray does."""
    try:
        with socket.create_connection((host, port), ANSWER) as channel:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return True
            channel.sendall(GREETING)
            header = channel.recv(9, socket.MSG_WAITALL)
    except (OSError, OverflowError):
        return False
    return len(header) == 9 and header[3] == _SETTINGS
