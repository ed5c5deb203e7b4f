"""Connections to web servers, kept for the next request; through a proxy where there is one."""

from __future__ import annotations

import contextlib
import os
import weakref
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

__all__ = ["Connections", "basic"]

SHORT = 2**16
"""Bytes that are rather read than a new connection made."""

Key = tuple[int, str, str]


class Connections:
    """Those of one process, and each of its forks has its own.

    Parameters
    ----------
    timeout
        Seconds without a byte after which a connection counts as cut.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        # They are taken and put back by one call each, which threads may do without a lock.
        self._idle: dict[Key, list[HTTPConnection]] = {}
        weakref.finalize(self, _close, self._idle)

    @contextlib.contextmanager
    def ask(self, url: str, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
        """The answer to a request; OSError or HTTPException where there is none."""
        parts, answer = urlsplit(url), None
        key = os.getpid(), parts.scheme, parts.netloc
        proxy = _proxy(url)
        target, sent = urlunsplit(("", "", parts.path or "/", parts.query, "")), dict(headers)
        if proxy and parts.scheme == "http":
            target = url
            sent |= _to_proxy(proxy)
        connection = self._take(key, proxy)
        try:
            connection.request("GET", target, headers=sent)
            answer = connection.getresponse()
            yield answer
        except (OSError, HTTPException):
            _close({key: self._idle.pop(key, [])})  # what is old there, is so of all
            raise
        finally:
            self._put_back(key, connection, answer)

    def _take(self, key: Key, proxy: str | None) -> HTTPConnection:
        with contextlib.suppress(IndexError):
            return self._idle.setdefault(key, []).pop()
        _, scheme, netloc = key
        parts = urlsplit(f"//{netloc}")
        make = HTTPSConnection if scheme == "https" else HTTPConnection
        if not proxy:
            return make(parts.hostname or "", parts.port, timeout=self.timeout)
        by = urlsplit(proxy)
        connection = make(by.hostname or "", by.port, timeout=self.timeout)
        if scheme == "https":
            connection.set_tunnel(parts.hostname or "", parts.port, _to_proxy(proxy))
        return connection

    def _put_back(self, key: Key, connection: HTTPConnection, answer: HTTPResponse | None) -> None:
        """Keep a connection whose answer was read to its end; close any other."""
        if answer is not None and not answer.will_close:
            if (answer.length or 0) < SHORT:
                with contextlib.suppress(OSError, HTTPException):
                    answer.read()
            if answer.isclosed():
                self._idle.setdefault(key, []).append(connection)
                return
        connection.close()


def basic(user: str, password: str | None) -> str:
    """The proof of who asks, of a user and a password as they stand in a URL."""
    secret = f"{unquote(user)}:{unquote(password or '')}"
    return f"Basic {b64encode(secret.encode()).decode()}"


def _proxy(url: str) -> str | None:
    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    return f"//{proxy}" if proxy and "://" not in proxy else proxy


def _to_proxy(proxy: str) -> dict[str, str]:
    """Who asks, for the proxy alone."""
    by = urlsplit(proxy)
    return {"Proxy-Authorization": basic(by.username, by.password)} if by.username else {}


def _close(idle: Mapping[Key, Sequence[HTTPConnection]]) -> None:
    for connections in idle.values():
        for connection in connections:
            connection.close()
