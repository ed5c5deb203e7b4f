"""The installation and the machine: shipped data, optional packages, cache, cores, memory."""

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
from obygaze_features.errors import ManifestError, MissingExtra, import_errors

_PACKAGE = Path(__file__).resolve().parent.parent
WINDOWS_MEMORY = 4 * 2**30
"""Bytes to plan with on Windows, whose free memory is not asked for."""


def obygaze_version() -> str:
    """Return the installed version; ``0+checkout`` for an uninstalled checkout."""
    try:
        return version("obygaze")
    except PackageNotFoundError:
        return "0+checkout"


def reference_file(name: str) -> Path:
    """Return the path of a shipped file: in the wheel as package data, else in the checkout."""
    for folder in (
        _PACKAGE / "reference",
        _PACKAGE.parent / "manifests",
        _PACKAGE.parent / "examples",
    ):
        if (folder / name).exists():
            return folder / name
    raise ManifestError(f"obygaze ships no {name}; install obygaze again")


@cache
def reference_json(name: str) -> Any:
    """Read a shipped JSON file once. Treat it as read-only."""
    return read_json(reference_file(name), ManifestError)


#: Optional modules that files import at the top; `need` imports the others.
_COMMON = {"msgspec", "safetensors", "scipy", "sklearn", "threadpoolctl", "torch"}


def need(module: str, *, extra: str) -> ModuleType:
    """Import `module`; raise `MissingExtra` with the extra to install, or the cause."""
    with import_errors():
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as problem:
            raise _missing(module, problem, extra) from None


def missing_extra(problem: ModuleNotFoundError, *, extra: str) -> MissingExtra | None:
    """Return the error for a missing optional package; None if the module is not one of ours."""
    module = (problem.name or "").partition(".")[0]
    return _missing(module, problem, extra) if module in _COMMON else None


def _missing(module: str, problem: ImportError, extra: str) -> MissingExtra:
    return MissingExtra(
        f"this needs {module}, which is not installed ({problem}); "
        f"install it with: pip install 'obygaze[{extra}]'"
    )


def cache_folder(name: str) -> Path:
    """Return a folder in the user's cache; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "obygaze" / name


def usable_cores(root: Path = Path("/")) -> int:
    """Count the cores that this process may use: by its affinity and its cgroups' CPU quotas.

    Containers and Slurm set quotas. `root` is the root of the file system.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, int(min([cores, *map(_cpu_quota, _cgroups(root, "cpu"))])))


def usable_memory(root: Path = Path("/")) -> int:
    """Return the bytes of free memory, or fewer if this process's cgroups allow fewer."""
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
    """Return the memory limit of one cgroup, of version 2 or 1."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no limit
            return int((folder / name).read_text())
    return math.inf


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroups and of their parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")  # version 1, or 2
        group = mount / path.lstrip("/")
        # A container may see the host's path; then the mount itself is the group.
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):
                yield folder


def _cpu_quota(folder: Path) -> float:
    """Return the CPU limit of one cgroup: version 2 has one file for it, version 1 two."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no limit
            limit, period = " ".join((folder / name).read_text() for name in names).split()
            if int(limit) > 0:  # -1: no limit
                return int(limit) / int(period)
    return math.inf
