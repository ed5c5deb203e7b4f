"""Claims: who is at work on which block, so that several writers do not do the same twice.

A claim only saves work. What keeps a store whole is the commit record, which one writer alone can
publish: an owner who was paused past its lease, and comes back, finds the record there.

A claim is a file, made exclusively; its age is its heartbeat. Ages are measured by the clock of
the file system, which is the same for all machines that share it. A claim is free to take when
its lease has run out, or at once when its process died on this very host.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

from obygaze_features.common.files import disk_errors, is_alive, publish_exclusively
from obygaze_features.errors import StoreError

__all__ = ["LEASE", "Claims"]

LEASE = 120.0
"""Seconds without a heartbeat after which a block may be taken over."""


class Claims:
    """The claims of one writer on the blocks of one store."""

    def __init__(self, folder: Path, *, lease: float = LEASE) -> None:
        self.folder, self.lease = folder, lease
        self.owner = uuid.uuid4().hex
        self._mine: set[Path] = set()
        self._stop = threading.Event()

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Keep this writer's claims fresh while the block runs; give them back at its end."""
        self.folder.mkdir(exist_ok=True)
        thread = threading.Thread(target=self._beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            for path in list(self._mine):
                self._release(path)

    def take(self, block: int) -> bool:
        """Claim a block; False if somebody else is at work on it."""
        with disk_errors(self.folder.parent, StoreError):
            return self._take(block)

    def _take(self, block: int) -> bool:
        path = self._path(block)
        if path.exists() and not self._is_free(path):
            return False
        if path.exists():
            # Of all who see that a claim is free, one renames it away. (One who was slow may rename
            # away a fresh one: both then work, and the commit record decides.)
            stale = path.with_suffix(f".{self.owner}.stale")
            try:
                os.rename(path, stale)
            except FileNotFoundError:
                return False
            stale.unlink()
        claim = {"owner": self.owner, "host": platform.node(), "process": os.getpid()}
        if not publish_exclusively(path, json.dumps(claim).encode()):
            return False
        self._mine.add(path)
        return True

    def release(self, block: int) -> None:
        """Give a block back, done or not."""
        self._release(self._path(block))

    def at_work(self) -> list[int]:
        """The blocks that somebody is at work on."""
        return [int(path.stem) for path in self._files() if not self._is_free(path)]

    def stale(self) -> list[Path]:
        """The claims of those who are gone."""
        return [path for path in self._files() if self._is_free(path)]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.json"))

    def _path(self, block: int) -> Path:
        return self.folder / f"{block:06d}.json"

    def _release(self, path: Path) -> None:
        self._mine.discard(path)
        if self._read(path).get("owner") == self.owner:
            path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._stop.wait(self.lease / 4):
            for path in list(self._mine):
                if self._read(path).get("owner") == self.owner:
                    # A network file system may fail for a moment; the next beat tries again.
                    with contextlib.suppress(OSError):
                        os.utime(path)

    def _is_free(self, path: Path) -> bool:
        claim = self._read(path)
        if claim.get("host") == platform.node() and not is_alive(claim.get("process")):
            return True
        with contextlib.suppress(FileNotFoundError):
            return self.now() - path.stat().st_mtime > self.lease
        return True

    def now(self) -> float:
        """The time by the file system's own clock."""
        probe = self.folder / f".{self.owner}.clock"
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
        return now

    @staticmethod
    def _read(path: Path) -> dict[str, object]:
        try:
            claim = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return {}
        return claim if isinstance(claim, dict) else {}
