"""What a film file is known by in a store, without reading all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from obygaze_features.errors import VideoError
from obygaze_features.video.index import FrameIndex

__all__ = ["fingerprint"]

_HEAD = 1 << 20


def fingerprint(path: Path, index: FrameIndex) -> dict[str, Any]:
    """Size, duration, number of frames, and the SHA-256 of the first MiB."""
    try:
        with path.open("rb") as file:
            head = hashlib.sha256(file.read(_HEAD)).hexdigest()
        size = path.stat().st_size
    except OSError as problem:
        raise VideoError(f"{path} cannot be read: {problem.strerror}") from None
    seconds = round(index.seconds, 6)
    return {"bytes": size, "seconds": seconds, "frames": len(index), "head_sha256": head}
