"""Pushes and pulls that are killed, and what Ctrl-C leaves before a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from obygaze_features.errors import StoreError
from obygaze_features.store import finalise, open_store, verify
from obygaze_features.store.pull import pull
from obygaze_features.store.remote import PIECE_BYTES
from tests.exchange.conftest import files_of, start
from tests.store.making import numbers, open_state
from tests.store.s3 import bucket, relay
from tests.store.serving import serve

ENDING = b"is kept; run the same command again to resume.\r\nInterrupted.\r\n"
needs_terminal = pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals")


@pytest.mark.night
def test_a_pull_killed_three_times_at_random_bytes_is_resumed(tmp_path):
    """Whole pieces stay; of the one that was being fetched nothing does."""
    values = {"frames": numbers(1200, (32, 512), "float16")}
    store = open_state(tmp_path / "www/large.zarr", values, block_rows=400)
    finalise(store)
    chance = np.random.default_rng(11)
    output = tmp_path / "here/got.zarr"
    with serve(store.parent) as served:
        address = f"{served.url}/large.zarr"
        for _ in range(3):
            served.forget()
            limit = int(chance.integers(PIECE_BYTES, 2 * PIECE_BYTES))
            running = start("pull", address, "-o", output)
            # The piece after that is cut off, and when it is asked for again, there is an end.
            served.cut = lambda path: 50_000 if served.bytes > limit else None  # noqa: B023
            served.then = lambda path: (
                running.send_signal(signal.SIGKILL) if served.bytes > limit + 50_000 else None  # noqa: B023
            )
            running.communicate(timeout=600)
            assert running.returncode == -signal.SIGKILL
            assert not output.exists()
        served.cut, served.then = lambda path: None, lambda path: None
        last = start("pull", address, "-o", output, "--json")
        report = json.loads(last.communicate(timeout=600)[0])
    assert report["fetched"] < 0.8 * report["size"]
    assert files_of(output) == files_of(store)
    assert verify(output) == []
    assert [path.name for path in output.parent.iterdir()] == ["got.zarr"]


@pytest.mark.night
def test_a_push_killed_three_times_at_random_bytes_is_resumed(large_store, tmp_path):
    chance = np.random.default_rng(5)
    with bucket("killed"), relay(os.environ["AWS_ENDPOINT_URL"]) as way:
        target = "s3://killed/large.zarr"
        for _ in range(3):
            running = start("push", large_store, target, AWS_ENDPOINT_URL=way.url)
            way.after = int(chance.integers(20_000, 500_000))
            way.then = lambda: running.send_signal(signal.SIGKILL)  # noqa: B023  # called now
            running.communicate(timeout=600)
            assert running.returncode == -signal.SIGKILL
            with pytest.raises(StoreError, match="a push to it was cut off"):
                open_store(target)
        way.after = 10**12
        last = start("push", large_store, target, "--json", AWS_ENDPOINT_URL=way.url)
        report = json.loads(last.communicate(timeout=600)[0])
        assert 0 < report["sent"] < report["files"]
        assert verify(target) == []
        assert files_of(pull(target, tmp_path / "back.zarr")["path"]) == files_of(large_store)


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


def read_all(process: subprocess.Popen[bytes]) -> bytes:
    text = b""
    with contextlib.suppress(OSError):  # the terminal's end, once the process is gone
        while data := process.stdout.read(2**12):
            text += data
    return text


@needs_terminal
@pytest.mark.gate
def test_an_interrupted_pull(large_store, tmp_path):
    with serve(large_store.parent) as served:
        url = f"{served.url}/large.zarr"
        with on_a_terminal("pull", url, "-o", tmp_path / "got.zarr") as process:
            served.then = lambda path: (
                process.send_signal(signal.SIGINT) if path.endswith("/c/0/0/0") else None
            )
            text = read_all(process)
    assert process.returncode == 130
    assert b"Fetching: " in text
    assert text.endswith(b"What was fetched " + ENDING)


@needs_terminal
@pytest.mark.night
def test_an_interrupted_push(large_store):
    with bucket("slow"), relay(os.environ["AWS_ENDPOINT_URL"]) as way:
        way.after = 300_000
        words = ("push", large_store, "s3://slow/large.zarr")
        with on_a_terminal(*words, AWS_ENDPOINT_URL=way.url) as process:
            signals = iter([signal.SIGINT])  # one, however many connections there are
            way.then = lambda: [process.send_signal(number) for number in signals]
            text = read_all(process)
    assert process.returncode == 130
    assert b"Sending:" in text
    assert text.endswith(b"What was sent " + ENDING)
