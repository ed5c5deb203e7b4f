"""Files as memory, read through the page cache."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mapped", "map_file"]


@dataclass(frozen=True, eq=False)
class Mapped:
    """A file, or a part of one, as an array of bytes.

    Parameters
    ----------
    where
        Its address.
    bytes
        What it holds.
    memory
        The mapping itself; None for an empty file, which cannot be mapped.
    """

    where: str
    bytes: NDArray[np.uint8]
    memory: mmap.mmap | None

    def forget(self) -> None:
        """Let go of the pages that were read; they are read again when they are needed."""
        # Windows has no such call, and trims a process's pages by itself.
        if self.memory is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED)


def map_file(path: Path) -> Mapped:
    """Map a file; FileNotFoundError or another OSError where that cannot be done."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
    return Mapped(str(path), np.frombuffer(memory or b"", np.uint8), memory)
