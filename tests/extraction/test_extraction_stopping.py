"""Ctrl-C, SIGTERM and SIGKILL, sent to the command itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import obygaze_features as of
from obygaze_features.store.claims import Claims
from tests.extraction.test_extraction_broken import decoders_of
from tests.kit.films import rows

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks for processes as Linux has them"
)
BACKBONES = ("tiny-xclip", "tiny-vivit")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    """The weights of the tiny backbones are drawn here, and not in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def start(manifest: Path, films: Path, output: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cli", "features", "extract", manifest, "--videos", films]
    command += ["-o", output, "--device", "cpu", "--workers", "1"]
    for name in BACKBONES:
        command += ["--backbone", name]
    return subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell starts what runs in its background with Ctrl-C ignored, and children inherit it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def wait_until(sign: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 600
    while not sign() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        pytest.param(signal.SIGINT, 130, "Interrupted.", marks=pytest.mark.night),
        pytest.param(signal.SIGTERM, 143, "Terminated.", marks=pytest.mark.gate),
        pytest.param(signal.SIGKILL, -9, "", marks=pytest.mark.night),
    ],
)
def test_a_signal_stops_the_run_and_its_decoders(films, tmp_path, number, code, word):
    rows(2000).save(tmp_path / "manifest")
    with start(tmp_path / "manifest", films, tmp_path) as process:
        wait_until((tmp_path / "tiny-vivit.zarr/blocks/000000.json").exists, process)
        decoders = decoders_of(process.pid)
        assert decoders
        process.send_signal(number)
        _, stderr = process.communicate(timeout=900)
    assert process.returncode == code
    end = time.monotonic() + (300 if number == signal.SIGKILL else 0)
    while any(Path(f"/proc/{left}").exists() for left in decoders):
        assert time.monotonic() < end
        time.sleep(0.01)
    for name in BACKBONES:
        store = of.open_store(tmp_path / f"{name}.zarr")
        assert 32 <= (store.status == 1).sum() < len(store)  # it did not go on
        if word:
            assert Claims(store.path / "claims").active_blocks() == []
            assert list(store.path.rglob("*.partial")) == []
    if word:
        assert stderr.splitlines()[-1] == word
        assert "Traceback" not in stderr
