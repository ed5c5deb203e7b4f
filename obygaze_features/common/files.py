"""Write files and folders atomically, and read and check files.

Everything is written next to its destination under a temporary name, flushed to disk, and renamed.
A reader sees either the old or the new file, even after a power failure. Temporary files of killed
processes are removed when the same path is written again. Files inside a folder made by
`new_folder` are flushed together, before the folder gets its name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from obygaze_features.common.text import find_closest, is_folder_of, join_some
from obygaze_features.errors import ObygazeError, OutputExists, StoreError, UsageError, translate

VIDEO_SUFFIXES = frozenset([
    ".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts",
    ".ogv", ".ts", ".vob", ".webm", ".wmv",
])  # fmt: skip
"""The suffixes of video files."""
#: The suffix of unfinished files and folders.
SUFFIX = ".partial"
#: The file that marks folders that obygaze generated, so that only those are replaced.
SYNTHETIC = "SYNTHETIC.txt"
#: Suffixes that folders must not have, so that they do not look like files.
FILE_SUFFIXES = {
    ".csv", ".eaf", ".h5", ".htm", ".html", ".jpg", ".json", ".npy", ".pdf",
    ".png", ".svg", ".toml", ".tsv", ".txt", ".xlsx", ".zip",
}  # fmt: skip
KINDS = {
    "manifest.json": "a manifest",
    "zarr.json": "a feature store",
    "run.json": "a run",
    "model.json": "a model",
    "timelines.json": "a folder of timelines",
}
"""The kinds of folders that commands take, by the file that identifies each."""
DESCRIBE_USAGE: ContextVar[Callable[[], str]] = ContextVar("DESCRIBE_USAGE", default=str)
"""A function that describes the order of a command's arguments; it returns "" outside commands."""
#: The user's umask. It can only be read by setting it, which would later race with other threads.
_UMASK = os.umask(0o077)
os.umask(_UMASK)
#: The permissions of a final store's files.
READ_ONLY = 0o444
#: Errors of calls that a disk does not support. For hard links, most systems report EPERM instead.
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
#: Flags of Linux's renameat2.
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
#: The temporary names of folders that `new_folder` is making in this process.
_UNFINISHED: set[Path] = set()


def _is_in_unfinished(path: Path) -> bool:
    """Return True if `path` is in a folder that `new_folder` is making, and will flush."""
    return bool(_UNFINISHED) and not _UNFINISHED.isdisjoint(path.absolute().parents)


def refuse_to_overwrite(path: Path, *, overwrite: bool = False) -> None:
    """Raise `OutputExists` if `path` exists and may not be replaced."""
    if not overwrite and (path.exists() or path.is_symlink()):
        clear_unfinished(path)  # files left by a process that was killed after renaming
        raise OutputExists(f"{path} already exists; choose another name or add --overwrite")


def require_folder_name(path: Path, *accepted: str) -> None:
    """Raise `UsageError` if a folder has a file's suffix that is not in `accepted`."""
    suffix = path.suffix.lower()
    if suffix in FILE_SUFFIXES.difference(accepted):
        kinds = f"a folder or one of {', '.join(accepted)}" if accepted else "a folder"
        raise UsageError(
            f"{path}: the output must be {kinds} (got {suffix}); call it {path.with_suffix('')}"
        )


def disk_errors(
    path: Path, error: type[ObygazeError], unchanged: str = "the old content is unchanged"
) -> AbstractContextManager[None]:
    """Turn errors of a full or read-only disk into a one-line `error` that adds `unchanged`."""
    remedy = f"({unchanged}); free space or check the disk, and run the same command again"
    return translate(error, path, f"cannot be written: {{}} {remedy}", foreign=OSError)


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
        raise error(f"{path} is a device or a pipe, not a file")


def sync_path(path: Path) -> None:
    """Flush a file's content or a folder's entries to disk, so that they survive a power failure.

    Paths in an unfinished folder are skipped. On Windows, folders are also skipped: they cannot be
    opened, and renames are journalled. Windows flushes only files that are open for writing, so
    files are opened for reading and writing there.
    """
    is_folder, is_windows = path.is_dir(), sys.platform == "win32"
    if _is_in_unfinished(path / "name" if is_folder else path) or (is_folder and is_windows):
        return
    descriptor = os.open(path, os.O_RDWR if is_windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_folder(path: Path, wish: str, error: type[ObygazeError]) -> None:
    """Raise `error` unless `path` is a folder."""
    if not path.is_dir():
        is_file = f"{path} is not a folder; pass {wish}"
        raise error(is_file if path.exists() else describe_absent(path, wish))


def describe_other_kind(path: Path, wish: str) -> str:
    """Return a message if a folder is another kind of obygaze folder than `wish`, otherwise "".

    The message includes the arguments that the command takes.
    """
    kind = next((kind for name, kind in KINDS.items() if (path / name).is_file()), "")
    return f"{path} is {kind}, not {wish}{DESCRIBE_USAGE.get()()}" if kind else ""


def describe_absent(path: Path, wish: str) -> str:
    """Return the message that a path does not exist, with a similar path as a suggestion."""
    near = find_closest(path.name, [sibling.name for sibling in path.absolute().parent.glob("*")])
    hint = f"did you mean {path.parent / near}?" if near else f"pass {wish}"
    return f"{path} does not exist; {hint}"


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file atomically."""
    _replace({path: data})


def write_text(path: Path, text: str) -> None:
    """Write a file as UTF-8 with Unix line endings; see `write_files`."""
    write_files({path: text}, overwrite=True)


def write_files(
    files: Mapping[Path, str], *, overwrite: bool = False, first_is_described: bool = False
) -> None:
    """Write several files, or none if one of them exists or cannot be written.

    With `first_is_described`, the other files describe the first one: they are removed while it is
    replaced, so that they never describe a different file. If two processes write the same files,
    they take turns, so that all files come from one of them.
    """
    descriptions = list(files)[1:] if first_is_described else []
    absent = [] if overwrite else [path for path in files if path not in descriptions]
    for path, text in files.items():
        if path.suffix.lower() == ".eaf" and not text.startswith("<?xml"):
            raise UsageError(f"{path}: .eaf is for ELAN documents; to write a table, use .csv")
        if not _is_in_unfinished(path):
            clear_unfinished(path)
    for path in absent:
        refuse_to_overwrite(path)
    if not files:
        return
    encoded = {path: text.encode("utf-8") for path, text in files.items()}
    _replace(encoded, removed=descriptions, absent=absent)


def _replace(
    files: Mapping[Path, bytes], *, removed: Sequence[Path] = (), absent: Sequence[Path] = ()
) -> None:
    """Remove `removed`, then replace `files`; raise `OutputExists` if a file in `absent` exists."""
    temporaries: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            _prepare(path)
            temporaries[path] = _write_beside(path, data)
        with _take_turns(next(iter(files))):
            for path in absent:
                refuse_to_overwrite(path)
            for path in removed:
                path.unlink(missing_ok=True)
            for path, temporary in temporaries.items():
                _publish(temporary, path, overwrite=path not in absent)
        for folder in {path.parent for path in files}:
            sync_path(folder)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)


def _publish(temporary: Path, path: Path, *, overwrite: bool) -> None:
    """Give a file its name; raise `OutputExists` if the name exists, unless `overwrite`."""
    if not overwrite:
        try:
            os.link(temporary, path)  # creates the name or fails, if the disk has hard links
        except OSError:
            refuse_to_overwrite(path)
    os.replace(temporary, path)


@contextlib.contextmanager
def _take_turns(path: Path) -> Iterator[None]:
    """Wait for other processes that are writing files in the same folder with this function.

    The folder itself is locked, so a killed process leaves nothing behind. Windows and some file
    systems do not support this; there, processes do not wait.
    """
    if sys.platform == "win32" or _is_in_unfinished(path):
        yield
        return
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        take_lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def take_lock(file: int | BinaryIO, *, wait: bool = False) -> bool:
    """Lock a file for this process while it is open; return False if it is already locked."""
    if sys.platform == "win32":
        return True
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # file systems without locks
        return True
    return True


def _prepare(path: Path) -> None:
    """Create the folder of a new file; raise `OutputExists` if the file's path is a folder."""
    if path.is_dir():
        raise OutputExists(f"{path} is a folder; pass the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)


def publish_exclusively(path: Path, data: bytes) -> bool:
    """Create a file with its content, unless it exists; return True if this call created it.

    The folder must exist.
    """
    temporary = _write_beside(path, data)
    try:
        is_created = move_exclusively(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if is_created:
        sync_path(path.parent)
    return is_created


def move_exclusively(source: Path, target: Path) -> bool:
    """Rename a file unless the new name exists; return True if this call renamed it.

    A hard link either creates a name or fails, even on shared file systems. Disks without hard
    links need a rename that never replaces files. It would not be enough to create the file under
    its final name: a writer that is killed before its first byte would leave an empty file.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno not in (errno.EPERM, *_UNSUPPORTED):
            raise
        return _rename_exclusively(source, target)
    source.unlink(missing_ok=True)
    return True


def _rename_exclusively(source: Path, target: Path) -> bool:
    try:
        if sys.platform == "win32":
            os.rename(source, target)  # on Windows, this never replaces a file
        else:
            _renameat2(source, target, _RENAME_NOREPLACE)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno not in _UNSUPPORTED:
            raise
        raise StoreError(
            f"{target.parent}: this disk has no hard "
            "links and cannot rename without overwriting. Write the store to another disk, such as "
            "this computer's own, and copy it here when it is finished"
        ) from problem
    return True


@contextlib.contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield the path of an empty file that becomes `path` if the ``with`` block succeeds."""
    refuse_to_overwrite(path, overwrite=overwrite)
    _prepare(path)
    clear_unfinished(path)
    temporary = _write_beside(path, b"")
    try:
        yield temporary
        sync_path(temporary)
        _publish(temporary, path, overwrite=overwrite)
        sync_path(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def make_read_only(path: Path) -> None:
    """Make a file read-only, except on Windows, where it could then not be replaced."""
    if sys.platform != "win32":
        path.chmod(READ_ONLY)


def link_or_copy(source: Path | str, target: Path | str) -> None:
    """Give a file a second name by hard link, or copy it if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        with new_file(Path(target)) as temporary:
            shutil.copyfile(source, temporary)
        shutil.copymode(source, target)


@contextlib.contextmanager
def new_folder(
    path: Path,
    *,
    overwrite: bool = False,
    marker: str | None = None,
    allow_missing: bool = False,
    after_swap: Callable[[Path], None] = lambda replaced: None,
) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` if the ``with`` block succeeds.

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
    after_swap
        A function that is called with the replaced folder. If it raises an exception, the old
        folder is restored.
    """
    check_new_folder(path, overwrite=overwrite, marker=marker)
    temporary = Path(tempfile.mkdtemp(prefix=prefix(path), suffix=SUFFIX, dir=path.parent))
    try:
        # mkdtemp makes private folders, but a store is for the whole lab.
        temporary.chmod(0o777 & ~_UMASK)
        unfinished = temporary.absolute()
        _UNFINISHED.add(unfinished)
        try:
            yield temporary
        finally:
            _UNFINISHED.remove(unfinished)
        if path.exists() and not allow_missing:
            _refuse_to_lose(path, temporary)
        if overwrite and path.exists():
            _sync_all(temporary)
            _exchange(temporary, path)
            try:
                after_swap(temporary)
            except BaseException:
                _exchange(temporary, path)
                raise
            sync_path(path.parent)
        else:
            publish_folder(temporary, path)
    finally:
        # Remove the failed attempt, or the folder that was replaced.
        shutil.rmtree(temporary, ignore_errors=True)


def check_new_folder(path: Path, *, overwrite: bool = False, marker: str | None = None) -> None:
    """Raise early the errors that `new_folder` would raise, and create the parent folder."""
    require_folder_name(path)
    refuse_to_overwrite(path, overwrite=overwrite)
    if path.is_symlink():
        raise OutputExists(f"{path} is a link; pass the folder that it points to")
    if path.exists() and (not path.is_dir() or (marker and not (path / marker).is_file())):
        reason = f"it has no {marker}" if marker else "it is a file"
        raise OutputExists(
            f"{path} was not made by obygaze ({reason}); remove it yourself, or choose another name"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_unfinished(path)


def publish_folder(folder: Path, path: Path) -> None:
    """Flush a folder and all its files to disk, and rename it to a path that is still free."""
    _sync_all(folder)
    try:
        os.rename(folder, path)
    except OSError:
        refuse_to_overwrite(path)  # it may exist by now
        raise
    sync_path(path.parent)


def _sync_all(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            sync_path(Path(parent, name))
        sync_path(Path(parent))


def _refuse_to_lose(old: Path, new: Path) -> None:
    """Raise `OutputExists` if `old` has files that `new` lacks."""
    lost = sorted(
        str(file.relative_to(old))
        for file in old.rglob("*")
        if not file.is_dir() and not (new / file.relative_to(old)).exists()
    )
    if lost:
        raise OutputExists(
            f"{old} contains {join_some(lost, 1)}, which the new folder lacks; "
            "move such files elsewhere, or choose another name"
        )


def _exchange(new: Path, path: Path) -> None:
    """Swap two folders.

    Where renameat2 works (Linux), this is one step, so `path` always exists. Elsewhere, `path` is
    moved aside and `new` takes its place; if that fails, the first move is undone.
    """
    try:
        _renameat2(new, path, _RENAME_EXCHANGE)
        return
    except OSError as problem:
        # Other errors may come after the swap; a second swap would undo the first.
        if problem.errno not in (errno.EPERM, *_UNSUPPORTED):
            raise
    aside = new.with_suffix(".replaced")
    os.rename(path, aside)
    try:
        os.rename(new, path)
    except BaseException:
        os.rename(aside, path)
        raise
    os.rename(aside, new)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    """Rename with Linux's renameat2; raise OSError (ENOSYS) on systems without it."""
    library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    rename = getattr(library, "renameat2", None)  # Alpine and older systems lack it
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here = -100  # AT_FDCWD
    if rename(here, os.fsencode(source), here, os.fsencode(target), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(source), None, str(target))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(value: Any) -> str:
    """Format a value as readable JSON: indented, in UTF-8, and with a final newline."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_bytes(path: Path, error: type[ObygazeError]) -> bytes:
    """Read a file; raise `error` if it cannot be read, or is a device or a pipe."""
    require_readable(path, error)
    with translate(error, path, "cannot be read: {}", foreign=OSError):
        return path.read_bytes()


def read_json(path: Path, error: type[ObygazeError]) -> Any:
    """Read a JSON file; raise `error`, which names the line, if it is not valid."""
    return parse_json(read_bytes(path, error), path, error)


def read_toml(path: Path, error: type[ObygazeError]) -> dict[str, Any]:
    """Read a TOML file; raise `error`, which names the line, if it is not valid."""
    import tomllib  # imported here to start other commands faster

    data, broken = read_bytes(path, error), (ValueError, RecursionError)
    with translate(error, path, "is not valid TOML: {}", foreign=broken):
        return tomllib.loads(data.decode())


def parse_json(data: bytes, where: object, error: type[ObygazeError]) -> Any:
    """Parse JSON; raise `error` if it is not valid or has texts that cannot be written again.

    `where` names the file in the message.
    """
    # The data is not JSON, not UTF-8, or nested too deeply.
    with translate(error, where, "is not valid JSON: {}", foreign=(ValueError, RecursionError)):
        value = json.loads(data)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate cannot be written
    return value


def prefix(path: Path) -> str:
    """Return the prefix of this process's temporary names for `path`."""
    return f".{path.name}.{_here()}_{os.getpid()}_"


def clear_unfinished(path: Path) -> None:
    """Remove temporary files for `path` that dead processes on this machine left behind."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{_here()}_([0-9]+)_[a-z0-9_]+\{SUFFIX}")
    with contextlib.suppress(OSError):  # the caller will report the folder
        for entry in path.parent.iterdir():
            match = pattern.fullmatch(entry.name)
            if match and not entry.is_symlink() and not is_alive(int(match[1])):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def is_alive(process: object) -> bool:
    """Return True if a process on this host is running, or if this is unknown."""
    if isinstance(process, int) and sys.platform != "win32":
        try:
            with contextlib.suppress(PermissionError, OverflowError):
                os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


@cache
def _here() -> str:
    """Return a short name for this machine; a process id is only unique on its own machine."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _write_beside(path: Path, data: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=prefix(path), suffix=SUFFIX, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if not _is_in_unfinished(path):
                os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_UMASK)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def read_format(
    path: Path, name: str, version: int, error: type[ObygazeError], *, make: str
) -> dict[str, Any]:
    """Read a JSON header with this format and at most this version.

    Messages name the header's folder, which users know, and `make`, the command that creates it.
    """
    kind, folder = _kind(name), path.parent
    if not path.is_file():
        require_folder(folder, f"a {kind}", error)
        reason = describe_other_kind(folder, f"a {kind}")
        if not reason and (inside := sorted(folder.glob(f"*/{path.name}"))):
            reason = is_folder_of(folder, kind, inside[0].parent)
        missing = f"{folder} is not a {kind}: it has no {path.name} (create one with: {make})"
        raise error(reason or missing)
    return check_format(read_json(path, error), folder, name, version, error)


def check_format(
    content: Any, where: object, name: str, version: int, error: type[ObygazeError]
) -> dict[str, Any]:
    """Return a JSON header; raise `error` if its format or version cannot be read."""
    if not isinstance(content, dict) or content.get("format") != name:
        raise error(f'{where} is not a {_kind(name)}: its "format" is not "{name}"')
    number = content.get("format_version")
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= version:
        raise error(
            f"{where} has format version {number!r}, but this version of obygaze only reads up to "
            f"{version}; update obygaze (pip install --upgrade obygaze)"
        )
    return content


def _kind(name: str) -> str:
    """Return the name of a format in messages: obygaze-manifest -> manifest."""
    kind = name.removeprefix("obygaze-")
    return "folder of timelines" if kind == "timelines" else kind.removesuffix("s")
