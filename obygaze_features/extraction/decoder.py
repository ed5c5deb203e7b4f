"""Decode in separate processes that can be killed and replaced, and that work ahead."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones.devices import default_workers
from obygaze_features.backbones.sound import Excerpts
from obygaze_features.common.progress import progress
from obygaze_features.errors import VideoError
from obygaze_features.extraction.job import Options
from obygaze_features.video.worker import HEARTBEAT, READY, Memory

WORKER = "obygaze_features.video.worker"
START_TIMEOUT_S = 120.0
"""Seconds that a process may take to start. Importing PyAV over a network is slow."""
EXIT_TIMEOUT_S = 2.0
"""Seconds to wait for a killed process to end. A process that waits for a dead drive never ends."""

Task = TypeVar("Task")
Result = TypeVar("Result")


class _WorkerDied(Exception):
    """The error raised if the process dies during a request."""


class Decoder:
    """A decoding process, which is started on the first request and again if it dies.

    `idle` is a queue of other decoders that can help with tasks.
    """

    def __init__(
        self, stall_timeout: float, idle: queue.SimpleQueue[Decoder] | None = None
    ) -> None:
        self._stall_timeout, self._idle = stall_timeout, idle or queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to `video.worker` and return its answer.

        If the request fails, the answer has an ``error``: the reason, without the file's name. The
        request also fails if decoding hangs, or if the process dies twice.
        """
        reason = ""
        for _ in range(2):
            try:
                return self._ask(request)
            except TimeoutError:
                self.discard()
                reason = f"was given up: decoding made no progress for {self._stall_timeout:g} s"
                break
            except _WorkerDied as problem:
                # The first death may be chance: systems kill processes when memory is short.
                reason = f"cannot be decoded: the decoder died ({problem})"
                self.discard()
        return {"error": reason, "source": None}

    def pictures(self, shape: Iterable[int]) -> NDArray[np.uint8]:
        """Return the pictures of the last answer, which the next request overwrites."""
        return self._memory.array(tuple(shape))

    def sound(self, length: int, places: Sequence[tuple[int, int, int]]) -> Excerpts:
        """Return the sound of the last answer, which the next request overwrites.

        `places` has, for each piece, the number of its first sample, and its start and end in
        memory.
        """
        used = max(end for _, _, end in places)
        samples = self._memory.array((4 * used,)).view(np.float32)
        return Excerpts(length, [(first, samples[begin:end]) for first, begin, end in places])

    def share(self, do: Callable[[Decoder, Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """Run tasks in this process and in idle processes; return the results in order.

        If a task fails, later tasks are not started, and the error of the first failed task is
        raised.
        """
        waiting, helpers = deque(enumerate(tasks)), list[threading.Thread]()
        results: dict[int, Result] = {}
        errors: dict[int, Exception] = {}

        def work(decoder: Decoder) -> None:
            try:
                number, task = waiting.popleft()
            except IndexError:  # another thread took the last task
                return
            try:
                results[number] = do(decoder, task)
            except Exception as problem:
                errors[number] = problem
                waiting.clear()

        def help_out() -> None:
            with contextlib.suppress(queue.Empty):
                decoder = self._idle.get_nowait()
                try:
                    while waiting:
                        work(decoder)
                finally:
                    self._idle.put(decoder)

        while waiting:
            for _ in range(min(self._idle.qsize(), len(waiting) - 1)):
                helpers.append(threading.Thread(target=help_out, name="help"))
                helpers[-1].start()
            work(self)
        for helper in helpers:
            helper.join()
        if errors:
            raise errors[min(errors)]
        return [results[number] for number in sorted(results)]

    def stop(self) -> None:
        """Kill the process permanently; safe to call from any thread. A pending `ask` fails."""
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
        # The process imports from the same folders as this one, except the current folder.
        search_path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
        with contextlib.ExitStack() as resources:  # until `discard`, if the process starts
            channel, worker_channel = map(resources.enter_context, socket.socketpair())
            channel.settimeout(START_TIMEOUT_S)
            # An unnamed file disappears with the last process that has it open.
            with tempfile.TemporaryFile() as file:
                memfd_create = getattr(os, "memfd_create", None)
                self._file = memfd_create("frames") if memfd_create else os.dup(file.fileno())
            resources.callback(os.close, self._file)
            self._memory, self._channel = Memory(self._file), channel
            self._lines = resources.enter_context(channel.makefile("rb"))
            self._errors = resources.enter_context(tempfile.TemporaryFile())
            descriptors = (worker_channel.fileno(), self._file)
            process = subprocess.Popen(  # noqa: S603  # the command is this interpreter
                [sys.executable, "-P", "-m", WORKER, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=descriptors,
                process_group=0,  # so that Ctrl-C only reaches the parent, which then stops it
                env={**os.environ, "PYTHONPATH": search_path},
            )
            worker_channel.close()
            self._open = resources.pop_all()
        return process

    def _wait_until_ready(self) -> None:
        line = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            line = self._lines.readline()
        if line != READY:
            ended = self._end()
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            self.discard()
            if self._stopped:
                raise _WorkerDied("stopped")
            raise VideoError(  # not the fault of the file
                f"could not start a decoding process ({lines[-1] if lines else ended}); "
                "check the installation with: obygaze doctor"
            )
        self._channel.settimeout(self._stall_timeout)

    def discard(self) -> None:
        """Kill the process; the next request starts a new one."""
        if self._process is not None:
            self._process.kill()
            self._end()
            self._open.close()
            self._process = None


def _refuse_windows() -> None:
    """Raise `VideoError` on Windows, which cannot pass open sockets and files to a new process."""
    if sys.platform == "win32":
        raise VideoError(
            "clips cannot be decoded on Windows. Extract on Linux or macOS, or in the Windows "
            "Subsystem for Linux"
        )


@dataclass
class MemoryBudget:
    """A limit on the memory taken by results that wait to be used.

    Parameters
    ----------
    limit
        The limit in bytes. A single result may always wait, however large it is.
    most
        The expected size of the largest result. It is replaced by the largest size actually seen.
    """

    limit: float = math.inf
    most: int = 0
    _largest: int = 0

    def has_room(self, sizes: Sequence[int | None]) -> bool:
        """Return True if another result fits, given the waiting results' sizes (None: unknown)."""
        needed = self.most + sum(self.most if size is None else size for size in sizes)
        return not sizes or needed <= self.limit

    def learn(self, size: int) -> None:
        """Learn the size of a result, to estimate the sizes of later results."""
        self._largest = self.most = max(self._largest, size)


class Decoders:
    """A pool of decoding processes; leaving the ``with`` block kills them."""

    def __init__(self, workers: int, stall_timeout: float) -> None:
        self._idle: queue.SimpleQueue[Decoder] = queue.SimpleQueue()
        self._decoders = [Decoder(stall_timeout, self._idle) for _ in range(workers)]
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
        size_of: Callable[[Result], int] = lambda result: 0,
        budget: MemoryBudget | None = None,
    ) -> Generator[tuple[Task, Result], None, None]:
        """Start tasks immediately, and yield each task with the result of `do`, in order.

        In addition to one task per process, at most `ahead` tasks are started before their results
        are consumed, or fewer if their sizes (by `size_of`) would exceed the budget. Several
        threads may call this at the same time.
        """
        waiting: deque[tuple[Task, Future[tuple[Result, int]]]] = deque()
        remaining, limit = iter(tasks), len(self._decoders) + ahead
        memory = budget or MemoryBudget()

        def work(task: Task) -> tuple[Result, int]:
            decoder = self._idle.get()
            try:
                result = do(decoder, task)
            finally:
                self._idle.put(decoder)
            size = size_of(result)
            memory.learn(size)
            return result, size

        def known_size(reading: Future[tuple[Result, int]]) -> int | None:
            is_known = reading.done() and not reading.exception()
            return reading.result()[1] if is_known else None

        def has_room() -> bool:
            sizes = [known_size(reading) for _, reading in waiting]
            return len(waiting) < limit and memory.has_room(sizes)

        def start() -> None:
            while has_room() and (task := next(remaining, None)) is not None:
                waiting.append((task, self._threads.submit(work, task)))

        def take() -> Generator[tuple[Task, Result], None, None]:
            try:
                while waiting:
                    task, reading = waiting.popleft()
                    yield task, reading.result()[0]
                    start()
            finally:
                for _, reading in waiting:
                    reading.cancel()

        start()
        return take()


def map_items(
    do: Callable[[Decoder, Task], Result], items: Sequence[Task], label: str, options: Options
) -> Iterator[tuple[Task, Result]]:
    """Yield each item and the result of `do`, in order, with a progress bar."""
    count = options.workers or default_workers()
    with Decoders(count, options.stall_timeout) as decoders:
        results = decoders.map(do, items, ahead=count)
        yield from progress(results, label, unit="clip", total=len(items))
