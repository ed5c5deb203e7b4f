"""Handle folders that an interrupted process left and that the next process resumes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from obygaze_features.common.files import require_plain_file
from obygaze_features.errors import ObygazeError, OutputExists


@contextlib.contextmanager
def only_process(lock: Path, problem: ObygazeError) -> Iterator[None]:
    """Hold a lock file in the ``with`` block; raise `problem` if another process holds it.

    On Windows and on file systems without locks, other processes are not noticed.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    lock.parent.mkdir(parents=True, exist_ok=True)
    require_plain_file(lock, OutputExists)
    with lock.open("ab") as file:
        if file.tell():
            raise OutputExists(f"{lock} was not made by obygaze; move it elsewhere")

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise problem from None
        except OSError:  # a file system without locks
            pass
        if not os.fstat(file.fileno()).st_nlink:  # the previous holder has just removed it
            raise problem
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def is_resumable(folder: Path, marker: str, is_ours: Callable[[str], object]) -> bool:
    """Return True if an interrupted process left this folder, which can be resumed or removed.

    Raises `OutputExists` if anything else is at the path: a link, a file, a folder without
    `marker`, or a folder with a link or a file whose relative path `is_ours` rejects.
    """
    if not os.path.lexists(folder):
        return False
    foreign = []
    if folder.is_symlink() or not (folder / marker).is_file():
        foreign = [folder]
    for path in folder.rglob("*"):
        is_own = path.is_dir() or is_ours(path.relative_to(folder).as_posix())
        if path.is_symlink() or not is_own:
            foreign.append(path)
    if foreign:
        raise OutputExists(
            f"{foreign[0]} was not made by obygaze; move it elsewhere, or choose another output"
        )
    return True
