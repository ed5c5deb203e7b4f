"""Whole stores to and from other machines: push and pull, resumed by running them again.

A push sends ``checksums.json`` first, which says whose files these are, and the group's
``zarr.json`` last, without which nobody can open them. A pull works in a hidden folder beside its
output until every file is there and verified.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from obygaze_features.common.files import (
    disk_errors,
    new_folder,
    refuse_to_overwrite,
    sha256_of,
    write_bytes,
)
from obygaze_features.common.package import need
from obygaze_features.common.progress import meter, progress
from obygaze_features.common.text import redact_url
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.finalise import READ_ONLY
from obygaze_features.store.location import Location, location_of, sha256_at
from obygaze_features.store.metadata import read_attributes, read_checksums
from obygaze_features.store.pack import (
    damaged,
    file_size,
    list_store_files,
    unpack,
    unrelated_files,
)
from obygaze_features.store.reader import open_store
from obygaze_features.store.remote import (
    Remote,
    is_url,
    one_line_errors,
    open_file_system,
    parse_hf_address,
)
from obygaze_features.store.verify import check_listed_files
from obygaze_features.store.zip_safety import is_store_name

GROUP = "zarr.json"
_BUCKETS = ("s3://", "s3a://", "gs://", "gcs://")


def push(store: Path | str, target: Path | str) -> dict[str, Any]:
    """Put a final store elsewhere; run again, it sends what is missing or wrong there.

    Parameters
    ----------
    store
        Its folder.
    target
        A folder, or a URL such as ``s3://bucket/lab``, which gets the store under its own name;
        ``NAME.zarr``, there or here, to give it another; or ``hf://datasets/OWNER/NAME``, a data
        set of its own. `StoreError` if something else is there, `UsageError` if that is inside a
        store.

    Returns
    -------
    dict
        ``where`` it is now, its ``files`` and ``size``, how many files were ``sent`` by this run,
        and what in the folder was ``left_out``, as it is no file of the store.
    """
    path, where = Path(store), str(target)
    checksums, names = list_store_files(path, "pushed")
    if where.startswith(("http://", "https://")):
        where = redact_url(where)
        raise UsageError(f"{where}: nothing is sent over HTTP; push to a folder, s3:// or hf://")
    if where.startswith("hf://"):
        sent = _push_to_hub(path, where, checksums, names)
    else:
        where = _target_for(path, where)
        sent = _push_files(path, where, checksums, names)
    return {
        "where": redact_url(where),
        "files": len(names),
        "size": sum((path / name).stat().st_size for name in names),
        "sent": sent,
        "left_out": unrelated_files(path, names),
    }


def pull(source: Path | str, path: Path | str, *, overwrite: bool = False) -> dict[str, Any]:
    """Download a final store; run again, it resumes where it was cut off.

    Parameters
    ----------
    source
        As for `open_store`: a URL, a zip file (also behind a URL), or a folder.
    path
        The new store, ``NAME.zarr``.
    overwrite
        Replace the store at `path`, once the new one is there and verified.

    Returns
    -------
    dict
        ``path``, ``files``, ``size``, and how many bytes this run ``fetched``.
    """
    output = Path(path)
    if output.suffix != ".zarr":
        raise UsageError(f"{output}: the name of a store ends in .zarr")
    refuse_to_overwrite(output, overwrite=overwrite)
    if is_url(source) and redact_url(source).endswith(".zip"):
        fetched = _pull_zip(source, output, overwrite=overwrite)
    else:
        fetched = _pull_folder(location_of(source), output, overwrite=overwrite)
    sizes = [file.stat().st_size for file in output.rglob("*") if file.is_file()]
    return {"path": output, "files": len(sizes), "size": sum(sizes), "fetched": fetched}


def _target_for(path: Path, target: str) -> str:
    """Where a store goes: the target if it is named as a store, or is one; else inside it."""
    target = target.rstrip("/") or target
    if not target.endswith(".zarr") and not _is_store(target):
        target = f"{target.rstrip('/')}/{path.resolve().name}"
    if is_url(target):
        scheme, _, rest = target.partition("://")
        parts = rest.split("/")
        around = [f"{scheme}://{'/'.join(parts[:end])}" for end in range(1, len(parts))]
    elif path.resolve() == Path(target).resolve():
        raise UsageError(f"{target} is the store itself; choose another target")
    else:
        around = [str(folder) for folder in Path(target).resolve().parents]
    for folder in around:
        if _is_store(folder):
            raise UsageError(
                f"{redact_url(target)} is inside the store {redact_url(folder)}; choose another "
                "target"
            )
    return target


def _is_store(address: str) -> bool:
    """Whether a store is at an address, or one that is being pushed."""
    system, root, _ = open_file_system(address)
    where = redact_url(address)
    with one_line_errors(where), contextlib.suppress(FileNotFoundError, PermissionError):
        return bool(system.exists(f"{root}/{fmt.CHECKSUMS}"))
    return False


def _push_files(path: Path, target: str, checksums: Mapping[str, str], names: list[str]) -> int:
    """Send what is missing; gives the number of files sent."""
    system, root, _ = open_file_system(target)
    there, listed = Remote(target), (path / fmt.CHECKSUMS).read_bytes()
    sizes = _sizes_there(system, root, there.where)
    send = partial(_send, path, target, checksums)
    sent = 0
    if fmt.CHECKSUMS not in sizes:
        if sizes:
            raise _holds_something_else(there.where, sizes)
        sent += send([fmt.CHECKSUMS])
    elif there.read(fmt.CHECKSUMS) != listed:
        raise StoreError(f"{there.where} holds another store; choose another target")
    body = [name for name in names if name not in (fmt.CHECKSUMS, GROUP)]
    sent += send([name for name in body if sizes.get(name) != file_size(path, name, "pushed")])
    for part in (body, [GROUP]):
        wrong = _wrong_there(there, checksums, part)
        if part == [GROUP] and wrong and there.read(fmt.CHECKSUMS) != listed:
            raise StoreError(  # somebody else began at the same time
                f"{there.where} holds another store; choose another target"
            )
        sent += send(wrong)
        if still := _wrong_there(there, checksums, wrong):
            raise StoreError(
                f"{there.join(still[0])} is not what was sent; run: obygaze stores verify {path}"
            )
    return sent


def _sizes_there(system: Any, root: str, where: str) -> dict[str, int]:
    """The files at a target, with their sizes."""
    system.invalidate_cache()
    try:
        with one_line_errors(where):
            files = system.find(root, detail=True)
    except FileNotFoundError:
        return {}
    return {name.removeprefix(f"{root}/"): int(info["size"] or 0) for name, info in files.items()}


def _send(path: Path, target: str, checksums: Mapping[str, str], names: list[str]) -> int:
    """Send files, none of which is damaged here; gives their number."""
    system, root, _ = open_file_system(target)
    callbacks = need("fsspec.callbacks", extra="remote")
    sizes = {name: file_size(path, name, "pushed") for name in names}
    with meter(sum(sizes.values()), "Sending", unit="B") as advance:
        for name in names:
            _refuse_damaged(path, checksums, name)
            goal, moved = f"{root}/{name}", 0

            def move(size: int | None, value: int, **_: object) -> None:
                nonlocal moved
                advance(value - moved)
                moved = value

            try:
                with one_line_errors(f"{redact_url(target)}/{name}"):
                    if not target.startswith(_BUCKETS):  # a push makes no bucket
                        system.makedirs(goal.rpartition("/")[0], exist_ok=True)
                    callback = callbacks.Callback(hooks={"bar": move})
                    system.put_file(str(path / name), goal, callback=callback)
                    callback.absolute_update(sizes[name])  # some say nothing on the way
            except FileNotFoundError:
                bucket = root.partition("/")[0] or root
                raise StoreError(
                    f"there is no bucket {bucket}, for {redact_url(target)}; check its name, or "
                    "make it: a push makes none"
                ) from None
    return len(names)


def _wrong_there(there: Remote, checksums: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """The files that are not there as they should be, by reading them again."""
    wrong = []
    listed = [name for name in names if name in checksums]  # the log is not, and may grow
    for name in progress(listed, "Verifying", unit="file"):
        try:
            right = sha256_at(there, name) == checksums[name]
        except FileNotFoundError:
            right = False
        if not right:
            wrong.append(name)
    return wrong


def _refuse_damaged(path: Path, checksums: Mapping[str, str], name: str) -> None:
    """Raise if a file is not what the store lists: it would replace one that is whole there."""
    try:
        sha256 = sha256_of(path / name)
    except OSError as problem:
        raise damaged(path, name, f"cannot be read ({problem.strerror})", "pushed") from None
    if checksums.get(name, sha256) != sha256:
        raise damaged(path, name, "is not as it was written", "pushed")


def _holds_something_else(where: str, names: Iterable[str]) -> StoreError:
    return StoreError(
        f"{where} holds something else, such as {min(names)}; choose a target of its own"
    )


def _push_to_hub(path: Path, address: str, checksums: Mapping[str, str], names: list[str]) -> int:
    """Put a store into a data set of the Hub, in one commit; gives the number of files sent."""
    repo = parse_hf_address(address, dataset_only=True)[0]
    hub = need("huggingface_hub", extra="remote")
    there = Remote(address)
    if not sys.stderr.isatty():
        need("huggingface_hub.utils", extra="remote").disable_progress_bars()
    api, dataset = hub.HfApi(), {"repo_id": repo, "repo_type": "dataset"}

    def wrong_there() -> list[str]:
        tree = api.list_repo_tree(**dataset, recursive=True)
        files = {file.path: file for file in tree if isinstance(file, hub.RepoFile)}
        if fmt.CHECKSUMS not in files:
            if odd := files.keys() - {".gitattributes"}:
                raise _holds_something_else(address, odd)
            return list(names)
        if there.read(fmt.CHECKSUMS) != (path / fmt.CHECKSUMS).read_bytes():
            raise StoreError(f"{address} holds another store; choose another name")
        return [
            name
            for name, sha256 in checksums.items()
            if name not in files
            or sha256 != (files[name].lfs.sha256 if files[name].lfs else sha256_at(there, name))
        ]

    with one_line_errors(address):
        api.create_repo(**dataset, private=True, exist_ok=True)
        wrong = wrong_there()
        for name in wrong:
            _refuse_damaged(path, checksums, name)
        if wrong:
            message = f"{path.name}: {len(names)} files"
            api.upload_folder(
                **dataset, folder_path=path, allow_patterns=names, commit_message=message
            )
            if still := wrong_there():
                raise StoreError(
                    f"{address}: {still[0]} is not what was sent; run: obygaze stores verify {path}"
                )
    return len(wrong)


def _pull_folder(location: Location, output: Path, *, overwrite: bool) -> int:
    """Download the files of a store; gives the bytes that were fetched."""
    if read_attributes(location)["state"] != "final":
        raise StoreError(
            f"{location.where} is still open, and its files come and go; take what is done: "
            f"obygaze stores subset {location.where} --films FILM,... -o {output}"
        )
    checksums = read_checksums(location)
    if odd := [name for name in checksums if not is_store_name(name)]:
        raise StoreError(
            f"{location.join(fmt.CHECKSUMS)} lists {odd[0]!r:.80}, which is not a file name of a "
            "store"
        )
    with (
        disk_errors(output, StoreError),
        new_folder(
            output, overwrite=overwrite, marker=fmt.CHECKSUMS, allow_missing=True
        ) as final_folder,
        _pulling_folder(output) as folder,
    ):
        _start_anew_if_other(folder, location.read(fmt.CHECKSUMS))
        fetched = 0
        with meter(None, "Fetching", unit="B") as advance:
            for number, (name, sha256) in enumerate(checksums.items(), 1):
                note = f"file {number:,} of {len(checksums):,}"
                fetched += _fetch(location, name, sha256, folder, partial(advance, note=note))
        with contextlib.suppress(FileNotFoundError):  # it may be lost: it says nothing of features
            (folder / fmt.LOG).write_bytes(location.read(fmt.LOG))
        _check_pulled(location.where, folder, checksums)
        final_folder.rmdir()
        folder.rename(final_folder)
    return fetched


def _pull_zip(url: str, output: Path, *, overwrite: bool) -> int:
    """Download a zip file and unpack it; gives the bytes that were fetched."""
    address, mark, query = url.partition("?")
    parent, _, name = address.rpartition("/")
    location, fetched = Remote(f"{parent}{mark}{query}"), 0
    with disk_errors(output, StoreError), _pulling_folder(output) as folder:
        part = folder / f".{name}.part"
        # An earlier start may be of another zip file: then once from its beginning.
        for resumed in (True, False) if part.exists() else (False,):
            folder.mkdir(parents=True, exist_ok=True)
            with meter(None, "Fetching", unit="B") as advance:
                fetched += _append(location, name, part, advance)
            try:
                unpack(part, output, overwrite=overwrite)
                break
            except StoreError as problem:
                if not resumed:
                    message = str(problem).replace(str(part), location.join(name))
                    raise StoreError(message) from None
            finally:
                shutil.rmtree(folder)
    return fetched


@contextlib.contextmanager
def _pulling_folder(output: Path) -> Iterator[Path]:
    """The hidden folder beside an output where its files are collected, for this process alone."""
    folder = output.with_name(f".{output.name}.pulling")
    output.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_name(f"{folder.name}.lock")
    with lock.open("wb") as file:
        if not _lock(file):
            raise StoreError(
                f"another process is fetching {output}; wait for it, or choose another name"
            )
        try:
            yield folder
        finally:
            lock.unlink(missing_ok=True)


def _lock(file: BinaryIO) -> bool:
    """Take a file for this process alone, while it is open; False if another has it."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows, and file systems without locks
        return True
    # Who had it before may have removed its name at this moment.
    return os.fstat(file.fileno()).st_nlink > 0


def _start_anew_if_other(folder: Path, listed: bytes) -> None:
    """Remove what an earlier run fetched, if it was of another store."""
    listing = folder / fmt.CHECKSUMS
    if folder.exists() and not (listing.is_file() and listing.read_bytes() == listed):
        shutil.rmtree(folder)
    if not folder.exists():
        write_bytes(listing, listed)
        listing.chmod(READ_ONLY)


def _check_pulled(where: str, folder: Path, checksums: Mapping[str, str]) -> None:
    """Raise unless what was fetched is a final store with all files that such a one has."""
    try:
        store = open_store(folder)
        if not store.is_final:  # whatever the source said before
            raise StoreError(f"{where} was changed meanwhile; run the same command again")
        check_listed_files(where, store, checksums)
    except StoreError as problem:
        raise StoreError(str(problem).replace(str(folder), where)) from None


def _fetch(
    location: Location, name: str, sha256: str, folder: Path, advance: Callable[[int], None]
) -> int:
    """Fetch what is missing of a file, and compare all of it with its checksum."""
    target = folder / name
    if target.exists():
        if sha256_of(target) == sha256:
            return 0
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    fetched = 0
    for _ in range(2):  # an earlier start may be useless: then once from the beginning
        try:
            fetched += _append(location, name, part, advance)
        except FileNotFoundError:
            raise StoreError(
                f"{location.join(name)} is missing, although {fmt.CHECKSUMS} lists it; tell "
                "whoever offers the store"
            ) from None
        if sha256_of(part) == sha256:
            part.chmod(READ_ONLY)
            os.replace(part, target)
            return fetched
        part.unlink()
    raise StoreError(
        f"{location.join(name)} is not as it was written; tell whoever offers the store (if it was "
        "changed this moment, run the same command again)"
    )


def _append(location: Location, name: str, part: Path, advance: Callable[[int], None]) -> int:
    """Fetch the rest of a file; gives the bytes fetched."""
    fetched = 0
    with part.open("ab") as file:
        for data in location.stream(name, file.tell()):
            fetched += file.write(data)
            file.flush()
            advance(len(data))
        os.fsync(file.fileno())
    return fetched
