"""Stores behind HTTP: a part of a file is a request of a range of it.

Nothing but the standard library is needed for it. What is cut off goes on where it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException, HTTPResponse, InvalidURL
from importlib.metadata import version
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from obygaze_features.common.text import redact_url
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store.location import Span
from obygaze_features.store.places.connections import Connections, basic
from obygaze_features.store.places.spans import read_together

__all__ = ["Http"]

PAUSES = (0.0, 0.2, 0.6, 1.5)
"""Seconds before each new try; none before the first, as a kept connection may just be old."""
BLOCK = 2**16
"""Bytes that are waited for at a time; fewer are lost where a process is killed."""
TIMEOUT = 30
"""Seconds without a byte after which a connection counts as cut."""
REDIRECTS = 5
LONGEST_WAIT = 60
"""Seconds that a server may ask us to wait."""
_BUSY = {408, 425, 429, 500, 502, 503, 504}
_MOVED = {301, 302, 303, 307, 308}
_LOST = {400, 401, 403, 404, 410}
_ALLOWED = "/%:@!$&'()*+,;=~?-._"
"""Marks that stay as they are in paths and queries; a percent sign may be of what is quoted."""
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Http:
    """A folder behind ``http://`` or ``https://``.

    A user and a password before the host are sent along, and a query (``?token=...``) with every
    file; neither is ever shown.

    Parameters
    ----------
    url
        The folder's.
    address
        What it is called, if not by its URL.
    token
        Sent to its host, as proof of who asks.
    """

    is_local = False

    def __init__(self, url: str, *, address: str | None = None, token: str | None = None) -> None:
        parts = urlsplit(url)
        try:
            host = parts.hostname or ""
            host.encode("idna")
            named = host and not re.search(r"\s", host) and parts.port != 0
        except ValueError:
            named = False
        if not named:
            raise UsageError(f"{redact_url(url)} names no host, or no port of one")
        self.address = address or url
        host = parts.netloc.rpartition("@")[2]
        self._url = _quoted(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
        self.where = address or self._url
        self._query = f"?{quote(parts.query, safe=_ALLOWED)}" if parts.query else ""
        self._headers = {
            "User-Agent": f"obygaze/{version('obygaze')}",
            "Accept-Encoding": "identity",
        }
        if parts.username:
            self._headers["Authorization"] = basic(parts.username, parts.password)
        elif token:
            self._headers["Authorization"] = f"Bearer {token}"
        self.gives_parts = True  # as far as is known
        self._answered = False
        self._sizes: dict[str, int] = {}
        self._moved: dict[str, str] = {}
        self._connections = Connections(TIMEOUT)

    def join(self, name: str) -> str:
        """The file's URL."""
        return f"{self.where}/{name}"

    def read(self, name: str) -> bytes:
        """A whole file."""
        return b"".join(self.stream(name))

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Some bytes of a file; `StoreError` if the server gives none but all."""
        return b"".join(self._fetch(name, start, length)) if length else b""

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Several parts of a file."""
        return read_together(lambda start, length: self.read_part(name, start, length), spans)

    def stream(self, name: str, start: int = 0) -> Iterator[bytes]:
        """A file from `start` on; where the server gives none but all, the rest is left out."""
        return self._fetch(name, start, None)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        if name not in self._sizes:
            self.read_part(name, 0, 1)
        return self._sizes[name]

    def map(self, name: str) -> None:
        """Nothing."""

    def lacking(self) -> str:
        """The store: whether there is something else, a web server does not tell."""
        return f"there is no store at {self.where}: it has no zarr.json"

    def _fetch(self, name: str, start: int, length: int | None) -> Iterator[bytes]:
        """Bytes of a file, gone on with after each cut; to the end if no length is given."""
        stop = None if length is None or start < 0 else start + length
        failures = 0
        while True:
            pause: float | None = None
            try:
                with self._answer(name, _range(start, stop)) as answer:
                    if answer.status == 416:  # nothing lies there, and most often nowhere
                        self._sizes.setdefault(name, start if start > 0 else 0)
                        return
                    if answer.status in _BUSY:
                        pause = _asked_to_wait(answer)
                        raise ConnectionError(f"the server answers {answer.status}")
                    start, stop, skip = self._part(name, answer, start, stop, length)
                    for block in _blocks(answer, skip):
                        failures = 0
                        start += len(block)
                        if stop is not None and start > stop:
                            raise StoreError(
                                f"{self.join(name)}: the server sends more than it says"
                            )
                        yield block
                    if stop is not None and start < stop:
                        raise ConnectionError("the connection was cut")
                    return
            except FileNotFoundError:
                raise
            except (OSError, HTTPException) as problem:
                if failures == len(PAUSES) or self._is_final(problem):
                    raise StoreError(self._in_words(name, problem, failures + 1)) from None
                time.sleep(PAUSES[failures] if pause is None else pause)
                failures += 1

    def _part(
        self, name: str, answer: HTTPResponse, start: int, stop: int | None, length: int | None
    ) -> tuple[int, int | None, int]:
        """Where an answer begins and ends, and what of it comes before what was asked for."""
        if answer.status == 206:
            found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if (
                found is None
                or (start >= 0 and int(found[1]) != start)
                or (length is not None and int(found[2]) - int(found[1]) >= length)
            ):
                raise StoreError(f"{self.join(name)}: the server gives another part than asked for")
            if found[3] != "*":
                self._sizes[name] = int(found[3])
            return int(found[1]), int(found[2]) + 1, 0
        if length is not None:
            self.gives_parts = False
            whole = self.join(name) if name.endswith(".zip") else self.where
            raise StoreError(
                f"{self.join(name)}: the server gives no part of a file (it does not support "
                f"range requests); fetch the store with: obygaze stores pull {whole} -o NAME.zarr"
            )
        if answer.length is not None:
            stop = self._sizes[name] = answer.length
        return start, stop, start

    @contextlib.contextmanager
    def _answer(self, name: str, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
        """The server's answer to a request of a file, wherever the server sends us for it."""
        own = f"{self._url}/{quote(name, safe='/%~')}{self._query}"
        url = known = self._moved.get(name, own)
        for _ in range(REDIRECTS + 1):
            sent = {**self._headers, **headers}
            if not _is_as_safe(own, url):
                sent.pop("Authorization", None)
            with self._connections.ask(url, sent) as answer:
                self._answered = True
                if answer.status in _MOVED:
                    url = self._moved[name] = self._next(url, answer)
                    continue
                if answer.status in _LOST and url == known != own:
                    del self._moved[name]
                    url = known = own  # where it sent us to last time may hold for a while only
                    continue
                self._refuse(name, answer)
                yield answer
                return
        raise StoreError(f"{self.join(name)}: the server sends us from one place to the next")

    def _next(self, url: str, answer: HTTPResponse) -> str:
        """Where a server sends us to."""
        url = _quoted(urljoin(url, answer.headers.get("Location", "")))
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            place = redact_url(url)  # what follows may be a key to it
            raise StoreError(
                f"{self.where}: the server sends us to {place!r:.80}, which is no page"
            )
        return url

    def _refuse(self, name: str, answer: HTTPResponse) -> None:
        """Raise if an answer has nothing for us and never will."""
        if answer.status in (404, 410):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.join(name))
        if answer.status in (401, 403):
            raise StoreError(
                f"{self.join(name)}: the server answers {answer.status} {answer.reason}; it takes "
                "a user and a password (https://USER:PASSWORD@HOST/...), or the address is wrong"
            )
        if (coding := answer.headers.get("Content-Encoding", "identity")) != "identity":
            raise StoreError(
                f"{self.join(name)}: the server changes files on their way (it sends {coding}); "
                "have it send them as they are"
            )
        if answer.status not in (200, 206, 416, *_BUSY):
            raise StoreError(
                f"{self.join(name)}: the server answers {answer.status} {answer.reason}"
            )

    def _is_final(self, problem: Exception) -> bool:
        """Whether the next try would fail as this one did; a server that answered may be back."""
        if isinstance(problem, socket.gaierror):
            return problem.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None))
        if isinstance(problem, ConnectionRefusedError):
            return not self._answered
        return isinstance(problem, ssl.SSLCertVerificationError | InvalidURL)

    def _in_words(self, name: str, problem: Exception, tries: int) -> str:
        why = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        if isinstance(problem, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted ({problem.verify_message})"
            return f"{self.join(name)} cannot be read: {why}"
        if self._is_final(problem):
            return (
                f"{self.join(name)} cannot be read: {why}; check the host and port in the address"
            )
        return (
            f"{self.join(name)} cannot be read: {why}; tried {tries} times, so see to the network "
            "or to the server, and run the same command again"
        )


def _quoted(url: str) -> str:
    """A URL as it may be sent, with blanks and letters beyond ASCII quoted; what is so, stays."""
    parts = urlsplit(url)
    return parts._replace(path=quote(parts.path, safe=_ALLOWED)).geturl()


def _range(start: int, stop: int | None) -> dict[str, str]:
    """The header that asks for a part."""
    if start < 0:
        return {"Range": f"bytes={start}"}
    if stop is not None:
        return {"Range": f"bytes={start}-{stop - 1}"}
    return {"Range": f"bytes={start}-"} if start else {}


def _is_as_safe(own: str, other: str) -> bool:
    """Whether what proves who asks for one URL may be sent for another: the same server's."""
    a, b = urlsplit(own), urlsplit(other)
    upgraded = a.scheme == "http" and a.port is None and b.scheme == "https"
    return a.netloc == b.netloc and (a.scheme == b.scheme or upgraded)


def _blocks(answer: HTTPResponse, skip: int) -> Iterator[bytes]:
    """What an answer holds but for its first bytes."""
    while block := answer.read(BLOCK):
        if skip < len(block):
            yield block[skip:]
        skip = max(0, skip - len(block))


def _asked_to_wait(answer: HTTPResponse) -> float | None:
    asked = answer.headers.get("Retry-After", "")
    return min(float(asked), LONGEST_WAIT) if asked.isdecimal() else None
