"""Pushes and pulls before a terminal: a bar, and what Ctrl-C leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.kit.servers import bucket, relay, serve

pytestmark = pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals")


@contextlib.contextmanager
def on_a_terminal(*arguments: object, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose standard error is a terminal, which can be read as its standard output."""
    termios = pytest.importorskip("termios")
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with (
        os.fdopen(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(
            [sys.executable, "-m", "cli", "stores", *map(str, arguments)],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            # What runs in a shell's background has Ctrl-C ignored, and children inherit it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process,
    ):
        os.close(theirs)
        process.stdout = terminal
        yield process


def all_told(process: subprocess.Popen[bytes]) -> bytes:
    told = b""
    with contextlib.suppress(OSError):  # the terminal's end, once the process is gone
        while data := process.stdout.read(2**12):
            told += data
    return told


END = b"is kept; run the same command again to resume.\r\nInterrupted.\r\n"


def test_an_interrupted_pull(large_store, tmp_path):
    with serve(large_store.parent) as served:
        url = f"{served.url}/large.zarr"
        with on_a_terminal("pull", url, "-o", tmp_path / "got.zarr") as process:
            served.then = lambda path: (
                process.send_signal(signal.SIGINT) if path.endswith("/c/0/0/0") else None
            )
            told = all_told(process)
    assert process.returncode == 130
    assert b"Fetching: " in told
    assert told.endswith(b"What was fetched " + END)


@pytest.mark.gate
def test_an_interrupted_push(large_store):
    with bucket("slow"), relay(os.environ["AWS_ENDPOINT_URL"]) as way:
        way.after = 300_000
        asked = ("push", large_store, "s3://slow/large.zarr")
        with on_a_terminal(*asked, AWS_ENDPOINT_URL=way.url) as process:
            signals = iter([signal.SIGINT])  # one, however many connections there are
            way.then = lambda: [process.send_signal(one) for one in signals]
            told = all_told(process)
    assert process.returncode == 130
    assert b"Sending:" in told
    assert told.endswith(b"What was sent " + END)
