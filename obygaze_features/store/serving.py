"""`obygaze stores serve`: a small web server for files and ranges, enough to read stores.

It serves the regular files of one folder. It does not list files, follow links out of the folder,
or accept uploads.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from obygaze_features.errors import StoreError, translate

BLOCK_BYTES = 2**20
TIMEOUT_S = 60.0
"""Seconds after which a silent connection is closed."""
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_PREFLIGHT = (
    ("Access-Control-Allow-Methods", "GET, HEAD"),
    ("Access-Control-Max-Age", "86400"),
)
_LOOPBACK = re.compile(r"(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?", re.IGNORECASE)


def make_server(
    folder: Path, host: str, port: int, *, allow_origins: Collection[str] = ()
) -> ThreadingHTTPServer:
    """Return a server for a folder, bound to `host` and `port`; port 0 means any free port.

    In a browser, scripts of pages from `allow_origins` may read the files; ``*`` allows all pages.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder; pass a folder of stores")

    class Handler(_Handler):
        root = folder.resolve()
        origins = frozenset(allow_origins)
        is_local = is_loopback(host)

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            """Do nothing: clients may disconnect at any time."""

    reason = ": {}; choose another --port or --host"
    with translate(StoreError, f"cannot listen at {host}:{port}", reason):
        return Server((host, port), Handler)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server that listens on `host`."""
    return host in ("localhost", "::1") or host.startswith("127.")


class _Handler(BaseHTTPRequestHandler):
    """The handler of one connection's requests."""

    root: Path
    origins: frozenset[str]
    is_local: bool
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "obygaze", ""
    timeout = TIMEOUT_S
    disable_nagle_algorithm = True

    def parse_request(self) -> bool:
        """Parse the head of a request; if it announces a body, close the connection afterwards.

        Bodies are not read. If a body were taken for the next request, a proxy in front of this
        server could send the response to the wrong client (request smuggling).
        """
        if not super().parse_request():
            return False
        length = self.headers.get("Content-Length", "0")
        if length != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True
        return True

    def do_GET(self) -> None:
        """Send a file, or a range of it."""
        # A web page could point its own host name to this server and then read everything.
        if self.is_local and not _LOOPBACK.fullmatch(self.headers.get("Host", "localhost")):
            self._begin(403, 0)
            return
        path = self._find(unquote(urlsplit(self.path).path))
        try:
            file = path.open("rb") if path else None
        except OSError:
            file = None
        if file is None:
            self._begin(404, 0)
            return
        with file:
            status, size = os.fstat(file.fileno()), file.seek(0, 2)
            version = ("ETag", f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{size:x}"')
            start, stop = 0, size
            parts = _RANGE.fullmatch(self.headers.get("Range", "").strip())
            if not parts or not (parts[1] or parts[2]):
                self._begin(200, size, ("Accept-Ranges", "bytes"), version)
            else:
                if parts[1]:
                    start = int(parts[1])
                    stop = min(size, int(parts[2]) + 1) if parts[2] else size
                else:
                    start = max(0, size - int(parts[2]))
                if start >= stop:
                    self._begin(416, 0, ("Content-Range", f"bytes */{size}"))
                    return
                span = f"bytes {start}-{stop - 1}/{size}"
                self._begin(206, stop - start, ("Content-Range", span), version)
            file.seek(start)
            while self.command == "GET" and start < stop:
                data = file.read(min(BLOCK_BYTES, stop - start))
                if not data:  # the file has been truncated meanwhile
                    self.close_connection = True
                    return
                self.wfile.write(data)
                start += len(data)

    def do_HEAD(self) -> None:
        """Send the headers that a GET would send."""
        self.do_GET()

    def do_OPTIONS(self) -> None:
        """Answer a browser's preflight request for a page from another origin."""
        self._begin(204, 0, ("Access-Control-Allow-Headers", "Range"), *_PREFLIGHT)

    def log_message(self, *_: object) -> None:
        """Do nothing: reading a store takes thousands of requests."""

    def _find(self, path: str) -> Path | None:
        """Return the regular file for a URL's path; None if it must not be served."""
        parts = [part for part in path.split("/") if part]
        if any(re.search(r"[\\:\0]", part) for part in parts):
            return None
        try:
            file = self.root.joinpath(*parts).resolve(strict=True)
            inside = file.relative_to(self.root).parts
        except (OSError, RuntimeError, ValueError):
            return None
        # Check both the name itself and, if it is a link, the link's target.
        is_hidden = any(part.startswith(".") for part in (*parts, *inside))
        return file if file.is_file() and not is_hidden else None

    def _begin(self, status: int, length: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(length)), *headers, *self._sharing()):
            self.send_header(name, value)
        self.end_headers()

    def _sharing(self) -> Iterator[tuple[str, str]]:
        """Yield the headers that allow a page from an allowed origin to read the response."""
        if not self.origins:
            return
        yield "Vary", "Origin"
        origin = "*" if "*" in self.origins else self.headers.get("Origin", "")
        if origin in self.origins:
            yield "Access-Control-Allow-Origin", origin
            yield "Access-Control-Expose-Headers", "Content-Range, Content-Length, ETag"
