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
    """The limit of one cgroup: of version 2 in one file, of version 1 in two."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no limit
            limit, period = " ".join((folder / name).read_text() for name in names).split()
            if int(limit) > 0:  # -1: no limit
                return int(limit) / int(period)
    return math.inf
