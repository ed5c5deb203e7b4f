"""Stores in a zip archive, read in place: its entries are stored as they are, not compressed.

``obygaze stores pack`` makes such archives. The archive may lie anywhere that parts of it can be
read of.
"""

from __future__ import annotations

import errno
import io
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

from obygaze_features.errors import StoreError
from obygaze_features.store.location import BLOCK, Location, MappedFile, Span
from obygaze_features.store.packed import check_entries

__all__ = ["Archive"]

TAIL = 2**16
"""Bytes at an archive's end that are read first: the list of its files, and most of the small ones,
which come last."""
HEADER = 30
"""Bytes of the header before an entry's name."""
SLACK = 256
"""Bytes more than what the list says of a header; the two may differ by a field or two."""


class Archive:
    """A zip archive that holds one store.

    Parameters
    ----------
    address
        As it was given.
    base, file
        Where the archive lies, and its name there.
    """

    def __init__(self, address: str | Path, base: Location, file: str) -> None:
        self.address, self.base, self.file = address, base, file
        self.is_local = base.is_local
        self._starts: dict[str, int] = {}

    @property
    def where(self) -> str:
        """The archive's address."""
        return self.base.join(self.file)

    def join(self, name: str) -> str:
        """The entry, as if the archive were a folder."""
        return f"{self.where}/{name}"

    def read(self, name: str) -> bytes:
        """A whole entry, held to the archive's own checksum."""
        entry = self._entry(name)
        header = HEADER + len(entry.orig_filename.encode()) + len(entry.extra) + SLACK
        data = self._bytes(entry.header_offset, header + entry.file_size)
        skip = self._header_bytes(name, data)
        content = data[skip : skip + entry.file_size]
        if len(content) < entry.file_size:
            content = self.read_part(name, 0, entry.file_size)
        if zlib.crc32(content) != entry.CRC:
            raise StoreError(f"{self.join(name)}: its checksum in the archive is wrong")
        return content

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Some bytes of an entry."""
        size = self._entry(name).file_size
        start = max(0, start + size if start < 0 else start)
        length = min(length, size - start)
        return self._bytes(self._start(name) + start, length)

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Several parts of an entry."""
        first = self._start(name)
        return self.base.read_parts(self.file, [(first + start, size) for start, size in spans])

    def stream(self, name: str, start: int = 0) -> Iterator[bytes]:
        """An entry from `start` on."""
        for at in range(start, self.size(name), BLOCK):
            yield self.read_part(name, at, BLOCK)

    def size(self, name: str) -> int:
        """Bytes of an entry."""
        return self._entry(name).file_size

    def map(self, name: str) -> MappedFile | None:
        """An entry as memory, if the archive is on this machine."""
        entry = self._entry(name)
        if self._mapped is None:
            return None
        start = self._start(name)
        content = self._mapped.bytes[start : start + entry.file_size]
        return MappedFile(self.join(name), content, self._mapped.memory)

    def lacking(self) -> str | None:
        """The archive, where there is none."""
        try:
            self.base.size(self.file)
        except FileNotFoundError:
            return f"there is nothing at {self.where}"
        return None

    @cached_property
    def _mapped(self) -> MappedFile | None:
        return self.base.map(self.file)

    def _entry(self, name: str) -> ZipInfo:
        if found := self._contents[0].get(name):
            return found
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.join(name))

    @cached_property
    def _contents(self) -> tuple[dict[str, ZipInfo], _Window]:
        """What is in the archive, by name, and what was read of its end."""
        try:
            window = _Window(self.base, self.file)
            with ZipFile(window) as archive:
                found = archive.infolist()
        except (BadZipFile, NotImplementedError, UnicodeDecodeError, struct.error) as problem:
            raise StoreError(
                f"{self.where} is no zip archive, or is cut short ({problem}); fetch it again"
            ) from None
        except FileNotFoundError:
            raise
        except OSError as problem:
            raise StoreError(f"{self.where} cannot be read: {problem.strerror}") from None
        check_entries(self.where, found, window.size)
        for one in found:
            if one.header_offset + one.file_size > window.size:
                raise StoreError(f"{self.where} is cut short: {one.filename} is not whole")
        return {one.orig_filename: one for one in found}, window

    def _start(self, name: str) -> int:
        """Where an entry's bytes begin, as its own header says."""
        if name not in self._starts:
            at = self._entry(name).header_offset
            self._header_bytes(name, self._bytes(at, HEADER))
        return self._starts[name]

    def _bytes(self, start: int, length: int) -> bytes:
        """Some bytes of the archive; those at its end are here already."""
        window = self._contents[1]
        if start >= window.first:
            return window.tail[start - window.first :][:length]
        return self.base.read_part(self.file, start, length)

    def _header_bytes(self, name: str, header: bytes) -> int:
        """How many bytes an entry's header takes."""
        if len(header) < HEADER or not header.startswith(b"PK\3\4"):
            raise StoreError(
                f"{self.join(name)} does not lie where the archive says; fetch it again"
            )
        size = HEADER + sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
        self._starts[name] = self._entry(name).header_offset + size
        return size


class _Window(io.RawIOBase):
    """An archive as `ZipFile` wants it: a file to seek in; its end is read once and kept."""

    def __init__(self, base: Location, file: str) -> None:
        self.base, self.file = base, file
        self.tail = base.read_part(file, -TAIL, TAIL)
        self.size = base.size(file)
        self.first = self.size - len(self.tail)
        self.at = 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        if self.at < 0:
            raise BadZipFile("it is shorter than its end says")
        return self.at

    def tell(self) -> int:
        return self.at

    def read(self, size: int = -1) -> bytes:
        stop = self.size if size < 0 else min(self.at + size, self.size)
        if self.at >= self.first:
            data = self.tail[self.at - self.first : max(0, stop - self.first)]
        else:
            data = self.base.read_part(self.file, self.at, stop - self.at)
        self.at += len(data)
        return data
