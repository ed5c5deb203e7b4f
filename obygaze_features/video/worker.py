"""A process that decodes, for the pool in `extraction.decoders`.

FFmpeg may hang or crash on a broken file; in a process of its own it takes nobody with it. It is
asked over a socket, a line of JSON a question, and puts pictures into memory that it shares with
who asks. It says when it makes headway, and ends when the other end of the socket does.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.errors import VideoError
from obygaze_features.video.decode import decode_frames
from obygaze_features.video.examine import examine
from obygaze_features.video.fingerprint import fingerprint
from obygaze_features.video.frame_index import FrameIndex
from obygaze_features.video.index import index_file

__all__ = ["HEADWAY", "READY", "Memory", "main"]

READY = b"ready\n"
"""What is sent first: from then on questions are answered."""
HEADWAY = b".\n"
"""What is sent while a question is worked on, once a second at most."""
LARGE = 256 * 2**20
"""Bytes of pictures from which on the memory is given back before the next question."""


class Memory:
    """Memory that two processes share through a file descriptor; it grows as is needed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None

    def array(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """The memory from its beginning, as an array of bytes."""
        size = int(np.prod(shape))
        if self._map is None or len(self._map) < size:
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)
            self._map = mmap.mmap(self._descriptor, size)
        elif os.fstat(self._descriptor).st_size < len(self._map):
            # The other side has given it back meanwhile, and what follows is new memory.
            self._map = mmap.mmap(self._descriptor, size)
        return np.frombuffer(self._map, np.uint8, size).reshape(shape)

    def shrink(self, most: int) -> None:
        """Give the memory back if it has grown larger than this; nobody may look at it then."""
        if self._map is not None and len(self._map) > most:
            self._map = None
            os.ftruncate(self._descriptor, 0)


def main() -> None:
    """Answer questions until nobody asks any more."""
    channel, memory = socket.socket(fileno=int(sys.argv[1])), Memory(int(sys.argv[2]))
    questions: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, questions), daemon=True).start()
    headway = _Headway(channel)
    channel.sendall(READY)
    while True:
        question = questions.get()
        memory.shrink(LARGE)
        try:
            answer = _answer(question, memory, headway)
        except Exception as problem:  # a mistake of ours: it costs this file, and is named
            answer = {"error": f"{question['path']}: {type(problem).__name__}: {problem}"}
        channel.sendall(json.dumps({"source": None, **answer}).encode() + b"\n")


def _listen(channel: socket.socket, questions: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Take questions in while others are worked on, so that the end is noticed at once."""
    try:
        with channel.makefile("rb") as lines:
            for line in lines:
                questions.put(json.loads(line))
    finally:  # also where who asked was killed over an answer
        os._exit(0)


class _Headway:
    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._last = channel, time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._last > 1:
            self._last = now
            self._channel.sendall(HEADWAY)


def _answer(
    question: Mapping[str, Any], memory: Memory, headway: Callable[[], None]
) -> dict[str, Any]:
    path, span = Path(question["path"]), {"start": question["start"], "end": question["end"]}
    cache = Path(question["cache"]) if question["cache"] else None
    samplings = [Sampling(**one) for one in question["samplings"]]
    try:
        if question["what"] == "examine":
            found = examine(path, **span, samplings=samplings, tick=headway, cache=cache)
            return {"examination": asdict(found)}
        index = _indexed(path, cache, headway)
        numbers = _numbers(path, index, samplings, **span)
        frames = decode_frames(
            path, np.concatenate(numbers), index=index, tick=headway, room=memory.array
        )
        source = fingerprint(path, index)
    except VideoError as problem:
        return {"error": str(problem), "source": _source_of_failed(path)}
    where = [np.searchsorted(frames.indices, one) for one in numbers]
    return {
        "shape": frames.rgb.shape,
        "source": source,
        "why_slow": index.why_slow,
        "where": [one.tolist() for one in where],
        "numbers": [frames.indices[one].tolist() for one in where],
        "times": [frames.times[one].tolist() for one in where],
    }


@lru_cache(maxsize=1)
def _indexed(path: Path, cache: Path | None, headway: Callable[[], None]) -> FrameIndex:
    """The index of a film is kept at hand for its next span, also where no cache can be written."""
    return index_file(path, cache=cache, tick=headway)


def _numbers(
    path: Path,
    index: FrameIndex,
    samplings: Sequence[Sampling],
    start: float | None,
    end: float | None,
) -> list[NDArray[np.int32]]:
    """The frames of a span that each backbone wants, by their numbers in the file."""
    try:
        span = index.span(start, end)
    except VideoError as problem:
        raise VideoError(f"{path}: {problem}") from None
    times = index.times[span.start : span.stop]
    return [one.pick(times) + np.int32(span.start) for one in samplings]


def _source_of_failed(path: Path) -> str | None:
    with contextlib.suppress(VideoError):
        return fingerprint(path) if path.is_file() else None
    return None


if __name__ == "__main__":
    main()
