"""The files of a store in a folder or a zip file on this machine, mapped into memory.

`store.remote` reads the files of a store behind a URL.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError, StoreUnreadable, UsageError, translate

PIECE_BYTES = 8 * 2**20
"""The size of one request for a large file; nearby parts are joined up to this size."""
MAX_JSON_BYTES = 16 * 2**20
_ZIP_HEADER_BYTES = 30
"""The size of the part of a zip entry's header that precedes the file name."""

ByteRange = tuple[str, int, int]
"""A part of a file: its name, start and length. A negative start counts from the file's end."""


class Location:
    """The location of one store's files. Reading a missing file raises FileNotFoundError.

    Files on this machine are read by `map`.
    """

    address: str | Path
    """The address that `open_store` takes, in this process or another."""
    where: str
    """The address as shown in messages, without secrets."""
    is_local = True
    identity: object = None
    """The identity of the store that was opened; None if its replacement would not be noticed."""

    def join(self, name: str) -> str:
        """Return a file's address, as shown in messages."""
        return f"{self.where}/{name}"

    def map(self, name: str) -> NDArray[np.uint8]:
        """Map a file on this machine into memory as an array of bytes."""
        raise NotImplementedError

    def forget(self) -> None:
        """Release the memory of files that stay mapped."""

    def read(self, name: str) -> bytes:
        """Read a whole file."""
        return self.map(name).tobytes()

    def read_ranges(self, ranges: Sequence[ByteRange], *, missing_ok: bool = False) -> list[Any]:
        """Read several parts of files as bytes, each at most to the end of its file.

        With `missing_ok`, a part of a missing file is None.
        """
        read: list[bytes | None] = []
        for name, start, length in ranges:
            try:
                data = self.map(name)
            except FileNotFoundError:
                if not missing_ok:
                    raise
                read.append(None)
                continue
            end = start + length or None  # None: the end of the file
            read.append(data[start:end].tobytes())
        return read

    def fetch(self, names: Sequence[str], folder: Path) -> None:
        """Copy files into a folder."""
        for name in progress(names, "Copying", unit="file"):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.map(name).data)
            self.forget()

    def identify(self) -> object:
        """Return the identity of the store that is at this location now."""
        return None

    def pin(self) -> None:
        """Remember the store's identity for `refuse_if_changed`."""
        self.identity = self.identify()

    def refuse_if_changed(self) -> None:
        """Raise `StoreUnreadable` if the store has been replaced or removed since `pin`."""
        if self.identity is not None and self.identity != self.identify():
            raise StoreUnreadable(
                self.where,
                "has been replaced since it was opened (for example, finalised or repaired), or "
                "removed; open it again",
            )


@dataclass(frozen=True)
class StoreFile:
    """A file of a store. As a string, it is the file's address in messages."""

    location: Location
    name: str

    def __str__(self) -> str:
        return self.location.join(self.name)


class Folder(Location):
    """A folder on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = self.address = path
        self.where = str(path)

    def map(self, name: str) -> NDArray[np.uint8]:
        """Map a file into memory; raise `StoreUnreadable` if the store was replaced."""
        try:
            return np.frombuffer(_map_file(self.path / name), np.uint8)
        finally:
            self.refuse_if_changed()

    def identify(self) -> object:
        """Return properties of ``zarr.json`` that change when it is replaced."""
        with contextlib.suppress(OSError):
            status = (self.path / "zarr.json").stat()
            return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        return None


class Zip(Location):
    """A zip file on this machine that contains one store, uncompressed so that it can be mapped."""

    def __init__(self, path: Path) -> None:
        self.address = path
        self.where = str(path)
        self._memory = _map_file(path)
        reason = "is not a zip file, or is cut short ({}); download it again"
        with translate(StoreError, path, reason), ZipFile(path) as archive:
            self.infos = {info.orig_filename: info for info in archive.infolist()}

    def map(self, name: str) -> NDArray[np.uint8]:
        """Return a file of the archive, which is mapped into memory as a whole."""
        if name not in self.infos:
            raise FileNotFoundError(self.join(name))
        info = self.infos[name]
        archive = np.frombuffer(self._memory, np.uint8)
        start = info.header_offset
        header = archive[start : start + _ZIP_HEADER_BYTES].tobytes().ljust(_ZIP_HEADER_BYTES)
        start += _ZIP_HEADER_BYTES + sum(struct.unpack("<HH", header[26:]))
        return archive[start : start + info.file_size]

    def forget(self) -> None:
        """Release the memory of pages that were read. The system reads pages again when needed."""
        # Windows lacks this call, and trims a process's pages by itself.
        if sys.platform != "win32" and isinstance(self._memory, mmap.mmap):
            self._memory.madvise(mmap.MADV_DONTNEED)

    def read(self, name: str) -> bytes:
        """Read a whole file, and verify its checksum in the zip file."""
        data = super().read(name)
        if zlib.crc32(data) != self.infos[name].CRC:
            raise StoreError(
                f"{self.join(name)} does not match its checksum in the zip file, or is compressed; "
                "copy the zip again, or pack the store with: obygaze stores push STORE NAME.zip"
            )
        return data


def is_url(address: str | Path) -> TypeGuard[str]:
    """Return True if an address is a URL rather than a path."""
    return isinstance(address, str) and "://" in address


def require_store_name(path: Path) -> Path:
    """Return the path of a new store; raise `UsageError` if its name does not end in .zarr."""
    if path.suffix != ".zarr":
        raise UsageError(path, ": the name of a store must end in .zarr")
    return path


def sha256_at(location: Location, name: str) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    start = 0
    length = PIECE_BYTES
    while length == PIECE_BYTES:
        [data] = location.read_ranges([(name, start, PIECE_BYTES)])
        digest.update(data)
        length = len(data)
        start += length
    return digest.hexdigest()


def _map_file(path: Path) -> mmap.mmap | bytes:
    """Map a file; raise `StoreUnreadable` if the system cannot read a file that exists."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return b""  # an empty file cannot be mapped
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as problem:
        raise StoreUnreadable(
            f"{path} cannot be read at the moment: {problem.strerror}. The data may be intact. "
            "Check the disk, the permissions and the limits (ulimit), then run the command again"
        ) from problem
