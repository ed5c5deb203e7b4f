"""Facts about the installation and the machine: data files, extras, cache, cores and memory."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from obygaze_features.common.files import read_json
from obygaze_features.errors import ManifestError, MissingExtra

_PACKAGE = Path(__file__).resolve().parent.parent
WINDOWS_MEMORY = 4 * 2**30
"""The free memory, in bytes, to assume on Windows, where it is not queried."""


def obygaze_version() -> str:
    """Return the installed version; ``0+checkout`` for a checkout that is not installed."""
    try:
        return version("obygaze")
    except PackageNotFoundError:
        return "0+checkout"


def reference_file(name: str) -> Path:
    """Return the path of a file that comes with obygaze, in the wheel or in the checkout."""
    for folder in ("obygaze_features/reference", "manifests", "examples"):
        path = _PACKAGE.parent / folder / name
        if path.exists():
            return path
    raise ManifestError(f"{name} is missing from this installation; install obygaze again")


@cache
def reference_json(name: str) -> Any:
    """Read a shipped JSON file once. Treat the result as read-only."""
    return read_json(reference_file(name), ManifestError)


#: Optional modules that files import at the top; `need` imports the others.
_COMMON = {"msgspec", "safetensors", "scipy", "sklearn", "threadpoolctl", "torch"}


def need(module: str, *, extra: str) -> ModuleType:
    """Import a module; raise `MissingExtra`, which names the extra to install, if that fails."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise _missing(module, problem, extra) from None


def missing_extra(problem: ModuleNotFoundError, *, extra: str) -> MissingExtra | None:
    """Return the error for a missing optional package; None if obygaze does not need the module."""
    module = (problem.name or "").partition(".")[0]
    return _missing(module, problem, extra) if module in _COMMON else None


def _missing(module: str, problem: ImportError, extra: str) -> MissingExtra:
    return MissingExtra(
        f"{module} cannot be imported ({problem}); install it with: pip install 'obygaze[{extra}]'"
    )


def cache_folder(name: str) -> Path:
    """Return the path of a folder in the user's cache, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "obygaze" / name


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that affinity and the CPU quotas of cgroups let this process use.

    Containers and Slurm set such quotas. `root` is the root of the file system.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, int(min([cores, *map(_cpu_quota, _cgroups(root, "cpu"))])))


def usable_memory(root: Path = Path("/")) -> int:
    """Return the memory in bytes that is free and that this process's cgroups let it use."""
    if sys.platform == "win32":
        return WINDOWS_MEMORY
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError):  # not Linux
        lines = (root / "proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":") for line in lines)
        free = 1024 * int(fields["MemAvailable"].split()[0])
    limits = (_memory_limit(folder) for folder in _cgroups(root, "memory"))
    return int(min([free, *limits]))


def _memory_limit(folder: Path) -> float:
    """Return the memory limit of a cgroup (version 1 or 2), or infinity if it has none."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no limit
            return int((folder / name).read_text())
    return math.inf


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroups and their parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")  # version 1 or 2
        group = mount / path.lstrip("/")
        # A container may see the host's path; then the mount point itself is the group.
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):
                yield folder


def _cpu_quota(folder: Path) -> float:
    """Return the CPU limit of a cgroup, which is in one file (version 2) or two (version 1)."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no limit
            limit, period = " ".join((folder / name).read_text() for name in names).split()
            if int(limit) > 0:  # -1: no limit
                return int(limit) / int(period)
    return math.inf
