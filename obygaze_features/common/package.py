"""Facts about the installation and the machine: data files, extras, cache, cores and memory."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from obygaze_features.common.files import read_json
from obygaze_features.errors import ManifestError, MissingExtra

_PACKAGE = Path(__file__).resolve().parent.parent


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
OPTIONAL = {"msgspec", "safetensors", "scipy", "sklearn", "threadpoolctl", "torch"}


def need(module: str, *, extra: str) -> ModuleType:
    """Import a module; raise `MissingExtra`, which names the extra to install, if that fails."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise missing(module, problem, extra) from None


def missing(module: str, problem: ImportError, extra: str) -> MissingExtra:
    """Return the error for a module that cannot be imported, which an extra installs."""
    remedy = f"install it with: pip install 'obygaze[{extra}]'"
    return MissingExtra(f"{module} cannot be imported ({problem}); {remedy}")


def cache_folder(name: str) -> Path:
    """Return the path of a folder in the user's cache, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "obygaze" / name


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that affinity and the CPU quotas of cgroups let this process use.

    Containers and Slurm set such quotas. `root` is the root of the file system.
    """
    cores: float = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    for group in _cgroups(root, "cpu"):
        cores = min(cores, _cpu_quota(group))
    return max(1, int(cores))


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroups and their parents."""
    lines = []
    with contextlib.suppress(OSError):  # not Linux
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mount = root / "sys/fs/cgroup"
        if controllers:  # version 1
            if controller not in controllers.split(","):
                continue
            mount /= controller
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
