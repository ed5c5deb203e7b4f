"""Backbones as the processes of a Ray cluster load them: slow ones, and ones that die."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.common.plugins import Plugin


def slow(spec: str, device: str, **settings: Any) -> Backbone:
    backbone = load_backbone(spec, device, **settings)

    def encode(pixels: Any, present: Any, names: Any) -> Any:
        time.sleep(0.3)
        return backbone.embed_clips(pixels, present)

    return replace(backbone, encode_clips=encode)


def mortal(spec: str, deaths: Path, size: int, count: int, device: str) -> Backbone:
    """Kills its process over a batch of this size, unless it is its first: `count` times in all.

    Notes beside it what Ray gave its process, and each clip that it computes.
    """
    import ray

    backbone = load_backbone(spec, device)
    resources = ray.get_runtime_context().get_assigned_resources()
    deaths.with_name(f"given-{os.getpid()}.json").write_text(json.dumps(resources))
    seen = []

    def encode(pixels: Any, present: Any, names: Any) -> Any:
        seen.append(len(pixels))
        with deaths.with_name("computed").open("a") as file:
            file.write("x" * len(pixels))
        if len(pixels) == size and seen != [8] and len([*deaths.iterdir()]) < count:
            (deaths / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return backbone.embed_clips(pixels, present)

    return replace(backbone, encode_clips=encode)


def failing(spec: str, device: str) -> Backbone:
    """Of another package, whose code fails in the second batch of each process."""
    backbone = load_backbone(spec, device)
    seen = []

    def encode(pixels: Any, present: Any, names: Any) -> Any:
        seen.append(len(pixels))
        return {}["key"] if len(seen) > 1 else backbone.embed_clips(pixels, present)

    plugin = Plugin("failing", "tests.extraction.ray_loads:failing", "tests 1.0")
    return replace(backbone, encode_clips=encode, plugin=plugin)


def broken(spec: str, device: str) -> Backbone:
    raise RuntimeError("this machine has no floor\nand no walls")
