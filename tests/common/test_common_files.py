"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from obygaze_features.common.files import (
    new_folder,
    publish_exclusively,
    sha256_of,
    write_bytes,
    write_text,
)
from obygaze_features.errors import OutputExists


def test_write_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "one\n")
    write_text(path, "zwei ä\n")
    assert path.read_bytes() == "zwei ä\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_get_the_permissions_that_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "file", b"")
        with new_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750


def test_one_of_many_publishers_wins(tmp_path: Path) -> None:
    path, won = tmp_path / "record", []
    barrier = threading.Barrier(8)

    def publish(number: int) -> None:
        barrier.wait()
        if publish_exclusively(path, str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=publish, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_text()] == [str(number) for number in won]
    assert list(tmp_path.iterdir()) == [path]


def test_new_folder_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with new_folder(path) as new:
        (new / "a").write_text("a")
        assert not path.exists()
    assert (path / "a").read_text() == "a"
    assert list(tmp_path.iterdir()) == [path]


def test_new_folder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "out") as new:
            (new / "a").write_text("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_new_folder_replaces_only_what_it_may(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with new_folder(path) as new:
        (new / "marker").write_text("old")
    with pytest.raises(OutputExists, match="exists already"), new_folder(path):
        pass
    with (
        pytest.raises(OutputExists, match="left alone"),
        new_folder(path, overwrite=True, marker="other"),
    ):
        pass
    with new_folder(path, overwrite=True, marker="marker") as new:
        (new / "marker").write_text("new")
    assert (path / "marker").read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_sha256_is_that_of_the_standard_tool(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(100_000))
    output = subprocess.run(
        ["sha256sum", tmp_path / "file"], capture_output=True, text=True, check=True
    )
    assert sha256_of(tmp_path / "file") == output.stdout.split()[0]


SAVER = """
import sys
from itertools import count
from pathlib import Path
from obygaze_features.manifests import Item, Items, Manifest
folder = Path(sys.argv[1])
for number in count():
    Manifest(str(number), Items.of([Item(f"i{row}") for row in range(number % 50 + 1)])).save(
        folder, overwrite=True)
    print(number, flush=True)
"""


@pytest.mark.faults
def test_a_manifest_survives_fifty_kills(tmp_path: Path) -> None:
    """Killed at any moment while it is replaced, a manifest is the old one or the new one."""
    from obygaze_features.manifests import Manifest
    from obygaze_features.manifests.check import check

    folder, chance, replaced = tmp_path / "m", random.Random(1), 0
    for _ in range(50):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        # Between two renames the old one lies aside; it is whole, too.
        [aside] = [*tmp_path.glob(".m.*.replaced")][:1] or [None]
        whole = folder if folder.exists() else aside
        assert whole is not None
        assert check(whole) == []
        replaced += whole is not folder
        assert len(Manifest.load(whole)) == int(Manifest.load(whole).name) % 50 + 1
        for path in tmp_path.glob(".m.*"):
            subprocess.run(["rm", "-r", path], check=True)
