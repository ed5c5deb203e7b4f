"""Files behind a URL of one of `SCHEMES`, read through fsspec.

Credentials and endpoints are where fsspec's file systems look for them: for S3 in
``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_ENDPOINT_URL`` and ``~/.aws``; for a web
server in the URL (``https://USER:PASSWORD@HOST/...``); for the Hub from ``hf auth login``.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from http.client import responses
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import msgspec

from obygaze_features.common.package import need, obygaze_version
from obygaze_features.common.text import format_size, redact, redact_url, shorten
from obygaze_features.errors import MissingExtra, ObygazeError, StoreError, UsageError, translate
from obygaze_features.store import format as fmt
from obygaze_features.store.location import Location, Span, is_url

SCHEMES = ("https", "http", "s3", "gs", "hf", "file")
"""What a URL may begin with. fsspec knows more: some of them run what a server sends."""
PAUSES_S = (0.1, 0.5, 1.5, 4.0)
"""Seconds before each new try of a request that may succeed next time."""
MAX_WAIT_S = 60
"""Seconds that a server may ask us to wait before the next try."""
MAX_REQUESTS = 8
"""Requests at a time."""
PIECE_BYTES = 8 * 2**20
"""Bytes of one request of a large file; neighbouring parts are joined up to this."""
MAX_JSON_BYTES = 16 * 2**20
MAX_FILE_BYTES = 2**30
"""What is read of one file at most, so that nobody can fill the memory."""
TIMEOUT_S = 30
"""Seconds without a byte after which a connection counts as cut."""
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_HF_ADDRESS = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@([\w./-]+?))?(/[^@]*)?")
_S3_OPTIONS = {"config_kwargs": {"connect_timeout": 2, "retries": {"total_max_attempts": 2}}}
"""s3fs retries by itself; without this, an endpoint that is down takes half a minute."""

Range = tuple[int | None, int | None]


class _Answer(bytes):
    """What a web server sent of a file, and the file's version where the server names one."""

    version: str | None = None
    is_whole = False


class Remote(Location):
    """A folder behind a URL; nothing of it is kept on this machine.

    A password and a query (``?token=...``) are sent with each request, and never shown.
    """

    is_local = False

    def __init__(self, address: str) -> None:
        self.address = self.url = address
        self.where = redact_url(address).rstrip("/")
        self._checksums: dict[str, str] = {}
        self._versions: dict[str, set[str | None]] = {}
        self._answered = False
        self._opened: tuple[int, Any, str, str] | None = None
        self._open()

    def read(self, name: str) -> bytes:
        """A whole file, compared with the list of checksums of the store that was pinned."""
        if name == fmt.CHECKSUMS and isinstance(self.identity, bytes):
            return self.identity
        sha256 = self._checksums.get(name)
        [data] = self._read_ranges(name, [(None, None)], is_known=sha256 is not None)
        if sha256 and hashlib.sha256(data).hexdigest() != sha256:
            self.refuse_if_changed()
            raise StoreError(
                self.join(name),
                "is not as it was written; tell whoever offers the store, who can run: obygaze "
                "stores repair",
            )
        return data

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Part of a file; a negative `start` counts from its end."""
        end = None if start < 0 else start + length
        return self._read_ranges(name, [(start, end)])[0] if length else b""

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Several parts of a file, in parallel; neighbours by one request."""
        runs = list(_join_neighbours(sorted(set(spans))))
        ranges = [(run[0][0], sum(run[-1])) for run in runs]
        parts = {}
        for run, data in zip(runs, self._read_ranges(name, ranges), strict=True):
            for start, length in run:
                offset = start - run[0][0]
                parts[start, length] = data[offset : offset + length]
        return [parts[span] for span in spans]

    def stream(self, name: str, start: int = 0) -> Iterator[bytes]:
        """A file from `start` on, piece by piece; all of it where a server knows no ranges."""
        length = PIECE_BYTES
        while length == PIECE_BYTES:
            [data] = self._read_ranges(name, [(start, start + PIECE_BYTES)], ranges_needed=False)
            if getattr(data, "is_whole", False):
                yield data[start:]
                return
            yield data
            length = len(data)
            start += length

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        try:
            self._fetch(name, [(0, 1)], ranges_needed=False)
        except FileNotFoundError:
            return False
        return True

    def identify(self) -> object:
        """The list of checksums, which a push sends first; without one, nobody can tell."""
        with contextlib.suppress(FileNotFoundError):
            return self._fetch(fmt.CHECKSUMS, [(None, None)])[0]
        return None

    def pin(self) -> None:
        """Compare files with the list of checksums from now on, or else with their own versions."""
        super().pin()
        self._checksums, self._versions = {}, {}
        if isinstance(self.identity, bytes):
            with contextlib.suppress(ValueError):  # `verify` reports a damaged list
                self._checksums = msgspec.json.decode(self.identity, type=dict[str, str])

    def _read_ranges(
        self,
        name: str,
        ranges: Sequence[Range],
        *,
        is_known: bool = False,
        ranges_needed: bool = True,
    ) -> list[bytes]:
        """Ranges of a file of the store that was pinned; `is_known` if a checksum will tell.

        A web server names the version of a file; of one that was of the store before, so is what
        was read. Else the store's own identity is asked for, which takes a request.
        """
        try:
            parts = self._fetch(name, ranges, ranges_needed=ranges_needed)
        except FileNotFoundError:
            self.refuse_if_changed()
            raise
        versions = {getattr(part, "version", None) for part in parts}
        if not is_known and versions != self._versions.get(name):
            self.refuse_if_changed()
            if len(versions) == 1 and None not in versions:
                self._versions[name] = versions
        return parts

    def _open(self) -> tuple[Any, str, str]:
        """The file system, the root in it, and the query that each URL ends in."""
        # Its connections belong to one process, and do not survive a fork.
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), *open_file_system(self.url))
        return self._opened[1:]

    def _fetch(
        self, name: str, ranges: Sequence[Range], *, ranges_needed: bool = True
    ) -> list[bytes]:
        """Ranges of a file, several at a time; those that fail in passing are tried again."""
        system, root, query = self._open()
        path, pauses = f"{root}/{name}{query}", iter(PAUSES_S)
        if not _is_http(system):  # whose answers are bounded as they come
            sizes = [_length(span) or 0 for span in ranges]
            if (None, None) in ranges:
                with one_line_errors(self.join(name)):
                    sizes.append(system.info(path)["size"] or 0)
            _refuse_large(self.join(name), max(sizes), name)
        options = {"batch_size": MAX_REQUESTS} if system.async_impl else {}
        parts: dict[int, bytes] = {}
        while len(parts) < len(ranges):
            left = [number for number in range(len(ranges)) if number not in parts]
            starts, ends = zip(*(ranges[number] for number in left), strict=True)
            problem: BaseException | None = None
            results = system.cat_ranges([path] * len(left), list(starts), list(ends), **options)
            for number, result in zip(left, results, strict=True):
                if getattr(result, "status", None) == 416:  # nothing, or no more
                    parts[number] = b""
                elif isinstance(result, BaseException):
                    problem = result
                else:
                    parts[number] = result
                    self._answered = True
                    asked = _length(ranges[number])
                    if ranges_needed and asked is not None and len(parts[number]) > asked:
                        raise StoreError(
                            f"{self.join(name)}: the server does not support range requests; "
                            f"download the store: obygaze stores pull {self.where} -o NAME.zarr"
                        )
            if problem is not None:
                pause = next(pauses, None) if self._is_passing(problem) else None
                if pause is None:
                    with one_line_errors(self.join(name)):
                        raise problem
                time.sleep(_seconds_to_wait(problem, pause))
        return [parts[number] for number in range(len(ranges))]

    def _is_passing(self, problem: BaseException) -> bool:
        """Whether the same request may succeed next time."""
        if not _is_http(self._open()[0]):
            return False  # s3fs and others retry by themselves
        import aiohttp

        if isinstance(problem, aiohttp.ClientResponseError):
            return problem.status in _TRY_AGAIN
        if isinstance(problem, aiohttp.ClientConnectorError):
            certificate = isinstance(problem, aiohttp.ClientConnectorCertificateError)
            return self._answered and not certificate
        passing = aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError
        return isinstance(problem, passing)


def open_file_system(address: str) -> tuple[Any, str, str]:
    """The fsspec file system of a URL, the root in it, and a query to put after each file."""
    fsspec, where = need("fsspec", extra="remote"), redact_url(address)
    scheme = address.partition("://")[0] if is_url(address) else "file"
    if scheme not in SCHEMES:
        raise UsageError(
            f"{where}: stores are not read from or written to {shorten(scheme)} addresses; use "
            f"{', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}"
        )
    if scheme == "hf":
        repo, revision, folder = parse_hf_address(address)
        constants = need("huggingface_hub.constants", extra="remote")
        if constants.HF_HUB_OFFLINE:
            raise StoreError(f"{where} cannot be read: HF_HUB_OFFLINE is set; unset it")
        endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
        token = need("huggingface_hub", extra="remote").get_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{endpoint.rstrip('/')}/datasets/{repo}/resolve/{revision}{folder}"
        return _open_http(headers), url, ""
    if scheme in ("http", "https"):
        url, _, query = address.partition("?")
        return _open_http({}), url.rstrip("/"), query and f"?{query}"
    bucket = urlsplit(address).netloc
    if scheme in ("s3", "gs") and not bucket:
        raise UsageError(f"{where} has no bucket; give {scheme}://BUCKET/NAME.zarr")
    if scheme == "s3" and ("@" in bucket or where.endswith("://...")):
        raise UsageError(
            f"{where}: an S3 address has no user and no password; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws"
        )
    with one_line_errors(where):
        extra = "takes a package that is not installed ({}); for S3: pip install 'obygaze[remote]'"
        with translate(MissingExtra, where, extra, foreign=ImportError):
            # Not by `fsspec.url_to_fs`, which takes chains of file systems, too.
            system = fsspec.filesystem(scheme, **(_S3_OPTIONS if scheme == "s3" else {}))
        return system, system._strip_protocol(address).rstrip("/"), ""


def parse_hf_address(address: str, *, dataset_only: bool = False) -> tuple[str, str, str]:
    """Repository, revision and folder; `dataset_only` refuses a part of a data set."""
    parts = _HF_ADDRESS.fullmatch(address.rstrip("/"))
    if not parts or (dataset_only and (parts[2] or parts[3])):
        where = redact_url(address)
        raise UsageError(f"{where} is not an address of the Hub; give hf://datasets/OWNER/NAME")
    return parts[1], parts[2] or "main", parts[3] or ""


def _open_http(headers: Mapping[str, str]) -> Any:
    aiohttp = need("aiohttp", extra="remote")
    http = need("fsspec.implementations.http", extra="remote")

    class BoundedResponse(aiohttp.ClientResponse):  # type: ignore[name-defined, misc]
        async def read(self) -> bytes:
            if self._body is None:  # type: ignore[has-type]
                asked, body = (self.history or [self])[0].url.path, bytearray()
                async for part in self.content.iter_any():
                    body += part
                    _refuse_large(redact_url(str(self.url)), len(body), asked)
                if self.status == HTTPStatus.PARTIAL_CONTENT:
                    _require_requested_part(self, len(body))
                self._body = answer = _Answer(body)
                answer.is_whole = self.status == HTTPStatus.OK
                answer.version = self.headers.get("ETag") or self.headers.get("Last-Modified")
            return await super().read()  # type: ignore[no-any-return]

    return http.HTTPFileSystem(
        client_kwargs={
            "response_class": BoundedResponse,
            "trust_env": bool(getproxies()),  # takes a thread for each request
            "timeout": aiohttp.ClientTimeout(sock_connect=TIMEOUT_S, sock_read=TIMEOUT_S),
            "headers": {
                "User-Agent": f"obygaze/{obygaze_version()}",
                "Accept-Encoding": "identity",
                **headers,
            },
        }
    )


def _length(span: Range) -> int | None:
    """The bytes of a range; None for a whole file."""
    start, end = span
    return None if start is None else -start if end is None else end - start


def _require_requested_part(answer: Any, size: int) -> None:
    """Raise if an answer does not begin where the requested range does, or is longer."""
    requested = answer.request_info.headers.get("Range", "")
    span = re.fullmatch(r"bytes=(\d+)-(\d+)", requested)
    sent = answer.headers.get("Content-Range", "no range")
    if not span:  # a whole file, or its end
        return
    longest = int(span[2]) - int(span[1]) + 1
    if sent.startswith(f"bytes {span[1]}-") and size <= longest:
        return
    raise StoreError(
        f"{redact_url(str(answer.url))}: the server sent another part of the file than was asked "
        f"for ({requested}; got {sent}, {format_size(size)}); tell whoever offers the store"
    )


def _refuse_large(where: str, size: int, name: str) -> None:
    limit = MAX_JSON_BYTES if name.endswith(".json") else MAX_FILE_BYTES
    if size > limit:
        raise StoreError(f"{where} has more than {format_size(limit)}")


def _is_http(system: Any) -> bool:
    return "https" in system.protocol


@contextlib.contextmanager
def one_line_errors(where: str) -> Iterator[None]:
    """Turn what a file system raises into a FileNotFoundError, or a `StoreError` of one line."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from None
    except ObygazeError:
        raise
    except Exception as problem:  # each file system has its own, often no OSError
        raise StoreError(f"{where}: {_describe(problem)}") from None


def _describe(problem: Exception) -> str:
    """What went wrong and what to do, without users, passwords and queries of URLs."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    message = redact(re.sub(r"\[Errno -?\d+\] ", "", text))
    status = getattr(problem, "status", None)
    if status is None:  # the Hub's client
        status = getattr(getattr(problem, "response", None), "status_code", None)
    if isinstance(status, int):  # the server's own words may be those that it was sent
        message = f"the server answers {status} {responses.get(status, '')}".strip()
    if status in (401, 403) or isinstance(problem, PermissionError) or "redential" in text:
        remedy = "give credentials: https://USER:PASSWORD@HOST/..., AWS_ACCESS_KEY_ID and "
        return f"{message}; {remedy}AWS_SECRET_ACCESS_KEY, or for the Hub: hf auth login"
    return f"{message}; check the address and the network, and run the same command again"


def _seconds_to_wait(problem: BaseException, pause: float) -> float:
    """The pause before the next try, as long as the server asks for."""
    asked = (getattr(problem, "headers", None) or {}).get("Retry-After", "")
    return min(float(asked), MAX_WAIT_S) if asked.isdecimal() else pause


def _join_neighbours(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Spans in order, those that touch one another together."""
    run: list[Span] = []
    for start, length in spans:
        touches = run and start == sum(run[-1])
        if run and not (touches and start + length - run[0][0] <= PIECE_BYTES):
            yield run
            run = []
        run.append((start, length))
    if run:
        yield run
