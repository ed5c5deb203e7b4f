"""Temporary names that say who writes there, so that what a killed process left can be cleared."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
from functools import cache
from pathlib import Path

__all__ = ["SUFFIX", "clear_unfinished", "is_alive", "prefix"]

SUFFIX = ".partial"


def prefix(path: Path) -> str:
    """How the name begins under which this process writes what is to become `path`."""
    return f".{path.name}.{_here()}_{os.getpid()}_"


def clear_unfinished(path: Path) -> None:
    """Remove what lies beside `path` of processes of this machine that were to make it and died."""
    pattern = re.compile(
        rf"\.{re.escape(path.name)}\.{_here()}_([0-9]+)_[a-z0-9_]+{re.escape(SUFFIX)}"
    )
    with contextlib.suppress(OSError):  # whoever goes on says what is wrong with the folder
        for left in path.parent.iterdir():
            found = pattern.fullmatch(left.name)
            if not found or is_alive(int(found[1])):
                continue
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def is_alive(process: object) -> bool:
    """Whether a process of this host is there; unknown counts as alive."""
    if not isinstance(process, int) or os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


@cache
def _here() -> str:
    """The machine, or this container of it: process numbers mean nothing anywhere else."""
    space = ""
    with contextlib.suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]
