"""What a store's files are read through, wherever they lie: one protocol, one file a kind of place.

The reader knows names within a store (``frames/c/0/0``), and nothing of folders or networks.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from obygaze_features.common.files import parse_json
from obygaze_features.errors import ManifestError, StoreError
from obygaze_features.store.places.mapped import Mapped

__all__ = ["BLOCK", "Place", "Span", "as_file", "load_json", "sha256_at"]

BLOCK = 2**20
"""Bytes that are read at a time of what is read from end to end."""

Span = tuple[int, int]
"""Where some bytes of a file begin, and how many they are."""


class Place(Protocol):
    """Where the files of one store lie.

    What is not there is a FileNotFoundError. Other trouble is an OSError with its ``strerror`` on
    this machine's own disks, and elsewhere a `StoreError` of one line.
    """

    @property
    def address(self) -> str | Path:
        """What `open_store` opens it by, here and in other processes."""

    @property
    def where(self) -> str:
        """The address for people to read; without what is secret in it."""

    @property
    def is_local(self) -> bool:
        """Whether looking at a file costs next to nothing."""

    def of(self, name: str) -> str:
        """A file's own address, for people to read."""

    def read(self, name: str) -> bytes:
        """A whole file."""

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Some bytes of a file, or as many of them as there are.

        A negative `start` counts from the end.
        """

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Several parts of a file, in as few requests as they take."""

    def stream(self, name: str, start: int = 0) -> Iterator[bytes]:
        """A file from `start` to its end, block by block."""

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def map(self, name: str) -> Mapped | None:
        """A file as memory; None where this place has none."""

    def lacking(self) -> str | None:
        """Of a place where no store was found, what is not there at all; None if something is."""


def load_json(place: Place, name: str) -> Any:
    """The content of a JSON file; FileNotFoundError where there is none."""
    try:
        data = place.read(name)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as problem:
        raise StoreError(f"{place.of(name)} cannot be read: {problem.strerror}") from None
    return parse_json(data, place.of(name), StoreError)


def sha256_at(place: Place, name: str) -> str:
    """The SHA-256 of a file as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for block in place.stream(name):
        digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def as_file(place: Place, name: str) -> Iterator[Path]:
    """A file of a store on this machine's disk, for as long as the block lasts.

    A `ManifestError` that names it names the address instead.
    """
    if isinstance(place.address, Path) and place.address.is_dir():
        yield place.address / name
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, Path(name).name)
        try:
            file.write_bytes(place.read(name))
            yield file
        except FileNotFoundError as problem:
            raise ManifestError(f"{place.of(name)} cannot be read: {problem.strerror}") from None
        except ManifestError as problem:
            raise ManifestError(str(problem).replace(str(file), place.of(name))) from None
