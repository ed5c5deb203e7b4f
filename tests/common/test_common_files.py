"""Files and folders that appear complete or not at all."""

import contextlib
import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

# Each function is interrupted at its system calls.
from obygaze_features.common import files
from obygaze_features.errors import OutputExists, StoreError


def put(path: Path, text: str, **options) -> None:
    with files.new_folder(path, **options) as new:
        (new / "marker").write_text(text)
        assert new != path


def test_files_follow_the_users_umask(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; "
        "from obygaze_features.common.files import new_folder, write_bytes; "
        "os.umask(0o027); here = Path(sys.argv[1]); write_bytes(here / 'file', b'')\n"
        "with new_folder(here / 'folder'): pass"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750


def test_a_new_folder_appears_only_when_complete(tmp_path):
    path = tmp_path / "out"
    with files.new_folder(path) as new:
        (new / "marker").write_text("old")
        assert not path.exists()

    with pytest.raises(TypeError):
        put(tmp_path / "other", None)
    with pytest.raises(OutputExists, match="already exists"):
        put(path, "new")
    with pytest.raises(OutputExists, match="is not what this command makes"):
        put(path, "new", overwrite=True, marker="other")
    (path / "films").mkdir()
    (path / "films" / "film.mkv").write_text("precious")
    with pytest.raises(OutputExists, match=r"contains films.film\.mkv, which the new folder lacks"):
        put(path, "new", overwrite=True, marker="marker")
    assert (path / "films" / "film.mkv").read_text() == "precious"
    assert (path / "marker").read_text() == "old"
    put(path, "new", overwrite=True, marker="marker", allow_missing=True)
    assert [file.name for file in path.iterdir()] == ["marker"]
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OutputExists, match="is not what this command makes"):
        put(tmp_path / "link", "new", overwrite=True)


def test_a_new_folder_is_flushed_before_it_gets_its_name(tmp_path, monkeypatch):
    flushed: list[int] = []

    def observed(descriptor: int) -> None:
        if not (tmp_path / "outer").exists():
            flushed.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", observed)
    with files.new_folder(tmp_path / "outer") as outer:
        (outer / "inner").mkdir()
        (outer / "inner/file").write_text("")
    paths = [tmp_path / "outer", *(tmp_path / "outer").rglob("*")]
    assert sorted(flushed) == sorted(path.stat().st_ino for path in paths)


def test_the_first_of_two_writers_keeps_a_folder(tmp_path):
    with (
        pytest.raises(OutputExists, match="made by another process"),
        files.new_folder(tmp_path / "out"),
    ):
        put(tmp_path / "out", "first")
    assert (tmp_path / "out/marker").read_text() == "first"


def test_a_folder_that_a_killed_process_moved_aside_is_whole_and_named(tmp_path):
    killed = (
        "import os, sys; from pathlib import Path; from obygaze_features.common import files\n"
        "real = os.rename\n"
        "os.rename = lambda *names: (real(*names), os._exit(9))\n"
        "with files.new_folder(Path(sys.argv[1]), overwrite=True) as new:\n"
        "    (new / 'marker').write_text('new')"
    )
    path = tmp_path / "out"
    put(path, "old")
    assert subprocess.run([sys.executable, "-c", killed, path]).returncode == 9
    [aside] = tmp_path.glob(".out.*.replaced")
    assert (aside / "marker").read_text() == "old"
    with pytest.raises(StoreError, match=f"killed command left it as {aside}"):
        files.require_folder(path, "a store", StoreError)
    put(path, "newer")
    assert (aside / "marker").read_text() == "old"


@pytest.mark.parametrize("overwrite", [False, True])
def test_only_one_of_two_writers_creates_a_file(tmp_path, overwrite):
    path = tmp_path / "x.zip"
    expected = contextlib.nullcontext() if overwrite else pytest.raises(OutputExists)
    with expected, files.new_file(path, overwrite=overwrite) as temporary:
        temporary.write_text("late")
        path.write_text("first")
    assert path.read_text() == ("late" if overwrite else "first")
    assert list(tmp_path.iterdir()) == [path]


def test_a_description_is_never_beside_another_file(tmp_path, monkeypatch):
    table = tmp_path / "x.csv"
    about = tmp_path / "x.json"
    files.write_files({table: "old", about: "of old"})

    def cut(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    old = {"x.csv": "old", "x.json": "of old"}
    new = {table: "new", about: "of new"}
    for name, left in (("fsync", old), ("replace", {"x.csv": "old"})):
        with monkeypatch.context() as system:
            system.setattr(os, name, cut)
            with pytest.raises(OSError, match="Input/output"):
                files.write_files(new, overwrite=True)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == left


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_devices_are_not_read_as_json(tmp_path):
    os.mkfifo(tmp_path / "x.json")
    (tmp_path / "y.json").symlink_to("/dev/zero")
    for name in ("x.json", "y.json"):
        with pytest.raises(StoreError, match=f"{name} is a device or a pipe"):
            files.read_json(tmp_path / name, StoreError)


def test_folders_that_replace_each_other_at_once_are_all_written(tmp_path):
    """Also if none existed when they began."""
    barrier = threading.Barrier(4)

    def write(number):
        with files.new_folder(tmp_path / "new", overwrite=True) as folder:
            (folder / "number").write_text(str(number))
            barrier.wait()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
