"""Write files and folders atomically, and read and check files.

Everything is written next to its destination under a temporary name, flushed to disk, and renamed.
A reader never sees part of a file, even after a power failure. A killed process may leave a hidden
temporary file or folder, which nothing reads.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from obygaze_features.common.formatting import join_some
from obygaze_features.errors import ObygazeError, OutputExists, UsageError, translate

VIDEO_SUFFIXES = frozenset([
    ".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts",
    ".ogv", ".ts", ".vob", ".webm", ".wmv",
])  # fmt: skip
"""The suffixes of video files."""
#: The suffix of a folder that a process has moved aside, and that no other process removes.
ASIDE = ".replaced"
#: The file that marks a synthetic data set, so that a new one replaces no other folder.
SYNTHETIC = "SYNTHETIC.txt"
#: The permissions of a final store's files.
READ_ONLY = 0o444


def refuse_to_overwrite(path: Path, *, overwrite: bool) -> None:
    """Raise `OutputExists` if `path` exists and may not be replaced.

    An ELAN file is never replaced, because people edit it.
    """
    remedy = "choose another name, or pass overwrite (--overwrite)"
    if path.suffix == ".eaf":
        overwrite = False
        remedy = "choose another folder for ELAN"
    if not overwrite and os.path.lexists(path):
        raise OutputExists(f"{path} already exists; {remedy}")


def require_suffix(path: Path, *suffixes: str) -> None:
    """Raise `UsageError` unless a file's name ends in one of these suffixes."""
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{path}: the file's name must end in {' or '.join(suffixes)}")


def disk_errors(path: Path, error: type[ObygazeError]) -> AbstractContextManager[None]:
    """Turn an `OSError`, such as a full or read-only disk, into a one-line `error`."""
    reason = "cannot be written: {}; correct this and try again"
    return translate(error, path, reason, foreign=OSError)


def require_plain_file(path: Path, error: type[ObygazeError]) -> None:
    """Raise `error` if a path is a link, a device or a folder instead of a regular file.

    Following a link in somebody else's folder could expose one of your own files.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise error(f"{path} is a link, a device or a folder, not a regular file; remove it")


def require_readable(path: Path, error: type[ObygazeError]) -> None:
    """Raise `error` if a path is a device or a pipe, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise error(f"{path} is a device or a pipe; pass a file")


def sync_path(path: Path) -> None:
    """Flush a file's content or a folder's entries to disk, so that they survive a power failure.

    Windows cannot flush folders, and flushes only files that are open for writing.
    """
    flags = os.O_RDONLY
    if sys.platform == "win32":
        if path.is_dir():
            return
        flags = os.O_RDWR
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_folder(path: Path, wish: str, error: type[ObygazeError]) -> None:
    """Raise `error` unless `path` is a folder."""
    if not path.exists():
        raise error(describe_absent(path, wish))
    if not path.is_dir():
        raise error(f"{path} is not a folder; pass {wish}")


def describe_absent(path: Path, wish: str) -> str:
    """Return the message that a path does not exist."""
    hint = f"pass {wish}"
    for aside in path.parent.glob(f".{glob.escape(path.name)}.*{ASIDE}"):
        hint = f"a killed command left it as {aside}; rename that to restore it"
    return f"{path} does not exist; {hint}"


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file atomically."""
    with beside(path) as temporary:
        temporary.write_bytes(data)
        sync_path(temporary)
        os.replace(temporary, path)
    sync_path(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically with a text in UTF-8; its line endings are not converted."""
    write_bytes(path, text.encode())


def write_files(files: Mapping[Path, str], *, overwrite: bool = False) -> None:
    """Write several files, or none if one of them may not be replaced or cannot be written.

    The other files may describe the first one: they are removed while it is replaced, so that they
    never describe a different file. Two processes take turns, so that all files come from one of
    them.
    """
    with contextlib.ExitStack() as stack:
        temporaries = {}
        for path, text in files.items():
            temporaries[path] = stack.enter_context(beside(path))
            temporaries[path].write_bytes(text.encode())
            sync_path(temporaries[path])

        for folder in sorted({path.parent for path in files}):
            stack.enter_context(alone_in(folder))
        for path in files:
            refuse_to_overwrite(path, overwrite=overwrite)
        for path in [*files][1:]:
            path.unlink(missing_ok=True)
        for path, temporary in temporaries.items():
            os.replace(temporary, path)
            sync_path(path.parent)


@contextlib.contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield the path of a file to write, which becomes `path` if the ``with`` block succeeds."""
    refuse_to_overwrite(path, overwrite=overwrite)
    with beside(path) as temporary:
        yield temporary
        sync_path(temporary)
        with alone_in(path.parent):
            refuse_to_overwrite(path, overwrite=overwrite)
            os.replace(temporary, path)
    sync_path(path.parent)


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a temporary name next to a file; afterwards, remove any file with that name.

    The parent folder is created. Raises `OutputExists` if the file's path is a folder.
    """
    if path.is_dir():
        raise OutputExists(f"{path} is a folder; pass the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for other processes that are writing in this folder, and keep them waiting.

    The folder itself is locked, so a killed process leaves nothing behind. Windows and some file
    systems do not support this; there, processes do not wait.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _temporary_name(path: Path) -> Path:
    """Return the name of an unfinished file or folder."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def make_read_only(path: Path) -> None:
    """Make a file read-only, except on Windows, where it could then not be replaced."""
    if sys.platform != "win32":
        path.chmod(READ_ONLY)


@contextlib.contextmanager
def new_folder(
    path: Path,
    *,
    overwrite: bool = False,
    marker: str | None = None,
    allow_missing: bool = False,
) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` if the ``with`` block succeeds.

    Errors name `path` instead of the temporary folder.

    Parameters
    ----------
    path
        The final path of the folder.
    overwrite
        Replace an existing folder. Otherwise, raises `OutputExists` if `path` exists.
    marker
        A file that an existing folder must contain to be replaced, so that ``--overwrite`` with a
        mistyped path cannot delete somebody's films.
    allow_missing
        Replace the old folder even if it has files that the new one lacks.
    """
    check_new_folder(path, overwrite=overwrite, marker=marker)
    temporary = _temporary_name(path)
    temporary.mkdir()
    try:
        yield temporary
        if overwrite and not allow_missing:
            _refuse_to_lose(path, temporary)
        publish_folder(temporary, path, overwrite=overwrite)
    except ObygazeError as problem:
        problem.args = (str(problem).replace(temporary.name, path.name),)
        raise
    finally:
        # Remove the failed attempt, or the folder that was replaced.
        shutil.rmtree(temporary, ignore_errors=True)


def check_new_folder(path: Path, *, overwrite: bool, marker: str | None) -> None:
    """Raise the errors with which `new_folder` would begin; create the parent folder."""
    refuse_to_overwrite(path, overwrite=overwrite)
    is_ours = path.is_dir() and not path.is_symlink()
    if marker:
        is_ours = is_ours and (path / marker).is_file()
    if os.path.lexists(path) and not is_ours:
        raise OutputExists(
            f"{path} is not what this command makes; remove it yourself, or choose another name"
        )
    path.parent.mkdir(parents=True, exist_ok=True)


def publish_folder(folder: Path, path: Path, *, overwrite: bool) -> None:
    """Flush a folder and its files to disk, and rename it to `path`.

    If `path` exists, swap the two with `overwrite`, or else raise `OutputExists`.
    """
    for parent, _, names in os.walk(folder):
        for name in (*names, ""):  # the folder itself, too
            sync_path(Path(parent, name))
    with alone_in(path.parent):
        if os.path.lexists(path) and not overwrite:
            raise OutputExists(
                path,
                "was just made by another process; choose another name, or pass overwrite "
                "(--overwrite)",
            )
        if path.exists():
            _exchange(folder, path)
        else:
            os.rename(folder, path)
    sync_path(path.parent)


def _refuse_to_lose(old: Path, new: Path) -> None:
    """Raise `OutputExists` if `old` has files that `new` lacks."""
    lost = []
    for parent, _, names in os.walk(old):  # another process may be moving it
        for name in names:
            file = Path(parent, name).relative_to(old)
            if not (new / file).exists():
                lost.append(str(file))
    if lost:
        raise OutputExists(
            f"{old} contains {join_some(sorted(lost), 1)}, which the new folder lacks; "
            "move such files elsewhere, or choose another name"
        )


def _exchange(new: Path, path: Path) -> None:
    """Swap two folders. If that fails, `path` is still one of them.

    A kill in between leaves the old folder aside, and `describe_absent` says where.
    """
    aside = new.with_suffix(ASIDE)
    try:
        os.rename(path, aside)
        os.rename(new, path)
    finally:
        if aside.exists():
            os.rename(aside, path if new.exists() else new)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8 as 64 hexadecimal digits."""
    return hashlib.sha256(bytes(text, "utf-8")).hexdigest()


def to_json(value: Any) -> str:
    """Return a value as readable JSON: indented, not limited to ASCII, and with a final newline."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_bytes(path: Path, error: type[ObygazeError]) -> bytes:
    """Read a file; raise `error` if it cannot be read, or is a device or a pipe."""
    require_readable(path, error)
    with translate(error, path, "cannot be read: {}", foreign=OSError):
        return path.read_bytes()


def read_json(path: Path, error: type[ObygazeError]) -> Any:
    """Read a JSON file; raise `error` if it is not valid."""
    return parse_json(read_bytes(path, error), path, error)


def read_toml(path: Path, error: type[ObygazeError]) -> dict[str, Any]:
    """Read a TOML file; raise `error` if it is not valid."""
    import tomllib  # imported here to start other commands faster

    data = read_bytes(path, error)
    broken = ValueError, RecursionError
    with translate(error, path, "is not valid TOML: {}", foreign=broken):
        return tomllib.loads(data.decode())


def parse_json(data: bytes, where: object, error: type[ObygazeError]) -> Any:
    """Parse JSON; raise `error` if it is not valid or has texts that cannot be written again.

    `where` names the file in the message.
    """
    # The data is not JSON, not UTF-8, or nested too deeply.
    broken = ValueError, RecursionError
    with translate(error, where, "is not valid JSON: {}", foreign=broken):
        value = json.loads(data)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate cannot be written
    return value


def read_format(
    path: Path,
    name: str,
    version: int,
    error: type[ObygazeError],
    wish: str,
) -> dict[str, Any]:
    """Read a JSON header with this format and at most this version.

    Messages name the header's folder, which users know. `wish` says what the folder must be.
    """
    folder = path.parent
    if not path.is_file():
        require_folder(folder, wish, error)
        raise error(f"{folder} is not {wish}: it has no {path.name}; check the path")
    content: Any = read_json(path, error)
    if not isinstance(content, dict) or content.get("format") != name:
        raise error(f'{folder}: {path.name} does not have the format "{name}"; pass {wish}')
    number = content.get("format_version")
    if type(number) is not int or not 1 <= number <= version:
        raise error(
            f"{folder} has format version {number!r}, but this version of obygaze reads only up to "
            f"{version}; if the folder is newer, update obygaze"
        )
    return content
