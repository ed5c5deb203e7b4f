"""Read a store behind a URL in byte ranges, several in parallel, all of the same version."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence

import msgspec

from obygaze_features.common.text import format_size, redact_url
from obygaze_features.errors import StoreError
from obygaze_features.store import format as fmt
from obygaze_features.store.location import Location, Span, in_parallel
from obygaze_features.store.schemes import (
    Answer,
    Files,
    Range,
    is_beyond_the_end,
    length_of,
    one_line_errors,
    open_files,
)

PAUSES_S = (0.1, 0.5, 1.5, 4.0)
"""Seconds to wait before each retry of a request that may succeed later."""
MAX_WAIT_S = 60
"""The maximum pause before a retry, in seconds, even if the server asks for a longer one."""
MAX_REQUESTS = 8
"""The maximum number of simultaneous requests."""
PIECE_BYTES = 8 * 2**20
"""The size of one request for a large file; nearby parts are joined up to this size."""
GAP_BYTES = 128 * 2**10
"""The largest gap in bytes between two parts that are read with one request."""
MAX_JSON_BYTES = 16 * 2**20
MAX_FILE_BYTES = 2**30
"""The largest file that is read into memory, so that a server cannot exhaust the memory."""


class Remote(Location):
    """A folder behind a URL. None of its files are stored on this machine.

    A password or query (``?token=...``) in the URL is sent with each request, and never shown.
    """

    is_local = False
    at_once = MAX_REQUESTS

    def __init__(self, address: str) -> None:
        self.address = self.url = address
        self.where = redact_url(address).rstrip("/")
        self._checksums: dict[str, str] = {}
        self._versions: dict[str, set[str | None]] = {}
        self._answered = False
        self._opened: tuple[int, Files, threading.Semaphore] | None = None
        self._open()

    @property
    def files(self) -> Files:
        """The client for the files, one per process."""
        return self._open()[0]

    def read(self, name: str) -> bytes:
        """Read a whole file, and check it against the checksum list of the pinned store."""
        if name == fmt.CHECKSUMS and isinstance(self.identity, bytes):
            return self.identity
        sha256 = self._checksums.get(name)
        [answer] = self._read_ranges(name, [(None, None)], is_known=sha256 is not None)
        if sha256 and hashlib.sha256(answer.data).hexdigest() != sha256:
            self.refuse_if_changed()
            raise StoreError(
                self.join(name),
                "does not match its checksum; tell the owner of the store, who can run: obygaze "
                "stores repair",
            )
        return answer.data

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Read part of a file; a negative `start` counts from its end."""
        end = None if start < 0 else start + length
        return self._read_ranges(name, [(start, end)])[0].data if length else b""

    def read_parts(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Read several parts of a file in parallel; nearby parts share one request."""
        runs = list(_join_near(sorted(set(spans))))
        ranges = [(run[0][0], sum(run[-1])) for run in runs]
        parts = {}
        for run, answer in zip(runs, self._read_ranges(name, ranges), strict=True):
            for start, length in run:
                offset = start - run[0][0]
                parts[start, length] = answer.data[offset : offset + length]
        return [parts[span] for span in spans]

    def stream(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield a file from `start` on, in one piece if the server does not support ranges."""
        length = PIECE_BYTES
        while length == PIECE_BYTES:
            span = start, start + PIECE_BYTES
            [answer] = self._read_ranges(name, [span], ranges_needed=False)
            if answer.is_whole:
                self.at_once = 1  # because each file is held in memory as a whole
                yield answer.data[start:]
                return
            yield answer.data
            length = len(answer.data)
            start += length

    def exists(self, name: str) -> bool:
        """Return True if a file with this name exists."""
        try:
            self._fetch(name, (0, 1), ranges_needed=False)
        except FileNotFoundError:
            return False
        return True

    def identify(self) -> object:
        """Return the checksum list, which identifies the store; None if the store has no list."""
        with contextlib.suppress(FileNotFoundError):
            return self._fetch(fmt.CHECKSUMS, (None, None)).data
        return None

    def pin(self) -> None:
        """Remember the store's checksum list, so that later reads fail once the store is replaced.

        Whole files are verified by the checksums in the list. Other reads check the file's version
        on the server or, if that is not known yet, that the list is still the same.
        """
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
    ) -> list[Answer]:
        """Read ranges of a file, making sure that the data is from the pinned store.

        Most servers return the version of a file. If that version is known to belong to the pinned
        store, so does the data. Otherwise, another request checks the store's identity, unless the
        caller will verify a checksum (`is_known`).
        """

        def fetch(span: Range) -> Answer:
            return self._fetch(name, span, ranges_needed=ranges_needed)

        try:
            answers = list(in_parallel(fetch, ranges, at_once=MAX_REQUESTS))
        except FileNotFoundError:
            self.refuse_if_changed()
            raise
        versions = {answer.version for answer in answers}
        if not is_known and versions != self._versions.get(name):
            self.refuse_if_changed()
            if len(versions) == 1 and None not in versions:
                self._versions[name] = versions
        return answers

    def _open(self) -> tuple[Files, threading.Semaphore]:
        """Return this process's client, and the semaphore that limits simultaneous requests."""
        # Connections and locks belong to one process and do not survive a fork.
        if self._opened is None or self._opened[0] != os.getpid():
            slots = threading.Semaphore(MAX_REQUESTS)
            self._opened = os.getpid(), open_files(self.url), slots
        return self._opened[1:]

    def _fetch(self, name: str, span: Range, *, ranges_needed: bool = True) -> Answer:
        """Fetch a range of a file, retrying if that may help."""
        files, slots = self._open()
        limit = MAX_JSON_BYTES if name.endswith(".json") else MAX_FILE_BYTES
        length = length_of(span)
        self._refuse_large(name, length or 0, limit)
        pauses = iter(PAUSES_S)
        while True:
            try:
                with slots:
                    answer = files.get(name, span, limit)
                break
            except Exception as problem:
                if is_beyond_the_end(problem):  # the file is empty, or was read to its end
                    return Answer(b"")
                pause = next(pauses, None)
                is_passing = files.is_passing(problem, has_answered=self._answered)
                if pause is None or not is_passing:
                    with one_line_errors(self.join(name)):
                        raise
                seconds = _seconds_to_wait(problem, pause)
            time.sleep(seconds)
        self._answered = True
        self._refuse_large(name, len(answer.data), limit)
        if ranges_needed and length is not None and len(answer.data) > length:
            raise StoreError(
                f"{self.join(name)}: the server does not support range requests. "
                f"Download the store with: obygaze stores pull {self.where} -o NAME.zarr"
            )
        return answer

    def _refuse_large(self, name: str, size: int, limit: int) -> None:
        if size > limit:
            raise StoreError(f"{self.join(name)} is larger than {format_size(limit)}")


def _seconds_to_wait(problem: Exception, pause: float) -> float:
    """Return the pause before the next try, in seconds: the server's Retry-After, or `pause`."""
    asked = (getattr(problem, "headers", None) or {}).get("Retry-After", "")
    return min(float(asked), MAX_WAIT_S) if asked.isdecimal() else pause


def _join_near(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield groups of nearby spans, which can be read with one request."""
    run: list[Span] = []
    for start, length in spans:
        is_near = run and start - sum(run[-1]) <= GAP_BYTES
        if run and not (is_near and start + length - run[0][0] <= PIECE_BYTES):
            yield run
            run = []
        run.append((start, length))
    if run:
        yield run
