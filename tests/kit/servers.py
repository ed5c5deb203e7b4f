"""File servers on loopback that misbehave on demand, also for clients of S3."""

import contextlib
import os
import re
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

RANGE = re.compile(r"bytes=(\d*)-(\d*)")
BEYOND = b"<Error><Message>The requested range is not satisfiable</Message></Error>"  # as S3 does


@contextlib.contextmanager
def in_a_thread(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Served:
    """A folder served over HTTP, and the requests for it."""

    folder: Path
    url: str = ""
    ranges: bool = True
    #: (path, bytes sent) of each request.
    requests: list[tuple[str, int]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: int = 0
    #: Path -> how many bytes of the answer are sent before the connection is cut, if any.
    cut: Callable[[str], int | None] = lambda path: None
    #: Path -> a status (and headers) that is sent instead of the file.
    refuse: Callable[[str], tuple[int, dict[str, str]] | None] = lambda path: None
    #: Path -> additional headers for a file.
    about: Callable[[str], dict[str, str]] = lambda path: {}

    def forget(self) -> None:
        self.requests.clear()
        self.headers.clear()


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Served]:
    served = Served(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            served.connections += 1

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            # A request to a proxy has the full URL.
            path = unquote(urlsplit(self.path).path)
            served.headers.append(dict(self.headers))
            file = served.folder / path.lstrip("/")
            if refused := served.refuse(path):
                return self.answer(path, refused[0], b"no", refused[1])
            if not file.is_file():
                return self.answer(path, 404, b"not found", {})
            with file.open("rb") as content:
                size = content.seek(0, 2)
                first = 0
                last = size - 1
                status = 200
                asked = RANGE.fullmatch(self.headers.get("Range", ""))
                if asked and served.ranges:
                    status = 206
                    if asked[1]:
                        first = int(asked[1])
                        last = min(int(asked[2] or last), last)
                    else:
                        first = max(0, size - int(asked[2]))
                    if first > last:
                        span = {"Content-Range": f"bytes */{size}"}
                        return self.answer(path, 416, BEYOND, span)
                content.seek(first)
                data = content.read(last - first + 1)
            about = served.about(path) | {"Content-Length": str(len(data))}
            if status == 206:
                about["Content-Range"] = f"bytes {first}-{last}/{size}"
            stop = served.cut(path)
            sent = data if stop is None else data[:stop]
            self.answer(path, status, sent, about, len(sent))
            if stop is not None:
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
            return None

        do_HEAD = do_GET

        def answer(
            self, path: str, status: int, data: bytes, headers: dict[str, str], count: int = 0
        ) -> None:
            is_sent = self.command == "GET"
            served.requests.append((path, count * is_sent))
            self.send_response(status, headers.pop("reason line", None))
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data * is_sent)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 512  # zarrita opens a connection for each chunk

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore errors, because the tests include clients that hang up."""

    server = Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    with in_a_thread(server):
        yield served


@contextlib.contextmanager
def s3_at(url: str) -> Iterator[None]:
    """Let clients of S3 use a server."""
    import pytest
    import s3fs  # type: ignore[import-untyped]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        s3fs.S3FileSystem.clear_instance_cache()
        yield
    s3fs.S3FileSystem.clear_instance_cache()
