"""Stores that fsspec knows the way to: S3 (``s3://bucket/NAME.zarr``), and whatever else it has.

Credentials, endpoints and the like are taken from where its file systems look for them: of S3
``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_ENDPOINT_URL`` and ``~/.aws``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from obygaze_features.common.package import need
from obygaze_features.common.text import redact_url
from obygaze_features.errors import MissingExtra, ObygazeError, StoreError, UsageError
from obygaze_features.store.location import Span
from obygaze_features.store.places.spans import LARGEST, read_together

__all__ = ["FsspecPlace", "file_system", "in_one_line"]


_OF_S3 = {"config_kwargs": {"connect_timeout": 2, "retries": {"total_max_attempts": 2}}}
"""s3fs has tries of its own besides; without this, to find nobody there takes half a minute."""
_URL = re.compile(r"\w+://[^\s\"'<>]+")


class FsspecPlace:
    """A folder behind any URL that fsspec opens."""

    is_local = False

    def __init__(self, address: str) -> None:
        self.address = address
        self.where = redact_url(address).rstrip("/")
        self._made: tuple[int, Any, str] | None = None
        self._opened()

    def join(self, name: str) -> str:
        """The file's URL."""
        return f"{self.where}/{name}"

    def read(self, name: str) -> bytes:
        """A whole file."""
        return self._cat(name)

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Some bytes of a file."""
        if start < 0:
            return self._cat(name, start=start)[:length]
        return self._cat(name, start=start, end=start + length)

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Several parts of a file."""
        return read_together(lambda start, length: self.read_part(name, start, length), spans)

    def stream(self, name: str, start: int = 0) -> Iterator[bytes]:
        """A file from `start` on."""
        for at in range(start, self.size(name), LARGEST):
            yield self.read_part(name, at, LARGEST)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        system, root = self._opened()
        with in_one_line(self.join(name)):
            return int(system.size(f"{root}/{name}"))

    def map(self, name: str) -> None:
        """Nothing."""

    def lacking(self) -> str | None:
        """The bucket, or all below this address."""
        system, root = self._opened()
        bucket = root.partition("/")[0]
        with in_one_line(self.where):
            if system.exists(root):
                return None
            if bucket and not system.exists(bucket):
                return f"there is no bucket {bucket}, for {self.where}"
        return f"there is nothing at {self.where}"

    def _cat(self, name: str, **part: int) -> bytes:
        system, root = self._opened()
        with in_one_line(self.join(name)):
            return bytes(system.cat_file(f"{root}/{name}", **part))

    def _opened(self) -> tuple[Any, str]:
        # Its connections belong to one process, and do not survive a fork.
        if self._made is None or self._made[0] != os.getpid():
            self._made = (os.getpid(), *file_system(self.address))
        return self._made[1:]


def file_system(address: str) -> tuple[Any, str]:
    """Of a URL fsspec's file system, and the path in it."""
    fsspec, where = need("fsspec", extra="remote"), redact_url(address)
    settings = _OF_S3 if address.startswith(("s3://", "s3a://")) else {}
    with in_one_line(where):
        try:
            system, path = fsspec.core.url_to_fs(address, **settings)
        except ImportError as problem:
            raise MissingExtra(
                f"{where} takes a package that is not installed ({problem}); of S3 it is in: "
                "pip install 'obygaze[remote]'"
            ) from None
        except ValueError as problem:
            raise UsageError(f"{where} cannot be opened: {problem}") from None
    return system, path.rstrip("/")


@contextlib.contextmanager
def in_one_line(where: str) -> Iterator[None]:
    """Turn what a file system raises into a FileNotFoundError, or a `StoreError` of one line."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from None
    except ObygazeError:
        raise
    except Exception as problem:  # each has its own, and they are often no OSError
        why = _without_secrets(" ".join(str(problem).split())) or type(problem).__name__
        if type(problem).__name__ in ("EndpointConnectionError", "ConnectTimeoutError"):
            asked = urlsplit(next(iter(_URL.findall(why)), where))
            why = (
                f"nobody answers at {asked.scheme}://{asked.netloc}; see to the network and to the "
                "endpoint (of S3 AWS_ENDPOINT_URL), and run the same command again"
            )
        if isinstance(problem, PermissionError) or "redential" in f"{type(problem)}{why}":
            why = (
                f"no access ({why}); set credentials that may read it, of S3 AWS_ACCESS_KEY_ID "
                "and AWS_SECRET_ACCESS_KEY or a profile in ~/.aws"
            )
        raise StoreError(f"{where}: {why}") from None


def _without_secrets(text: str) -> str:
    """A message without users, passwords and queries of the addresses in it, nor its number."""
    text = re.sub(r"\[Errno -?\d+\] ", "", text)
    return _URL.sub(lambda url: redact_url(url[0]), re.sub(r"://[^/]*@", "://", text))
