"""Transfer final stores as a whole: to and from zip files, folders, S3 and the Hugging Face Hub.

The checksum of every file is verified, and repeating an interrupted call resumes it. A push sends
``checksums.json`` first, which identifies the store, and the group's ``zarr.json`` last, so that a
partial store cannot be opened. A push to the Hub is a single commit. A pull collects files in a
hidden folder until all have arrived. Zip files are not compressed, so that they can be mapped.
Equal stores give equal zip files, except for their logs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import NamedTuple

from obygaze_features.common.files import (
    READ_ONLY,
    disk_errors,
    make_read_only,
    new_file,
    new_folder,
    refuse_to_overwrite,
    require_plain_file,
    sha256_of,
    to_json,
    write_bytes,
)
from obygaze_features.common.package import need
from obygaze_features.common.progress import meter, progress
from obygaze_features.common.resume import is_resumable, only_process
from obygaze_features.common.text import redact_url
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.location import (
    BLOCK_BYTES,
    Folder,
    Location,
    ZipArchive,
    in_parallel,
    is_store_name,
    is_url,
    require_store_name,
    sha256_at,
)
from obygaze_features.store.metadata import read_attributes, read_checksums
from obygaze_features.store.reader import Store, location_of, open_at
from obygaze_features.store.remote import MAX_REQUESTS, Remote
from obygaze_features.store.schemes import one_line_errors, parse_hf_address
from obygaze_features.store.verify import check_list

GROUP = "zarr.json"


class Packed(NamedTuple):
    """A zip file that a store was packed into."""

    path: Path
    files: int
    size: int
    left_out: list[str]
    """Files in the store's folder that were left out because they do not belong to the store."""


class Pushed(NamedTuple):
    """The result of a push: the address, the number of files, and how many were sent this time."""

    where: str
    files: int
    size: int
    sent: int
    left_out: list[str]


class Pulled(NamedTuple):
    """A store that was downloaded or unpacked, and the number of bytes that this run fetched."""

    path: Path
    files: int
    size: int
    fetched: int


class _Files:
    """The files of a final store that is to be packed or pushed.

    Raises `StoreError` if the store is open, or if its checksum list does not match its files.
    `action` names the operation in messages ("packed").
    """

    def __init__(self, store: Store, action: str) -> None:
        self.path, self.action = store.path, action
        if not store.is_final:
            remedy = f"run: obygaze stores finalise {store.path}"
            raise StoreError(f"{store.path} cannot be {action} because it is still open; {remedy}")
        self.checksums = read_checksums(store.location)
        check_list(store, self.checksums)
        require_plain_file(store.path / fmt.LOG, StoreError)  # the only file without a checksum
        files = {p.relative_to(self.path).as_posix() for p in self.path.rglob("*") if p.is_file()}
        names = [*self.checksums, fmt.CHECKSUMS, fmt.LOG]
        for name in names[:-1]:
            if name not in files:
                self.check(name)
        self.sizes = {name: (self.path / name).stat().st_size for name in names if name in files}
        self.left_out = sorted(files.difference(names))

    def check(self, name: str, sha256: str | None = None) -> None:
        """Raise `StoreError` if a file is damaged, before it can replace an intact file."""
        try:
            sha256 = sha256 or sha256_of(self.path / name)
            reason = "does not match its checksum"
        except OSError as problem:
            reason = f"cannot be read ({problem.strerror})"
        if sha256 is None or self.checksums.get(name, sha256) != sha256:
            remedy = f"the store was not {self.action}; run: obygaze stores verify {self.path}"
            raise StoreError(f"{self.path / name} {reason}, so {remedy}")


def pack(store: Store, output: Path | str, *, overwrite: bool = False) -> Packed:
    """Pack a final store into one zip file, verifying the checksum of each file.

    Raises `StoreError`, and writes nothing, if the store is open or damaged.
    """
    output, files = Path(output), _Files(store, "packed")
    if output.suffix.lower() != ".zip":
        raise UsageError(f"{output}: the name of a packed store must end in .zip")
    store.location.refuse_as_output(output)
    with (
        disk_errors(output, StoreError),
        new_file(output, overwrite=overwrite) as temporary,
        zipfile.ZipFile(temporary, "w") as archive,
    ):
        for name in progress(files.sizes, "Packing", unit="file"):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # Unix, on every system
            info.external_attr = (stat.S_IFREG | READ_ONLY) << 16
            info.file_size = files.sizes[name]
            digest = hashlib.sha256()
            with (files.path / name).open("rb") as file, archive.open(info, "w") as member:
                while data := file.read(BLOCK_BYTES):
                    digest.update(data)
                    member.write(data)
            files.check(name, digest.hexdigest())
    return Packed(output, len(files.sizes), output.stat().st_size, files.left_out)


def push(store: Store, target: Path | str) -> Pushed:
    """Upload or copy a final store; a second push sends only files that are missing or differ.

    Parameters
    ----------
    store
        The store to send.
    target
        A folder or a URL such as ``s3://bucket/lab``, where the store keeps its name (to rename
        it, end the folder or URL in ``NAME.zarr``), or ``hf://datasets/OWNER/NAME``, a dataset on
        the Hugging Face Hub. Raises `StoreError` if the target has other content.
    """
    files, where = _Files(store, "pushed"), str(target)
    if where.startswith("hf://"):
        sent = _push_to_hub(files, where)
    else:
        there = Remote(where.rstrip("/") or where)
        if there.files.is_read_only:
            raise UsageError(
                f"{there.where}: cannot push over HTTP; use a folder, s3://, gs://, hf:// or file://"
            )
        if not there.url.endswith(".zarr") and not there.exists(fmt.CHECKSUMS):
            there = Remote(f"{where.rstrip('/')}/{files.path.resolve().name}")
        store.location.refuse_as_output(Path(there.url))
        where, sent = there.where, _push_files(files, there)
    size = sum(files.sizes.values())
    return Pushed(redact_url(where), len(files.sizes), size, sent, files.left_out)


def _is_right(there: Remote, name: str, sha256: str | None) -> bool:
    """Return True if a file at the target matches its checksum; the log may differ.

    The file is read if the server does not store its checksum.
    """
    if sha256 is None:
        return True
    with contextlib.suppress(FileNotFoundError), one_line_errors(there.join(name)):
        return there.files.sha256(name) == sha256 or sha256_at(there, name) == sha256
    return False


def _send(files: _Files, name: str, there: Remote) -> None:
    """Check a file and send it; read it back if the server does not verify its checksum."""
    files.check(name)
    path, sha256 = files.path / name, files.checksums.get(name)
    try:
        with one_line_errors(there.join(name)):
            is_compared = there.files.put(path, name, sha256 or sha256_of(path))
    except FileNotFoundError:
        bucket = there.files.root.partition("/")[0] or there.files.root
        raise StoreError(
            f"{there.where}: bucket {bucket} does not exist; check its name, or create it"
        ) from None
    if not is_compared and not _is_right(there, name, sha256):
        remedy = f"run: obygaze stores verify {files.path}"
        raise StoreError(f"{there.join(name)} differs from what was sent; {remedy}")


def _push_files(files: _Files, there: Remote) -> int:
    """Send the files that are missing or differ; return the number of files sent."""
    listed, sent = (files.path / fmt.CHECKSUMS).read_bytes(), 0
    with one_line_errors(there.where):
        sizes = there.files.sizes()
    listed_there = there.read(fmt.CHECKSUMS) if fmt.CHECKSUMS in sizes else b""
    # If checksums.json is missing or truncated, no push has claimed the target yet.
    if len(listed_there) < len(listed) and listed.startswith(listed_there):
        if others := sizes.keys() - {fmt.CHECKSUMS}:
            raise _holds_something_else(there.where, others)
        _send(files, fmt.CHECKSUMS, there)
        sent += 1

    def is_right(name: str) -> bool:
        is_alike = sizes.get(name) == files.sizes[name]
        return is_alike and _is_right(there, name, files.checksums.get(name))

    def send(name: str) -> int:
        _send(files, name, there)
        return files.sizes[name]

    at_once = 1 if there.files.has_folders else MAX_REQUESTS
    body = [name for name in files.sizes if name not in (fmt.CHECKSUMS, GROUP)]
    for names in (body, [GROUP]):
        if there.read(fmt.CHECKSUMS) != listed:  # another push may have started meanwhile
            raise StoreError(f"{there.where} holds another store; choose another target")
        checked = in_parallel(is_right, names, at_once=at_once)
        checked = progress(checked, "Verifying", unit="file", total=len(names))
        wrong = [name for name, right in zip(names, checked, strict=True) if not right]
        with meter(sum(files.sizes[name] for name in wrong), "Sending", unit="B") as advance:
            for size in in_parallel(send, wrong, at_once=at_once):
                advance(size)
        sent += len(wrong)
    return sent


def _holds_something_else(where: str, names: Iterable[str]) -> StoreError:
    return StoreError(f"{where} has other files, such as {min(names)}; choose an empty target")


def _push_to_hub(files: _Files, address: str) -> int:
    """Push a store to a dataset on the Hub in one commit; return the number of files sent."""
    repo = parse_hf_address(address, dataset_only=True)[0]
    hub, there = need("huggingface_hub", extra="remote"), Remote(address)
    if not sys.stderr.isatty():
        need("huggingface_hub.utils", extra="remote").disable_progress_bars()
    api, dataset = hub.HfApi(), {"repo_id": repo, "repo_type": "dataset"}

    def wrong_there() -> list[str]:
        tree = api.list_repo_tree(**dataset, recursive=True)
        remote = {file.path: file for file in tree if isinstance(file, hub.RepoFile)}
        if fmt.CHECKSUMS not in remote:
            if odd := remote.keys() - {".gitattributes"}:
                raise _holds_something_else(address, odd)
            return list(files.sizes)
        if there.read(fmt.CHECKSUMS) != (files.path / fmt.CHECKSUMS).read_bytes():
            raise StoreError(f"{there.where} holds another store; choose another name")
        return [
            name
            for name, sha256 in files.checksums.items()
            if name not in remote
            or sha256 != (remote[name].lfs.sha256 if remote[name].lfs else sha256_at(there, name))
        ]

    with one_line_errors(address):
        api.create_repo(**dataset, private=True, exist_ok=True)
        wrong = wrong_there()
        for name in wrong:
            files.check(name)
        if wrong:
            # The Hub's progress bars need a terminal. With one commit, all files appear at once.
            waiting = meter(len(wrong), "Sending in one commit", unit="file")
            with contextlib.nullcontext() if sys.stderr.isatty() else waiting:
                api.upload_folder(
                    **dataset,
                    folder_path=files.path,
                    allow_patterns=list(files.sizes),
                    commit_message=f"{files.path.name}: {len(files.sizes)} files",
                )
            if still := wrong_there():
                remedy = f"run: obygaze stores verify {files.path}"
                raise StoreError(f"{address}: {still[0]} differs from what was sent; {remedy}")
    return len(wrong)


def pull(source: Path | str, path: Path | str, *, overwrite: bool = False) -> Pulled:
    """Download or unpack a final store; a second run resumes an interrupted one.

    Parameters
    ----------
    source
        The store to pull: a URL, a zip file (on disk or behind a URL), or a folder.
    path
        The path of the new store, ``NAME.zarr``.
    overwrite
        Replace an existing store at `path` once the new one is complete and verified.
    """
    output = require_store_name(Path(path))
    refuse_to_overwrite(output, overwrite=overwrite)
    if is_url(source) and redact_url(source).endswith(".zip"):
        fetched = _pull_zip(source, output, overwrite=overwrite)
    else:
        fetched = _pull_files(location_of(source), output, overwrite=overwrite)
    sizes = [file.stat().st_size for file in output.rglob("*") if file.is_file()]
    return Pulled(output, len(sizes), sum(sizes), fetched)


def _pull_files(location: Location, output: Path, *, overwrite: bool) -> int:
    """Fetch the files of a store; return the number of bytes fetched."""
    if read_attributes(location)["state"] != "final":
        raise StoreError(
            f"{location.where} is still open, so its files may change. Copy finished films with: "
            f"obygaze stores subset {location.where} --film FILM,... -o {output}"
        )
    checksums = read_checksums(location)
    if odd := [name for name in checksums if not is_store_name(name)]:
        raise StoreError(
            f"{location.join(fmt.CHECKSUMS)} lists {odd[0]!r:.80}, which is not a valid name for "
            "a store's file"
        )
    is_zip = isinstance(location, ZipArchive)
    if isinstance(location, ZipArchive) and (
        odd := sorted({*location.names} - {*checksums, fmt.CHECKSUMS, fmt.LOG})
    ):
        raise StoreError(f"{location.where}: {odd[0]!r:.80} is not a file of this store")
    with (
        disk_errors(output, StoreError),
        new_folder(
            output, overwrite=overwrite, marker=fmt.CHECKSUMS, allow_missing=True
        ) as final_folder,
        # Reading a zip file on this machine again costs little.
        _pulling_folder(output, location.read(fmt.CHECKSUMS), keep=not is_zip) as folder,
    ):
        fetched = _fetch_all(location, checksums, folder)
        log = folder / fmt.LOG
        log.unlink(missing_ok=True)
        if location.exists(fmt.LOG):  # the log may be lost, because it does not affect features
            _append(location, fmt.LOG, log, lambda size: None)
        store = open_at(Folder(folder, location.where))
        if not store.is_final:  # regardless of the source's first answer
            raise StoreError(f"{location.where} changed meanwhile; run the same command again")
        check_list(store, checksums)
        final_folder.rmdir()
        folder.rename(final_folder)
    return fetched


def _fetch_all(location: Location, checksums: dict[str, str], folder: Path) -> int:
    """Fetch the files of a store, in parallel from a server; return the number of bytes fetched."""
    lock, stopped = threading.Lock(), threading.Event()
    with meter(None, "Fetching", unit="B") as advance:

        def count(size: int) -> None:
            if stopped.is_set():
                raise CancelledError
            with lock:
                advance(size, note=f"{len(checksums):,} files")

        def fetch(name: str) -> int:
            return _fetch(location, name, checksums[name], folder, count)

        first, *rest = checksums
        fetched = fetch(first)  # shows if the server supports ranges
        return fetched + sum(in_parallel(fetch, rest, at_once=location.at_once, stopped=stopped))


def _pull_zip(url: str, output: Path, *, overwrite: bool) -> int:
    """Download a zip file and unpack it; return the number of bytes fetched."""
    address, mark, query = url.partition("?")
    parent, _, name = address.rpartition("/")
    location, listed = Remote(f"{parent}{mark}{query}"), to_json({name: ""}).encode()
    archive, fetched = output.with_name(f"{output.name}.zip"), 0
    with disk_errors(output, StoreError), _pulling_folder(archive, listed) as folder:
        part = folder / _part_of(name)
        # The partial download may be of another zip file: if so, start again once.
        for is_resumed in (part.exists(), False):
            with meter(None, "Fetching", unit="B") as advance:
                fetched += _append(location, name, part, advance)
            try:
                _pull_files(ZipArchive(part, location.join(name)), output, overwrite=overwrite)
                break
            except StoreError:
                if not is_resumed:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
                part.unlink()
        shutil.rmtree(folder, ignore_errors=True)
    return fetched


@contextlib.contextmanager
def _pulling_folder(output: Path, listed: bytes, *, keep: bool = True) -> Iterator[Path]:
    """Yield a locked, hidden folder next to an output, in which its files are collected.

    The folder keeps the files that an earlier run fetched, if its checksum list shows that they
    belong to the same store. With `keep`, the folder is kept after an error.
    """
    folder = output.with_name(f".{output.name}.pulling")
    listing = folder / fmt.CHECKSUMS
    busy = f"another process is fetching {output}; wait for it, or choose another name"
    with only_process(folder.with_name(f"{folder.name}.lock"), StoreError(busy)):
        try:
            is_ours = _fetched_names(folder).__contains__
            if not is_resumable(folder, fmt.CHECKSUMS, is_ours) or listing.read_bytes() != listed:
                shutil.rmtree(folder, ignore_errors=True)
                with new_folder(folder) as new:
                    write_bytes(new / fmt.CHECKSUMS, listed)
                    make_read_only(new / fmt.CHECKSUMS)
            yield folder
        except StoreError:
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _fetched_names(folder: Path) -> set[str]:
    """Return the files, whole or partial, that a pull may put into its folder."""
    names = {fmt.CHECKSUMS, fmt.LOG}
    with contextlib.suppress(StoreError):
        names |= read_checksums(Folder(folder)).keys()
    return names | {_part_of(name) for name in names}


def _part_of(name: str) -> str:
    """Return the name under which a file is kept until it is fetched completely."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}.part"


def _fetch(
    location: Location, name: str, sha256: str, folder: Path, advance: Callable[[int], None]
) -> int:
    """Fetch the missing part of a file, and verify the checksum of the whole file."""
    target, part, fetched = folder / name, folder / _part_of(name), 0
    if target.exists():
        if sha256_of(target) == sha256:
            return 0
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):  # an earlier part may be useless: if so, fetch once from the start
        try:
            fetched += _append(location, name, part, advance)
        except FileNotFoundError:
            raise StoreError(
                f"{location.join(name)} is listed in {fmt.CHECKSUMS} but missing; tell "
                "the owner of the store"
            ) from None
        if sha256_of(part) == sha256:
            make_read_only(part)
            os.replace(part, target)
            return fetched
        part.unlink()
    raise StoreError(
        f"{location.join(name)} does not match its checksum; tell the owner of the store (if the "
        "store was changed just now, run the same command again)"
    )


def _append(location: Location, name: str, part: Path, advance: Callable[[int], None]) -> int:
    """Fetch the rest of a file; return the number of bytes fetched."""
    fetched = 0
    with part.open("ab") as file:
        for data in location.stream(name, file.tell()):
            fetched += file.write(data)
            file.flush()
            advance(len(data))
        os.fsync(file.fileno())
    return fetched
