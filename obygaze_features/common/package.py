"""Facts about the installation and the machine: data files, extras, cache and cores."""

from __future__ import annotations

import contextlib
import importlib
import os
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


#: Modules that may be missing and that files import without calling `need` first.
OPTIONAL = {"msgspec", "pandas", "safetensors", "scipy", "sklearn", "threadpoolctl", "torch"}


def need(module: str, *, extra: str) -> ModuleType:
    """Import a module; raise `MissingExtra`, which names the extra to install, if that fails."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise missing(module, problem, extra) from None


def missing(module: str, problem: ImportError, extra: str) -> MissingExtra:
    """Return the error for a module of an extra that cannot be imported."""
    remedy = f"install it with: pip install 'obygaze[{extra}]'"
    return MissingExtra(f"{module} cannot be imported ({problem}); {remedy}")


def cache_folder(name: str) -> Path:
    """Return the path of a folder in the user's cache, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "obygaze" / name


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that affinity and cgroup v2 quotas let this process use.

    Containers and Slurm set such limits. `root` is the root of the file system.
    """
    cores: float = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))

    groups = ""
    with contextlib.suppress(OSError):  # not Linux
        groups = (root / "proc/self/cgroup").read_text()
    # A container may see the host's path; then the mount point itself is the group.
    path = root / "sys/fs/cgroup" / groups.strip().rpartition(":/")[2]
    for folder in (path, *path.parents):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no limit
            limit, period = (folder / "cpu.max").read_text().split()
            cores = min(cores, int(limit) / int(period))
    return max(1, int(cores))
