"""The location of a store's files: in a folder, in a zip file on this machine, or behind a URL.

The reader asks a location for files by their names in the store, such as ``frames/c/0/0``, and does
not need to know about folders or networks.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeGuard, TypeVar
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from obygaze_features.errors import ObygazeError, StoreError, StoreUnreadable, UsageError, translate
from obygaze_features.store.shards import MappedFile, map_file

BLOCK_BYTES = 2**22
"""The number of bytes to read at a time from a file that is read from start to end."""
_HEADER_BYTES = 30
"""The size of the part of a zip file's header that precedes the file name."""
_NO_ZIP = BadZipFile, NotImplementedError, UnicodeDecodeError, struct.error
_STORE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")

Span = tuple[int, int]
T = TypeVar("T")
V = TypeVar("V")


class Location:
    """The location of one store's files.

    Reading a missing file raises FileNotFoundError. Other failures raise `StoreUnreadable` on local
    disks, and a one-line `StoreError` elsewhere.
    """

    address: str | Path
    """The address that `open_store` takes, in this process or another."""
    where: str
    """The address as shown in messages, without secrets."""
    is_local = True
    """True if accessing a file costs almost nothing."""
    at_once = 1
    """The maximum number of files to read in parallel."""

    def join(self, name: str) -> str:
        """Return a file's address, as shown in messages."""
        return f"{self.where}/{name}"

    def read(self, name: str) -> bytes:
        """Read a whole file."""
        raise NotImplementedError

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Read part of a file, at most to its end; a negative `start` counts from the end."""
        raise NotImplementedError

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Read several parts of a file, each a (start, length), in as few requests as possible."""
        return [self.read_part(name, *span) for span in spans]

    def stream(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield a file from `start` to its end, piece by piece."""
        while data := self.read_part(name, start, BLOCK_BYTES):
            yield data
            start += len(data)

    def exists(self, name: str) -> bool:
        """Return True if a file with this name exists."""
        try:
            self.read_part(name, 0, 1)
        except FileNotFoundError:
            return False
        return True

    def map(self, name: str) -> MappedFile | None:
        """Map a file into memory; return None if that is impossible."""

    def refuse_as_output(self, output: Path) -> None:
        """Raise `UsageError` if an output path is the store itself or is inside it."""
        folder, goal = self.address, output.resolve()
        if isinstance(folder, Path) and folder.resolve() in (goal, *goal.parents):
            raise UsageError(
                output, "is the store itself or inside the store; choose a path outside it"
            )

    identity: object = None
    """The identity of the pinned store; None if a replacement cannot be detected."""

    def identify(self) -> object:
        """Return the identity of the store that is at this location now."""

    def pin(self) -> None:
        """Remember the store's identity, so that reads fail once the store is replaced."""
        self.identity = self.identify()

    def refuse_if_changed(self) -> None:
        """Raise `StoreUnreadable` if the store was replaced or removed.

        Locations call this after reading, unless they know otherwise that the data comes from the
        pinned store.
        """
        if self.identity is not None and self.identity != self.identify():
            raise StoreUnreadable(
                self.where,
                "has been replaced since it was opened (for example, finalised or repaired), or "
                "removed; open it again",
            )


def _identify_file(path: Path) -> object:
    """Return properties of a file that change when it is replaced (ctime cannot be forged)."""
    with contextlib.suppress(FileNotFoundError), _reading(path):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return None


@dataclass(frozen=True)
class StoreFile:
    """A file of a store. As a string, it is the file's address in messages."""

    location: Location
    name: str

    def __str__(self) -> str:
        return self.location.join(self.name)


class Folder(Location):
    """A folder on this machine. Messages call it `where` (default: its path)."""

    def __init__(self, path: Path, where: str | None = None) -> None:
        self.path = self.address = path
        self.where = where or str(path)

    def identify(self) -> object:
        """Return the identity of ``zarr.json``, which is never changed in place."""
        return _identify_file(self.path / "zarr.json")

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """Yield the path of a file, to be read inside the ``with`` block."""
        try:
            with _reading(self.path / name) as path:
                yield path
        finally:
            if name != "zarr.json":  # writers reread it to see if the store was finalised
                self.refuse_if_changed()

    def read(self, name: str) -> bytes:
        """Read a whole file."""
        with self.file(name) as path:
            return path.read_bytes()

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Read part of a file."""
        return self.read_parts(name, [(start, length)])[0]

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Read several parts of a file."""
        parts = []
        with self.file(name) as path, path.open("rb") as file:
            for start, length in spans:
                file.seek(max(0, start if start >= 0 else file.seek(0, os.SEEK_END) + start))
                parts.append(file.read(length))
        return parts

    def map(self, name: str) -> MappedFile:
        """Map a file into memory."""
        with self.file(name) as path:
            return map_file(path)


class ZipArchive(Location):
    """A zip file on this machine that contains one store, uncompressed so it can be mapped."""

    def __init__(self, path: Path, where: str | None = None) -> None:
        self.path = self.address = path
        self.where = where or str(path)

    def identify(self) -> object:
        """Return the identity of the zip file, which is mapped only once."""
        return _identify_file(self.path)

    def read(self, name: str) -> bytes:
        """Read a whole file, and verify its checksum in the zip file."""
        data = self.map(name).bytes.tobytes()
        if zlib.crc32(data) != self._info(name).CRC:
            raise StoreError(
                f"{self.join(name)} does not match its checksum in the zip file; copy the zip again"
            )
        return data

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Read part of a file."""
        data = self.map(name).bytes
        start = max(0, start + len(data) if start < 0 else start)
        return data[start : start + length].tobytes()

    def map(self, name: str) -> MappedFile:
        """Map a file of the archive into memory."""
        info, archive = self._info(name), self._mapped.bytes
        start = info.header_offset
        header = archive[start : start + _HEADER_BYTES].tobytes().ljust(_HEADER_BYTES)
        start += _HEADER_BYTES + sum(struct.unpack("<HH", header[26:30]))
        content = archive[start : start + info.file_size]
        return MappedFile(self.join(name), content, self._mapped.memory)

    @property
    def names(self) -> list[str]:
        """The names of the files in the zip file."""
        return list(self._infos)

    @cached_property
    def _mapped(self) -> MappedFile:
        with _reading(self.path) as path:
            return map_file(path)

    @cached_property
    def _infos(self) -> dict[str, ZipInfo]:
        """The entries of the zip file, by name."""
        reason = "is not a zip file, or is cut short ({}); download it again"
        with (
            _reading(self.path) as path,
            translate(StoreError, self.where, reason, foreign=_NO_ZIP),
            ZipFile(path) as archive,
        ):
            infos = {info.orig_filename: info for info in archive.infolist()}
        for name, info in infos.items():
            if info.compress_type != ZIP_STORED:  # compressed files cannot be mapped
                raise StoreError(
                    self.where,
                    f": {name!r:.80} is compressed. Pack the store again with: "
                    "obygaze stores push STORE NAME.zip",
                )
        return infos

    def _info(self, name: str) -> ZipInfo:
        if info := self._infos.get(name):
            return info
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.join(name))


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Path]:
    """Raise `StoreUnreadable` if the system cannot read a file that exists."""
    try:
        yield path
    except (FileNotFoundError, ObygazeError):
        raise
    except NotADirectoryError as problem:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from problem
    except OSError as problem:
        raise StoreUnreadable(
            f"{path} cannot be read at the moment: {problem.strerror}. The data may be intact. "
            "Check the disk, the permissions and the limits (ulimit), then run the command again"
        ) from problem


def is_url(address: str | Path) -> TypeGuard[str]:
    """Return True if an address is a URL rather than a path."""
    return isinstance(address, str) and "://" in address


def is_store_name(name: str) -> bool:
    """Return True if a name is valid for a file of a store: a relative path, in safe characters."""
    return _STORE_NAME.fullmatch(name) is not None


def require_store_name(path: Path) -> Path:
    """Return the path of a new store; raise `UsageError` if its name does not end in .zarr."""
    if path.suffix != ".zarr":
        raise UsageError(path, ": the name of a store must end in .zarr")
    return path


def in_parallel(
    action: Callable[[V], T],
    values: Iterable[V],
    *,
    at_once: int,
    stopped: threading.Event | None = None,
) -> Iterator[T]:
    """Yield the results of `action` in order, running up to `at_once` calls in parallel.

    After an error, no new calls start, `stopped` is set, and running calls are awaited. After an
    interrupt, running calls are not awaited.
    """
    values = list(values)
    if at_once == 1 or len(values) < 2:
        yield from map(action, values)
        return
    results = [(value, Future[T]()) for value in values]
    waiting = iter(results)
    # Use plain threads, because Python waits for an executor's threads at exit, even if it was
    # interrupted.
    count = min(at_once, len(values))
    threads = [
        threading.Thread(target=_fulfil, args=(action, waiting), daemon=True) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        for _, result in results:
            yield result.result()
    except BaseException as problem:
        list(waiting)
        if stopped:
            stopped.set()
        if isinstance(problem, Exception):
            for thread in threads:
                thread.join()
        raise


def _fulfil(action: Callable[[V], T], waiting: Iterator[tuple[V, Future[T]]]) -> None:
    """Call an action on the waiting values until no value is left."""
    for value, result in waiting:
        try:
            result.set_result(action(value))
        except BaseException as problem:
            result.set_exception(problem)


def sha256_at(location: Location, name: str) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for block in location.stream(name):
        digest.update(block)
    return digest.hexdigest()
