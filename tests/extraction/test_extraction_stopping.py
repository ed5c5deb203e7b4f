"""Ctrl-C, SIGTERM and SIGKILL, sent to the command itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.manifests import Manifest
from obygaze_features.store import open_store
from obygaze_features.store.claims import Claims
from tests.extraction.test_extraction_broken import decoders_of

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks for processes as Linux has them"
)
BACKBONES = ("tiny-xclip", "tiny-vivit")


def start(manifest: Path, films: Path, output: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cli", "features", "extract", str(manifest)]
    command += ["--videos", str(films), "-o", str(output), "--device", "cpu", "--workers", "1"]
    for name in BACKBONES:
        command += ["--backbone", name]
    return subprocess.Popen(
        [*command, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what runs in its background with Ctrl-C ignored, and children inherit it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for(sign: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 600
    while not sign.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)


@pytest.mark.gate
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "Interrupted."),
        pytest.param(signal.SIGTERM, 143, "Terminated.", marks=pytest.mark.gate),
    ],
)
def test_a_signal_stops_cleanly_and_soon(large_manifest, films, tmp_path, number, code, word):
    with start(large_manifest, films, tmp_path) as process:
        wait_for(tmp_path / "tiny-vivit.zarr/blocks/000000.json", process)
        decoders = decoders_of(process.pid)
        assert decoders
        process.send_signal(number)
        _, stderr = process.communicate(timeout=900)
    assert (open_store(tmp_path / "tiny-vivit.zarr").status == 0).any()  # it did not go on
    assert process.returncode == code
    assert stderr.splitlines()[-1] == word
    assert "Traceback" not in stderr
    for left in decoders:
        assert not Path(f"/proc/{left}").exists()
    for name in BACKBONES:
        store = open_store(tmp_path / f"{name}.zarr")
        assert 32 <= (store.status == 1).sum() < len(store)
        assert Claims(store.path / "claims").active_blocks() == []
        assert list(store.path.rglob("*.partial")) == []


@pytest.mark.gate
def test_decoders_end_with_who_started_them(large_manifest, films, tmp_path):
    with start(large_manifest, films, tmp_path) as process:
        wait_for(tmp_path / "tiny-vivit.zarr/blocks/000000.json", process)
        decoders = decoders_of(process.pid)
        assert decoders
        process.kill()
        process.communicate()
    end = time.monotonic() + 300
    while any(Path(f"/proc/{left}").exists() for left in decoders):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.faults
def test_killed_at_random_it_resumes_to_the_same_stores(sixty_clips, films, tmp_path):
    """Twenty kills over sixty clips and two backbones, from the first decoding on."""
    with start(sixty_clips, films, tmp_path / "whole") as process:
        wait_for_decoders(process)
        begin = time.time()
        process.communicate()
    records = list((tmp_path / "whole").glob("*/blocks/*.json"))
    span = max(record.stat().st_mtime for record in records) - begin
    chance = np.random.default_rng(4)
    kills, cut_in_two, stores = 0, 0, 0
    while kills < 20:
        stores += 1
        output = tmp_path / f"killed{stores}"
        for _ in range(3):
            with start(sixty_clips, films, output) as process:
                wait_for_decoders(process)
                time.sleep(chance.uniform(0, span))
                kills += process.poll() is None
                process.kill()
                process.communicate()
        cut_in_two += 0 < len(list(output.glob("*/blocks/*.json"))) < 4
        finish_and_compare(sixty_clips, films, output, tmp_path / "whole")
    assert cut_in_two, "no kill fell between the first record and the last"


def wait_for_decoders(process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 600
    while process.poll() is None and not decoders_of(process.pid) and time.monotonic() < end:
        time.sleep(0.02)


def finish_and_compare(manifest: Path, films: Path, output: Path, whole_store: Path) -> None:
    with start(manifest, films, output) as process:
        _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    for name in BACKBONES:
        left, right = open_store(output / f"{name}.zarr"), open_store(whole_store / f"{name}.zarr")
        assert (left.status == 1).all()
        for array in left.arrays:
            np.testing.assert_array_equal(
                left.read(array, missing="nan"), right.read(array, missing="nan")
            )
        for block in range(left.blocks):
            assert left.record_of(block) == right.record_of(block)
        assert Claims(left.path / "claims").active_blocks() == []


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    """The weights of the tiny backbones are drawn here, and not in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def large_manifest(manifest: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(manifest, 2000, tmp_path_factory.mktemp("large") / "manifest")


@pytest.fixture(scope="module")
def sixty_clips(manifest: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(manifest, 60, tmp_path_factory.mktemp("sixty") / "manifest")


def saved(manifest: Manifest, count: int, path: Path) -> Path:
    from obygaze_features.manifests import Item, Items

    items = [Item(f"clip-{row:04}", media=f"clip{row % 6}.mp4") for row in range(count)]
    Manifest("made-up", Items.of(items)).save(path)
    return path
