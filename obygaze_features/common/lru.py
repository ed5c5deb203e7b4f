"""Bytes that can be had again, kept on this machine's disk up to a size limit.

Any number of processes may share a folder: a file appears whole, and one that another process
removed is one that is not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path

from obygaze_features.errors import UsageError

__all__ = ["LIMIT", "Lru", "size_limit"]

LIMIT = 2 * 10**9
"""Bytes that are kept where nobody said otherwise."""
VARIABLE = "OBYGAZE_CACHE_SIZE"
_SIZE = re.compile(r"(\d+(?:[.]\d+)?)\s*([kMGT]?)B?", re.IGNORECASE)


class Lru:
    """A folder of keys and values, of which those go first that were not used for longest.

    Without a folder that can be written, nothing is kept, and that is all.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._unseen = limit  # bytes written since the folder was last looked through

    def get(self, key: str) -> bytes | None:
        """The value of a key, if it is kept."""
        path = self._path(key)
        if not self.limit:  # as said by somebody who wants to know what the network does
            return None
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep the value of a key."""
        if len(data) > self.limit // 4:
            return
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            # Not flushed: whoever reads it holds it to a checksum.
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                try:
                    file.write(data)
                    file.close()
                    os.replace(file.name, self._path(key))
                except OSError:  # a full disk, most likely
                    Path(file.name).unlink(missing_ok=True)
                    raise
            self._unseen += len(data)
            if self._unseen > self.limit // 20:
                self._unseen = 0
                self._make_room()

    def _path(self, key: str) -> Path:
        return self.folder / hashlib.sha256(key.encode()).hexdigest()

    def _make_room(self) -> None:
        files = []
        with os.scandir(self.folder) as entries:
            for one in entries:
                with contextlib.suppress(FileNotFoundError):  # another process makes room, too
                    files.append((one.stat().st_mtime_ns, one.stat().st_size, one.path))
        used = sum(size for _, size, _ in files)
        for _, size, path in sorted(files) if used > self.limit else ():
            if used <= 0.9 * self.limit:
                break
            with contextlib.suppress(OSError):
                Path(path).unlink()
            used -= size


def size_limit() -> int:
    """Bytes that may be kept: what ``OBYGAZE_CACHE_SIZE`` says (``500MB``), else 2 GB."""
    said = os.environ.get(VARIABLE)
    if not said:
        return LIMIT
    found = _SIZE.fullmatch(said.strip())
    if not found:
        raise UsageError(f"{VARIABLE} is {said!r}; a size is meant, such as 500MB, 2GB or 0")
    return int(float(found[1]) * 1000 ** " KMGT".index(found[2].upper() or " "))
