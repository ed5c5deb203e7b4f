"""Read the files of a store behind a URL, with fsspec.

Credentials come from the usual places: for S3, ``AWS_ACCESS_KEY_ID`` and ``~/.aws``; for a web
server, the URL (``https://USER:PASSWORD@HOST/...``); for the Hub, ``HF_TOKEN`` or the login that
``hf auth login`` saved.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import hashlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from http.client import responses
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit
from urllib.request import getproxies

import msgspec

from obygaze_features.common.formatting import format_size, shorten
from obygaze_features.common.package import need
from obygaze_features.common.progress import progress
from obygaze_features.common.redaction import redact, redact_url
from obygaze_features.errors import ObygazeError, StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.files import MAX_JSON_BYTES, PIECE_BYTES, ByteRange, Location

SCHEMES = ("https", "http", "s3", "hf")
"""The schemes of URLs. Other schemes of fsspec are left out: some run code from a server."""
PAUSES_S = (0.1, 0.5, 1.5, 4.0)
"""Seconds to wait before each retry of an HTTP request that may succeed later."""
TIMEOUT_S = 30
"""Seconds without any data after which an HTTP connection counts as lost."""
AT_ONCE = 8
"""The maximum number of simultaneous requests."""
GAP_BYTES = 128 * 2**10
"""The largest gap in bytes between two parts that are read with one request."""
MAX_FILE_BYTES = 2**30
"""The largest file that is read into memory, so that a server cannot exhaust the memory."""
MAX_SHARD_BYTES = 2**33
"""The most that is fetched of a file over HTTP, so that a server cannot fill the disk."""
_REMEDY = (
    "check the address, the network and the credentials (https://USER:PASSWORD@HOST/...; for S3, "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for the Hub, hf auth login), and run the same "
    "command again"
)
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_HUB = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)/?")


class Remote(Location):
    """A folder behind a URL, read in ranges.

    A password or query (``?token=...``) in the URL is sent with each request, and never shown.
    """

    address: str
    is_local = False

    def __init__(self, address: str) -> None:
        self.address = address
        self.where = redact_url(address).rstrip("/")
        self._checksums: dict[str, str] = {}
        self._systems: dict[int, Any] = {}
        self.connect()

    def connect(self) -> Any:
        """Return this process's own file system. Connections do not survive a fork."""
        process = os.getpid()
        if process not in self._systems:
            with one_line_errors(self.where):
                system, self._root, self._query = _open_system(self.address)
            self._systems[process] = system
        return self._systems[process]

    def path(self, name: str) -> str:
        """Return a file's path in the file system."""
        return f"{self._root}/{name}{self._query}"

    def read(self, name: str) -> bytes:
        """Read a whole file, and check it against the store's list of checksums."""
        if name == fmt.CHECKSUMS and isinstance(self.identity, bytes):
            return self.identity
        data = self._read_whole(name)
        assert data is not None
        sha256 = self._checksums.get(name)
        if sha256 and hashlib.sha256(data).hexdigest() != sha256:
            self.refuse_if_changed()
            raise StoreError(
                self.join(name), "does not match its checksum; tell the owner of the store"
            )
        return data

    def read_ranges(self, ranges: Sequence[ByteRange], *, missing_ok: bool = False) -> list[Any]:
        """Read several parts of files in parallel; nearby parts share one request."""
        from fsspec.utils import merge_offset_ranges

        wanted = sorted(set(ranges))
        names, starts, ends = merge_offset_ranges(
            [name for name, _, _ in wanted],
            [start for _, start, _ in wanted],
            [start + length or None for _, start, length in wanted],
            GAP_BYTES,
            PIECE_BYTES,
            sort=False,
        )
        answers = self._request(names, starts, ends, missing_ok=missing_ok)

        read = []
        spans = list(zip(names, starts, strict=True))
        for name, start, length in ranges:
            number = bisect.bisect_right(spans, (name, start)) - 1
            data = answers[number]
            if data is not None:
                begin = start - starts[number]
                data = data[begin : begin + length]
            read.append(data)
        return read

    def fetch(self, names: Sequence[str], folder: Path) -> None:
        """Download files into a folder, several at a time."""
        with one_line_errors(self.where):
            for start in progress(range(0, len(names), AT_ONCE), "Fetching", unit="batch"):
                batch = names[start : start + AT_ONCE]
                targets = [str(folder / name) for name in batch]
                self.connect().get(rpath=list(map(self.path, batch)), lpath=targets)

    def identify(self) -> object:
        """Return the list of checksums, which identifies the store; None if there is no list."""
        return self._read_whole(fmt.CHECKSUMS, missing_ok=True)

    def pin(self) -> None:
        """Remember the store's list of checksums, which `read` compares files with."""
        super().pin()
        self._checksums = {}
        if isinstance(self.identity, bytes):
            with contextlib.suppress(ValueError):  # `verify` reports a damaged list
                self._checksums = msgspec.json.decode(self.identity, type=dict[str, str])

    def _read_whole(self, name: str, *, missing_ok: bool = False) -> bytes | None:
        """Read a whole file; raise `StoreError` if it is larger than the limit for its type."""
        limit = MAX_FILE_BYTES
        if name.endswith(".json"):
            limit = MAX_JSON_BYTES
        # A range of exactly the limit would cut a longer file without an error.
        data: bytes | None
        [data] = self._request([name], [0], [limit + 1], missing_ok=missing_ok)
        if data and len(data) > limit:
            raise StoreError(
                f"{self.join(name)} is larger than {format_size(limit)}; check the address"
            )
        return data

    def _request(
        self,
        names: Sequence[str],
        starts: Sequence[int],
        ends: Sequence[int | None],
        *,
        missing_ok: bool,
    ) -> list[Any]:
        """Request parts of files (an end of None: to the file's end).

        With `missing_ok`, a part of a missing file is None.
        """
        answers: list[Any] = self.connect().cat_ranges(
            list(map(self.path, names)),
            starts,
            ends,
            batch_size=AT_ONCE,
            on_error="return",
        )
        for number, answer in enumerate(answers):
            where = self.join(names[number])
            if isinstance(answer, FileNotFoundError):
                if not missing_ok:
                    self.refuse_if_changed()
                    raise FileNotFoundError(where)
                answers[number] = None
            elif isinstance(answer, OSError) and "not satisfiable" in str(answer):
                answers[number] = b""  # on S3, the file was read to its end
            elif isinstance(answer, Exception):
                with one_line_errors(where):
                    raise answer
        return answers


def hub_repository(address: str) -> str:
    """Return OWNER/NAME from the address of a dataset on the Hugging Face Hub."""
    match = _HUB.fullmatch(address)
    if not match:
        raise UsageError(f"{redact_url(address)} is not a dataset; use hf://datasets/OWNER/NAME")
    return match[1]


@contextlib.contextmanager
def one_line_errors(where: str) -> Iterator[None]:
    """Turn a file system's exceptions into FileNotFoundError or a one-line `StoreError`.

    A message says what to do, and has no user, password or query of a URL.
    """
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(where) from None
    except ObygazeError:
        raise
    except Exception as problem:  # each file system has its own errors, often not OSError
        message = redact(" ".join(str(problem).split())) or type(problem).__name__
        response = getattr(problem, "response", None)  # of the Hub's client
        status = getattr(problem, "status", getattr(response, "status_code", None))
        if isinstance(status, int):  # the server's own message may repeat secrets
            message = f"the server answered {status} {responses.get(status, '')}".strip()
        raise StoreError(f"{where}: {message}; {_REMEDY}") from None


def _open_system(address: str) -> tuple[Any, str, str]:
    """Return an fsspec file system, the path of a URL's folder in it, and the URL's query."""
    scheme = address.partition("://")[0]
    where = redact_url(address)
    if scheme not in SCHEMES:
        raise UsageError(
            f"{where}: stores cannot be read from {shorten(scheme)} URLs; choose from "
            f"{', '.join(SCHEMES)}"
        )
    if scheme == "s3":
        bucket = urlsplit(address).netloc
        if not bucket or "@" in bucket or ":" in bucket:  # its client would repeat a password
            raise UsageError(
                f"{where} is not an S3 address; use s3://BUCKET/NAME.zarr, without a password"
            )
        # Without these limits, s3fs takes 30 s to give up on a dead endpoint, and gigabytes of
        # memory. `fsspec.url_to_fs` would also accept chained file systems.
        s3fs = need("s3fs", extra="remote")
        system = s3fs.S3FileSystem(
            config_kwargs={"connect_timeout": 2, "retries": {"total_max_attempts": 2}},
            max_concurrency=1,
            skip_instance_cache=True,
        )
        return system, system._strip_protocol(address).rstrip("/"), ""

    headers = {"Accept-Encoding": "identity"}
    if scheme == "hf":
        repository = hub_repository(address)
        hub = need("huggingface_hub", extra="remote")
        if hub.constants.HF_HUB_OFFLINE:
            raise StoreError(
                f"{where}: offline mode is on; unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE"
            )
        endpoint = os.environ.get("HF_ENDPOINT") or hub.constants.ENDPOINT
        address = f"{endpoint.rstrip('/')}/datasets/{repository}/resolve/main"
        if token := hub.get_token():
            headers["Authorization"] = f"Bearer {token}"
    root, mark, query = address.partition("?")
    return _open_http(headers), root.rstrip("/"), f"{mark}{query}"


def _open_http(headers: dict[str, str]) -> Any:
    """Return fsspec's HTTP file system, which reads no more of an answer than was asked for."""
    http = need("fsspec.implementations.http", extra="remote")
    aiohttp = need("aiohttp", extra="remote")

    class BoundedHttp(http.HTTPFileSystem):  # type: ignore[misc,name-defined]
        has_answered = False

        async def _cat_file(self, url: str, start: int = 0, end: Any = None, **_: Any) -> bytes:
            limit = (end or 0) - start  # a negative start counts from the end
            data = io.BytesIO()
            asked = await self._process_limits(url, start, end)
            await self._receive(url, data, limit, start, Range=asked)
            return data.getvalue()[:limit]

        async def _get_file(self, url: str, path: str, **_: Any) -> None:
            with Path(path).open("wb") as file:
                await self._receive(url, file, MAX_SHARD_BYTES)

        async def _receive(
            self, url: str, file: BinaryIO, limit: int, start: int = 0, **headers: str
        ) -> None:
            """Write a file's content until the limit; repeat requests that may succeed later."""
            session = await self.set_session()
            for pause in (*PAUSES_S, None):
                file.seek(0)
                file.truncate()
                try:
                    async with session.get(self.encode_url(url), headers=headers) as sent:
                        self.has_answered = True
                        if sent.status == 416 and start >= 0:  # the file was read to its end
                            return
                        self._raise_not_found_for_status(sent, url)
                        _require_range(sent, start)
                        async for part in sent.content.iter_any():
                            file.write(part)
                            if file.tell() >= limit:
                                return
                        return
                except aiohttp.ClientError as problem:
                    # An address that never answered may be wrong.
                    status = getattr(problem, "status", 503)
                    if pause is None or not self.has_answered or status not in _TRY_AGAIN:
                        raise
                await asyncio.sleep(pause)

    options = {
        "headers": headers,
        "timeout": aiohttp.ClientTimeout(sock_connect=TIMEOUT_S, sock_read=TIMEOUT_S),
        "trust_env": bool(getproxies()),  # uses one thread per request
    }
    return BoundedHttp(client_kwargs=options, skip_instance_cache=True)


def _require_range(sent: Any, start: int) -> None:
    """Raise `StoreError` if a server ignored a request for a part that starts at `start`."""
    if start and "Content-Range" not in sent.headers:
        raise StoreError(
            f"{redact_url(str(sent.url))}: the server does not support range requests. Download "
            "the store with: obygaze stores pull URL -o NAME.zarr"
        )
