"""The processor's cores that this process may use."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """The cores that this process may use: by its affinity, and by the CPU quota of its cgroups.

    Containers and Slurm set quotas. `root` is the root of the file system.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, int(min([cores, *_cpu_quotas(root)])))


def _cpu_quotas(root: Path) -> Iterator[float]:
    """The quotas, in cores, of the cgroups that this process is in, and of those above them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")  # version 1, or 2
        group = mount / path.lstrip("/")
        # In a container the path may be that of the host: then the mount itself is the group.
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):
                yield _cpu_quota(folder)


def _cpu_quota(folder: Path) -> float:
    quota: float = math.inf
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no limit
        limit, period = (folder / "cpu.max").read_text().split()
        quota = int(limit) / int(period)
    with contextlib.suppress(OSError, ValueError):
        limit, period = (
            (folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
        )
        if int(limit) > 0:  # -1: no limit
            quota = int(limit) / int(period)
    return quota
