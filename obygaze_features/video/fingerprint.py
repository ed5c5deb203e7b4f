"""What a film file is known by in a store, without reading all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from obygaze_features.errors import VideoError
from obygaze_features.video.frame_index import FrameIndex

__all__ = ["fingerprint"]

_HEAD = 1 << 20


def fingerprint(path: Path, index: FrameIndex | None = None) -> str:
    """Size, duration and frames where there is an index, and the SHA-256 of the first MiB.

    As words of the form ``key=value`` with a space between, in this order.
    """
    try:
        with path.open("rb") as file:
            head = hashlib.sha256(file.read(_HEAD)).hexdigest()
        size = path.stat().st_size
    except OSError as problem:
        raise VideoError(f"{path} cannot be read: {problem.strerror}") from None
    words: dict[str, Any] = {"bytes": size}
    if index is not None:
        words |= {"seconds": f"{index.seconds:.3f}", "frames": len(index)}
    return " ".join(f"{key}={value}" for key, value in {**words, "head": head}.items())
