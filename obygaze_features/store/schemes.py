"""Clients that read and write the files of stores, one for each URL scheme in `SCHEMES`.

Credentials and endpoints are read from the usual places. For S3, these are ``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_ENDPOINT_URL`` and ``~/.aws``; for a web server, the URL
(``https://USER:PASSWORD@HOST/...``); for the Hub, the login that ``hf auth login`` saved.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.client import responses
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

from obygaze_features.common.files import SUFFIX, new_file
from obygaze_features.common.package import need, obygaze_version
from obygaze_features.common.text import format_size, redact, redact_url, shorten
from obygaze_features.errors import MissingExtra, ObygazeError, StoreError, UsageError, translate
from obygaze_features.store.location import is_url

TIMEOUT_S = 30
"""Seconds without any data after which a connection counts as lost."""
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}
CREDENTIALS = (
    "set credentials: https://USER:PASSWORD@HOST/...; for S3, AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY; for the Hub, run: hf auth login; for a folder, check its permissions"
)
_HF_ADDRESS = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@([\w./-]+?))?(/[^@]*)?")
_S3_OPTIONS = {"config_kwargs": {"connect_timeout": 2, "retries": {"total_max_attempts": 2}}}
"""Limits on the retries of s3fs. Without them, s3fs takes 30 s to give up on a dead endpoint."""
_UPLOAD_PAUSES_S = (0.5, 4.0)
_BEYOND_THE_END = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE

Range = tuple[int | None, int | None]
"""Start and end, as in a slice. A negative start counts from the end of the file and has no end."""


class Answer(NamedTuple):
    """Data that a server sent from a file, and the file's version if the server states it."""

    data: bytes
    version: str | None = None
    is_whole: bool = False


class Files:
    """The files of a folder, read and written through fsspec, without versions."""

    is_read_only = False
    has_folders = False
    """True for a folder on a disk, to which files are copied one at a time."""

    def __init__(self, address: str, **options: Any) -> None:
        fsspec = need("fsspec", extra="remote")
        scheme = address.partition("://")[0] if is_url(address) else "file"
        extra = "needs a package that is not installed ({}); for S3: pip install 'obygaze[remote]'"
        with translate(MissingExtra, redact_url(address), extra, foreign=ImportError):
            # `fsspec.url_to_fs` would also accept chained file systems.
            self.system: Any = fsspec.filesystem(scheme, **options)
        self.root: str = self.system._strip_protocol(address).rstrip("/")

    def path(self, name: str) -> str:
        """Return a file's path in the file system."""
        return f"{self.root}/{name}"

    def get(self, name: str, span: Range, limit: int) -> Answer:
        """Return a range of a file. For (None, None), return the file, up to `limit` + 1 bytes."""
        start, end = (0, limit + 1) if span == (None, None) else span
        return Answer(self.system.cat_file(self.path(name), start=start, end=end))

    def is_passing(self, problem: Exception, *, has_answered: bool) -> bool:
        """Return True if a failed request may succeed when repeated."""
        return False

    def sizes(self) -> dict[str, int]:
        """Return the size of each file in the folder, by name."""
        self.system.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            files = self.system.find(self.root, detail=True)
            start = f"{self.root}/"
            return {
                path.removeprefix(start): int(info["size"] or 0) for path, info in files.items()
            }
        return {}

    def sha256(self, name: str) -> str | None:
        """Return a file's SHA-256 if the server knows it, otherwise None."""

    def put(self, path: Path, name: str, sha256: str) -> bool:
        """Upload a file; return True if the server verified its SHA-256."""
        self.system.put_file(str(path), self.path(name))
        return False


class FolderFiles(Files):
    """The files of a folder on this machine, without the parts of interrupted copies."""

    has_folders = True

    def sizes(self) -> dict[str, int]:
        """Return the size of each whole file in the folder, by name."""
        sizes = super().sizes()
        return {name: size for name, size in sizes.items() if not name.endswith(SUFFIX)}

    def put(self, path: Path, name: str, sha256: str) -> bool:
        """Copy a file whole or not at all. Return False, because the copy is not verified."""
        with new_file(Path(self.path(name)), overwrite=True) as part:
            shutil.copyfile(path, part)
        return False


class BucketFiles(Files):
    """Files under a prefix in a bucket."""

    def __init__(self, address: str, **options: Any) -> None:
        if not urlsplit(address).netloc:
            where, scheme = redact_url(address), address.partition(":")[0]
            raise UsageError(f"{where} has no bucket; use {scheme}://BUCKET/NAME.zarr")
        super().__init__(address, **options)


class S3Files(BucketFiles):
    """Files on S3. Responses have versions, and uploads have checksums."""

    def __init__(self, address: str) -> None:
        where = redact_url(address)
        if "@" in urlsplit(address).netloc or where.endswith("://..."):
            raise UsageError(
                f"{where}: an S3 address cannot contain a user or password. Set AWS_ACCESS_KEY_ID "
                "and AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws"
            )
        super().__init__(address, **_S3_OPTIONS)

    def get(self, name: str, span: Range, limit: int) -> Answer:
        """Return a range of a file, using a single request."""
        sent, data = self._call("get_object", name, limit + 1, Range=_range_header(span, limit))
        return Answer(data, sent.get("ETag"))

    def is_passing(self, problem: Exception, *, has_answered: bool) -> bool:
        """Return True if a response was cut short; s3fs itself retries other failures."""
        from botocore.exceptions import ResponseStreamingError

        return isinstance(problem, ResponseStreamingError)

    def sha256(self, name: str) -> str | None:
        """Return the SHA-256 that a file was uploaded with, otherwise None."""
        sent, _ = self._call("head_object", name, ChecksumMode="ENABLED")
        return _hex_of(sent)

    def put(self, path: Path, name: str, sha256: str) -> bool:
        """Upload a file with its checksum, which S3 verifies but some compatible servers do not."""
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        named: dict[str, Any] = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": checksum}
        pauses = iter(_UPLOAD_PAUSES_S)
        while True:
            try:  # s3fs would continue where the last attempt stopped
                with path.open("rb") as file:
                    sent, _ = self._call("put_object", name, Body=file, **named)
                return _hex_of(sent) == sha256
            except Exception as problem:
                pause = next(pauses, None)
                if pause is None or isinstance(problem, FileNotFoundError | PermissionError):
                    raise
            time.sleep(pause)

    def _call(
        self, method: str, name: str, limit: int = 0, **options: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Return the fields and the body of S3's response."""
        from fsspec.asyn import sync

        bucket, key, _ = self.system.split_path(self.path(name))

        async def call() -> tuple[dict[str, Any], bytes]:
            sent = await self.system._call_s3(method, Bucket=bucket, Key=key, **options)
            if "Body" not in sent:
                return sent, b""
            if sent["ContentLength"] > limit:
                raise StoreError(f"{name}: the server sent more than was requested")
            async with sent["Body"] as body:
                return sent, await body.read()

        result: tuple[dict[str, Any], bytes] = sync(self.system.loop, call)
        return result


class HttpFiles(Files):
    """Files on a web server. Each request repeats the query of the store's URL."""

    is_read_only = True

    def __init__(self, address: str, **headers: str) -> None:
        http = need("fsspec.implementations.http", extra="remote")
        self.aiohttp = aiohttp = need("aiohttp", extra="remote")
        headers |= {"User-Agent": f"obygaze/{obygaze_version()}", "Accept-Encoding": "identity"}
        self.system = http.HTTPFileSystem(
            client_kwargs={
                "trust_env": bool(getproxies()),  # uses one thread per request
                "timeout": aiohttp.ClientTimeout(sock_connect=TIMEOUT_S, sock_read=TIMEOUT_S),
                "headers": headers,
            }
        )
        root, mark, query = address.partition("?")
        self.root, self.query = root.rstrip("/"), f"{mark}{query}"

    def path(self, name: str) -> str:
        """Return the URL of a file."""
        return f"{self.root}/{name}{self.query}"

    def get(self, name: str, span: Range, limit: int) -> Answer:
        """Return a range of a file, or up to `limit` bytes if the server ignores ranges."""
        from fsspec.asyn import sync

        answer: Answer = sync(self.system.loop, self._get, self.path(name), span, limit)
        return answer

    async def _get(self, url: str, span: Range, limit: int) -> Answer:
        session = await self.system.set_session()
        headers = {} if span == (None, None) else {"Range": _range_header(span, limit)}
        async with session.get(self.system.encode_url(url), headers=headers) as sent:
            if sent.status == HTTPStatus.NOT_FOUND:
                raise FileNotFoundError(url)
            sent.raise_for_status()
            data = bytearray()
            async for part in sent.content.iter_any():
                data += part
                if len(data) > limit:
                    break  # the caller refuses larger files
            if sent.status == HTTPStatus.PARTIAL_CONTENT:
                _require_requested_part(sent, span, len(data))
            version = sent.headers.get("ETag") or sent.headers.get("Last-Modified")
            return Answer(bytes(data), version, is_whole=sent.status == HTTPStatus.OK)

    def is_passing(self, problem: Exception, *, has_answered: bool) -> bool:
        """Return True if the connection was lost or the server is busy."""
        aiohttp = self.aiohttp
        if isinstance(problem, aiohttp.ClientResponseError):
            return problem.status in _TRY_AGAIN
        if isinstance(problem, aiohttp.ClientConnectorError):
            is_refused = isinstance(problem, aiohttp.ClientConnectorCertificateError)
            return has_answered and not is_refused
        passing = aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, TimeoutError
        return isinstance(problem, passing)


class HubFiles(HttpFiles):
    """Files of a dataset on the Hugging Face Hub."""

    def __init__(self, address: str) -> None:
        repo, revision, folder = parse_hf_address(address)
        constants = need("huggingface_hub.constants", extra="remote")
        if constants.HF_HUB_OFFLINE:
            where = redact_url(address)
            raise StoreError(f"{where} cannot be reached: HF_HUB_OFFLINE is set; unset it")
        endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
        token = need("huggingface_hub", extra="remote").get_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{endpoint.rstrip('/')}/datasets/{repo}/resolve/{revision}{folder}"
        super().__init__(url, **headers)


def open_files(address: str) -> Files:
    """Return a client for the files of a folder: a local path, or a URL with one of `SCHEMES`."""
    scheme = address.partition("://")[0] if is_url(address) else "file"
    if scheme not in SCHEMES:
        *schemes, last = SCHEMES
        raise UsageError(
            f"{redact_url(address)}: stores cannot be read from or written to {shorten(scheme)} "
            f"addresses; use {', '.join(schemes)} or {last}"
        )
    with one_line_errors(redact_url(address)):
        return SCHEMES[scheme](address)


SCHEMES: dict[str, type[Files]] = {
    "https": HttpFiles,
    "http": HttpFiles,
    "s3": S3Files,
    "gs": BucketFiles,
    "hf": HubFiles,
    "file": FolderFiles,
}
"""The client for each scheme. Other schemes of fsspec are left out: some run code from a server."""


def parse_hf_address(address: str, *, dataset_only: bool = False) -> tuple[str, str, str]:
    """Return the repository, revision and folder; `dataset_only` refuses a folder or revision."""
    parts = _HF_ADDRESS.fullmatch(address.rstrip("/"))
    if not parts or (dataset_only and (parts[2] or parts[3])):
        where = redact_url(address)
        raise UsageError(f"{where} is not a valid Hub address; use hf://datasets/OWNER/NAME")
    return parts[1], parts[2] or "main", parts[3] or ""


def length_of(span: Range) -> int | None:
    """Return the length of a range in bytes; None for a whole file."""
    start, end = span
    if start is None:
        return None
    return -start if end is None else end - start


def is_beyond_the_end(problem: Exception) -> bool:
    """Return True if the error says that a range starts after the end of the file."""
    sent = getattr(problem.__cause__, "response", None)  # on S3
    if isinstance(sent, dict):
        status = sent.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(problem, "status", None)
    return bool(status == _BEYOND_THE_END)


def _range_header(span: Range, limit: int) -> str:
    start, end = (0, limit + 1) if span == (None, None) else span
    if end is None:
        return f"bytes={start}"
    return f"bytes={start}-{end - 1}"


def _require_requested_part(sent: Any, span: Range, size: int) -> None:
    """Raise `StoreError` if a response starts elsewhere than the requested range, or is longer."""
    start, end = span
    if start is None or end is None:  # a whole file, or its end
        return
    sent_range = sent.headers.get("Content-Range", "no range")
    if sent_range.startswith(f"bytes {start}-") and size <= end - start:
        return
    raise StoreError(
        f"{redact_url(str(sent.url))}: the server did not send the part of the file that was "
        f"requested ({_range_header(span, 0)}; got {sent_range}, {format_size(size)}); tell the "
        "owner of the store"
    )


def _hex_of(sent: dict[str, Any]) -> str | None:
    """Return the SHA-256 in an S3 response as 64 hexadecimal digits."""
    with contextlib.suppress(KeyError, ValueError):  # missing, or a checksum of upload parts
        return base64.b64decode(sent["ChecksumSHA256"], validate=True).hex()
    return None


@contextlib.contextmanager
def one_line_errors(where: str) -> Iterator[None]:
    """Turn a file system's exceptions into FileNotFoundError or a one-line `StoreError`."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from None
    except ObygazeError:
        raise
    except Exception as problem:  # each file system has its own errors, often not OSError
        raise StoreError(f"{where}: {_describe(problem)}") from None


def _describe(problem: Exception) -> str:
    """Describe a failure and what to do, without the user, password and query of any URL."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    message = redact(re.sub(r"\[Errno -?\d+\] ", "", text))
    status = getattr(problem, "status", None)
    if status is None:  # from the Hub's client
        status = getattr(getattr(problem, "response", None), "status_code", None)
    if isinstance(status, int):  # the server's own message may repeat secrets from the request
        message = f"the server answered {status} {responses.get(status, '')}".strip()
    if status in (401, 403) or isinstance(problem, PermissionError) or "redential" in text:
        return f"{message}; {CREDENTIALS}"
    return f"{message}; check the address and the network, and run the same command again"
