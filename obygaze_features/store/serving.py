"""A small web server of files and ranges of them: no more is needed to read a store from afar.

It gives what lies below one folder and is a plain file there; it lists nothing, follows no link
that leads out, and takes nothing in.
"""

from __future__ import annotations

import contextlib
import re
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from obygaze_features.errors import StoreError

__all__ = ["server_of"]

BLOCK = 2**20
"""Bytes that are sent at a time."""
PATIENCE = 60.0
"""Seconds for which a connection may be silent."""
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def server_of(folder: Path, host: str, port: int) -> ThreadingHTTPServer:
    """A server of a folder, bound to its address; it answers once it is told to.

    Parameters
    ----------
    folder
        What lies below it is given to everybody who asks.
    host, port
        Where it listens; the port 0 stands for any that is free.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder; one with stores in it is meant")
    root = folder.resolve()

    class Handler(_Handler):
        def find(self, path: str) -> Path | None:
            return _below(root, path)

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Nothing: clients hang up when they like."""

    try:
        return Server((host, port), Handler)
    except (OSError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise StoreError(
            f"nobody can be served at {host}:{port}: {why}; choose another --port or --host"
        ) from None


def _below(root: Path, path: str) -> Path | None:
    """The plain file that a path of a URL means; None if there is none, or it is not for others."""
    parts = [part for part in path.split("/") if part]
    if any(part.startswith(".") or re.search(r"[\\:\0]", part) for part in parts):
        return None
    try:
        file = root.joinpath(*parts).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return file if file.is_file() and root in file.parents else None


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "obygaze", ""
    timeout = PATIENCE
    disable_nagle_algorithm = True

    def find(self, path: str) -> Path | None:
        """The file that a path means."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """A file, or a part of it."""
        path = self.find(unquote(urlsplit(self.path).path))
        try:
            file = path.open("rb") if path else None
        except OSError:
            file = None
        if file is None:
            self._begin(404, 0)
            return
        with file:
            self._give(file)

    def do_HEAD(self) -> None:
        """What a GET would begin with."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing: a store is read in thousands of requests."""

    def _give(self, file: BinaryIO) -> None:
        size = file.seek(0, 2)
        span = self._asked(size)
        if span is None:
            self._begin(200, size, {"Accept-Ranges": "bytes"})
            span = 0, size
        elif span[0] >= span[1]:
            self._begin(416, 0, {"Content-Range": f"bytes */{size}"})
            return
        else:
            where = f"bytes {span[0]}-{span[1] - 1}/{size}"
            self._begin(206, span[1] - span[0], {"Content-Range": where})
        if self.command == "HEAD":
            return
        at, stop = file.seek(span[0]), span[1]
        while at < stop and (data := file.read(min(BLOCK, stop - at))):
            self.wfile.write(data)
            at += len(data)
        if at < stop:  # it was cut short meanwhile
            self.close_connection = True

    def _asked(self, size: int) -> tuple[int, int] | None:
        """From where to where; None for all of it, as of what is no single range."""
        found = _RANGE.fullmatch(self.headers.get("Range", "").strip())
        if not found or not (found[1] or found[2]):
            return None
        if not found[1]:
            return max(0, size - int(found[2])), size
        stop = min(size, int(found[2]) + 1) if found[2] else size
        return int(found[1]), stop

    def _begin(self, status: int, length: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **(headers or {})}.items():
            self.send_header(name, value)
        with contextlib.suppress(ConnectionError):
            self.end_headers()
