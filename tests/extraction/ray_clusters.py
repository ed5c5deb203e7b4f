"""Processes of extractions, and a backbone that Ray loads by name."""

import contextlib
import time
from pathlib import Path
from typing import Any

import obygaze_features as of
from tests.kit.models import with_clip

STORE_BYTES = 100 * 2**20
"""Clips, of 70 in blocks of 32, 32 and 6."""


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append(int(folder.name))
    return found


def slow() -> of.Backbone:
    backbone = of.load_backbone("tiny-xclip", "cpu")

    def encode(*inputs: Any) -> Any:
        time.sleep(0.3)
        return backbone.clip.encode(*inputs)

    return with_clip(backbone, encode=encode)
