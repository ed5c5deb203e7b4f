"""Stores in a folder of this machine, or of one that it has mounted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from obygaze_features.store.places.mapped import Mapped, map_file
from obygaze_features.store.places.place import BLOCK, Span

__all__ = ["Folder"]


@dataclass(frozen=True)
class Folder:
    """A folder, by its path."""

    path: Path
    is_local = True

    @property
    def address(self) -> Path:
        """The path."""
        return self.path

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    def of(self, name: str) -> str:
        """The file's path."""
        return str(self.path / name)

    def read(self, name: str) -> bytes:
        """A whole file."""
        return (self.path / name).read_bytes()

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Some bytes of a file."""
        with (self.path / name).open("rb") as file:
            file.seek(max(0, start if start >= 0 else file.seek(0, os.SEEK_END) + start))
            return file.read(length)

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Several parts of a file."""
        return [self.read_part(name, start, length) for start, length in spans]

    def stream(self, name: str, start: int = 0) -> Iterator[bytes]:
        """A file from `start` on."""
        with (self.path / name).open("rb") as file:
            file.seek(start)
            yield from iter(lambda: file.read(BLOCK), b"")

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return (self.path / name).stat().st_size

    def map(self, name: str) -> Mapped:
        """A file as memory."""
        return map_file(self.path / name)

    def lacking(self) -> str | None:
        """The folder, where there is none."""
        return None if self.path.exists() else f"there is nothing at {self.where}"
