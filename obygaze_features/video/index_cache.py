"""Indexes of films kept in a folder, for as long as the films do not change."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.files import write_bytes
from obygaze_features.errors import ObygazeError
from obygaze_features.video.frame_index import FrameIndex

__all__ = ["keep_index", "kept_index"]

_FORMAT = 1
_ARRAYS = ("times", "pts", "positions", "spare", "starts", "seeks")
_WORDS = ("codec", "container", "width", "height", "seconds", "why_slow")


def kept_index(path: Path, cache: Path) -> FrameIndex | None:
    """The index of a film, if it is kept, whole and of the file as it is now."""
    try:
        kept, key = _place(path, cache)
        with np.load(io.BytesIO(kept.read_bytes()), allow_pickle=False) as found:
            words = json.loads(bytes(found["words"]))
            if words["key"] != key:
                return None
            return FrameIndex(**words["index"], **{name: found[name] for name in _ARRAYS})
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def keep_index(index: FrameIndex, path: Path, cache: Path) -> None:
    """Keep the index of a film; a folder that cannot be written is gone without."""
    with contextlib.suppress(OSError, ObygazeError):
        kept, key = _place(path, cache)
        write_bytes(kept, _packed(index, key))


def _place(path: Path, cache: Path) -> tuple[Path, dict[str, Any]]:
    whole = str(path.absolute())
    stat = path.stat()
    key = {"format": _FORMAT, "path": whole, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    return cache / f"{hashlib.sha256(whole.encode(errors='surrogateescape')).hexdigest()}.npz", key


def _packed(index: FrameIndex, key: dict[str, Any]) -> bytes:
    words = {"key": key, "index": {name: getattr(index, name) for name in _WORDS}}
    buffer = io.BytesIO()
    np.savez(
        buffer,
        words=np.frombuffer(json.dumps(words).encode(), np.uint8),
        **{name: getattr(index, name) for name in _ARRAYS},
    )
    return buffer.getvalue()
