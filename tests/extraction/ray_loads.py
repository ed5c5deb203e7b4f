"""Backbones as the processes of a Ray cluster load them: slow ones, and ones that die."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from obygaze_features.backbones import Backbone, load_backbone


def slow(spec: str, device: str, **settings: Any) -> Backbone:
    one = load_backbone(spec, device, **settings)

    def forward(pixels: Any, present: Any) -> Any:
        time.sleep(0.3)
        return one.forward(pixels, present)

    return replace(one, forward=forward)


def mortal(spec: str, deaths: Path, size: int, count: int, device: str) -> Backbone:
    """Kills its process over a batch of this size, unless it is its first: `count` times in all."""
    one = load_backbone(spec, device)
    seen = []

    def forward(pixels: Any, present: Any) -> Any:
        seen.append(len(pixels))
        if len(pixels) == size and seen != [8] and len([*deaths.iterdir()]) < count:
            (deaths / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return one.forward(pixels, present)

    return replace(one, forward=forward)


def broken(spec: str, device: str) -> Backbone:
    raise RuntimeError("this machine has no floor\nand no walls")
