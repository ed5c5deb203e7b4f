"""A program in the shape of data."""

from __future__ import annotations

import os
from pathlib import Path


class Malice:
    """What makes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)
