"""Where the files of a store are: a folder, a zip file, or behind a URL.

The reader asks a location for files by their name in the store (``frames/c/0/0``).
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeGuard
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import parse_json
from obygaze_features.errors import ManifestError, StoreError, UsageError


@dataclass(frozen=True, eq=False)
class MappedFile:
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


def map_file(path: Path) -> MappedFile:
    """Map a file; FileNotFoundError or another OSError where that cannot be done."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
    return MappedFile(str(path), np.frombuffer(memory or b"", np.uint8), memory)


BLOCK = 2**20
"""Bytes that are read at a time of what is read from end to end."""

Span = tuple[int, int]
"""Where some bytes of a file begin, and how many they are."""


class Location(Protocol):
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

    def join(self, name: str) -> str:
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

    def map(self, name: str) -> MappedFile | None:
        """A file as memory; None where this location has none."""

    def lacking(self) -> str | None:
        """What is missing where no store was found; None if something is there."""


def read_json_at(location: Location, name: str) -> Any:
    """The content of a JSON file; FileNotFoundError where there is none."""
    try:
        data = location.read(name)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as problem:
        raise StoreError(f"{location.join(name)} cannot be read: {problem.strerror}") from None
    return parse_json(data, location.join(name), StoreError)


def sha256_at(location: Location, name: str) -> str:
    """The SHA-256 of a file as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for block in location.stream(name):
        digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def as_file(location: Location, name: str) -> Iterator[Path]:
    """A file of a store on this machine's disk, for as long as the block lasts.

    A `ManifestError` that names it names the address instead.
    """
    if isinstance(location.address, Path) and location.address.is_dir():
        yield location.address / name
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, Path(name).name)
        try:
            file.write_bytes(location.read(name))
            yield file
        except FileNotFoundError as problem:
            raise ManifestError(
                f"{location.join(name)} cannot be read: {problem.strerror}"
            ) from None
        except ManifestError as problem:
            raise ManifestError(str(problem).replace(str(file), location.join(name))) from None


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

    def join(self, name: str) -> str:
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

    def map(self, name: str) -> MappedFile:
        """A file as memory."""
        return map_file(self.path / name)

    def lacking(self) -> str | None:
        """The folder, where there is none."""
        return None if self.path.exists() else f"there is nothing at {self.where}"


_CUT = re.compile(r"(https?|s3|hf):/+")
"""The beginning of a URL in which a slash is lacking."""


def location_of(address: str | Path) -> Location:
    """The location that an address means; whether there is anything is not looked at."""
    if is_url(address):
        url = urlsplit(address)
        if url.scheme in ("s3", "s3a", "gs", "gcs") and not url.netloc:
            raise UsageError(f"{address} names nothing; {url.scheme}://BUCKET/NAME.zarr is meant")
        folder, _, file = url.path.rstrip("/").rpartition("/")
        if not file.endswith(".zip"):
            return _behind(address)
        return _archive(address, _behind(url._replace(path=folder).geturl()), file)
    path = Path(address)
    if (cut := _CUT.match(str(path))) and not path.exists():
        raise UsageError(f"{path}: did you mean {cut[1]}://{str(path)[cut.end() :]}?")
    if path.suffix == ".zip" and path.is_file():
        return _archive(path, Folder(path.parent), path.name)
    return Folder(path)


def is_url(address: str | Path) -> TypeGuard[str]:
    """Whether an address is that of a network, not a path."""
    return isinstance(address, str) and "://" in address


def _behind(url: str) -> Location:
    """A folder behind a URL."""
    if url.startswith(("http://", "https://")):
        from obygaze_features.store.places.http import Http

        return Http(url)
    if url.startswith("hf://"):
        from obygaze_features.store.places.hub import hub_place

        return hub_place(url)
    from obygaze_features.store.places.fsspec_place import FsspecPlace

    return FsspecPlace(url)


def _archive(address: str | Path, base: Location, file: str) -> Location:
    from obygaze_features.store.places.archive import Archive

    return Archive(address, base, file)
