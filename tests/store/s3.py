"""A server of S3's protocol on loopback, by moto."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest
from moto.server import ThreadedMotoServer


@contextlib.contextmanager
def bucket(name: str) -> Iterator[Callable[[str, Path], None]]:
    """A server with one bucket, which the environment leads to; gives what puts a file into it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()
        client = boto3.client("s3")
        client.create_bucket(Bucket=name)
        try:
            yield lambda key, file: client.upload_file(str(file), name, key)
        finally:
            client.close()
            s3fs.S3FileSystem.clear_instance_cache()
            server.stop()


@dataclass
class Relay:
    """A way to a server, on which something happens after so many bytes were sent to it."""

    url: str = ""
    after: int = 10**12
    then: Callable[[], object] = lambda: None


@contextlib.contextmanager
def relay(endpoint: str) -> Iterator[Relay]:
    """Hand on what is sent to a server, byte for byte, until it is told to stop."""
    way, goal = Relay(), urlsplit(endpoint)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((goal.hostname, goal.port)) as there:
                back = threading.Thread(target=self.pump, args=(there, self.request, False))
                back.start()
                self.pump(self.request, there, True)
                back.join()

        @staticmethod
        def pump(source: socket.socket, sink: socket.socket, counted: bool) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(4096):
                    if counted:
                        way.after -= len(data)
                    if way.after < 0:
                        way.then()
                        break
                    sink.sendall(data)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        way.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield way
        finally:
            server.shutdown()
            thread.join()
