"""Handle folders that an interrupted process left and that the next process resumes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from obygaze_features.common.files import require_plain_file, take_lock
from obygaze_features.errors import ObygazeError, OutputExists


@contextlib.contextmanager
def only_process(lock: Path, problem: ObygazeError) -> Iterator[None]:
    """Hold a lock file in the ``with`` block; raise `problem` if another process holds it.

    On Windows and on file systems without locks, other processes are not noticed.
    """
    if sys.platform == "win32":
        yield
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    require_plain_file(lock, OutputExists)
    with lock.open("ab") as file:
        if file.tell():
            raise OutputExists(f"{lock} was not made by obygaze; move it elsewhere")
        # The previous holder may just have removed the file.
        if not take_lock(file) or not os.fstat(file.fileno()).st_nlink:
            raise problem
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def is_resumable(folder: Path, marker: str, is_ours: Callable[[str], object]) -> bool:
    """Return True if an interrupted process left this folder, which can be resumed or removed.

    Raises `OutputExists` if there is anything else at the path: a link, a file, a folder without
    `marker`, or a folder with a file whose relative path `is_ours` rejects.
    """
    if not os.path.lexists(folder):
        return False
    problem = ""
    if folder.is_symlink() or not folder.is_dir():
        problem = "is a link or a file, not a folder"
    elif not (folder / marker).is_file():
        problem = f"was not made by obygaze (it has no {marker})"
    elif foreign := sorted(name for name, own in _files_in(folder, is_ours) if not own):
        problem = f"contains {foreign[0]}, which obygaze did not write"
    if problem:
        raise OutputExists(f"{folder} {problem}; move it elsewhere, or choose another output")
    return True


def remove_resumable(folder: Path, is_ours: Callable[[str], object]) -> None:
    """Remove the files in a folder that `is_ours` accepts, then folders that are empty."""
    for name, own in _files_in(folder, is_ours):
        if own:
            (folder / name).unlink(missing_ok=True)
    for parent, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):  # not empty, or another process removed it
            Path(parent).rmdir()


def _files_in(folder: Path, is_ours: Callable[[str], object]) -> Iterator[tuple[str, bool]]:
    """Yield each file's relative path, and True if it is a regular file that `is_ours` accepts."""
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            name = path.relative_to(folder).as_posix()
            if path.is_symlink() or path.name in files:
                yield name, bool(is_ours(name)) and path.is_file() and not path.is_symlink()
