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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import VideoError
from obygaze_features.sampling import Sampling, SoundSampling
from obygaze_features.video.decode import iter_frames, max_pixels
from obygaze_features.video.index import FrameIndex, Tick, fingerprint, index_file
from obygaze_features.video.sound import decode_sound

FRAMES_PER_ANSWER = 32
ANSWER_BYTES = 96 * 2**20
"""The maximum numbers of full-size frames, and of bytes, in an answer of several frames."""
MEMORY_BYTES = 2**30
MEMORY_BYTES_PER_PIXEL = 32
"""The memory that a worker may use, plus an allowance per pixel of the largest picture. The total
is about 4 GiB unless OBYGAZE_MAX_PIXELS is set. A decoder holds up to 17 pictures.
"""
READY = b"ready\n"
"""The first message, sent when the worker is ready for requests."""
HEARTBEAT = b".\n"
"""The message that is sent at most once per second while a request makes progress."""


MORE = {"task": "more"}
"""The request for the next answer, after which the pictures of the last one are gone."""


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
    channel = socket.socket(fileno=int(sys.argv[1]))
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, requests), daemon=True).start()
    worker = Worker(Memory(int(sys.argv[2])), _heartbeat(channel))
    limit = limit_memory()
    answers: Iterator[dict[str, Any]] = iter(())
    channel.sendall(READY)
    while True:
        request = requests.get()
        if request != MORE:
            answers = worker.answers(request)
        try:
            answer = next(answers, {})
        except MemoryError:
            reason = f"cannot be decoded: it needs more than {limit / 2**30:.1f} GiB of memory"
            answer = {"error": reason, "source": None}
        except Exception as problem:  # a bug in our code fails only this file
            answer = {"error": f": {type(problem).__name__}: {problem}", "source": None}
        channel.sendall(json.dumps(answer).encode() + b"\n")


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
        total = limit + pages * resource.getpagesize()
        if soft == resource.RLIM_INFINITY or soft > total:
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


def _heartbeat(channel: socket.socket) -> Tick:
    """Return a function that sends the heartbeat, unless it was sent in the last second."""
    last = time.monotonic()

    def tick() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 1:
            last = now
            channel.sendall(HEARTBEAT)

    return tick


class Worker:
    """A worker that answers requests, and keeps the index of the last film.

    Parameters
    ----------
    memory
        The memory for pictures or sound, which are valid until the next answer.
    tick
        A function that is called at every packet.
    """

    def __init__(self, memory: Memory, tick: Tick) -> None:
        self._memory = memory
        self._tick = tick
        self._indexed: object = None
        self._index: FrameIndex

    def answers(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the JSON answers to a request for the frames or the sound of a clip.

        Frames are in the answers after the first one.
        """
        path = Path(request["path"])
        try:
            if request["task"] == "hear":
                yield self._hear(path, request)
            else:
                yield from self._decode(path, request)
        except VideoError as problem:
            source = None
            with contextlib.suppress(VideoError):
                if path.is_file():
                    source = fingerprint(path)
            yield {"error": problem.reason, "source": source}

    def _find_index(self, path: Path, *, decode: bool) -> FrameIndex:
        """Index a film with `index_file`, and cache the index for the film's next span."""
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        if self._indexed not in ((path, changed, True), (path, changed, decode)):
            self._index = index_file(path, tick=self._tick, decode=decode)
            self._indexed = (path, changed, decode)
        return self._index

    def _hear(self, path: Path, request: Mapping[str, Any]) -> dict[str, Any]:
        index = None
        with contextlib.suppress(VideoError):  # the file may have only sound
            index = self._find_index(path, decode=False)
        sampling = SoundSampling(**request["samplings"][0])
        samples, track = decode_sound(
            path,
            request["start"],
            request["end"],
            sampling.rate,
            track=sampling.track,
            seconds=index.seconds if index else 0.0,
            tick=self._tick,
        )
        count = len(samples)
        memory = self._memory.array((4 * max(1, count),)).view(np.float32)
        memory[:count] = samples
        return {"source": fingerprint(path, index), "track": track, "samples": count}

    def _decode(self, path: Path, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        index = self._find_index(path, decode=True)
        span = index.span(path, request["start"], request["end"])
        times = index.times[span.start : span.stop]
        samplings = [Sampling(**fields) for fields in request["samplings"]]
        numbers = [sampling.pick(times) + np.int32(span.start) for sampling in samplings]
        thinned = any(s.rate and len(s.at_rate(times)) > s.frames for s in samplings)
        yield {
            "source": fingerprint(path, index),
            "why_slow": index.why_slow,
            "numbers": [picked.tolist() for picked in numbers],
            "times": [index.times[picked].tolist() for picked in numbers],
            "thinned": thinned,
        }
        wanted = np.unique(np.concatenate(numbers))
        done: list[int] = []
        for number, picture in iter_frames(path, wanted, index=index, tick=self._tick):
            most = max(1, min(FRAMES_PER_ANSWER, ANSWER_BYTES // picture.nbytes))
            # Copied at once, so that FFmpeg can reuse the picture's memory.
            memory = self._memory.array((most, *picture.shape))
            memory[len(done)] = picture
            done.append(number)
            if len(done) == most:
                yield {"frames": done, "shape": memory.shape}
                done = []
        if done:
            yield {"frames": done, "shape": (len(done), *memory.shape[1:])}


if __name__ == "__main__":
    main()
