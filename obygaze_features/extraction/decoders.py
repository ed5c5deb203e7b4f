"""The processes that decode, ahead of who needs the frames."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import VideoError
from obygaze_features.video.worker import HEARTBEAT, READY, Memory

__all__ = ["PATIENCE", "Decoder", "Decoders", "default_workers"]

PATIENCE = 60.0
"""Seconds without headway after which a file is given up."""
ENOUGH = 32
"""Processes beyond which no more are started unasked."""

Task = TypeVar("Task")
Result = TypeVar("Result")


def default_workers() -> int:
    """One a core that this process may use, but for one."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores - 1, ENOUGH))


START = 120.0
"""Seconds that a process may take to begin: it imports PyAV, perhaps over a network."""
GRACE = 2.0
"""Seconds for which a killed process is waited; one that a dead drive holds does not go."""


class _Lost(Exception):
    """The process died over a question."""


class _NeverBegan(_Lost):
    """The process died before it could be asked anything."""


class Decoder:
    """A decoding process. It is started when it is first asked, and anew after it was lost."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """What `video.worker` answers: ``error`` says why a file cannot be used.

        So it is too where decoding hangs, or where the process dies over the same file twice.
        """
        path, why = question["path"], ""
        for turn in range(2):
            try:
                return self._ask(question)
            except TimeoutError:
                self.discard()
                why = f"was given up: decoding made no headway for {self._patience:g} s"
                break
            except _NeverBegan as problem:
                self.discard()
                if turn and not self._stopped:  # no file is to blame
                    raise VideoError(
                        f"the processes that decode cannot start ({problem}); "
                        "see what is installed with: obygaze doctor"
                    ) from None
            except _Lost as problem:
                # Once may be chance: a process that was killed for want of memory, say.
                why = f"cannot be decoded: the decoder died over it ({problem})"
                self.discard()
        return {"error": f"{path} {why}", "source": None}

    def pictures(self, shape: Iterable[int]) -> NDArray[np.uint8]:
        """The pictures of the last answer; the next question overwrites them."""
        return self._memory.array(tuple(shape))

    def stop(self) -> None:
        """Kill the process for good, from any thread; who waits for its answer gets an error."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if self._stopped:
            raise _Lost("stopped")
        if self._process is None:
            self._process = self._start()
            self._wait_until_ready()
        if self._stopped:  # meanwhile
            raise _Lost("stopped")
        try:
            self._channel.sendall(json.dumps(question).encode() + b"\n")
            while (line := self._lines.readline()).endswith(b"\n"):
                if line != HEARTBEAT:
                    answer: dict[str, Any] = json.loads(line)
                    return answer
        except ConnectionError:
            pass
        raise _Lost(self._end())

    def _end(self) -> str:
        """How the process ended."""
        assert self._process is not None
        try:
            code = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "it does not answer any more"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _start(self) -> subprocess.Popen[bytes]:
        ours, theirs = socket.socketpair()
        ours.settimeout(START)
        # A file without a name: it is gone with the last process that has it, however that ends.
        nameless = getattr(os, "memfd_create", None)
        self._file = nameless("frames") if nameless else _nameless_file()
        self._memory = Memory(self._file)
        self._channel, self._lines = ours, ours.makefile("rb")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in discard
        descriptors = (theirs.fileno(), self._file)
        # It imports from where this process does, and nothing that merely lies where it starts.
        places = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
        with theirs:
            return subprocess.Popen(  # noqa: S603  # it is this very interpreter
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "obygaze_features.video.worker",
                    *map(str, descriptors),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=descriptors,
                process_group=0,  # Ctrl-C is for who asks, who then stops this
                env={**os.environ, "PYTHONPATH": places},
            )

    def _wait_until_ready(self) -> None:
        try:
            began = self._lines.readline() == READY
        except (TimeoutError, ConnectionError):
            began = False
        if not began:
            ended = self._end()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            raise _NeverBegan(said[-1] if said else ended)
        self._channel.settimeout(self._patience)

    def discard(self) -> None:
        """Stop the process and forget it; the next question starts another."""
        if self._process is not None:
            self._process.kill()
            self._end()
            for one in (self._lines, self._channel, self._errors):
                one.close()
            os.close(self._file)
            self._process = None


def _nameless_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Decoders:
    """Several decoders, that work ahead of who takes the results."""

    def __init__(self, count: int, *, patience: float = PATIENCE) -> None:
        self._all = [Decoder(patience) for _ in range(count)]
        self._idle: queue.SimpleQueue[Decoder] = queue.SimpleQueue()
        for one in self._all:
            self._idle.put(one)

    def map(
        self, do: Callable[[Decoder, Task], Result], tasks: Iterable[Task], *, ahead: int
    ) -> Generator[tuple[Task, Result], None, None]:
        """What `do` makes of each task with a decoder of its own, in order.

        At most `ahead` tasks are begun and not taken, so that memory is bounded. When the iterator
        ends or is closed, the processes are killed over whatever they are at.
        """
        pool = ThreadPoolExecutor(len(self._all), thread_name_prefix="decode")
        waiting: deque[tuple[Task, Future[Result]]] = deque()
        coming = iter(tasks)
        try:
            while True:
                while len(waiting) < ahead and (task := next(coming, None)) is not None:
                    waiting.append((task, pool.submit(self._with_one, do, task)))
                if not waiting:
                    return
                task, result = waiting.popleft()
                yield task, result.result()
        finally:
            for one in self._all:
                one.stop()
            pool.shutdown(cancel_futures=True)
            for one in self._all:
                one.discard()

    def _with_one(self, do: Callable[[Decoder, Task], Result], task: Task) -> Result:
        decoder = self._idle.get()
        try:
            return do(decoder, task)
        finally:
            self._idle.put(decoder)
