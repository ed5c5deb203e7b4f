"""A process that decodes, for the pool in `extraction.decoder`.

FFmpeg may hang or crash on a broken file; in a separate process it harms no other. Requests come
over a socket, one line of JSON each; pictures or sound go into memory shared with the caller. The
worker sends a heartbeat while it makes progress, and exits when the other end of the
socket closes.

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
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.errors import VideoError
from obygaze_features.video.decode import Pictures, decode_frames, decode_into
from obygaze_features.video.index import FrameIndex, fingerprint, index_file, open_media
from obygaze_features.video.sound import decode_sound

FRAMES_PER_PART = 128
"""Frames in one answer, in full size; a caller asks for the rest of a clip with ``skip``."""
READY = b"ready\n"
"""Sent first: requests are answered from then on."""
HEARTBEAT = b".\n"
"""Sent at most once a second while a request makes progress."""


class Memory:
    """Memory that two processes share through a file descriptor; it grows as needed."""

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
        return np.frombuffer(self._map, np.uint8, size).reshape(shape)


def main() -> None:
    """Answer requests until the caller is gone."""
    channel, memory = socket.socket(fileno=int(sys.argv[1])), Memory(int(sys.argv[2]))
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, requests), daemon=True).start()
    heartbeat = _Heartbeat(channel)
    channel.sendall(READY)
    while True:
        request = requests.get()
        try:
            answer = _answer(request, memory, heartbeat)
        except Exception as problem:  # a bug of ours costs this file alone, and is named
            answer = {"error": f": {type(problem).__name__}: {problem}"}
        channel.sendall(json.dumps({"source": None, **answer}).encode() + b"\n")


def _listen(channel: socket.socket, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Receive requests while another is answered, so that the end is noticed immediately."""
    try:
        with channel.makefile("rb") as lines:
            for line in lines:
                requests.put(json.loads(line))
    finally:  # also if the caller was killed while it waited for an answer
        os._exit(0)


class _Heartbeat:
    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._last = channel, time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._last > 1:
            self._last = now
            self._channel.sendall(HEARTBEAT)


def _answer(
    request: Mapping[str, Any], memory: Memory, heartbeat: Callable[[], None]
) -> dict[str, Any]:
    path, start, end = Path(request["path"]), request["start"], request["end"]
    changed = path.stat().st_mtime_ns if path.is_file() else 0
    try:
        if request["task"] == "hear":
            sounds = [SoundSampling(**fields) for fields in request["samplings"]]
            index = None
            with contextlib.suppress(VideoError):  # a file may have sound alone
                index = _cached_index(path, changed, heartbeat)
            answer = _decode_sound(path, index, start, end, sounds, memory, heartbeat)
        else:
            samplings = [Sampling(**fields) for fields in request["samplings"]]
            index = _cached_index(path, changed, heartbeat)
            if request["task"] == "examine":
                return examine(path, index, start, end, samplings=samplings, tick=heartbeat)
            frames = index.span(path, start, end), samplings, request["skip"]
            answer = _decode_pictures(path, index, *frames, memory, heartbeat)
        return {"source": fingerprint(path, index), **answer}
    except VideoError as problem:
        with contextlib.suppress(VideoError):
            source = fingerprint(path) if path.is_file() else None
            return {"error": problem.reason, "source": source}
        return {"error": problem.reason}


def _decode_sound(
    path: Path, index: FrameIndex | None, start: float | None, end: float | None,
    samplings: Sequence[SoundSampling], memory: Memory, heartbeat: Callable[[], None],
) -> dict[str, Any]:  # fmt: skip
    rates, seconds = {sampling.rate for sampling in samplings}, index.seconds if index else 0.0
    track = samplings[0].track
    sound = decode_sound(path, start, end, rates, track=track, seconds=seconds, tick=heartbeat)
    last, spans = 0, {}
    for rate, samples in sound.samples.items():
        first, last = last, last + len(samples)
        memory.array((4 * last,)).view(np.float32)[first:] = samples
        spans[rate] = first, last
    return {"track": sound.track, "spans": spans}


def _decode_pictures(
    path: Path, index: FrameIndex, span: range, samplings: Sequence[Sampling], skip: int,
    memory: Memory, heartbeat: Callable[[], None],
) -> dict[str, Any]:  # fmt: skip
    times = index.times[span.start : span.stop]
    numbers = [sampling.pick(times) + np.int32(span.start) for sampling in samplings]
    left = np.unique(np.concatenate(numbers))[skip:]
    part = left[:FRAMES_PER_PART]
    frames = decode_frames(path, part, index=index, tick=heartbeat, allocate=memory.array)
    return {
        "shape": frames.rgb.shape,
        "left": len(left) - len(part),
        "why_slow": index.why_slow,
        "rows": [
            np.searchsorted(part, picked[np.isin(picked, part)]).tolist() for picked in numbers
        ],
        "numbers": [picked.tolist() for picked in numbers],
        "times": [index.times[picked].tolist() for picked in numbers],
        "thinned": any(s.rate and len(s.at_rate(times)) > s.frames for s in samplings),
    }


@lru_cache(maxsize=1)
def _cached_index(path: Path, changed: int, heartbeat: Callable[[], None]) -> FrameIndex:
    """The index of the last film, for its next span."""
    return index_file(path, tick=heartbeat)


def examine(
    path: Path,
    index: FrameIndex,
    start: float | None = None,
    end: float | None = None,
    *,
    samplings: Sequence[Sampling],
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Decode the frames that extraction would, and describe the film, or its span in seconds.

    Raises `VideoError` if its features could not be extracted. `tick` is called at every packet.

    Returns FFmpeg's names of ``codec`` and ``container``; ``width``, ``height`` and ``rotation``
    (counter-clockwise) of the upright pictures; ``frames``, ``fps`` and ``seconds`` of the span;
    ``decode_seconds``, and ``why_slow`` it is decoded from its start. Of its ``problems`` none
    prevents extraction: ``short`` (fewer frames than a backbone takes: some are repeated or
    missing), ``ends early`` (the film ends before the span does), ``variable frame rate``,
    ``decoded in order`` and ``no sound``, for backbones that hear.
    """
    span = index.span(path, start, end)
    times = index.times[span.start : span.stop]
    picked = [sampling.pick(times) for sampling in samplings]
    numbers = np.unique(np.concatenate([np.zeros(1, np.int32), *picked])) + np.int32(span.start)
    pictures = Pictures(path, numbers)
    begin = time.perf_counter()
    decode_into(pictures, index, tick)
    decode_seconds = time.perf_counter() - begin
    with open_media(path) as container:
        is_silent = not container.streams.audio
    after = index.times[span.stop] if span.stop < len(index) else index.seconds
    seconds = float(after - times[0])
    problems = {
        "short": any(
            len(set(frames.tolist())) < sampling.frames
            for frames, sampling in zip(picked, samplings, strict=True)
        ),
        "ends early": end is not None and index.seconds < end - 0.5,
        "variable frame rate": _is_variable(times),
        "decoded in order": index.why_slow is not None,
        "no sound": is_silent,
    }
    _, height, width, _ = pictures.rgb.shape
    return {
        "codec": index.codec,
        "container": index.container,
        "width": width,
        "height": height,
        "rotation": pictures.rotation,
        "frames": len(times),
        "fps": len(times) / seconds if seconds else 0.0,
        "seconds": seconds,
        "decode_seconds": decode_seconds,
        "why_slow": index.why_slow,
        "problems": [name for name, present in problems.items() if present],
    }


def _is_variable(times: NDArray[np.float64]) -> bool:
    """Whether frames are shown for different times, beyond rounding to 1 ms."""
    steps = np.diff(times)
    return len(steps) > 0 and bool(np.ptp(steps) > 0.1 * np.median(steps) + 0.002)


if __name__ == "__main__":
    main()
