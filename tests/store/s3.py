"""A server of S3's protocol on loopback, by moto."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

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
