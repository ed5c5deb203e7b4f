"""Stores over HTTP and S3 with 20 ms per request, compared with obstore on the same ranges.

A file server is on loopback, also for S3, behind a proxy that delays requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import numpy as np

from benchmarks.result import Result
from benchmarks.store import make_store
from obygaze_features.store import format as fmt
from obygaze_features.store import open_store
from obygaze_features.store.files import ByteRange
from obygaze_features.store.remote import Remote
from tests.kit.servers import s3_at, serve

CLIPS, FRAMES, DIM = 4000, 16, 512
SHARD_BYTES = 2**20
LATENCY_S = 0.02
_METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")


def measure() -> Iterator[Result]:
    """Measure reading rows over HTTP and S3."""
    chance = np.random.default_rng(0)
    frames = chance.standard_normal((CLIPS, FRAMES, DIM), np.float32).astype(np.float16)
    ids = [f"tt{row // 100:07d}-{row % 100:03d}" for row in range(CLIPS)]
    with tempfile.TemporaryDirectory() as name, patch.object(fmt, "SHARD_BYTES", SHARD_BYTES):
        folder = Path(name)
        make_store(folder / "lab/s.zarr", ids, {"frames": frames})
        with serve(folder) as served, _Proxy(served.url) as proxy, s3_at(proxy.url):
            yield _reads("HTTP", f"{proxy.url}/lab/s.zarr", ids)
            yield _reads("S3", "s3://lab/s.zarr", ids)


def _reads(label: str, url: str, ids: list[str]) -> Result:
    store = open_store(url)
    noted: list[ByteRange] = []
    read_ranges = Remote.read_ranges

    def note(remote: Remote, ranges: Sequence[ByteRange], **options: bool) -> list[Any]:
        noted.extend(ranges)
        return read_ranges(remote, ranges, **options)

    rows = np.random.default_rng(1).integers(0, len(ids), 1000)
    store.read("frames", ids[::10])  # each shard is open
    with patch.object(Remote, "read_ranges", note):
        ours = _timed(lambda: store.read("frames", [ids[row] for row in rows]))
    peer = _timed(_obstore(url, noted))
    return Result(f"{label}: 1,000 random rows (obstore)", ours, "s", peer, ours / peer, None)


def _obstore(url: str, ranges: Sequence[ByteRange]) -> Callable[[], None]:
    """Return a function that reads the same ranges with obstore, which checks nothing."""
    import obstore
    from obstore.store import from_url

    options: Any = {"allow_http": True, "timeout": timedelta(minutes=10)}
    store = from_url(url, client_options=options)

    def read() -> None:
        for name, of_file in groupby(ranges, key=lambda part: part[0]):
            _, starts, lengths = zip(*of_file, strict=True)
            obstore.get_ranges(store, name, starts=starts, lengths=lengths)

    return read


def _timed(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


class _Proxy:
    """A threaded proxy for one server that delays each request."""

    def __init__(self, address: str) -> None:
        split = urlsplit(address)
        self.target = split.hostname, split.port
        self.url, self._loop = "", asyncio.new_event_loop()
        self._ready = threading.Event()

    def __enter__(self) -> _Proxy:
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._run()])
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self.target)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(self._ask(reader, back), self._answer(there, writer))
        writer.close()
        back.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            if data.startswith(_METHODS):
                await asyncio.sleep(LATENCY_S)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
        writer.close()
