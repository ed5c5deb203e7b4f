"""Decode in separate processes that can be killed and replaced, and that work ahead."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.formatting import MAX_TIME_S
from obygaze_features.errors import VideoError
from obygaze_features.sampling import Samples
from obygaze_features.video.worker import HEARTBEAT, MORE, READY, Memory

WORKER = "obygaze_features.video.worker"
START_TIMEOUT_S = 120.0
"""Seconds that a process may take to start. Importing PyAV from a network drive is slow."""
EXIT_TIMEOUT_S = 2.0
"""Seconds to wait for a killed process to end. A process that waits for a dead drive never ends."""

Task = TypeVar("Task")
Result = TypeVar("Result")


class _WorkerDied(Exception):
    """The error raised if the process dies during a request."""


class Decoder:
    """A decoding process, which is started on the first request and again if it dies."""

    def __init__(self, stall_timeout: float) -> None:
        self._stall_timeout = min(stall_timeout, MAX_TIME_S)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def answers(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a request to `video.worker` and yield its answers.

        If the request fails, the last answer has an ``error``: the reason, without the file's name.
        The request also fails if decoding hangs, or if the process dies twice. After its first
        death, the answers start again.
        """
        reason = ""
        for _ in range(2):
            try:
                answer = self._ask(request)
                while answer:
                    yield answer
                    answer = self._ask(MORE)
                return
            except TimeoutError:
                self.discard()
                reason = f"was given up: decoding made no progress for {self._stall_timeout:g} s"
                break
            except _WorkerDied as problem:
                # The first death may be chance: systems kill processes when memory is short.
                reason = f"cannot be decoded: the decoder died ({problem})"
                self.discard()
        yield {"error": reason, "source": None}

    def pictures(self, shape: Iterable[int]) -> NDArray[np.uint8]:
        """Return the pictures of the last answer, which the next request overwrites."""
        return self._memory.array(tuple(shape))

    def sound(self, samples: int) -> Samples:
        """Return the sound of the last answer, which the next request overwrites."""
        return self._memory.array((4 * samples,)).view(np.float32)

    def stop(self) -> None:
        """Kill the process permanently; safe to call from any thread. A pending request fails."""
        self._stopped = True
        if process := self._process:
            process.kill()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._stopped:
            raise _WorkerDied("stopped")
        if self._process is None:
            self._process = self._start()
            self._wait_until_ready()
        if self._stopped:  # stopped meanwhile
            raise _WorkerDied("stopped")
        try:
            self._channel.sendall(json.dumps(request).encode() + b"\n")
            while (line := self._lines.readline()).endswith(b"\n"):
                if line != HEARTBEAT:
                    answer: dict[str, Any] = json.loads(line)
                    return answer
        except ConnectionError:
            pass
        raise _WorkerDied(self._end())

    def _end(self) -> str:
        """Describe how the process ended."""
        assert self._process is not None
        try:
            code = self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "it no longer answers"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _start(self) -> subprocess.Popen[bytes]:
        _refuse_windows()
        # The process imports from the same folders as this one; -P adds none.
        search_path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
        self._channel, worker_channel = socket.socketpair()
        self._channel.settimeout(START_TIMEOUT_S)
        self._lines = self._channel.makefile("rb")
        # An unnamed file disappears with the last process that has it open.
        with tempfile.TemporaryFile() as file:
            memfd_create = getattr(os, "memfd_create", None)
            self._file = memfd_create("frames") if memfd_create else os.dup(file.fileno())
        self._memory = Memory(self._file)
        with worker_channel:
            descriptors = (worker_channel.fileno(), self._file)
            return subprocess.Popen(  # noqa: S603  # the command is this interpreter
                [sys.executable, "-P", "-m", WORKER, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=descriptors,
                process_group=0,  # so that Ctrl-C reaches only the parent, which then stops it
                env={**os.environ, "PYTHONPATH": search_path},
            )

    def _wait_until_ready(self) -> None:
        line = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            line = self._lines.readline()
        if line != READY:
            ended = self._end()
            self.discard()
            raise VideoError(  # not the fault of the file
                f"could not start a decoding process ({ended}); check the "
                "installation with: obygaze doctor"
            )
        self._channel.settimeout(self._stall_timeout)

    def discard(self) -> None:
        """Kill the process; the next request starts a new one."""
        if self._process is not None:
            self._process.kill()
            self._end()
            self._lines.close()
            self._channel.close()
            os.close(self._file)
            self._process = None


class Decoders:
    """A pool of decoding processes; leaving the ``with`` block kills them."""

    def __init__(self, workers: int, stall_timeout: float) -> None:
        self._idle: queue.SimpleQueue[Decoder] = queue.SimpleQueue()
        self._decoders = [Decoder(stall_timeout) for _ in range(workers)]
        for decoder in self._decoders:
            self._idle.put(decoder)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="decode")

    def __enter__(self) -> Decoders:
        return self

    def __exit__(self, *_: object) -> None:
        for decoder in self._decoders:
            decoder.stop()
        self._threads.shutdown(cancel_futures=True)
        for decoder in self._decoders:
            decoder.discard()

    def map(
        self,
        do: Callable[[Decoder, Task], Result],
        tasks: Iterable[Task],
        *,
        ahead: int,
    ) -> Iterator[tuple[Task, Result]]:
        """Yield each task with the result of `do`, in order.

        Besides one task per process, up to `ahead` tasks are submitted before the caller takes a
        result.
        """
        waiting: deque[tuple[Task, Future[Result]]] = deque()
        for task in tasks:
            waiting.append((task, self._threads.submit(self._work, do, task)))
            if len(waiting) >= len(self._decoders) + ahead:
                done, reading = waiting.popleft()
                yield done, reading.result()
        for done, reading in waiting:
            yield done, reading.result()

    def _work(self, do: Callable[[Decoder, Task], Result], task: Task) -> Result:
        decoder = self._idle.get()
        try:
            return do(decoder, task)
        finally:
            self._idle.put(decoder)


def _refuse_windows() -> None:
    """Raise `VideoError` on Windows, which cannot pass open sockets and files to a new process."""
    if sys.platform == "win32":
        raise VideoError(
            "clips cannot be decoded on Windows. Extract on Linux or macOS, or in the Windows "
            "Subsystem for Linux"
        )
