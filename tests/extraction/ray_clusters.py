"""Real local Ray clusters: their processes, and backbones that these load."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from obygaze_features.backbones import Backbone, load_backbone  # not the one that COMMAND changes
from obygaze_features.extraction.extract import fill
from obygaze_features.extraction.job import Options
from obygaze_features.extraction.summary import Progress

STORE_BYTES = 100 * 2**20
STUCK_AFTER = 38
"""Clips, of 70 in blocks of 32, 32 and 6, in whichever order they come."""


def extract_on(cluster, manifest, films, backbones, output, loads, **options):
    """Extract on a cluster whose processes load backbones with `loads`."""
    from obygaze_features.extraction.ray import run_ray

    options = Options(engine="ray", ray_address=cluster.address, device="cpu", **options)
    run, progress = partial(run_ray, loads), Progress()
    return fill(manifest, Path(films), backbones, output, options, run, progress)


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
    all_stats, pids = stats(), {pid}
    while more := {child for child, fields in all_stats.items() if int(fields[2]) in pids} - pids:
        pids |= more
    return {child: all_stats[child][0] for child in pids - {pid}}


def left_of(session: int, pids: dict[int, str]) -> list[str]:
    """Return which of these processes, and of a command's session, are still running."""
    names = [name for pid, name in pids.items() if Path(f"/proc/{pid}").exists()]
    return names + [fields[0] for fields in stats().values() if int(fields[4]) == session]


def changed(backbone: Backbone, before: Callable[[list[int]], object], **more: Any) -> Backbone:
    """Return a backbone that acts before each batch, given the sizes of all batches so far."""
    sizes: list[int] = []

    def encode(pixels: Any, present: Any, names: Any) -> Any:
        sizes.append(len(pixels))
        before(sizes)
        return backbone.embed_clips(pixels, present)

    return replace(backbone, encode_clips=encode, **more)


def slow(spec: str, device: str, **settings: Any) -> Backbone:
    return changed(load_backbone(spec, device, **settings), lambda sizes: time.sleep(0.3))


def stuck(spec: str, device: str, **settings: Any) -> Backbone:
    """Embed a block or two of three, then wait to be killed."""
    wait = lambda sizes: time.sleep(86_400 if sum(sizes) > STUCK_AFTER else 0)  # noqa: E731
    return changed(load_backbone(spec, device, **settings), wait)


def mortal(spec: str, deaths: Path, size: int, count: int, device: str) -> Backbone:
    """Kill the process at a batch of this size, unless it is its first, `count` times in all.

    Record what Ray gave the process, and each clip; each process names its own device.
    """
    import ray

    from obygaze_features.extraction import ray as ray_engine

    ray_engine.describe_device = lambda device: f"{device} of process {os.getpid()}"
    resources = ray.get_runtime_context().get_assigned_resources()
    deaths.with_name(f"given-{os.getpid()}.json").write_text(json.dumps(resources))

    def die(sizes: list[int]) -> None:
        with deaths.with_name("computed").open("a") as file:
            file.write("x" * sizes[-1])
        if sizes[-1] == size and sizes != [8] and len([*deaths.iterdir()]) < count:
            (deaths / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return changed(load_backbone(spec, device), die)


def broken(device: str) -> Backbone:
    raise RuntimeError("this machine has no floor\nand no walls")
