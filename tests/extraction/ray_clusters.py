"""Real local Ray clusters: their processes, and backbones that these load by name."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from obygaze_features.backbones import Backbone, load_backbone
from tests.kit.models import with_clip

STORE_BYTES = 100 * 2**20
STUCK_AFTER = 38
"""Clips, of 70 in blocks of 32, 32 and 6."""


def stats() -> dict[int, list[str]]:
    """Return name, state, parent, group, session and more of every process."""
    fields = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            fields[int(folder.name)] = [name, *rest.split()]
    return fields


def children(pid: int) -> dict[int, str]:
    return {child: fields[0] for child, fields in stats().items() if int(fields[2]) == pid}


def descendants(pid: int) -> dict[int, str]:
    """Return all descendants of a process, with their names."""
    all_stats = stats()
    pids = {pid}
    while more := {child for child, fields in all_stats.items() if int(fields[2]) in pids} - pids:
        pids |= more
    return {child: all_stats[child][0] for child in pids - {pid}}


def run_until(
    block: Path, command: list[Any], number: int, look: Callable[[int], Any] = lambda process: None
) -> tuple[int, list[str], Any]:
    """Send a signal to a command that has written a block; return its exit code, its last lines
    and what was seen before."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Background processes of a shell ignore Ctrl-C, and their children inherit this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        end = time.monotonic() + 600
        while not block.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        seen = look(process.pid)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=900)
    return process.returncode, stderr.splitlines(), seen


def slow() -> Backbone:
    return _before_each_batch(lambda clips: time.sleep(0.3))


def stuck() -> Backbone:
    """Embed a block and a batch, then wait to be killed."""
    return _before_each_batch(lambda clips: time.sleep(86_400 if clips > STUCK_AFTER else 0))


def _before_each_batch(act: Callable[[int], object]) -> Backbone:
    """Return a backbone that acts before each batch, given the number of clips so far."""
    backbone = load_backbone("tiny-xclip", "cpu")
    sizes = list[int]()

    def encode(pixels: Any, present: Any, names: Any) -> Any:
        sizes.append(len(pixels))
        act(sum(sizes))
        return backbone.clip.encode(pixels, present, names)

    return with_clip(backbone, encode=encode)
