"""A decoding process for the pool in `extraction.decoder`.

FFmpeg may hang or crash on a broken file, so it runs in a separate process. Requests arrive over a
socket, one line of JSON each. Pictures or sound are written to memory that is shared with the
caller. The worker sends a heartbeat while it makes progress, and exits when the other end of the
socket is closed.

    python -m obygaze_features.video.worker SOCKET MEMORY     (both are file descriptors)
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.errors import VideoError
from obygaze_features.video.decode import (
    Frames,
    decode_parts,
    divide_frames,
    max_pixels,
)
from obygaze_features.video.index import FrameIndex, fingerprint, index_file
from obygaze_features.video.sound import decode_sound

FRAMES_PER_PART, PART_BYTES = 128, 256 * 2**20
"""The maximum numbers of full-size frames and of bytes in an answer. For the other parts of a
clip, the caller sends further requests, to any worker, with the ``skips`` from the first answer."""
MEMORY_BYTES, MEMORY_BYTES_PER_PIXEL = 2**30, 32
"""The memory that a worker may use, plus an allowance per pixel of the largest picture. The total
is about 4 GiB unless OBYGAZE_MAX_PIXELS is set. A decoder holds up to 17 pictures.
"""
READY = b"ready\n"
"""The first message, sent when the worker is ready for requests."""
HEARTBEAT = b".\n"
"""The message that is sent at most once per second while a request makes progress."""


class Memory:
    """Memory that grows as needed and that two processes share through a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None

    def array(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Return an array of bytes at the start of the memory."""
        size = int(np.prod(shape))
        if self._map is None or len(self._map) < size:
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)
            self._map = mmap.mmap(self._descriptor, size)
        return np.frombuffer(self._map, np.uint8, size).reshape(shape)


def main() -> None:
    """Answer requests until the caller exits."""
    channel, memory = socket.socket(fileno=int(sys.argv[1])), Memory(int(sys.argv[2]))
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, requests), daemon=True).start()
    worker = Worker(memory, _Heartbeat(channel))
    limit = limit_memory()
    channel.sendall(READY)
    while True:
        request = requests.get()
        try:
            answer = worker.answer(request)
        except MemoryError:
            allowed = f"{limit / 2**30:.1f} GiB"
            answer = {"error": f"cannot be decoded: it needs more memory than {allowed}"}
        except Exception as problem:  # a bug in our code fails only this file
            answer = {"error": f": {type(problem).__name__}: {problem}"}
        channel.sendall(json.dumps({"source": None, **answer}).encode() + b"\n")


def limit_memory() -> int:
    """Limit the memory of this process, and return the limit in bytes.

    Without a limit, a film of a few bytes could request any amount. Memory that is shared with the
    caller does not count.
    """
    limit = MEMORY_BYTES + MEMORY_BYTES_PER_PIXEL * max_pixels()
    if sys.platform == "win32":
        return limit
    with contextlib.suppress(OSError, ValueError):  # systems without such limits
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[5])
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        bounds = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
        total = min([limit + pages * resource.getpagesize(), *bounds])
        resource.setrlimit(resource.RLIMIT_DATA, (total, hard))
    return limit


def _listen(channel: socket.socket, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Queue requests as they arrive, and end the process as soon as the socket is closed."""
    try:
        with channel.makefile("rb") as lines:
            for line in lines:
                requests.put(json.loads(line))
    finally:  # even if the caller was killed while waiting for an answer
        os._exit(0)


class _Heartbeat:
    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._last = channel, time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._last > 1:
            self._last = now
            self._channel.sendall(HEARTBEAT)


class Worker:
    """A worker that answers requests, and keeps the state for the next part of a clip.

    Parameters
    ----------
    memory
        The memory for pictures or sound, which are valid until the next answer.
    tick
        A function that is called at every packet.
    """

    def __init__(self, memory: Memory, tick: Callable[[], None]) -> None:
        self._memory, self._tick = memory, tick
        self._indexed: tuple[Path, int, bool] | None = None
        self._index: FrameIndex
        self._parts: Iterator[Frames] = iter(())
        self._next: object = None
        """The clip that `_parts` belongs to, and the number of its frames that were sent."""

    def _find_index(self, path: Path, changed: int, *, decode: bool) -> FrameIndex:
        """Index a film with `index_file`, and cache the index for the film's next span."""
        if self._indexed not in ((path, changed, True), (path, changed, decode)):
            self._index = index_file(path, tick=self._tick, decode=decode)
            self._indexed = path, changed, decode
        return self._index

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON answer to a request to decode or hear a clip."""
        path = Path(request["path"])
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        try:
            if request["task"] == "hear":
                index = None
                with contextlib.suppress(VideoError):  # the file may have only sound
                    index = self._find_index(path, changed, decode=False)
                answer = self._hear(request, index)
            else:
                samplings = [Sampling(**fields) for fields in request["samplings"]]
                index = self._find_index(path, changed, decode=True)
                answer = self._decode({**request, "changed": changed}, index, samplings)
            return {"source": fingerprint(path, index), **answer}
        except VideoError as problem:
            with contextlib.suppress(VideoError):
                source = fingerprint(path) if path.is_file() else None
                return {"error": problem.reason, "source": source}
            return {"error": problem.reason}

    def _hear(self, request: Mapping[str, Any], index: FrameIndex | None) -> dict[str, Any]:
        samplings = [SoundSampling(**fields) for fields in request["samplings"]]

        def windows(rate: int, samples: int) -> list[tuple[int, int]]:
            heard = [sampling for sampling in samplings if sampling.rate == rate]
            return [window for sampling in heard for window in sampling.windows(samples)]

        sound = decode_sound(
            Path(request["path"]),
            request["start"],
            request["end"],
            {sampling.rate for sampling in samplings},
            track=samplings[0].track,
            seconds=index.seconds if index else 0.0,
            tick=self._tick,
            windows=windows,
            allocate=lambda samples: self._memory.array((4 * samples,)).view(np.float32),
        )
        used, spans = 0, {}
        for rate, excerpt in sound.excerpts.items():
            ends = used + np.cumsum([len(piece) for _, piece in excerpt.pieces])
            used = int(ends[-1])
            places = [
                (first, end - len(piece), end)
                for (first, piece), end in zip(excerpt.pieces, ends.tolist(), strict=True)
            ]
            spans[rate] = len(excerpt), places
        return {"track": sound.track, "spans": spans}

    def _decode(
        self, request: Mapping[str, Any], index: FrameIndex, samplings: Sequence[Sampling]
    ) -> dict[str, Any]:
        path, skip = Path(request["path"]), request["skip"]
        span = index.span(path, request["start"], request["end"])
        times = index.times[span.start : span.stop]
        numbers = [sampling.pick(times) + np.int32(span.start) for sampling in samplings]
        left = np.unique(np.concatenate(numbers))[skip:]
        parts = divide_frames(index, left, frames_per_part(index.picture_bytes))
        clip, part = {**request, "skip": 0}, parts[0]
        if self._next != (clip, skip):
            due = parts if index.why_slow else parts[:1]  # other processes may do the rest
            self._parts = decode_parts(
                path, due, index=index, tick=self._tick, allocate=self._memory.array
            )
        self._next = None
        frames = next(self._parts)
        if index.why_slow:
            self._next = clip, skip + len(part)
        answer = {
            "shape": frames.rgb.shape,
            "left": len(left) - len(part),
            "rows": [
                np.searchsorted(part, picked[np.isin(picked, part)]).tolist() for picked in numbers
            ],
        }
        if skip:
            return answer
        return answer | {
            "skips": np.cumsum([len(part) for part in parts[:-1]], dtype=int).tolist(),
            "why_slow": index.why_slow,
            "numbers": [picked.tolist() for picked in numbers],
            "times": [index.times[picked].tolist() for picked in numbers],
            "thinned": any(s.rate and len(s.at_rate(times)) > s.frames for s in samplings),
        }


def frames_per_part(picture_bytes: int) -> int:
    """Return the number of pictures of this size that fit into an answer.

    Examples
    --------
    >>> [frames_per_part(3 * width * height) for width, height in ((640, 360), (3840, 2160))]
    [128, 10]
    """
    return max(1, min(FRAMES_PER_PART, PART_BYTES // max(1, picture_bytes)))


if __name__ == "__main__":
    main()
