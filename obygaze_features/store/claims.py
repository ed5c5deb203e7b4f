"""Claims on blocks, so that several writers do not compute the same rows.

Claims only save work. Commit records keep a store consistent, because only one writer can publish
the record of a block. If a writer is paused for longer than its lease, another writer may take its
block. When the paused writer resumes, it finds that block's record and discards its own rows.

A claim is a file that is created exclusively. Its modification time is the heartbeat. Its age is
measured by the file system's clock, which is the same for all machines that share the file system.
A block can be claimed again once the lease of its claim has expired, or as soon as the claiming
process has died, if it ran on this host.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.common.files import disk_errors, is_alive, publish_exclusively
from obygaze_features.errors import StoreError
from obygaze_features.store.format import CLAIMS

if TYPE_CHECKING:
    from obygaze_features.store.writer import StoreWriter

LEASE_S = 120.0
"""Seconds without a heartbeat after which another writer may take a block."""


_CLAIM = re.compile(r"[0-9].*\.json")


class Claims:
    """One writer's claims on the blocks of one store."""

    def __init__(self, folder: Path, *, lease: float = LEASE_S) -> None:
        self.folder, self.lease = folder, lease
        self.owner = uuid.uuid4().hex
        self._claimed: set[Path] = set()
        self._stop = threading.Event()

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Renew this writer's claims while the ``with`` block runs, and release them at its end."""
        self.folder.mkdir(exist_ok=True)
        thread = threading.Thread(target=self._beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            for path in list(self._claimed):
                self._release(path)

    def take(self, block: int) -> bool:
        """Claim a block; return False if another writer has claimed it."""
        with disk_errors(self.folder.parent, StoreError):
            return self._take(block)

    def _take(self, block: int) -> bool:
        path = self._path(block)
        if path.exists():
            # Only a claim that exists at this point can be stale; one that appears later is new.
            if not self._is_free(path):
                return False
            # If several writers see a free claim, only one can rename it. (A slow writer may rename
            # a new claim. Both then compute the block, and the first commit wins.)
            stale = path.with_suffix(f".{self.owner}.stale")
            try:
                os.rename(path, stale)
            except FileNotFoundError:
                return False
            stale.unlink()
        claim = {"owner": self.owner, "host": platform.node(), "process": os.getpid()}
        if not publish_exclusively(path, json.dumps(claim).encode()):
            return False
        self._claimed.add(path)
        return True

    def release(self, block: int) -> None:
        """Release a block, whether or not it was written."""
        self._release(self._path(block))

    def active_blocks(self) -> list[int]:
        """Return the blocks with an active claim by any writer."""
        return [int(path.stem) for path in self._files() if not self._is_free(path)]

    def _files(self) -> list[Path]:
        try:  # unlike iterdir, glob would silently ignore an unreadable folder
            return sorted(path for path in self.folder.iterdir() if _CLAIM.fullmatch(path.name))
        except FileNotFoundError:
            return []

    def _path(self, block: int) -> Path:
        return self.folder / f"{block:06d}.json"

    def _release(self, path: Path) -> None:
        self._claimed.discard(path)
        if self._read(path).get("owner") == self.owner:
            path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._stop.wait(self.lease / 4):
            for path in list(self._claimed):
                if self._read(path).get("owner") == self.owner:
                    # A network file system may fail briefly; the next heartbeat retries.
                    with contextlib.suppress(OSError):
                        os.utime(path)

    def _is_free(self, path: Path) -> bool:
        claim = self._read(path)
        if claim.get("host") == platform.node() and not is_alive(claim.get("process")):
            return True
        with contextlib.suppress(FileNotFoundError):
            return file_system_time(self.folder) - path.stat().st_mtime > self.lease
        return True

    @staticmethod
    def _read(path: Path) -> dict[str, object]:
        try:
            claim = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return {}
        return claim if isinstance(claim, dict) else {}


def file_system_time(folder: Path) -> float:
    """Return the current time by the file system's own clock."""
    with tempfile.TemporaryFile(dir=folder, prefix=".clock.") as file:
        return os.fstat(file.fileno()).st_mtime


class BlockClaims:
    """Claims on blocks across several stores; a block is claimed in all of them or in none.

    Parameters
    ----------
    writers
        The store writers, by name. Final stores need no claims and are ignored.
    lease
        Seconds without a heartbeat after which another process may take a block.
    """

    def __init__(self, writers: Mapping[str, StoreWriter], *, lease: float = LEASE_S) -> None:
        # Sort the stores, because otherwise two processes could each claim a block in a different
        # store, and both would then skip that block.
        by_path = sorted(writers.items(), key=lambda named: named[1].store.path)
        self._writers = {name: writer for name, writer in by_path if not writer.store.is_final}
        self._claims = {
            name: Claims(writer.store.path / CLAIMS, lease=lease)
            for name, writer in self._writers.items()
        }

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Renew the claims while the ``with`` block runs, and release them at its end."""
        with contextlib.ExitStack() as stack:
            for claims in self._claims.values():
                stack.enter_context(claims.heartbeat())
            yield

    def take(
        self, block: int, rows: Mapping[str, Sequence[int]], *, retry_failed: bool = False
    ) -> dict[str, list[int]]:
        """Claim a block in every store that still lacks some of the block's rows.

        Returns the missing rows by store name. The result is empty if another process has claimed
        or already written the block.
        """
        names = [name for name in self._claims if name in rows]
        for claimed, name in enumerate(names):
            if not self._claims[name].take(block):
                self.release(block, names[:claimed])
                return {}
        missing = {
            name: self._writers[name].missing_in_block(block, rows[name], retry_failed=retry_failed)
            for name in names
        }
        self.release(block, [name for name in names if not missing[name]])
        return {name: left for name, left in missing.items() if left}

    def release(self, block: int, names: Sequence[str]) -> None:
        """Release a block in the stores with these `names`."""
        for name in names:
            self._claims[name].release(block)
