"""Transfer final stores as a whole: to and from zip files, folders, S3 and the Hugging Face Hub.

The checksum of every file is verified before it is sent and after it is fetched. Repeating an
interrupted call keeps the files that have arrived: a pull collects them in a hidden folder; a push
sends ``checksums.json`` first, which identifies the store, and the group's ``zarr.json`` last, so
that a partial store cannot be opened. A push to the Hub is a single commit. Zip files are not
compressed, so that they can be mapped. Equal stores give equal zip files, except for their logs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import zipfile
from collections.abc import Iterable, Mapping
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
    sync_folder,
    write_bytes,
)
from obygaze_features.common.package import need
from obygaze_features.common.progress import progress
from obygaze_features.common.resume import is_resumable, only_process
from obygaze_features.common.text import redact_url
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.files import (
    PIECE_BYTES,
    Folder,
    Location,
    Remote,
    hub_repository,
    is_store_name,
    is_url,
    location_of,
    one_line_errors,
    require_store_name,
)
from obygaze_features.store.metadata import read_attributes, read_checksums
from obygaze_features.store.reader import Store
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


def pack(store: Store, output: Path | str, *, overwrite: bool = False) -> Packed:
    """Pack a final store into one zip file, verifying the checksum of each file.

    Raises `StoreError`, and writes nothing, if the store is open or damaged.
    """
    output = Path(output)
    if output.suffix.lower() != ".zip":
        raise UsageError(f"{output}: the name of a packed store must end in .zip")
    store.location.refuse_as_output(output)
    checksums, sizes, left_out = _list_files(store)
    _require_intact(store, checksums, sizes)
    with (
        disk_errors(output, StoreError),
        new_file(output, overwrite=overwrite) as temporary,
        zipfile.ZipFile(temporary, "w") as archive,
    ):
        for name in progress(sizes, "Packing", unit="file"):
            info = zipfile.ZipInfo(name)
            info.create_system = 3  # Unix, on every system
            info.external_attr = (stat.S_IFREG | READ_ONLY) << 16
            info.file_size = sizes[name]
            with (store.path / name).open("rb") as file, archive.open(info, "w") as member:
                shutil.copyfileobj(file, member, PIECE_BYTES)
    return Packed(output, len(sizes), output.stat().st_size, left_out)


def push(store: Store, target: Path | str) -> Pushed:
    """Upload or copy a final store; a second push sends only what is missing.

    Parameters
    ----------
    store
        The store to push.
    target
        A folder or a URL such as ``s3://bucket/lab``, where the store keeps its name (to rename it,
        end the folder or URL in ``NAME.zarr``), or ``hf://datasets/OWNER/NAME``, a dataset on the
        Hugging Face Hub. Raises `StoreError` if the target has other content.
    """
    checksums, sizes, left_out = _list_files(store)
    where = str(target).rstrip("/")
    if where.startswith(("http://", "https://")):
        raise UsageError(
            f"{redact_url(where)}: cannot push over HTTP; use a folder, s3:// or hf://"
        )
    if where.startswith("hf://"):
        sent = _push_to_hub(store, checksums, sizes, where)
    else:
        if not where.endswith(".zarr"):
            where = f"{where}/{store.path.resolve().name}"
        if is_url(where):
            sent = _push_to_bucket(store, checksums, sizes, where)
        else:
            sent = _push_to_folder(store, len(sizes), Path(where))
    return Pushed(redact_url(where), len(sizes), sum(sizes.values()), sent, left_out)


def _list_files(store: Store) -> tuple[dict[str, str], dict[str, int], list[str]]:
    """Return a final store's checksums, the sizes of all its files, and the files left out."""
    if not store.is_final:
        raise StoreError(
            f"{store.path} cannot be packed or pushed because it is still open; run: "
            f"obygaze stores finalise {store.path}"
        )
    checksums = read_checksums(store.location)
    check_list(store, checksums)
    require_plain_file(store.path / fmt.LOG, StoreError)  # the only file without a checksum
    files = {p.relative_to(store.path).as_posix() for p in store.path.rglob("*") if p.is_file()}
    for name in checksums:
        if name not in files:
            raise _damaged(store, name)
    names = [name for name in (*checksums, fmt.CHECKSUMS, fmt.LOG) if name in files]
    sizes = {name: (store.path / name).stat().st_size for name in names}
    return checksums, sizes, sorted(files.difference(names))


def _damaged(store: Store, name: str) -> StoreError:
    return StoreError(
        f"{store.path / name} does not match its checksum, so the store was not copied; "
        f"run: obygaze stores verify {store.path}"
    )


def _holds_another(where: Path | str) -> StoreError:
    return StoreError(f"{where} holds another store or other files; choose an empty target")


def _find_unsent(
    store: Store,
    checksums: Mapping[str, str],
    sizes: Mapping[str, int],
    there: Remote,
    sizes_there: Mapping[str, int],
) -> list[str]:
    """Return the files that are missing or have another size elsewhere, after verifying them."""
    if sizes_there and not _is_same(store, there):
        raise _holds_another(there.where)
    unsent = [name for name, size in sizes.items() if sizes_there.get(name) != size]
    _require_intact(store, checksums, unsent)
    return unsent


def _require_intact(store: Store, checksums: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise `StoreError` if a file that is about to be copied does not match its checksum."""
    for name in progress(list(names), "Verifying", unit="file"):
        if name in checksums and sha256_of(store.path / name) != checksums[name]:
            raise _damaged(store, name)


def _push_to_folder(store: Store, files: int, target: Path) -> int:
    """Copy a store into a folder unless it is there; return the number of files copied."""
    store.location.refuse_as_output(target)
    if not os.path.lexists(target):
        pull(store.path, target)
        return files
    there = Folder(target)
    if there.exists(GROUP) and _is_same(store, there):
        return 0
    raise _holds_another(target)


def _push_to_bucket(
    store: Store, checksums: Mapping[str, str], sizes: Mapping[str, int], where: str
) -> int:
    """Upload the files that are missing or have other sizes; return their number."""
    there = Remote(where)
    root = there.path("").rstrip("/")
    with one_line_errors(there.where):
        try:
            found = there.connect().find(root, detail=True)
        except FileNotFoundError:
            found = {}
    sizes_there = {path.removeprefix(f"{root}/"): info["size"] for path, info in found.items()}

    unsent = _find_unsent(store, checksums, sizes, there, sizes_there)
    first = [name for name in unsent if name == fmt.CHECKSUMS]
    last = [name for name in unsent if name == GROUP]
    try:
        there.send(first, store.path)
        there.send([name for name in unsent if name not in (*first, *last)], store.path)
    except FileNotFoundError:
        raise StoreError(
            f"{there.where}: the bucket does not exist; check its name, or create it"
        ) from None
    if not _is_same(store, there):  # another push may have started meanwhile
        raise _holds_another(there.where)
    there.send(last, store.path)
    return len(unsent)


def _is_same(store: Store, there: Location) -> bool:
    """Return True if the store at a location has the same list of checksums."""
    try:
        return there.read(fmt.CHECKSUMS) == store.location.read(fmt.CHECKSUMS)
    except FileNotFoundError:
        return False


def _push_to_hub(
    store: Store, checksums: Mapping[str, str], sizes: Mapping[str, int], where: str
) -> int:
    """Push a store to a dataset on the Hub in one commit; return the number of files sent."""
    dataset = {"repo_id": hub_repository(where), "repo_type": "dataset"}
    there = Remote(where)
    hub = need("huggingface_hub", extra="remote")
    api = hub.HfApi()
    with one_line_errors(where):
        api.create_repo(**dataset, private=True, exist_ok=True)
        tree = api.list_repo_tree(**dataset, recursive=True)
        files = {file.path: file.size for file in tree if isinstance(file, hub.RepoFile)}
        files.pop(".gitattributes", None)
        unsent = _find_unsent(store, checksums, sizes, there, files)
        if unsent:
            api.upload_folder(
                **dataset,
                folder_path=store.path,
                allow_patterns=list(sizes),
                commit_message=f"{store.path.name}: {len(sizes)} files",
            )
    return len(unsent)


def pull(source: Path | str, path: Path | str, *, overwrite: bool = False) -> Pulled:
    """Download or unpack a final store; a second run keeps the files that have arrived.

    Parameters
    ----------
    source
        The store to pull: a URL, a zip file on this machine, or a folder.
    path
        The path of the new store, ``NAME.zarr``.
    overwrite
        Replace an existing store at `path` once the new one is complete and verified.
    """
    output = require_store_name(Path(path))
    refuse_to_overwrite(output, overwrite=overwrite)
    location = location_of(source)
    location.pin()
    if read_attributes(location)["state"] != "final":
        raise StoreError(
            f"{location.where} is still open, so its files may change. Copy finished films with: "
            f"obygaze stores subset {location.where} --film FILM,... -o {output}"
        )
    checksums = read_checksums(location)
    for name in checksums:
        if not is_store_name(name):  # it is about to become a path
            raise StoreError(
                f"{location.join(fmt.CHECKSUMS)} lists {name!r:.80}, which is not a valid name "
                "for a store's file"
            )

    folder = output.with_name(f".{output.name}.pulling")
    lock = folder.with_name(f"{folder.name}.lock")
    busy = f"another process is fetching {output}; wait for it, or choose another name"
    with (
        disk_errors(output, StoreError),
        only_process(lock, StoreError(busy)),
        new_folder(output, overwrite=overwrite, marker=fmt.CHECKSUMS, allow_missing=True) as final,
    ):
        _prepare(folder, location.read(fmt.CHECKSUMS))
        try:
            fetched = _fetch(location, checksums, folder)
            check_list(Store(Folder(folder, location.where)), checksums)
        except StoreError:
            if location.is_local:  # reading the source again costs little
                shutil.rmtree(folder, ignore_errors=True)
            raise
        for name in (*checksums, fmt.CHECKSUMS):
            make_read_only(folder / name)
        sync_folder(folder)
        lock.unlink(missing_ok=True)  # before the store is there, so that a kill leaves no file
        final.rmdir()
        folder.rename(final)
    sizes = [file.stat().st_size for file in output.rglob("*") if file.is_file()]
    return Pulled(output, len(sizes), sum(sizes), fetched)


def _prepare(folder: Path, listed: bytes) -> None:
    """Make the hidden folder for the files of a pull, or keep that of an earlier run.

    It is kept if its list of checksums shows that its files belong to the same store.
    """
    names = {fmt.CHECKSUMS, fmt.LOG}
    with contextlib.suppress(StoreError):
        names |= read_checksums(Folder(folder)).keys()
    is_ours = is_resumable(folder, fmt.CHECKSUMS, names.__contains__)
    if is_ours and (folder / fmt.CHECKSUMS).read_bytes() == listed:
        return
    shutil.rmtree(folder, ignore_errors=True)
    with new_folder(folder) as new:
        write_bytes(new / fmt.CHECKSUMS, listed)


def _fetch(location: Location, checksums: Mapping[str, str], folder: Path) -> int:
    """Fetch the files that are not right yet; return the number of bytes fetched."""
    wrong = _find_wrong(folder, checksums, checksums)
    try:
        location.fetch(wrong, folder)
    except FileNotFoundError:
        absent = next((name for name in wrong if not location.exists(name)), "a file")
        raise StoreError(
            f"{location.join(absent)} is listed in {fmt.CHECKSUMS} but missing; tell the owner of "
            "the store"
        ) from None
    fetched = sum((folder / name).stat().st_size for name in wrong)
    for name in _find_wrong(folder, checksums, wrong):
        raise StoreError(
            f"{location.join(name)} does not match its checksum; tell the owner of the store (if "
            "the store was changed just now, run the same command again)"
        )
    (folder / fmt.LOG).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):  # the log may be lost; it affects no features
        if isinstance(location, Folder):  # no checksum tells whose file it is
            require_plain_file(location.path / fmt.LOG, StoreError)
        location.fetch([fmt.LOG], folder)
    return fetched


def _find_wrong(folder: Path, checksums: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return the files that do not match their checksums, after removing them."""
    wrong = []
    for name in names:
        path = folder / name
        if not path.is_file() or sha256_of(path) != checksums[name]:
            path.unlink(missing_ok=True)
            wrong.append(name)
    return wrong
