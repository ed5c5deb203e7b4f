"""The memory of a command, measured from outside."""

from __future__ import annotations

import subprocess
import time

__all__ = ["peak_mib"]


def peak_mib(command: list[str]) -> float:
    """Return the peak memory of a command and its children together, in MiB."""
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            of = str(process.pid)
            told = subprocess.run(
                ["ps", "-o", "rss=", "-p", of, "--ppid", of], capture_output=True, text=True
            )
            peak = max(peak, sum(map(int, told.stdout.split())))
            time.sleep(0.05)
    assert process.returncode == 0
    return peak / 1024
